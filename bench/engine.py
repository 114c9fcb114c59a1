#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Neighbours natively, under NVIDIA's MPS and behind OpenMPS: what a newcomer, a client that wants short
answers, one that launches much and many at once get beside others, and what the others lose by it. Run by
`./dev bench engine`: up to nine minutes on a GPU; without one small sizes run on softgpu, against no goals.
docs/measurements/engine.md describes the cases.

Python standard library only."""

import json
import os
import secrets
import signal
import statistics
import struct
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
from neighbours import (ANSWER_LIMIT_S, ROOT, SETTLE_S, START_LIMIT_S, Bench, Clients,  # noqa: E402
                        Neighbour, figures, latency, main, output_of, percentiles, together)
from sandbox import Failure, footprint  # noqa: E402
from stack import Worker  # noqa: E402

IDLE_S = 3.0
IDLE_AFTER_S = 8.0   # idle sessions have released what they can 7 s after the last client is ready (decision 33)
CALM_S = 1.5         # after many programs start at once the worker counts cores as short for a second (decision 24)
UNIQUE = 0x3FA5C3D7  # in newcomer.cu
MPS_CLIENTS = 47     # besides the client that is measured
# Natively contexts are made one after the other and take turns: a few programs show what many would.
NATIVE_SIZES = {"crowd": 16, "many_limit_s": 6}
MPS_SIZES = {"crowd": MPS_CLIENTS}

SIZES = {
    "nvidia": {"small": 8192, "medium": 65536, "large": 262144, "ahead": 400, "fmas": 2000,
               "newcomers": 5, "look_s": 0.7, "latency_s": 2.5, "strangers_s": 1.0,
               "throughput_s": 1.5, "throughputs": 8, "bursts": 100,
               "long": (21120, 20000), "short": (1056, 8000), "share_s": 1.5,
               "many": 40, "many_nbody": (1024, 40000), "many_limit_s": 12,
               "nbody_small": (8192, 4000, 8), "nbody_large": (262144, 40, 4), "loaders": 16,
               "several": 8, "crowd": 64, "long_ms": 300, "idle": 1000, "some": 4, "trainers": 8},
    "softgpu": {"small": 256, "medium": 512, "large": 1024, "ahead": 32, "fmas": 20,
                "newcomers": 2, "look_s": 0.5, "latency_s": 1.0, "strangers_s": 0.5,
                "throughput_s": 0.5, "throughputs": 2, "bursts": 10,
                "long": (160, 400), "short": (8, 400), "share_s": 0.5,
                "many": 4, "many_nbody": (64, 100), "many_limit_s": 60,
                "nbody_small": (256, 500, 2), "nbody_large": (1024, 4, 2), "loaders": 3,
                "several": 2, "crowd": 4, "long_ms": 50, "idle": 8, "some": 1, "trainers": 2},
}

# As in Bench.metrics.
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
    "several.p50": ("latency of {several} clients beside nbody {large}, p50", "ms", "mps", "<=", 1.0),
    "several.p99": ("  p99 of the worst", "ms", "mps", "<=", 1.0),
    "several.neighbour": ("  nbody's speed, of alone", "", None, None, None),
    "launches.one": ("small kernels of 1 client", "k/s", None, ">=", 650),
    "launches.all": ("  of {throughputs} clients", "k/s", None, ">=", 3000),
    "launches.launch_sync_us": ("launch + synchronise", "us", None, "<=", 8.5),
    "launches.issue_us": ("launch issue", "us", None, "<=", 0.25),
    "many.wall_s": ("{many} small nbody at once, wall", "s", None, "<=", 2.2),
    "nbody_small.ms": ("n-body, small grids, {nbody_small}", "ms", "mps", "<=", 1.0),
    "nbody_small.wall_s": ("  from their start to their end", "s", "mps", "<=", 1.0),
    "nbody_large.ms": ("n-body, large grids, {nbody_large}", "ms", "mps", "<=", 1.0),
    "nbody_large.wall_s": ("  from their start to their end", "s", "mps", "<=", 1.0),
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
    "torch_start.device_ms": ("  after the imports", "ms", "native", "<=", 0.8),
    "torch_start_large.start_ms": ("the same beside nbody {large}", "ms", "mps", "<=", 1.0),
    "torch_start_large.device_ms": ("  after the imports", "ms", "mps", "<=", 1.0),
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


# --- programs ---------------------------------------------------------------------------------------


def never_seen(box, program, name):
    """The path of a copy of `program` with a unique number in its code, and that number."""
    number = 0x30000000 | secrets.randbits(29)  # each of these numbers is the bits of a normal float
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


def services(box):
    """The daemon and what it has started."""
    clients = {child.pid for child in box.children}
    return [pid for pid in box.processes() if pid not in clients]


def cpu_seconds(pids):
    """CPU time of all their threads until now, by the scheduler; ticks of 10 ms are too coarse for sleepers."""
    return sum(int(thread.read_text().split()[0])
               for pid in pids for thread in Path("/proc", str(pid), "task").glob("*/schedstat")) / 1e9


# --- cases: each takes its sandbox, the sizes, and a function that takes what it finds -------------------


def alone(box, sizes, found):
    found(first_ms=statistics.median(newcomers(box, sizes["newcomers"])), **percentiles(latency(box, sizes)))


def beside(which, loading=True):
    """New programs, if `loading`, and a client with requests, beside n-body; and n-body's speed meanwhile,
    relative to n-body alone."""
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


def several(box, sizes, found):
    """Several clients with requests at once, beside n-body."""
    command = ["clients", "latency", str(sizes["latency_s"]), str(sizes["fmas"])]
    with Neighbour(box, sizes, sizes["large"]) as neighbour:
        alone, _ = neighbour.speed_during(lambda: time.sleep(sizes["look_s"]))
        speed, (_, outputs) = neighbour.speed_during(
            lambda: together(box, [command] * sizes["several"], sizes["latency_s"] + ANSWER_LIMIT_S))
        neighbour.finish()
    answers = [json.loads(out) for out in outputs]
    found(p50=statistics.median(answer["p50"] for answer in answers),
          p99=max(answer["p99"] for answer in answers), neighbour=speed / alone)


def launches(box, sizes, found):
    found(**figures(box, ["gpu_bench", "launch", str(sizes["bursts"])]))
    for name, count in (("one", 1), ("all", sizes["throughputs"])):
        start = time.time() + 1 + 0.25 * count  # natively contexts are made one after the other
        command = ["clients", "throughput", str(sizes["throughput_s"]), f"{start:.3f}"]
        _, outputs = together(box, [command] * count, ANSWER_LIMIT_S)
        found(**{name: sum(json.loads(out)["thousand_per_s"] for out in outputs)})


def shares(box, sizes, found):
    """Two programs that always have kernels queued, of milliseconds and of a tenth of one; and requests
    beside the long kernels."""
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
        wall_s, outputs = together(box, [["nbody_bench", str(bodies), str(steps)]] * processes,
                                   ANSWER_LIMIT_S)
        found(ms=max(float(out.split("ms=")[1].split()[0]) for out in outputs), wall_s=wall_s)
    return case


def loaders(box, sizes, found):
    copies = [never_seen(box, "newcomer_256", f"loader-{i}") for i in range(sizes["loaders"])]
    wall_s, outputs = together(box, [[path] for path, _ in copies], START_LIMIT_S)
    for out, (_, number) in zip(outputs, copies):
        checked(json.loads(out), number)
    found(wall_s=wall_s)


class Strangers:
    """New programs and a client with requests beside other clients, relative to the same programs alone.
    Constructed while they are alone."""

    def __init__(self, box, sizes):
        self.box, self.sizes = box, sizes
        self.alone = self.measure()

    def measure(self):
        first_ms = statistics.median(newcomers(self.box, self.sizes["newcomers"]))
        return {"first_ms": first_ms, **percentiles(latency(self.box, self.sizes, self.sizes["strangers_s"]))}

    def beside(self, *wanted):
        """Metrics now, and their ratios to those alone as METRIC_ratio."""
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

    time.sleep(IDLE_AFTER_S)  # the first clients beside the crowd, too, start after everything was idle for so long
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
    """The mean of the workers that train at once."""
    for worker in workers:
        worker.ask(f"rate {workload} {seconds}")
    return statistics.mean(worker.answer(seconds + ANSWER_LIMIT_S)["steps_per_s"] for worker in workers)


def beside_training(box, sizes, workers):
    """A client with requests, while the workers train and a program starts each second."""
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
    workers = trainers(box, sizes["trainers"])  # a worker that is not asked waits for input
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
    "several": several,
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
# The device has no memory for 1,000 contexts, natively or under MPS; the goal of cupy refers to native.
LEFT_OUT = {("idle", "native"), ("idle", "mps"), ("cupy", "mps")}

# `shares` has no goal: it shows how two programs divide a device.
BENCH = Bench("engine", __doc__, SIZES, METRICS, CASES, NATIVE_SIZES, MPS_SIZES, NEEDS, LEFT_OUT, {"shares"})


if __name__ == "__main__":
    sys.exit(main(BENCH))
