# SPDX-License-Identifier: Apache-2.0
"""A transformer encoder with scaled dot product attention in half precision: eager, in a CUDA graph,
under autocast, with the losses of a training run as its value (the same to the last digit)."""

import contextlib
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import models  # noqa: E402
import torch_support  # noqa: E402
from harness import cases, device, need_cuda, test  # noqa: E402

STEPS, BATCH = 30, 32
WARM_UP = 3  # steps before a capture: libraries allocate and load on first use
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def backend(name):
    """Only this implementation of SDPA; `any` leaves the choice to PyTorch."""
    if name == "any":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(getattr(SDPBackend, name))


def build(dtype):
    torch.manual_seed(0)
    model = models.Encoder().to(device(), dtype)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def losses_value(losses):
    values = [float(loss) for loss in losses]
    assert all(0 < v < 20 for v in values), f"losses {values}"
    return [torch_support.bits(v) for v in values[-3:]]


def train(dtype, kernel="any", autocast=None, scaler=None):
    model, optimiser = build(torch.float32 if autocast else dtype)
    inputs, labels = models.sentences(2048)
    losses = []
    with backend(kernel):
        for step in range(STEPS if device() == "cuda" else 2):
            x, y = (models.batch_of(d, step, BATCH).to(device()) for d in (inputs, labels))
            optimiser.zero_grad()
            with torch.autocast(device(), autocast) if autocast else contextlib.nullcontext():
                loss = F.cross_entropy(model(x), y)
            if scaler:
                scaler.scale(loss).backward()
                scaler.step(optimiser)
                scaler.update()
            else:
                loss.backward()
                optimiser.step()
            losses.append(loss.detach())
    return losses_value(losses)


@cases("eager", HALVES)
def eager(dtype):
    need_cuda()
    return train(dtype)


@test
def eager_float32():
    return train(torch.float32)


@cases("attention", {f"{kernel.lower()}_{name}": (kernel, dtype) for name, dtype in HALVES.items()
                     for kernel in ("MATH", "FLASH_ATTENTION")})
def attention(kernel, dtype):
    need_cuda()
    return train(dtype, kernel)


@cases("attention_efficient", HALVES)
def attention_efficient(dtype):
    """This implementation's backward pass adds in no fixed order, so there is no value to compare."""
    need_cuda()
    train(dtype, "EFFICIENT_ATTENTION")


@cases("autocast", HALVES)
def autocast(dtype):
    need_cuda()
    scaler = torch.amp.GradScaler("cuda") if dtype == torch.float16 else None
    return train(None, autocast=dtype, scaler=scaler)


@cases("graph_training", HALVES)
def graph_training(dtype):
    """A whole training step captured once and replayed with new data."""
    need_cuda()
    model, optimiser = build(dtype)
    inputs, labels = (d.cuda() for d in models.sentences(2048))
    x, y = inputs[:BATCH].clone(), labels[:BATCH].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            models.train_step(model, optimiser, x, y)
    torch.cuda.current_stream().wait_stream(side)
    optimiser.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = models.train_step(model, optimiser, x, y)
    losses = []
    for step in range(STEPS):
        x.copy_(models.batch_of(inputs, step, BATCH))
        y.copy_(models.batch_of(labels, step, BATCH))
        graph.replay()
        losses.append(loss.clone())
    return losses_value(losses)


@cases("graph_inference", HALVES)
def graph_inference(dtype):
    """A replay gives what the eager pass gives."""
    need_cuda()
    model, _ = build(dtype)
    model.eval()
    inputs = models.sentences(256)[0].cuda()
    x = inputs[:BATCH].clone()
    with torch.no_grad():
        model(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = model(x)
        for step in range(5):
            x.copy_(models.batch_of(inputs, step, BATCH))
            graph.replay()
            torch.testing.assert_close(output, model(x), rtol=1e-2, atol=1e-2)
    return torch_support.checksum(output)


@cases("layer", HALVES)
def encoder_layer(dtype):
    """PyTorch's own layer, whose inference path is one fused operation."""
    need_cuda()
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    x = torch.randn(8, 50, 128, generator=torch.Generator().manual_seed(1))
    want = layer.eval()(x).detach()
    layer = layer.to("cuda", dtype)
    for mode in (True, False):
        layer.train(mode)
        with torch.set_grad_enabled(mode):
            got = layer(x.to("cuda", dtype))
        torch.testing.assert_close(got.float().cpu(), want, rtol=5e-2, atol=5e-2)


torch_support.run()
