#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits natively, under NVIDIA's MPS and behind OpenMPS: whether a program's speed follows the part of the
SMs that it is given, what it loses to others that have the rest, how soon a limit that changes is in force, and
what priorities and caps do for a client that wants short answers beside n-body that fills the device. Run by
`./dev bench limits`: some four minutes on a GPU; without one small sizes run on softgpu, against no goals.
docs/measurements/limits.md describes the cases. Python standard library only."""

import json
import random
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
from neighbours import (ANSWER_LIMIT_S, SETTLE_S, Bench, Neighbour, latency, main,  # noqa: E402
                        percentiles, together)
from sandbox import Failure, wait_until  # noqa: E402
from scenario_tools import LiveSms  # noqa: E402

PARTS = (80, 50, 25)  # percentages
LEND_S = 1.5          # SMs kept for a latency program are lent again after a second without its work
FEW, MANY = (5, 40), (60, 100)  # percentages that take turns, so that each change shows
LIVE_SEED = 7

SIZES = {
    # `busy`: blocks and multiply-adds a thread, kernels of some 4 ms. An H200's cache has 50 MiB.
    "nvidia": {"small": 8192, "medium": 65536, "large": 262144, "ahead": 400, "fmas": 2000, "look_s": 0.7,
               "latency_s": 2.5, "busy": (21120, 20000), "busy_s": 1.5, "memory_mib": 2048, "cache_mib": 16,
               "live": 8, "changes": 100},
    "softgpu": {"small": 256, "medium": 512, "large": 1024, "ahead": 32, "fmas": 20, "look_s": 0.5,
                "latency_s": 1.0, "busy": (160, 400), "busy_s": 0.5, "memory_mib": 8, "cache_mib": 1,
                "live": 3, "changes": 20},
}


def request_metrics():
    """Goals of requests beside n-body: (p99, n-body's speed beside them, its speed after them)."""
    goals = {"latency_small": (0.20, 0.98, None), "latency_medium": (0.20, None, None),
             "latency_large": (0.21, 0.89, 0.99), "priority_large": (0.21, 0.89, 0.99)}
    titles = {"plain": "requests beside nbody {{{0}}}", "priority": "  with priority 0 against 1",
              "latency": "  with OPENMPS_QOS=latency", "capped": "  nbody held to 80 %"}
    found = {}
    for which in ("small", "medium", "large"):
        for mode, title in titles.items():
            case = f"{mode}_{which}"
            p99, during, after = goals.get(case, (None, None, None))
            found.update({
                f"{case}.p50": (title.format(which) + ", p50", "ms", None, None, None),
                f"{case}.p99": ("    p99", "ms", None, p99 and "<=", p99),
                f"{case}.neighbour": ("    nbody's speed, of alone", "", None, during and ">=", during),
                f"{case}.after": ("    when they have ended", "", None, after and ">=", after)})
    return found


METRICS = {
    **{key: row for part in PARTS for key, row in {
        f"percentages.sms_{part}": (f"held to {part} %: SMs told", "", None, None, None),
        f"percentages.speed_{part}": ("  speed, of that without a limit", "", None, None, None),
        f"percentages.off_{part}": ("  off from the share of SMs", "", None, "<=", 0.05)}.items()},
    "halves.lost": ("two at 50 %: the slower loses, of alone at 50 %", "", None, "<=", 0.02),
    "noisy_compute.lost": ("25 % beside 75 %, computing: it loses, of alone at 25 %", "", None, "<=", 0.02),
    "noisy_memory.lost": ("  both read and write memory", "", None, None, None),
    "noisy_cache.lost": ("  both read and write their cache", "", None, None, None),
    "live.first": ("{changes} changes of the SMs of {live} programs: the first launch with them, p50", "ms", None, None,
                   None),
    "live.late": ("  the latest one without", "ms", None, "<=", 100),
    "live.broken": ("  rounds after that with more", "", None, "<=", 0),
    **request_metrics(),
}


def held_to(percent):
    return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}


def run_together(box, sizes, kind, envs):
    """Output of programs of that kind that begin at one moment, one for each environment."""
    start = time.time() + 1 + 0.25 * len(envs)  # natively contexts are made one after the other
    times = [str(sizes["busy_s"]), f"{start:.3f}"]
    command = (["clients", "busy", *map(str, sizes["busy"]), *times] if kind == "compute" else
               ["clients", "sweep", str(sizes[f"{kind}_mib"]), *times])
    outputs = together(box, [command] * len(envs), sizes["busy_s"] + ANSWER_LIMIT_S, envs)[1]
    return [json.loads(out) for out in outputs]


def percentages(box, sizes, found):
    whole = run_together(box, sizes, "compute", [{}])[0]
    for part in PARTS:
        held = run_together(box, sizes, "compute", [held_to(part)])[0]
        speed = held["per_s"] / whole["per_s"]
        found(**{f"sms_{part}": held["sms"], f"speed_{part}": speed,
                 f"off_{part}": abs(speed * whole["sms"] / held["sms"] - 1)})


def halves(box, sizes, found):
    alone = run_together(box, sizes, "compute", [held_to(50)])[0]["per_s"]
    both = run_together(box, sizes, "compute", [held_to(50)] * 2)
    found(lost=1 - min(one["per_s"] for one in both) / alone)


