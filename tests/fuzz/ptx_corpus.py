# SPDX-License-Identifier: Apache-2.0
"""The seeds of ptx_fuzz and kernel_fuzz that cover the opcode table: a module for each mnemonic, a
kernel for each rule, an instruction for each alternative of each group of modifiers. make_corpus.py
writes them. The ctest entry of ptx_fuzz fails if a rule has no kernel that compiles.
"""
import itertools
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[2] / "src/softgpu/ptx/opcode_table.cc"

HEADER = """.version 8.6
.target sm_90
.address_size 64
.shared .align 16 .b8 sh[512];
.const .align 16 .b8 cc[64] = {1, 2, 3, 4};
.global .align 16 .b8 gl[256];
"""
# Registers of each width get different values in each lane. %d8: memory; %d7: a texture or surface.
PREAMBLE = """.visible .entry {name}(.param .align 16 .b8 p[64]) {{
.reg .pred %p<4>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b128 %q<9>;
.local .align 16 .b8 lo[64];
ld.param.u64 %d8, [p]; mov.u32 %r8, %tid.x; mul.lo.u32 %r1, %r8, 0x9e3779b9;
and.b32 %r2, %r8, 7; cvt.rn.f32.u32 %r3, %r8; mul.wide.u32 %d1, %r1, %r1; cvt.rn.f64.u32 %d2, %r8;
mov.u64 %d7, 0; cvt.u16.u32 %h1, %r1; mov.b16 %h2, 0x3c00; setp.lt.u32 %p1, %r8, 9; mov.u32 %r7, 0;
"""

BYTES = {"b128": 16, "e4m3x2": 2, "e5m2x2": 2, "tf32": 4, "f16x2": 4, "bf16x2": 4, "u16x2": 4,
         "s16x2": 4, "bf16": 2, "pred": 0}


def table():
    """({class: alternatives}, [(mnemonic, groups, operands)]) of opcode_table.cc."""
    text = TABLE.read_text()
    classes = {name: "".join(re.findall(r'"([^"]*)"', strings)) for name, strings in
               re.findall(r'\{"(\$\w+)",\s*((?:"[^"]*"\s*)+)\}', text)}
    rules = []
    body = text[text.index("kRules[] = {"):]
    for entry in re.findall(r'\{("\w+",.*?),\s*L::k', body[:body.index("};")], re.S):
        strings = re.findall(r'((?:"[^"]*"\s*)+)(?:,|$)', entry)
        mnemonic, groups, operands = ("".join(re.findall(r'"([^"]*)"', s)) for s in strings)
        rules.append((mnemonic, groups.split(), operands.split()))
    return classes, rules


CLASSES, RULES = table()


def alternatives(group):
    out = []
    for name in group.rstrip("?").split("|"):
        out += CLASSES[name].split("|") if name.startswith("$") else [name]
    return out


def is_type(name):
    return bool(re.fullmatch(r"(b|u|s|f)\d+(x2)?|bf16(x2)?|e4m3x2|e5m2x2|tf32|pred", name))


def variations(groups):
    """Lists of modifiers: the shortest form, and variations of it with one group changed each."""
    shortest = [None if group.endswith("?") else alternatives(group)[0] for group in groups]
    seen = set()
    for i, group in [(None, "")] + list(enumerate(groups)):
        for choice in alternatives(group) if group else [None]:
            parts = list(shortest)
            if i is not None:
                parts[i] = choice
            key = tuple(part for part in parts if part is not None)
            if key not in seen:
                seen.add(key)
                yield list(key)


def width(name):
    return BYTES.get(name) if name in BYTES else int(re.sub(r"\D", "", name)) // 8


def register(name, number):
    return "%" + {0: "p", 1: "h", 2: "h", 4: "r", 8: "d", 16: "q"}[width(name)] + str(number)


def memory(mnemonic, parts):
    where = set(parts)
    if mnemonic in ("txq", "suq"):
        return "[%d7]"
    if where & {"shared", "shared::cta", "shared::cluster"} or mnemonic == "mbarrier" or "mbarrier" in where:
        return "[sh+16]"
    if where & {"param", "param::entry", "param::func"}:
        return "[p+16]"
    return "[lo+16]" if "local" in where else "[cc+16]" if "const" in where else "[%d8+16]"


