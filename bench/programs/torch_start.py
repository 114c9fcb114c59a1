# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program's start: imports, builds LeNet, trains one step. Prints one line of JSON: milliseconds
from its first line to the end of that step, and of these what came after the imports."""

import time

BEGIN = time.perf_counter()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "gpu" / "programs")]
import torch  # noqa: E402
import torch._dynamo  # noqa: E402,F401  The first optimiser does: seconds of Python, none of the driver.

import models  # noqa: E402

BATCH = 64

imported = time.perf_counter()
net = models.LeNet().cuda()
optimiser = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
inputs, labels = (data.cuda() for data in models.pictures(BATCH))
float(models.train_step(net, optimiser, inputs, labels).detach())
end = time.perf_counter()
print(json.dumps({"start_ms": (end - BEGIN) * 1e3, "device_ms": (end - imported) * 1e3}))
