# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/e2e as one case of `./dev gpu-test`. Called by run_gpu.py on its main thread;
tests/e2e/run_e2e.py does the work and compares with what an H200 printed."""

import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RUNNER = Path(__file__).resolve().parents[1] / "e2e" / "run_e2e.py"
LIMIT_S = 660  # the 330 runs take about 380 s one after another on an H200, the scenarios 40
LINE = re.compile(r"^(ok|FAILED)\s+(native|openmps)\s+(.+)$")
RESULT = {"ok": {"status": "ok"}, "FAILED": {"status": "failed"}}
TAIL_LINES = 120


def lines_of(command, limit_s):
    """(lines of a command's output, how it ended, its error output). Shows each result at once."""
    begin, lines = time.monotonic(), []
    with (tempfile.TemporaryFile("w+") as errors,
          subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child):
        late = threading.Event()
        watch = threading.Timer(limit_s, lambda: (late.set(), child.kill()))
        watch.start()
        try:
            for line in child.stdout:
                lines.append(line.rstrip("\n"))
                if LINE.match(line):
                    print(f"[{time.monotonic() - begin:6.1f} s] {lines[-1]}", flush=True)
            status = child.wait()
        finally:
            watch.cancel()
        errors.seek(0)
        text = errors.read().splitlines()
    if late.is_set():
        return lines, {"status": "timed out", "detail": f"no end after {limit_s} s"}, text
    return lines, {"status": "ok" if status in (0, 1) else "crashed"}, text


def run(build, modes):
    """{mode: outcome} as execution.run_case returns it. Runs one program after another: if six daemons
    start at once on an H200, each needs 10 s to start its worker and 10 s to end; one alone, 0.5 s."""
    begin = time.monotonic()
    output, end, errors = lines_of([sys.executable, "-B", "-u", str(RUNNER), "--build", str(build),
                                    "all", "--mode", ",".join(modes), "--driver", "nvidia"], LIMIT_S)
    found = {mode: {"results": {}, "seconds": 0, "stderr": [], "debug": [], "logs": ""}
             for mode in modes}
    failure = None  # the result that the following indented lines belong to
    for line in output:
        match = LINE.match(line)
        if match:
            word, mode, title = match.groups()
            found[mode]["results"][title] = result = dict(RESULT[word])
            failure = result if word == "FAILED" else None
        elif failure is not None:
            failure.setdefault("detail", line)  # the first line says what, the rest shows it
            failure.setdefault("text", []).append(line)
    last = found[modes[-1]]
    last["results"]["(end)"] = end
    last["stderr"] = errors[-TAIL_LINES:]
    for outcome in found.values():
        outcome["seconds"] = round(time.monotonic() - begin, 1)
    return found