SHAPES = ("1d", "2d", "3d", "a1d", "a2d", "cube", "acube")  # as kernel_fuzz.cc numbers them


def texel(parts):
    surface = parts[0] in ("b", "p")
    x = "%r7" if surface and "trap" in parts else "%r2" if surface or parts[-1] != "f32" else "%r3"
    layer = "%r7" if "trap" in parts else "%r2"
    shape = next(part for part in parts if part in SHAPES)
    return {"1d": f"[%d7, {{{x}}}]", "2d": f"[%d7, {{{x}, {x}}}]", "3d": f"[%d7, {{{x}, {x}, {x}, {x}}}]",
            "a1d": f"[%d7, {{{layer}, {x}}}]", "a2d": f"[%d7, {{{layer}, {x}, {x}, {x}}}]",
            "cube": f"[%d7, {{{x}, {x}, {x}, {x}}}]",
            "acube": f"[%d7, {{{layer}, {x}, {x}, {x}}}]"}[shape]


def gradient(parts):
    shape = next(part for part in parts if part in SHAPES)
    count = {"1d": 1, "a1d": 1, "2d": 2, "a2d": 2}.get(shape, 4)
    return "{" + ", ".join(["%r3"] * count) + "}"


def bulk_operands(parts):
    """Operands of cp.async.bulk and its variants: destination, source, the mbarrier that they
    complete on, and what the modifiers ask for."""
    shared, memory, barrier, size = "[sh+16]", "[%d8+32]", "[sh+8]", "32"
    if "commit_group" in parts:
        return []
    if "wait_group" in parts:
        return ["0"]
    rank = next((int(part[0]) for part in parts if re.fullmatch(r"\dd", part)), 0)
    if rank:
        tensor = "[%d8, {" + ", ".join(["%r2"] * rank) + "}]"
        out = [tensor] if "prefetch" in parts else [tensor, shared] if "bulk_group" in parts \
            else [shared, tensor, barrier]
        if "im2col" in parts and rank > 2:
            out.append("{" + ", ".join(["%h1"] * (rank - 2)) + "}")
    elif "prefetch" in parts:
        out = [memory, size]
    elif "bulk_group" in parts:
        out = [memory, shared, size]
    else:
        out = [shared, memory if "global" in parts else "[sh+64]", size, barrier]
    if "multicast::cluster" in parts:
        out.append("%h1")
    if "L2::cache_hint" in parts:
        out.append("%d2")
    return out


def vector(name, parts, first=1):
    count = next((int(part[1]) for part in parts if part in ("v2", "v4", "v8")), 1)
    members = [register(name, first + i % 4) for i in range(count)]
    return members[0] if count == 1 else "{" + ", ".join(members) + "}"


IMMEDIATE = {"lop3": "0x96", "cp": "16", "applypriority": "128", "discard": "128", "pmevent": "1",
             "setmaxnreg": "32"}


def operands(mnemonic, letters, parts):
    types = [part for part in parts if is_type(part)] or ["b32"]
    if mnemonic in ("prmt", "bmsk", "szext", "shf"):
        types = [types[0]]
    if "pack" in parts:
        types = ["b32"]
    if mnemonic == "cp" and "bulk" in parts:
        return bulk_operands(parts)
    out = []
    sources = 0
    for letter in letters:
        kind, optional = letter[0], letter.endswith("?")
        if optional and not wants_optional(mnemonic, kind, parts, sources):
            continue
        if kind == "D":
            out.append(register(types[0], 4))
        elif kind == "S":
            sources += 1
            out.append(source(mnemonic, types, sources))
        elif kind == "P":
            out.append("%p2")
        elif kind == "Q":
            out.append("%p1")
        elif kind == "M":
            seen = sum(1 for one in out if one.startswith("["))
            out.append("[%d8+32]" if mnemonic == "cp" and seen else memory(mnemonic, parts))
        elif kind == "T":
            out.append(texel(parts))
        elif kind == "W" and "grad" in parts:
            out.append(gradient(parts))
        elif kind in "VW":
            out.append(vector(types[0], parts, 4 if kind == "V" else 1))
        elif kind == "X" and mnemonic in ("bar", "barrier"):
            out.append("64")
        elif kind == "L":
            out.append("$next")
        else:
            out.append(IMMEDIATE.get(mnemonic, "0"))
    return out


