# SPDX-License-Identifier: Apache-2.0
"""Sparse matrices by cuSPARSE: formats, products, sums and gradients."""

import warnings

import torch

from harness import device, test
from torch_support import check, sample, to_device

warnings.filterwarnings("ignore", message=".*beta.*")
SLACK = (1e-3, 1e-3)


def thin(rows, columns, seed=0, dtype=torch.float32):
    """A matrix of mostly zeros, the same in every process."""
    a = sample(rows, columns, dtype=dtype, seed=seed)
    return torch.where(a > 0.7, a, torch.zeros_like(a))


@test
def formats():
    check(lambda a: a.to_sparse().to_dense(), thin(50, 60))
    check(lambda a: a.to_sparse_csr().to_dense(), thin(50, 60))
    check(lambda a: a.to_sparse().to_sparse_csr().to_dense(), thin(50, 60))


@test
def coalesce():
    indices = torch.tensor([[0, 1, 1, 0, 2], [1, 2, 2, 1, 0]])
    values = torch.tensor([1.0, 2, 3, 4, 5])
    check(lambda i, v: torch.sparse_coo_tensor(i, v, (3, 3)).coalesce().values(), indices, values)


@test
def coo_times_dense():
    check(lambda a, b: torch.sparse.mm(a.to_sparse(), b), thin(80, 60), sample(60, 20),
          tolerance=SLACK)


@test
def csr_times_dense():
    for dtype in (torch.float32, torch.float64):
        check(lambda a, b: a.to_sparse_csr() @ b, thin(80, 60, dtype=dtype),
              sample(60, 20, dtype=dtype), tolerance=SLACK)


@test
def csr_times_vector():
    # Not every CPU build has this product.
    check(lambda a, x: (a.to_sparse_csr() if a.is_cuda else a) @ x, thin(80, 60), sample(60),
          tolerance=SLACK)


@test
def sparse_times_sparse():
    check(lambda a, b: torch.sparse.mm(a.to_sparse(), b.to_sparse()).to_dense(), thin(50, 40),
          thin(40, 30, seed=1), tolerance=SLACK)


@test
def addition():
    check(lambda a, b: (a.to_sparse() + b.to_sparse()).to_dense(), thin(50, 40), thin(50, 40, seed=1))
    check(lambda a, b: b + a.to_sparse(), thin(50, 40), sample(50, 40))


@test
def scaling_and_transpose():
    check(lambda a: (a.to_sparse() * 2.5).to_dense(), thin(30, 40))
    check(lambda a: a.to_sparse().t().to_dense(), thin(30, 40))


@test
def sums_and_softmax():
    check(lambda a: torch.sparse.sum(a.to_sparse(), 0).to_dense(), thin(30, 40), tolerance=SLACK)
    check(lambda a: torch.sparse.softmax(a.to_sparse(), 1).to_dense(), thin(30, 40), tolerance=SLACK)


@test
def gradient():
    check(lambda a, b: torch.sparse.mm(a.to_sparse(), b), thin(30, 20), sample(20, 10), grad=True,
          tolerance=SLACK)


@test
def embedding_with_sparse_gradient():
    weights = []
    for where in (device(), "cpu"):
        torch.manual_seed(0)
        layer = torch.nn.Embedding(50, 8, sparse=True).to(where)
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(torch.tensor([1, 4, 4, 9], device=where)).sum().backward()
        optimiser.step()
        weights.append(layer.weight.detach().cpu())
    torch.testing.assert_close(*weights)


@test
def large():
    """A hundred thousand non-zeros at known places."""
    n = 20_000
    rows = torch.arange(n).repeat(5)
    columns = (rows * 7 + torch.arange(5).repeat_interleave(n) * 1013) % n
    values = sample(5 * n)
    check(lambda i, v, x: torch.sparse_coo_tensor(i, v, (n, n)) @ x, torch.stack((rows, columns)),
          values, sample(n, 4), tolerance=SLACK)


@test
def masked():
    dense = to_device(sample(20, 30))
    mask = to_device(thin(20, 30, seed=2)).to_sparse().coalesce()
    picked = dense.sparse_mask(mask)
    assert torch.equal(picked.to_dense(), dense * (mask.to_dense() != 0))
