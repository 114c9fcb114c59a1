# SPDX-License-Identifier: Apache-2.0
"""What programs see by lib/openmps/nvml/libnvidia-ml.so.1: their share. Called by scenarios.py, on its only thread.
Needs no root: each program connects by its namespace's directory."""

import json
import subprocess
import sys
from pathlib import Path

from container_scenarios import MIB, command, make_share
from group_scenarios import Taker
from sandbox import wait_until
from scenario_tools import CLIENT_LIMIT_S, SETTLE_LIMIT_S, LiveSms, kill_daemon, ready, require

HERE = Path(__file__).resolve().parent
SUCCESS, NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED = 0, 3, 6, 9
SMALL, LARGE = "--active-thread-percentage=25 --pinned-memory-limit=0=64M", "--active-thread-percentage=50"


class Monitor:
    """A see_nvml.py that runs as long as it is asked."""

    def __init__(self, box, directory):
        library = box.build / "lib" / "openmps" / "nvml" / "libnvidia-ml.so.1"
        self.child = box.start([sys.executable, str(HERE / "see_nvml.py"), str(library)],
                               {"CUDA_MPS_PIPE_DIRECTORY": str(directory)}, stdin=subprocess.PIPE)
        ready(self.child)

    def look(self):
        self.child.stdin.write("look\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def device(self):
        seen = self.look()
        require(seen["init"] == SUCCESS and len(seen["devices"]) == 1, f"a share of one device is seen as {seen}")
        return seen["devices"][0]

    def end(self):
        said, errors = self.child.communicate(timeout=CLIENT_LIMIT_S)
        require((self.child.returncode, said, errors) == (0, "", ""), f"the monitor ends with {said}{errors}")


def seen_soon(what, look, is_so):
    """Waits until a look is as it should be: what is seen may be 0.2 s old."""
    last = []
    require(wait_until(lambda: is_so(last.append(look()) or last[-1]), SETTLE_LIMIT_S), f"{what}: {last[-1]}")
    return last[-1]


def pids(device):
    return [process["pid"] for process in device["processes"]]


def check_device(box, monitor):
    """What never changes is the device's, and the limits are the share's."""
    known = json.loads(box.control("device_query --json")[1])[0]
    seen = monitor.look()
    device = seen["devices"][0]
    require((device["name"], device["uuid"]) == (known["name"], known["uuid"]), f"{device} is not {known}")
    require(device["bus_id"].lower().endswith(known["pci"].lower()), f"{device} is not at {known['pci']}")
    require(device["capability"] == known["compute_capability"], f"{device}: not {known['compute_capability']}")
    major, minor = known["cuda_version"].split(".")
    require(seen["cuda"] == 1000 * int(major) + 10 * int(minor), f"{seen}: not CUDA {known['cuda_version']}")
    require(device["temperature"] == NOT_SUPPORTED, f"the daemon knows no temperature: {device}")
    require(device["memory"]["total"] == 64 * MIB and device["memory"]["used"] == 0, f"an empty share: {device}")
    require(device["utilization"] == {"gpu": 0, "memory": 0} and device["processes"] == [], f"an empty share: {device}")
    by_socket = Monitor(box, box.pipe)
    whole = by_socket.device()
    require(whole["memory"]["total"] == known["memory_bytes"], f"by the daemon's own socket: {whole}")
    by_socket.end()


def check_use(box, small, other, monitor):
    """Memory and processes of the share's clients, and not of others."""
    holder, stranger = Taker(box, CUDA_MPS_PIPE_DIRECTORY=str(small)), Taker(box, CUDA_MPS_PIPE_DIRECTORY=str(other))
    holder.expect(("take 40", "ok"))
    stranger.expect(("take 100", "ok"))
    device = seen_soon("a member holds 40 MiB", monitor.device, lambda seen: seen["memory"]["used"] == 40 * MIB)
    require(device["memory"]["free"] == 24 * MIB, f"of 64 MiB: {device}")
    require(pids(device) == [holder.child.pid] and device["processes"][0]["bytes"] == 40 * MIB, f"its process: {device}")
    theirs = Monitor(box, other)
    device = seen_soon("the other share", theirs.device, lambda seen: seen["memory"]["used"] == 100 * MIB)
    require(pids(device) == [stranger.child.pid], f"the other share's process: {device}")
    theirs.end()
    command(box, "namespace set small --server=main --pinned-memory-limit=0=128M")
    seen_soon("a larger limit", monitor.device, lambda seen: seen["memory"]["total"] == 128 * MIB)
    stranger.end()
    holder.end()
    seen_soon("nobody is left", monitor.device, lambda seen: seen["memory"]["used"] == 0 and pids(seen) == [])


def check_utilization(box, small, monitor):
    """The share of the share's SM-time: a program that fills the SMs which it has is seen to."""
    busy = LiveSms(box, {"CUDA_MPS_PIPE_DIRECTORY": str(small)}, (64, 20000))
    device = seen_soon("kernels run", monitor.device, lambda seen: seen["utilization"]["gpu"] > 50)
    samples = [sample for sample in device["samples"] if sample["sm"] > 0]
    require([sample["pid"] for sample in samples] == [busy.child.pid], f"the process that runs them: {device}")
    busy.end()
    seen_soon("no kernel runs", monitor.device, lambda seen: seen["utilization"]["gpu"] == 0 and
              seen["samples"] == NOT_FOUND)


def nvml_of_share(box, _):
    """By NVML a program sees its share: its limits, its use and its processes, also when the daemon is replaced."""
    early = Monitor(box, box.pipe)
    require(early.look() == {"init": DRIVER_NOT_LOADED}, "a daemon is seen before it runs")
    box.start_daemon()
    command(box, "server create main")
    seen_soon("the daemon has come", early.look, lambda seen: seen["init"] == SUCCESS)
    early.end()
    small, other = make_share(box, "small", SMALL), make_share(box, "other", LARGE)
    monitor = Monitor(box, small)
    check_device(box, monitor)
    check_use(box, small, other, monitor)
    check_utilization(box, small, monitor)

    descriptors = monitor.look()["descriptors"]
    uuid = monitor.device()["uuid"]
    kill_daemon(box)
    gone = seen_soon("the daemon is gone", monitor.look, lambda seen: seen["devices"][0]["memory"] == DRIVER_NOT_LOADED)
    require(gone["init"] == SUCCESS and gone["devices"][0]["uuid"] == uuid, f"what does not change stays known: {gone}")
    box.start_daemon()
    next_one = lambda seen: seen["devices"][0]["memory"] != DRIVER_NOT_LOADED
    memory = seen_soon("the next daemon", monitor.look, next_one)["devices"][0]["memory"]
    require((memory["total"], memory["used"]) == (128 * MIB, 0), f"the share by the next daemon: {memory}")
    require(monitor.look()["descriptors"] == descriptors, "the monitor has another number of open descriptors")
    monitor.end()
    box.quit()


NVML = (nvml_of_share,)
