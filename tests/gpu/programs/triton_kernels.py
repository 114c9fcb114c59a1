# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, which Triton compiles from this file, against PyTorch."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

import torch_support  # noqa: E402
from harness import cases, need_cuda, test  # noqa: E402


@triton.jit
def scaled_sum_kernel(x, y, out, scale, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.load(x + place, mask=inside) * scale + tl.load(y + place, mask=inside)
    tl.store(out + place, total, mask=inside)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + place, mask=place < columns, other=-float("inf"))
    grown = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + place, grown / tl.sum(grown, axis=0), mask=place < columns)


@triton.jit
def product_kernel(a, b, out, M, N, K, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, K, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        left = tl.load(a + rows[:, None] * K + depth[None, :],
                       mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
        right = tl.load(b + depth[:, None] * N + columns[None, :],
                        mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total.to(out.dtype.element_ty),
             mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def histogram_kernel(x, bins, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.atomic_add(bins + tl.load(x + place, mask=inside, other=0), 1, mask=inside)


@test
def elementwise():
    need_cuda()
    x, y = torch.randn(100_003, device="cuda"), torch.randn(100_003, device="cuda")
    out = torch.empty_like(x)
    scaled_sum_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, 2.5, x.numel(), BLOCK=1024)
    torch.testing.assert_close(out, x * 2.5 + y)


@test
def row_softmax():
    need_cuda()
    x = torch.randn(333, 781, device="cuda")
    out = torch.empty_like(x)
    softmax_kernel[(333,)](x, out, 781, BLOCK=1024)
    torch.testing.assert_close(out, x.softmax(1))


@cases("product", {"float16": torch.float16, "bfloat16": torch.bfloat16})
def product(dtype):
    need_cuda()
    a, b = torch.randn(200, 300, device="cuda", dtype=dtype), torch.randn(300, 150, device="cuda",
                                                                         dtype=dtype)
    out = torch.empty(200, 150, device="cuda", dtype=dtype)
    product_kernel[(triton.cdiv(200, 64), triton.cdiv(150, 64))](a, b, out, 200, 150, 300, TILE=64,
                                                                 DEPTH=32)
    torch.testing.assert_close(out.float(), a.float() @ b.float(), rtol=5e-2, atol=0.3)


@test
def atomics():
    need_cuda()
    x = torch.randint(0, 50, (20_000,), device="cuda", dtype=torch.int32)
    bins = torch.zeros(50, device="cuda", dtype=torch.int32)
    histogram_kernel[(triton.cdiv(x.numel(), 512),)](x, bins, x.numel(), BLOCK=512)
    torch.testing.assert_close(bins.long(), torch.bincount(x, minlength=50))


@test
def in_a_graph():
    need_cuda()
    x, y = torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
    out = torch.empty_like(x)

    def launch():
        scaled_sum_kernel[(4,)](x, y, out, 3.0, 4096, BLOCK=1024)

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    x.fill_(1.0)
    graph.replay()
    torch.testing.assert_close(out, 3 + y)


torch_support.run()
