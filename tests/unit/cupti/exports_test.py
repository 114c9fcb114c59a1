# SPDX-License-Identifier: Apache-2.0
"""exports_test.py <nm> <NVIDIA's libcupti.so.13> <our libraries...>: each exports NVIDIA's functions and
nothing else, with the version libcupti.so.<major> that its own name says: a program that is linked with
NVIDIA's looks for `cuptiSubscribe@libcupti.so.13`."""
import re
import subprocess
import sys
from pathlib import Path


def exported(nm, library):
    text = subprocess.run([nm, "-D", "--defined-only", library], check=True, text=True,
                          capture_output=True).stdout
    return set(re.findall(r" T (\w+@@\S+)$", text, re.M))


def main():
    nm, theirs, *ours = sys.argv[1:]
    wanted = exported(nm, theirs)
    if len(wanted) < 100:
        sys.exit(f"{theirs}: {len(wanted)} functions")
    good = True
    for library in ours:
        version = Path(library).name
        expected = {name.replace("libcupti.so.13", version) for name in wanted}
        for name in sorted(expected ^ exported(nm, library)):
            print(f"{version} and NVIDIA's differ: {name}")
            good = False
    print(f"{len(wanted)} functions")
    return not good


if __name__ == "__main__":
    sys.exit(main())
