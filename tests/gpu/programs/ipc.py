# SPDX-License-Identifier: Apache-2.0
"""Two processes share tensors and events through torch.multiprocessing (CUDA's interprocess handles)."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.multiprocessing.reductions import reduce_tensor  # noqa: E402

import torch_support  # noqa: E402
from harness import need_cuda, test  # noqa: E402

LIMIT_S = 20
COUNT = 100_000


def need_handles():
    """Fails at once if there are no interprocess handles. Without this check the test would run into its
    time limit, since queues send tensors on threads of their own, whose errors are not reported."""
    need_cuda()
    reduce_tensor(torch.ones(1, device="cuda"))


def spawn(target, *arguments):
    child = mp.get_context("spawn").Process(target=target, args=arguments)
    child.start()
    return child


def finish(child):
    child.join(LIMIT_S)
    assert child.exitcode == 0, f"the other process: exit code {child.exitcode}"


def add_one(inbox, outbox):
    tensor = inbox.get(timeout=LIMIT_S)
    outbox.put(float(tensor.sum(dtype=torch.float64)))
    tensor += 1
    torch.cuda.synchronize()
    outbox.put("added")
    inbox.get(timeout=LIMIT_S)  # keeps the tensor alive until the other process has used it


def make_tensor(outbox, done):
    outbox.put(torch.arange(COUNT, device="cuda"))
    done.wait(LIMIT_S)


def square(tensor, event_handle, outbox):
    event = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), event_handle)
    event.wait(torch.cuda.current_stream())
    outbox.put(float((tensor * tensor).sum(dtype=torch.float64)))


@test
def tensor_to_a_child():
    """The child reads our numbers, and we read what it has written."""
    need_handles()
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = spawn(add_one, inbox, outbox)
    tensor = torch.arange(COUNT, device="cuda", dtype=torch.float32)
    inbox.put(tensor)
    assert outbox.get(timeout=LIMIT_S) == COUNT * (COUNT - 1) / 2
    assert outbox.get(timeout=LIMIT_S) == "added"
    assert float(tensor[10]) == 11 and float(tensor[-1]) == COUNT
    inbox.put("end")
    finish(child)


@test
def tensor_from_a_child():
    need_handles()
    context = mp.get_context("spawn")
    outbox, done = context.Queue(), context.Event()
    child = spawn(make_tensor, outbox, done)
    tensor = outbox.get(timeout=LIMIT_S)
    assert int(tensor.sum()) == COUNT * (COUNT - 1) // 2
    del tensor
    done.set()
    finish(child)


@test
def slice_of_a_tensor():
    """A part of an allocation: the handle and the offset are passed on."""
    need_handles()
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = spawn(add_one, inbox, outbox)
    whole = torch.zeros(3 * COUNT, device="cuda")
    part = whole[COUNT:2 * COUNT]
    inbox.put(part)
    assert outbox.get(timeout=LIMIT_S) == 0
    assert outbox.get(timeout=LIMIT_S) == "added"
    assert [float(whole[i]) for i in (COUNT - 1, COUNT, 2 * COUNT - 1, 2 * COUNT)] == [0, 1, 1, 0]
    inbox.put("end")
    finish(child)


@test
def event_between_processes():
    need_handles()
    context = mp.get_context("spawn")
    outbox = context.Queue()
    tensor = torch.full((1000,), 3.0, device="cuda")
    event = torch.cuda.Event(interprocess=True)
    event.record()
    child = spawn(square, tensor, event.ipc_handle(), outbox)
    assert outbox.get(timeout=LIMIT_S) == 9000
    finish(child)


if __name__ == "__main__":
    torch_support.run()
