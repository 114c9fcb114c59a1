# SPDX-License-Identifier: Apache-2.0
"""The list of the programs of `./dev gpu-test`, which run_gpu.py reads."""

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"

# PyTorch's sums are the same in every run with these (and use_deterministic_algorithms).
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@dataclass(frozen=True)
class Case:
    """One program, started `processes` times at once behind one daemon."""
    suite: str
    name: str
    command: tuple
    processes: int = 1
    limit_s: float = 120
    env: dict = field(default_factory=dict)
    gpus: int = 1  # how many the program needs
    alone: bool = False  # it fills the device's memory, so no other case runs at the same time

    @property
    def title(self):
        return self.suite if self.name == self.suite else f"{self.suite}/{self.name}"


def python(suite, name=None, program=None, arguments=(), **options):
    path = PROGRAMS / f"{program or suite}.py"
    return Case(suite, name or suite, (sys.executable, "-B", str(path), *arguments), **options)


def library_folders():
    """The folders of the CUDA libraries on a machine that has them only as Python packages."""
    if Path("/usr/local/cuda/lib64/libcublas.so").exists():
        return {}
    package = importlib.util.find_spec("nvidia")
    folders = [str(lib) for place in (package.submodule_search_locations if package else ())
               for lib in sorted(Path(place).glob("*/lib"))]
    return {"LD_LIBRARY_PATH": ":".join(folders)}


def allocator(setting):
    """The setting under both names of the variable: newer versions of PyTorch prefer the second."""
    return {"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting}


OP_GROUPS = ("elementwise", "reductions", "indexing", "sorting", "matmul", "convolution", "pooling",
             "norms", "recurrent", "attention", "losses", "random", "optimisers", "streams", "memory",
             "graphs", "mixed", "fft", "linalg", "sparse")
LIBRARIES = ("cublas", "cublaslt", "cudnn", "cufft", "curand", "cusolver", "cusparse")

CASES = [
    *(python("torch_ops", group, arguments=(group,), limit_s=90, alone=group == "memory")
      for group in OP_GROUPS),
    *(python("lenet", f"x{n}", processes=n, env=DETERMINISTIC) for n in (1, 4, 8)),
    *(python("transformer", f"x{n}", processes=n, env=DETERMINISTIC) for n in (1, 4)),
    python("compile", program="compiled", limit_s=240, env={"TORCHINDUCTOR_COMPILE_THREADS": "4"}),
    python("triton", program="triton_kernels"),
    python("cupy", program="cupy_program"),
    python("jax", program="jax_program", limit_s=180,
           env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    python("allocators", "expandable_segments", alone=True,
           env=allocator("expandable_segments:True")),
    python("allocators", "malloc_async", alone=True,
           env=allocator("backend:cudaMallocAsync")),
    python("loader"),
    python("resnet", env=DETERMINISTIC),
    python("ipc"),
    *(Case("libraries", name, (f"tests/gpu/lib_{name}",), limit_s=60, env=library_folders())
      for name in LIBRARIES),
    *(python("nccl", f"x{n}", processes=n, gpus=2, limit_s=180) for n in (1, 2)),
]

# Not in the list of cases: tests/e2e has its own runner with its own sandboxes.
E2E_SUITE = "e2e"
SUITES = list(dict.fromkeys([case.suite for case in CASES] + [E2E_SUITE]))
