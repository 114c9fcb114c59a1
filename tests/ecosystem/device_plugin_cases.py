# SPDX-License-Identifier: Apache-2.0
"""The device plugin, with a kubelet that speaks the published APIs (fake_kubelet.py), a real daemon, and containers that
are run with what the plugin has answered. The cases come one after the other.

Called by kubernetes_test.py, on its only thread.
"""

import json
import shutil
import signal
from pathlib import Path

import grpc

from container_scenarios import HARDENED, REMAPPED, Member
from fake_kubelet import MAX_ID, FakeKubelet
from kubernetes_world import (DAEMON, GPUS, MEMORY_MIB, RESERVED_MIB, SMS, Program, World, seen_in, sms_of_kernels)
from sandbox import Failure
from scenario_tools import finish, kill_daemon, require

RESOURCE = "openmps.org/gpu.shared"
SHARES = 4
SHARE_SMS, SHARE_MIB = SMS // SHARES, (MEMORY_MIB - RESERVED_MIB) // SHARES
COLLECT_AFTER_S = 2


def gpu_of(device):
    return device.split("::")[0]


class PluginWorld(World):
    def __enter__(self):
        super().__enter__()
        box = self.box
        self.kubelet = FakeKubelet(box.root / "plugins", box.root / "pods.sock")
        self.undo.append(self.kubelet.stop)
        self.program = Program(box, ["device-plugin", "--resource", RESOURCE, "--shares", SHARES, "--plugin-directory",
                                     self.kubelet.directory, "--pod-resources", self.kubelet.pod_resources,
                                     "--collect-after", COLLECT_AFTER_S])
        return self

    def container_of(self, answer, *options):
        mounts = [f"--volume={mount.host_path}:{mount.container_path}:{'ro' if mount.read_only else 'rw'}"
                  for mount in answer.mounts]
        return self.container(*mounts, *(f"--env={name}={value}" for name, value in answer.envs.items()), *options)


def named(answer):
    """The namespace that an answer mounts."""
    return next(Path(mount.host_path).name for mount in answer.mounts if mount.container_path == "/run/openmps")


def worth(shares):
    return shares * SHARE_SMS, shares * SHARE_MIB, "CUDA_SUCCESS"


def refused(call, code, words):
    try:
        answer = call()
    except grpc.RpcError as error:
        require((error.code(), words in error.details()) == (code, True),
                f"refused with {error.code()}: {error.details()}; not with {code}: {words}")
        return
    raise Failure(f"not refused ({words}): {answer}")


def registration(world):
    """Whatever comes first: the plugin, the kubelet, the daemon."""
    world.kubelet.directory.mkdir()
    world.program.start()
    world.program.says("unhealthy: ")
    require(not list(world.kubelet.directory.iterdir()), "a socket without anything to offer")
    world.box.start_daemon(options=DAEMON)
    world.program.says(f"{GPUS} GPUs, {SHARES} shares of each: healthy")
    world.kubelet.start()
    world.kubelet.wait_for_devices("Healthy", GPUS * SHARES)
    kubelet = world.kubelet
    require((kubelet.resource, kubelet.registrations) == (RESOURCE, 1), f"{kubelet.resource} {kubelet.registrations}")
    require(kubelet.options.get_preferred_allocation_available and kubelet.options.pre_start_required,
            f"options: {kubelet.options}")
    require(all(len(device) <= MAX_ID for device in kubelet.devices), f"IDs: {kubelet.devices}")
    socket = kubelet.directory / "openmps.org-gpu.shared.sock"
    require(socket.stat().st_mode & 0o077 == 0, f"others may use {socket}: {oct(socket.stat().st_mode)}")


def preferences(world):
    kubelet = world.kubelet
    free = kubelet.free()
    two = kubelet.prefer(free, 2)
    require(len(set(map(gpu_of, two))) == 1, f"two shares are of two GPUs: {two}")
    rest = [device for device in free if device not in two]
    require(gpu_of(kubelet.prefer(rest, 2)[0]) == gpu_of(two[0]), "the GPU that has just room enough is not preferred")
    require(len(set(map(gpu_of, kubelet.prefer(rest, 3)))) == 1, "three shares do not go where there is room")
    require(kubelet.prefer(rest, 1, must=[two[0]]) == [two[0]], "what must be there is not")
    require(sorted(kubelet.prefer(rest, len(rest))) == rest, "not all that is there")


