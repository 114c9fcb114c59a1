# SPDX-License-Identifier: Apache-2.0
"""Reads api/*.toml into Function objects and refuses, with file and line, what is malformed.

api/README.md is the prose for the format; this file is its definition.
"""
import dataclasses
import os
import re
import tomllib

CLASSES = ("local", "service", "stub")

# Opaque handle types.
HANDLE_TYPES = (
    "CUcontext", "CUmodule", "CUfunction", "CUlibrary",
    "CUkernel", "CUarray", "CUmipmappedArray", "CUtexref",
    "CUsurfref", "CUevent", "CUstream", "CUgraphicsResource",
    "CUexternalMemory", "CUexternalSemaphore", "CUgraph", "CUgraphNode",
    "CUgraphExec", "CUmemoryPool", "CUuserObject", "CUgraphDeviceNode",
    "CUasyncCallbackHandle", "CUgreenCtx", "CUlinkState", "CUdevResourceDesc",
    "CUlogsCallbackHandle",
)

DIRECTIONS = ("in", "out", "inout", "handle", "new", "release", "string", "buffer", "address",
              "opaque")

ROOT_KEYS = {"name": str, "since": int, "class": str, "pending": bool, "softgpu": bool, "doc": str,
             "reason": str, "result": str, "params": list}
DERIVED_KEYS = {"name": str, "since": int, "softgpu": bool, "variant_of": str, "alias_of": str,
                "stream": str, "stream_field": str}

PARAM_PATTERN = re.compile(r"^(?P<direction>[a-z]+)(?P<optional>\?)? (?P<type>[\w ]+?\**) ?"
                           r"\b(?P<name>\w+)(?: \[(?P<length>[^\]]*)\])?$")
LENGTH_PATTERN = re.compile(r"^(?:\d+|(?P<name>[A-Za-z_]\w*)(?: [-*] \d+)?)$")


class DescriptionError(Exception):
    """A malformed description; str() is 'file:line: message'."""

    def __init__(self, path, line, message):
        super().__init__(f"{path}:{line}: {message}")


@dataclasses.dataclass(frozen=True)
class Param:
    direction: str
    optional: bool
    type: str
    name: str
    length: str | None  # of an array: a number, or what is made of a parameter

    @property
    def is_pointer(self):
        return self.type.endswith("*")

    @property
    def pointee(self):
        """The type pointed at, without const."""
        return self.type.removesuffix("*").removeprefix("const ").strip()

    @property
    def declaration(self):
        return f"{self.type} {self.name}"


@dataclasses.dataclass
class Function:
    symbol: str
    name: str
    since: int
    family: str
    path: str
    line: int
    cls: str = ""
    pending: bool = False
    softgpu: bool = False
    doc: str = ""
    reason: str = ""
    result: str = "CUDA_ERROR_NOT_SUPPORTED"
    params: tuple = ()
    variant_of: str | None = None
    alias_of: str | None = None
    stream_field: str | None = None

    @property
    def base(self):
        """The symbol whose implementation this one uses, or None."""
        return self.variant_of or self.alias_of

    @property
    def per_thread(self):
        return self.variant_of is not None

    @property
    def is_stub(self):
        return self.cls == "stub" or self.pending

    @property
    def stub_reason(self):
        return "pending" if self.pending else self.reason


class Lines:
    """Where in a file a table, a key or a parameter stands: tomllib does not say.

    `name` matches what is between the brackets of a table; its group is what the table is called.
    """

    def __init__(self, text, name=r"(\w+)"):
        self._tables = {}
        table = ""
        for number, line in enumerate(text.splitlines(), 1):
            header = re.match(rf"^\s*\[{name}\]\s*(?:#.*)?$", line)
            if header:
                table = header[1]
            self._tables.setdefault(table, []).append((number, line))

    def table(self, symbol):
        lines = self._tables.get(symbol)
        return lines[0][0] if lines else 1

    def find(self, symbol, pattern):
        for number, line in self._tables.get(symbol, ()):
            if re.search(pattern, line):
                return number
        return self.table(symbol)

    def key(self, symbol, key):
        return self.find(symbol, rf"^\s*{re.escape(key)}\s*=")

    def text(self, symbol, text):
        return self.find(symbol, re.escape(text))


