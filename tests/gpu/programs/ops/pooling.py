# SPDX-License-Identifier: Apache-2.0
"""Pooling, resampling and padding, forward and backward."""

import torch
import torch.nn.functional as F

from harness import cases, test
from torch_support import check, sample

PLANE, LINE, VOLUME = (3, 5, 21, 18), (3, 5, 40), (2, 3, 9, 10, 11)


@cases("pool", {
    "max1d": (lambda x: F.max_pool1d(x, 3, 2), LINE),
    "max2d": (lambda x: F.max_pool2d(x, 3, 2, 1), PLANE),
    "max2d_dilated": (lambda x: F.max_pool2d(x, 3, 1, dilation=2), PLANE),
    "max3d": (lambda x: F.max_pool3d(x, 2), VOLUME),
    "avg1d": (lambda x: F.avg_pool1d(x, 4), LINE),
    "avg2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), PLANE),
    "avg3d": (lambda x: F.avg_pool3d(x, 2), VOLUME),
    "lp2d": (lambda x: F.lp_pool2d(x, 2, 3), PLANE),
    "adaptive_avg2d": (lambda x: F.adaptive_avg_pool2d(x, (5, 7)), PLANE),
    "adaptive_max2d": (lambda x: F.adaptive_max_pool2d(x, (4, 6)), PLANE),
    "adaptive_avg3d": (lambda x: F.adaptive_avg_pool3d(x, 3), VOLUME),
    "global": (lambda x: F.adaptive_avg_pool2d(x, 1), PLANE),
})
def pool(function, shape):
    check(function, sample(*shape, low=0.1, high=1.0), grad=True)


@test
def max_pool_with_indices():
    check(lambda x: F.max_pool2d(x, 2, return_indices=True), sample(*PLANE))
    check(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), sample(2, 3, 8, 8))


@cases("resize", {
    "nearest": dict(scale_factor=2, mode="nearest"),
    "bilinear": dict(scale_factor=1.5, mode="bilinear", align_corners=False),
    "bicubic": dict(size=(30, 30), mode="bicubic", align_corners=True),
    "area": dict(size=(7, 6), mode="area"),
})
def resize(options):
    check(lambda x: F.interpolate(x, **options), sample(*PLANE), grad=True, tolerance=(1e-3, 1e-3))


@cases("pad", {
    "constant": dict(pad=(1, 2, 3, 0), value=2.0), "reflect": dict(pad=(2, 2, 1, 1), mode="reflect"),
    "replicate": dict(pad=(2, 2, 1, 1), mode="replicate"), "negative": dict(pad=(-1, -2)),
})
def pad(options):
    check(lambda x: F.pad(x, **options), sample(*PLANE), grad=True)


@test
def grid_sample():
    check(lambda x, g: F.grid_sample(x, g, align_corners=False), sample(2, 3, 12, 12),
          sample(2, 9, 9, 2), grad=True, tolerance=(1e-3, 1e-3))
    check(lambda t: F.affine_grid(t, (2, 3, 8, 8), align_corners=False), sample(2, 2, 3))


@test
def pixel_shuffle():
    check(lambda x: F.pixel_shuffle(x, 2), sample(2, 12, 5, 6), grad=True)
    check(lambda x: F.pixel_unshuffle(x, 3), sample(2, 2, 6, 9))


@test
def half_precision_pooling():
    for dtype in (torch.float16, torch.bfloat16):
        check(lambda x: F.max_pool2d(x, 2), sample(*PLANE, dtype=dtype))
        check(lambda x: F.avg_pool2d(x, 2), sample(*PLANE, dtype=dtype))
