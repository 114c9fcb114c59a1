#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what clang-format leaves open, so that the whole tree is written one way. Run by `./dev check`
and by ctest. Prints each violation; exit code 1 if there is one.

Headers: those of the C library by their C++ names, <cstring> rather than <string.h>.

Guards: a std::lock_guard or std::scoped_lock is const, for nothing can be done to it.

Braces: the body of an if, else, for, while or do that has lines of its own has braces. It is sought
in what clang-format has laid out: the body is what is indented below a head that ends its line."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("api", "bench", "src", "tests")
SUFFIXES = (".h", ".cc", ".cu", ".inc")
# Included inside a namespace, behind <stddef.h> and <stdint.h>, whose C++ versions would open theirs.
C_HEADERS_ALLOWED = {"src/cuda/abi.h"}

C_HEADER = re.compile(r"#include <(assert|ctype|errno|inttypes|limits|math|setjmp|signal|stdarg|stddef|"
                      r"stdint|stdio|stdlib|string|time|wchar)\.h>")
GUARD = re.compile(r"^\s*std::(lock_guard|scoped_lock)\b")
HEAD = re.compile(r"^\s*(\} )?((else )?if( constexpr)? \(|for \(|while \(|else$|do$)")
LITERAL = re.compile(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'|//.*')
RAW_STRING = re.compile(r'R"(\w*)\(')


def code_of(lines):
    """The lines without comments, and with nothing in their strings."""
    end = None  # of a raw string that goes over several lines
    for line in lines:
        if end is not None:
            _, found, line = line.partition(end)
            if not found:
                yield ""
                continue
            end = None
        start = RAW_STRING.search(line)
        if start and f'){start[1]}"' not in line:
            end = f'){start[1]}"'
            line = line[:start.start()]
        yield LITERAL.sub('""', line).rstrip()


def indent(line):
    return len(line) - len(line.lstrip())


def is_whole_head(head):
    """Nothing is behind the condition: no brace, and no body in the same line."""
    if "(" not in head:
        return True
    depth = 0
    for at in range(head.index("("), len(head)):
        depth += (head[at] == "(") - (head[at] == ")")
        if depth == 0:
            return at == len(head) - 1
    return False


def bodies_without_braces(lines):
    """Numbers, from 0, of the lines with the heads of such bodies."""
    code = list(code_of(lines))
    for first, head in enumerate(code):
        if not HEAD.match(head):
            continue
        rest = iter(code[first + 1:])
        while head.count("(") > head.count(")"):
            head += next(rest, ")")
        if is_whole_head(head) and indent(next(filter(None, rest), "")) > indent(head):
            yield first


def violations(path):
    name = str(path.relative_to(ROOT))
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        header = C_HEADER.match(line)
        if header and name not in C_HEADERS_ALLOWED:
            yield f"{name}:{number}: <c{header[1]}>, not <{header[1]}.h>"
        if GUARD.match(line):
            yield f"{name}:{number}: a guard is const"
    for first in bodies_without_braces(lines):
        yield f"{name}:{first + 1}: a body on lines of its own has braces"


def main():
    found = [violation for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in SUFFIXES and "golden" not in path.parts
             for violation in violations(path)]
    for violation in found:
        print(violation)
    if not found:
        print("dialect: headers, guards and braces are written one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
