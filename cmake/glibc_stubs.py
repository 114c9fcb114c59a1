#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes libraries to link against in place of this machine's glibc, so that what is linked runs on an older one. Run by
the build (cmake/OpenmpsOldGlibc.cmake).

A program takes each symbol of glibc in the version that the linker finds, the newest. The stubs made here have the
same names as this machine's libraries, and of each symbol only the newest version that was there in --newest. What
came later is undefined, unless --compat has it (src/oldlibc). Stubs have no code: nothing ever loads them."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

# nm: value, size of some, kind, name@version or, of the default version, name@@version.
SYMBOL = re.compile(r"^[0-9a-f]+ (?:(?P<size>[0-9a-f]+) )?(?P<kind>\w) (?P<name>\w+)@@?GLIBC_(?P<version>[\d.]+)$", re.M)
DATA = "BDRVbdrv"


def number(version):
    return tuple(map(int, version.split(".")))


def symbols(nm, library, newest):
    """{name: (version, kind, bytes)}."""
    text = subprocess.run([nm, "-D", "-S", "--defined-only", "--with-symbol-versions", library], check=True, text=True,
                          capture_output=True).stdout
    found = {}
    for match in SYMBOL.finditer(text):
        version = number(match["version"])
        if version <= newest and version > found.get(match["name"], ((),))[0]:
            found[match["name"]] = version, match["kind"], int(match["size"] or "0", 16)
    return found


def assembler(found):
    lines = []
    for name, (_, kind, size) in sorted(found.items()):
        data = kind in DATA
        lines += [".data" if data else ".text", f'.globl "{name}"', f'.type "{name}", @{"object" if data else "function"}',
                  f'"{name}":', f".skip {max(size, 1) if data else 1}"]
        lines += [f'.size "{name}", {size}'] if data else []
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def version_script(found):
    versions = {}
    for name, (version, _, _) in found.items():
        versions.setdefault(version, []).append(name)
    return "".join(f"GLIBC_{'.'.join(map(str, version))} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
                   for version, names in sorted(versions.items()))


def make_stub(options, library):
    """A library of the same name with the same symbols, and a link by the name that -l looks for."""
    name = Path(library).name
    found = symbols(options.nm, library, number(options.newest))
    source, script = options.output / f"{name}.s", options.output / f"{name}.map"
    source.write_text(assembler(found), encoding="utf-8")
    script.write_text(version_script(found), encoding="utf-8")
    versioned = [f"-Wl,--version-script={script}"] if found else []
    subprocess.run([options.cc, "-shared", "-nostdlib", f"-Wl,-soname,{name}", *versioned, source, "-o",
                    options.output / name], check=True)
    link = options.output / (name.split(".so")[0] + ".so")
    link.unlink(missing_ok=True)
    link.symlink_to(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nm", required=True)
    parser.add_argument("--cc", required=True)
    parser.add_argument("--newest", required=True, metavar="VERSION", help="of glibc's symbols, such as 2.17")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    parser.add_argument("--compat", required=True, metavar="ARCHIVE", help="has what came later")
    parser.add_argument("--nonshared", required=True, metavar="ARCHIVE", help="this machine's libc_nonshared.a")
    parser.add_argument("library", nargs="+", help="this machine's; libc.so.6 and the dynamic linker among them")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for library in options.library:
        make_stub(options, library)
    # What -lc is, in the form of glibc's own libc.so. What came later is looked for first: __libc_start_main is in both.
    loader = next(Path(library).name for library in options.library if Path(library).name.startswith("ld-"))
    script = options.output / "libc.so"
    script.unlink()
    script.write_text(f"GROUP ( {options.compat} {options.output}/libc.so.6 {options.nonshared} "
                      f"AS_NEEDED ( {options.output}/{loader} ) )\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
