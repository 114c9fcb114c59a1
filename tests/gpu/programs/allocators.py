# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory under another allocator: expandable segments, which map device memory by themselves,
and cudaMallocAsync, the driver's pools. The environment (PYTORCH_CUDA_ALLOC_CONF) chooses which."""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402

import models  # noqa: E402
import torch_support  # noqa: E402
from harness import device, need_cuda, test  # noqa: E402

MIB = 1 << 20
ASYNC = "cudaMallocAsync" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


@test
def backend():
    need_cuda()
    name = torch.cuda.get_allocator_backend()
    assert name == ("cudaMallocAsync" if ASYNC else "native"), name


@test
def first_tensor():
    need_cuda()
    assert float(torch.ones(10, device="cuda").sum()) == 10


@test
def growth():
    """Blocks that grow and shrink; each keeps its contents."""
    need_cuda()
    kept = []
    for i in range(40):
        kept.append((i, torch.full(((i % 9 + 1) * MIB // 4,), float(i), device="cuda")))
        if i % 3 == 2:
            kept.pop(i % len(kept))
    for value, tensor in kept:
        assert bool((tensor == value).all()), f"block {value} has other contents"


@test
def large_blocks():
    need_cuda()
    a = torch.arange(64 * MIB, device="cuda", dtype=torch.int32)
    b = a.clone()
    del a
    c = torch.zeros(128 * MIB, device="cuda", dtype=torch.int32)
    assert int(b[-1]) == 64 * MIB - 1 and int(c.sum()) == 0


@test
def give_back():
    """empty_cache() returns memory to the device: the reserved amount falls."""
    need_cuda()
    block = torch.zeros(256 * MIB, device="cuda", dtype=torch.uint8)
    assert torch.cuda.memory_reserved() >= 256 * MIB, torch.cuda.memory_reserved()
    del block
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < 256 * MIB, torch.cuda.memory_reserved()
    again = torch.ones(256 * MIB, device="cuda", dtype=torch.uint8)
    assert int(again[-1]) == 1


@test
def out_of_memory():
    need_cuda()
    try:
        torch.empty(1 << 42, device="cuda", dtype=torch.uint8)
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("4 TiB were allocated")
    assert float(torch.ones(1000, device="cuda").sum()) == 1000


@test
def streams():
    """A block freed on one stream and used on another."""
    need_cuda()
    side = torch.cuda.Stream()
    for i in range(20):
        x = torch.full((MIB,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = (x * 2).sum()
        x.record_stream(side)
        del x
        side.synchronize()
        assert float(total) == 2.0 * i * MIB


@test
def training():
    torch.manual_seed(0)
    net = models.LeNet().to(device())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    inputs, labels = (d.to(device()) for d in models.pictures(512))
    for step in range(20):
        loss = models.train_step(net, optimiser, models.batch_of(inputs, step, 64),
                                 models.batch_of(labels, step, 64))
    assert 0 < float(loss.detach()) < 3


@test
def graph():
    need_cuda()
    x = torch.ones(1000, device="cuda")
    (x * 2 + 1).sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x * 2 + 1).sum()
    x.fill_(3.0)
    graph.replay()
    assert float(y) == 7000.0, float(y)


torch_support.run()
