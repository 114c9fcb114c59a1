# SPDX-License-Identifier: Apache-2.0
"""One PyTorch process that trains on command, for bench/stack.py. It warms LeNet up, prints `ready`, then
reads lines `rate WORKLOAD SECONDS` and `profile WORKLOAD STEPS` and answers each with one JSON line:
{"steps_per_s": N}, {"phases_us": {PHASE: MEDIAN}} or {"error": TEXT}. Main thread only."""

import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "gpu" / "programs")]
import torch  # noqa: E402

import models  # noqa: E402

# Steps between two readings of the clock: each waits for the device, as printing a loss does.
STEPS_PER_LOOK = 20
WARM_UP = 20
LENET_BATCH = 64
ENCODER_BATCH = 32
# Large enough to keep the device busy, small enough that the host's part of a step matters.
ENCODER = {"tokens": 1000, "length": 128, "width": 256, "heads": 8, "layers": 4}
DTYPE = getattr(torch, os.environ.get("STACK_BENCH_DTYPE", "bfloat16"))


def ignore(phase):
    """A phase timer that does nothing."""


def lenet():
    """A training step that copies its batch from pageable memory."""
    torch.manual_seed(0)
    net = models.LeNet().cuda()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    inputs, labels = models.pictures(4096)

    def step(i, mark=ignore):
        x, y = (models.batch_of(d, i, LENET_BATCH).cuda() for d in (inputs, labels))
        mark("input")
        return models.train_step(net, optimiser, x, y, mark)
    return step


def encoder():
    torch.manual_seed(0)
    model = models.Encoder(**ENCODER).to("cuda", DTYPE)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    inputs, labels = (d.cuda() for d in models.sentences(1024, ENCODER["tokens"], ENCODER["length"]))
    return model, optimiser, inputs, labels


def transformer():
    model, optimiser, inputs, labels = encoder()

    def step(i, mark=ignore):
        return models.train_step(model, optimiser, models.batch_of(inputs, i, ENCODER_BATCH),
                                 models.batch_of(labels, i, ENCODER_BATCH), mark)
    return step


def transformer_graph():
    model, optimiser, inputs, labels = encoder()
    x, y = inputs[:ENCODER_BATCH].clone(), labels[:ENCODER_BATCH].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            models.train_step(model, optimiser, x, y)
    torch.cuda.current_stream().wait_stream(side)
    optimiser.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = models.train_step(model, optimiser, x, y)

    def step(i, mark=ignore):
        x.copy_(models.batch_of(inputs, i, ENCODER_BATCH))
        y.copy_(models.batch_of(labels, i, ENCODER_BATCH))
        mark("input")
        graph.replay()
        mark("replay")
        return loss
    return step


WORKLOADS = {f.__name__: f for f in (lenet, transformer, transformer_graph)}
ready = {}


def prepared(name):
    if name not in ready:
        ready[name] = WORKLOADS[name]()
        for i in range(WARM_UP):
            ready[name](i)
        torch.cuda.synchronize()
    return ready[name]


def profile(name, steps):
    """What each phase of a step costs the host, and then the wait for the device: medians."""
    step, times = prepared(name), {}

    for i in range(int(steps)):
        last = time.perf_counter()

        def mark(phase):
            nonlocal last
            now = time.perf_counter()
            times.setdefault(phase, []).append((now - last) * 1e6)
            last = now

        step(i, mark)
        torch.cuda.synchronize()
        mark("wait")
    return {"phases_us": {phase: statistics.median(t) for phase, t in times.items()}}


def rate(name, seconds):
    step = prepared(name)
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for i in range(STEPS_PER_LOOK):
            loss = step(steps + i)
        steps += STEPS_PER_LOOK
        value = float(loss.detach())
    spent = time.perf_counter() - begin
    if not math.isfinite(value):
        raise ValueError(f"{name}: loss {value}")
    return {"steps_per_s": steps / spent}


def main():
    torch.backends.cuda.matmul.allow_tf32 = True
    prepared("lenet")
    print("ready", flush=True)
    for line in sys.stdin:
        command, name, amount = line.split()
        try:
            answer = {"rate": rate, "profile": profile}[command](name, float(amount))
        except Exception as error:  # noqa: BLE001  one workload's failure leaves the others
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
