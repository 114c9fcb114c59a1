# SPDX-License-Identifier: Apache-2.0
"""The driver for dynamic resource allocation, with a kubelet and an API server that speak the published APIs
(fake_dra.py), a real daemon, and containers that are given the claims' CDI devices. The cases come one after the other.

Called by kubernetes_test.py, on its only thread.
"""

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

from container_scenarios import Member
from fake_dra import NODE_UID, TOKEN, FakeApiServer, FakeDraKubelet
from fake_kubelet import LIMIT_S
from kubernetes_world import DAEMON, GPUS, MEMORY_MIB, RESERVED_MIB, SMS, Program, World, seen_in, sms_of_kernels
from sandbox import wait_until
from scenario_tools import CLIENT_LIMIT_S, finish, kill_daemon, require

NODE = "node-1.example"
DRIVER = "gpu.openmps.org"
# Podman 4 looks here and in /etc/cdi.
CDI = Path("/run/cdi")
GIB_MIB = 1024
SM_STEP = 2


class DraWorld(World):
    def __enter__(self):
        super().__enter__()
        root = self.box.root
        (root / "registry").mkdir()
        token = root / "token"
        token.write_text(TOKEN + "\n")
        self.api = FakeApiServer(NODE)
        self.api.start()  # its port is known from here on
        self.api.stop()
        self.undo.append(self.api.stop)
        self.kubelet = FakeDraKubelet(root / "registry")
        self.program = Program(self.box, ["dra", "--node", NODE, "--registry-directory", root / "registry",
                                          "--plugin-directory", root / "plugins", "--cdi-directory", CDI, "--api-server",
                                          self.api.url(), "--token-file", token])
        self.uids, self.gpus = {}, []
        self.undo.append(self.remove_cdi_files)
        return self

    def remove_cdi_files(self):
        for uid in self.uids.values():
            self.cdi_file(uid).unlink(missing_ok=True)

    def cdi_file(self, uid):
        return CDI / f"openmps.org-claim-{uid}.json"

    def claim(self, name, parts, *configs):
        """Allocates a claim that is not prepared yet."""
        self.uids[name] = str(uuid.uuid4())
        self.api.allocate(name, self.uids[name], parts, NODE, configs)

    def prepare(self, name):
        """The claim's container, with the device that the driver names."""
        answer = self.kubelet.prepare(name, self.uids[name])
        require(answer.error == "", f"claim {name}: {answer.error}")
        ids = {device for one in answer.devices for device in one.cdi_device_ids}
        require(ids == {f"openmps.org/claim={self.uids[name]}"}, f"claim {name}: {ids}")
        return answer, self.container("--device", ids.pop())

    def refused(self, name, words):
        answer = self.kubelet.prepare(name, self.uids[name])
        require(words in answer.error and not answer.devices, f"claim {name}: {answer}, not: {words}")
        require(not self.cdi_file(self.uids[name]).exists() and self.namespace(name) not in self.namespaces(),
                f"claim {name} was refused and has left something")

    def unprepare(self, name):
        require(self.kubelet.unprepare(name, self.uids[name]) == "", f"claim {name} can't be given back")

    def namespace(self, name):
        return f"claim-{self.uids[name]}"

    def partitions(self):
        return [row["name"] for row in json.loads(self.box.control("sm-partition list --format=json")[1])]

    def wait_for_devices(self, count):
        require(wait_until(lambda: len(self.api.devices()) == count, LIMIT_S),
                f"{len(self.api.devices())} devices are offered, not {count}")


def offers(world):
    """Whatever comes first: the driver, the API server, the daemon."""
    world.program.start()
    world.program.says("unhealthy: ")
    world.program.says("the ResourceSlice is not published: ")
    world.api.start()
    world.box.start_daemon(options=DAEMON)
    world.wait_for_devices(GPUS)
    world.gpus = sorted(world.api.devices())
    one, = world.api.slices.values()
    require(one["metadata"]["ownerReferences"][0]["uid"] == NODE_UID, f"it is not the node's: {one['metadata']}")
    require((one["spec"]["driver"], one["spec"]["nodeName"]) == (DRIVER, NODE), f"{one['spec']}")
    for device in world.api.devices().values():
        require(device["allowMultipleAllocations"] is True, f"{device}")
        memory = f"{(MEMORY_MIB - RESERVED_MIB) // GIB_MIB}Gi"
        require((device["capacity"]["memory"]["value"], device["capacity"]["sms"]["value"]) == (memory, str(SMS)), f"{device}")
    socket = world.kubelet.find()
    require(world.kubelet.info.name == DRIVER, f"{world.kubelet.info}")
    world.program.says(f"registered {DRIVER}")
    for path in (socket, Path(world.kubelet.info.endpoint)):
        require(path.stat().st_mode & 0o077 == 0, f"others may use {path}")


