# SPDX-License-Identifier: Apache-2.0
"""Sorting and selection: CUB's radix and merge sorts, segments, and sizes from one block to many."""

import torch

from harness import cases, test
from torch_support import check, integers, sample


def distinct(*shape, seed=0):
    count = 1
    for n in shape:
        count *= n
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order.reshape(shape).float()


@cases("sort", {"tiny": 5, "block": 1000, "segment": 5000, "large": 1_000_003})
def sort(count):
    check(lambda x: tuple(torch.sort(x)), distinct(count))
    check(lambda x: tuple(torch.sort(x, descending=True)), distinct(count))


@test
def sort_rows():
    check(lambda x: tuple(x.sort(1)), distinct(77, 300))
    check(lambda x: tuple(x.sort(0)), distinct(300, 77))


@test
def sort_stable():
    check(lambda x: tuple(torch.sort(x, stable=True)), integers(20_000, high=50))


@test
def sort_types():
    for dtype in (torch.int32, torch.int64, torch.uint8, torch.float64):
        check(lambda x: torch.sort(x).values, sample(3000, dtype=dtype, low=0, high=200))


@test
def argsort_msort():
    check(lambda x: (x.argsort(), x.argsort(descending=True), torch.msort(x)), distinct(4000))


@cases("topk", {"small": (1000, 5), "wide": (100_000, 100), "most": (500, 400)})
def topk(count, k):
    check(lambda x: tuple(x.topk(k)), distinct(count))
    check(lambda x: tuple(x.topk(min(k, 50), dim=1, largest=False)), distinct(8, 600))


@test
def kth_value():
    check(lambda x: tuple(x.kthvalue(17)), distinct(1001))
    check(lambda x: tuple(x.kthvalue(5, 0)), distinct(31, 47))


@test
def unique():
    check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), integers(9999, high=77))
    check(lambda x: torch.unique_consecutive(x), integers(9999, high=3))
    check(lambda x: torch.unique(x, dim=0), integers(300, 2, high=6))


@test
def partial_gradient():
    check(lambda x: x.topk(9, dim=1).values, distinct(20, 100), grad=True)
    check(lambda x: x.sort(1).values, distinct(20, 100), grad=True)
