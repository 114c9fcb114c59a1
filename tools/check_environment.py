#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the tables of docs/variables.md and docs/variables.zh-CN.md explain each variable that
src/ reads, and none that it does not; and that src/ and what api/ generates read the environment by
base/environment.h alone, which knows when not to. Run by `./dev check` and by ctest. Prints each
difference; exit code 1 if there is one."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/variables.md", "docs/variables.zh-CN.md")
# Names of errors look alike.
READ = re.compile(r'"((?!CUDA_ERROR_|CUDA_SUCCESS)(?:CUDA|OPENMPS|SOFTGPU)_[A-Z0-9_]*[A-Z0-9])"')
NAME = re.compile(r"`((?:CUDA|OPENMPS|SOFTGPU)_[A-Z0-9_]*[A-Z0-9])`")
# The environment without environment.h; another process's, /proc/PID/environ, is another matter.
DIRECT = re.compile(r"\b(?:secure_)?getenv\b|(?<![/\w])_*environ\b|/proc/self/environ|\benvp\b")
ACCESSOR = "src/base/environment"


def read_directly():
    """Each place that reads the environment by itself."""
    places = []
    for folder, suffixes in (("src", (".h", ".cc", ".inc")), ("api/generator", (".py",))):
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix not in suffixes or name.startswith(ACCESSOR):
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if DIRECT.search(line):
                    places.append(f"{name}:{number}: the environment is read by base/environment.h only")
    return places


def names_read():
    names = set()
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in (".h", ".cc"):
            names.update(READ.findall(path.read_text(encoding="utf-8")))
    return names


def names_told(page):
    """Those in the first column of a table."""
    names = set()
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            names.update(NAME.findall(line.split("|")[1]))
    return names


def main():
    read = names_read()
    found = read_directly()
    for page in PAGES:
        told = names_told(page)
        found += [f"{page}: no word of {name}, which src/ reads" for name in sorted(read - told)]
        found += [f"{page}: {name}, which nothing in src/ reads" for name in sorted(told - read)]
    print("\n".join(found) if found else f"environment: {len(read)} variables, all of them explained")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
