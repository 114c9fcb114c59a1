# SPDX-License-Identifier: Apache-2.0
"""DataLoader with worker processes and pinned memory: forked before and after CUDA is in use, and
spawned. The workers never touch the GPU; their parent does, in the same run."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

import torch_support  # noqa: E402
from harness import device, need_cuda, test  # noqa: E402

COUNT, WIDTH, BATCH, WORKERS = 512, 1000, 32, 3


class Rows(Dataset):
    """Row i is full of i."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return torch.full((WIDTH,), float(index)), index


def sum_of_all(**options):
    """Sends every row to the device once, and sums them up."""
    loader = DataLoader(Rows(), batch_size=BATCH, num_workers=WORKERS, shuffle=True, **options)
    batches = iter(loader)  # starts the workers
    total, seen = torch.zeros((), device=device(), dtype=torch.float64), []
    for rows, indices in batches:
        if options.get("pin_memory"):
            assert rows.is_pinned() and indices.is_pinned()
        there = rows.to(device(), non_blocking=True)
        total += there.sum(dtype=torch.float64)
        seen += indices.tolist()
    assert sorted(seen) == list(range(COUNT)), "a row is missing or twice"
    assert float(total) == WIDTH * COUNT * (COUNT - 1) / 2, float(total)


@test
def forked_before_cuda():
    sum_of_all()


@test
def forked_with_pinned_memory():
    need_cuda()
    torch.zeros(1, device="cuda")
    sum_of_all(pin_memory=True)


@test
def persistent_workers():
    need_cuda()
    loader = DataLoader(Rows(), batch_size=BATCH, num_workers=WORKERS, pin_memory=True,
                        persistent_workers=True)
    for _ in range(3):
        total = sum(float(rows.to("cuda", non_blocking=True).sum(dtype=torch.float64))
                    for rows, _ in loader)
        assert total == WIDTH * COUNT * (COUNT - 1) / 2


@test
def spawned():
    sum_of_all(multiprocessing_context="spawn", pin_memory=device() == "cuda")


@test
def fork_after_cuda_is_refused():
    """A forked child that uses CUDA gets PyTorch's error; the parent can still use the device."""
    need_cuda()
    torch.zeros(1, device="cuda")
    context = torch.multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=use_cuda, args=(queue,))
    child.start()
    answer = queue.get(timeout=60)
    child.join(60)
    assert "Cannot re-initialize CUDA" in answer, answer
    assert float(torch.ones(5, device="cuda").sum()) == 5


def use_cuda(queue):
    try:
        queue.put(str(torch.zeros(1, device="cuda")))
    except RuntimeError as error:
        queue.put(str(error))


if __name__ == "__main__":
    torch_support.run()
