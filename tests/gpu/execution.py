# SPDX-License-Identifier: Apache-2.0
"""Runs one case of cases.py in one mode, in a sandbox of its own, so that a crash, a hang or a lost
worker touches no other case. Called by run_gpu.py from several threads, one case each.

A program that dies or runs out of time loses the test that was running; the rest of its plan is given
to a new process, a bounded number of times.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "e2e")]
from sandbox import Failure, Sandbox, wait_until  # noqa: E402

# How often the rest of a plan is given to a new process. If that many fail, more are likely to fail
# for the same reason, after ten seconds each.
RESTARTS = 6
THREADS = "2"
STDERR_LINES = 30
DEBUG_LINES = 60
LEAVE_LIMIT_S = 15  # within which daemon, server and worker have to end after `quit`
DEBUG_LINE = re.compile(r"^openmps(?:\[\d+\])?: (.*)")
# Entry points for graphics that the CUDA runtime looks up and OpenMPS deliberately does not have.
EXPECTED_ABSENCE = re.compile(r'there is no "(cu\w*(GL|EGL|Egl|VDPAU|D3D|NvSci)\w*|)"')
DAEMON = "(daemon)"  # pseudo test: daemon, server and worker end and leave nothing behind
NEXT = "(next program)"  # pseudo test: another program still works under the same daemon
NEXT_LIMIT_S = 60


def results_of(output):
    """(plan, {test: result}) from a program's standard output; other lines are ignored."""
    plan, results = [], {}
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if "plan" in fields:
            plan = fields["plan"]
        elif "test" in fields:
            results[fields.pop("test")] = fields
    return plan, results


class Output:
    """The last lines of standard error of a case's processes, and separately its OPENMPS_DEBUG lines."""

    def __init__(self):
        self.stderr, self.debug = [], {}

    def take(self, text):
        for line in text.splitlines():
            match = DEBUG_LINE.match(line)
            if not match:
                self.stderr.append(line)
            elif not EXPECTED_ABSENCE.search(line):
                self.debug[match.group(1)] = self.debug.get(match.group(1), 0) + 1

    def fields(self):
        debug = [line if n == 1 else f"{line} ({n} x)" for line, n in self.debug.items()]
        return {"stderr": self.stderr[-STDERR_LINES:], "debug": debug[:DEBUG_LINES]}


