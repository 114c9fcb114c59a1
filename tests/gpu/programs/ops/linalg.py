# SPDX-License-Identifier: Apache-2.0
"""Linear algebra by cuSOLVER, cuBLAS and MAGMA. Decompositions are checked by multiplying their factors,
since the signs and the order of vectors are not defined."""

import torch

from harness import cases, device, test
from torch_support import check, sample, to_device

SLACK = (1e-3, 1e-3)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def well(n, dtype=torch.float32, batch=()):
    """A matrix far from singular."""
    return sample(*batch, n, n, dtype=dtype) + 2 * n ** 0.5 * torch.eye(n, dtype=dtype)


def symmetric(n, dtype=torch.float32, batch=()):
    a = sample(*batch, n, n, dtype=dtype)
    return a @ a.mT + n * torch.eye(n, dtype=dtype)


@cases("solve", DTYPES)
def solve(dtype):
    check(torch.linalg.solve, well(50, dtype), sample(50, 7, dtype=dtype), grad=True, tolerance=SLACK)
    check(torch.linalg.solve, well(20, dtype, (6,)), sample(6, 20, 3, dtype=dtype), tolerance=SLACK)


@cases("inverse", DTYPES)
def inverse(dtype):
    check(torch.linalg.inv, well(40, dtype), grad=True, tolerance=SLACK)
    check(torch.linalg.inv, well(9, dtype, (5,)), tolerance=SLACK)


@cases("determinant", DTYPES)
def determinant(dtype):
    check(lambda a: torch.linalg.slogdet(a)[1], well(30, dtype), tolerance=SLACK)
    check(torch.linalg.det, well(4, dtype, (8,)) / 4, grad=True, tolerance=SLACK)


@cases("cholesky", DTYPES)
def cholesky(dtype):
    check(torch.linalg.cholesky, symmetric(40, dtype), tolerance=SLACK)
    check(torch.linalg.cholesky, symmetric(12, dtype, (6,)), tolerance=SLACK)


@test
def cholesky_solve():
    check(lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a)), symmetric(30),
          sample(30, 4), tolerance=SLACK)
    check(lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a)), symmetric(30), tolerance=SLACK)


@cases("qr", DTYPES)
def qr(dtype):
    a = to_device(sample(60, 25, dtype=dtype))
    q, r = torch.linalg.qr(a)
    eye = torch.eye(25, dtype=dtype, device=a.device)
    torch.testing.assert_close(q @ r, a, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(q.T @ q, eye, rtol=1e-4, atol=1e-4)
    assert float(r.tril(-1).abs().max()) == 0


@cases("svd", DTYPES)
def svd(dtype):
    a = to_device(sample(50, 30, dtype=dtype))
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    torch.testing.assert_close(u * s @ vh, a, rtol=1e-4, atol=1e-3)
    check(torch.linalg.svdvals, sample(50, 30, dtype=dtype), tolerance=SLACK)


@test
def svd_batch():
    check(torch.linalg.svdvals, sample(8, 20, 12), tolerance=SLACK)


@cases("eigh", DTYPES)
def eigh(dtype):
    a = to_device(symmetric(40, dtype))
    values, vectors = torch.linalg.eigh(a)
    torch.testing.assert_close(vectors * values @ vectors.T, a, rtol=1e-3, atol=1e-2)
    check(torch.linalg.eigvalsh, symmetric(40, dtype), tolerance=SLACK)


@test
def eigh_batch():
    check(torch.linalg.eigvalsh, symmetric(16, batch=(10,)), tolerance=SLACK)


@test
def eig():
    a = to_device(sample(20, 20))
    values, vectors = torch.linalg.eig(a)
    torch.testing.assert_close(a.to(vectors.dtype) @ vectors, vectors * values, rtol=1e-2, atol=1e-2)


@test
def lu():
    a = to_device(well(35))
    p, lower, upper = torch.linalg.lu(a)
    torch.testing.assert_close(p @ lower @ upper, a, rtol=1e-4, atol=1e-4)
    check(lambda m, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(m), b), well(35), sample(35, 3),
          tolerance=SLACK)


@test
def triangular_solve():
    check(lambda a, b: torch.linalg.solve_triangular(a.triu(), b, upper=True), well(40),
          sample(40, 6), grad=True, tolerance=SLACK)


@test
def least_squares():
    check(lambda a, b: torch.linalg.lstsq(a, b).solution, sample(60, 20), sample(60, 3),
          tolerance=SLACK)


@test
def pseudo_inverse_and_rank():
    check(torch.linalg.pinv, sample(30, 18), tolerance=SLACK)
    check(torch.linalg.matrix_rank, sample(30, 5) @ sample(5, 30))


@test
def norms_and_condition():
    check(lambda a: (torch.linalg.norm(a), torch.linalg.norm(a, "nuc"), torch.linalg.norm(a, 2)),
          sample(30, 20), tolerance=SLACK)
    check(torch.linalg.cond, well(20), tolerance=SLACK)


@test
def matrix_functions():
    check(torch.linalg.matrix_exp, sample(20, 20) / 4, tolerance=SLACK)
    check(torch.linalg.cross, sample(50, 3), sample(50, 3, seed=1), tolerance=SLACK)
    check(torch.linalg.householder_product, sample(20, 8) / 4, sample(8), tolerance=SLACK)


@test
def singular_matrix_raises():
    try:
        torch.linalg.inv(torch.zeros(5, 5, device=device()))
    except RuntimeError as error:
        assert "singular" in str(error), error
    else:
        raise AssertionError("the inverse of zero")


@test
def larger_sizes():
    """Sizes for which the libraries use blocked algorithms."""
    check(torch.linalg.solve, well(300), sample(300, 10), tolerance=(1e-2, 1e-2))
    check(torch.linalg.cholesky, symmetric(300), tolerance=(1e-2, 1e-2))
    check(torch.linalg.svdvals, sample(200, 150), tolerance=(1e-2, 1e-2))