def claim_is_a_namespace(world):
    """3 GiB and 4 SMs; and a second claim of the same GPU."""
    gpu = world.gpus[0]
    world.claim("quarter", [(gpu, "3Gi", "4")])
    answer, inside = world.prepare("quarter")
    device, = answer.devices
    require((device.request_names, device.pool_name, device.device_name) == (["r0"], NODE, gpu), f"{device}")
    require(device.share_id.startswith("share-"), f"{device}")
    require(world.prepare("quarter")[0] == answer, "prepared again, it is another")
    require(seen_in(inside) == (4, 3 * GIB_MIB, "CUDA_SUCCESS"), f"{seen_in(inside)}")
    told, seen = sms_of_kernels(finish(inside.start(["drv_sm_share"], {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}), "kernels"))
    require(told == 4 >= len(seen), f"told {told}, on {seen}")
    world.claim("rest", [(gpu, "1536Mi", "2")])
    member = Member(inside)
    neighbour = Member(world.prepare("rest")[1])
    for one, fits, too_much in ((member, 3000, 100), (neighbour, 1500, 100)):
        one.expect((f"take {fits}", "ok"), (f"take {too_much}", "out of memory"))
    member.end()
    neighbour.end()
    world.unprepare("rest")


def several_gpus(world):
    """One claim, one container, one daemon: parts of two GPUs, each with its own SMs and memory."""
    first, second = world.gpus
    world.claim("both", [(first, "2Gi", "4"), (second, "1Gi", "2"), (second, "1Gi", "2")])
    answer, inside = world.prepare("both")
    require(len(answer.devices) == 3, f"{answer}")
    require(seen_in(inside)[:2] == (4, 2 * GIB_MIB), "the first GPU of the claim is not the program's first")
    for gpu, worth in ((first, (4, 2 * GIB_MIB)), (second, (4, 2 * GIB_MIB))):
        uid = "GPU-" + gpu.removeprefix("gpu-")
        require(seen_in(inside, {"CUDA_VISIBLE_DEVICES": uid}) == (*worth, "CUDA_SUCCESS"), f"{gpu}")
    world.unprepare("both")


def configurations(world):
    """Quality, exclusive SMs, partitions of the administrator."""
    gpu = world.gpus[0]
    uid = "GPU-" + gpu.removeprefix("gpu-")
    world.claim("urgent", [(gpu, "1Gi", "2")], {"quality": "latency", "borrowSMs": True})
    world.prepare("urgent")
    row = world.namespaces()[world.namespace("urgent")]
    require((row["quality"], row["borrow-sms"]) == ("latency", "true"), f"{row}")
    world.unprepare("urgent")

    world.claim("alone", [(gpu, "1Gi", "4")], {"exclusive": True})
    world.claim("other", [(gpu, "1Gi", "4")])
    inside, outside = world.prepare("alone")[1], world.prepare("other")[1]
    require(world.partitions() == [world.namespace("alone")], f"partitions {world.partitions()}")
    holder = inside.start(["drv_sm_share", "hold"], stdin=subprocess.PIPE)
    lines = iter(holder.stdout.readline, "")
    told, own = sms_of_kernels(next((line for line in lines if line.startswith("# told")), "# told 0"))
    require(told == 4 >= len(own), f"told {told}, on {own}")
    theirs = sms_of_kernels(finish(outside.start(["drv_sm_share"]), "a neighbour"))[1]
    require(not own & theirs, f"a neighbour is on {theirs}, the exclusive SMs are {own}")
    thief = outside.start(["drv_sm_share"], {"CUDA_MPS_SM_PARTITION": f"{uid}/kubernetes.{world.namespace('alone')}"})
    out, err = thief.communicate(timeout=CLIENT_LIMIT_S)
    require(thief.returncode != 0 and "PASSED" not in out, f"a neighbour is let in: {out}{err}")
    finish_by_end_of_input(holder)
    world.unprepare("alone")
    world.unprepare("other")
    require(wait_until(lambda: not world.partitions(), LIMIT_S), f"partitions {world.partitions()} are left")

    command_says(world, f"sm-partition create large --server=kubernetes --device={uid} --chunks={6 // SM_STEP}")
    world.claim("placed", [(gpu, "1Gi", "6")], {"partition": "large"})
    require(seen_in(world.prepare("placed")[1])[0] == 6, "a claim is not in its partition")
    world.unprepare("placed")
    require(world.partitions() == ["large"], "the administrator's partition has gone")
    delete = f"sm-partition delete large --server=kubernetes --device={uid}"
    require(wait_until(lambda: world.box.control(delete)[0] == 0, LIMIT_S), "the partition can't be deleted")


