#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job, shown: the same unmodified n-body program as 1, 2 and 4 processes, first without
and then with OpenMPS, on the best driver of this machine. Prints a table, writes build/demo/demo.svg. On softgpu,
where cuDNN is installed, LeNet is then trained by as many processes.
Run by `./dev demo`. Exit code 1 if checksums differ, or if with OpenMPS more than the one process of the
worker used the device, or that one had more contexts than it says."""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e")]
import plot  # noqa: E402
from sandbox import Failure, Sandbox  # noqa: E402

PROCESSES = (1, 2, 4)
LIMIT_S = 300
# One small grid leaves most of a device idle, and that is what sharing wins back. On the H200: 32
# blocks on 132 SMs, about 1.2 s. On softgpu: one block on one of 8 SMs, about a second of one core.
SIZES = {"nvidia": (8192, 4000), "softgpu": (256, 6000)}
SAMPLE_S = 0.02
# Runs of each kind, in turns with the other kind; their median counts.
ROUNDS = 3
# What the worker has on a device: the context that all programs share, and a second one in which code
# runs that the first has not loaded yet (docs/decisions/0016).
WORKER_CONTEXTS = 2
# CUDA's libraries have PTX for softgpu from this compute capability on (docs/decisions/0041).
LIBRARIES = {"SOFTGPU_CC": "13.0"}


def best_driver():
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and "GPU 0" in done.stdout:
            return "nvidia"
    return "softgpu"


def device_use(box):
    """(processes with a context on the device, contexts, bytes of its memory in use) right now. NVIDIA's
    tools count no contexts: 0 there."""
    if box.driver == "nvidia":
        processes, memory = box.device_state()
        return processes, 0, memory
    device = box.device_info()["devices"][0]
    owners = {context["pid"] for context in device["contexts"]}
    return len(owners), device["context_count"], device["memory_used"]


class Watcher(threading.Thread):
    """Samples the device while a run lasts and keeps the highest values."""

    def __init__(self, box):
        super().__init__(daemon=True)
        self.box, self.done = box, threading.Event()
        self.processes = self.contexts = self.memory = 0

    def run(self):
        while not self.done.wait(SAMPLE_S):
            processes, contexts, memory = device_use(self.box)
            self.processes = max(self.processes, processes)
            self.contexts = max(self.contexts, contexts)
            self.memory = max(self.memory, memory)

    def stop(self):
        self.done.set()
        self.join()


def run_together(box, command, processes):
    """Runs `processes` copies at once: (wall seconds, checksum of each)."""
    start = time.monotonic()
    children = [box.start(command) for _ in range(processes)]
    outputs = [child.communicate(timeout=LIMIT_S) for child in children]
    wall = time.monotonic() - start
    for child, (out, err) in zip(children, outputs):
        if child.returncode != 0:
            raise Failure(f"{' '.join(command)}: exit code {child.returncode}\n"
                          f"{out}{err}{box.logs()}")
    return wall, [re.search(r"bits=(\w+)", out).group(1) for out, _ in outputs]


def watch(box, command, processes):
    """One run, watched: what it has on the device. Not timed, since looking takes time of a core."""
    watcher = Watcher(box)
    watcher.start()
    _, checksums = run_together(box, command, processes)
    watcher.stop()
    return {"processes": watcher.processes, "contexts": watcher.contexts, "memory": watcher.memory,
            "checksums": checksums}


def measure(plain, shared, command, processes):
    """Both kinds in turns: median wall seconds of plain and of shared, and all checksums."""
    walls, checksums = {plain: [], shared: []}, []
    for _ in range(ROUNDS):
        for box, of_box in walls.items():
            wall, sums = run_together(box, command, processes)
            of_box.append(wall)
            checksums += sums
    return statistics.median(walls[plain]), statistics.median(walls[shared]), checksums


def run_all(build, plain_mode, driver, command):
    """What watch() and measure() say of each number of PROCESSES: without OpenMPS, and with."""
    # Without a spare worker, which comes after two seconds and would be counted on a slow machine.
    plain = Sandbox(build, plain_mode, driver)
    shared = Sandbox(build, "openmps", driver, {"OPENMPS_SPARE": "off"})
    try:
        without = [watch(plain, command, n) for n in PROCESSES]  # before the worker has a context
        shared.start_daemon()
        # The first client starts the server: not part of what is compared.
        run_together(shared, [command[0], "256", "2"], 1)
        with_it = [watch(shared, command, n) for n in PROCESSES]
        for n, one, other in zip(PROCESSES, without, with_it):
            print(f"{n} program{'s' if n > 1 else ''}, {ROUNDS} times each way...", flush=True)
            one["wall"], other["wall"], checksums = measure(plain, shared, command, n)
            other["checksums"] += checksums
        shared.quit()
        return without, with_it
    finally:
        plain.close()
        shared.close()


def train(build):
    """LeNet by cuDNN and cuBLAS, without OpenMPS and with, once each way: rows of a table, and the hashes of all
    parameters that were learnt."""
    plain = Sandbox(build, "softgpu", "softgpu", LIBRARIES)
    shared = Sandbox(build, "openmps", "softgpu", {**LIBRARIES, "OPENMPS_SPARE": "off"})
    rows, learnt = [("programs", "OpenMPS", "wall s", "parameters")], set()
    try:
        shared.start_daemon()
        for n in PROCESSES:
            for name, box in (("without", plain), ("with", shared)):
                wall, hashes = run_together(box, ["lenet"], n)
                rows.append((str(n), name, f"{wall:.1f}", " ".join(sorted(set(hashes)))))
                learnt.update(hashes)
        shared.quit()
        return rows, learnt
    finally:
        plain.close()
        shared.close()


def users_text(run):
    processes = f"{run['processes']} process{'es' if run['processes'] > 1 else ''}"
    if run["contexts"] == 0:
        return processes
    return f"{processes}, {run['contexts']} context{'s' if run['contexts'] > 1 else ''}"


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths)) for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path,
                        default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--driver", choices=["nvidia", "softgpu"], default=None)
    args = parser.parse_args()
    driver = args.driver or best_driver()
    cuda = (args.build / "tests/e2e/nbody").exists()
    program = "nbody" if cuda else "drv_nbody"
    bodies, steps = SIZES[driver]
    command = [program, str(bodies), str(steps)]
    kind = "CUDA program" if cuda else "driver-API program (no nvcc here)"
    print(f"{kind}: {' '.join(command)}, driver: {driver}", flush=True)
    plain_mode = "softgpu" if driver == "softgpu" else "native"
    try:
        plain, shared = run_all(args.build, plain_mode, driver, command)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1

    rows = [("programs", "OpenMPS", "wall s", "speed-up", "on the GPU", "device MiB",
             "checksum")]
    for i, n in enumerate(PROCESSES):
        for name, run in (("without", plain[i]), ("with", shared[i])):
            speed_up = plain[i]["wall"] / run["wall"]
            rows.append((str(n), name, f"{run['wall']:.2f}", f"{speed_up:.2f}x",
                         users_text(run), str(run["memory"] >> 20),
                         " ".join(sorted(set(run["checksums"])))))
    print(table(rows))
    folder = args.build / "demo"
    folder.mkdir(exist_ok=True)
    (folder / "demo.svg").write_text(plot.grouped_bars(
        f"n-body {bodies} x {steps} on {driver}: wall time of all processes", "seconds",
        [f"{n} process{'es' if n > 1 else ''}" for n in PROCESSES],
        [("without OpenMPS", [run["wall"] for run in plain]),
         ("with OpenMPS", [run["wall"] for run in shared])]))
    print(f"plot: {folder / 'demo.svg'}")
    sums = {s for run in plain + shared for s in run["checksums"]}
    if len(sums) != 1:
        print(f"checksums differ: {sorted(sums)}", file=sys.stderr)
        return 1
    print("With OpenMPS all programs run in one context of one process, the worker; a second one of the\n"
          "worker is for code that the first has not loaded yet.")
    for n, run in zip(PROCESSES, shared):
        if run["processes"] != 1 or run["contexts"] > WORKER_CONTEXTS:
            print(f"{n} programs with OpenMPS: {run['processes']} processes and {run['contexts']} contexts "
                  f"on the device, 1 and at most {WORKER_CONTEXTS} expected", file=sys.stderr)
            return 1
    if driver == "softgpu" and (args.build / "tests/e2e/lenet").exists():
        print("LeNet, trained by cuDNN and cuBLAS:", flush=True)
        try:
            rows, learnt = train(args.build)
        except Failure as failure:
            print(failure, file=sys.stderr)
            return 1
        print(table(rows))
        if len(learnt) != 1:
            print(f"not the same parameters: {sorted(learnt)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
