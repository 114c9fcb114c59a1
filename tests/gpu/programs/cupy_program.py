# SPDX-License-Identifier: Apache-2.0
"""CuPy: array operations, kernels compiled at run time, streams, pools, the CUDA libraries it uses."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import cupy  # noqa: E402
import numpy  # noqa: E402

import harness  # noqa: E402
from harness import test  # noqa: E402

SAXPY = cupy.RawKernel(r"""
extern "C" __global__ void saxpy(float a, const float* x, const float* y, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
""", "saxpy")

MODULE = r"""
__device__ int counter;
__constant__ float factors[4];
extern "C" __global__ void count(int n) {
  if (blockIdx.x * blockDim.x + threadIdx.x < n) atomicAdd(&counter, 1);
}
extern "C" __global__ void scale(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factors[i % 4];
}
"""


def numbers(*shape, seed=0):
    return numpy.random.default_rng(seed).standard_normal(shape, dtype=numpy.float32)


def close(got, want, rtol=1e-4, atol=1e-4):
    numpy.testing.assert_allclose(cupy.asnumpy(got), want, rtol=rtol, atol=atol)


@test
def elementwise_and_reduction():
    x = numbers(1000, 37)
    close((cupy.sin(cupy.asarray(x)) * 2).sum(axis=0), (numpy.sin(x) * 2).sum(axis=0), atol=1e-2)
    close(cupy.asarray(x).std(axis=1), x.std(axis=1))


@test
def raw_kernel():
    x, y = numbers(10_001), numbers(10_001, seed=1)
    out = cupy.empty(10_001, dtype=cupy.float32)
    SAXPY((40,), (256,), (numpy.float32(2.5), cupy.asarray(x), cupy.asarray(y), out,
                          numpy.int32(10_001)))
    close(out, numpy.float32(2.5) * x + y)


@test
def raw_module_with_globals():
    module = cupy.RawModule(code=MODULE)
    counter = cupy.ndarray((1,), cupy.int32, module.get_global("counter"))
    counter.fill(0)
    module.get_function("count")((8,), (128,), (numpy.int32(1000),))
    assert int(counter[0]) == 1000, int(counter[0])
    factors = cupy.ndarray((4,), cupy.float32, module.get_global("factors"))
    factors[...] = cupy.asarray([1, 2, 3, 4], dtype=cupy.float32)
    x = numbers(100)
    device = cupy.asarray(x)
    module.get_function("scale")((1,), (128,), (device, numpy.int32(100)))
    close(device, x * numpy.tile(numpy.array([1, 2, 3, 4], numpy.float32), 25))


@test
def elementwise_kernel():
    kernel = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * x + y", "squares")
    x, y = numbers(777), numbers(777, seed=1)
    close(kernel(cupy.asarray(x), cupy.asarray(y)), x * x + y)


@test
def reduction_kernel():
    kernel = cupy.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = sqrt(a)", "0",
                                  "length")
    x = numbers(50_000)
    close(kernel(cupy.asarray(x)), numpy.linalg.norm(x), rtol=1e-3)


@test
def products():
    a, b = numbers(120, 90), numbers(90, 70, seed=1)
    close(cupy.asarray(a) @ cupy.asarray(b), a @ b, atol=1e-3)
    half = (cupy.asarray(a).astype(cupy.float16) @ cupy.asarray(b).astype(cupy.float16))
    close(half.astype(cupy.float32), a @ b, rtol=5e-2, atol=0.3)


@test
def fourier():
    x = numbers(8, 1000)
    close(cupy.fft.fft(cupy.asarray(x)), numpy.fft.fft(x), atol=1e-2)
    close(cupy.fft.irfft(cupy.fft.rfft(cupy.asarray(x))), x, atol=1e-3)


@test
def linear_algebra():
    a = numbers(40, 40) + 10 * numpy.eye(40, dtype=numpy.float32)
    b = numbers(40, 3, seed=2)
    close(cupy.linalg.solve(cupy.asarray(a), cupy.asarray(b)), numpy.linalg.solve(a, b), atol=1e-3)
    close(cupy.linalg.svd(cupy.asarray(a), compute_uv=False), numpy.linalg.svd(a, compute_uv=False),
          rtol=1e-3)


@test
def sorting_and_scan():
    x = numbers(30_000)
    close(cupy.sort(cupy.asarray(x)), numpy.sort(x))
    close(cupy.cumsum(cupy.asarray(x.astype(numpy.float64))), numpy.cumsum(x.astype(numpy.float64)))


@test
def random_numbers():
    """cuRAND's host API: a seed gives always the same sequence."""
    cupy.random.seed(5)
    first = cupy.asnumpy(cupy.random.standard_normal(100_000))
    cupy.random.seed(5)
    second = cupy.asnumpy(cupy.random.standard_normal(100_000))
    assert (first == second).all(), "the seed does not fix the sequence"
    assert abs(first.mean()) < 0.02 and abs(first.std() - 1) < 0.02
    return float(first[:1000].sum()).hex()


@test
def streams_and_events():
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    outputs = []
    begin.record(streams[0])
    for i, stream in enumerate(streams):
        with stream:
            outputs.append(cupy.full(100_000, i, dtype=cupy.float32) * 2)
    for stream in streams:
        stream.synchronize()
    end.record(streams[0])
    end.synchronize()
    assert cupy.cuda.get_elapsed_time(begin, end) >= 0
    assert [float(o[-1]) for o in outputs] == [0, 2, 4, 6]


@test
def memory_pools():
    pool = cupy.get_default_memory_pool()
    block = cupy.zeros(1 << 22, dtype=cupy.uint8)
    assert pool.used_bytes() >= block.nbytes
    del block
    pool.free_all_blocks()
    with cupy.cuda.using_allocator(cupy.cuda.malloc_async):
        close(cupy.arange(1000, dtype=cupy.float32) + 1, numpy.arange(1000, dtype=numpy.float32) + 1)


@test
def pinned_memory():
    x = numbers(100_000)
    memory = cupy.cuda.alloc_pinned_memory(x.nbytes)
    host = numpy.frombuffer(memory, numpy.float32, x.size)
    host[...] = x
    device = cupy.empty(x.size, dtype=cupy.float32)
    device.set(host)
    close(device * 2, x * 2)


@test
def graph():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(1000, dtype=cupy.float32)
        x += 1
        stream.synchronize()
        stream.begin_capture()
        x += 1
        captured = stream.end_capture()
        captured.launch()
        captured.launch()
        stream.synchronize()
        close(x, numpy.full(1000, 3, numpy.float32))


@test
def sparse():
    import cupyx.scipy.sparse as sparse
    dense = numbers(60, 80)
    dense[dense < 0.8] = 0
    vector = numbers(80, seed=3)
    close(sparse.csr_matrix(cupy.asarray(dense)) @ cupy.asarray(vector), dense @ vector, atol=1e-3)


harness.run(still_alive=cupy.cuda.runtime.deviceSynchronize)
