# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: autocast's choice of types and the scaling of gradients. GPU only."""

import torch
import torch.nn.functional as F
from torch import nn

from harness import cases, need_cuda, test

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@cases("types", HALVES)
def types(dtype):
    need_cuda()
    x, w = torch.randn(8, 16, device="cuda"), torch.randn(16, 4, device="cuda")
    with torch.autocast("cuda", dtype):
        assert (x @ w).dtype == dtype and F.linear(x, w.t()).dtype == dtype
        assert (x @ w).softmax(1).dtype == torch.float32
        with torch.autocast("cuda", enabled=False):
            assert (x @ w).dtype == torch.float32


@cases("network", HALVES)
def network(dtype):
    """Results close to those in full precision, forward and backward."""
    need_cuda()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                        nn.Linear(8 * 100, 10)).cuda()
    x, y = torch.randn(16, 3, 12, 12, device="cuda"), torch.randint(0, 10, (16,), device="cuda")
    sides = []
    for enabled in (True, False):
        net.zero_grad()
        with torch.autocast("cuda", dtype, enabled=enabled):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        sides.append([loss.detach().float()] + [p.grad.clone() for p in net.parameters()])
    for mine, want in zip(*sides):
        torch.testing.assert_close(mine, want, rtol=0.1, atol=0.05)


@test
def scaler_steps():
    need_cuda()
    parameter = nn.Parameter(torch.ones(100, device="cuda"))
    optimiser = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    scaler.scale((parameter ** 2).sum()).backward()
    assert float(parameter.grad[0]) == 2048
    scaler.step(optimiser)
    scaler.update()
    torch.testing.assert_close(parameter.detach(), torch.full((100,), 0.8, device="cuda"))
    assert scaler.get_scale() == 1024


@test
def scaler_skips_infinities():
    need_cuda()
    parameter = nn.Parameter(torch.ones(100, device="cuda"))
    optimiser = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    scaler.scale(parameter.sum() * float("inf")).backward()
    scaler.step(optimiser)
    scaler.update()
    assert bool((parameter == 1).all()), "a step was made with an infinite gradient"
    assert scaler.get_scale() == 512


@test
def unscaled_clipping():
    need_cuda()
    parameter = nn.Parameter(torch.ones(100, device="cuda"))
    optimiser = torch.optim.Adam([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale((parameter ** 2).sum()).backward()
    scaler.unscale_(optimiser)
    norm = torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    assert abs(float(norm) - 20) < 1e-3, float(norm)
    scaler.step(optimiser)
    scaler.update()
    assert bool((parameter < 1).all())


@test
def custom_function():
    need_cuda()

    class Scale(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda")
        def forward(context, x):
            context.save_for_backward(x)
            return x * 3

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(context, gradient):
            return gradient * 3

    x = torch.ones(10, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        Scale.apply(x).sum().backward()
    assert bool((x.grad == 3).all())


@cases("conversion", HALVES)
def conversion(dtype):
    """Rounding to half precision gives the same bits as on the CPU."""
    need_cuda()
    x = torch.linspace(-70_000, 70_000, 10_001)
    assert torch.equal(x.cuda().to(dtype).cpu(), x.to(dtype))
