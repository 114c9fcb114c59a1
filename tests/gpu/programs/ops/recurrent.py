# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks (cuDNN) and their cells."""

import torch
from torch import nn

from harness import cases, test
from torch_support import check_module, sample

SLACK = (2e-3, 2e-3)


@cases("network", {
    "rnn": lambda: nn.RNN(10, 16), "gru": lambda: nn.GRU(10, 16), "lstm": lambda: nn.LSTM(10, 16),
    "lstm_two_layers": lambda: nn.LSTM(10, 16, num_layers=2),
    "gru_bidirectional": lambda: nn.GRU(10, 16, bidirectional=True),
    "lstm_batch_first": lambda: nn.LSTM(10, 16, batch_first=True),
    "rnn_relu": lambda: nn.RNN(10, 16, nonlinearity="relu"),
})
def network(make):
    check_module(make, sample(12, 5, 10), tolerance=SLACK)


@cases("cell", {"rnn": nn.RNNCell, "gru": nn.GRUCell})
def cell(kind):
    check_module(lambda: kind(10, 16), sample(5, 10), sample(5, 16), tolerance=SLACK)


@test
def lstm_cell():
    check_module(lambda: nn.LSTMCell(10, 16), sample(5, 10), tolerance=SLACK)


class Packed(nn.Module):
    """An LSTM over sequences of different lengths."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(10, 16)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([12, 9, 7, 4, 1]))
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0])[0]


@test
def packed_sequences():
    check_module(Packed, sample(12, 5, 10), tolerance=SLACK)
