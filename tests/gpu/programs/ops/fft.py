# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms by cuFFT: powers of two, primes, several dimensions, gradients."""

import torch

from harness import cases, test
from torch_support import check, sample

SLACK = (1e-3, 5e-3)


@cases("fft", {"power_of_two": 1024, "composite": 360, "prime": 1009, "large": 1 << 18})
def fft(count):
    check(torch.fft.fft, sample(3, count, dtype=torch.complex64), tolerance=(1e-3, 5e-2))
    check(torch.fft.ifft, sample(3, count, dtype=torch.complex64), tolerance=SLACK)


@test
def real():
    check(torch.fft.rfft, sample(5, 500), tolerance=SLACK)
    check(torch.fft.irfft, sample(5, 251, dtype=torch.complex64), tolerance=SLACK)
    check(torch.fft.hfft, sample(5, 100, dtype=torch.complex64), tolerance=SLACK)


@test
def double_precision():
    check(torch.fft.fft, sample(4, 777, dtype=torch.complex128), tolerance=(1e-8, 1e-8))


@test
def planes_and_volumes():
    check(torch.fft.fft2, sample(3, 48, 50, dtype=torch.complex64), tolerance=SLACK)
    check(torch.fft.rfft2, sample(3, 48, 50), tolerance=SLACK)
    check(torch.fft.fftn, sample(12, 14, 16, dtype=torch.complex64), tolerance=SLACK)
    check(lambda x: torch.fft.irfftn(torch.fft.rfftn(x), s=x.shape), sample(8, 9, 10),
          tolerance=SLACK)


@test
def norms_and_lengths():
    for norm in ("forward", "backward", "ortho"):
        check(lambda x, n=norm: torch.fft.fft(x, n=80, norm=n), sample(4, 100, dtype=torch.complex64),
              tolerance=SLACK)
    check(lambda x: torch.fft.fft(x, dim=0), sample(64, 5, dtype=torch.complex64), tolerance=SLACK)


@test
def gradients():
    check(lambda x: torch.fft.rfft(x).abs(), sample(4, 64, low=0.5, high=2), grad=True,
          tolerance=(1e-3, 1e-2))


@test
def shifts_and_frequencies():
    check(lambda x: (torch.fft.fftshift(x), torch.fft.ifftshift(x)), sample(9, 10))
    check(lambda x: torch.fft.fftfreq(33, device=x.device), sample(1))


@test
def short_time_transform():
    window = torch.hann_window(64)
    check(lambda x, w: torch.view_as_real(torch.stft(x, 64, 16, window=w, return_complex=True)),
          sample(2, 1000), window, tolerance=SLACK)


@test
def convolution_theorem():
    a, b = sample(256), sample(256, seed=1)
    check(lambda x, y: torch.fft.irfft(torch.fft.rfft(x, 512) * torch.fft.rfft(y, 512), 512), a, b,
          tolerance=SLACK)


@test
def plans_are_cached():
    """More plans than the cache holds."""
    for count in range(20, 60, 3):
        check(torch.fft.fft, sample(2, count, dtype=torch.complex64), tolerance=SLACK)
