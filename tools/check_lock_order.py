#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the table in docs/architecture.md has the locks of src/base/lock_order.def in their order;
--fix writes it. Run by `./dev check` and by ctest. Exit code 1 if the two differ."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ORDER = ROOT / "src/base/lock_order.def"
PAGE = ROOT / "docs/architecture.md"
HEAD = "| lock | what it guards |\n|---|---|\n"
LOCK_RANK = re.compile(r'^LOCK_RANK\((\w+),\s*"([^"]*)"\)', re.MULTILINE)


def main():
    rows = "".join(f"| `{name}` | {guards} |\n" for name, guards in LOCK_RANK.findall(ORDER.read_text("utf-8")))
    page = PAGE.read_text("utf-8")
    before, found, rest = page.partition(HEAD)
    if not found or not rows:
        print(f"{PAGE.name} has no table of locks, or {ORDER.name} no locks")
        return 1
    fixed = before + HEAD + rows + re.sub(r"\A(?:\|.*\n)*", "", rest)
    if "--fix" in sys.argv[1:]:
        PAGE.write_text(fixed, "utf-8")
    elif fixed != page:
        print(f"docs/architecture.md: the order of locks is not that of {ORDER.name}: tools/check_lock_order.py --fix")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
