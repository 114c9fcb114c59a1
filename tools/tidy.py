#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over every source of ours that a build knows, as many at once as there are
processors, and prints each finding once (headers are seen by many sources). Run by `./dev lint`.
A source that was clean is not looked at again until it, a header or the checks change: BUILD/tidy
holds a file for each, named by a hash of its preprocessed text. --all looks at all of them.
Exit code 1 if there is a finding."""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FINDING = re.compile(r"^\S+:\d+:\d+: (warning|error): ")


def sources(build):
    """Compile commands of the tracked sources that the build compiles, by name: what it does not
    compile has no flags to read."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        commands.setdefault(Path(entry["directory"], entry["file"]).resolve(), []).append(entry)
    tracked = subprocess.run(["git", "ls-files", "*.cc"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split()
    return {name: commands[ROOT / name] for name in tracked if ROOT / name in commands}


def checks():
    """What decides the findings besides a source's text."""
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    return version + (ROOT / ".clang-tidy").read_bytes()


def stamp(build, entries, salt):
    """The file that says that a source was clean; None where it can't be preprocessed."""
    text = hashlib.sha256(salt)
    for entry in entries:
        _, *flags = shlex.split(entry["command"])
        del flags[flags.index("-o"):flags.index("-o") + 2]
        done = subprocess.run(["clang++", *flags, "-E", "-CC", "-o", "-"], cwd=entry["directory"],
                              capture_output=True, check=False)
        if done.returncode != 0:
            return None
        text.update(done.stdout)
    return build / "tidy" / text.hexdigest()


def findings(build, name):
    """The findings in a source and its headers, each as one text of several lines."""
    done = subprocess.run(["clang-tidy", "-p", build, "--quiet", name], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    found = []
    for line in done.stdout.splitlines():
        if FINDING.match(line):
            found.append(line)
        elif found:
            found[-1] += "\n" + line
    if done.returncode != 0 and not found:
        found.append(f"{name}: clang-tidy failed: {done.stderr.strip()}")
    return found


def look_at(build, name, clean):
    """The findings, and how they came about; a source whose stamp exists has none."""
    if clean is not None and clean.exists():
        return [], "as before"
    found = findings(build, name)
    if not found and clean is not None:
        clean.touch()
    return found, "looked at"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build/lint",
                        help="a configured build tree with its generated sources and without "
                             "precompiled headers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--all", action="store_true", help="those that were clean, too")
    parser.add_argument("source", nargs="*", help="only these, e.g. src/base/log.cc")
    args = parser.parse_args()
    build = args.build.resolve()
    commands, salt = sources(build), checks()
    (build / "tidy").mkdir(exist_ok=True)
    names = args.source or list(commands)
    missing = [name for name in names if name not in commands]
    if missing:
        parser.error(f"not a source that {build} compiles: {missing[0]}")

    def run(name):
        return look_at(build, name, None if args.all else stamp(build, commands[name], salt))

    known = set()
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = {pool.submit(run, name): name for name in names}
        for number, done in enumerate(as_completed(runs), 1):
            found, how = done.result()
            print(f"[{number}/{len(names)}] {runs[done]} {how}", flush=True)
            for finding in found:
                if finding not in known:
                    known.add(finding)
                    print(finding, flush=True)
    print(f"clang-tidy: {len(names)} sources, {len(known)} findings")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
