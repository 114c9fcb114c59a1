#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stock CUDA stack natively and behind OpenMPS: PyTorch, Triton, CuPy, JAX, the CUDA libraries.
Run by `./dev gpu-test` and by ctest. Exit code: 0 all that passes natively passes behind OpenMPS,
1 something does not, 77 there is no GPU (ctest: skipped).

  run_gpu.py --list
  run_gpu.py --only torch_ops,lenet --json result.json
  run_gpu.py --only torch_ops/random          one program of a suite

The cases run side by side, each in a sandbox with a daemon and a context of its own; cases that need
several GPUs, or fill one's memory, run last and alone. Python standard library only; what a program needs, it imports itself.
"""

import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import cases
import e2e_suite
import execution
import report

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
# How many programs run at once. Each has one or two busy threads, and imports compete for the disk.
# Behind OpenMPS each has a worker of its own, and if ten contexts with 32 hardware queues are created
# at once, each takes eight seconds instead of half a second.
MOST_AT_ONCE = 5
# Modules that a suite imports. If one is missing, the suite is skipped and does not fail.
NEEDS = {"torch_ops": ("torch",), "lenet": ("torch",), "transformer": ("torch",),
         "compile": ("torch", "triton"), "triton": ("torch", "triton"), "cupy": ("cupy",),
         "jax": ("jax",), "allocators": ("torch",), "loader": ("torch",), "resnet": ("torch",),
         "ipc": ("torch",), "nccl": ("torch",)}


def gpus():
    """One line per GPU of this machine: name, driver version."""
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def selected(only):
    """The cases whose suite or title is in a comma-separated list, and whether e2e is."""
    wanted = only.split(",") if only else cases.SUITES
    unknown = set(wanted) - set(cases.SUITES) - {case.title for case in cases.CASES}
    if unknown:
        sys.exit(f"no such suite: {', '.join(sorted(unknown))}; see --list")
    return ([case for case in cases.CASES if case.suite in wanted or case.title in wanted],
            cases.E2E_SUITE in wanted)


def obstacle(case, gpu_count, build):
    """Why a case cannot run on this machine, or None."""
    if case.gpus > gpu_count:
        return f"needs {case.gpus} GPUs, {gpu_count} here"
    for module in NEEDS.get(case.suite, ()):
        if not importlib.util.find_spec(module):
            return f"{module} is not installed"
    if case.command[0] != sys.executable and not (Path(build) / case.command[0]).exists():
        return f"{case.command[0]} was not built (needs nvcc and the library)"
    return None


def told(outcome):
    """The lines that are printed after a case: how many tests passed, and which did not."""
    results = outcome["results"]
    good = sum(r["status"] == "ok" for r in results.values())
    skipped = sum(r["status"] == "skipped" for r in results.values())
    lines = [f"{good} of {len(results) - skipped}" + (f", {skipped} skipped" if skipped else "") +
             f" in {outcome['seconds']:.0f} s"]
    lines += [f"    {name}: {r['status']}: {report.last_line(r)}"
              for name, r in results.items() if r["status"] not in report.GOOD]
    return "\n".join(lines)


def run_all(found, chosen, modes, build, jobs, env, keep):
    """Fills `found` with {title: {mode: outcome} or {"skipped": reason}} of all cases, and calls keep()
    after each."""
    begin, lock = time.monotonic(), threading.Lock()
    found.update({case.title: {} for case in chosen})  # the order of the table
    gpu_count = len(gpus()) if not env else 1
    runnable = []
    for case in chosen:
        reason = obstacle(case, gpu_count, build)
        if reason:
            found[case.title] = {"skipped": reason}
        else:
            runnable.append(case)

    def one(case, mode):
        outcome = execution.run_case(case, mode, build, env)
        with lock:
            found[case.title][mode] = outcome
            keep()
        print(f"[{time.monotonic() - begin:6.1f} s] {mode:7} {case.title}: {told(outcome)}", flush=True)

    # Long cases first, so that none of them runs alone at the end.
    alone = [case for case in runnable if case.alone or case.gpus > 1]
    together = sorted((c for c in runnable if c not in alone), key=lambda c: (-c.limit_s, -c.processes))
    for group, width in ((together, jobs), (alone, 1)):
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            for done in [pool.submit(one, case, mode) for case in group for mode in modes]:
                done.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--only", help="comma-separated suites, or SUITE/PROGRAM")
    parser.add_argument("--modes", default="native,openmps")
    parser.add_argument("--json", type=Path, help="default: BUILD/gpu-test.json")
    parser.add_argument("--jobs", type=int,
                        default=max(1, min(MOST_AT_ONCE, (os.cpu_count() or 1) * 2 // 3)))
    parser.add_argument("--list", action="store_true", help="the suites and their programs")
    parser.add_argument("--cpu", action="store_true",
                        help="test the tests themselves, CPU against CPU, where there is no GPU")
    args = parser.parse_args()
    chosen, with_e2e = selected(args.only)
    if args.list:
        for suite in cases.SUITES:
            names = [case.name for case in cases.CASES if case.suite == suite]
            print(f"{suite:12} {' '.join(names)}")
        return 0
    modes, env = args.modes.split(","), None
    if args.cpu:
        modes, env = ["native"], {"OPENMPS_TEST_DEVICE": "cpu"}
    elif not gpus():
        print("gpu-test: no GPU on this machine: skipped")
        return SKIPPED
    begin = time.monotonic()
    path = args.json or Path(args.build) / "gpu-test.json"
    run = {"machine": "; ".join(dict.fromkeys(gpus())) or "no GPU",
           "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
           "seconds": 0, "modes": modes, "cases": {}}

    def keep():  # after each case, so that a run that is stopped has the results so far
        run["seconds"] = round(time.monotonic() - begin)
        path.write_text(json.dumps(run, indent=1))

    run_all(run["cases"], chosen, modes, args.build, args.jobs, env, keep)
    # Not beside other cases, since some programs compare the device's free memory.
    if with_e2e and not args.cpu:
        run["cases"][cases.E2E_SUITE] = e2e_suite.run(args.build, modes)
    keep()
    words, failed = report.text(run)
    print(f"\n{words}\n{run['seconds']} s; everything is in {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
