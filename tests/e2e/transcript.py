# SPDX-License-Identifier: Apache-2.0
"""The answers of nvidia-cuda-mps-control, command by command, as observed on an H200 (CUDA 13.0, driver
580; see docs/interop.md), and a scenario that gives OpenMPS's daemon these commands and compares every byte.

{names} are values that differ from run to run and from machine to machine. Where OpenMPS's answer differs on
purpose, DIFFERENT has both answers, and docs/differences.md says why. Called by scenarios.py.
"""

import re
import subprocess
from pathlib import Path

from sandbox import Failure, wait_until

DIFFERENCES = Path(__file__).resolve().parents[2] / "docs" / "differences.md"
LIMIT_S = 60
H200 = {"SOFTGPU_SMS": "132", "SOFTGPU_MEMORY": "16G"}  # an H200's SMs: percentages give equal numbers

HEADING = f"{'Device Ordinal':16}{'PCI IDs':15}{'UUID':42}{'Name':34}Attributes\n"
DEVICE = "{device_row}\n"
PS_HEADING = f"{'PID':10}{'ID':10}{'SERVER':15}{'DEVICE':26}{'NAMESPACE':15}{'COMMAND':15}\n"

NO_DAEMON = [("get_server_list", "Cannot find MPS control daemon process\n")]  # exit code 1

NO_SERVER = [
    ("get_server_list", ""),
    ("ps", "Server not found\n"),
    ("get_default_active_thread_percentage", "100.0\n"),
    ("set_default_active_thread_percentage 25", "25.0\n"),
    ("set_default_active_thread_percentage 12.5", "12.5\n"),
    ("set_default_active_thread_percentage 0", "12.5\n"),
    ("set_default_active_thread_percentage 101", "12.5\n"),
    ("set_default_active_thread_percentage -3", "12.5\n"),
    ("set_default_active_thread_percentage abc", "12.5\n"),
    ("set_default_active_thread_percentage 99.97", "100.0\n"),
    ("get_default_active_thread_percentage", "100.0\n"),
    ("set_default_active_thread_percentage 100", "100.0\n"),
    ("set_default_active_thread_percentage", "100.0\n"),
    ("get_default_client_priority", "0\n"),
    ("set_default_client_priority 1", ""),
    ("set_default_client_priority 7", "Invalid priority value - must be 0 or 1!\n"),
    ("set_default_client_priority 0", ""),
    ("get_default_device_pinned_mem_limit 0", ""),
    ("set_default_device_pinned_mem_limit 0 1044M", ""),
    ("get_default_device_pinned_mem_limit 0", "1G\n"),
    ("set_default_device_pinned_mem_limit 0 512M", ""),
    ("get_default_device_pinned_mem_limit 0", "512M\n"),
    ("set_default_device_pinned_mem_limit 0 2X", ""),
    ("set_default_device_pinned_mem_limit 9 1G", ""),
    ("get_default_device_pinned_mem_limit 9", "1G\n"),
    ("set_default_device_pinned_mem_limit 0 0G", ""),
    ("get_default_device_pinned_mem_limit 0", ""),
    ("get_server_status 99999", "Server 99999 not found\n"),
    ("get_client_list 99999", "Server 99999 not found\n"),
    ("get_device_client_list", ""),
    ("device_query", "Default\n" + HEADING + DEVICE),
    ("device_query --csv", "Default\nDevice Ordinal,PCI IDs,UUID,Name,Attributes\n{device_csv}\n"),
    ("nonsense", 'Unknown command "nonsense"\n'),
    ("", 'Unknown command ""\n'),
    ("terminate_client 1 2", "Server 1 not found\nServer 1 not found!\n1\n"),
    ("start_server", "A user id (UID) is required to start a new server\n"),
    ("start_server -uid {uid}", ""),
]

# With a daemon that was started without static partitions.
NOT_YET = [
    ("lspart", 'Unknown command "lspart"\n'),
    ("sm_partition add GPU 2", 'Unknown command "sm_partition"\n'),
]