def wrong_requests(world):
    kubelet, wrong = world.kubelet, grpc.StatusCode.INVALID_ARGUMENT
    one = kubelet.free()[0]
    refused(lambda: kubelet.allocate(["GPU-0::0"]), wrong, "this node has no share GPU-0::0")
    refused(lambda: kubelet.allocate([f"{gpu_of(one)}::{SHARES}"]), wrong, "this node has no share")
    refused(lambda: kubelet.allocate([one, one]), wrong, f"share {one} is there twice")
    refused(lambda: kubelet.allocate(["a\n" * 100]), wrong, "is no share of a GPU")
    refused(lambda: kubelet.allocate([]), wrong, "there are no shares in the request")
    refused(lambda: kubelet.pre_start([]), wrong, "there are no shares in the request")
    refused(lambda: kubelet.prefer([one], 2), wrong, "2 shares are wanted of 1")
    refused(lambda: kubelet.prefer(["x"], 1), wrong, "'x' is no share of a GPU")
    require(world.namespaces() == {}, f"a wrong request has left {world.namespaces()}")


def shares_add_up(world):
    """What programs in containers see and get, whatever they ask for."""
    kubelet = world.kubelet
    for pod, count in (("one", 1), ("three", 3)):
        ids, answer = kubelet.admit(pod, count)
        kubelet.pre_start(ids)
        require(answer.envs["CUDA_VISIBLE_DEVICES"] == gpu_of(ids[0]), f"{pod}: {answer.envs}")
        require(all(mount.read_only for mount in answer.mounts), f"{pod}: {answer.mounts}")
        names = {Path(mount.container_path).name for mount in answer.mounts}
        require({"libcuda.so.1", "libnvidia-ml.so.1"} < names, f"{pod} has no library of CUDA or NVML: {answer.mounts}")
        inside = world.container_of(answer)
        require(seen_in(inside) == worth(count), f"{pod}: {seen_in(inside)}, not {worth(count)}")
        said = finish(inside.start(["drv_sm_share"], {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}), f"kernels of {pod}")
        told, seen = sms_of_kernels(said)
        require(told == count * SHARE_SMS >= len(seen), f"{pod}: told {told}, on {seen}")
    # The other GPU is there for who asks for it, but there is nothing to be had.
    other = next(gpu for gpu in map(gpu_of, kubelet.devices) if gpu != gpu_of(kubelet.pods["one", "main"][0]))
    sms, mib, allocated = seen_in(world.container_of(kubelet.allocate(kubelet.pods["one", "main"])), {"CUDA_VISIBLE_DEVICES": other})
    require(sms <= SHARE_SMS and mib < 1 and allocated == "CUDA_ERROR_OUT_OF_MEMORY", f"the other GPU: {sms} {mib} {allocated}")
    kubelet.end("three")

    ids = [device for device in kubelet.free() if gpu_of(device) == other][:2]
    ids += [device for device in kubelet.free() if gpu_of(device) != other][:1]
    inside = world.container_of(kubelet.admit("several", ids=ids)[1])
    for gpu, count in ((gpu_of(ids[0]), 2), (gpu_of(ids[2]), 1)):
        require(seen_in(inside, {"CUDA_VISIBLE_DEVICES": gpu}) == worth(count), f"of two GPUs, {gpu}")
    kubelet.end("several")


def several_containers(world):
    """Three pods at once, each with its own budget: of root, of another user, and with `hostUsers: false`."""
    kubelet = world.kubelet
    pods = {"root": (), "user": ("--user=1000", *HARDENED), "mapped": REMAPPED}
    members = [Member(world.container_of(kubelet.admit(pod, 1)[1], *options)) for pod, options in pods.items()]
    for member in members:
        member.expect(("take 1000", "ok"), ("take 1000", "out of memory"))
    groups = {client["group"] for client in json.loads(world.box.control("ps --json")[1])}
    require(len(groups) == 3 and groups <= set(world.namespaces()), f"groups {groups} of {set(world.namespaces())}")
    for member in members:
        member.end()
    for pod in pods:
        kubelet.end(pod)


def daemon_ends(world):
    """After `quit` nothing is left of the namespaces: they come back with the next start of their container."""
    kubelet = world.kubelet
    ids = kubelet.pods["one", "main"]
    answer = kubelet.allocate(ids)
    world.box.quit()
    kubelet.wait_for_devices("Unhealthy", GPUS * SHARES)
    unavailable = grpc.StatusCode.UNAVAILABLE
    refused(lambda: kubelet.allocate(ids), unavailable, "openmps.control")
    refused(lambda: kubelet.pre_start(ids), unavailable, "openmps.control")
    world.box.start_daemon(options=DAEMON)
    kubelet.wait_for_devices("Healthy", GPUS * SHARES)
    require(world.namespaces() == {}, f"the next daemon has {world.namespaces()}")
    kubelet.pre_start(ids)
    require(seen_in(world.container_of(answer)) == worth(1), "a container that is started again")


