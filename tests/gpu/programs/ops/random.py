# SPDX-License-Identifier: Apache-2.0
"""Random numbers on the device: a seed gives always the same sequence (natively and behind OpenMPS the
same), the generator's state and offset, and the moments of the distributions."""

import math

import torch
import torch.nn.functional as F

from harness import cases, device, need_cuda, test
from torch_support import checksum

COUNT = 200_000


def where():
    return torch.device(device())


def generator(seed):
    made = torch.Generator(device=where())
    made.manual_seed(seed)
    return made


@cases("sequence", {
    "uniform": lambda g: torch.rand(COUNT, generator=g, device=where()),
    "normal": lambda g: torch.randn(COUNT, generator=g, device=where()),
    "integers": lambda g: torch.randint(0, 1000, (COUNT,), generator=g, device=where()),
    "permutation": lambda g: torch.randperm(10_000, generator=g, device=where()),
    "bernoulli": lambda g: torch.empty(COUNT, device=where()).bernoulli_(0.3, generator=g),
    "exponential": lambda g: torch.empty(COUNT, device=where()).exponential_(2.0, generator=g),
    "cauchy": lambda g: torch.empty(COUNT, device=where()).cauchy_(generator=g),
    "geometric": lambda g: torch.empty(COUNT, device=where()).geometric_(0.2, generator=g),
    "log_normal": lambda g: torch.empty(COUNT, device=where()).log_normal_(generator=g),
    "poisson": lambda g: torch.poisson(torch.full((COUNT,), 4.0, device=where()), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(100, device=where()), 50, generator=g),
    "half": lambda g: torch.randn(COUNT, generator=g, device=where()).half(),
})
def sequence(draw):
    first, again, other = draw(generator(7)), draw(generator(7)), draw(generator(8))
    assert torch.equal(first, again), "one seed gives two sequences"
    assert not torch.equal(first, other), "two seeds give one sequence"
    return checksum(first)


@cases("moments", {
    "uniform": (lambda x: x.uniform_(), 0.5, 1 / 12), "normal": (lambda x: x.normal_(), 0, 1),
    "exponential": (lambda x: x.exponential_(2.0), 0.5, 0.25),
    "bernoulli": (lambda x: x.bernoulli_(0.3), 0.3, 0.21),
    "geometric": (lambda x: x.geometric_(0.5), 2, 2),
})
def moments(fill, mean, variance):
    torch.manual_seed(3)
    x = fill(torch.empty(COUNT, device=where())).double()
    # Six standard errors: a correct generator exceeds this once in about 500 million runs.
    slack = 6 * math.sqrt(variance / COUNT)
    assert abs(float(x.mean()) - mean) < slack, f"mean {float(x.mean())}, expected {mean}"
    assert abs(float(x.var()) - variance) < 0.05 * max(variance, 0.1), f"variance {float(x.var())}"


@test
def default_generator():
    torch.manual_seed(42)
    first = torch.rand(100, device=where())
    torch.manual_seed(42)
    assert torch.equal(first, torch.rand(100, device=where()))
    return checksum(first)


@test
def state_saved_and_restored():
    made = generator(1)
    torch.rand(1000, generator=made, device=where())
    state = made.get_state()
    first = torch.rand(1000, generator=made, device=where())
    made.set_state(state)
    assert torch.equal(first, torch.rand(1000, generator=made, device=where()))


@test
def philox_offset():
    """Drawing moves the offset in the state; equal offsets give equal numbers."""
    need_cuda()
    made = generator(1)
    before = made.get_offset() if hasattr(made, "get_offset") else made.get_state()[8:16].tolist()
    torch.rand(1000, generator=made, device="cuda")
    after = made.get_offset() if hasattr(made, "get_offset") else made.get_state()[8:16].tolist()
    assert before != after
    if hasattr(made, "set_offset"):
        other = generator(1)
        other.set_offset(after)
        assert torch.equal(torch.rand(9, generator=made, device="cuda"),
                           torch.rand(9, generator=other, device="cuda"))
        return after
    return None


@test
def fork_of_the_state():
    need_cuda()
    torch.manual_seed(9)
    with torch.random.fork_rng(devices=[0]):
        inside = torch.rand(50, device="cuda")
    assert torch.equal(inside, torch.rand(50, device="cuda"))
    assert torch.cuda.initial_seed() == 9


@test
def dropout():
    torch.manual_seed(5)
    x = torch.ones(COUNT, device=where())
    first = F.dropout(x, 0.25)
    kept = float((first != 0).double().mean())
    assert abs(kept - 0.75) < 0.01, f"{kept} kept"
    assert abs(float(first.mean()) - 1) < 0.02
    torch.manual_seed(5)
    assert torch.equal(first, F.dropout(x, 0.25))
    assert torch.equal(F.dropout(x, 0.25, training=False), x)
    return checksum(first)


@test
def dropout_gradient():
    torch.manual_seed(5)
    x = torch.ones(1000, device=where(), requires_grad=True)
    y = F.dropout(x, 0.5)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@test
def multinomial_frequencies():
    torch.manual_seed(6)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], device=where())
    draws = torch.multinomial(weights, COUNT, replacement=True)
    shares = torch.bincount(draws, minlength=4).double() / COUNT
    assert float((shares - weights.double() / 10).abs().max()) < 0.01, shares.tolist()


@test
def permutation_is_one():
    for count in (10, 1000, 100_000):
        order = torch.randperm(count, device=where())
        assert torch.equal(order.sort().values, torch.arange(count, device=where()))


@test
def numbers_in_a_graph():
    """Each replay draws new numbers, and the same as eager mode with the same state."""
    need_cuda()
    torch.manual_seed(3)
    x = torch.zeros(1000, device="cuda")
    x.uniform_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.uniform_()
    graph.replay()
    first = x.clone()
    graph.replay()
    assert not torch.equal(first, x)
    torch.manual_seed(3)
    graph.replay()
    again = x.clone()
    torch.manual_seed(3)
    assert torch.equal(again, torch.empty(1000, device="cuda").uniform_())
    return checksum(again)
