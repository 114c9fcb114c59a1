# SPDX-License-Identifier: Apache-2.0
"""Reads api/*.toml into Function objects and refuses, with file and line, what is malformed.

api/README.md is the prose for the format; this file is its definition.
"""
import dataclasses
import os
import re
import tomllib

from .emit_calls import CALLED, ENTER, REFUSE

# Opaque handle types.
HANDLE_TYPES = (
    "CUcontext", "CUmodule", "CUfunction", "CUlibrary",
    "CUkernel", "CUarray", "CUmipmappedArray", "CUtexref",
    "CUsurfref", "CUevent", "CUstream", "CUgraphicsResource",
    "CUexternalMemory", "CUexternalSemaphore", "CUgraph", "CUgraphNode",
    "CUgraphExec", "CUmemoryPool", "CUuserObject", "CUgraphDeviceNode",
    "CUasyncCallbackHandle", "CUgreenCtx", "CUlinkState", "CUdevResourceDesc",
    "CUlogsCallbackHandle", "CUmemGenericAllocationHandle",
)

DIRECTIONS = ("in", "out", "inout", "handle", "new", "release", "string", "buffer", "address",
              "opaque", "device")

KEYS = {"since": int, "also": dict, "stream_field": str, "local": bool, "softgpu": bool, "doc": str,
        "reason": str, "result": str, "params": list, "enter": str, "refuse": str, "get": (str, dict),
        "returns": str, "first": list}

# A symbol, and what a program calls it in cuGetProcAddress.
SYMBOL_PATTERN = re.compile(r"(?P<name>cu[A-Z]\w*?)(?:_v\d+)?(?P<per_thread>_ptsz|_ptds)?")
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
    """A symbol. One that is derived, in `also` of another, has everything but its `since` from that."""
    symbol: str
    since: int
    family: str
    path: str
    line: int
    local: bool = False
    softgpu: bool = False
    doc: str = ""
    reason: str = ""
    result: str = "CUDA_ERROR_NOT_SUPPORTED"
    params: tuple = ()
    base: str | None = None  # the symbol whose implementation this one uses
    stream_field: str | None = None
    enter: str | None = None  # how the generated implementation begins
    refuse: str | None = None  # what open captures forbid
    first: tuple = ()  # parameters that may not be NULL, whatever else is wrong
    get: dict = dataclasses.field(default_factory=dict)  # out-parameter: what it is
    returns: str | None = None  # all that it does

    @property
    def name(self):
        return SYMBOL_PATTERN.fullmatch(self.symbol)["name"]

    @property
    def per_thread(self):
        """NULL as a stream means the calling thread's own."""
        return SYMBOL_PATTERN.fullmatch(self.symbol)["per_thread"] is not None

    @property
    def is_stub(self):
        return self.reason != ""

    @property
    def cls(self):
        return "stub" if self.is_stub else "local" if self.local else "service"