def daemon_is_killed(world):
    kubelet = world.kubelet
    answer = kubelet.allocate(kubelet.pods["one", "main"])
    member = Member(world.container_of(answer))
    member.expect(("take 1000", "ok"))
    before = world.namespaces()
    kill_daemon(world.box)
    kubelet.wait_for_devices("Unhealthy", GPUS * SHARES)
    world.box.start_daemon(options=DAEMON)
    kubelet.wait_for_devices("Healthy", GPUS * SHARES)
    require(world.namespaces() == before, f"{world.namespaces()}, before: {before}")
    member.expect(("take 1000", "out of memory"))
    second = Member(world.container_of(answer))
    second.expect(("take 1000", "out of memory"), ("take 500", "ok"))
    second.end()
    member.end()


def kubelet_starts_again(world):
    """It empties its directory, or somebody removes that with all that is in it."""
    kubelet, before = world.kubelet, world.namespaces()
    for empties in (lambda: None, lambda: shutil.rmtree(kubelet.directory)):
        registrations = kubelet.registrations
        kubelet.stop()
        empties()
        kubelet.start()
        kubelet.wait_for_devices("Healthy", GPUS * SHARES)
        require(kubelet.registrations == registrations + 1, f"{kubelet.registrations - registrations} registrations")
    require(named(kubelet.allocate(kubelet.pods["one", "main"])) in before, f"{before} became {world.namespaces()}")


def plugin_starts_again(world):
    kubelet = world.kubelet
    ids = kubelet.pods["one", "main"]
    answer = kubelet.allocate(ids)
    member = Member(world.container_of(answer))
    for how, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
        registrations = kubelet.registrations
        require(world.program.end(how) == code, f"the plugin has ended with {world.program.child.returncode}")
        kubelet.wait_for("no plugin", lambda: kubelet.plugin is None)
        left = [path.name for path in kubelet.directory.iterdir() if path.name != "kubelet.sock"]
        require(how == signal.SIGKILL or left == [], f"an end in order has left {left}")
        world.program.start()
        kubelet.wait_for_devices("Healthy", GPUS * SHARES)
        require(kubelet.registrations == registrations + 1, "not registered once")
        require(named(answer) in world.namespaces(), "a running pod has lost its namespace")
    member.expect(("take 1000", "ok"))
    member.end()


def pods_end(world):
    """A namespace goes when the kubelet lists its pod no more and it has no clients; others stay."""
    kubelet, plugin = world.kubelet, world.program
    answers = {pod: kubelet.admit(pod, 1)[1] for pod in ("ended", "working", "idle")}
    working = Member(world.container_of(answers["working"]))
    working.expect(("take 10", "ok"))
    kubelet.wait_for_list()
    kubelet.stop_pod_resources()
    plugin.says("namespaces are not collected: ")
    # Never listed: that may be an init container.
    answers["unseen"] = kubelet.admit("unseen", 1)[1]
    kubelet.end("unseen")
    kubelet.start_pod_resources()
    plugin.says("namespaces are collected again")
    names = {pod: named(answer) for pod, answer in answers.items()}
    kubelet.end("ended")
    kubelet.end("working")
    plugin.says(f"namespace {names['ended']} is removed: no container has its shares")
    plugin.says(f"namespace '{names['working']}' has 1 clients")
    require(names["ended"] not in world.namespaces(), "it is still there")
    for pod in ("working", "idle", "unseen"):
        require(names[pod] in world.namespaces(), f"the namespace of the pod '{pod}' has gone")
    working.expect(("take 10", "ok"))
    working.end()
    plugin.says(f"namespace {names['working']} is removed")
    require(names["idle"] in world.namespaces() and names["unseen"] in world.namespaces(), "too many are removed")


CASES = (registration, preferences, wrong_requests, shares_add_up, several_containers, daemon_ends, daemon_is_killed,
         kubelet_starts_again, plugin_starts_again, pods_end)



def run(build):
    with PluginWorld(build) as world:
        for case in CASES:
            case(world)
            print(f"device-plugin {case.__name__}: passed", flush=True)
        world.finish()
