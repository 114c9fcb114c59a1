# SPDX-License-Identifier: Apache-2.0
"""One group of PyTorch's operations, on the GPU against the CPU: torch_ops.py GROUP (ops/GROUP.py).
Each group runs in one process, because importing PyTorch takes longer than most groups."""

import importlib
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import torch_support  # noqa: E402

importlib.import_module(f"ops.{sys.argv.pop(1)}")
torch_support.run()