def read_toml(path):
    """(path as messages show it, text, tables) of a file."""
    shown = os.path.relpath(path) if not os.path.relpath(path).startswith("..") else path
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return shown, text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(where[1]) if where else text.count("\n") + 1
        message = re.sub(r" \(at .*\)$", "", str(error))
        raise DescriptionError(shown, line, message) from None


def load(paths):
    """Functions of all files in the order of the files, derived ones completed from their base."""
    functions = {}
    lines_of = {}
    for path in paths:
        shown, text, tables = read_toml(path)
        lines = lines_of[shown] = Lines(text)
        family = os.path.splitext(os.path.basename(path))[0]
        for symbol, table in tables.items():
            if not isinstance(table, dict):
                raise DescriptionError(shown, lines.key("", symbol),
                                       f"'{symbol}' is outside of any [symbol] table")
            if symbol in functions:
                other = functions[symbol]
                raise DescriptionError(shown, lines.table(symbol), f"{symbol} is described twice, "
                                       f"first at {other.path}:{other.line}")
            functions[symbol] = _read_function(shown, family, symbol, table, lines)
    for function in functions.values():
        _complete(function, functions, lines_of[function.path])
    _check_names(functions)
    return list(functions.values())


def _read_function(path, family, symbol, table, lines):
    def fail(line, message):
        raise DescriptionError(path, line, f"{symbol}: {message}")

    if not re.fullmatch(r"cu[A-Z]\w*", symbol):
        fail(lines.table(symbol), "a symbol starts with 'cu' and a capital letter")
    derived = "variant_of" in table or "alias_of" in table
    keys = DERIVED_KEYS if derived else ROOT_KEYS
    for key, value in table.items():
        if key not in keys:
            fail(lines.key(symbol, key), f"unknown key '{key}'"
                 + (" for a variant or alias" if derived and key in ROOT_KEYS else ""))
        if type(value) is not keys[key]:
            fail(lines.key(symbol, key), f"'{key}' must be of type {keys[key].__name__}")
    for key in ("name", "since") + (() if derived else ("class", "params")):
        if key not in table:
            fail(lines.table(symbol), f"'{key}' is missing")
    function = Function(symbol, table["name"], table["since"], family, path, lines.table(symbol),
                        softgpu=table.get("softgpu", False))
    if function.since < 2000:
        fail(lines.key(symbol, "since"), f"{function.since} is no CUDA version (major * 1000 + "
             "minor * 10, from 2000)")
    if derived:
        _read_derived(function, table, lines, fail)
    else:
        _read_root(function, table, lines, fail)
    return function


def _read_derived(function, table, lines, fail):
    symbol = function.symbol
    if "variant_of" in table and "alias_of" in table:
        fail(lines.key(symbol, "alias_of"), "a symbol is a variant or an alias, not both")
    function.variant_of = table.get("variant_of")
    function.alias_of = table.get("alias_of")
    function.stream_field = table.get("stream_field")
    if function.variant_of and table.get("stream") != "per_thread":
        fail(lines.key(symbol, "stream"), "a variant needs stream = \"per_thread\"")
    if function.alias_of and ("stream" in table or "stream_field" in table):
        fail(lines.key(symbol, "stream"), "'stream' is for variants only")


def _read_root(function, table, lines, fail):
    symbol = function.symbol
    function.cls = table["class"]
    function.pending = table.get("pending", False)
    function.doc = table.get("doc", "")
    function.reason = table.get("reason", "")
    function.result = table.get("result", function.result)
    if function.cls not in CLASSES:
        fail(lines.key(symbol, "class"),
             f"class '{function.cls}' is none of {', '.join(CLASSES)}")
    if function.cls == "stub" and not function.reason:
        fail(lines.table(symbol), "a stub needs a reason")
    if function.cls != "stub" and not function.doc:
        fail(lines.table(symbol), "'doc' is missing: one line of prose")
    if function.cls != "stub" and ("reason" in table or "result" in table):
        fail(lines.table(symbol), "'reason' and 'result' are for stubs only")
    if function.pending and function.cls not in ("local", "service"):
        fail(lines.key(symbol, "pending"), "only hand-written functions can be pending")
    function.params = tuple(_read_param(symbol, text, lines, fail) for text in table["params"])
    _check_params(function, table["params"], lines, fail)


