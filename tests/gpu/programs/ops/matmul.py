# SPDX-License-Identifier: Apache-2.0
"""Matrix products by cuBLAS and cuBLASLt, in all types and many shapes."""

import torch
import torch.nn.functional as F

from harness import Skip, cases, need_cuda, test
from torch_support import check, runs_on, sample

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32,
          "float64": torch.float64}


@cases("mm", DTYPES)
def mm(dtype):
    check(torch.mm, sample(64, 96, dtype=dtype), sample(96, 48, dtype=dtype), grad=True)


@cases("mm_odd", DTYPES)
def mm_odd(dtype):
    """Sizes that are not multiples of tiles or alignments."""
    check(torch.mm, sample(67, 131, dtype=dtype), sample(131, 53, dtype=dtype))


@cases("mm_large", DTYPES)
def mm_large(dtype):
    check(torch.mm, sample(768, 640, dtype=dtype), sample(640, 512, dtype=dtype),
          tolerance=None if dtype in (torch.float32, torch.float64) else (5e-2, 2e-1))


@cases("mm_transposed", DTYPES)
def mm_transposed(dtype):
    a, b = sample(96, 64, dtype=dtype), sample(48, 96, dtype=dtype)
    check(lambda x, y: x.t() @ y.t(), a, b)
    check(lambda x, y: x[::2].t() @ y[:, ::2].t(), a, b)


@cases("bmm", DTYPES)
def bmm(dtype):
    check(torch.bmm, sample(7, 33, 40, dtype=dtype), sample(7, 40, 24, dtype=dtype), grad=True)


@cases("addmm", DTYPES)
def addmm(dtype):
    check(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), sample(40, 24, dtype=dtype),
          sample(40, 64, dtype=dtype), sample(64, 24, dtype=dtype), grad=True)


@cases("baddbmm", DTYPES)
def baddbmm(dtype):
    check(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5), sample(3, 40, 24, dtype=dtype),
          sample(3, 40, 64, dtype=dtype), sample(3, 64, 24, dtype=dtype))


@cases("linear", DTYPES)
def linear(dtype):
    """The bias is added in cuBLASLt's epilogue."""
    check(F.linear, sample(128, 96, dtype=dtype), sample(64, 96, dtype=dtype, seed=1),
          sample(64, dtype=dtype), grad=True)


@cases("linear_3d", DTYPES)
def linear_3d(dtype):
    check(F.linear, sample(4, 32, 96, dtype=dtype), sample(64, 96, dtype=dtype, seed=1),
          sample(64, dtype=dtype))


@cases("mv_dot", DTYPES)
def mv_dot(dtype):
    check(lambda a, x: (a @ x, torch.dot(x, x), torch.outer(x, x)), sample(70, 90, dtype=dtype),
          sample(90, dtype=dtype), grad=True,
          tolerance=(5e-2, 2e-1) if dtype in (torch.float16, torch.bfloat16) else None)


@cases("einsum", {"float32": torch.float32, "bfloat16": torch.bfloat16})
def einsum(dtype):
    check(lambda a, b: torch.einsum("bik,bjk->bij", a, b), sample(3, 20, 32, dtype=dtype),
          sample(3, 24, 32, dtype=dtype))
    check(lambda a, b: torch.einsum("ij,jk->ki", a, b), sample(20, 32, dtype=dtype),
          sample(32, 24, dtype=dtype))


@cases("complex", {"complex64": torch.complex64, "complex128": torch.complex128})
def complex_product(dtype):
    check(torch.mm, sample(33, 40, dtype=dtype), sample(40, 24, dtype=dtype))
    check(torch.bmm, sample(3, 33, 40, dtype=dtype), sample(3, 40, 24, dtype=dtype))


@test
def broadcast_matmul():
    check(torch.matmul, sample(5, 1, 20, 30), sample(6, 30, 10))
    check(torch.matmul, sample(20, 30), sample(6, 30, 10))
    check(torch.matmul, sample(6, 20, 30), sample(30))


@test
def chained_products():
    check(lambda a, b, c: torch.linalg.multi_dot((a, b, c)), sample(30, 40), sample(40, 50),
          sample(50, 20))
    check(lambda a: torch.matrix_power(a, 5), sample(20, 20))
    check(lambda a: torch.tensordot(a, a, dims=([0, 1], [0, 1])), sample(9, 10, 11))
    check(torch.kron, sample(5, 6), sample(7, 8))


@test
def bilinear():
    check(F.bilinear, sample(16, 20), sample(16, 30), sample(8, 20, 30), sample(8), grad=True,
          tolerance=(1e-3, 1e-3))


@test
def tensor_float_32():
    """TF32 has 10 bits of mantissa, so the tolerance is larger."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        check(torch.mm, sample(256, 256), sample(256, 256, seed=1), tolerance=(2e-2, 5e-2))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@test
def int8_product():
    need_cuda()
    if not hasattr(torch, "_int_mm"):
        raise Skip("this PyTorch has no _int_mm")
    a = sample(64, 128, dtype=torch.int8, low=-9, high=9)
    b = sample(128, 64, dtype=torch.int8, low=-9, high=9, seed=1)
    got = torch._int_mm(a.cuda(), b.cuda()).cpu()
    assert torch.equal(got.long(), a.long() @ b.long())


@test
def fp8_product():
    need_cuda()
    if not hasattr(torch, "_scaled_mm"):
        raise Skip("this PyTorch has no _scaled_mm")
    a = sample(64, 128).cuda().to(torch.float8_e4m3fn)
    b = sample(64, 128, seed=1).cuda().to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    got = torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    want = a.float().cpu() @ b.float().cpu().t()
    torch.testing.assert_close(got.float().cpu(), want, rtol=2e-2, atol=1e-1)


@test
def grouped_sizes():
    """Many shapes: heuristics choose many kernels, each loaded when it is first used."""
    for n in (1, 2, 8, 16, 31, 64, 100, 200, 333):
        check(torch.mm, sample(n, 3 * n), sample(3 * n, n + 1))
        check(torch.mm, sample(n, 3 * n, dtype=torch.bfloat16),
              sample(3 * n, n + 1, dtype=torch.bfloat16), tolerance=(5e-2, 2e-1))


@test
def fused_activation():
    """addmm with GELU or ReLU in cuBLASLt's epilogue."""
    need_cuda()
    if not hasattr(torch, "_addmm_activation"):
        raise Skip("this PyTorch has no _addmm_activation")
    for dtype in (torch.float32, runs_on(torch.bfloat16)):
        check(lambda c, a, b: torch._addmm_activation(c, a, b, use_gelu=False),
              sample(48, dtype=dtype), sample(64, 96, dtype=dtype), sample(96, 48, dtype=dtype))
