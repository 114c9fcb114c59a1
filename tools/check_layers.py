#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks how the files under src/ lean on each other. Run by `./dev check` and by ctest. Prints
each violation; exit code 1 if there is one.

Layers: each folder of src/ includes only the layers that MAY_USE gives it, and paths are written
relative to src/.

Rooms: each folder inside a layer, at any depth, includes only the rooms of that layer that ROOMS
gives it. "device/graphs" is a room beside "device", not a part of it.

Reaching through: a file of a room named in NO_REACHING_THROUGH uses what its object was given, and
not the members of that object's members: core_.cold->gate.enter() is wrong, core_.gate.enter() is
right. What it needs is passed to its constructor instead.

Circles: no file depends on itself by way of others. A .h, .cc and .inc of one name are one file.
A depends on B if
  - A includes B, or
  - with --objects BUILD: what was compiled from A needs a symbol that only B, in the same layer,
    defines. That finds what includes hide: a function that A.cc defines and B.h declares makes
    everybody who calls it depend on A. The symbols are nm's global ones that are not weak, so
    inline functions, templates, and calls through pointers or virtual functions don't count.
Without --objects includes decide alone: `./dev check` needs no build. ctest gives its build tree
where sources are compiled one by one (preset asan, which `./dev nightly` builds), so there circles of
calls fail as well. Generated code and tests are left out of this rule."""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
# layer -> layers that it may include besides itself. docs/architecture.md explains the table.
MAY_USE = {
    "cuda": set(),
    "base": {"cuda"},
    "cupti": {"cuda", "base"},
    "interop": {"cuda", "base"},
    "wire": {"cuda", "base"},
    "driver": {"cuda", "base"},
    "client": {"cuda", "base", "cupti", "interop", "wire", "driver"},
    "worker": {"cuda", "base", "cupti", "wire", "driver", "nvml"},
    "server": {"cuda", "base", "wire"},
    "control": {"cuda", "base", "wire"},
    "observe": {"cuda", "base", "wire"},
    "exporter": {"cuda", "base", "wire", "observe"},
    "cli": {"cuda", "base", "cupti", "wire", "observe"},
    "kubernetes": {"cuda", "base", "wire", "observe"},
    "nvml": {"cuda", "base"},
    "share_nvml": {"cuda", "base", "wire", "observe", "nvml"},
    "softgpu": {"cuda", "base", "cupti", "interop", "nvml"},
    "oldlibc": set(),
}
# layer -> room -> rooms of that layer that it may include besides itself. "" has the files that are
# in no folder; a layer that is not listed has no folders.
ROOMS = {
    "client": {
        "": set(),
        "link": {""},
        "memory": {"", "link"},
        "graphs": {"", "link", "memory"},
        "context": {"", "link", "memory", "graphs"},
        "session": {"", "link", "memory", "graphs", "context"},
        "entry": {"", "link", "memory", "graphs", "context", "session"},
    },
    "worker": {
        "device": set(),
        "admission": {"device"},
        "partitions": {"device", "admission"},
        "images": {"device"},
        "printing": {"device"},
        "recording": {"device"},
        "core": {"device", "admission", "partitions", "recording"},
        "memory": {"device", "partitions", "core"},
        "ipc": {"device", "memory"},
        "streams": {"device", "admission", "core", "memory"},
        "code": {"device", "images", "printing", "core", "memory", "streams"},
        "work": {"device", "admission", "recording", "core", "memory", "streams", "code"},
        "graphs": {"device", "core", "memory", "streams", "code", "work"},
        "session": {"device", "admission", "partitions", "images", "printing", "recording", "core",
                    "memory", "ipc",
                    "streams", "code", "work", "graphs"},
        "process": {"device", "recording", "memory", "streams", "session"},
    },
    "softgpu": {
        "": set(),
        "fatbin": {"ptx"},
        "ptx": set(),
        "ir": {"", "ptx"},
        "interp": {"", "ptx", "ir"},
        "tier": {"", "ptx", "ir", "interp"},
        "compile": {"", "fatbin", "ptx", "ir", "interp", "tier"},
        "device/machine": {""},
        "device": {"", "ptx", "device/machine"},
        "device/schedule": {"", "device/machine", "device"},
        "device/contexts": {"", "device/machine", "device", "device/schedule"},
        "device/memory": {"", "device/machine", "device", "device/schedule", "device/contexts"},
        "device/work": {"", "device/machine", "device", "device/schedule", "device/contexts",
                        "device/memory"},
        "device/graphs": {"", "device", "device/schedule", "device/contexts", "device/work"},
        "device/issue": {"", "device", "device/schedule", "device/contexts", "device/memory",
                         "device/work", "device/graphs"},
        "device/lifetime": {"", "device/machine", "device", "device/schedule", "device/contexts",
                            "device/memory", "device/work", "device/graphs"},
        "front": {"", "fatbin", "ptx", "device/machine", "device", "device/schedule",
                  "device/contexts", "device/memory", "device/work", "device/graphs",
                  "device/issue", "device/lifetime"},
        "nvml": {"device/machine"},
        "tools": {"", "device/machine"},
    },
}
# layer -> rooms whose files may not reach through what they were given.
NO_REACHING_THROUGH = {
    "worker": {"admission", "partitions", "images", "printing", "recording", "core", "memory", "ipc", "streams", "code",
               "work", "graphs"},
}
# Layers that may include the generated headers, spelled "api/...".
USES_API = {"interop", "wire", "driver", "client", "worker", "softgpu"}

SUFFIXES = (".h", ".cc", ".inc")
# A chain of at least three names behind a member: a_.b.c.d, a_->b.c->d. A call ends a chain.
THROUGH = re.compile(r"\b\w+_(?:(?:\.|->)\w+){3,}")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield f"{path.relative_to(ROOT)}:{number}", match.group(1)


def sources(folder):
    return [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES]


# Layers.

def layer_violations(path, layer, may_use):
    for where, target in includes(path):
        first = target.split("/")[0]
        if target.startswith("../") or "/../" in target:
            yield f"{where}: includes are relative to src/: \"{target}\""
        elif first == "api":
            if layer not in USES_API:
                yield f"{where}: {layer} may not include generated headers: \"{target}\""
        elif first in MAY_USE and first != layer and first not in may_use:
            yield f"{where}: {layer} may not include {first}: \"{target}\""
        elif "/" not in target and SRC in path.parents:
            yield f"{where}: includes are relative to src/: \"{target}\""


def check_layers():
    for folder in sorted(SRC.iterdir()):
        layer = folder.name
        if not folder.is_dir():
            continue
        if layer not in MAY_USE:
            yield f"src/{layer}: a folder without a rule in {Path(__file__).name}"
            continue
        for path in sources(folder):
            yield from layer_violations(path, layer, MAY_USE[layer])
        for path in sources(ROOT / "tests/unit" / layer):
            yield from layer_violations(path, layer, MAY_USE[layer] | {layer})


# Rooms.

def room_of(path):
    """Layer and room of a path relative to src/."""
    return path.parts[0], "/".join(path.parts[1:-1])


def check_rooms():
    for path in sources(SRC):
        layer, room = room_of(path.relative_to(SRC))
        rooms = ROOMS.get(layer, {"": set()})
        if room not in rooms:
            yield f"{path.relative_to(ROOT)}: {Path(__file__).name} has no rule for {layer}/{room}"
            continue
        for where, target in includes(path):
            other_layer, other = room_of(Path(target))
            if other_layer == layer and other != room and other not in rooms[room]:
                yield f"{where}: {layer}/{room} may not include {layer}/{other}: \"{target}\""


# Reaching through.

def check_reaching_through():
    for layer, rooms in NO_REACHING_THROUGH.items():
        for path in sources(SRC / layer):
            if room_of(path.relative_to(SRC))[1] not in rooms:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for chain in THROUGH.findall(line.split("//")[0]):
                    yield f"{path.relative_to(ROOT)}:{number}: reaches through what it was given: {chain}"


# Circles.

def unit(path):
    """The name that a .h and its .cc share, relative to src/."""
    return path.with_suffix("").as_posix()


def include_edges(edges):
    for path in sources(SRC):
        for where, target in includes(path):
            one, other = unit(path.relative_to(SRC)), unit(Path(target))
            if one != other and (SRC / target).exists():
                edges[one].setdefault(other, f"{where} includes it")


def objects_by_unit(build):
    """Object files whose source is there, by unit."""
    found = defaultdict(list)
    for path in sorted((build / "src").rglob("*.o")):
        # BUILD/src/LAYER/CMakeFiles/TARGET.dir/ROOM/FILE.cc.o is of src/LAYER/ROOM/FILE.cc.
        parts = path.relative_to(build / "src").parts
        at = parts.index("CMakeFiles")
        source = Path(*parts[:at], *parts[at + 2:]).with_suffix("")
        if ".." not in source.parts and (SRC / source).exists():
            found[unit(source)].append(path)
    return found


def symbols(objects):
    """What each unit needs and defines."""
    needs, defines = defaultdict(set), defaultdict(set)
    units = {str(path): name for name, paths in objects.items() for path in paths}
    listing = subprocess.run(["nm", "-A", "-P", "-g", *units], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    for line in listing.splitlines():
        path, symbol, kind = line.split()[:3]
        name = units[path.removesuffix(":")]
        if kind == "U":
            needs[name].add(symbol)
        elif kind.isupper() and kind not in "WV":
            defines[symbol].add(name)
    return needs, defines


def symbol_edges(edges, objects):
    needs, defines = symbols(objects)
    for one, wanted in needs.items():
        for symbol in sorted(wanted):
            owners = {name for name in defines[symbol] if name.split("/")[0] == one.split("/")[0]}
            if len(owners) == 1 and one not in owners:
                edges[one].setdefault(owners.pop(), f"{one} needs its {symbol}")


def circles(edges):
    """The strongly connected components of more than one unit (Tarjan's algorithm)."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(one):
        number[one] = lowest[one] = len(number)
        stack.append(one)
        for other in edges.get(one, ()):
            if other not in number:
                visit(other)
                lowest[one] = min(lowest[one], lowest[other])
            elif other in stack:
                lowest[one] = min(lowest[one], number[other])
        if lowest[one] == number[one]:
            at = stack.index(one)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for one in sorted(edges):
        if one not in number:
            visit(one)
    return found


def demangled(text):
    try:
        return subprocess.run(["c++filt"], input=text, text=True, stdout=subprocess.PIPE,
                              check=True).stdout
    except FileNotFoundError:
        return text


def check_circles(build):
    edges = defaultdict(dict)
    include_edges(edges)
    objects = objects_by_unit(build) if build is not None else {}
    if objects:
        symbol_edges(edges, objects)
    for circle in circles(edges):
        lines = [f"circle of {len(circle)} files:"]
        lines += [f"  {one} -> {other}: {reason}" for one in circle
                  for other, reason in sorted(edges[one].items()) if other in circle]
        yield demangled("\n".join(lines)).rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=Path, metavar="BUILD",
                        help="a build tree, for dependencies by symbol")
    build = parser.parse_args().objects
    found = [*check_layers(), *check_rooms(), *check_reaching_through(), *check_circles(build)]
    print("\n".join(found) if found else "layers: every include follows the tables, nothing is reached through, no circles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