def source(mnemonic, types, number):
    if mnemonic == "createpolicy":
        return "%d2" if types[0] == "b64" and number == 1 else "32"
    if mnemonic in ("bar", "barrier"):
        return "1" if number == 1 else "64"
    if mnemonic in ("vote", "match", "redux", "elect") and number == (1 if mnemonic in ("vote", "elect") else 2):
        return "-1"
    if mnemonic == "shfl":
        return ["%r1", "1", "31", "-1"][number - 1]
    if mnemonic == "nanosleep":
        return "20"
    name = types[-1] if mnemonic in ("cvt", "set", "slct") and (mnemonic != "slct" or number == 3) else types[0]
    if mnemonic in ("mbarrier", "fns", "mov"):
        return register("b32", 2) if mnemonic != "mbarrier" else "%r8"
    if name in ("f64", "f32"):
        return {"f64": ["%d2", "%d2", "%d1"], "f32": ["%r3", "%r3", "%r1"]}[name][number - 1]
    return register(name, 1 + number % 2)


def wants_optional(mnemonic, kind, parts, sources):
    if mnemonic in ("ld", "st"):
        return "L2::cache_hint" in parts
    if mnemonic in ("setp", "set"):
        return bool({"and", "or", "xor"} & set(parts))
    if mnemonic == "atom":
        return "cas" in parts and sources == 1
    if mnemonic == "tex":
        return "level" in parts
    if mnemonic == "cvt":
        return parts[-1] == "f32" and parts[-2].endswith("x2")
    if mnemonic == "mbarrier":
        return "arrive" not in parts and "arrive_drop" not in parts or "expect_tx" in parts
    return mnemonic in ("bar", "barrier")


def atomics(mnemonic):
    """The operations with the types that they take."""
    integers = ("u32", "s32", "u64", "s64")
    floats = ("f16", "bf16", "f16x2", "bf16x2")
    for operation, types in (("add", ("u32", "s32", "u64", "f32", "f64") + floats),
                             ("min", integers + floats), ("max", integers + floats),
                             ("inc", ("u32",)), ("dec", ("u32",)), ("and", ("b32", "b64")),
                             ("or", ("b32", "b64")), ("xor", ("b32", "b64")),
                             ("exch", ("b32", "b64", "b128")), ("cas", ("b16", "b32", "b64", "b128"))):
        if mnemonic == "red" and operation in ("exch", "cas"):
            continue
        yield from ((operation, name) for name in types)


INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "bf16", "f32", "f64")


def conversions():
    for to, of in itertools.product(INTEGERS, INTEGERS):
        yield [to, of]
        if to != of:
            yield ["sat", to, of]
    for to, of in itertools.product(INTEGERS, FLOATS):
        yield ["rzi", to, of]
    for mode in ("rni", "rmi", "rpi"):
        yield from ([mode, "s32", of] for of in FLOATS)
    for to, of in itertools.product(FLOATS, INTEGERS):
        yield ["rn", to, of]
    for to, of in itertools.product(FLOATS, FLOATS):
        yield ["rn", to, of] if width(to) < width(of) else [to, of]
    for mode in ("rz", "rm", "rp"):
        yield from ([mode, "f32", "f64"], [mode, "f32", "u64"], [mode, "f16", "f32"])
    for mode in ("rni", "rzi", "rmi", "rpi"):
        yield from ([mode, name, name] for name in ("f32", "f64"))
    yield from (["sat", "f32", "f32"], ["ftz", "sat", "f32", "f64"], ["rn", "relu", "f16", "f32"],
                ["rn", "relu", "bf16", "f32"], ["rna", "tf32", "f32"])


def packed_conversions():
    for to in ("f16x2", "bf16x2"):
        yield from (["rn", to, "f32"], ["rz", to, "f32"], ["rn", "relu", to, "f32"],
                    ["rn", "relu", "satfinite", to, "f32"])
    for to in ("e4m3x2", "e5m2x2"):
        yield from (["rn", "satfinite", to, "f32"], ["rn", "satfinite", to, "f16x2"],
                    ["rn", "satfinite", "relu", to, "f32"], ["rn", "f16x2", to],
                    ["rn", "relu", "f16x2", to])
    yield from (["rn", "tf32", "f32"], ["rz", "relu", "tf32", "f32"],
                ["rn", "satfinite", "tf32", "f32"])


