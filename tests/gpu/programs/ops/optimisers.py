# SPDX-License-Identifier: Apache-2.0
"""Optimisers: some steps on the device against the same steps on the CPU, one tensor at a time, in
lists (foreach), in one kernel (fused), and captured."""

import copy

import torch

from harness import cases, device, need_cuda, test
from torch_support import sample

STEPS = 5
SHAPES = ((7, 9), (33,), (64, 100))


def train(where, make, closure=False):
    parameters = [torch.nn.Parameter(sample(*shape, seed=i).to(where))
                  for i, shape in enumerate(SHAPES)]
    optimiser = make(parameters)

    def loss():
        optimiser.zero_grad()
        total = sum(((p * (i + 1)).sin() ** 2).sum() for i, p in enumerate(parameters))
        total.backward()
        return total

    for _ in range(STEPS):
        if closure:
            optimiser.step(loss)
        else:
            loss()
            optimiser.step()
    return [p.detach().cpu() for p in parameters]


def compare(make, on_device=None, closure=False, tolerance=1e-4):
    got = train(device(), on_device or make, closure)
    for mine, want in zip(got, train("cpu", make, closure)):
        torch.testing.assert_close(mine, want, rtol=tolerance, atol=tolerance)


@cases("plain", {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p), "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01), "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
})
def plain(make):
    compare(make)


KINDS = {"sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
         "adam": (torch.optim.Adam, {"lr": 0.01}), "adamw": (torch.optim.AdamW, {"lr": 0.01})}


@cases("foreach", KINDS)
def foreach(kind, options):
    compare(lambda p: kind(p, **options), lambda p: kind(p, foreach=True, **options))


@cases("fused", KINDS)
def fused(kind, options):
    need_cuda()
    compare(lambda p: kind(p, **options), lambda p: kind(p, fused=True, **options))


@cases("capturable", {name: KINDS[name] for name in ("adam", "adamw")})
def capturable(kind, options):
    """Steps in a CUDA graph: warmed up, captured, replayed."""
    need_cuda()
    compare(lambda p: kind(p, **options), lambda p: kind(p, capturable=True, **options))
    parameter = torch.nn.Parameter(torch.ones(100, device="cuda"))
    parameter.grad = torch.full((100,), 0.5, device="cuda")
    optimiser = kind([parameter], capturable=True, **options)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimiser.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimiser.step()
    before = parameter.detach().clone()
    graph.replay()
    assert bool((parameter < before).all()), "a replayed step changes nothing"


@test
def lbfgs():
    compare(lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=4), closure=True, tolerance=1e-3)


@test
def clipped_gradients():
    sides = []
    for where in (device(), "cpu"):
        parameters = [torch.nn.Parameter(sample(*shape, seed=i).to(where))
                      for i, shape in enumerate(SHAPES)]
        sum((p ** 2).sum() for p in parameters).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        torch.nn.utils.clip_grad_value_(parameters, 0.02)
        sides.append([norm.cpu()] + [p.grad.cpu() for p in parameters])
    for mine, want in zip(*sides):
        torch.testing.assert_close(mine, want)


@test
def schedule():
    def make(parameters):
        optimiser = torch.optim.SGD(parameters, lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10)
        step = optimiser.step
        optimiser.step = lambda *a: (step(*a), scheduler.step())[0]
        return optimiser
    compare(make)


@test
def state_travels():
    """An optimiser continues from a state that was saved on the device."""
    parameter = torch.nn.Parameter(torch.ones(50, device=device()))
    optimiser = torch.optim.Adam([parameter], lr=0.1)
    (parameter ** 2).sum().backward()
    optimiser.step()
    other = torch.nn.Parameter(parameter.detach().clone())
    resumed = torch.optim.Adam([other], lr=0.1)
    resumed.load_state_dict(copy.deepcopy(optimiser.state_dict()))  # loading alone shares tensors
    for p, o in ((parameter, optimiser), (other, resumed)):
        o.zero_grad()
        (p ** 2).sum().backward()
        o.step()
    torch.testing.assert_close(parameter, other)
