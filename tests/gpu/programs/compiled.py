# SPDX-License-Identifier: Apache-2.0
"""torch.compile: Inductor's Triton kernels against eager mode, forward and backward, with and without
its CUDA graphs. Skipped tests say that the compiler itself is missing."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import models  # noqa: E402
import torch_support  # noqa: E402
from harness import cases, need_cuda, test  # noqa: E402

STEPS, BATCH = 5, 16


@test
def pointwise_and_reduction():
    need_cuda()

    def function(x, y):
        return (torch.sin(x) * y + F.gelu(y)).softmax(-1).sum(0)

    x, y = torch.randn(200, 333, device="cuda"), torch.randn(200, 333, device="cuda")
    torch.testing.assert_close(torch.compile(function)(x, y), function(x, y), rtol=1e-4, atol=1e-4)


@test
def dynamic_shapes():
    need_cuda()

    def function(x):
        return (x * 2 + 1).relu().mean(1)

    compiled = torch.compile(function, dynamic=True)
    for n in (3, 17, 100):
        x = torch.randn(n, 2 * n, device="cuda")
        torch.testing.assert_close(compiled(x), function(x))


def losses(step, model, optimiser):
    inputs, labels = (d.cuda() for d in models.sentences(512))
    found = []
    for i in range(STEPS):
        x, y = (models.batch_of(d, i, BATCH) for d in (inputs, labels))
        found.append(step(model, optimiser, x, y).detach().float().clone())
    return torch.stack(found)


@cases("training", {"default": ("default", torch.float32), "bfloat16": ("default", torch.bfloat16),
                    "graphs": ("reduce-overhead", torch.float32)})
def training(mode, dtype):
    """Compiled training follows the losses of eager training."""
    need_cuda()
    sides = []
    for compile_it in (False, True):
        torch.manual_seed(0)
        model = models.Encoder(width=64, layers=2).to("cuda", dtype)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
        if compile_it:
            model = torch.compile(model, mode=mode)
        sides.append(losses(models.train_step, model, optimiser))
    slack = 5e-2 if dtype == torch.bfloat16 else 1e-3
    torch.testing.assert_close(sides[1], sides[0], rtol=slack, atol=slack)


@test
def convolution_network():
    need_cuda()
    torch.manual_seed(0)
    net = models.LeNet().cuda()
    x = models.pictures(16)[0].cuda()
    torch.testing.assert_close(torch.compile(net)(x), net(x), rtol=1e-3, atol=1e-3)


torch_support.run()