def written(mnemonic, groups, letters):
    """The instructions of a rule."""
    if mnemonic in ("atom", "red") and groups[0] != "async":
        for operation, name in atomics(mnemonic):
            noftz = ["noftz"] if name in ("f16", "bf16", "f16x2", "bf16x2") else []
            for where in ("global", "shared", "shared::cluster"):
                yield [where, operation, *noftz, name]
        yield ["relaxed", "gpu", "global", "add", "u32"]
        yield ["add", "u32"]
        return
    if mnemonic == "cvt" and groups[0] != "pack":
        yield from conversions() if len(groups) > 5 else packed_conversions()
        return
    if mnemonic in ("setp", "set"):
        head = [] if mnemonic == "setp" else ["u32"]
        yield from ([name, *head, "f32"] for name in UNORDERED)
        yield from (["lt", "and", "ftz", *head, "f32"], ["lo", *head, "u64"], ["hs", *head, "u16"])
    for parts in variations(groups):
        if not runs(mnemonic, parts):
            continue
        yield parts
        # Vectors have code paths of their own, by width and space.
        if mnemonic in ("ld", "st") and is_type(parts[-1]) and len(parts) == 1:
            for where, size in itertools.product(("global", "shared", "local"), ("v2", "v4")):
                if (mnemonic, where) != ("st", "const") and width(parts[-1]) * int(size[1]) <= 16:
                    yield [where, size, parts[-1]]
            yield from ([where, parts[-1]] for where in ("global", "shared", "local"))


UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def runs(mnemonic, parts):
    """False for forms that the table accepts and the lowering refuses: as ptxas does, or because
    softgpu does not support them."""
    if mnemonic == "setp" and parts[-1] in ("f16x2", "bf16x2"):
        return False
    if mnemonic in ("setp", "set"):
        return parts[0] not in UNORDERED and "ftz" not in parts or parts[-1] == "f32"
    if mnemonic == "st":
        return not {"const", "param", "param::entry", "param::func"} & set(parts)
    if mnemonic == "cp" and "im2col" in parts and "prefetch" in parts:
        return not {"1d", "2d"} & set(parts)
    return mnemonic != "cvta" or "u32" not in parts


def extra(mnemonic, letters):
    """Instructions whose operands the letters of the rule do not express."""
    if mnemonic == "mov" and "V" in letters:
        yield "mov.b32 %r4, {%h1, %h2};\nmov.b32 {%h4, %h5}, %r1;\nmov.b64 %d4, {%r1, %r2};"
        yield "mov.b64 {%r4, _}, %d1;\nmov.b64 %d4, {%h1, %h2, %h1, %h2};\nmov.b64 {%h4, %h5, %h6, %h7}, %d1;"
        yield "mov.b128 %q1, {%d1, %d2};\nmov.b128 {%d4, %d5}, %q1;\nmov.b128 %q2, %q1;"
        yield "mov.u32 %r4, %laneid;\nmov.u64 %d4, %globaltimer;\nmov.u64 %d5, gl;\nmov.u32 %r5, %clock;"
    if mnemonic == "shfl":
        yield "shfl.sync.bfly.b32 %r4|%p2, %r1, 1, 31, -1;\nshfl.sync.idx.b32 %r4, %r1, %r2, %r8, -1;"
    if mnemonic == "match":
        yield "match.all.sync.b32 %r4|%p2, %r1, -1;"
    if mnemonic == "setp":
        yield "setp.lt.and.s32 %p2|%p3, %r1, %r2, !%p1;"
    if mnemonic in ("bar", "barrier") and "D" in letters:
        what = "popc.u32 %r4" if "S" in letters and "P" not in letters else "and.pred %p2"
        yield f"{mnemonic}.red.{what}, 0, %p1;"


MATRICES = ("mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix")
# All lanes execute these, since they wait for lanes that don't.
TOGETHER = ("bar", "barrier", "shfl", "vote", "match", "redux", "elect") + MATRICES


