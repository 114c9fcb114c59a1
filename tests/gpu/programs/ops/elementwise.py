# SPDX-License-Identifier: Apache-2.0
"""Elementwise operations: functions of one and of several tensors, types, broadcasting, layouts."""

import torch
import torch.nn.functional as F

from harness import cases, test
from torch_support import check, close, integers, sample, to_device

PLAIN = (-3.0, 3.0)
POSITIVE = (0.1, 4.0)
UNIT = (-0.95, 0.95)


@cases("unary", {
    "abs": (torch.abs, PLAIN), "acos": (torch.acos, UNIT), "acosh": (torch.acosh, (1.1, 5.0)),
    "asin": (torch.asin, UNIT), "asinh": (torch.asinh, PLAIN), "atan": (torch.atan, PLAIN),
    "atanh": (torch.atanh, UNIT), "ceil": (torch.ceil, PLAIN), "cos": (torch.cos, PLAIN),
    "cosh": (torch.cosh, PLAIN), "digamma": (torch.digamma, POSITIVE), "erf": (torch.erf, PLAIN),
    "erfc": (torch.erfc, PLAIN), "erfinv": (torch.erfinv, UNIT), "exp": (torch.exp, PLAIN),
    "expm1": (torch.expm1, PLAIN), "floor": (torch.floor, PLAIN), "frac": (torch.frac, PLAIN),
    "gelu": (F.gelu, PLAIN), "i0": (torch.i0, PLAIN),
    "leaky_relu": (F.leaky_relu, PLAIN), "lgamma": (torch.lgamma, POSITIVE),
    "log": (torch.log, POSITIVE), "log10": (torch.log10, POSITIVE), "log1p": (torch.log1p, POSITIVE),
    "log2": (torch.log2, POSITIVE), "logit": (torch.logit, (0.05, 0.95)), "mish": (F.mish, PLAIN),
    "neg": (torch.neg, PLAIN), "reciprocal": (torch.reciprocal, POSITIVE), "relu": (F.relu, PLAIN),
    "round": (torch.round, PLAIN), "rsqrt": (torch.rsqrt, POSITIVE), "selu": (F.selu, PLAIN),
    "sigmoid": (torch.sigmoid, PLAIN), "sign": (torch.sign, PLAIN), "silu": (F.silu, PLAIN),
    "sin": (torch.sin, PLAIN), "sinc": (torch.sinc, PLAIN), "sinh": (torch.sinh, PLAIN),
    "softplus": (F.softplus, PLAIN), "sqrt": (torch.sqrt, POSITIVE), "tan": (torch.tan, UNIT),
    "tanh": (torch.tanh, PLAIN), "trunc": (torch.trunc, PLAIN),
})
def unary(function, limits):
    """With gradients, then in half precision. The length is odd, so the last vector is not full."""
    check(function, sample(1027, low=limits[0], high=limits[1]), grad=True)
    check(function, sample(513, dtype=torch.float64, low=limits[0], high=limits[1]))


@test
def hardswish():
    """On the device, the factor of one sixth is a float, also in double precision."""
    check(F.hardswish, sample(1027, low=-4, high=4), grad=True)
    check(F.hardswish, sample(513, dtype=torch.float64, low=-4, high=4), tolerance=(1e-6, 1e-6))


@cases("half", {
    f"{name}_{dtype}": (function, getattr(torch, dtype))
    for dtype in ("float16", "bfloat16")
    for name, function in {"exp": torch.exp, "tanh": torch.tanh, "gelu": F.gelu, "silu": F.silu,
                           "sigmoid": torch.sigmoid, "sin": torch.sin}.items()
})
def half(function, dtype):
    check(function, sample(33, 65, dtype=dtype, low=-2, high=2), grad=True)


@cases("binary", {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "maximum": torch.maximum, "minimum": torch.minimum, "atan2": torch.atan2, "hypot": torch.hypot,
    "fmod": torch.fmod, "remainder": torch.remainder, "copysign": torch.copysign,
    "logaddexp": torch.logaddexp, "xlogy": torch.xlogy, "floor_divide": torch.floor_divide,
    "nextafter": torch.nextafter,
})
def binary(function):
    check(function, sample(31, 257, low=0.2, high=3), sample(31, 257, low=0.3, high=2, seed=1))
    check(function, sample(31, 1, low=0.2, high=3), sample(257, low=0.3, high=2))