def noisy(kind):
    """A program with a quarter of the device beside one of the same kind with three quarters."""
    def case(box, sizes, found):
        alone = run_together(box, sizes, kind, [held_to(25)])[0]["per_s"]
        beside = run_together(box, sizes, kind, [held_to(25), held_to(75)])[0]["per_s"]
        found(lost=1 - beside / alone)
    return case


def in_force(program, asked_ns, most):
    """Among the rounds begun since a limit was set: (when the last one began that was not on the new SMs, or
    None; when the first one began that was), or None as long as no round was on the new SMs."""
    late_ns = None
    for begun_ns, sms in list(program.history):
        if begun_ns > asked_ns and most / 2 < sms <= most:
            return late_ns, begun_ns
        if begun_ns > asked_ns:
            late_ns = begun_ns
    return None


def live(box, sizes, found):
    """Changes limits of running programs, one program's by percentage, the next one's by number of SMs, and
    sometimes a priority as well. The programs check their results."""
    programs = [LiveSms(box) for _ in range(sizes["live"])]
    if not wait_until(lambda: all(program.rounds for program in programs), ANSWER_LIMIT_S):
        raise Failure("a program does not begin")
    device = max(len(program.sms) for program in programs)
    step = json.loads(box.control("device_query --json")[1])[0]["chunk_sms"]
    chance, first_ms, late_ms, broken = random.Random(LIVE_SEED), [], [], 0
    limits = {}  # program: (since when, how many SMs)

    def rounds_beyond(program):
        since, most = limits.get(program, (0, device))
        return sum(sms > most for begun, sms in list(program.history) if begun >= since)

    for number in range(sizes["changes"]):
        program = programs[number % len(programs)]
        percentage = chance.randint(*(FEW, MANY)[number // len(programs) % 2])
        most = max(device * percentage // 100, step)
        commands = [f"set_client_sm_count {program.pid()} 0 {most}" if number % 2 else
                    f"set_client_active_thread_percentage {program.pid()} {percentage}"]
        if number % 3 == 0:
            commands.append(f"set_client_priority {program.pid()} {chance.randint(0, 1)}")
        broken += rounds_beyond(program)
        asked_ns = time.monotonic_ns()
        for command in commands:
            code, text = box.control(command)
            if (code, text) != (0, ""):
                raise Failure(f"{command}: {code} {text}")
        seen = wait_until(lambda: in_force(program, asked_ns, most), ANSWER_LIMIT_S)
        if not seen:
            raise Failure(f"{len(program.sms)} SMs of {device} where {most} are left")
        late_ns, since_ns = seen
        first_ms.append((since_ns - asked_ns) / 1e6)
        late_ms.append((late_ns - asked_ns) / 1e6 if late_ns else 0)
        limits[program] = since_ns, most
    broken += sum(map(rounds_beyond, programs))
    for program in programs:
        program.end()
    found(first=statistics.median(first_ms), late=max(late_ms), broken=broken)


# Environment of the requests, and of n-body.
MODES = {
    "plain": ({}, {}),
    "priority": ({"CUDA_MPS_CLIENT_PRIORITY": "0"}, {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
    "latency": ({"OPENMPS_QOS": "latency"}, {}),
    "capped": ({}, held_to(80)),
}


def requests(mode, which):
    """Requests beside n-body, and n-body's speed meanwhile and afterwards, relative to n-body alone without a limit."""
    mine, its = MODES[mode]

    def case(box, sizes, found):
        def speed(neighbour):
            return neighbour.speed_during(lambda: time.sleep(sizes["look_s"]))[0]

        alone = None
        if its:
            with Neighbour(box, sizes, sizes[which]) as free:
                alone = speed(free)
                free.finish()
        with Neighbour(box, sizes, sizes[which], its) as neighbour:
            alone = alone or speed(neighbour)
            during, answers = neighbour.speed_during(lambda: latency(box, sizes, env=mine))
            time.sleep(LEND_S + SETTLE_S)
            after = speed(neighbour)
            neighbour.finish()
        found(**percentiles(answers), neighbour=during / alone, after=after / alone)
    return case


CASES = {
    "percentages": percentages,
    "halves": halves,
    **{f"noisy_{kind}": noisy(kind) for kind in ("compute", "memory", "cache")},
    "live": live,
    **{f"{mode}_{which}": requests(mode, which) for which in ("small", "medium", "large") for mode in MODES},
}
# NVIDIA's driver by itself has neither percentages nor priorities between programs. NVIDIA's MPS has no
# OPENMPS_QOS, and no limits that change while a program runs.
LEFT_OUT = {("percentages", "native"), ("halves", "native"), ("live", "native"), ("live", "mps"),
            *((f"{mode}_{which}", side) for which in ("small", "medium", "large")
              for mode, side in (("priority", "native"), ("capped", "native"), ("latency", "native"),
                                 ("latency", "mps")))}

BENCH = Bench("limits", __doc__, SIZES, METRICS, CASES, left_out=LEFT_OUT)


if __name__ == "__main__":
    sys.exit(main(BENCH))
