#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the results on a GPU with which softgpu is compared (h200.txt):

  record.py prepare PROGRAM FOLDER [RECORDED]         with ptxas: compile the cases for sm_90a
  record.py run PROGRAM FOLDER [RECORDED] > h200.txt  on the GPU, with its driver before softgpu in
                                                      LD_LIBRARY_PATH

PROGRAM is build/tests/softgpu_conformance. RECORDED is an h200.txt: only the cases that it lacks are
prepared and run, the others are copied. Cases run on the GPU in parts; if a part does not load or fails,
its cases run one by one. A case that does not load, faults or does not end is named on standard error
and left out, and the first lines of the output say how many those are. Python standard library only."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

PART = 64            # cases of one file
FEW = 8              # cases of one file if RECORDED lacks only some: these have probably failed before
PART_LIMIT_S = 30
CASE_LIMIT_S = 10
AT_ONCE = 8          # processes on the GPU at a time, whose time is mostly start and end
DIGEST = 64          # characters
HEADER = "# What an H200 computed: record.py, with machine code that ptxas 13.0 made of `conformance ptx`."


def recorded_lines(path):
    """The digests of a file by the cases' names."""
    lines = path.read_text().splitlines() if path else []
    return {line[DIGEST + 1:]: line[:DIGEST] for line in lines if not line.startswith("#")}


def names_of(program):
    return subprocess.run([program, "list"], capture_output=True, text=True, check=True).stdout.splitlines()


def text_of(cases):
    return ",".join(map(str, cases))


def prepare(program, folder, recorded):
    folder.mkdir(parents=True, exist_ok=True)
    known = recorded_lines(recorded)
    missing = [case for case, name in enumerate(names_of(program)) if name not in known]
    size = FEW if known else PART
    parts = [missing[at:at + size] for at in range(0, len(missing), size)]

    def make(cases, path):
        source = path.with_suffix(".ptx")
        source.write_text(subprocess.run([program, "ptx", "--cases", text_of(cases)],
                                         capture_output=True, text=True, check=True).stdout)
        subprocess.run(["ptxas", "-arch=sm_90a", "-o", str(path), str(source)], check=True)
        source.unlink()

    # If they are few, also each case in a file of its own: a part may not load because of one case.
    work = [(cases, folder / f"part{cases[0]}.cubin") for cases in parts]
    if known:
        work += [([case], folder / f"case{case}.cubin") for case in missing]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda item: make(*item), work))
    (folder / "parts").write_text("".join(text_of(cases) + "\n" for cases in parts))


def record(program, image, cases, limit_s):
    """(lines of the cases that ran, other output, whether the process succeeded)."""
    command = [program, "record", "--image", str(image), "--cases", text_of(cases)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        out, code, end = done.stdout, done.returncode, f"exit code {done.returncode}"
    except subprocess.TimeoutExpired as late:
        out, code, end = (late.stdout or b"").decode(), None, f"no end after {limit_s} s"
    lines = out.splitlines()
    good = [line for line in lines if line[DIGEST:DIGEST + 1] == " " and line[0] != "#"]
    return good, "; ".join([*(line for line in lines if line not in good), end]), code == 0


def record_part(program, folder, cases):
    """(lines of a part, messages about it)."""
    image, messages = folder / f"part{cases[0]}.cubin", []
    part, said, well = record(program, image, cases, PART_LIMIT_S)
    if well:
        return part, messages
    messages.append(f"{image.name}: {said}")
    part = []
    for case in cases:
        alone = folder / f"case{case}.cubin"
        lines, said, well = record(program, alone if alone.exists() else image, [case], CASE_LIMIT_S)
        if not well:
            messages.append(f"case {case}: {said}")
        part += lines
    return part, messages


def run(program, folder, recorded):
    known = recorded_lines(recorded)
    parts = [list(map(int, line.split(","))) for line in (folder / "parts").read_text().splitlines()]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for lines, messages in pool.map(lambda cases: record_part(program, folder, cases), parts):
            known.update((line[DIGEST + 1:], line[:DIGEST]) for line in lines)
            for message in messages:
                print(message, file=sys.stderr)
    names = names_of(program)
    lines = [f"{known[name]} {name}" for name in names if name in known]
    print(HEADER)
    if len(lines) < len(names):
        print(f"# {len(names) - len(lines)} cases wait for their recording")
    print("\n".join(lines))


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    recorded = Path(sys.argv[4]) if len(sys.argv) == 5 else None
    {"prepare": prepare, "run": run}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), recorded)


if __name__ == "__main__":
    main()
