# SPDX-License-Identifier: Apache-2.0
"""exports_test.py <nm> <library of ours> <toolkit's stub>: both export the same cu* symbols, and ours
those that NVIDIA's driver has beside them, for displays (seen in 535.309)."""
import re
import subprocess
import sys

DISPLAYS = re.compile(r"cu(GL|EGLStream|VDPAU|Graphics(GL|EGL|VDPAU))[A-Z]\w+|cuGraphicsResourceGetMappedEglFrame")
DISPLAY_SYMBOLS = 34


def exported(nm, library):
    text = subprocess.run([nm, "-D", "--defined-only", library], check=True, text=True,
                          capture_output=True).stdout
    return set(re.findall(r" [TW] (cu\w+)$", text, re.M))


def main():
    nm, ours, stub = sys.argv[1:]
    expected, found = exported(nm, stub), exported(nm, ours)
    for symbol in sorted(expected - found):
        print(f"{ours} lacks {symbol}")
    displays = {symbol for symbol in found - expected if DISPLAYS.fullmatch(symbol)}
    found -= displays
    for symbol in sorted(found - expected):
        print(f"{ours} exports {symbol}, which {stub} does not have")
    print(f"{len(found)} symbols, {len(displays)} for displays")
    return found != expected or len(displays) != DISPLAY_SYMBOLS


if __name__ == "__main__":
    sys.exit(main())
