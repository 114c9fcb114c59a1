# SPDX-License-Identifier: Apache-2.0
"""LeNet trained with deterministic algorithms: the loss is the same to the last digit natively and
behind OpenMPS, for one process and for several at once. Also eager training from pinned memory."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402

import models  # noqa: E402
import torch_support  # noqa: E402
from harness import device, need_cuda, test  # noqa: E402

STEPS, BATCH = 300, 64
# Warnings only, because PyTorch calls the pooling nondeterministic, although it is deterministic as
# long as windows do not overlap.
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True


def train(steps, pin=False, momentum=0.9):
    torch.manual_seed(0)
    net = models.LeNet().to(device())
    inputs, labels = models.pictures(4096)
    if pin:
        inputs, labels = inputs.pin_memory(), labels.pin_memory()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001, momentum=momentum)
    for step in range(steps):
        x, y = (models.batch_of(data, step, BATCH).to(device(), non_blocking=pin)
                for data in (inputs, labels))
        loss = models.train_step(net, optimiser, x, y)
    assert 0 < loss.item() < 3, f"loss {loss.item()}"
    return torch_support.bits(loss)


@test
def loss():
    steps = STEPS if device() == "cuda" else 5
    return train(steps)


@test
def loss_from_pinned_memory():
    need_cuda()
    return train(STEPS, pin=True)


@test
def loss_again():
    """A second run in the same process gives the same loss as the first."""
    need_cuda()
    first, second = train(50), train(50)
    assert first == second, f"{first} and then {second}"
    return second


torch_support.run()
