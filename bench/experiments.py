#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people try first when several programs share a GPU: n-body and LeNet by one and by several programs, ways
of stopping a program beside others, percentages and numbers of SMs, hardware queues, and a kernel that keeps a GPU
"99 % busy" with one thread; natively, under NVIDIA's MPS and behind OpenMPS. Run by `./dev experiments`: at most
nine minutes on a GPU; without one small sizes run on softgpu. docs/experiments.md explains the experiments, and
`./dev experiments --page results.json` puts the figures of a run into it. Python standard library only."""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import experiments_page as page  # noqa: E402
from neighbours import (ANSWER_LIMIT_S, ROOT, SECONDS, START_LIMIT_S, Bench, Clients,  # noqa: E402
                        Neighbour, NotWithin, Results, Side, available_sides, latency, raise_descriptors,
                        together)
from bystanders import H200_LATENCY, Bystander, await_active, commit, outcome  # noqa: E402
from demo import best_driver  # noqa: E402
from sandbox import Failure, query_gpu, wait_until  # noqa: E402
from scenario_tools import SETTLE_LIMIT_S  # noqa: E402
from smoke import MpsSandbox  # noqa: E402
from stack import Worker, show  # noqa: E402

LEAST_S = 10          # what must be left of the whole time for a case to begin
END_LIMIT_S = 20      # for a program that was stopped
BETWEEN_S = 0.3       # work of the bystanders before and after a stop
UTILISATION_S = 2.0   # nvidia-smi's utilisation is that of up to a second before
LOOKS, LOOK_S = 3, 0.5
BYSTANDERS = ("idle", "requests", "long", "copies")
FLOP_PER_PAIR = 20    # as CUDA's nbody sample counts
PROGRAMS = 4          # n of the percentages
CONNECTIONS = (1, 2, 4, 8, 16, 32)
LIBRARIES = {"SOFTGPU_CC": "13.0"}  # CUDA's libraries have PTX for softgpu from there on (docs/decisions/0041)

# `nbody`: bodies and steps, as `nbody -benchmark -numbodies=512000`. `busy`, `light`: blocks and multiply-adds a
# thread of kernels of some 4 ms on the whole device, and of a few SMs. `chains`: streams, kernels of each, us.
SIZES = {
    "nvidia": {"nbody": (512000, 10), "nbody_programs": (1, 2, 4), "lenet_programs": (1, 4, 8), "lenet_s": 2.0,
               "large": 262144, "victim": 65536, "ahead": 400, "busy": (21120, 20000), "light": (32, 20000),
               "busy_s": 1.0, "sms": (16, 32, 64, 96), "chains": (32, 4, 1000), "chain_processes": 4,
               "long_ms": 100, "latency_s": 1.5, "fmas": 2000},
    "softgpu": {"nbody": (4096, 10), "nbody_programs": (1, 2, 4), "lenet_programs": (1, 2), "lenet_s": 0,
                "large": 1024, "victim": 512, "ahead": 32, "busy": (160, 400), "light": (2, 400),
                "busy_s": 0.5, "sms": (2, 4, 6), "chains": (8, 2, 10000), "chain_processes": 2,
                "long_ms": 100, "latency_s": 1.0, "fmas": 20},
}


# --- n-body and LeNet ------------------------------------------------------------------------------------


def nbody(box, sizes, found):
    bodies, steps = sizes["nbody"]
    hashes = set()
    for count in sizes["nbody_programs"]:
        wall_s, outputs = together(box, [["nbody_bench", str(bodies), str(steps)]] * count, ANSWER_LIMIT_S)
        longest_ms = max(float(out.split("ms=")[1].split()[0]) for out in outputs)
        hashes.update(re.search(r"bits=(\w+)", out).group(1) for out in outputs)
        flop = count * FLOP_PER_PAIR * bodies ** 2 * (steps - 1)  # the first step is checked, not timed
        found(**{f"wall_s_{count}": wall_s, f"gflops_{count}": flop / longest_ms / 1e6})
    if len(hashes) != 1:
        raise Failure(f"the programs' bodies differ: {sorted(hashes)}")


def lenet_by_libraries(box, sizes, found):
    """tests/e2e/programs/lenet.cc: 20 steps with cuDNN and cuBLAS, from start to end."""
    hashes = set()
    for count in sizes["lenet_programs"]:
        wall_s, outputs = together(box, [["lenet"]] * count, START_LIMIT_S)
        hashes.update(re.search(r"bits=(\w+)", out).group(1) for out in outputs)
        found(**{f"wall_s_{count}": wall_s})
    if len(hashes) != 1:
        raise Failure(f"the programs have learnt different parameters: {sorted(hashes)}")


def lenet_by_torch(box, sizes, found):
    workers = [Worker(box) for _ in range(max(sizes["lenet_programs"]))]  # one that is not asked waits for input
    for worker in workers:
        worker.wait_ready()
    for count in sizes["lenet_programs"]:
        for worker in workers[:count]:
            worker.ask(f"rate lenet {sizes['lenet_s']}")
        rates = [worker.answer(sizes["lenet_s"] + ANSWER_LIMIT_S)["steps_per_s"] for worker in workers[:count]]
        found(**{f"each_{count}": statistics.mean(rates), f"all_{count}": sum(rates)})
    for worker in workers:
        worker.child.stdin.close()
    for worker in workers:
        worker.child.wait(timeout=ANSWER_LIMIT_S)


def lenet(box, sizes, found):
    (lenet_by_torch if box.driver == "nvidia" else lenet_by_libraries)(box, sizes, found)


def no_lenet(build, driver):
    """Why LeNet can't be trained here, or None."""
    if driver == "nvidia":
        done = subprocess.run([sys.executable, "-c", "import torch"], check=False, capture_output=True)
        return "needs PyTorch" if done.returncode else None  # has read its files, so no side is the first to do so
    program = Path(build) / "tests/e2e/lenet"
    if not program.exists():
        return "needs tests/e2e/lenet, which is built where cuDNN and cuBLAS are"
    listed = subprocess.run([program], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True,
                            check=False).stdout
    missing = [line.split()[0] for line in listed.splitlines() if "not found" in line and "libcuda" not in line]
    return f"needs {', '.join(missing)}" if missing else None