SERVER = [
    ("get_server_list", "{server}\n"),
    ("get_server_status {server}", "ACTIVE\n"),
    ("get_active_thread_percentage {server}", "100.0\n"),
    ("set_active_thread_percentage {server} 33", "33.0\n"),
    ("get_active_thread_percentage {server}", "33.0\n"),
    ("get_device_pinned_mem_limit {server} 0", ""),
    ("set_device_pinned_mem_limit {server} 0 3G", ""),
    ("get_device_pinned_mem_limit {server} 0", "3G\n"),
    ("get_client_list {server}", ""),
]

CLIENT = [
    ("ps", PS_HEADING + "{ps_row}\n"),
    ("ps -p {client}", "Server {client} not found\nServer {client} not found\n\n"),
    ("get_client_list {server}", "{client}\n"),
    ("get_device_client_list", "[0] {pci_short}, {name}\n{client}.1\n"),
    ("get_device_client_list {server}", "[0] {pci_short}, {name}\n{client}.1\n"),
    ("device_query {server}",
     "Default\n" + HEADING + DEVICE + "\nServer {server}\n" + HEADING + DEVICE),
    ("terminate_client {server} {client}", "0\n"),
    ("terminate_client {server} {client}", "0\n"),
    ("ps", ""),
]

# OpenMPS's answers that differ, by (command, NVIDIA's answer). Each has a row in docs/differences.md.
DIFFERENT = {
    ("terminate_client {server} {client}", "0\n"): ["0\n", "Client {client} not found!\n1\n"],
}

# The client's output: at its start, and when it has been terminated and its server shut down.
SEES = "sms 42 mem (3031293616, 150109880320)"
TERMINATED = ("EXC CUDA_ERROR_MPS_CLIENT_TERMINATED", "ALLOC CUDA_ERROR_MPS_CLIENT_TERMINATED")
SHUT_DOWN = ("EXC CUDA_ERROR_MPS_RPC_FAILURE", "ALLOC CUDA_ERROR_OUT_OF_MEMORY")
DIFFERENT_SEES = {SEES: "sms 42 mem ({free}, 3221225472)",
                  SHUT_DOWN[1]: "ALLOC CUDA_ERROR_MPS_RPC_FAILURE"}

# control.log after `quit -t 2`. On a slow machine the daemon asks less often.
QUIT_LOG = r"""quit command issued with timeout of 2
Try shutting down server {server}, backoff is disabled
Server {server} has \d+ active worker threads\. Server will not shutdown\.
Control will try shutting down server {server} again in at most 200ms
(?:Try shutting down server {server}, backoff is enabled
Server {server} has \d+ active worker threads\. Server will not shutdown\.
Control will try shutting down server {server} again in at most (?:400|800|1600)ms
)*Try shutting down server {server}, backoff is disabled
Server {server} has \d+ active worker threads\. Server will not shutdown\.
Force shutting down server {server}
Server {server} exited with status 0
Exit with status 0
"""


class Conversation:
    """Commands to the daemon of a sandbox, and the values of the {names} there."""

    def __init__(self, box):
        self.box = box
        self.names = {}
        self.given = {}  # how often each command of DIFFERENT was given

    def fill(self, text):
        return re.sub(r"\{(\w+)\}", lambda match: str(self.names[match.group(1)]), text)

    def ask(self, lines, exit_code=0):
        for command, answer in lines:
            wanted = answer
            if (command, answer) in DIFFERENT:
                times = self.given[command] = self.given.get(command, 0) + 1
                wanted = DIFFERENT[command, answer][times - 1]
            got = self.box.control(self.fill(command), LIMIT_S)
            if got != (exit_code, self.fill(wanted)):
                raise Failure(f"$ {self.fill(command)}\nexpected: exit code {exit_code}, "
                              f"{self.fill(wanted)!r}\ngot:      exit code {got[0]}, {got[1]!r}")

    def learn_device(self):
        """The device, as its driver names it."""
        code, out, err = self.box.run(["drv_limited", "device"], LIMIT_S)
        if code != 0:
            raise Failure(f"drv_limited device: exit code {code}\n{out}{err}")
        pci, uuid, name = out.rstrip("\n").split("\t")
        domain, bus, device, function = re.fullmatch(r"(\w+):(\w+):(\w+)\.(\w+)", pci).groups()
        long_pci = f"{domain}:{bus}.{device}.{int(function):02x}"
        self.names.update(
            name=name, uuid=uuid, pci_short=f"{domain[-2:]}:{bus}.{function}",
            device_row=f"{0:<16}{long_pci:15}{uuid:42}{name:34}N/A",
            device_csv=f"0,{long_pci},{uuid},{name},N/A")

    def client(self, first_line):
        """Starts a client, and returns when it has printed its first line."""
        child = self.box.start(["drv_limited"], stdin=subprocess.PIPE)
        said = child.stdout.readline().rstrip("\n")
        wanted = DIFFERENT_SEES[first_line]
        pattern = re.escape(wanted).replace(r"\{free\}", r"\d+")
        if not re.fullmatch(pattern, said):
            raise Failure(f"a client says {said!r}, not {wanted!r}")
        return child

    def end(self, child, lines):
        """Lets a client continue: its next call reports that it has been terminated."""
        out, err = child.communicate("go\n", LIMIT_S)
        wanted = [DIFFERENT_SEES.get(line, line) for line in lines]
        if child.returncode != 0 or out.splitlines() != wanted:
            raise Failure(f"a client says, exit code {child.returncode},\n{out}{err}not {wanted}")


