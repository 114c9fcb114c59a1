#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch training natively, under NVIDIA's MPS and behind OpenMPS, side by side in one run: steps per
second (medians, ratios, targets) and device memory of 1 and of 8 processes. Run by `./dev bench stack`
on a machine with a GPU, about three minutes; without one it says so (exit code 77).

All sides' processes are alive at once and take turns, round by round, so that a drift of the machine
touches every side alike; who has no turn waits for its input. build/bench/stack.json holds every
sample. Python standard library only."""

import argparse
import importlib.util
import json
import os
import queue
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tools"), str(ROOT / "bench")]
from demo import best_driver  # noqa: E402
from sandbox import Failure, Sandbox  # noqa: E402
from smoke import MpsSandbox  # noqa: E402

PROGRAM = ROOT / "bench" / "programs" / "stack_bench.py"
SKIPPED = 77
START_LIMIT_S = 90   # import, context, first kernels; eight at once compete for the disk
ANSWER_LIMIT_S = 60  # beyond the measured time: a workload's first turn builds and warms it
PROFILE_STEPS = 200  # under a second of each workload
SETTLE_S = 0.5       # nvidia-smi lags behind a little
SETTLE_LOOKS = 40

# metric: (title, workload, processes, seconds per sample, rival, least ratio to the rival)
METRICS = {
    "lenet_1": ("LeNet alone", "lenet", 1, 1.5, "native", 0.97),
    "transformer": ("transformer", "transformer", 1, 1.5, "native", 0.97),
    "transformer_graph": ("transformer, CUDA graph", "transformer_graph", 1, 1.5, "native", 0.97),
    "lenet_all": ("LeNet, {} at once", "lenet", None, 3.0, "mps", 0.97),
}

WORKLOADS = list(dict.fromkeys(metric[1] for metric in METRICS.values()))


class Worker:
    """One process of stack_bench.py; a thread of its own reads what it prints."""

    def __init__(self, box):
        self.errors = open(box.root / f"worker-{len(box.children)}.err", "w+", errors="replace")
        self.child = box.start([sys.executable, "-B", str(PROGRAM)], stdin=subprocess.PIPE,
                               stderr=self.errors)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def next_line(self, limit_s):
        try:
            line = self.lines.get(timeout=limit_s)
        except queue.Empty:
            raise Failure(f"no answer after {limit_s:.0f} s\n{self.last_errors()}") from None
        if line is None:
            raise Failure(f"the program ended ({self.child.poll()})\n{self.last_errors()}")
        return line.strip()

    def wait_ready(self):
        while self.next_line(START_LIMIT_S) != "ready":
            pass

    def ask(self, command):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()

    def answer(self, limit_s=ANSWER_LIMIT_S):
        found = json.loads(self.next_line(limit_s))
        if "error" in found:
            raise Failure(found["error"])
        return found

    def last_errors(self):
        self.errors.seek(0)
        return "\n".join(self.errors.read().splitlines()[-15:])


def settled(box):
    """box.device_state() once it no longer changes: processes that have just ended still release memory."""
    state = box.device_state()
    for _ in range(SETTLE_LOOKS):
        time.sleep(SETTLE_S)
        before, state = state, box.device_state()
        if state == before:
            return state
    raise Failure("the memory in use on the device does not come to rest")


class Side:
    """One way to run programs: its sandbox, its processes and its samples."""

    def __init__(self, name, build, processes):
        self.name, self.samples, self.memory, self.phases, self.failed = name, {}, {}, {}, {}
        mode = "openmps" if name == "openmps" else "native"
        self.box = (MpsSandbox if name == "mps" else Sandbox)(build, mode, "nvidia")
        self.workers = []
        try:
            if name != "native":
                self.box.start_daemon()
            contexts, before = settled(self.box)
            for count in dict.fromkeys((1, processes)):
                self._grow(count)
                now, used = settled(self.box)
                self.memory[count] = {"mib": (used - before) / 2**20, "contexts": now - contexts}
        except (Failure, subprocess.SubprocessError, OSError) as failure:
            self.failed["start"] = f"{failure}\n{self.box.logs()}"
            self.workers = []

    def _grow(self, count):
        fresh = [Worker(self.box) for _ in range(count - len(self.workers))]
        for worker in fresh:
            worker.wait_ready()
        self.workers += fresh

    def sample(self, metric):
        _, workload, processes, seconds, _, _ = METRICS[metric]
        if metric in self.failed or not self.workers:
            return
        chosen = self.workers[:processes]
        try:
            for worker in chosen:
                worker.ask(f"rate {workload} {seconds}")
            rate = sum(worker.answer(seconds + ANSWER_LIMIT_S)["steps_per_s"] for worker in chosen)
            self.samples.setdefault(metric, []).append(rate)
        except (Failure, OSError, ValueError) as failure:
            self.failed[metric] = str(failure)
            if any(worker.child.poll() is not None for worker in chosen):
                self.workers = []  # a process that died would not answer again

    def profile(self, workload):
        """Where a step's time goes on the host, of the first process alone."""
        if not self.workers:
            return
        try:
            self.workers[0].ask(f"profile {workload} {PROFILE_STEPS}")
            self.phases[workload] = self.workers[0].answer()["phases_us"]
        except (Failure, OSError, ValueError) as failure:
            self.failed[f"profile of {workload}"] = str(failure)

    def close(self):
        try:
            for worker in self.workers:
                worker.child.stdin.close()
            for worker in self.workers:
                worker.child.wait(timeout=START_LIMIT_S)
            if self.name != "native":
                self.box.quit()
        except (Failure, subprocess.SubprocessError, OSError) as failure:
            self.failed["end"] = str(failure)
        self.box.close()