@cases("integer", {
    "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor, "gcd": torch.gcd, "lcm": torch.lcm,
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "shift": lambda a, b: a << (b % 7),
})
def integer(function):
    for dtype in (torch.int32, torch.int64):
        check(function, sample(1000, dtype=dtype, low=1, high=9999),
              sample(1000, dtype=dtype, low=1, high=99, seed=1))


@cases("compare", {
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
})
def compare(function):
    check(function, integers(4099, high=5), integers(4099, high=5, seed=1))
    check(lambda a: function(a, 0.0), sample(1001))


@test
def where_clamp_lerp():
    a, b = sample(100, 33), sample(100, 33, seed=1)
    check(lambda x, y: torch.where(x > y, x, y * 2), a, b, grad=True)
    check(lambda x: x.clamp(-0.3, 0.4), a, grad=True)
    check(lambda x, y: torch.clamp(x, min=y), a, b)
    check(lambda x, y: torch.lerp(x, y, 0.3), a, b, grad=True)


@test
def addcmul_addcdiv():
    a, b, c = sample(999), sample(999, seed=1), sample(999, low=0.5, high=2, seed=2)
    check(lambda x, y, z: torch.addcmul(x, y, z, value=0.3), a, b, c, grad=True)
    check(lambda x, y, z: torch.addcdiv(x, y, z, value=0.3), a, b, c, grad=True)


@test
def type_promotion():
    f, i = sample(64), integers(64, high=9)
    check(lambda x, y: x + y, f, i)
    check(lambda x, y: x.double() * y, f, i)
    check(lambda x: x.to(torch.int32).to(torch.uint8), sample(64, low=0, high=200))
    check(lambda x: x.half().float(), f, tolerance=(1e-3, 1e-3))
    check(lambda x: x.bfloat16().float(), f, tolerance=(1e-2, 1e-2))


@test
def strided_operands():
    a = sample(64, 48)
    check(lambda x: x.t() + x[:48].reshape(48, 48)[:, :1], a)
    check(lambda x: x[::2, 1::3] * 2, a)
    check(lambda x: x.expand(5, 64, 48).sum(0), a)
    check(lambda x: x.permute(1, 0).contiguous().view(-1), a)


@test
def in_place():
    def chain(x):
        x.add_(1).mul_(2).sub_(0.5).div_(3).clamp_(min=0).pow_(2)
        x[3].zero_()
        x[:, 2].fill_(7)
        return x
    check(chain, sample(40, 50))


@test
def complex_numbers():
    z = sample(511, dtype=torch.complex64)
    check(lambda x: (x * x.conj()).real, z)
    check(lambda x: torch.polar(x.abs(), x.angle()), z)
    check(torch.exp, z)
    check(lambda x: torch.view_as_real(x * 2j), z)


@test
def logical():
    a, b = sample(777, dtype=torch.bool), sample(777, dtype=torch.bool, seed=1)
    check(lambda x, y: torch.logical_xor(x, y) | ~x & y, a, b)
    check(lambda x: torch.isnan(x / x) | torch.isinf(1 / x), torch.tensor([0.0, 1.0, -2.0]))
    check(lambda x: torch.nan_to_num(x / 0), torch.tensor([0.0, 1.0, -2.0]))


@test
def foreach_lists():
    tensors = [sample(n, seed=n) for n in (1, 7, 64, 1025, 40000)]
    check(lambda ts: torch._foreach_add(ts, 2.0), tensors)
    check(lambda ts: torch._foreach_mul(ts, ts), tensors)
    check(lambda ts: torch._foreach_sqrt(torch._foreach_exp(ts)), tensors)


@test
def large():
    """16 million elements, and more than 2^31 bytes of addresses between the ends of a view."""
    check(lambda x: (x * 3 + 1).sum(dtype=torch.float64), sample(1 << 24), tolerance=(1e-6, 1e-6))


@test
def empty_and_scalar():
    check(lambda x: x + 1, torch.empty(0, 5))
    check(lambda x: x * 2, torch.tensor(3.5))
    assert to_device(torch.tensor(3.5)).item() == 3.5


@test
def factories():
    for function in (lambda d: torch.arange(1000, device=d), lambda d: torch.eye(33, device=d),
                     lambda d: torch.linspace(0, 1, 333, device=d), lambda d: torch.zeros(9, device=d),
                     lambda d: torch.full((7, 7), 2.5, device=d),
                     lambda d: torch.logspace(0, 2, 50, device=d)):
        close(function(to_device(torch.zeros(1)).device), function("cpu"))