def entries(box):
    return sorted(path.name for path in box.pipe.iterdir())


def check_page():
    """Requires that docs/differences.md explains each difference."""
    page = DIFFERENCES.read_text(encoding="utf-8")
    verbs = {command.split()[0] for command, _ in DIFFERENT}
    for what in sorted(verbs) + ["cuMemGetInfo", "CUDA_ERROR_OUT_OF_MEMORY", "openmps.control"]:
        if f"`{what}" not in page:
            raise Failure(f"{DIFFERENCES.name} has no word of `{what}")


def start(box, expected):
    done = subprocess.run([box.resolve("openmps-control"), "-d"], env=box.service_env(), cwd=box.tmp,
                          stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    if (done.returncode, done.stdout) != expected:
        raise Failure(f"openmps-control -d: {done.returncode} {done.stdout!r}, not {expected}")


def transcript(box, _):
    """Every line of the conversation with NVIDIA's daemon, with OpenMPS's daemon."""
    check_page()
    box.env.update(H200)
    talk = Conversation(box)
    talk.names.update(uid=box.pipe.stat().st_uid)
    talk.ask(NO_DAEMON, exit_code=1)
    start(box, (0, ""))
    start(box, (1, "An instance of this daemon is already running\n"))
    if entries(box) != ["openmps-control.lock", "openmps-control.pid", "openmps.control"]:
        raise Failure(f"the pipe directory has {entries(box)}")
    talk.ask(NO_SERVER[:1])
    talk.learn_device()
    # That client has started a server; the conversation begins without one.
    talk.ask([(f"shutdown_server {box.control('get_server_list')[1].strip()}", "")])
    talk.ask(NO_SERVER + NOT_YET)
    server = talk.names["server"] = box.control("get_server_list")[1].strip()
    wait_until(lambda: box.control(f"get_server_status {server}")[1] == "ACTIVE\n", LIMIT_S)
    talk.ask(SERVER)

    client = talk.client(SEES)
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    short_uuid = "-".join(talk.names["uuid"].split("-")[:4])
    talk.names.update(client=client.pid, ps_row=f"{client.pid:<10}{1:<10}{server:15}{short_uuid:26}"
                                                f"{namespace:<15}{client.args[0]:15}")
    talk.ask(CLIENT)
    talk.end(client, TERMINATED)

    client = talk.client(SEES)
    talk.ask([("quit -t 2", "")])
    talk.end(client, SHUT_DOWN)
    wait_until(lambda: not box.processes(), LIMIT_S)
    if entries(box):
        raise Failure(f"the pipe directory still has {entries(box)}")
    text = re.sub(r"(?m)^\[[^]]*\] ", "", (box.log / "control.log").read_text())
    text = re.sub(r"(?m)^.*\.\.\. \d+ times\n", "", text)  # counted repetitions of lines
    said = text[text.index("quit command issued"):]
    if not re.fullmatch(QUIT_LOG.replace("{server}", server), said):
        raise Failure(f"control.log says\n{said}")
