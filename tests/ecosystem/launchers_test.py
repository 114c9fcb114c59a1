#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that Open MPI's mpirun starts share a GPU: by `openmps run`, with a daemon that the first of them starts, each in
a namespace of its own, and beside a rank that is killed. The recipes of docs/launchers.md. Needs Debian's package
openmpi-bin.

  launchers_test.py --build BUILD"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

from exporter_tools import CLIENT_LIMIT_S, Missing, eventually, require, run_test

RANKS = 4
WORK = ["drv_nbody", "512", "60"]


def results(out):
    """What the ranks have printed, in an order of its own, without times."""
    return sorted(re.sub(r" ms=[0-9.]+", "", line) for line in out.splitlines())


def mpirun(box, words, env=None, ranks=RANKS):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "-n", str(ranks), *words]
    # As a user has it: the library comes by `openmps run`.
    clean = {name: value for name, value in box.service_env().items() if name not in ("LD_LIBRARY_PATH", "OPENMPS_REQUIRED")}
    done = subprocess.run(command, env={**clean, "PATH": f"{box.build}/bin:{os.environ['PATH']}", **(env or {})}, cwd=box.tmp,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                          timeout=CLIENT_LIMIT_S, check=False)
    return done.returncode, done.stdout, done.stderr


def sessions(box):
    return {line["group"]: line["sessions"] for line in json.loads(box.control("totals --json")[1])}


def launchers(box, _build):
    if shutil.which("mpirun") is None:
        raise Missing("mpirun")
    program = box.resolve(WORK[0])
    work = [program, *WORK[1:]]

    # The first rank that finds no daemon starts one; the others find it.
    code, out, err = mpirun(box, ["openmps", "run", "--start", "--", *work])
    require(code == 0, f"openmps run --start: {code}\n{out}{err}")
    lines = results(out)
    alone = lines[::RANKS]
    require(alone and lines == sorted(alone * RANKS), f"ranks have printed different things:\n{out}")
    require(len(box.pids_named("openmps-control")) == 1, "there is not one daemon")
    eventually(lambda: sessions(box) == {None: RANKS}, lambda: f"sessions {sessions(box)}")
    box.quit()

    # Under a daemon of the machine, each rank in a namespace of its own.
    box.start_daemon()
    for line in ("server create main", *(f"namespace create rank{i} --server=main --active-thread-percentage=25" for i in range(RANKS))):
        done = subprocess.run([box.resolve("openmps-control"), *line.split()], env=box.service_env(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=CLIENT_LIMIT_S, check=False)
        require(done.returncode == 0, f"{line}: {done.stdout}")
    wrapper = box.root / "rank.sh"
    wrapper.write_text('#!/bin/sh\nexport CUDA_MPS_PIPE_DIRECTORY="$OPENMPS_SHARES/rank$OMPI_COMM_WORLD_LOCAL_RANK"\n'
                       'exec openmps run --required -- "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    shares = {"OPENMPS_SHARES": str(box.pipe / "main")}
    code, out, err = mpirun(box, [str(wrapper), *work], shares)
    require(code == 0 and results(out) == lines, f"in namespaces: {code}\n{out}{err}")
    eventually(lambda: sessions(box) == {f"rank{i}": 1 for i in range(RANKS)}, lambda: f"sessions {sessions(box)}")

    # A rank is killed: mpirun ends the others, and nobody else notices.
    killer = box.root / "killed.sh"
    killer.write_text('#!/bin/sh\nif [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then\n  "$@" & sleep 1; kill -9 $!; wait $!; exit 137\nfi\n'
                      'exec "$@"\n', encoding="utf-8")
    killer.chmod(0o755)
    code, out, err = mpirun(box, [str(wrapper), str(killer), program, "512", "100000000"], shares)
    require(code != 0, f"mpirun did not notice the killed rank: {out}{err}")
    eventually(lambda: json.loads(box.control("ps --json")[1]) == [], "ranks are still there")
    code, out, err = mpirun(box, [str(wrapper), *work], shares)
    require(code == 0 and results(out) == lines, f"after a killed rank: {code}\n{out}{err}")
    box.quit()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    return run_test(launchers, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
