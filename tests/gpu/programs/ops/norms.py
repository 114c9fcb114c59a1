# SPDX-License-Identifier: Apache-2.0
"""Normalisation layers, forward and backward, training and evaluation, with running statistics."""

import torch
import torch.nn.functional as F
from torch import nn

from harness import Skip, cases, device, test
from torch_support import check, check_module, sample, to_device

SLACK = (1e-3, 1e-3)


@cases("norm", {
    "batch1d": (lambda: nn.BatchNorm1d(12), (32, 12)),
    "batch1d_lines": (lambda: nn.BatchNorm1d(12), (8, 12, 50)),
    "batch2d": (lambda: nn.BatchNorm2d(6), (8, 6, 15, 17)),
    "batch3d": (lambda: nn.BatchNorm3d(4), (4, 4, 5, 6, 7)),
    "group": (lambda: nn.GroupNorm(3, 12), (4, 12, 10, 10)),
    "instance": (lambda: nn.InstanceNorm2d(6, affine=True), (4, 6, 12, 12)),
    "layer": (lambda: nn.LayerNorm(65), (32, 65)),
    "layer_wide": (lambda: nn.LayerNorm(2048), (16, 2048)),
    "layer_2d": (lambda: nn.LayerNorm((9, 11)), (8, 9, 11)),
    "local_response": (lambda: nn.Sequential(nn.LocalResponseNorm(3), nn.Conv2d(6, 6, 1)),
                       (2, 6, 8, 8)),
})
def norm(make, shape):
    check_module(make, sample(*shape, high=2.0), tolerance=SLACK)


@cases("half_layer", {"float16": torch.float16, "bfloat16": torch.bfloat16})
def half_layer(dtype):
    check(lambda x, w, b: F.layer_norm(x, (256,), w, b), sample(32, 256, dtype=dtype),
          sample(256, dtype=dtype), sample(256, dtype=dtype, seed=1), grad=True,
          tolerance=(5e-2, 2e-1))


@test
def rms_norm():
    if not hasattr(F, "rms_norm"):
        raise Skip("this PyTorch has no rms_norm")
    check(lambda x, w: F.rms_norm(x, (100,), w), sample(32, 100), sample(100), grad=True,
          tolerance=SLACK)


@test
def running_statistics():
    sides = []
    for where in (device(), "cpu"):
        layer = nn.BatchNorm2d(5).to(where)
        for i in range(4):
            layer(sample(6, 5, 7, 7, seed=i).to(where) * (i + 1))
        sides.append((layer.running_mean.cpu(), layer.running_var.cpu(),
                      layer.eval()(sample(2, 5, 7, 7).to(where)).detach().cpu()))
    for mine, want in zip(*sides):
        torch.testing.assert_close(mine, want, rtol=1e-4, atol=1e-4)


@test
def batch_norm_evaluation_gradient():
    check_module(lambda: nn.BatchNorm2d(6), sample(4, 6, 9, 9), train=False, tolerance=SLACK)


@test
def channels_last_batch_norm():
    x = sample(4, 8, 10, 10)
    layer = nn.BatchNorm2d(8)
    want = layer(x).detach()
    layer = nn.BatchNorm2d(8).to(device())
    got = layer(to_device(x).contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(got.detach().cpu(), want, rtol=1e-4, atol=1e-4)


@test
def weight_and_spectral_norm():
    check_module(lambda: nn.utils.weight_norm(nn.Linear(20, 30)), sample(8, 20), tolerance=SLACK)
    check(lambda x: F.normalize(x, dim=1), sample(30, 40), grad=True)
    check(lambda x: torch.renorm(x, 2, 0, 0.5), sample(30, 40))
