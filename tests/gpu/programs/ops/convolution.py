# SPDX-License-Identifier: Apache-2.0
"""Convolutions by cuDNN, forward and backward, in one to three dimensions."""

import torch
import torch.nn.functional as F
from torch import nn

from harness import cases, need_cuda, test
from torch_support import check, check_module, runs_on, sample

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@cases("conv1d", {
    "plain": dict(kernel_size=3), "stride": dict(kernel_size=5, stride=2, padding=2),
    "dilated": dict(kernel_size=3, dilation=4), "grouped": dict(kernel_size=3, groups=4),
})
def conv1d(options):
    check_module(lambda: nn.Conv1d(8, 12, **options), sample(4, 8, 100), tolerance=(1e-3, 1e-3))


@cases("conv2d", {
    "plain": dict(kernel_size=3), "padded": dict(kernel_size=5, padding=2),
    "stride": dict(kernel_size=3, stride=2, padding=1), "pointwise": dict(kernel_size=1),
    "dilated": dict(kernel_size=3, dilation=2), "grouped": dict(kernel_size=3, groups=2),
    "depthwise": dict(kernel_size=3, groups=8, padding=1), "no_bias": dict(kernel_size=3, bias=False),
    "oblong": dict(kernel_size=(3, 5), padding=(0, 2)),
    "circular": dict(kernel_size=3, padding=1, padding_mode="circular"),
})
def conv2d(options):
    check_module(lambda: nn.Conv2d(8, 16, **options), sample(4, 8, 24, 20), tolerance=(1e-3, 1e-3))


@cases("conv3d", {"plain": dict(kernel_size=3), "stride": dict(kernel_size=3, stride=2, padding=1)})
def conv3d(options):
    check_module(lambda: nn.Conv3d(4, 6, **options), sample(2, 4, 9, 10, 11), tolerance=(1e-3, 1e-3))


@cases("half_conv2d", HALVES)
def half_conv2d(dtype):
    check_module(lambda: nn.Conv2d(16, 32, 3, padding=1), sample(4, 16, 20, 20, dtype=dtype),
                 dtype=dtype, tolerance=(5e-2, 2.0))


@cases("channels_last", {"float32": torch.float32, **HALVES})
def channels_last(dtype):
    weight = sample(16, 8, 3, 3, dtype=dtype)
    check(lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last),
                                w.contiguous(memory_format=torch.channels_last), padding=1),
          sample(4, 8, 20, 20, dtype=dtype), weight,
          tolerance=None if dtype == torch.float32 else (5e-2, 2e-1))


@test
def double_precision():
    check(lambda x, w: F.conv2d(x, w, padding=1), sample(2, 4, 12, 12, dtype=torch.float64),
          sample(8, 4, 3, 3, dtype=torch.float64), grad=True)


@cases("transposed", {
    "1d": (lambda: nn.ConvTranspose1d(8, 6, 4, stride=2, padding=1), (3, 8, 30)),
    "2d": (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1), (3, 8, 12, 12)),
    "3d": (lambda: nn.ConvTranspose3d(4, 3, 2, stride=2), (2, 4, 5, 6, 7)),
})
def transposed(make, shape):
    check_module(make, sample(*shape), tolerance=(1e-3, 1e-3))


@test
def many_shapes():
    """cuDNN chooses among many kernels, and loads each when it is first used."""
    for size, channels, kernel in ((7, 3, 3), (14, 32, 5), (28, 16, 1), (33, 5, 7), (56, 64, 3)):
        check(lambda x, w, k=kernel: F.conv2d(x, w, padding=k // 2), sample(2, channels, size, size),
              sample(2 * channels, channels, kernel, kernel), tolerance=(1e-3, 5e-3))


@test
def benchmark_mode():
    """cuDNN times its algorithms with events on the device and keeps the best."""
    need_cuda()
    torch.backends.cudnn.benchmark = True
    try:
        check_module(lambda: nn.Conv2d(8, 16, 3, padding=1), sample(8, 8, 32, 32),
                     tolerance=(1e-3, 1e-2))
    finally:
        torch.backends.cudnn.benchmark = False


@test
def without_cudnn():
    with torch.backends.cudnn.flags(enabled=False):
        check(lambda x, w: F.conv2d(x, w, padding=1), sample(2, 4, 15, 15), sample(8, 4, 3, 3),
              grad=True, tolerance=(1e-3, 1e-3))


@test
def unfold_fold():
    check(lambda x: F.unfold(x, 3, padding=1), sample(2, 4, 10, 10), grad=True)
    check(lambda x: F.fold(x, (10, 10), 3, padding=1), sample(2, 36, 100), grad=True)


@test
def small_network():
    dtype = runs_on(torch.float32)
    check_module(lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                                       nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Flatten(),
                                       nn.Linear(16 * 36, 10)),
                 sample(4, 3, 16, 16, dtype=dtype), tolerance=(5e-3, 5e-3))
