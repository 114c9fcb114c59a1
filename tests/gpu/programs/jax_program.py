# SPDX-License-Identifier: Apache-2.0
"""JAX: XLA's compiled functions, gradients, loops, random numbers, half precision, CUDA libraries."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

import harness  # noqa: E402
from harness import cases, test  # noqa: E402


def numbers(*shape, seed=0):
    return numpy.random.default_rng(seed).standard_normal(shape, dtype=numpy.float32)


def close(got, want, rtol=1e-3, atol=1e-3):
    numpy.testing.assert_allclose(numpy.asarray(got, dtype=numpy.asarray(want).dtype), want,
                                  rtol=rtol, atol=atol)


@test
def runs_on_the_gpu():
    assert jax.devices()[0].platform == "gpu", jax.devices()


@test
def compiled_function():
    x = numbers(500, 300)
    close(jax.jit(lambda a: jnp.tanh(a * 2).sum(0))(x), numpy.tanh(x * 2).sum(0), atol=1e-2)


@test
def gradient():
    """The gradient of a quadratic form against its formula."""
    a, x = numbers(40, 40), numbers(40, seed=1)
    with jax.default_matmul_precision("highest"):
        got = jax.jit(jax.grad(lambda v: v @ a @ v))(x)
    close(got, (a + a.T) @ x)


@cases("product", {"float16": (jnp.float16, 5e-2, 0.3), "bfloat16": (jnp.bfloat16, 5e-2, 0.6),
                   "float32": (jnp.float32, 1e-2, 0.1)})
def product(dtype, rtol, atol):
    a, b = numbers(256, 192), numbers(192, 128, seed=1)
    got = jax.jit(jnp.matmul)(jnp.asarray(a, dtype), jnp.asarray(b, dtype))
    close(got.astype(jnp.float32), a @ b, rtol, atol)


@test
def training():
    """A two-layer network learns a known function."""
    x = numbers(512, 8)
    y = numpy.sin(x.sum(1, keepdims=True)).astype(numpy.float32)
    weights = [jnp.asarray(numbers(8, 64, seed=1) * 0.3), jnp.asarray(numbers(64, 1, seed=2) * 0.1)]

    def loss(w):
        return jnp.mean((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2)

    step = jax.jit(lambda w: [p - 0.1 * g for p, g in zip(w, jax.grad(loss)(w))])
    first = float(loss(weights))
    for _ in range(200):
        weights = step(weights)
    last = float(loss(weights))
    assert last < 0.5 * first, f"loss {first} and then {last}"


@test
def vectorised_map_and_scan():
    x = numbers(20, 30)
    close(jax.jit(jax.vmap(lambda row: jnp.cumsum(row) * 2))(x), numpy.cumsum(x, 1) * 2)
    total, partial = jax.jit(lambda v: jax.lax.scan(lambda c, a: (c + a, c), 0.0, v))(x[0])
    close(total, x[0].sum())
    close(partial[1:], numpy.cumsum(x[0])[:-1])


@test
def control_flow():
    count = jax.jit(lambda n: jax.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2),
                                                 (0, 1)))(10)
    assert int(count[1]) == 1024
    assert float(jax.jit(lambda v: jax.lax.cond(v > 0, jnp.sin, jnp.cos, v))(0.0)) == 1.0


@test
def convolution():
    x, w = numbers(4, 3, 20, 20), numbers(8, 3, 3, 3, seed=1)
    with jax.default_matmul_precision("highest"):
        got = jax.jit(lambda a, b: jax.lax.conv(a, b, (1, 1), "VALID"))(x, w)
    want = numpy.zeros((4, 8, 18, 18), numpy.float32)
    for i in range(3):
        for j in range(3):
            want += numpy.einsum("ncyx,oc->noyx", x[:, :, i:i + 18, j:j + 18], w[:, :, i, j])
    close(got, want, atol=1e-2)


@test
def random_numbers():
    """Threefry's numbers against those of the CPU: the algorithm defines every bit."""
    draws = numpy.asarray(jax.random.normal(jax.random.PRNGKey(7), (10_000,)))
    assert abs(draws.mean()) < 0.05 and abs(draws.std() - 1) < 0.05
    bits = jax.random.bits(jax.random.PRNGKey(7), (1000,))
    return int(numpy.asarray(bits, dtype=numpy.uint64).sum())


@test
def fourier():
    x = numbers(16, 256)
    close(jax.jit(jnp.fft.fft)(x).real, numpy.fft.fft(x).real.astype(numpy.float32), atol=1e-2)


@test
def linear_algebra():
    a = numbers(30, 30)
    positive = a @ a.T + 30 * numpy.eye(30, dtype=numpy.float32)
    close(jax.jit(jnp.linalg.cholesky)(positive), numpy.linalg.cholesky(positive), atol=1e-2)
    close(jax.jit(lambda m: jnp.linalg.svd(m, compute_uv=False))(a),
          numpy.linalg.svd(a, compute_uv=False), rtol=1e-2)
    close(jax.jit(jnp.linalg.solve)(positive, a), numpy.linalg.solve(positive, a), atol=1e-2)


@test
def sorting():
    x = numbers(50_000)
    close(jax.jit(jnp.sort)(x), numpy.sort(x), 0, 0)


@test
def transfers():
    x = numbers(1 << 20)
    there = jax.device_put(x)
    close(numpy.asarray(there), x, 0, 0)
    donated = jax.jit(lambda v: v + 1, donate_argnums=0)(there)
    close(donated, x + 1)


harness.run(still_alive=lambda: jnp.zeros(1).block_until_ready())
