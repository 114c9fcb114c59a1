#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over every source of ours that a build knows, as many at once as there are
processors, and prints each finding once (headers are seen by many sources). Run by `./dev lint`.
Exit code 1 if there is a finding."""

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FINDING = re.compile(r"^\S+:\d+:\d+: (warning|error): ")


def sources(build):
    """Tracked sources that the build compiles: what it does not compile has no flags to read."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    compiled = {Path(entry["directory"], entry["file"]).resolve() for entry in entries}
    tracked = subprocess.run(["git", "ls-files", "*.cc"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split()
    return [name for name in tracked if ROOT / name in compiled]


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build",
                        help="a configured build tree with its generated sources")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("source", nargs="*", help="only these, e.g. src/base/log.cc")
    args = parser.parse_args()
    build = args.build.resolve()
    names = args.source or sources(build)
    known = set()
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = {pool.submit(findings, build, name): name for name in names}
        for number, run in enumerate(as_completed(runs), 1):
            print(f"[{number}/{len(names)}] {runs[run]}", flush=True)
            for finding in run.result():
                if finding not in known:
                    known.add(finding)
                    print(finding, flush=True)
    print(f"clang-tidy: {len(names)} sources, {len(known)} findings")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
