#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the Markdown pages: each relative link leads to a file or folder of the tree, and, where it names a
heading, the page has that heading; each path in backticks, such as `src/base/log.h`, exists, with or without
its suffix. Run by `./dev check` and by ctest. Prints each mistake; exit code 1 if there is one."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("api", "bench", "docs", "packaging", "src", "tests", "tools")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
PATH = re.compile(r"`((?:bench|cmake|docs|packaging|src|tests|tools)/[\w./-]+)`")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchor(heading):
    """The name that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def missing_paths(page):
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for path in PATH.findall(line):
            if not (ROOT / path).exists() and not any((ROOT / path).parent.glob(f"{Path(path).name}.*")):
                yield f"{page.relative_to(ROOT)}:{number}: no such file: {path}"


def broken_links(page):
    text = CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
    for number, line in enumerate(text.splitlines(), 1):
        for path, heading in LINK.findall(line):
            target = (page.parent / path).resolve() if path else page
            where = f"{page.relative_to(ROOT)}:{number}"
            if not target.exists():
                yield f"{where}: no such file: {path}"
            elif heading and heading not in map(anchor, HEADING.findall(target.read_text(encoding="utf-8"))):
                yield f"{where}: {target.name} has no heading #{heading}"


def main():
    pages = sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        pages += sorted((ROOT / folder).rglob("*.md"))
    found = [mistake for page in pages for check in (broken_links, missing_paths) for mistake in check(page)]
    print("\n".join(found) if found else f"links: all of {len(pages)} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
