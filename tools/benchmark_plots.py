#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the plots of README.md and docs/benchmarks.md from the figures of the run on an H200 that
docs/measurements/engine.md describes. To be run by hand when docs/benchmarks.md gets another run."""

from pathlib import Path

import plot

DOCS = Path(__file__).resolve().parents[1] / "docs"
SIDES = ("native", "NVIDIA's MPS", "OpenMPS")

# File, title, unit, {group: one value per side; None: not measured, or stopped at a time limit}.
PLOTS = (
    ("many-programs.svg", "Many programs at once on an H200, first start to last end", "s",
     {"8 x n-body 8192": (9.24, 2.46, 1.59),
      "4 x n-body 262144": (8.97, 7.39, 7.06),
      "40 x n-body 1024": (None, 8.10, 1.83),
      "16 x 256 kernels": (3.30, 2.15, 0.57),
      "16 x CuPy": (4.26, None, 2.94)}),
    ("first-kernel.svg", "From the start of a new program to the end of its first kernel, H200", "ms",
     {"alone": (198, 88, 3.4),
      "beside n-body 8192": (169, 92, 4.8),
      "beside n-body 262144": (170, 97, 20.7)}),
)


def main():
    for name, title, unit, rows in PLOTS:
        series = [(side, [values[i] for values in rows.values()]) for i, side in enumerate(SIDES)]
        (DOCS / name).write_text(plot.grouped_bars(title, unit, list(rows), series), encoding="utf-8")


if __name__ == "__main__":
    main()
