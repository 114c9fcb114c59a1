#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is installed runs on an old glibc. Run by ctest; ends with 77, skipped, where it can't be tried.

  old_glibc_test.py symbols --build BUILD --newest 2.17
      asks for nothing of glibc that came later, and for no other library
  old_glibc_test.py root --build BUILD
      daemon, server, worker and a program in a Debian 11 root, and a program in it with a daemon outside, as in a
      container. OPENMPS_OLD_ROOT names the folder of that root, which mmdebstrap makes if it is not there; without
      this variable the test is skipped. Needs root."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e")]
from sandbox import Failure, Sandbox  # noqa: E402

SKIPPED = 77
RELEASE = "bullseye"
MAKE_LIMIT_S = 600
RUN_LIMIT_S = 60
INSTALLED = ("bin/openmps", "bin/openmps-control", "bin/openmps-server", "bin/openmps-worker", "bin/softgpu-info",
             "lib/openmps/libcuda.so.1", "lib/openmps/cupti/libcupti.so.12", "lib/openmps/cupti/libcupti.so.13",
             "lib/openmps/nvml/libnvidia-ml.so.1", "lib/softgpu/libcuda.so.1", "lib/softgpu/libsoftgpu-ptx.so")
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
# objdump -T: ... *UND* size (GLIBC_2.17) name, with or without the brackets.
NEEDS = re.compile(r"\*UND\*\s+[0-9a-f]+ +\(?GLIBC_([\d.]+)\)? +(\w+)")
PROGRAM = "old_vector_add"
EXPECTED = HERE.parent / "e2e" / "expected" / "drv_vector_add.txt"


def number(version):
    return tuple(map(int, version.split(".")))


def objdump(*words):
    return subprocess.run(["objdump", *words], check=True, capture_output=True, text=True).stdout


def symbols(build, newest):
    problems, seen = [], 0
    for name in INSTALLED:
        needs = NEEDS.findall(objdump("-T", str(build / name)))
        seen += len(needs)
        problems += [f"{name} needs {symbol} of glibc {version}" for version, symbol in needs
                     if number(version) > number(newest)]
        libraries = re.findall(r"NEEDED +(\S+)", objdump("-p", str(build / name)))
        problems += [f"{name} needs {library}" for library in libraries if library not in GLIBC]
    if not seen:
        problems.append("no symbol of glibc is needed: objdump's output is not understood")
    if problems:
        raise Failure("\n".join(problems))


def made_root():
    """The folder of the root, or None where there can't be one."""
    name = os.environ.get("OPENMPS_OLD_ROOT")
    if not name or os.geteuid() != 0:
        return None
    root = Path(name)
    if not (root / "bin").exists():
        if shutil.which("mmdebstrap") is None:
            return None
        done = subprocess.run(["mmdebstrap", "--variant=minbase", RELEASE, str(root)], capture_output=True, text=True,
                              timeout=MAKE_LIMIT_S, check=False)
        if done.returncode != 0:
            print(done.stderr)
            return None
    return root


# Seen by the program alone: /proc, /dev, and at their own paths the build and the sandbox.
ENTER = """set -e
root=$1
mount -t tmpfs tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for folder in "$2" "$3"; do mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; done
shift 3
exec chroot "$root" "$@"
"""


def in_root(root, box, words, env):
    """Runs a program of the build in the root; returns its output. Raises Failure."""
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", root, box.root,
                           box.build, *words], env=env, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    if done.returncode != 0:
        raise Failure(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}{box.logs()}")
    return done.stdout


def expect_results(output, box):
    lines = [line for line in output.splitlines() if not line.startswith("# ")]
    if lines != EXPECTED.read_text().splitlines():
        raise Failure(f"the program said\n{output}{box.logs()}")


def clients_in(root, box):
    """By LD_LIBRARY_PATH, and by `openmps run`."""
    program = box.resolve(PROGRAM)
    expect_results(in_root(root, box, [program], box.env), box)
    expect_results(in_root(root, box, [box.resolve("openmps"), "run", "--required", "--", program], box.service_env()), box)


def end(box):
    """The daemon is asked from outside, in both cases."""
    box.quit()
    left = box.leftovers()
    if left:
        raise Failure("\n".join(left))


def in_old_root(build):
    root = made_root()
    if root is None:
        print("skipped: OPENMPS_OLD_ROOT names no root, and none can be made")
        return SKIPPED
    for daemon_inside in (False, True):
        box = Sandbox(build, "openmps")
        try:
            if daemon_inside:
                control = [box.resolve("openmps-control"), "-d"]
                # It inherits no pipe of ours, whose end would be awaited.
                in_root(root, box, ["sh", "-c", f"exec {' '.join(control)} > {box.root}/daemon.txt 2>&1"], box.service_env())
            else:
                box.start_daemon()
            clients_in(root, box)
            end(box)
        finally:
            box.close()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["symbols", "root"])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--newest", metavar="VERSION")
    options = parser.parse_args()
    try:
        if options.what == "root":
            return in_old_root(options.build)
        symbols(options.build, options.newest)
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
