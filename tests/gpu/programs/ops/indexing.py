# SPDX-License-Identifier: Apache-2.0
"""Reading and writing by index and by mask, joining, splitting, and permuting elements."""

import torch

from harness import test
from torch_support import check, integers, sample

ROWS, COLUMNS = 130, 67


def permutation(n, seed=0):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


@test
def index_select():
    for dim, size in ((0, ROWS), (1, COLUMNS)):
        check(lambda x, i, d=dim: torch.index_select(x, d, i), sample(ROWS, COLUMNS),
              integers(50, high=size), grad=True)


@test
def gather():
    check(lambda x, i: torch.gather(x, 1, i), sample(ROWS, COLUMNS),
          integers(ROWS, 30, high=COLUMNS), grad=True)


@test
def scatter():
    index = permutation(COLUMNS).repeat(ROWS, 1)
    check(lambda x, i, s: x.scatter(1, i, s), sample(ROWS, COLUMNS), index,
          sample(ROWS, COLUMNS, seed=1), grad=True)


@test
def scatter_add():
    check(lambda x, i, s: x.scatter_add(0, i, s), sample(20, COLUMNS),
          integers(ROWS, COLUMNS, high=20), sample(ROWS, COLUMNS), grad=True)


@test
def scatter_reduce():
    for how in ("sum", "mean", "amax", "amin", "prod"):
        check(lambda x, i, s, h=how: x.scatter_reduce(0, i, s, reduce=h), sample(200),
              integers(1500, high=200), sample(1500, low=0.9, high=1.1), tolerance=(1e-3, 1e-3))


@test
def masked_fill_select_scatter():
    mask = sample(ROWS, COLUMNS, dtype=torch.bool)
    check(lambda x, m: x.masked_fill(m, 3.0), sample(ROWS, COLUMNS), mask, grad=True)
    check(lambda x, m: x.masked_select(m), sample(ROWS, COLUMNS), mask)
    check(lambda x, m, s: x.masked_scatter(m, s), sample(ROWS, COLUMNS), mask, sample(ROWS, COLUMNS))


@test
def index_put():
    check(lambda x, i, v: x.index_put((i,), v), sample(ROWS), permutation(ROWS)[:40], sample(40))
    check(lambda x, i, v: x.index_put((i,), v, accumulate=True), sample(ROWS),
          integers(4000, high=ROWS), sample(4000), tolerance=(1e-3, 1e-3))


@test
def index_add_copy_fill():
    index = permutation(ROWS)[:44]
    check(lambda x, i, s: x.index_add(0, i, s, alpha=2), sample(ROWS, COLUMNS), index,
          sample(44, COLUMNS), grad=True)
    check(lambda x, i, s: x.index_copy(0, i, s), sample(ROWS, COLUMNS), index, sample(44, COLUMNS))
    check(lambda x, i: x.index_fill(0, i, 9.0), sample(ROWS, COLUMNS), index)


@test
def advanced_indexing():
    rows, columns = integers(99, high=ROWS), integers(99, high=COLUMNS, seed=1)
    check(lambda x, r, c: x[r, c], sample(ROWS, COLUMNS), rows, columns, grad=True)
    check(lambda x, r: x[r, 5:9], sample(ROWS, COLUMNS), rows)
    check(lambda x: x[x > 0.5], sample(ROWS, COLUMNS))
    check(lambda x, r: x[:, None][r].squeeze(1), sample(ROWS, COLUMNS), rows)


@test
def assignment():
    def assign(x, r):
        x[r] = 1.5
        x[::3, 2] = x[::3, 3]
        x[x < -0.5] = 0
        return x
    check(assign, sample(ROWS, COLUMNS), integers(20, high=ROWS))


@test
def take_put():
    check(torch.take, sample(ROWS, COLUMNS), integers(500, high=ROWS * COLUMNS), grad=True)
    check(lambda x, i, v: x.put(i, v), sample(ROWS, COLUMNS), permutation(ROWS)[:50], sample(50))
    check(lambda x, i: torch.take_along_dim(x, i, 1), sample(ROWS, COLUMNS),
          integers(ROWS, 3, high=COLUMNS))


@test
def nonzero():
    """The size of the result is known only after the device has computed it."""
    check(lambda x: torch.nonzero(x > 0.3), sample(ROWS, COLUMNS))
    check(lambda x: torch.nonzero(x > 5), sample(ROWS, COLUMNS))
    check(lambda x: torch.argwhere(x < 0), sample(9, 5, 7))


@test
def embedding_lookup():
    check(lambda w, i: torch.nn.functional.embedding(i, w), sample(1000, 48),
          integers(16, 20, high=1000), grad=True)
    check(lambda w, i: torch.nn.functional.embedding_bag(i, w, mode="mean"), sample(1000, 48),
          integers(16, 20, high=1000), grad=True)


@test
def joining():
    parts = [sample(n, COLUMNS, seed=n) for n in (1, 33, 64)]
    check(lambda ps: torch.cat(ps), parts)
    check(lambda ps: torch.stack([p[:1] for p in ps], 1), parts)
    check(lambda ps: torch.hstack([p[:1] for p in ps]), parts)
    check(lambda ps: torch.cat([p.t() for p in ps], 1), parts)


@test
def splitting():
    check(lambda x: x.split(40), sample(ROWS, COLUMNS))
    check(lambda x: x.chunk(4, 1), sample(ROWS, COLUMNS))
    check(lambda x: x.unfold(0, 7, 3).contiguous(), sample(ROWS, 5))
    check(lambda x: x.unbind(1), sample(ROWS, 5))


@test
def flip_roll_rotate():
    check(lambda x: (x.flip(0), x.flip(0, 1), x.roll(13, 0), x.roll((3, 5), (0, 1)),
                     torch.rot90(x)), sample(ROWS, COLUMNS))


@test
def triangles():
    check(lambda x: (x.tril(), x.triu(2), x.tril(-3)), sample(ROWS, COLUMNS), grad=True)
    check(lambda x: torch.block_diag(x, x), sample(9, 5))
    check(lambda x: torch.diag_embed(x), sample(4, 9))


@test
def repeat_tile():
    check(lambda x: (x.repeat(2, 3), x.tile(3), torch.repeat_interleave(x, 3, 0)), sample(17, 9))
    check(lambda x, n: torch.repeat_interleave(x, n), sample(50), integers(50, high=5))


@test
def searching():
    edges = torch.linspace(-1, 1, 40)
    check(lambda e, x: torch.searchsorted(e, x), edges, sample(1000))
    check(lambda e, x: torch.bucketize(x, e, right=True), edges, sample(1000))
    check(torch.isin, integers(500, high=50), integers(9, high=50, seed=1))


@test
def grids():
    check(lambda x, y: torch.meshgrid(x, y, indexing="ij"), sample(9), sample(11))
    check(lambda x, y: torch.cartesian_prod(x, y), sample(9), sample(11))
    check(lambda x: torch.combinations(x, 2), sample(12))


@test
def copies_between_layouts():
    a = sample(4, 6, 10, 12)
    check(lambda x: x.contiguous(memory_format=torch.channels_last) * 2, a)
    check(lambda x: x.permute(3, 1, 0, 2).contiguous(), a)
    check(lambda x: torch.movedim(x, 0, 2).clone(), a)


@test
def out_of_bounds_is_an_error_on_the_host():
    """Wrong indices that PyTorch notices on the host raise there and leave the device unharmed."""
    from torch_support import to_device
    x = to_device(sample(5))
    try:
        x[7]
    except IndexError:
        pass
    else:
        raise AssertionError("no IndexError")
    assert float(x.sum()) == float(x.sum())