class Lines:
    """The line of a table, a key or a parameter in a file, which tomllib does not report.

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
        return self.find(symbol, rf"^\s*{re.escape(key)}\s*[.=]")

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
    """Functions of all files in the order of the files, derived ones behind their base."""
    functions = {}
    where = {}
    for path in paths:
        shown, text, tables = read_toml(path)
        lines = Lines(text)
        family = os.path.splitext(os.path.basename(path))[0]
        for symbol, table in tables.items():
            if not isinstance(table, dict):
                raise DescriptionError(shown, lines.key("", symbol),
                                       f"'{symbol}' is outside of any [symbol] table")
            where[symbol] = lines
            for function in _read_table(shown, family, symbol, table, lines):
                if function.symbol in functions:
                    other = functions[function.symbol]
                    raise DescriptionError(shown, function.line, f"{function.symbol} is described "
                                           f"twice, first at {other.path}:{other.line}")
                functions[function.symbol] = function
    _check_names(functions)
    for symbol, lines in where.items():
        _check_calls(functions[symbol], functions, lines)
    return list(functions.values())


def _read_table(path, family, symbol, table, lines):
    """The function of a table, then those that it is also."""
    def fail(line, message):
        raise DescriptionError(path, line, f"{symbol}: {message}")

    if not SYMBOL_PATTERN.fullmatch(symbol):
        fail(lines.table(symbol), "a symbol starts with 'cu' and a capital letter")
    for key, value in table.items():
        if key not in KEYS:
            fail(lines.key(symbol, key), f"unknown key '{key}'")
        types = KEYS[key] if isinstance(KEYS[key], tuple) else (KEYS[key],)
        if type(value) not in types:
            fail(lines.key(symbol, key),
                 f"'{key}' must be of type {' or '.join(t.__name__ for t in types)}")
    for key in ("since", "params"):
        if key not in table:
            fail(lines.table(symbol), f"'{key}' is missing")
    _check_since(table["since"], lines.key(symbol, "since"), fail)
    function = Function(symbol, table["since"], family, path, lines.table(symbol))
    _read_function(function, table, lines, fail)
    return [function] + _read_also(function, table, lines.key(symbol, "also"), fail)


def _check_since(since, line, fail):
    if type(since) is not int or since < 2000:
        fail(line, f"{since} is no CUDA version (major * 1000 + minor * 10, from 2000)")


def _read_function(function, table, lines, fail):
    symbol = function.symbol
    if ("doc" in table) == ("reason" in table):
        fail(lines.table(symbol), "'doc' says what it does, or 'reason' why it is a stub: one line of prose")
    function.doc = table.get("doc", "")
    function.reason = table.get("reason", "")
    function.local = table.get("local", False)
    function.softgpu = table.get("softgpu", not function.is_stub)
    function.result = table.get("result", function.result)
    for key in (("local", "softgpu", "enter", "first", "refuse", "get", "returns") if function.is_stub
                else ("result",)):
        if key in table:
            fail(lines.key(symbol, key),
                 f"'{key}' is for {'no stub' if function.is_stub else 'stubs only'}")
    function.params = tuple(_read_param(symbol, text, lines, fail) for text in table["params"])
    _check_params(function, table["params"], lines, fail)
    if "stream_field" in table:
        function.stream_field = table["stream_field"]
        name, _, member = function.stream_field.partition(".")
        if name not in [p.name for p in function.params] or not member:
            fail(lines.key(symbol, "stream_field"),
                 f"stream_field '{function.stream_field}' is no parameter.member")
    _read_implementation(function, table, lines, fail)


def _read_implementation(function, table, lines, fail):
    """`enter`, `refuse`, `get` and `returns`: what is generated of the implementation."""
    symbol = function.symbol
    function.enter, function.returns = table.get("enter"), table.get("returns")
    function.refuse = table.get("refuse")
    function.first = tuple(table.get("first", ()))
    nullable = [p.name for p in function.params
                if p.is_pointer or p.direction in ("handle", "release", "opaque")]
    if not set(function.first) <= set(nullable):
        fail(lines.key(symbol, "first"), f"'first' is of {', '.join(nullable) or 'nothing'}")
    if function.enter is not None and function.enter not in ENTER:
        fail(lines.key(symbol, "enter"), f"enter '{function.enter}' is none of {', '.join(ENTER)}")
    streams = [p for p in function.params if p.type == "CUstream" and p.direction == "handle"]
    if function.enter == "stream" and len(streams) != 1:
        fail(lines.key(symbol, "enter"), "enter 'stream' needs one 'handle CUstream'")
    if function.refuse is not None and function.refuse not in REFUSE:
        fail(lines.key(symbol, "refuse"),
             f"refuse '{function.refuse}' is none of: {'; '.join(REFUSE)}")
    for key in ("get", "refuse", "first"):
        if key in table and not function.enter:
            fail(lines.key(symbol, key), f"'{key}' needs 'enter'")
    if (function.refuse or "unsafe") != "unsafe" and function.enter not in ("stream", "context"):
        fail(lines.key(symbol, "refuse"), "'capturing' is what enter 'stream' or 'context' finds")
    if function.refuse == "capturing, at last" and ("get" in table or function.returns):
        fail(lines.key(symbol, "refuse"), "'at last' is behind a handler")
    if "get" in table and function.returns:
        fail(lines.key(symbol, "returns"), "what has 'get' returns CUDA_SUCCESS")
    if "get" in table:
        outputs = [p.name for p in function.params if p.direction in ("out", "new")]
        get = table["get"]
        function.get = {outputs[0]: get} if type(get) is str and len(outputs) == 1 else get
        if type(function.get) is str or set(function.get) != set(outputs):
            fail(lines.key(symbol, "get"), f"'get' is not for {', '.join(outputs) or 'nothing'}")


def _read_also(function, table, line, fail):
    """What `also` names: older symbols of the same function, and per-thread variants of each."""
    also = table.get("also", {})
    derived = []
    for symbol, since in also.items():
        match = SYMBOL_PATTERN.fullmatch(symbol)
        if not match or match["name"] != function.name:
            fail(line, f"'{symbol}' is no symbol of '{function.name}'")
        _check_since(since, line, fail)
        # An alias leads to the table's symbol; a variant to the symbol without the suffix.
        base = symbol.removesuffix(match["per_thread"]) if match["per_thread"] else function.symbol
        if base != function.symbol and base not in also:
            fail(line, f"'{symbol}' is a variant of '{base}', which is not here")
        derived.append(dataclasses.replace(function, symbol=symbol, since=since, line=line, base=base))
    return derived


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
        if param.direction == "device" and param.type != "CUdevice":
            refuse("a device is a 'CUdevice'")
        if param.length is not None and not param.is_pointer:
            refuse("only a pointer has a length")
    for param, text in zip(function.params, texts):
        counter = LENGTH_PATTERN.match(param.length)["name"] if param.length else None
        if counter is not None and (counter not in names or names[counter].direction != "in"
                                    or names[counter].is_pointer):
            fail(lines.text(function.symbol, text),
                 f"parameter '{text}': length '{counter}' is no 'in' number of this function")


def _check_calls(function, functions, lines):
    for symbol in CALLED.findall(function.returns or ""):
        if symbol not in functions:
            raise DescriptionError(function.path, lines.key(function.symbol, "returns"),
                                   f"{function.symbol}: '{symbol}' is not described")


def _check_names(functions):
    seen = {}
    for function in functions.values():
        key = (function.name, function.since, function.per_thread)
        if key in seen:
            raise DescriptionError(function.path, function.line, f"{function.symbol}: name "
                                   f"'{function.name}' since {function.since} is already "
                                   f"{seen[key].symbol}")
        seen[key] = function