def finish_by_end_of_input(child):
    out, err = child.communicate(timeout=CLIENT_LIMIT_S)
    require(child.returncode == 0, f"{child.args}: {out}{err}")


def command_says(world, line):
    code, text = world.box.control(line)
    require(code == 0, f"{line}: {text}")


def wrong_claims(world):
    gpu = world.gpus[0]
    world.claim("large", [(gpu, "9Gi", "4")])
    world.refused("large", "more than")
    world.claim("strange", [("gpu-x", "1Gi", "2")])
    world.refused("strange", "this node has no device")
    world.claim("bad", [(gpu, "1Gi", "2")], {"quality": "high"})
    world.refused("bad", "quality: expected latency, normal or best-effort")
    world.claim("typo", [(gpu, "1Gi", "2")], {"exlusive": True})
    world.refused("typo", "parameters have no 'exlusive'")
    world.claim("placed", [(gpu, "1Gi", "2")])
    world.uids["placed"] = str(uuid.uuid4())
    world.refused("placed", "the claim of that name has another UID")
    world.uids["unknown"] = str(uuid.uuid4())
    world.refused("unknown", 'resourceclaims "unknown" not found')
    answer = world.kubelet.prepare("../../nodes", "x")
    require("can't be the name of a claim" in answer.error, f"{answer}")
    answer = world.kubelet.prepare("quarter", "../x")
    require("is no UID of a claim" in answer.error, f"{answer}")
    require("is no UID of a claim" in world.kubelet.unprepare("quarter", "../x"), "that was removed")


def daemon_ends(world):
    """Nothing is offered without a daemon; the next one has the claims that are prepared."""
    version = world.api.writes
    world.box.quit()
    world.wait_for_devices(0)
    require("openmps.control" in world.kubelet.prepare("quarter", world.uids["quarter"]).error, "prepared without a daemon")
    world.claim("later", [(world.gpus[0], "1Gi", "2")])
    # A pod that ends meanwhile can do so.
    world.box.start_daemon(options=DAEMON)
    world.wait_for_devices(GPUS)
    require(world.api.writes == version + 2, f"{world.api.writes - version} writes for two changes")
    require(wait_until(lambda: world.namespace("quarter") in world.namespaces(), LIMIT_S), "its namespace is not made again")
    require(seen_in(world.container("--device", f"openmps.org/claim={world.uids['quarter']}"))[:2] == (4, 3 * GIB_MIB),
            "a container that is started again")


def daemon_is_killed(world):
    """A pod that ends while there is no daemon ends; its namespace goes when there is one again."""
    world.prepare("later")
    inside = world.container("--device", f"openmps.org/claim={world.uids['quarter']}")
    member = Member(inside)
    member.expect(("take 2000", "ok"))
    kill_daemon(world.box)
    world.unprepare("later")
    require(not world.cdi_file(world.uids["later"]).exists(), "the CDI file is left")
    world.box.start_daemon(options=DAEMON)
    world.program.says(f"namespace {world.namespace('later')} is removed: its claim is not prepared any more")
    require(set(world.namespaces()) == {world.namespace("quarter")}, f"{set(world.namespaces())}")
    member.expect(("take 2000", "out of memory"), ("take 1000", "ok"))
    member.end()


def driver_starts_again(world):
    member = Member(world.container("--device", f"openmps.org/claim={world.uids['quarter']}"))
    for how, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
        require(world.program.end(how) == code, f"the driver has ended with {world.program.child.returncode}")
        left = list(world.kubelet.registry.iterdir())
        require(how == signal.SIGKILL or not left, f"an end in order has left {left}")
        world.program.start()
        world.kubelet.find()
    # Somebody removes a socket.
    os.unlink(world.kubelet.info.endpoint)
    require(wait_until(lambda: Path(world.kubelet.info.endpoint).exists(), LIMIT_S), "its socket is not made again")
    world.kubelet.find()
    member.expect(("take 3000", "ok"), ("take 100", "out of memory"))
    member.end()
    world.prepare("quarter")


def claims_end(world):
    name = world.namespace("quarter")
    directory = world.box.pipe / "kubernetes" / name
    require(directory.is_dir(), f"{directory} is not there")
    for _ in range(2):
        world.unprepare("quarter")
        require(not directory.exists() and name not in world.namespaces(), f"{directory} is left")
        require(not world.cdi_file(world.uids["quarter"]).exists(), "the CDI file is left")
    left = list((world.box.root / "plugins" / DRIVER / "claims").iterdir())
    require(left == [], f"{left} are left")


CASES = (offers, claim_is_a_namespace, several_gpus, configurations, wrong_claims, daemon_ends, daemon_is_killed,
         driver_starts_again, claims_end)


def run(build):
    with DraWorld(build) as world:
        for case in CASES:
            case(world)
            print(f"dra {case.__name__}: passed", flush=True)
        world.finish()
