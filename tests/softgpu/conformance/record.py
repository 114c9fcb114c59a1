#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records on a GPU what softgpu is compared with (h200.txt):

  record.py prepare PROGRAM FOLDER         where ptxas is: the cases' machine code for sm_90a, in parts
  record.py run PROGRAM FOLDER > h200.txt  on the GPU, with its driver before softgpu in
                                           LD_LIBRARY_PATH

PROGRAM is build/tests/softgpu_conformance. A part that the driver does not load, a case that faults
or does not end is named on standard error and left out, and the first lines say how many those are.
Python standard library only."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

PART = 64            # cases of one file
PART_LIMIT_S = 30
CASE_LIMIT_S = 10
DIGEST = 64          # characters
HEADER = "# What an H200 computed: record.py, with machine code that ptxas 13.0 made of `conformance ptx`."


def prepare(program, folder):
    folder.mkdir(parents=True, exist_ok=True)

    def make(begin):
        """How many cases there are from there on, up to PART."""
        text = subprocess.run([program, "ptx", "--from", str(begin), "--count", str(PART)],
                              capture_output=True, text=True, check=True).stdout
        if ".entry" not in text:
            return 0
        source = folder / f"{begin}.ptx"
        source.write_text(text)
        subprocess.run(["ptxas", "-arch=sm_90a", "-o", str(folder / f"{begin}.cubin"), str(source)],
                       check=True)
        source.unlink()
        return text.count(".entry")

    total, width = 0, os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(width) as pool:
        while total % (width * PART) == 0:
            made = sum(pool.map(make, range(total, total + width * PART, PART)))
            total += made
            if made == 0:
                break
    (folder / "cases").write_text(f"{total}\n")


def record(program, image, begin, count, limit_s):
    """The lines of so many cases, as far as they came; what else was said; whether it ended well."""
    command = [program, "record", "--image", str(image), "--from", str(begin), "--count", str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        out, code, end = done.stdout, done.returncode, f"exit code {done.returncode}"
    except subprocess.TimeoutExpired as late:
        out, code, end = (late.stdout or b"").decode(), None, f"no end after {limit_s} s"
    lines = out.splitlines()
    good = [line for line in lines if line[DIGEST:DIGEST + 1] == " " and line[0] != "#"]
    return good, "; ".join([*(line for line in lines if line not in good), end]), code == 0


def run(program, folder):
    total, lines = int((folder / "cases").read_text()), []
    for image in sorted(folder.glob("*.cubin"), key=lambda path: int(path.stem)):
        begin = int(image.stem)
        part, said, well = record(program, image, begin, PART, PART_LIMIT_S)
        if not well:
            print(f"{image.name}: {said}", file=sys.stderr)
            part = []
            loads = "cuModuleLoadData" not in said
            for case in range(begin, min(begin + PART, total)) if loads else ():
                line, said, well = record(program, image, case, 1, CASE_LIMIT_S)
                if not well:
                    print(f"case {case}: {said}", file=sys.stderr)
                part += line
        lines += part
    print(HEADER)
    if len(lines) < total:
        print(f"# {total - len(lines)} cases wait for their recording")
    print("\n".join(lines))


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    {"prepare": prepare, "run": run}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))


if __name__ == "__main__":
    main()
