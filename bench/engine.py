#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Neighbours natively, under NVIDIA's MPS and behind OpenMPS: what a newcomer, a client that wants short
answers, one that launches much and many at once get beside others, and what the others lose by it. Run by
`./dev bench engine`: up to nine minutes on a GPU; without one small sizes run on softgpu, against no goals.
docs/benchmarks.md describes the cases.

Each case runs on one side after the other, each time with a daemon of its own, so that what goes wrong
in one harms no other; what takes too long is given up and stands in the table as `> N s`.
build/bench/engine.json holds every sample, and is written after each case. Python standard library only."""

import argparse
import importlib.util
import json
import os
import resource
import secrets
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tools"), str(ROOT / "bench")]
from demo import best_driver  # noqa: E402
from sandbox import Failure, Sandbox, footprint, wait_until  # noqa: E402
from smoke import SETTLE_S, MpsSandbox, prepare  # noqa: E402
from stack import Worker, show  # noqa: E402

START_LIMIT_S = 40   # 64 contexts, made natively one after the other, take ten
ANSWER_LIMIT_S = 30  # beyond the time that something is asked to take
IDLE_S = 3.0         # a tick of the CPU clock is 0.3 % of it
LOOK_S = 0.5         # between two looks for clients that have failed
IDLE_AFTER_S = 4.0   # a session puts away what it does not need after one second and two more
CALM_S = 1.5         # many programs that start at once make cores short, for a second (decision 24)
SECONDS = 540        # of one round of everything
LONGEST_RUN_S = 20   # of what comes last
SHOWN_LINES = 6      # of a failure
DESCRIPTORS = 8192
UNIQUE = 0x3FA5C3D7  # in newcomer.cu
MPS_CLIENTS = 47     # and one that is measured beside them
# Contexts are made natively one after the other and take turns: of many programs some show as much.
NATIVE_SIZES = {"crowd": 16, "many_limit_s": 6}
BLOCKS_PER_BODY = 256

SIZES = {
    "nvidia": {"small": 8192, "medium": 65536, "large": 262144, "ahead": 400, "fmas": 2000,
               "newcomers": 5, "look_s": 0.7, "latency_s": 2.5, "strangers_s": 1.0,
               "throughput_s": 1.5, "throughputs": 8, "bursts": 100,
               "long": (21120, 20000), "short": (1056, 8000), "share_s": 1.5,
               "many": 40, "many_nbody": (1024, 40000), "many_limit_s": 12,
               "nbody_small": (8192, 4000, 8), "nbody_large": (262144, 40, 4), "loaders": 16,
               "crowd": 64, "long_ms": 300, "idle": 1000, "some": 4, "trainers": 8},
    "softgpu": {"small": 256, "medium": 512, "large": 1024, "ahead": 32, "fmas": 20,
                "newcomers": 2, "look_s": 0.5, "latency_s": 1.0, "strangers_s": 0.5,
                "throughput_s": 0.5, "throughputs": 2, "bursts": 10,
                "long": (160, 400), "short": (8, 400), "share_s": 0.5,
                "many": 4, "many_nbody": (64, 100), "many_limit_s": 60,
                "nbody_small": (256, 500, 2), "nbody_large": (1024, 4, 2), "loaders": 3,
                "crowd": 4, "long_ms": 50, "idle": 8, "some": 1, "trainers": 2},
}

# metric: (title, unit, rival that the goal refers to or None, comparison or None, bound). Titles are filled
# in from the sizes. A metric's case is what stands in front of its dot.
METRICS = {
    "alone.first_ms": ("a new program's first kernel, alone", "ms", None, "<=", 11),
    "alone.p50": ("latency alone, p50", "ms", None, None, None),
    "alone.p99": ("  p99", "ms", None, None, None),
    "beside_small.first_ms": ("first kernel beside nbody {small}", "ms", None, "<=", 30),
    "beside_small.worst_ms": ("  the slowest of {newcomers}", "ms", None, None, None),
    "beside_small.neighbour_loading": ("  nbody's speed, of alone", "", None, ">=", 0.98),
    "beside_small.p50": ("latency beside nbody {small}, p50", "ms", None, "<=", 0.16),
    "beside_small.p99": ("  p99", "ms", None, "<=", 0.20),
    "beside_small.neighbour": ("  nbody's speed, of alone", "", None, ">=", 0.98),
    "beside_medium.p50": ("latency beside nbody {medium}, p50", "ms", "mps", "<=", 1.0),
    "beside_medium.p99": ("  p99", "ms", "mps", "<=", 1.0),
    "beside_medium.neighbour": ("  nbody's speed, of alone", "", None, None, None),
    "beside_large.first_ms": ("first kernel beside nbody {large}", "ms", None, "<=", 30),
    "beside_large.worst_ms": ("  the slowest of {newcomers}", "ms", None, None, None),
    "beside_large.neighbour_loading": ("  nbody's speed, of alone", "", None, ">=", 0.98),
    "beside_large.p50": ("latency beside nbody {large}, p50", "ms", "mps", "<=", 1.0),
    "beside_large.p99": ("  p99", "ms", "mps", "<=", 1.0),
    "beside_large.neighbour": ("  nbody's speed, of alone", "", None, None, None),
    "launches.one": ("small kernels of 1 client", "k/s", None, ">=", 650),
    "launches.all": ("  of {throughputs} clients", "k/s", None, ">=", 3000),
    "launches.launch_sync_us": ("launch + synchronise", "us", None, "<=", 8.5),
    "launches.issue_us": ("launch issue", "us", None, "<=", 0.25),
    "many.wall_s": ("{many} small nbody at once, wall", "s", None, "<=", 2.2),
    "nbody_small.ms": ("n-body, small grids, {nbody_small}", "ms", "mps", "<=", 1.0),
    "nbody_large.ms": ("n-body, large grids, {nbody_large}", "ms", "mps", "<=", 1.0),
    "loaders.wall_s": ("{loaders} programs of 256 new kernels, wall", "s", "native", "<=", 0.6),
    "waiting.first_ratio": ("beside {crowd} waiting streams: first kernel, of alone", "x", None, "<=", 1.05),
    "waiting.first_ms": ("  in milliseconds", "ms", None, None, None),
    "waiting.p50_ratio": ("  latency's p50, of alone", "x", None, "<=", 1.05),
    "waiting.after_ms": ("  the slowest, from value to end", "ms", None, None, None),
    "long.p99_ratio": ("beside {crowd} x 3 long kernels: latency's p99, of alone", "x", None, "<=", 1.2),
    "long.p99": ("  in milliseconds", "ms", None, None, None),
    "stopped.first_ratio": ("beside a stopped client: first kernel, of alone", "x", None, "<=", 1.05),
    "stopped.first_ms": ("  in milliseconds", "ms", None, None, None),
    "stopped.p50_ratio": ("  latency's p50, of alone", "x", None, "<=", 1.05),
    "stopped.p99_ratio": ("  p99", "x", None, None, None),
    "idle.memory_mb": ("{idle} idle clients: memory of the service", "MB", None, "<=", 1200),
    "idle.cpu_percent": ("  its CPU time", "%", None, "<=", 0.5),
    "idle.first_ratio": ("  one more: first kernel, of alone", "x", None, "<=", 1.05),
    "idle.launch_ratio": ("  launch + synchronise, of alone", "x", None, "<=", 1.05),
    "torch_start.start_ms": ("PyTorch's start to first step, alone", "ms", "native", "<=", 0.8),
    "torch_start.device_ms": ("  after the import", "ms", "native", "<=", 0.8),
    "torch_start_large.start_ms": ("the same beside nbody {large}", "ms", "mps", "<=", 1.0),
    "torch_start_large.device_ms": ("  after the import", "ms", "mps", "<=", 1.0),
    "training.p50": ("latency beside {some} LeNet and a start each second, p50", "ms", None, "<=", 0.16),
    "training.p99": ("  p99", "ms", None, "<=", 0.20),
    "training.lenet_one": ("LeNet x 1", "steps/s", "mps", ">=", 1.1),
    "training.lenet_all": ("LeNet x {trainers}, each", "steps/s", "mps", ">=", 1.15),
    "training.transformer": ("transformer", "steps/s", "native", ">=", 1.0),
    "training.transformer_graph": ("transformer, CUDA graph", "steps/s", "native", ">=", 1.0),
    "cupy.wall_s": ("{loaders} of CuPy's test programs at once, wall", "s", "native", "<=", 0.6),
    "shares.long": ("long beside short kernels that fill the device: long, of alone", "", None, None, None),
    "shares.short": ("  short, of alone", "", None, None, None),
    "shares.p50": ("latency beside the long ones, p50", "ms", "mps", "<=", 1.0),
    "shares.p99": ("  p99", "ms", "mps", "<=", 1.0),
    "shares.neighbour": ("  their speed, of alone", "", None, None, None),
}


class NotWithin(Failure):
    """Something took longer than it may."""

    def __init__(self, limit_s):
        super().__init__(f"> {limit_s:.0f} s")


# --- programs ---------------------------------------------------------------------------------------


def output_of(child, what, limit_s=ANSWER_LIMIT_S):
    try:
        out, err = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise NotWithin(limit_s) from None
    if child.returncode != 0:
        raise Failure(f"{what}: exit code {child.returncode}\n{out}{err}")
    return out


def figures(box, command, limit_s=ANSWER_LIMIT_S):
    return json.loads(output_of(box.start(command), command[0], limit_s))


class Clients:
    """Copies of one program that share standard input and output. They say "ready", and end when their
    input does."""

    def __init__(self, box, command, count=1):
        self.name, self.buffer = " ".join(command), b""
        self.errors = open(box.root / f"clients-{len(box.children)}.err", "w+", errors="replace")
        their_input, self.input = os.pipe()
        self.output, their_output = os.pipe()
        try:
            self.children = [box.start(command, stdin=their_input, stdout=their_output,
                                       stderr=self.errors) for _ in range(count)]
        finally:
            os.close(their_input)
            os.close(their_output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        os.close(self.output)
        self.errors.close()

    def _failure(self, text):
        self.errors.seek(0)
        return Failure(f"{self.name}: {text}\n" + "".join(self.errors.readlines()[-10:]))

    def lines(self, count, limit_s):
        """The next lines that any of them print."""
        deadline = time.monotonic() + limit_s
        found = []
        while len(found) < count:
            line, end, rest = self.buffer.partition(b"\n")
            if end:
                found.append(line.decode())
                self.buffer = rest
                continue
            left = deadline - time.monotonic()
            poll = select.poll()
            poll.register(self.output, select.POLLIN)
            if not poll.poll(max(0, min(left, LOOK_S)) * 1e3):
                codes = {child.poll() for child in self.children} - {None, 0}
                if codes:
                    raise self._failure(f"exit codes {sorted(codes)}")
                if left <= 0:
                    raise NotWithin(limit_s)
                continue
            data = os.read(self.output, 1 << 16)
            if not data:
                raise self._failure("all of them have ended")
            self.buffer += data
        return found

    def wait_ready(self):
        for line in self.lines(len(self.children), START_LIMIT_S):
            if line != "ready":
                raise self._failure(f"says {line}")

    def ask(self):
        """The answer to a line."""
        os.write(self.input, b"\n")
        return json.loads(self.lines(1, ANSWER_LIMIT_S)[0])

    def release(self):
        if self.input is not None:
            os.close(self.input)
            self.input = None

    def finish(self, limit_s=ANSWER_LIMIT_S):
        """Releases all and waits for their end."""
        self.release()
        deadline = time.monotonic() + limit_s
        for child in self.children:
            try:
                child.wait(timeout=max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise NotWithin(limit_s) from None
        codes = {child.returncode for child in self.children}
        if codes != {0}:
            raise self._failure(f"exit codes {sorted(codes)}")


def never_seen(box, program, name):
    """The path of a copy of `program` whose code has a number that no other copy has, and the number."""
    number = 0x30000000 | secrets.randbits(29)  # any of these is a float with all its bits
    code = Path(box.resolve(program)).read_bytes()
    for old, new in ((struct.pack("<I", UNIQUE), struct.pack("<I", number)),
                     (b"0f%08X" % UNIQUE, b"0f%08X" % number)):
        if old not in code:
            raise Failure(f"{program}: its number is not found")
        code = code.replace(old, new)
    path = box.tmp / name
    path.write_bytes(code)
    path.chmod(0o755)
    return str(path), number


def checked(found, number):
    if found["unique"] != number:
        raise Failure(f"a new program computed with {found['unique']:#x}, not with {number:#x}")
    return found


def newcomers(box, count, pause_s=0.0):
    """Milliseconds to the first kernel of programs that come one after the other."""
    copies = [never_seen(box, "newcomer_1", f"newcomer-{i}") for i in range(count)]
    times = []
    for path, number in copies:
        times.append(checked(figures(box, [path]), number)["first_ms"])
        os.unlink(path)
        time.sleep(pause_s)
    return times


def latency(box, sizes, seconds=None):
    seconds = seconds or sizes["latency_s"]
    return figures(box, ["clients", "latency", str(seconds), str(sizes["fmas"])],
                   seconds + ANSWER_LIMIT_S)


def percentiles(found):
    return {"p50": found["p50"], "p99": found["p99"]}


class Neighbour(Clients):
    """n-body that always has steps queued."""

    def __init__(self, box, sizes, bodies):
        # Looked at each few milliseconds: each step of 262144 bodies, each 16th of 8192.
        every = max(1, min(16, sizes["large"] // bodies // 2))
        super().__init__(box, ["clients", "nbody", str(bodies), str(sizes["ahead"]), str(every)])
        self.wait_ready()
        time.sleep(SETTLE_S)

    def speed_during(self, work):
        """(steps per second while `work` ran, its result)"""
        before = self.ask()
        result = work()
        after = self.ask()
        spent = after["at"] - before["at"]
        return (after["steps"] - before["steps"]) / spent if spent else 0.0, result


def together(box, commands, limit_s):
    """(wall seconds of all, their outputs)"""
    begin = time.monotonic()
    children = [box.start(command) for command in commands]
    outputs = [output_of(child, command[0], max(0.1, limit_s - (time.monotonic() - begin)))
               for child, command in zip(children, commands)]
    return time.monotonic() - begin, outputs


def services(box):
    """The daemon and what it has started."""
    clients = {child.pid for child in box.children}
    return [pid for pid in box.processes() if pid not in clients]


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# --- cases: each takes its sandbox, the sizes, and a function that takes what it finds -------------------


def alone(box, sizes, found):
    found(first_ms=statistics.median(newcomers(box, sizes["newcomers"])), **percentiles(latency(box, sizes)))


def beside(which, loading=True):
    """Newcomers, if `loading`, and a client that wants short answers, beside n-body; and its speed
    meanwhile, of that alone."""
    def case(box, sizes, found):
        with Neighbour(box, sizes, sizes[which]) as neighbour:
            def speed_alone():
                return neighbour.speed_during(lambda: time.sleep(sizes["look_s"]))[0]

            alone_before = speed_alone()
            if loading:
                speed_loading, times = neighbour.speed_during(
                    lambda: newcomers(box, sizes["newcomers"], pause_s=0.3))
            speed, result = neighbour.speed_during(lambda: latency(box, sizes))
            mean_alone = (alone_before + speed_alone()) / 2
            neighbour.finish()
        if loading:
            found(first_ms=statistics.median(times), worst_ms=max(times),
                  neighbour_loading=speed_loading / mean_alone)
        found(**percentiles(result), neighbour=speed / mean_alone)
    return case


def launches(box, sizes, found):
    found(**figures(box, ["gpu_bench", "launch", str(sizes["bursts"])]))
    for name, count in (("one", 1), ("all", sizes["throughputs"])):
        start = time.time() + 1 + 0.25 * count  # natively contexts are made one after the other
        command = ["clients", "throughput", str(sizes["throughput_s"]), f"{start:.3f}"]
        _, outputs = together(box, [command] * count, ANSWER_LIMIT_S)
        found(**{name: sum(json.loads(out)["thousand_per_s"] for out in outputs)})


def shares(box, sizes, found):
    """Two that always have something queued, kernels of milliseconds and of a tenth; and requests beside
    the long ones."""
    def rates(*which):
        start = time.time() + 1 + 0.25 * len(which)
        commands = [["clients", "busy", *map(str, sizes[kind]), str(sizes["share_s"]), f"{start:.3f}"]
                    for kind in which]
        return [json.loads(out)["per_s"] for out in together(box, commands, ANSWER_LIMIT_S)[1]]

    long_alone, short_alone = rates("long") + rates("short")
    long_beside, short_beside = rates("long", "short")
    found(long=long_beside / long_alone, short=short_beside / short_alone)
    start = time.time() + 1
    seconds = sizes["latency_s"] + 1
    busy = box.start(["clients", "busy", *map(str, sizes["long"]), str(seconds), f"{start:.3f}"])
    time.sleep(max(0, start - time.time()))
    found(**percentiles(latency(box, sizes)))
    found(neighbour=json.loads(output_of(busy, "clients", seconds + ANSWER_LIMIT_S))["per_s"] / long_alone)


def many(box, sizes, found):
    command = ["nbody_bench", *map(str, sizes["many_nbody"])]
    found(wall_s=together(box, [command] * sizes["many"], sizes["many_limit_s"])[0])


def nbody(which):
    def case(box, sizes, found):
        bodies, steps, processes = sizes[which]
        _, outputs = together(box, [["nbody_bench", str(bodies), str(steps)]] * processes,
                              ANSWER_LIMIT_S)
        found(ms=max(float(out.split("ms=")[1].split()[0]) for out in outputs))
    return case


def loaders(box, sizes, found):
    copies = [never_seen(box, "newcomer_256", f"loader-{i}") for i in range(sizes["loaders"])]
    wall_s, outputs = together(box, [[path] for path, _ in copies], START_LIMIT_S)
    for out, (_, number) in zip(outputs, copies):
        checked(json.loads(out), number)
    found(wall_s=wall_s)


class Strangers:
    """What those get who have nothing to do with the others: newcomers and a client that wants short
    answers. Made while they are alone."""

    def __init__(self, box, sizes):
        self.box, self.sizes = box, sizes
        self.alone = self.measure()

    def measure(self):
        first_ms = statistics.median(newcomers(self.box, self.sizes["newcomers"]))
        return {"first_ms": first_ms, **percentiles(latency(self.box, self.sizes, self.sizes["strangers_s"]))}

    def beside(self, *wanted):
        """What they get now: metrics, and ratios to those alone as METRIC_ratio."""
        now = self.measure()
        now.update({f"{key.removesuffix('_ms')}_ratio": now[key] / self.alone[key] for key in self.alone})
        return {key: now[key] for key in wanted}


def waiting(box, sizes, found):
    strangers = Strangers(box, sizes)
    with Clients(box, ["clients", "waiting"], sizes["crowd"]) as crowd:
        crowd.wait_ready()
        time.sleep(CALM_S)
        found(**strangers.beside("first_ms", "first_ratio", "p50_ratio"))
        crowd.release()
        answers = crowd.lines(sizes["crowd"], ANSWER_LIMIT_S)
        found(after_ms=max(json.loads(line)["after_ms"] for line in answers))
        crowd.finish()


def long_kernels(box, sizes, found):
    alone = latency(box, sizes, sizes["strangers_s"])
    with Clients(box, ["clients", "long", str(sizes["long_ms"])], sizes["crowd"]) as crowd:
        crowd.wait_ready()
        now = latency(box, sizes)
        found(p99=now["p99"], p99_ratio=now["p99"] / alone["p99"])
        crowd.finish()


def stopped(box, sizes, found):
    strangers = Strangers(box, sizes)
    with Clients(box, ["clients", "pending"]) as client:
        client.wait_ready()
        os.kill(client.children[0].pid, signal.SIGSTOP)
        found(**strangers.beside("first_ms", "first_ratio", "p50_ratio", "p99_ratio"))
        os.kill(client.children[0].pid, signal.SIGCONT)
        client.finish()


def idle(box, sizes, found):
    def one_more():
        first_ms = statistics.median(newcomers(box, sizes["newcomers"]))
        launched = figures(box, ["gpu_bench", "launch", str(sizes["bursts"])])
        return first_ms, launched["launch_sync_us"]

    alone = one_more()
    with Clients(box, ["gpu_bench", "hold"], sizes["idle"]) as crowd:
        crowd.wait_ready()
        time.sleep(IDLE_AFTER_S)
        pids = services(box)
        if pids:
            before, begin = cpu_seconds(pids), time.monotonic()
            time.sleep(IDLE_S)
            share = (cpu_seconds(pids) - before) / (time.monotonic() - begin)
            memory_kib = sum(footprint(pid)["rss"] for pid in pids)
            found(memory_mb=memory_kib * 1024 / 1e6, cpu_percent=share * 100)
        now = one_more()
        found(first_ratio=now[0] / alone[0], launch_ratio=now[1] / alone[1])
        crowd.finish()


TORCH_START = [sys.executable, "-B", str(ROOT / "bench" / "programs" / "torch_start.py")]


def torch_start(box, _sizes, found):
    found(**figures(box, TORCH_START, START_LIMIT_S))


def torch_start_large(box, sizes, found):
    with Neighbour(box, sizes, sizes["large"]) as neighbour:
        found(**figures(box, TORCH_START, START_LIMIT_S))
        neighbour.finish()


def trainers(box, count):
    workers = [Worker(box) for _ in range(count)]
    for worker in workers:
        worker.wait_ready()
    return workers


def steps_per_s(workers, workload, seconds):
    """The mean of those that train at once."""
    for worker in workers:
        worker.ask(f"rate {workload} {seconds}")
    return statistics.mean(worker.answer(seconds + ANSWER_LIMIT_S)["steps_per_s"] for worker in workers)


def beside_training(box, sizes, workers):
    """A client that wants short answers, while the workers train and a program starts each second."""
    seconds = sizes["latency_s"] + 2
    for worker in workers:
        worker.ask(f"rate lenet {seconds}")
    starts = [box.start(TORCH_START)]
    time.sleep(SETTLE_S)
    client = box.start(["clients", "latency", str(sizes["latency_s"]), str(sizes["fmas"])])
    while client.poll() is None and len(starts) < seconds:
        time.sleep(1)
        starts.append(box.start(TORCH_START))
    result = json.loads(output_of(client, "clients"))
    for start in starts:
        output_of(start, "torch_start.py", START_LIMIT_S)
    for worker in workers:
        worker.answer()
    return result


def training(box, sizes, found):
    workers = trainers(box, sizes["trainers"])  # who is not asked waits for its input
    found(lenet_one=steps_per_s(workers[:1], "lenet", 1.5))
    for workload in ("transformer", "transformer_graph"):
        found(**{workload: steps_per_s(workers[:1], workload, 1.5)})
    found(lenet_all=steps_per_s(workers, "lenet", 3))
    found(**percentiles(beside_training(box, sizes, workers[:sizes["some"]])))
    for worker in workers:
        worker.child.stdin.close()
    for worker in workers:
        worker.child.wait(timeout=ANSWER_LIMIT_S)


def cupy(box, sizes, found):
    program = ROOT / "tests" / "gpu" / "programs" / "cupy_program.py"
    command = [sys.executable, "-B", str(program)]
    output_of(box.start(command), program.name, START_LIMIT_S)  # compiles what the others load
    found(wall_s=together(box, [command] * sizes["loaders"], 2 * START_LIMIT_S)[0])


CASES = {
    "alone": alone,
    "beside_small": beside("small"),
    "beside_medium": beside("medium", loading=False),
    "beside_large": beside("large"),
    "launches": launches,
    "many": many,
    "nbody_small": nbody("nbody_small"),
    "nbody_large": nbody("nbody_large"),
    "loaders": loaders,
    "waiting": waiting,
    "long": long_kernels,
    "stopped": stopped,
    "idle": idle,
    "torch_start": torch_start,
    "torch_start_large": torch_start_large,
    "training": training,
    "cupy": cupy,
    "shares": shares,
}
NEEDS = {**dict.fromkeys(("torch_start", "torch_start_large", "training"), "torch"), "cupy": "cupy"}
# Natively there is no room for so many contexts, nor under MPS; the goal refers to no MPS.
LEFT_OUT = {("idle", "native"), ("idle", "mps"), ("cupy", "mps")}


# --- sides --------------------------------------------------------------------------------------------


class Side:
    """One way to run programs: `native`, `mps`, `openmps`, or a switch of OPENMPS_PERF."""

    def __init__(self, name, build, driver):
        self.name, self.build, self.driver = name, build, driver
        self.sizes = dict(SIZES[driver])
        if name == "native" and driver == "nvidia":
            self.sizes.update(NATIVE_SIZES)
        if name == "mps":  # has room for so many
            self.sizes["crowd"] = min(self.sizes["crowd"], MPS_CLIENTS)
            self.sizes["idle"] = min(self.sizes["idle"], MPS_CLIENTS)

    def sandbox(self):
        if self.name == "mps":
            return MpsSandbox(self.build, "native", self.driver)
        if self.name == "native":
            return Sandbox(self.build, "softgpu" if self.driver == "softgpu" else "native", self.driver)
        env = {} if self.name == "openmps" else {"OPENMPS_PERF": self.name}
        return Sandbox(self.build, "openmps", self.driver, env)

    def run(self, case, found):
        """The reason why the case ended early, or None."""
        box = self.sandbox()
        try:
            if self.name != "native":
                box.start_daemon()
                prepare(box)
            CASES[case](box, self.sizes, found)
            if self.name != "native":
                box.quit()
                if not wait_until(lambda: not box.processes(), ANSWER_LIMIT_S):
                    raise Failure("something of it is still there after its end")
            return None
        except NotWithin as late:
            return str(late)
        except (Failure, subprocess.SubprocessError, OSError, ValueError) as failure:
            return f"{failure}\n{box.logs()}"
        finally:
            box.close()


class Results:
    """samples[case][side][metric]: one for each round; failures[case][side]: why one ended early."""

    def __init__(self, driver, sides):
        self.driver, self.sides = driver, sides
        self.samples, self.failures = {}, {}

    def take(self, case, side, number):
        """Runs it once; a line of what was found."""
        of_side = self.samples.setdefault(case, {}).setdefault(side.name, {})
        line = []

        def found(**values):
            for metric, value in values.items():
                of_side.setdefault(metric, []).append(value)
                line.append(f"{metric} {value:.4g}")

        reason = side.run(case, found)
        if reason:
            self.failures.setdefault(case, {})[side.name] = f"round {number}: {reason}"
            line.append("\n".join(reason.splitlines()[:SHOWN_LINES]))  # the JSON has all of it
        return ", ".join(line)

    def median(self, key, side):
        case, metric = key.split(".")
        samples = self.samples.get(case, {}).get(side, {}).get(metric)
        return statistics.median(samples) if samples else None

    def cell(self, key, side):
        value = self.median(key, side)
        if value is not None:
            return f"{value:.4g}"
        case, _ = key.split(".")
        reason = self.failures.get(case, {}).get(side)
        if reason is None:
            return "-"
        late = reason.split(": ", 1)[1]
        return late if late.startswith("> ") and "\n" not in late else "failed"

    def row(self, key):
        title, unit, rival, sign, bound = METRICS[key]
        goal, holds = "-", "-"
        if sign and self.driver == "nvidia":
            goal = f"{sign} {bound} x {rival}" if rival else f"{sign} {bound}"
            base = self.median(key, rival) if rival else 1
            ours = self.median(key, "openmps")
            if ours is not None and base is not None:
                limit = bound * base
                holds = "yes" if (ours <= limit if sign == "<=" else ours >= limit) else "NO"
            elif ours is None and "openmps" in self.failures.get(key.split(".")[0], {}):
                holds = "NO"
        cells = [self.cell(key, side) for side in self.sides]
        return [title.format(**SIZES[self.driver]), unit, *cells, goal, holds]

    def table(self):
        chosen = [key for key in METRICS if key.split(".")[0] in self.samples]
        return [["case", "unit", *self.sides, "goal", "met"], *map(self.row, chosen)]

    def write(self, path):
        path.write_text(json.dumps({"driver": self.driver, "samples": self.samples,
                                    "failures": self.failures}, indent=1))


def runs(cases, names):
    """(case, side) in the order in which they run: last the bare GPU where no goal speaks of it, and the
    one case that describes how programs share rather than what one suffers."""
    wanted = {(key.split(".")[0], rival) for key, (_, _, rival, _, _) in METRICS.items()}
    return sorted(((case, name) for case in cases for name in names if (case, name) not in LEFT_OUT),
                  key=lambda run: (run[0] == "shares", run[1] == "native" and run not in wanted))


def chosen_cases(only):
    cases = only.split(",") if only else list(CASES)
    for case in cases:
        if case not in CASES:
            raise SystemExit(f"no case {case}; there are {', '.join(CASES)}")
    missing = [case for case in cases
               if case in NEEDS and not importlib.util.find_spec(NEEDS[case])]
    for case in missing:
        print(f"{case}: left out, it needs {NEEDS[case]}", flush=True)
    return [case for case in cases if case not in missing]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path,
                        default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--driver", choices=["nvidia", "softgpu"], default=None)
    parser.add_argument("--sides", default="native,mps,openmps")
    parser.add_argument("--perf", metavar="SWITCH", action="append", default=[],
                        help="one more side: OpenMPS with OPENMPS_PERF=SWITCH")
    parser.add_argument("--only", metavar="CASE,...", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=None,
                        help="leave out what would end later; runs on the bare GPU that no goal speaks of "
                             f"come last (one round: {SECONDS}, more: 0, no limit)")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    driver = args.driver or best_driver()
    if not (Path(args.build) / "bench/clients").exists():
        print("bench/clients is missing: build it with nvcc or carry it here", file=sys.stderr)
        return 1
    names = args.sides.split(",") + args.perf
    if driver == "softgpu" or not shutil.which("nvidia-cuda-mps-control"):
        names = [name for name in names if name != "mps"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    begin = time.monotonic()
    results = Results(driver, names)
    json_path = args.json or Path(args.build) / "bench" / "engine.json"
    cases = [case for case in chosen_cases(args.only) if driver != "softgpu" or case not in NEEDS]
    if any(NEEDS.get(case) == "torch" for case in cases):  # no side is the first to read its files
        subprocess.run([sys.executable, "-c", "import torch"], check=False)
    seconds = args.seconds if args.seconds is not None else SECONDS if args.rounds == 1 else 0
    late = []
    for case, name in runs(cases, names):
        if seconds and time.monotonic() - begin > seconds - LONGEST_RUN_S:
            late.append(f"{case} ({name})")
            continue
        for number in range(1, args.rounds + 1):
            start = time.monotonic()
            line = results.take(case, Side(name, args.build, driver), number)
            now = time.monotonic()
            print(f"[{now - begin:6.1f} s] {case}, {name}, {now - start:.1f} s: {line}", flush=True)
        results.write(json_path)
    if late:
        print(f"left out, to end within {seconds} s: {', '.join(late)}")
    print(f"\n{driver}, medians of {args.rounds}, {time.monotonic() - begin:.0f} s; samples in {json_path}")
    show(results.table())
    return 1 if any(side not in ("native", "mps") for of in results.failures.values() for side in of) else 0


if __name__ == "__main__":
    sys.exit(main())
