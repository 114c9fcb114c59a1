# SPDX-License-Identifier: Apache-2.0
"""What the tests of openmps-kubernetes share: a sandbox with two simulated GPUs, openmps-kubernetes and what it says,
containers of podman, and what a program in one of them sees.

Used by kubernetes_test.py and its cases, on one thread.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path

from container_scenarios import Container, Podman
from fake_kubelet import LIMIT_S, stubs
from sandbox import Failure, Sandbox, wait_until
from scenario_tools import CLIENT_LIMIT_S, Skipped, require

PROTOS = Path(__file__).resolve().parents[2] / "src" / "kubernetes" / "proto"
SERVER = "kubernetes"
GPUS, SMS, MEMORY_MIB, RESERVED_MIB = 2, 8, 8192, 1024
MIB = 1 << 20
# The chart's container: root without capabilities.
WITHOUT_RIGHTS = (shutil.which("setpriv"), "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
# --user: without -m a server is for root alone.
DAEMON = ("-m",)


class Program:
    """openmps-kubernetes, and what it says."""

    def __init__(self, box, words):
        self.box, self.words, self.log = box, words, box.root / "kubernetes.log"
        self.child = None

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            words = [*WITHOUT_RIGHTS, self.box.resolve("openmps-kubernetes"), *map(str, self.words)]
            self.child = self.box.start(words, {"LD_LIBRARY_PATH": ""}, stdout=log, stderr=log)

    def says(self, text, times=1):
        def said():
            if self.child.poll() is not None:
                raise Failure(f"openmps-kubernetes has ended: {self.child.returncode}")
            return self.log.read_text().count(text) >= times
        require(wait_until(said, LIMIT_S), f"openmps-kubernetes does not say '{text}' {times} times")

    def end(self, how=signal.SIGTERM):
        self.child.send_signal(how)
        return self.child.wait(timeout=LIMIT_S)


class World:
    """program: set by the cases."""

    def __init__(self, build):
        self.box = Sandbox(build, "openmps", extra_env={"SOFTGPU_DEVICES": str(GPUS)})
        self.podman, self.program, self.undo = None, None, []

    def __enter__(self):
        box = self.box
        try:
            box.resolve("openmps-kubernetes")
        except Failure:
            raise Skipped("openmps-kubernetes is not built; cmake says what is missing") from None
        for tool in ("protoc", "grpc_python_plugin"):
            if shutil.which(tool) is None:
                raise Skipped(f"there is no {tool}")
        os.chmod(box.root, 0o755)  # for containers in user namespaces
        made = box.root / "stubs"
        made.mkdir()
        stubs(PROTOS, made)
        self.podman = Podman(box, ["drv_limited", "drv_sm_share", "drv_group_memory"])
        return self

    def __exit__(self, kind, *_):
        if kind is not None and self.program is not None:
            print(f"{self.box.logs()}--- openmps-kubernetes\n{self.program.log.read_text()}")
        for undo in reversed(self.undo):
            undo()
        if self.podman:
            self.podman.close()
        self.box.close()

    def finish(self):
        """In order, with nothing left."""
        require(self.program.end() == 0, f"the exit status is {self.program.child.returncode}")
        self.box.quit()
        left = self.box.leftovers()
        require(not left, "\n".join(left))

    def namespaces(self):
        code, text = self.box.control("namespace list --format=json")
        require(code == 0, f"namespace list: {text}")
        return {row["name"]: row for row in json.loads(text) if row["server"] == SERVER and row["name"] != "default"}

    def container(self, *options):
        return Container(self.podman, *options)


def seen_in(container, env=None):
    """What a program in the container is told: (SMs, MiB, result of an allocation of 1 MiB)."""
    child = container.start(["drv_limited"], env)
    out, err = child.communicate("go\n", CLIENT_LIMIT_S)
    found = re.search(r"sms (\d+) mem \(\d+, (\d+)\)", out)
    require(found, f"in a container: exit code {child.returncode}\n{out}{err}")
    return int(found[1]), int(found[2]) / MIB, re.search(r"ALLOC (\S+)", out)[1]


def sms_of_kernels(text):
    """Of drv_sm_share's output: how many SMs it was told, and the numbers of those that kernels ran on."""
    told = [line for line in text.splitlines() if line.startswith("# told")][-1].split()
    return int(told[2]), set(map(int, told[4:]))
