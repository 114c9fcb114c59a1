# SPDX-License-Identifier: Apache-2.0
"""Loss functions, embeddings and activations with parameters, with their gradients."""

import torch
import torch.nn.functional as F
from torch import nn

from harness import cases, test
from torch_support import check, check_module, integers, sample

SHAPE = (32, 17)


@cases("loss", {
    "mse": F.mse_loss, "l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss, "huber": F.huber_loss,
    "kl": lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"),
    "bce": lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
    "bce_logits": lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()),
    "soft_margin": lambda a, b: F.soft_margin_loss(a, b.detach().sign()),
    "poisson": lambda a, b: F.poisson_nll_loss(a, b.abs()),
    "gaussian": lambda a, b: F.gaussian_nll_loss(a, b, torch.ones_like(a)),
    "cosine": lambda a, b: F.cosine_embedding_loss(a, b, torch.ones(a.shape[0], device=a.device)),
    "ranking": lambda a, b: F.margin_ranking_loss(a, b, torch.ones_like(a)),
    "triplet": lambda a, b: F.triplet_margin_loss(a, b, a.flip(0)),
})
def loss(function):
    check(function, sample(*SHAPE), sample(*SHAPE, seed=1), grad=True)


@cases("classes", {
    "cross_entropy": F.cross_entropy,
    "smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "ignored": lambda x, y: F.cross_entropy(x, y, ignore_index=3),
    "summed": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    "nll": lambda x, y: F.nll_loss(x.log_softmax(1), y),
    "multi_margin": F.multi_margin_loss,
})
def classes(function):
    check(lambda x, y: function(x, y), sample(64, 10), integers(64, high=10), grad=True)


@test
def cross_entropy_of_pictures():
    check(F.cross_entropy, sample(3, 6, 9, 9), integers(3, 9, 9, high=6), grad=True)
    check(lambda x, y, w: F.cross_entropy(x, y, weight=w), sample(64, 10), integers(64, high=10),
          sample(10, low=0.5, high=1.5))


@test
def ctc():
    lengths, targets = torch.full((4,), 20), torch.full((4,), 6)
    check(lambda x, y: F.ctc_loss(x.log_softmax(2), y, lengths, targets), sample(20, 4, 8),
          integers(4, 6, high=7) + 1, grad=True, tolerance=(1e-3, 1e-3))


@test
def embedding():
    check_module(lambda: nn.Embedding(100, 24, padding_idx=3), integers(8, 12, high=100))
    check_module(lambda: nn.EmbeddingBag(100, 24, mode="sum"), integers(8, 12, high=100))


@test
def large_embedding():
    """More indices than one block sorts, so the gradient is computed by the path that sorts."""
    check(lambda w, i: F.embedding(i, w), sample(2000, 16), integers(20_000, high=2000), grad=True,
          tolerance=(1e-3, 1e-3))


@test
def activations():
    for make in (nn.PReLU, nn.GLU, nn.ELU, nn.CELU, nn.Softsign, nn.Hardtanh, nn.Softshrink,
                 nn.LogSigmoid, nn.Tanhshrink):
        check_module(lambda m=make: nn.Sequential(nn.Linear(16, 16), m()), sample(9, 16))


@test
def bilinear_and_pairs():
    check_module(lambda: nn.Bilinear(6, 7, 8), sample(9, 6), sample(9, 7))
    check(F.pairwise_distance, sample(20, 9), sample(20, 9, seed=1), grad=True)


@test
def one_hot():
    check(lambda y: F.one_hot(y, 12), integers(50, high=12))


@test
def gradient_of_a_gradient():
    def penalty(x, w):
        first = torch.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)[0]
        return first.pow(2).sum()

    def both(x, w):
        return penalty(x.requires_grad_(True), w)
    check(both, sample(8, 9), sample(9, 4), grad=True)


@test
def checkpointing():
    from torch.utils.checkpoint import checkpoint

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12))

        def forward(self, x):
            return checkpoint(self.layers, x, use_reentrant=False)
    check_module(Twice, sample(5, 12))
