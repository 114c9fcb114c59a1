# SPDX-License-Identifier: Apache-2.0
"""The networks and the training loop of tests/gpu and bench/stack.py: synthetic data, made on the CPU
from a fixed seed, and one optimiser step per batch. Runs on the caller's thread."""

import torch
import torch.nn.functional as F
from torch import nn


class LeNet(nn.Module):
    """The five-layer network on 32 x 32 pictures with three colours."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(
            nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, pictures):
        return self.classifier(self.features(pictures).flatten(1))


class Block(nn.Module):
    """A transformer encoder's layer, normalised first, with attention by SDPA."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """A classifier of token sequences."""

    def __init__(self, tokens=500, length=64, width=128, heads=4, layers=3, classes=10):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens) + self.place).mean(1))


class ResidualUnit(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity() if stride == 1 and channels_in == channels else nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two units, as in the 18-layer residual network."""

    def __init__(self, classes=100):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        units, channels_in = [], 64
        for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            units += [ResidualUnit(channels_in, channels, stride), ResidualUnit(channels, channels, 1)]
            channels_in = channels
        self.units = nn.Sequential(*units)
        self.head = nn.Linear(512, classes)

    def forward(self, pictures):
        return self.head(self.units(self.stem(pictures)).mean((2, 3)))


def pictures(count, size=32, classes=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, 3, size, size, generator=generator),
            torch.randint(0, classes, (count,), generator=generator))


def sentences(count, tokens=500, length=64, classes=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(0, tokens, (count, length), generator=generator),
            torch.randint(0, classes, (count,), generator=generator))


def batch_of(data, step, size):
    start = step * size % (len(data) - size + 1)
    return data[start:start + size]


def train_step(model, optimiser, inputs, labels, mark=lambda phase: None):
    """One step; mark(phase) is called at the end of each of its phases on the host."""
    optimiser.zero_grad()
    mark("zero_grad")
    loss = F.cross_entropy(model(inputs), labels)
    mark("forward")
    loss.backward()
    mark("backward")
    optimiser.step()
    mark("optimiser")
    return loss
