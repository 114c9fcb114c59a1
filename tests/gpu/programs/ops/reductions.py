# SPDX-License-Identifier: Apache-2.0
"""Reductions and scans over all elements, over the inner, the outer and a middle dimension."""

import torch

from harness import cases, test
from torch_support import check, integers, sample


@cases("reduce", {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin,
    "std": torch.std, "var": torch.var, "logsumexp": torch.logsumexp,
    "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d), "nansum": torch.nansum,
    "norm1": lambda x, d: torch.linalg.vector_norm(x, ord=1, dim=d),
    "softmax": torch.softmax, "log_softmax": torch.log_softmax,
})
def reduce(function):
    for dim in (0, 1, 2):
        check(lambda x, d=dim: function(x, d), sample(37, 65, 129), grad=dim == 2)
    check(lambda x: function(x, 1), sample(5, 4100, dtype=torch.float64))


@cases("reduce_half", {
    f"{name}_{dtype}": (function, getattr(torch, dtype))
    for dtype in ("float16", "bfloat16")
    for name, function in {"sum": torch.sum, "mean": torch.mean, "softmax": torch.softmax}.items()
})
def reduce_half(function, dtype):
    check(lambda x: function(x, -1), sample(64, 300, dtype=dtype), grad=True)


@cases("scan", {
    "cumsum": torch.cumsum, "cumprod": torch.cumprod, "logcumsumexp": torch.logcumsumexp,
    "cummax": torch.cummax, "cummin": torch.cummin,
})
def scan(function):
    for dim in (0, 1):
        check(lambda x, d=dim: tuple(function(x, d)) if function in (torch.cummax, torch.cummin)
              else function(x, d), sample(50, 2100, low=0.7, high=1.2), tolerance=(1e-3, 1e-3))


@test
def long_scan():
    check(lambda x: torch.cumsum(x, 0), integers(1_000_003, high=9))


@test
def arg_extremes():
    a = torch.randperm(40 * 50, generator=torch.Generator().manual_seed(3)).reshape(40, 50).float()
    check(lambda x: (x.argmax(), x.argmin(1), x.argmax(0), *x.max(1), *x.min(0)), a)


@test
def all_any_count():
    a = sample(64, 65, dtype=torch.bool)
    check(lambda x: (x.all(0), x.any(1), x.all(), x.any(), torch.count_nonzero(x, 1)), a)


@test
def product():
    check(lambda x: (x.prod(), x.prod(1)), sample(20, 9, low=0.8, high=1.3), grad=True)


@test
def integer_sums():
    check(lambda x: (x.sum(), x.sum(0), x.sum(1)), integers(300, 301, high=1000, dtype=torch.int32))


@test
def full_reduction():
    check(lambda x: (x.sum(), x.mean(), x.std(), x.norm()), sample(1_000_003, dtype=torch.float64))


@test
def median_mode_quantile():
    a = torch.randperm(999, generator=torch.Generator().manual_seed(1)).reshape(27, 37).float()
    check(lambda x: (x.median(), x.median(1).values, x.nanmedian()), a)
    votes = integers(30, 41, high=4)
    votes[:, :21] = 2  # a majority: which of two equal counts wins is not defined
    check(lambda x: x.mode(1).values, votes)
    check(lambda x: torch.quantile(x, torch.tensor([0.1, 0.5, 0.9], device=x.device), dim=1), a)


@test
def histograms():
    check(lambda x: torch.histc(x, bins=50, min=-1, max=1), sample(10_000))
    check(lambda x: torch.bincount(x, minlength=70), integers(10_000, high=64))
    check(lambda x, w: torch.bincount(x, weights=w), integers(5000, high=9),
          sample(5000, dtype=torch.float64))


@test
def covariance():
    check(torch.cov, sample(8, 300), tolerance=(1e-3, 1e-3))
    check(torch.corrcoef, sample(8, 300), tolerance=(1e-3, 1e-3))


@test
def var_mean_aminmax():
    check(lambda x: torch.var_mean(x, 1), sample(33, 700))
    check(lambda x: tuple(torch.aminmax(x, dim=1)), sample(33, 700))


@test
def trace_diagonal():
    check(lambda x: (x.trace(), x.diagonal().sum(), torch.diag(x, 1)), sample(65, 65))


@test
def distances():
    check(torch.cdist, sample(50, 20), sample(60, 20, seed=1), tolerance=(1e-3, 1e-3))
    check(lambda x: torch.pdist(x), sample(30, 11), tolerance=(1e-3, 1e-3))
    check(lambda x, y: torch.nn.functional.cosine_similarity(x, y), sample(64, 99),
          sample(64, 99, seed=1), grad=True)