def table(sides, processes):
    """(rows for people, whether every target that can be judged holds)."""
    medians = {side.name: {m: statistics.median(s) for m, s in side.samples.items()}
               for side in sides}
    names = [side.name for side in sides]
    rows, holds_all = [["metric", "unit", *names, "ratio", "target", "holds"]], True
    for metric, (title, _, _, _, rival, least) in METRICS.items():
        values = {name: medians[name].get(metric) for name in names}
        ours, theirs = values.get("openmps"), values.get(rival)
        ratio = ours / theirs if ours and theirs else None
        holds = ratio >= least if ratio else None
        holds_all &= holds is not False
        cells = [f"{values[name]:.1f}" if values[name] else "-" for name in names]
        rows.append([title.format(processes), "steps/s", *cells,
                     f"{ratio:.3f} x {rival}" if ratio else "-", f">= {least} x {rival}",
                     {True: "yes", False: "NO", None: "-"}[holds]])
    for count in dict.fromkeys((1, processes)):
        for key, unit in (("mib", "MiB"), ("contexts", "")):
            cells = [f"{side.memory[count][key]:.0f}" if count in side.memory else "-"
                     for side in sides]
            title = "device memory" if key == "mib" else "contexts"
            rows.append([f"{title}, {count} processes", unit, *cells, "-", "-", "-"])
    return rows, holds_all


def profile_table(sides):
    """Rows: the host's time per phase of a step."""
    rows = [["a step's phases on the host", "unit", *(side.name for side in sides)]]
    for workload in WORKLOADS:
        phases = dict.fromkeys(phase for side in sides for phase in side.phases.get(workload, {}))
        for phase in phases:
            values = [side.phases.get(workload, {}).get(phase) for side in sides]
            rows.append([f"{workload}: {phase}", "us",
                         *("-" if value is None else f"{value:.0f}" for value in values)])
    return rows


def show(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path,
                        default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--sides", default="native,mps,openmps")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    if best_driver() != "nvidia" or not importlib.util.find_spec("torch"):
        print("bench stack: needs a GPU and PyTorch: skipped")
        return SKIPPED
    names = args.sides.split(",")
    if not shutil.which("nvidia-cuda-mps-control"):
        names = [name for name in names if name != "mps"]
    begin = time.monotonic()

    def note(text):
        print(f"[{time.monotonic() - begin:6.1f} s] {text}", flush=True)

    sides = []
    try:
        for name in names:
            sides.append(Side(name, args.build, args.processes))
            note(f"{name}: {len(sides[-1].workers)} processes are ready")
        for number in range(1, args.rounds + 1):
            for metric in METRICS:
                for side in sides:
                    side.sample(metric)
            note(f"round {number} of {args.rounds}")
        for workload in WORKLOADS:
            for side in sides:
                side.profile(workload)
    finally:
        for side in sides:
            side.close()
    rows, holds = table(sides, args.processes)
    path = args.json or Path(args.build) / "bench" / "stack.json"
    path.write_text(json.dumps(
        {side.name: {"samples": side.samples, "memory": side.memory, "phases_us": side.phases,
                     "failed": side.failed} for side in sides}, indent=1))
    for side in sides:
        for what, reason in side.failed.items():
            print(f"\n{side.name}, {what}, FAILED: {reason}")
    print(f"\nmedians of {args.rounds}, {time.monotonic() - begin:.0f} s; samples in {path}")
    show(rows)
    print()
    show(profile_table(sides))
    return 0 if holds and not any(side.failed for side in sides) else 1


if __name__ == "__main__":
    sys.exit(main())
