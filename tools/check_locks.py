#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has clang check which mutex is held where (-Wthread-safety; src/base/mutex.h has the annotations), for every source
below src/ that a build knows, as many at once as there are processors. The build has only to be configured, with its
generated headers; batches of sources (OPENMPS_UNITY) make it quick. Run by `./dev lint` and CI. Exit code 1 if there is
a finding."""

import argparse
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety", "-fno-caret-diagnostics"]


def commands(build):
    """[(directory, clang's command line)], of each source once."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        source = Path(entry["directory"], entry["file"]).resolve()
        inside = source.relative_to(build if source.is_relative_to(build) else ROOT)
        if inside.parts[0] != "src" or source.suffix != ".cc" and source.suffix != ".cxx":
            continue
        flags = shlex.split(entry["command"])
        flags = flags[next(i for i, flag in enumerate(flags) if flag.startswith("-")):]
        del flags[flags.index("-o"):flags.index("-o") + 2]
        found.setdefault(source, (entry["directory"], ["clang++", *flags, *FLAGS]))
    return list(found.values())


def findings(command):
    directory, arguments = command
    done = subprocess.run(arguments, cwd=directory, capture_output=True, text=True, check=False)
    return done.stderr.splitlines() if done.returncode != 0 else []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build/locks")
    build = parser.parse_args().build.resolve()
    found, todo = {}, commands(build)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for lines in pool.map(findings, todo):
            found.update(dict.fromkeys(lines))
    print(*found, f"locks: {len(todo)} translation units, {len(found)} findings", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
