# SPDX-License-Identifier: Apache-2.0
"""Scaled dot product attention by each implementation against a plain product of matrices in float32
on the CPU, forward and backward."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from harness import Skip, cases, need_cuda, test
from torch_support import check_module, close, sample, weighted

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 77, 64
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
SLACK = (3e-2, 3e-2)


def plain(query, key, value, mask=None, causal=False):
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(~ones.tril(), -math.inf)
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ value


def compare(kernel, dtype, length=LENGTH, width=WIDTH, backward=True, causal=False, mask=None):
    need_cuda()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    inputs = [sample(BATCH, HEADS, length, width, seed=i).to(dtype) for i in range(3)]
    mine = [x.cuda().requires_grad_(backward) for x in inputs]
    reference = [x.float().requires_grad_(backward) for x in inputs]
    with sdpa_kernel(getattr(SDPBackend, kernel)):
        got = F.scaled_dot_product_attention(
            *mine, is_causal=causal,
            attn_mask=None if mask is None else mask.to("cuda", dtype))
    want = plain(*reference, causal=causal, mask=mask)
    results, expected = [got], [want]
    if backward:
        weighted([got.float()]).backward()
        weighted([want]).backward()
        results += [x.grad for x in mine]
        expected += [x.grad for x in reference]
    close([r.float() for r in results], expected,
          SLACK if dtype in HALVES.values() else (1e-3, 1e-3))


@cases("sdpa", {f"{kernel.split('_')[0].lower()}_{name}": (kernel, dtype)
                for name, dtype in HALVES.items()
                for kernel in ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")})
def sdpa(kernel, dtype):
    compare(kernel, dtype)


@cases("sdpa_causal", {f"{kernel.split('_')[0].lower()}_{name}": (kernel, dtype)
                       for name, dtype in HALVES.items()
                       for kernel in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION")})
def sdpa_causal(kernel, dtype):
    compare(kernel, dtype, causal=True)


@cases("sdpa_float32", {"math": "MATH", "efficient": "EFFICIENT_ATTENTION"})
def sdpa_float32(kernel):
    compare(kernel, torch.float32)


@cases("sdpa_width", {str(width): width for width in (32, 80, 128, 256)})
def sdpa_width(width):
    """Each width of a head has a kernel of its own."""
    compare("FLASH_ATTENTION", torch.bfloat16, width=width, backward=width <= 128)


@test
def sdpa_mask():
    need_cuda()
    mask = sample(BATCH, 1, 80, 80)
    for kernel in ("MATH", "EFFICIENT_ATTENTION"):
        compare(kernel, torch.float16, length=80, mask=mask)


@test
def sdpa_long():
    """Several blocks of keys per query."""
    compare("FLASH_ATTENTION", torch.bfloat16, length=1500, backward=False)


@test
def sdpa_chosen_by_pytorch():
    need_cuda()
    x = sample(1, 2, 16, 32)
    for dtype in (torch.float16, torch.float32):
        got = F.scaled_dot_product_attention(*(x.to("cuda", dtype),) * 3)
        close(got.float(), plain(x, x, x), SLACK)


@test
def multi_head_attention():
    x = sample(20, 3, 32)
    check_module(lambda: Attention(32, 4), x, tolerance=(1e-3, 1e-3))


class Attention(nn.Module):
    """Self-attention by PyTorch's module."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads)

    def forward(self, x):
        return self.attention(x, x, x)[0]


@test
def encoder_layer():
    check_module(lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0), sample(20, 3, 32),
                 tolerance=(2e-3, 2e-3))


@test
def decoder_layer():
    check_module(lambda: nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0), sample(10, 3, 32),
                 sample(14, 3, 32, seed=1), tolerance=(2e-3, 2e-3))


@test
def dropout_in_attention():
    """Dropout draws random numbers inside the attention kernel; a seed gives always the same result."""
    need_cuda()
    if not hasattr(F, "scaled_dot_product_attention"):
        raise Skip("this PyTorch has no SDPA")
    x = sample(BATCH, HEADS, LENGTH, WIDTH).to("cuda", torch.float16)
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
    assert torch.equal(*results)