def fragment(count, first, kind="r"):
    return "{" + ", ".join(f"%{kind}{first + i % 3}" for i in range(count)) + "}"


def product(opcode, d, a, b, c, kind="r"):
    return (f"{opcode} {fragment(d, 4, kind)}, {fragment(a, 1, kind)}, {fragment(b, 1, kind)},"
            f" {fragment(c, 1, kind)};")


def products(mnemonic, groups):
    """Combinations of shapes and types that exist, with the registers that they need."""
    if mnemonic == "mma":
        head = "mma.sync.aligned."
        for shape, types, counts in (
                ("m16n8k16.row.col", "f32.f16.f16.f32", (4, 4, 2, 4)),
                ("m16n8k8.row.col", "f16.f16.f16.f16", (2, 2, 1, 2)),
                ("m8n8k4.col.row", "f32.f16.f16.f32", (8, 2, 2, 8)),
                ("m16n8k8.row.col", "f32.bf16.bf16.f32", (4, 2, 1, 4)),
                ("m16n8k4.row.col", "f32.tf32.tf32.f32", (4, 2, 1, 4)),
                ("m16n8k32.row.col", "f32.e4m3.e5m2.f32", (4, 4, 2, 4)),
                ("m16n8k32.row.col.satfinite", "s32.s8.u8.s32", (4, 4, 2, 4)),
                ("m8n8k32.row.col", "s32.s4.u4.s32", (2, 1, 1, 2)),
                ("m16n8k256.row.col", "s32.b1.b1.s32.xor.popc", (4, 4, 2, 4)),
                ("m8n8k128.row.col", "s32.b1.b1.s32.and.popc", (2, 1, 1, 2))):
            yield product(f"{head}{shape}.{types}", *counts)
        yield product(head + "m16n8k16.row.col.f64.f64.f64.f64", 4, 8, 4, 4, "d")
    elif "f16|f32" in groups:
        for d, c in itertools.product((("f32", 8), ("f16", 4)), repeat=2):
            yield product(f"wmma.mma.sync.aligned.row.col.m32n8k16.{d[0]}.{c[0]}", d[1], 8, 8, c[1])
    else:
        head = "wmma.mma.sync.aligned.row.col."
        yield product(head + "m16n16k16.f32.bf16.bf16.f32", 8, 4, 4, 8)
        yield product(head + "m16n16k8.f32.tf32.tf32.f32", 8, 4, 4, 8)
        yield product(head + "m8n32k16.s32.u8.u8.s32.satfinite", 8, 1, 4, 8)
        yield product(head + "m8n8k32.s32.s4.s4.s32", 2, 1, 1, 2)
        yield product(head + "m8n8k4.rn.f64.f64.f64.f64", 2, 1, 1, 2, "d")
        yield product(head + "m8n8k4.f64.f64.f64.f64.rn", 2, 1, 1, 2, "d")
        yield product("wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", 2, 1, 1, 2)


def group_products(groups):
    """wgmma: products of matrices in the first 128 bytes of shared memory, or in registers."""
    if "mma_async" not in groups:
        yield from (f"wgmma.{part}.sync.aligned{' 0' if part == 'wait_group' else ''};"
                    for part in groups[0].split("|"))
        return
    memory, registers = "%d7, %d7, %p1", fragment(4, 1) + ", %d7, 1"
    for shape, types, count, rest in (
            ("m64n8k16", "f32.f16.f16", 4, memory + ", 1, -1, 0, 1"),
            ("m64n16k16", "f16.f16.f16", 4, registers + ", -1, 1, 1"),
            ("m64n8k16", "f32.bf16.bf16", 4, registers + ", 1, 1, 0"),
            ("m64n8k8", "f32.tf32.tf32", 4, memory + ", 1, 1"),
            ("m64n8k32", "f32.e4m3.e5m2", 4, registers + ", 1, 1"),
            ("m64n24k32.satfinite", "s32.s8.u8", 12, memory),
            ("m64n8k256", "s32.b1.b1.and.popc", 4, registers)):
        yield f"wgmma.mma_async.sync.aligned.{shape}.{types} {fragment(count, 4)}, {rest};"