def run_once(box, case, extra, output):
    """Starts the copies of a program together; returns (plan, results of each copy, how each ended).
    The end is None for a copy that finished its plan, else (status, sentence)."""
    deadline = time.monotonic() + case.limit_s
    command = [str(box.build / case.command[0]), *case.command[1:], *extra]
    # Files, not pipes: children of a crashed program may live on and keep its end of a pipe open.
    files = [[open(box.root / f"{n}.{kind}", "w+", errors="replace") for kind in ("out", "err")]
             for n in range(case.processes)]
    children = [box.start(command, stdout=out, stderr=err) for out, err in files]
    plan, copies, ends = [], [], []
    for child, (out, err) in zip(children, files):
        try:
            end = ended(child.wait(timeout=max(1, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            end = ("timed out", f"no end after {case.limit_s:.0f} s")
        kill_group(child)
        its_plan, results = results_of(text_of(out))
        output.take(text_of(err))
        plan = its_plan or plan
        copies.append(results)
        ends.append(end)
    return plan, copies, ends


def text_of(file):
    with file:
        file.seek(0)
        return file.read()


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # no process of the group is left


def ended(code):
    if code in (0, 1):  # 1: a test failed, and says so itself
        return None
    return ("crashed", f"signal {-code}" if code < 0 else f"exit code {code}")


def merge(name, copies, ends):
    """The result of a test from those of all copies: the worst one, or a failure if values differ."""
    found = []
    for results, end in zip(copies, ends):
        result = dict(results.get(name, {"status": "not run"}))
        if result["status"] == "running":
            status, detail = end or ("crashed", "the program ended in it")
            result = {"status": status, "detail": detail}
        found.append(result)
    worst = next((r for r in found if r["status"] not in ("ok", "skipped")), found[0])
    values = {json.dumps(r.get("value")) for r in found}
    if worst["status"] == "ok" and len(values) > 1:
        return {"status": "failed", "detail": "values of the copies differ: " + ", ".join(values)}
    return worst


def run_plan(box, case, output):
    """Runs every test of the program, in new processes after crashes. Returns {test: result}."""
    results, extra = {}, []
    deadline = time.monotonic() + case.limit_s  # no further process starts after it
    for _ in range(1 + RESTARTS):
        plan, copies, ends = run_once(box, case, extra, output)
        if not plan:
            status, detail = next((end for end in ends if end), ("crashed", "it ran no test"))
            return {**results, "(start)": {"status": status, "detail": detail}}
        merged = {name: merge(name, copies, ends) for name in plan}
        reached = [name for name in plan if merged[name]["status"] != "not run"]
        results.update(merged)
        if len(reached) == len(plan) or not reached or time.monotonic() > deadline:
            break
        extra = ["--after", reached[-1]]
    return results


def run_next(box):
    """Runs another program after the case's, and returns its result."""
    try:
        code, out, err = box.run(["vector_add"], NEXT_LIMIT_S)
    except Failure as failure:
        return {"status": "failed", "detail": str(failure)}
    return {"status": "ok"} if code == 0 else {"status": "failed", "detail": f"exit code {code}\n{out}{err}"}


def stop_daemon(box):
    """Ends the sandbox's daemon, and returns the result of the pseudo test DAEMON."""
    try:
        box.quit()
    except (Failure, subprocess.SubprocessError) as failure:
        return {"status": "failed", "detail": str(failure)}
    names = ("openmps-control", "openmps-server", "openmps-worker")
    if not wait_until(lambda: not any(box.pids_named(n[:15]) for n in names), LEAVE_LIMIT_S):
        return {"status": "failed", "detail": "processes are left after quit"}
    return {"status": "ok"}


def run_case(case, mode, build, extra_env=None):
    """{"results": {test: result}, "seconds", "stderr", "debug", "logs"} of a case in a mode."""
    begin = time.monotonic()
    # Many programs share the processors, and their reference computations on the CPU are small.
    env = {"OMP_NUM_THREADS": THREADS, **case.env, **(extra_env or {})}
    if mode == "openmps":
        env["OPENMPS_DEBUG"] = "1"
    libraries = env.pop("LD_LIBRARY_PATH", None)
    box = Sandbox(build, mode, "nvidia", env)
    if libraries:  # after OpenMPS's own folder
        ours = box.env.get("LD_LIBRARY_PATH")
        box.env["LD_LIBRARY_PATH"] = f"{ours}:{libraries}" if ours else libraries
    # Caches of compilers are kept between the processes of a sandbox, but not between the two modes,
    # so that neither mode profits from what the other has compiled.
    for name, folder in (("TRITON_CACHE_DIR", "triton"), ("CUPY_CACHE_DIR", "cupy"),
                         ("CUDA_CACHE_PATH", "nv"), ("TORCHINDUCTOR_CACHE_DIR", "inductor")):
        box.env[name] = str(box.root / folder)
    output = Output()
    try:
        if mode == "openmps":
            box.start_daemon()
        results = run_plan(box, case, output)
        if mode == "openmps":
            results[NEXT] = run_next(box)
            results[DAEMON] = stop_daemon(box)
        good = all(r["status"] in ("ok", "skipped") for r in results.values())
        logs = "" if good else box.logs()
    except (Failure, subprocess.SubprocessError, OSError) as failure:
        results, logs = {"(start)": {"status": "failed", "detail": str(failure)}}, box.logs()
    finally:
        box.close()
    return {"results": results, "seconds": round(time.monotonic() - begin, 1), **output.fields(),
            "logs": logs}
