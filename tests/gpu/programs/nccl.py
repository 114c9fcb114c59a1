# SPDX-License-Identifier: Apache-2.0
"""NCCL between two GPUs: all-reduce and its relatives within one process, and between two processes
through torch.distributed."""

import os
import socket
import sys
from pathlib import Path

# NVLink multicast is off: it is a resource that the whole host shares, and does not affect results.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import torch_support  # noqa: E402
from harness import Skip, test  # noqa: E402

LIMIT_S = 90
SIZES = (1, 1000, 1 << 22)


def need_two():
    if torch.cuda.device_count() < 2:
        raise Skip("needs 2 GPUs")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@test
def peer_copy():
    need_two()
    x = torch.arange(1 << 20, device="cuda:0")
    assert bool((x.to("cuda:1").cpu() == x.cpu()).all())


@test
def all_reduce_in_one_process():
    need_two()
    for size in SIZES:
        parts = [torch.full((size,), float(i + 1), device=f"cuda:{i}") for i in range(2)]
        torch.cuda.nccl.all_reduce(parts)
        for i in range(2):
            torch.cuda.synchronize(i)
            assert bool((parts[i] == 3).all()), f"size {size} on GPU {i}"


def member(rank, port, work, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    try:
        answers.put((rank, work(rank)))
    finally:
        dist.destroy_process_group()


def between_two(work):
    """Runs `work(rank)` in two processes, and returns both results."""
    context = mp.get_context("spawn")
    answers, port = context.Queue(), free_port()
    children = [context.Process(target=member, args=(rank, port, work, answers)) for rank in range(2)]
    for child in children:
        child.start()
    try:
        found = dict(answers.get(timeout=LIMIT_S) for _ in children)
        for child in children:
            child.join(LIMIT_S)
    finally:
        for child in children:
            child.kill()
    return [found[rank] for rank in range(2)]


def reduce_sizes(rank):
    sums = []
    for size in SIZES:
        x = torch.full((size,), float(rank + 1), device="cuda")
        dist.all_reduce(x)
        sums.append(float(x.sum()) / size)
    return sums


def other_collectives(rank):
    x = torch.full((100,), float(rank), device="cuda")
    gathered = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(gathered, x)
    dist.broadcast(x, 1)
    scattered = torch.empty(50, device="cuda")
    dist.reduce_scatter_tensor(scattered, torch.ones(100, device="cuda"))
    dist.barrier()
    return [float(g.sum()) for g in gathered] + [float(x.sum()), float(scattered.sum())]


def data_parallel(rank):
    import models
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(models.LeNet().cuda(), device_ids=[rank])
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    inputs, labels = (d.cuda() for d in models.pictures(256, seed=rank))
    for step in range(5):
        models.train_step(net, optimiser, models.batch_of(inputs, step, 32),
                          models.batch_of(labels, step, 32))
    return [float(p.detach().double().sum()) for p in net.parameters()]


@test
def all_reduce_between_processes():
    need_two()
    assert between_two(reduce_sizes) == [[3.0, 3.0, 3.0]] * 2


@test
def collectives_between_processes():
    need_two()
    assert between_two(other_collectives) == [[0.0, 100.0, 100.0, 100.0]] * 2


@test
def distributed_data_parallel():
    """Both sides end with the same weights."""
    need_two()
    first, second = between_two(data_parallel)
    assert first == second, f"{first} and {second}"


if __name__ == "__main__":
    torch_support.run()
