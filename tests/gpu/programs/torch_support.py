# SPDX-License-Identifier: Apache-2.0
"""Shared by the PyTorch programs: inputs, and the comparison of the GPU with the CPU. Runs on the
program's main thread."""

import math
import struct
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import harness  # noqa: E402

HALF = (torch.float16, torch.bfloat16)
# Tolerances for a sum of some hundred products: the CPU adds in another order and, for the half
# types, in float32.
TOLERANCE = {torch.float16: (2e-2, 2e-2), torch.bfloat16: (5e-2, 5e-2), torch.float32: (1e-4, 1e-4),
             torch.float64: (1e-9, 1e-9), torch.complex64: (1e-4, 1e-4),
             torch.complex128: (1e-9, 1e-9)}

torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False


def runs_on(dtype):
    """The type that the tested side uses: CPU builds of old versions can't compute in half precision."""
    return torch.float32 if harness.device() == "cpu" and dtype in HALF else dtype


def sample(*shape, dtype=torch.float32, low=-1.0, high=1.0, seed=0):
    """Uniform random numbers on the CPU, the same in every process."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + sum(shape) * 8191 + len(shape))
    dtype = runs_on(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_complex:
        real = torch.complex64 if dtype == torch.complex64 else torch.complex128
        parts = torch.rand((*shape, 2), generator=generator) * (high - low) + low
        return torch.view_as_complex(parts.double()).to(real)
    if not dtype.is_floating_point:
        return torch.randint(int(low), int(high), shape, generator=generator, dtype=dtype)
    return (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)


def integers(*shape, high, seed=0, dtype=torch.int64):
    return sample(*shape, dtype=dtype, low=0, high=high, seed=seed)


def to_device(value):
    """A copy of a tensor, or of the tensors in a tuple or list, on the device under test."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(harness.device())
    if isinstance(value, (tuple, list)):
        return type(value)(to_device(v) for v in value)
    return value


def to_reference(value):
    """A copy of a tensor, or of the tensors in a tuple or list, on the CPU, with half types as float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach().clone()
        return value.float() if value.dtype in HALF else value
    if isinstance(value, (tuple, list)):
        return type(value)(to_reference(v) for v in value)
    return value


def flat(value):
    """The tensors and numbers of a result."""
    if isinstance(value, (tuple, list)):
        return [leaf for v in value for leaf in flat(v)]
    return [value]


def close(got, want, tolerance=None):
    """assert_close of a result on the device with its reference on the CPU."""
    got, want = flat(got), flat(want)
    assert len(got) == len(want), f"{len(got)} results, expected {len(want)}"
    for mine, reference in zip(got, want):
        if not isinstance(mine, torch.Tensor):
            assert mine == reference, f"{mine}, expected {reference}"
            continue
        mine = mine.detach().cpu()
        rtol, atol = tolerance or TOLERANCE.get(mine.dtype, (0, 0))
        torch.testing.assert_close(mine, reference.detach().to(mine.dtype), rtol=rtol, atol=atol,
                                   equal_nan=True)


def check(function, *inputs, grad=False, tolerance=None):
    """function(*inputs) on the device is close to what it is on the CPU; with `grad`, so are the
    gradients of its sum (weighted, so that a constant gradient is not enough) by float inputs."""
    sides = []
    for move in (to_device, to_reference):
        moved = [move(value) for value in inputs]
        leaves = [v for v in moved if isinstance(v, torch.Tensor)
                  and (v.is_floating_point() or v.is_complex())] if grad else []
        for leaf in leaves:
            leaf.requires_grad_(True)
        result = function(*moved)
        found = flat(result)
        if grad:
            weighted(found).backward()
            found = found + [leaf.grad for leaf in leaves]
        sides.append(found)
    close(sides[0], sides[1], tolerance)


def weighted(results):
    total = 0
    for result in results:
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            weights = torch.linspace(0.5, 1.5, result.numel(), device=result.device)
            total = total + (result.reshape(-1) * weights.to(result.dtype)).sum()
    return total


def check_module(make, *inputs, dtype=torch.float32, tolerance=None, train=True):
    """A module on the device against the same module on the CPU: outputs, and the gradients by its
    parameters and its float inputs."""
    dtype = runs_on(dtype)
    torch.manual_seed(11)
    reference = make()
    torch.manual_seed(11)
    tested = make().to(harness.device(), dtype)
    tested.load_state_dict({k: v.to(dtype) if v.is_floating_point() else v
                            for k, v in reference.state_dict().items()})
    sides = []
    for module, move in ((tested, to_device), (reference, to_reference)):
        module.train(train)
        moved = [move(v) for v in inputs]
        for value in moved:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.requires_grad_(True)
        found = [v for v in flat(module(*moved)) if isinstance(v, torch.Tensor)]
        weighted(found).backward()
        found += [v.grad for v in moved if isinstance(v, torch.Tensor) and v.requires_grad]
        found += [p.grad for p in module.parameters() if p.grad is not None]
        sides.append(found)
    close(sides[0], sides[1], tolerance)


def bits(number):
    """A float's bits: equal to the last digit or not at all."""
    number = float(number)
    if math.isnan(number):
        raise AssertionError("the result is not a number")
    return struct.pack(">d", number).hex()


def checksum(tensor):
    """A number that depends on every bit of a tensor."""
    data = tensor.detach().cpu().contiguous().reshape(-1)
    if data.dtype == torch.bool:
        data = data.to(torch.uint8)
    words = torch.tensor(list(data.view(torch.uint8).numpy().tobytes()), dtype=torch.int64)
    places = torch.arange(1, words.numel() + 1, dtype=torch.int64)
    return f"{int((words * (places * 2654435761 % 1000003)).sum()) & (2**64 - 1):016x}"


def synchronize():
    if harness.device() == "cuda":
        torch.cuda.synchronize()


def run():
    """Runs the program's tests, reports their results and ends the process."""
    harness.run(still_alive=synchronize)