def _read_param(symbol, text, lines, fail):
    line = lines.text(symbol, text) if isinstance(text, str) else lines.key(symbol, "params")
    match = PARAM_PATTERN.match(text) if isinstance(text, str) else None
    if not match:
        fail(line, f"parameter '{text}' is not '<direction>[?] <C type> <name>[ [length]]'")
    if match["direction"] not in DIRECTIONS:
        fail(line, f"direction '{match['direction']}' is none of {', '.join(DIRECTIONS)}")
    if match["length"] is not None and not LENGTH_PATTERN.match(match["length"]):
        fail(line, f"length '{match['length']}' is none of: number, parameter, "
             "parameter - number, parameter * number")
    return Param(match["direction"], match["optional"] is not None, match["type"].strip(),
                 match["name"], match["length"])


def _check_params(function, texts, lines, fail):
    names = {}
    for param, text in zip(function.params, texts):
        def refuse(message, text=text):
            fail(lines.text(function.symbol, text), f"parameter '{text}': {message}")

        if param.name in names:
            refuse("the name is used twice")
        names[param.name] = param
        if param.direction in ("out", "inout", "new", "buffer") and not param.is_pointer:
            refuse(f"'{param.direction}' needs a pointer")
        if param.direction in ("handle", "release", "new"):
            # An array of handles is a pointer to them.
            array_or_new = param.length is not None or param.direction == "new"
            handle = param.pointee if array_or_new else param.type
            if handle not in HANDLE_TYPES:
                refuse(f"'{handle}' is no handle type")
        if param.direction == "string" and param.type != "const char*":
            refuse("a string is a 'const char*'")
        if param.direction == "buffer" and (param.type != "char*" or param.length is None):
            refuse("a buffer is a 'char*' with a length")
        if param.length is not None and not param.is_pointer:
            refuse("only a pointer has a length")
    for param, text in zip(function.params, texts):
        counter = LENGTH_PATTERN.match(param.length)["name"] if param.length else None
        if counter is not None and (counter not in names or names[counter].direction != "in"
                                    or names[counter].is_pointer):
            fail(lines.text(function.symbol, text),
                 f"parameter '{text}': length '{counter}' is no 'in' number of this function")


def _complete(function, functions, lines):
    """Gives a variant or alias what it takes from its base."""
    if function.base is None:
        return
    key = "variant_of" if function.variant_of else "alias_of"
    base = functions.get(function.base)

    def fail(line, message):
        raise DescriptionError(function.path, line, f"{function.symbol}: {message}")

    if base is None:
        fail(lines.key(function.symbol, key), f"{key} '{function.base}' is not described")
    if base.variant_of or (base.alias_of and not function.variant_of):
        fail(lines.key(function.symbol, key), f"{key} '{function.base}' is derived itself")
    root = functions.get(base.alias_of, base) if base.alias_of else base
    function.cls, function.pending, function.doc = root.cls, root.pending, root.doc
    function.reason, function.result, function.params = root.reason, root.result, root.params
    if function.stream_field:
        name = function.stream_field.partition(".")[0]
        if name not in [p.name for p in function.params] or "." not in function.stream_field:
            fail(lines.key(function.symbol, "stream_field"),
                 f"stream_field '{function.stream_field}' is no parameter.member")


def _check_names(functions):
    seen = {}
    for function in functions.values():
        key = (function.name, function.since, function.per_thread)
        if key in seen:
            raise DescriptionError(function.path, function.line, f"{function.symbol}: name "
                                   f"'{function.name}' since {function.since} is already "
                                   f"{seen[key].symbol}")
        seen[key] = function
