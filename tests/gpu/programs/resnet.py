# SPDX-License-Identifier: Apache-2.0
"""Training steps of an 18-layer residual network: cuDNN's convolutions and batch normalisation."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402

import models  # noqa: E402
import torch_support  # noqa: E402
from harness import cases, device, need_cuda, test  # noqa: E402

BATCH, SIZE, STEPS = 16, 64, 5


def prepare(dtype=torch.float32, layout=torch.contiguous_format):
    torch.manual_seed(0)
    net = models.ResNet18().to(device(), dtype, memory_format=layout)
    inputs, labels = models.pictures(BATCH, SIZE, classes=100)
    inputs = inputs.to(device(), dtype).contiguous(memory_format=layout)
    return net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), inputs, labels.to(device())


def deterministic(on):
    torch.use_deterministic_algorithms(on, warn_only=True)
    torch.backends.cudnn.deterministic = on
    torch.backends.cudnn.benchmark = not on


@test
def deterministic_training():
    """Two runs give the same loss, natively and behind OpenMPS."""
    deterministic(True)
    found = []
    for _ in range(2):
        net, optimiser, x, y = prepare()
        for _ in range(STEPS if device() == "cuda" else 1):
            loss = models.train_step(net, optimiser, x, y).detach()
        assert 0 < float(loss) < 10
        found.append(torch_support.bits(loss))
    assert found[0] == found[1], f"{found[0]} and then {found[1]}"
    return found[0]


@test
def first_loss_equals_the_cpu():
    deterministic(True)
    net, optimiser, x, y = prepare()
    got = float(models.train_step(net, optimiser, x, y).detach())
    net, optimiser, x, y = prepare()
    net, x, y = net.cpu(), x.cpu(), y.cpu()
    want = float(torch.nn.functional.cross_entropy(net(x), y).detach())
    assert abs(got - want) < 1e-3 * want, f"{got} on the device, {want} on the CPU"


@cases("channels_last", {"float32": torch.float32, "bfloat16": torch.bfloat16})
def channels_last(dtype):
    """Benchmark mode: cuDNN times its algorithms on the device."""
    need_cuda()
    deterministic(False)
    net, optimiser, x, y = prepare(dtype, torch.channels_last)
    losses = [float(models.train_step(net, optimiser, x, y).detach()) for _ in range(STEPS)]
    assert losses[-1] < losses[0], f"losses {losses}"


@test
def autocast_training():
    need_cuda()
    deterministic(False)
    net, optimiser, x, y = prepare()
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    for _ in range(STEPS):
        optimiser.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0], f"losses {losses}"


@test
def evaluation():
    deterministic(True)
    net, _, x, _ = prepare()
    net.eval()
    with torch.no_grad():
        got = net(x).float().cpu()
        want = net.cpu()(x.cpu())
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


torch_support.run()
