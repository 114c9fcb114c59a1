#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits natively, under NVIDIA's MPS and behind OpenMPS: whether a program's speed follows the part of the
SMs that it is given, what it loses to others that have the rest, and what priorities and caps do for a client
that wants short answers beside n-body that fills the device. Run by `./dev bench limits`: some four minutes
on a GPU; without one small sizes run on softgpu, against no goals. docs/benchmarks.md describes the cases.
Python standard library only."""

import json
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
from neighbours import (ANSWER_LIMIT_S, SETTLE_S, Bench, Neighbour, latency, main,  # noqa: E402
                        percentiles, together)

PARTS = (80, 50, 25)  # percentages
LEND_S = 1.5          # what is kept for who wants short answers is lent again after a second

SIZES = {
    # `busy`: blocks and multiply-adds a thread, kernels of some 4 ms. An H200's cache has 50 MiB.
    "nvidia": {"small": 8192, "medium": 65536, "large": 262144, "ahead": 400, "fmas": 2000, "look_s": 0.7,
               "latency_s": 2.5, "busy": (21120, 20000), "busy_s": 1.5, "memory_mib": 2048, "cache_mib": 16},
    "softgpu": {"small": 256, "medium": 512, "large": 1024, "ahead": 32, "fmas": 20, "look_s": 0.5,
                "latency_s": 1.0, "busy": (160, 400), "busy_s": 0.5, "memory_mib": 8, "cache_mib": 1},
}


def request_metrics():
    """Of requests beside n-body: (p99, n-body's speed meanwhile, its speed afterwards) that are to be had."""
    goals = {"latency_small": (0.20, 0.98, None), "latency_medium": (0.20, 0.68, None),
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
    **request_metrics(),
}


def held_to(percent):
    return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}


def run_together(box, sizes, kind, envs):
    """What programs of that kind print that begin at one moment, one for each environment."""
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
    """A quarter of the device beside a program of the same kind that has the rest."""
    def case(box, sizes, found):
        alone = run_together(box, sizes, kind, [held_to(25)])[0]["per_s"]
        beside = run_together(box, sizes, kind, [held_to(25), held_to(75)])[0]["per_s"]
        found(lost=1 - beside / alone)
    return case


# What requests and n-body say of themselves, and what n-body is held to.
MODES = {
    "plain": ({}, {}),
    "priority": ({"CUDA_MPS_CLIENT_PRIORITY": "0"}, {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
    "latency": ({"OPENMPS_QOS": "latency"}, {}),
    "capped": ({}, held_to(80)),
}


def requests(mode, which):
    """Requests beside n-body, whose speed meanwhile and afterwards is of that alone and without a limit."""
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
    **{f"{mode}_{which}": requests(mode, which) for which in ("small", "medium", "large") for mode in MODES},
}
# The driver alone has neither percentages nor priorities between programs, MPS no OPENMPS_QOS.
LEFT_OUT = {("percentages", "native"), ("halves", "native"),
            *((f"{mode}_{which}", side) for which in ("small", "medium", "large")
              for mode, side in (("priority", "native"), ("capped", "native"), ("latency", "native"),
                                 ("latency", "mps")))}

BENCH = Bench("limits", __doc__, SIZES, METRICS, CASES, left_out=LEFT_OUT)


if __name__ == "__main__":
    sys.exit(main(BENCH))
