# SPDX-License-Identifier: Apache-2.0
"""exports_test.py <nm> <library of ours> <toolkit's stub>: both export the same cu* symbols."""
import re
import subprocess
import sys


def exported(nm, library):
    text = subprocess.run([nm, "-D", "--defined-only", library], check=True, text=True,
                          capture_output=True).stdout
    return set(re.findall(r" [TW] (cu\w+)$", text, re.M))


def main():
    nm, ours, stub = sys.argv[1:]
    expected, found = exported(nm, stub), exported(nm, ours)
    for symbol in sorted(expected - found):
        print(f"{ours} lacks {symbol}")
    for symbol in sorted(found - expected):
        print(f"{ours} exports {symbol}, which {stub} does not have")
    print(f"{len(found)} symbols")
    return found != expected


if __name__ == "__main__":
    sys.exit(main())
