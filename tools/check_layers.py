#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each folder under src/ includes only the layers that it may use, and that includes
are written relative to src/. Run by `./dev check` and by ctest. Prints each violation; exit code 1 if
there is one."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# layer -> layers that it may include besides itself. docs/architecture.md explains the table.
MAY_USE = {
    "cuda": set(),
    "base": {"cuda"},
    "interop": {"cuda", "base"},
    "wire": {"cuda", "base"},
    "driver": {"cuda", "base"},
    "client": {"cuda", "base", "interop", "wire", "driver"},
    "worker": {"cuda", "base", "wire", "driver"},
    "server": {"cuda", "base", "wire"},
    "control": {"cuda", "base", "wire"},
    "cli": {"cuda", "base", "wire"},
    "softgpu": {"cuda", "base", "interop"},
}
# Layers that may include the generated headers, spelled "api/...".
USES_API = {"interop", "wire", "driver", "client", "worker", "softgpu"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def violations(path, layer, may_use):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1)
        where = f"{path.relative_to(ROOT)}:{number}"
        first = target.split("/")[0]
        if target.startswith("../") or "/../" in target:
            yield f"{where}: includes are relative to src/: \"{target}\""
        elif first == "api":
            if layer not in USES_API:
                yield f"{where}: {layer} may not include generated headers: \"{target}\""
        elif first in MAY_USE and first != layer and first not in may_use:
            yield f"{where}: {layer} may not include {first}: \"{target}\""
        elif "/" not in target and (ROOT / "src") in path.parents:
            yield f"{where}: includes are relative to src/: \"{target}\""


def main():
    found = []
    for folder in sorted((ROOT / "src").iterdir()):
        layer = folder.name
        if not folder.is_dir():
            continue
        if layer not in MAY_USE:
            found.append(f"src/{layer}: a folder without a rule in {Path(__file__).name}")
            continue
        for base, may_use, name in ((folder, MAY_USE[layer], layer),
                                    (ROOT / "tests/unit" / layer, MAY_USE[layer] | {layer}, layer)):
            for path in sorted(base.rglob("*")):
                if path.suffix in (".h", ".cc", ".inc"):
                    found += violations(path, name, may_use)
    print("\n".join(found) if found else "layers: every include follows the table")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
