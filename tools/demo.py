#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job, shown: the same unmodified n-body program as 1, 2 and 4 processes, first without
and then with OpenMPS, on the best driver of this machine. Prints a table, writes build/demo/demo.svg.
Run by `./dev demo`. Exit code 1 if checksums differ or OpenMPS had more than one context."""

import argparse
import os
import re
import shutil
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
SAMPLE_S = 0.05


def best_driver():
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and "GPU 0" in done.stdout:
            return "nvidia"
    return "softgpu"


class Watcher(threading.Thread):
    """Samples the device while a run lasts and keeps the highest values."""

    def __init__(self, box):
        super().__init__(daemon=True)
        self.box, self.done = box, threading.Event()
        self.contexts = self.memory = 0

    def run(self):
        while not self.done.wait(SAMPLE_S):
            contexts, memory = self.box.device_state()
            self.contexts, self.memory = max(self.contexts, contexts), max(self.memory, memory)

    def stop(self):
        self.done.set()
        self.join()


def measure(box, command, processes):
    """Runs `processes` copies at once: wall seconds, contexts, memory, checksum of each."""
    watcher = Watcher(box)
    watcher.start()
    start = time.monotonic()
    children = [box.start(command) for _ in range(processes)]
    outputs = [child.communicate(timeout=LIMIT_S) for child in children]
    wall = time.monotonic() - start
    watcher.stop()
    for child, (out, err) in zip(children, outputs):
        if child.returncode != 0:
            raise Failure(f"{' '.join(command)}: exit code {child.returncode}\n"
                          f"{out}{err}{box.logs()}")
    sums = [re.search(r"bits=(\w+)", out).group(1) for out, _ in outputs]
    return {"wall": wall, "contexts": watcher.contexts, "memory": watcher.memory, "checksums": sums}


def run_mode(build, mode, driver, command):
    box = Sandbox(build, mode, driver)
    try:
        if mode == "openmps":
            box.start_daemon()
            # The first client starts the server: not part of what is compared.
            measure(box, [command[0], "256", "2"], 1)
        rows = [measure(box, command, n) for n in PROCESSES]
        if mode == "openmps":
            box.quit()
        return rows
    finally:
        box.close()


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
        plain = run_mode(args.build, plain_mode, driver, command)
        shared = run_mode(args.build, "openmps", driver, command)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1

    rows = [("processes", "OpenMPS", "wall s", "speed-up", "contexts", "device MiB",
             "checksum of each")]
    for i, n in enumerate(PROCESSES):
        for name, run in (("without", plain[i]), ("with", shared[i])):
            speed_up = plain[i]["wall"] / run["wall"]
            rows.append((str(n), name, f"{run['wall']:.2f}", f"{speed_up:.2f}x",
                         str(run["contexts"]), str(run["memory"] >> 20),
                         " ".join(run["checksums"])))
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
    if any(run["contexts"] != 1 for run in shared):
        print("more than one context with OpenMPS", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
