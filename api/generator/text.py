# SPDX-License-Identifier: Apache-2.0
"""Helpers that every emitter uses: file heads, argument lists, calls on behalf of variants."""

COLUMNS = 100


def head(what, pragma=False, source="api/*.toml by api/generate.py"):
    lines = ["// SPDX-License-Identifier: Apache-2.0", f"// Generated from {source}; do not edit."]
    lines += [f"// {line}" for line in what.splitlines()]
    return "\n".join(lines) + ("\n#pragma once\n\n" if pragma else "\n\n")


def signature(function, name=None, attributes=""):
    """'CUresult name(params)', wrapped."""
    start = f"{attributes}CUresult {name or function.symbol}("
    return wrap(start, [p.declaration for p in function.params], ")")


def wrap(start, items, end):
    """start item, item end, broken at commas to stay within COLUMNS; 4 more columns inside."""
    line = start + ", ".join(items) + end
    if len(line) <= COLUMNS - 2:
        return line
    indent = " " * (len(start) - len(start.lstrip()) + 4)
    lines, current = [], start
    for index, item in enumerate(items):
        piece = item + (end if index == len(items) - 1 else ",")
        if len(current) + len(piece) + 1 > COLUMNS - 2:
            lines.append(current.rstrip())
            current = indent
        current += piece + " "
    lines.append(current.rstrip())
    return "\n".join(lines)


def derived_body(function, call, scope):
    """Statements that run `call`'s function for a variant or an alias.

    `scope` is the class that marks the calling thread while a per-thread variant runs.
    """
    arguments = [p.name for p in function.params]
    lines = []
    if function.per_thread:
        streams = [p for p in function.params if p.type == "CUstream" and p.direction == "handle"]
        if streams:
            arguments = [f"{p.name} ? {p.name} : CU_STREAM_PER_THREAD" if p in streams else p.name
                         for p in function.params]
        elif function.stream_field:
            name, _, member = function.stream_field.partition(".")
            pointee = next(p.pointee for p in function.params if p.name == name)
            lines += [f"  if ({name} == nullptr) return CUDA_ERROR_INVALID_VALUE;",
                      f"  {pointee} per_thread_{name} = *{name};",
                      f"  if (per_thread_{name}.{member} == nullptr)",
                      f"    per_thread_{name}.{member} = CU_STREAM_PER_THREAD;"]
            arguments = [f"&per_thread_{name}" if a == name else a for a in arguments]
        else:
            lines.append(f"  {scope} per_thread;")
    lines.append(wrap(f"  return {call}(", arguments, ");"))
    return "\n".join(lines)


def write_if_changed(path, text):
    """Leaves the time stamp of an unchanged file alone, so that nothing is rebuilt for it."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    except OSError:
        pass
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