# --- stopping --------------------------------------------------------------------------------------------


def mps_control(box, text):
    """The answer of the side's control daemon."""
    if not isinstance(box, MpsSandbox):
        return box.control(text, END_LIMIT_S)[1]
    return subprocess.run(["nvidia-cuda-mps-control"], input=text + "\n", text=True, env=box.env, check=False,
                          timeout=END_LIMIT_S, capture_output=True).stdout


def by_signal(number):
    def stop(_box, victim):
        os.killpg(victim.pid, number)  # as a terminal does: all of the foreground's process group
    return stop


def by_command(box, victim):
    server = mps_control(box, "get_server_list").split()[0]
    answer = mps_control(box, f"terminate_client {server} {victim.pid}")
    if answer.split() and answer.split()[-1] != "0":
        raise Failure(f"terminate_client: {answer.strip()}")


def stopped_program(stop):
    """A program with many kernels queued ends by `stop`: milliseconds until its process has ended."""
    def act(box, sizes):
        with Neighbour(box, sizes, sizes["victim"]) as victim:
            child = victim.children[0]
            begin = time.monotonic()
            stop(box, child)
            try:
                child.wait(timeout=END_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise NotWithin(END_LIMIT_S) from None
            return (time.monotonic() - begin) * 1e3
    return act


def faulty_program(kind):
    def act(box, _sizes):
        begin = time.monotonic()
        commit(box, kind)
        return (time.monotonic() - begin) * 1e3
    return act


WAYS = {
    "ctrl_c": stopped_program(by_signal(signal.SIGINT)),
    "kill": stopped_program(by_signal(signal.SIGTERM)),
    "kill_9": stopped_program(by_signal(signal.SIGKILL)),
    "command": stopped_program(by_command),
    "wild": faulty_program("write"),
    "trap": faulty_program("trap"),
}


def stopping(way):
    """Bystanders beside a program that ends that way, and a new program afterwards."""
    def case(box, sizes, found):
        crowd = [Bystander(box, mode, seed) for seed, mode in enumerate(BYSTANDERS, 1)]
        for one in crowd:
            one.wait_ready()
        time.sleep(BETWEEN_S)
        for one in crowd:
            one.ask(END_LIMIT_S)  # from here on
        found(ended_ms=WAYS[way](box, sizes))
        if box.mode == "openmps":
            await_active(box, SETTLE_LIMIT_S)
        time.sleep(BETWEEN_S)
        answers = [one.ask(END_LIMIT_S) for one in crowd]
        outcomes = [outcome(answer) for answer in answers]
        pauses = [answer["longest_ms"] for answer in answers if not answer["lost"] and answer["mode"] != "idle"]
        found(unharmed=outcomes.count("unharmed"), told=outcomes.count("told") + outcomes.count("told often"),
              lost=outcomes.count("lost"), wrong=outcomes.count("WRONG"), **({"pause_ms": max(pauses)} if pauses else {}))
        for one, how in zip(crowd, outcomes):
            if how == "lost":  # NVIDIA's MPS serves nobody before these have ended
                one.end()
        begin = time.monotonic()
        code, out, err = box.run(["drv_client_worker", "1"], ANSWER_LIMIT_S)
        if code != 0:
            raise Failure(f"a new program afterwards: exit code {code}\n{out}{err}")
        found(newcomer_ms=(time.monotonic() - begin) * 1e3)
        for one, how in zip(crowd, outcomes):
            if how != "lost":
                one.end()
        if "WRONG" in outcomes:
            raise Failure(f"wrong results: {json.dumps(answers)}")
    return case


# --- a kernel that does not end --------------------------------------------------------------------------


# NVML's utilisation of device 0, by the library that the environment leads to.
ASK_NVML = """
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, rates = ctypes.c_void_p(), (ctypes.c_uint * 2)()
codes = (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)),
         nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(rates)))
print(rates[0] if not any(codes) else "")
"""


def utilisation(box):
    """GPU-Util in percent, or None where NVML does not tell."""
    if box.driver == "nvidia":
        return float(query_gpu("--query-gpu=utilization.gpu")[0])
    env = {**box.service_env(), "LD_LIBRARY_PATH": str(box.build / "lib" / "softgpu")}
    done = subprocess.run([sys.executable, "-c", ASK_NVML], env=env, capture_output=True, text=True,
                          timeout=ANSWER_LIMIT_S, check=False)
    return float(done.stdout) if done.stdout.strip() else None


def sm_share(box):
    """What `openmps stat` says of the next second: the part of the device's SM time."""
    done = subprocess.run([box.resolve("openmps"), "stat", "--json", "--count", "1", "--interval", "1"],
                          env=box.service_env(), capture_output=True, text=True, timeout=ANSWER_LIMIT_S, check=True)
    return json.loads(done.stdout)["devices"][0]["sm_share"]


def endless(box, sizes, found):
    alone = latency(box, sizes)
    for name, command in (("endless", ["clients", "endless"]), ("long", ["clients", "long", str(sizes["long_ms"])])):
        with Clients(box, command) as clients:
            clients.wait_ready()
            time.sleep(UTILISATION_S)
            looks = []
            for _ in range(LOOKS):
                looks.append(utilisation(box))
                time.sleep(LOOK_S)
            if None not in looks:
                found(**{f"{name}_util": statistics.median(looks)})
            if box.mode == "openmps":
                found(**{f"{name}_share": sm_share(box) * 100})
            found(**{f"{name}_p50": latency(box, sizes)["p50"] / alone["p50"]})
            clients.finish()


# --- hardware queues -------------------------------------------------------------------------------------


def hyperq(box, sizes, found):
    """How many kernels of one block run at once on average: of the streams of one thread, of threads with a stream
    each, and of processes that have as many streams together."""
    streams, kernels, us = sizes["chains"]
    processes = sizes["chain_processes"]
    for name, count, threads in (("streams", 1, 1), ("threads", 1, streams), ("processes", processes, 1)):
        for connections in CONNECTIONS:
            command = ["clients", "chains", *map(str, (streams // count, threads, kernels, us))]
            with Clients(box, command, count, {"CUDA_DEVICE_MAX_CONNECTIONS": str(connections)}) as clients:
                clients.wait_ready()
                clients.release()
                times = [json.loads(line) for line in clients.lines(count, ANSWER_LIMIT_S)]
                clients.finish()
            wall_s = max(one["end"] for one in times) - min(one["begin"] for one in times)
            found(**{f"{name}_{connections}": streams * kernels * us / 1e6 / wall_s})


# --- percentages and SMs ---------------------------------------------------------------------------------


def held_to(percent):
    return {} if percent is None else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{percent:g}"}


def busy_command(sizes, which, start):
    return ["clients", "busy", *map(str, sizes[which]), str(sizes["busy_s"]), f"{start:.3f}"]


def rates(box, sizes, programs):
    """Kernels a second of each of the programs, (kind, percentage), that run at once."""
    start = time.time() + 1 + 0.25 * len(programs)  # natively contexts are made one after the other
    _, outputs = together(box, [busy_command(sizes, which, start) for which, _ in programs], ANSWER_LIMIT_S,
                          [held_to(percent) for _, percent in programs])
    return [json.loads(out)["per_s"] for out in outputs]


def settings(box, **more):
    """name: a percentage for each of PROGRAMS. The driver by itself has no percentages."""
    every = {"none": [None] * PROGRAMS}
    if isinstance(box, MpsSandbox) or box.mode == "openmps":
        every |= {"n": [100 / PROGRAMS] * PROGRAMS, "half": [min(100, 100 / (0.5 * PROGRAMS))] * PROGRAMS, **more}
    return every


def uniform(box, sizes, found):
    """Equal programs that fill the device: all kernels a second, and the slowest program's of the fastest's."""
    alone = rates(box, sizes, [("busy", None)])[0]
    for name, percentages in settings(box).items():
        speeds = rates(box, sizes, [("busy", percent) for percent in percentages])
        found(**{f"all_{name}": sum(speeds) / alone, f"least_{name}": min(speeds) / max(speeds)})


def by_load(box, sizes, found):
    """A program that fills the device beside others of a few blocks: speeds relative to alone."""
    kinds = ["busy"] + ["light"] * (PROGRAMS - 1)
    alone = {kind: rates(box, sizes, [(kind, None)])[0] for kind in ("busy", "light")}
    loads = [70] + [10] * (PROGRAMS - 1)
    for name, percentages in settings(box, load=loads).items():
        speeds = [speed / alone[kind] for kind, speed in zip(kinds, rates(box, sizes, list(zip(kinds, percentages))))]
        found(**{f"heavy_{name}": speeds[0], f"light_{name}": statistics.mean(speeds[1:])})


def sms(box, sizes, found):
    """A program alone with some of the SMs: by their number behind OpenMPS, under NVIDIA's MPS by the least
    percentage that has so many."""
    start = time.time() + 1
    whole = json.loads(together(box, [busy_command(sizes, "busy", start)], ANSWER_LIMIT_S)[1][0])
    for count in sizes["sms"]:
        start = time.time() + 1.5
        percent = math.ceil(100 * count / whole["sms"]) if isinstance(box, MpsSandbox) else None
        child = box.start(busy_command(sizes, "busy", start), held_to(percent))
        if percent is None:
            def there():
                return str(child.pid) in mps_control(box, f"get_client_list {server}").split()

            server = mps_control(box, "get_server_list").split()[0]
            if not wait_until(there, ANSWER_LIMIT_S):
                raise Failure("the program is not among the clients")
            told = mps_control(box, f"set_client_sm_count {child.pid} 0 {count}")
            if told:
                raise Failure(f"set_client_sm_count: {told}")
        out, err = child.communicate(timeout=ANSWER_LIMIT_S)
        if child.returncode != 0:
            raise Failure(f"clients busy: exit code {child.returncode}\n{out}{err}")
        answer = json.loads(out)
        found(**{f"told_{count}": answer["sms"], f"speed_{count}": answer["per_s"] / whole["per_s"]})


# --- all of it -------------------------------------------------------------------------------------------


# experiment: {case: (what it does, its seconds at most on one side)}; those first that say most.
EXPERIMENTS = {
    "nbody": {"nbody": (nbody, 40)},
    "stopping": {f"stop_{way}": (stopping(way), 40) for way in WAYS},
    "lenet": {"lenet": (lenet, 75)},
    "endless": {"endless": (endless, 40)},
    "hyperq": {"hyperq": (hyperq, 50)},
    "percentages": {"uniform": (uniform, 30), "by_load": (by_load, 40)},
    "sms": {"sms": (sms, 30)},
}
BUDGETS = {case: seconds for cases in EXPERIMENTS.values() for case, (_, seconds) in cases.items()}
# NVIDIA's driver by itself has no control daemon and no limits of SMs.
LEFT_OUT = {("stop_command", "native"), ("sms", "native")}

BENCH = Bench("experiments", __doc__, SIZES, {},
              {case: act for cases in EXPERIMENTS.values() for case, (act, _) in cases.items()}, left_out=LEFT_OUT)


class BoundedSide(Side):
    """A side on which a case, with the start of its daemon and the end, has `seconds`."""

    def __init__(self, *arguments, seconds):
        super().__init__(*arguments)
        self.seconds = seconds

    def sandbox(self):
        box = super().sandbox()
        if self.driver == "softgpu":
            box.env.update({**LIBRARIES, "SOFTGPU_FAULT_LATENCY_US": H200_LATENCY})
        close = box.close

        def close_in_peace():
            signal.setitimer(signal.ITIMER_REAL, 0)
            close()

        box.close = close_in_peace
        return box

    def run(self, case, found):
        def give_up(*_):
            raise NotWithin(self.seconds)

        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        try:
            return super().run(case, found)
        except NotWithin as late:  # while it looked at what had gone wrong
            return str(late)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


class Progress:
    """A bar below the lines on a terminal; lines alone elsewhere."""

    WIDTH = 30

    def __init__(self, total, begin, out=None):
        self.total, self.done, self.out, self.begin = total, 0, out or sys.stdout, begin
        self.bar = self.out.isatty()

    def spent(self):
        return time.monotonic() - self.begin

    def doing(self, what):
        if self.bar:
            filled = self.WIDTH * self.done // max(1, self.total)
            self.out.write(f"\r\x1b[K[{'#' * filled}{'.' * (self.WIDTH - filled)}] {self.done}/{self.total}  "
                           f"{self.spent():.0f} s  {what}")
            self.out.flush()

    def line(self, text):
        self.done += 1
        self.out.write(("\r\x1b[K" if self.bar else "") + f"[{self.spent():6.1f} s] {text}\n")
        self.out.flush()

    def end(self):
        if self.bar:
            self.out.write("\r\x1b[K")
            self.out.flush()


def machine(driver):
    if driver == "softgpu":
        return {"device": "softgpu", "version": "", "cores": os.cpu_count()}
    name, version = query_gpu("--query-gpu=name,driver_version")[0].split(", ")
    return {"device": name, "version": version, "cores": os.cpu_count()}


def chosen(only):
    """Of EXPERIMENTS, those that are named, or the cases that are."""
    names = set(only.split(",")) if only else set(EXPERIMENTS)
    unknown = names - set(EXPERIMENTS) - set(BUDGETS)
    if unknown:
        raise SystemExit(f"no experiment {', '.join(sorted(unknown))}; there are {', '.join(EXPERIMENTS)}, and their "
                         f"cases {', '.join(case for case in BUDGETS if case not in EXPERIMENTS)}")
    picked = {experiment: [case for case in cases if names & {experiment, case}]
              for experiment, cases in EXPERIMENTS.items()}
    return {experiment: cases for experiment, cases in picked.items() if cases}


def take_all(args, driver, sides):
    """Runs what is chosen; returns what results.json holds."""
    begin = time.monotonic()
    experiments = chosen(args.only)
    results = Results(BENCH, driver, sides)
    made = {"driver": driver, "machine": machine(driver), "sides": sides, "experiments": list(experiments),
            "sizes": {name: Side(BENCH, name, args.build, driver).sizes for name in sides}, "left_out": {},
            "samples": results.samples, "failures": results.failures, "seconds": 0}
    reason = no_lenet(args.build, driver) if "lenet" in experiments else None
    if reason:
        print(f"lenet: left out, it {reason}", flush=True)
        made["left_out"]["lenet"] = {name: reason for name in sides}
    runs = [(case, name) for cases in experiments.values() for case in cases for name in sides
            if (case, name) not in LEFT_OUT and not (case == "lenet" and reason)]
    progress = Progress(len(runs), begin)

    def save():
        made["seconds"] = progress.spent()
        (args.out / "results.json").write_text(json.dumps(made, indent=1) + "\n")

    for case, name in runs:
        left = args.seconds - progress.spent()
        if left < LEAST_S:
            made["left_out"].setdefault(case, {})[name] = f"no time was left of {args.seconds} s"
            progress.line(f"{case}, {name}: left out, no time is left of {args.seconds} s")
            continue
        progress.doing(f"{case}, {name}")
        start = time.monotonic()
        side = BoundedSide(BENCH, name, args.build, driver, seconds=min(BUDGETS[case], left))
        text = results.take(case, side, 1)
        failed = " FAILED" if name in results.failures.get(case, {}) else ""
        progress.line(f"{case}, {name}, {time.monotonic() - start:.1f} s{failed}: {text}")
        save()  # whoever ends it has these
    progress.end()
    save()
    return made


def main():
    parser = argparse.ArgumentParser(prog="./dev experiments", description=__doc__)
    parser.add_argument("--build", type=Path, default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--driver", choices=["nvidia", "softgpu"], default=None)
    parser.add_argument("--sides", default="native,mps,openmps")
    parser.add_argument("--only", metavar="EXPERIMENT,...", help=", ".join(EXPERIMENTS) + ", or cases of theirs")
    parser.add_argument("--seconds", type=int, default=SECONDS,
                        help="begin nothing that would end later, and give up what runs then (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "experiments",
                        help="folder for results.json, page.md and its plots (%(default)s)")
    parser.add_argument("--page", type=Path, metavar="RESULTS",
                        help="run nothing: put the figures of that results.json into docs/experiments*.md")
    args = parser.parse_args()
    if args.page:
        try:
            paths = page.update(json.loads(args.page.read_text()), ROOT / "docs")
        except (OSError, ValueError, KeyError) as error:
            print(f"{args.page}: no results of experiments: {error!r}", file=sys.stderr)
            return 1
        print("\n".join(map(str, paths)))
        return 0
    if not (Path(args.build) / "bench/clients").exists():
        print("bench/clients is missing: build it with nvcc or carry it here", file=sys.stderr)
        return 1
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or programs of a background job would ignore Ctrl-C
    driver = args.driver or best_driver()
    raise_descriptors()
    args.out.mkdir(parents=True, exist_ok=True)
    made = take_all(args, driver, available_sides(args.sides.split(","), driver))
    (args.out / "page.md").write_text(page.alone(made, args.out))
    for experiment in made["experiments"]:
        for rows in page.tables(experiment, made, "en"):
            print()
            show(rows)
    print(f"\n{made['machine']['device']}, {made['seconds']:.0f} s; {args.out / 'page.md'}")
    for case, of in made["failures"].items():
        for name, reason in of.items():
            print(f"FAILED: {case}, {name}: {reason.splitlines()[0]}")
    return 1 if made["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