def matrix_moves(mnemonic, groups):
    """Moves of matrices between memory and registers, as far as they fit into the shared array."""
    if mnemonic == "movmatrix":
        yield "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r1;"
    elif mnemonic in ("ldmatrix", "stmatrix"):
        for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
            registers = fragment(count, 4 if mnemonic == "ldmatrix" else 1)
            pair = [registers, "[sh+16]"] if mnemonic == "ldmatrix" else ["[sh+16]", registers]
            yield f"{mnemonic}.sync.aligned.m8n8.x{count}{trans}.shared.b16 {', '.join(pair)};"
    elif "a|b" in groups:
        yield f"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {fragment(8, 4)}, [sh], 16;"
        yield f"wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {fragment(8, 4)}, [sh];"
        yield f"wmma.load.b.sync.aligned.row.m32n8k16.shared.u8 {fragment(1, 4)}, [sh], 8;"
        yield f"wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {fragment(1, 4)}, [sh], 64;"
        yield f"wmma.load.a.sync.aligned.col.m8n8k4.shared.f64 {fragment(1, 4, 'd')}, [sh], 8;"
    elif "load" in groups:
        yield f"wmma.load.c.sync.aligned.col.m16n16k16.shared.f16 {fragment(4, 4)}, [sh], 16;"
        yield f"wmma.load.c.sync.aligned.row.m8n8k32.shared.s32 {fragment(2, 4)}, [sh], 8;"
    else:
        yield f"wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [sh], {fragment(4, 1)}, 16;"
        yield f"wmma.store.d.sync.aligned.col.m8n8k4.shared.f64 [sh], {fragment(2, 1, 'd')}, 8;"


def kernel(name, mnemonic, groups, letters):
    if mnemonic == "call":
        lines = ["{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), f, (a);"
                 " ld.param.b32 %r4, [b]; }"]
    elif mnemonic == "brx":
        lines = ["and.b32 %r2, %r8, 1; ts: .branchtargets $a, $b; brx.idx %r2, ts; $a: add.u32 %r1, %r1, 1;"
                 " $b: add.u32 %r1, %r1, 2;"]
    elif mnemonic == "wgmma":
        lines = list(group_products(groups))
    elif mnemonic in MATRICES:
        multiplies = mnemonic == "mma" or (mnemonic == "wmma" and groups[0] == "mma")
        lines = list((products if multiplies else matrix_moves)(mnemonic, groups))
    else:
        lines = []
        # Forms that only arrive at a barrier come last, since later forms would wait for the others.
        forms = sorted(written(mnemonic, groups, letters), key=lambda parts: "arrive" in parts)
        for number, parts in enumerate(forms):
            if "T" in letters and mnemonic != "cp" or mnemonic in ("txq", "suq"):
                shape = next((SHAPES.index(part) for part in parts if part in SHAPES), 1)
                lines.append(f"mov.u64 %d7, {shape | number % 512 << 3};")
            text = ".".join([mnemonic, *parts])
            arguments = ", ".join(operands(mnemonic, letters, parts)).replace("$next", f"$l{number}")
            lines.append(f"{text} {arguments};".replace(" ;", ";"))
            if "L" in letters:
                lines.append(f"$l{number}:")
        if mnemonic not in TOGETHER and "T" not in letters:  # some lanes alone
            lines.insert(0, "@%p1 " + lines[0].replace("$l0", "$end"))
    lines += extra(mnemonic, letters)
    return PREAMBLE.format(name=name) + "\n".join(lines) + "\n$end: ret; }\n"


FUNCTION = """.func (.param .b32 r) f(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x];
add.u32 %r1, %r1, 1; st.param.b32 [r], %r1; ret; }
"""
LARGEST = 8192  # run_fuzz.py: longer inputs are cut


def seeds():
    for mnemonic, rules in itertools.groupby(RULES, key=lambda rule: rule[0]):
        text = HEADER + (FUNCTION if mnemonic == "call" else "")
        part = 0
        for number, (_, groups, letters) in enumerate(rules):
            made = kernel(f"k{number}", mnemonic, groups, letters)
            if len(text) + len(made) > LARGEST and len(text) > len(HEADER):
                yield f"op_{mnemonic}_{part}", text.encode()
                text, part = HEADER, part + 1
            text += made
        yield f"op_{mnemonic}_{part}" if part else f"op_{mnemonic}", text.encode()
