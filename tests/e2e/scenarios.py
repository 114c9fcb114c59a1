# SPDX-License-Identifier: Apache-2.0
"""Scenarios of many processes: what one client may do to the others, and what the daemon answers.

Each is a function of (sandbox, clients) that raises Failure; run() gives it a fresh sandbox and
checks that nothing is left. Called by run_e2e.py on its only thread.
"""

import functools
import json
import os
import random
import re
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

from container_scenarios import CONTAINERS
from failure_scenarios import FAILURES
from history_scenarios import HISTORY
from group_scenarios import GROUPS
from library_scenarios import LIBRARIES
from memory_scenarios import MEMORY
from namespace_scenarios import NAMESPACES
from nvml_scenarios import NVML
from recording_scenarios import RECORDING
from recipes import recipes
from sandbox import Failure, Sandbox, as_user, footprint, wait_until
from scenario_tools import (CLIENT_LIMIT_S, OTHER_USER, SANITIZED_SETTLE_LIMIT_S, SETTLE_LIMIT_S, LiveSms, Skipped, client_limit,
                            finish, kill_daemon, kill_workers, ready, require, server_of, settle_limit, settled, tell)
from transcript import transcript
from user_scenarios import pid_namespace, secure_programs, users
from view_scenarios import on_terminal, watched
from waiting_scenarios import WAITING

# Resident memory may differ by this much after a churn, KiB: allocator pools keep what they once
# had, and they have had it all by the end of the warm-up, so the rest is fragmentation.
RSS_SLACK_KIB = 4096
# The sanitizers' shadow, quarantine and stack store grow for longer.
SANITIZED_RSS_SLACK_KIB = 32 * 1024


def many_clients(box, clients):
    """Many clients at once, in main and cold context: every result is right, every client is listed."""
    clients = clients or 64
    box.start_daemon()
    children = [box.start(["drv_client_worker", str(seed), "3", "hold"], stdin=subprocess.PIPE)
                for seed in range(1, clients + 1)]
    for child in children:
        ready(child)
    server = server_of(box)
    _, listed = box.control(f"get_client_list {server}")
    require(sorted(map(int, listed.split())) == sorted(c.pid for c in children),
            f"get_client_list does not show the {clients} clients: {listed.split()}")
    require(wait_until(lambda: box.device_state()[0] == 2, SETTLE_LIMIT_S),
            f"{box.device_state()[0]} contexts on the device, expected 2")
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for seed, child in enumerate(children, 1):
        finish(child, f"client {seed} of {clients}")
    box.quit()


IDLE_CLIENTS = 300
SANITIZED_CLIENTS = 60  # the address windows of ThreadSanitizer's build
# Resident memory of the worker for each idle client, KiB: decision 19.
IDLE_RSS_KIB = 1024
IDLE_LOOK_S = 3  # the time in which no thread of an idle session may run
# What the start of the last ones has kept from being released is tried again a second after the session's last command
# and then each time after twice as long: after half a minute at the latest if they take as long to start.
IDLE_LOOKS = 20


def switches(pid, name):
    """How often each thread of that name has gone to sleep so far."""
    found = {}
    for status in Path("/proc", str(pid), "task").glob("*/status"):
        text = status.read_text()
        if re.match(f"Name:\\t{name}", text):
            found[status.parent.name] = int(re.search(r"^voluntary_ctxt_switches:\t(\d+)", text, re.M)[1])
    return found


def idle_clients(box, clients):
    """Hundreds of idle clients: little memory each, no wake-up, all listed; a new client computes beside them,
    and then they continue, with right results."""
    sanitized = "LD_PRELOAD" in box.env
    clients = clients or (SANITIZED_CLIENTS if sanitized else IDLE_CLIENTS)
    box.start_daemon()
    finish(box.start(["drv_client_worker", "1", "3"]), "the first client")
    server = server_of(box)
    settled(box, server)
    worker = box.pids_named("openmps-worker")[0]
    before = footprint(worker)["rss"]
    children = [box.start(["drv_client_worker", str(seed), "3", "hold"], stdin=subprocess.PIPE)
                for seed in range(1, clients + 1)]
    for child in children:
        ready(child)
    pids = sorted(child.pid for child in children)
    listed = box.control(f"get_client_list {server}")[1].split()
    require(sorted(map(int, listed)) == pids, f"get_client_list shows {len(listed)} of {clients} clients")
    shown = json.loads(box.control("ps --json")[1])
    require(sorted(client["pid"] for client in shown) == pids, f"ps shows {len(shown)} clients")

    for _ in range(IDLE_LOOKS):
        first = switches(worker, "sess-")
        time.sleep(IDLE_LOOK_S)
        last = switches(worker, "sess-")
        woken = [thread for thread in first if last[thread] != first[thread]]
        if not woken:
            break
    require(len(first) == clients, f"{len(first)} threads of {clients} sessions")
    require(not woken, f"{len(woken)} of {clients} idle sessions woke within {IDLE_LOOK_S} s")
    each = (footprint(worker)["rss"] - before) / clients
    print(f"{clients} idle clients: {each:.0f} KiB of the worker's memory each")
    require(sanitized or each <= IDLE_RSS_KIB, f"{each:.0f} KiB of the worker's memory for each idle client")

    finish(box.start(["drv_client_worker", str(clients + 1), "3"]), "a client beside them")
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for seed, child in enumerate(children, 1):
        finish(child, f"idle client {seed} of {clients}")
    box.quit()


def churn(box, clients):
    """Clients in a row, four at a time, a tenth killed at random moments: nothing is left behind."""
    clients = clients or 60
    chance = random.Random(20261121)
    # Under the sanitizers the queued work of killed clients may take longer than OPENMPS_DRAIN_SECONDS, after which
    # the worker would be replaced.
    box.env["OPENMPS_DRAIN_SECONDS"] = str(settle_limit(box))
    box.start_daemon()
    # These run at the same time: more clients than run together later, including killed ones that still drain, so
    # every pool has had its peak (NVIDIA's driver keeps the memory of its streams).
    warm_up = 16

    def one_wave(wave, doomed):
        children = [(seed, box.start(["drv_kill_victim"] if seed in doomed
                                     else ["drv_client_worker", str(seed), "4"])) for seed in wave]
        for seed, child in children:
            if seed in doomed:
                # Some die while they connect, some with a full queue.
                time.sleep(chance.uniform(0, 0.4))
                child.send_signal(signal.SIGKILL)
                child.communicate()
            else:
                finish(child, f"survivor {seed}")

    def all_waves(first, last, doomed):
        for start in range(first, last, 4):
            one_wave(range(start, min(start + 4, last)), doomed)

    one_wave(range(warm_up), {1, 6})
    server = server_of(box)
    workers = box.pids_named("openmps-worker")
    require(workers, "no worker after the first clients")
    watched = {"server": server, "worker": workers[0]}
    settled(box, server)
    before = {name: footprint(pid) for name, pid in watched.items()}
    _, memory_before = box.device_state()

    seeds = range(warm_up, warm_up + clients)
    doomed = set(chance.sample(list(seeds), max(1, clients // 10)))
    all_waves(warm_up, warm_up + clients, doomed)
    settled(box, server)
    require(server_of(box) == server, "the server was replaced")
    require(workers[0] in box.pids_named("openmps-worker"), "the worker was replaced")

    slack = SANITIZED_RSS_SLACK_KIB if "LD_PRELOAD" in box.env else RSS_SLACK_KIB

    def back():
        now = {name: footprint(pid) for name, pid in watched.items()}
        # A thread of the first clients may have been about to end.
        return all(now[n]["fds"] <= before[n]["fds"] and now[n]["threads"] <= before[n]["threads"]
                   and now[n]["rss"] <= before[n]["rss"] + slack for n in watched)
    if not wait_until(back, settle_limit(box)):
        now = {name: footprint(pid) for name, pid in watched.items()}
        raise Failure(f"after {clients} clients, {len(doomed)} killed: before {before}, now {now}")
    _, used = box.device_state()
    require(used <= memory_before, f"device memory: {memory_before} bytes before, {used} after")
    print(f"{clients} clients, {len(doomed)} killed: {before}")
    box.quit()


def kill_beside(box, _):
    """SIGKILL of a client with work in flight: a client that computes beside it is not affected."""
    box.env["OPENMPS_DRAIN_SECONDS"] = str(settle_limit(box))  # as in churn()
    box.start_daemon()
    sibling = box.start(["drv_client_worker", "5", "60"])
    ready(sibling)
    for _round in range(5):
        victim = box.start(["drv_kill_victim"])
        ready(victim)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    finish(sibling, "the sibling")
    settled(box, server_of(box))
    box.quit()


def kill_waiting(box, _):
    """SIGKILL of a client with one open wait after thousands that were satisfied: its session drains."""
    box.start_daemon()
    victim = box.start(["drv_unrelated_waits", "leave"])
    ready(victim)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    settled(box, server_of(box))
    box.quit()


ROGUES = ("wrong_version", "short_hello", "no_hello", "garbage_ring", "garbage_commands",
          "lying_tail")


def rogue_clients(box, clients):
    """Clients that break the protocol in every way: refused or disconnected, logged, without effect on others."""
    box.start_daemon()
    bystander = box.start(["drv_client_worker", "3", "80"])
    ready(bystander)
    server = server_of(box)
    workers = box.pids_named("openmps-worker")
    for seed in range(clients or 4):
        for kind in ROGUES:
            code, out, err = box.run(["rogue_client", kind, str(seed)], CLIENT_LIMIT_S)
            require(code == 0, f"rogue_client {kind} {seed}: exit code {code}\n{out}{err}")
    finish(bystander, "the bystander")
    require(server_of(box) == server, "the server was replaced")
    require(box.pids_named("openmps-worker") == workers, "the worker was replaced")
    settled(box, server)
    code, out, err = box.run(["drv_client_worker", "4"], CLIENT_LIMIT_S)
    require(code == 0, f"a client afterwards: exit code {code}\n{out}{err}")
    require("protocol version" in box.logs(), "no log line about the wrong protocol version")
    box.quit()


def no_daemon(box, _):
    """The client library without a daemon passes every call to the driver below."""
    box.env["LD_LIBRARY_PATH"] = str(box.build / "lib" / "openmps")
    del box.env["OPENMPS_REQUIRED"]
    for command in (["drv_vector_add"], ["drv_globals"]):
        code, out, err = box.run(command, CLIENT_LIMIT_S)
        require(code == 0, f"{command}: exit code {code}\n{out}{err}")
    require(not box.pids_named("openmps-server"), "a server was started without a daemon")


def required(box, _):
    """OPENMPS_REQUIRED=1 turns a missing daemon into an error."""
    code, out, _err = box.run(["drv_vector_add"], CLIENT_LIMIT_S)
    require(code == 1 and "CUDA_ERROR_MPS_CONNECTION_FAILED" in out,
            f"exit code {code}, expected CUDA_ERROR_MPS_CONNECTION_FAILED:\n{out}")


def control_shell(box, _):
    """The shell's answers when no daemon runs, when one is started twice, and to the list commands."""
    code, out = box.control("get_server_list")
    require((code, out) == (1, "Cannot find MPS control daemon process\n"),
            f"no daemon: {code} {out!r}")
    box.start_daemon()
    try:
        box.start_daemon()
    except Failure as failure:
        require("An instance of this daemon is already running" in str(failure), str(failure))
    else:
        raise Failure("a second daemon started in the same directory")
    code, out = box.control("get_server_list")
    require((code, out) == (0, ""), f"no server yet: {code} {out!r}")
    code, out = box.control("ps")
    require((code, out) == (0, "Server not found\n"), f"ps without a server: {code} {out!r}")
    client = box.start(["drv_client_worker", "1", "2", "hold"], stdin=subprocess.PIPE)
    ready(client)
    server = server_of(box)
    code, out = box.control(f"get_server_status {server}")
    require((code, out) == (0, "ACTIVE\n"), f"get_server_status: {code} {out!r}")
    code, out = box.control(f"get_client_list {server}")
    require((code, out) == (0, f"{client.pid}\n"), f"get_client_list: {code} {out!r}")
    code, out = box.control("ps")
    rows = [line.split() for line in out.splitlines()]
    require(rows[0] == ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"], f"ps: {out!r}")
    namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    require(len(rows) == 2 and rows[1][0] == str(client.pid) and rows[1][2] == str(server)
            and rows[1][4] == namespace, f"ps: {out!r}")
    code, out = box.control("nonsense")
    require((code, out) == (0, 'Unknown command "nonsense"\n'), f"unknown command: {code} {out!r}")
    client.stdin.write("go\n")
    client.stdin.flush()
    finish(client, "the client")
    box.quit()


def capture_vs_alloc(box, _):
    """A third client computes while two others capture and allocate (see drv_capture_vs_alloc)."""
    box.start_daemon()
    bystander = box.start(["drv_client_worker", "9", "40"])
    ready(bystander)
    code, out, err = box.run(["drv_capture_vs_alloc"], CLIENT_LIMIT_S)
    require(code == 0, f"drv_capture_vs_alloc: exit code {code}\n{out}{err}")
    finish(bystander, "the bystander")
    box.quit()


def kernel_output(box, clients):
    """Kernels of several clients print at once: each client gets its own lines, all of them, in order, and no
    others. On a machine that stalls a kernel may run for too long and lose its turn, which the log says;
    then another client's lines may appear, too, but not three times in a row."""
    clients, rounds = clients or 6, 24
    box.start_daemon()

    def turns_lost():
        return (box.log / "server.log").read_text(errors="replace").count("loses its turn to print")

    for _ in range(3):
        before = turns_lost()
        children = [box.start(["drv_printing", str(number), str(rounds)])
                    for number in range(1, clients + 1)]
        outputs = [finish(child, f"client {number}") for number, child in enumerate(children, 1)]
        kept = turns_lost() == before
        for number, out in enumerate(outputs, 1):
            wanted = [f"client {number} round {index} ok" for index in range(rounds)]
            got = [line for line in out.splitlines() if kept or line.startswith(f"client {number} ")]
            require(got == wanted, f"client {number} got\n{out}")
        if kept:
            break
    require(kept, "a turn to print was lost each time")
    box.quit()


def endless_printer(box, clients):
    """Beside a printing kernel that does not end each client, whether it has printed before or not, gets its own
    lines, and none waits for that kernel. Loading code that prints would wait, since it cannot run in the cold
    context, so loading does not wait in this driver."""
    clients, rounds = clients or 2, 24
    box.env["SOFTGPU_LOADING_WAITS"] = "0"
    box.start_daemon()
    endless = box.start(["drv_printing", "1", "4", "endless"], stdin=subprocess.PIPE)
    said = []
    while not said or said[-1] != "ready":
        said.append(endless.stdout.readline().rstrip("\n"))
        require(said[-1] != "", f"the endless client said {said}")
    for number in range(2, clients + 2):
        out = finish(box.start(["drv_printing", str(number), str(rounds)]), f"client {number}")
        wanted = [f"client {number} round {index} ok" for index in range(rounds)]
        require(out.splitlines() == wanted, f"client {number} got\n{out}")
    require(endless.poll() is None, "the endless client has ended")
    endless.stdin.write("\n")
    said += finish(endless, "the endless client").splitlines()
    said.remove("ready")
    wanted = [f"client 1 round {index} ok" for index in range(5)]
    require(said == wanted, f"the endless client got {said}")
    box.quit()


def assertion_is_told(box):
    child = box.start(["errors_sticky", "assert"])
    out, err = child.communicate(timeout=CLIENT_LIMIT_S)
    require(child.returncode == 0, f"exit code {child.returncode}\n{out}{err}")
    require("Assertion `value == 0` failed." in err, f"standard error was\n{err}")


def assert_text(box, _):
    """The message of a failed assert() appears on the client's standard error, and not on that of a neighbour
    whose kernels have no assert()."""
    box.start_daemon()
    neighbour = box.start(["drv_client_worker", "1", "1", "hold"], stdin=subprocess.PIPE)
    ready(neighbour)
    assertion_is_told(box)
    neighbour.kill()
    _, told = neighbour.communicate()
    require("Assertion" not in told, f"the neighbour was told\n{told}")
    box.quit()


def assert_beside_kernel(box, _):
    """As assert_text, for code in the cold context, beside a kernel that does not end."""
    box.start_daemon()
    neighbour = box.start(["drv_neighbour", "kernel"], stdin=subprocess.PIPE)
    ready(neighbour)
    assertion_is_told(box)
    neighbour.kill()
    neighbour.communicate()
    box.quit()


def fault_beside_idle(box, _):
    """Without takeovers a fault ends the sessions of its worker; new clients are served at once, beside them."""
    box.env["OPENMPS_TAKEOVER"] = "off"
    box.start_daemon()
    idle = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(idle)
    server, workers = server_of(box), box.pids_named("openmps-worker")
    finish(box.start(["drv_trouble", "fault"]), "the faulting client")
    for seed in (2, 3):
        finish(box.start(["drv_client_worker", str(seed)]), f"new client {seed}")
    require(server_of(box) == server, "the server was replaced")
    # The first worker's memory is free.
    require(wait_until(lambda: len(box.pids_named("openmps-worker")) == 1, settle_limit(box))
            and box.pids_named("openmps-worker") != workers, "the lost worker does not end")
    require(idle.poll() is None, "the idle client has ended")
    out, err = idle.communicate("go\n", timeout=CLIENT_LIMIT_S)
    require(idle.returncode == 1 and "CUDA_ERROR_ILLEGAL_ADDRESS" in out,
            f"the idle client: exit code {idle.returncode}\n{out}{err}")
    box.quit()


def kill_endless(box):
    """A client whose kernel never ends is killed."""
    stuck = box.start(["drv_trouble", "endless"])
    ready(stuck)
    stuck.send_signal(signal.SIGKILL)
    stuck.communicate()
    return stuck


def endless_kernel(box, _):
    """A kernel that never ends and whose client has gone costs its worker after OPENMPS_DRAIN_SECONDS: new clients
    get another worker, present clients go on there, and the old worker ends, and with it the kernel."""
    box.env["OPENMPS_DRAIN_SECONDS"] = "1"
    box.start_daemon()
    other = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(other)
    server, first = server_of(box), box.pids_named("openmps-worker")
    stuck = kill_endless(box)
    require(wait_until(lambda: f"{stuck.pid} (ending)" in box.control(f"get_client_list {server}")[1],
                       SETTLE_LIMIT_S), "the killed client is not shown as ending")
    require(wait_until(lambda: "drv_trouble (ending)" in box.control("ps")[1], SETTLE_LIMIT_S),
            "ps: " + box.control("ps")[1])

    def workers():
        return box.pids_named("openmps-worker")

    require(wait_until(lambda: len(workers()) == 1 and workers() != first, settle_limit(box)),
            "no second worker, or the old one does not end")
    require(wait_until(lambda: "(ending)" not in box.control("ps")[1], SETTLE_LIMIT_S), "it is still shown as ending")
    finish(box.start(["drv_client_worker", "2"]), "a new client")
    other.stdin.write("go\n")
    other.stdin.flush()
    finish(other, "the client beside the kernel that never ends")
    require(server_of(box) == server, "the server was replaced")
    require(wait_until(lambda: box.control("ps")[1] == "", SETTLE_LIMIT_S), box.control("ps")[1])
    # Without other clients the worker is replaced as soon as the time is over.
    second = workers()
    kill_endless(box)
    require(wait_until(lambda: len(workers()) == 1 and workers() != second, settle_limit(box)),
            "the second worker stays")
    finish(box.start(["drv_client_worker", "3"]), "a client afterwards")
    # The main context and, made in the background, the cold context of the last worker.
    require(wait_until(lambda: box.device_state()[0] == 2, SETTLE_LIMIT_S),
            f"{box.device_state()[0]} contexts on the device, expected 2")
    box.quit()


def terminated(box, _):
    """terminate_client ends a client in the middle of its work, one whose stream waits, and one whose kernel
    never ends: it prints 0 when that is done, the client's calls report that it has been terminated, and no
    other client is affected."""
    box.env["OPENMPS_DRAIN_SECONDS"] = "1"
    box.start_daemon()
    other = box.start(["drv_client_worker", "1", "200", "hold"], stdin=subprocess.PIPE)
    ready(other)
    stays = box.start(["drv_client_worker", "4", "3", "hold"], stdin=subprocess.PIPE)
    ready(stays)
    server = server_of(box)

    def terminate(pid):
        return box.control(f"terminate_client {server} {pid}", timeout=CLIENT_LIMIT_S)

    for command in (["drv_client_worker", "2", "0"], ["drv_neighbour", "values"], ["drv_trouble", "endless"]):
        client = box.start(command, stdin=subprocess.PIPE)
        ready(client)
        if command[1] == "2":  # continues beside it
            other.stdin.write("go\n")
            other.stdin.flush()
        require(terminate(client.pid) == (0, "0\n"), f"{command}: it was not terminated")
        require(str(client.pid) not in box.control(f"get_client_list {server}")[1].splitlines(),  # but "PID (ending)"
                f"{command}: the terminated client is still shown as a client")
        if command[0] == "drv_client_worker":
            out, err = client.communicate(timeout=CLIENT_LIMIT_S)
            require(client.returncode == 1 and "CUDA_ERROR_MPS_CLIENT_TERMINATED (810)" in out,
                    f"{command}: exit code {client.returncode}\n{out}{err}")
        else:
            require(client.poll() is None, f"{command}: its process was harmed")
            if command[1] == "endless":  # its worker ends, and with it the kernel: `stays` has moved away
                gone = (0, f"Client {client.pid} not found!\n1\n")
                require(wait_until(lambda: terminate(client.pid) == gone, settle_limit(box)), "its kernel runs on")
            client.send_signal(signal.SIGKILL)
            client.communicate()
        finish(box.start(["drv_client_worker", "3"]), f"a new client behind {command}")
    finish(other, "the client beside the terminated ones")
    tell(stays)
    for nobody in ("1", "none", str(other.pid)):
        require(terminate(nobody) == (0, f"Client {nobody} not found!\n1\n"), f"{nobody} was found")
    box.quit()


def endless_quit(box, _):
    """quit does not wait for a kernel that never ends and whose client has gone."""
    box.env["OPENMPS_DRAIN_SECONDS"] = "3600"
    box.start_daemon()
    kill_endless(box)
    box.quit()


def until_refused(box, most, what):
    """Starts clients one after the other until one is refused, and returns the others, which run on."""
    children = []
    while len(children) < most:
        child = box.start(["drv_client_worker", str(len(children) + 1), "3", "hold"],
                          stdin=subprocess.PIPE)
        line = child.stdout.readline()
        if line != "ready\n":
            out, err = child.communicate(timeout=CLIENT_LIMIT_S)
            require(child.returncode == 1, f"refused client: exit code {child.returncode}\n{out}{err}")
            return children
        children.append(child)
    raise Failure(f"{most} clients with {what}")


def few_of(box, limit, most, what):
    """A daemon with a low system limit: a client that connects when the limit is reached is refused, and the
    other clients do not notice."""
    box.start_daemon(limit)
    children = until_refused(box, most, what)
    require(len(children) >= 2, f"only {len(children)} clients with {what}")
    print(f"{len(children)} clients with {what}")
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for seed, child in enumerate(children, 1):
        finish(child, f"client {seed} of {len(children)} with {what}")
    settled(box, server_of(box))
    finish(box.start(["drv_client_worker", "99"]), "a client afterwards")
    box.quit()


def few_threads(box, _):
    """A session gets no thread or process, as for a user with ulimit -u."""
    if os.geteuid() != 0:
        raise Skipped("only root can be a user without processes")
    box.become(OTHER_USER)
    few_of(box, (resource.RLIMIT_NPROC, 90), 90, "90 threads")


def few_descriptors(box, _):
    """A session gets no descriptor, as with ulimit -n."""
    few_of(box, (resource.RLIMIT_NOFILE, 48), 48, "48 descriptors")


def full_heap(box, _):
    """A device heap that a client has left full is empty again for the next client once no client is connected;
    while one is, clients share the heap."""
    box.start_daemon()
    server = None
    for _round in range(3):
        finish(box.start(["drv_limits", "eat"]), "a client that takes all of the heap")
        require(server in (None, server_of(box)), "the server was replaced")
        server = server_of(box)
    other = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(other)
    finish(box.start(["drv_limits", "eat"]), "the first client beside another")
    code, out, _err = box.run(["drv_limits", "eat"], CLIENT_LIMIT_S)
    require(code == 1 and "# 0 MiB of 8" in out, f"the second client beside another: {code}\n{out}")
    other.stdin.write("go\n")
    other.stdin.flush()
    finish(other, "the other")
    finish(box.start(["drv_limits", "eat"]), "a client after all others have ended")
    box.quit()


def limits_at_start(box, _):
    """The daemon's environment sets the heap and stack with which workers begin; a worker that cannot have them
    reports it."""
    box.env.update({"OPENMPS_MALLOC_HEAP": "128M", "OPENMPS_STACK": "32K"})
    box.start_daemon()
    finish(box.start(["drv_limits", "eat", "64"]), "a client with a heap of 128 MiB")
    code, out, _err = box.run(["drv_limits", "stack"], CLIENT_LIMIT_S)
    require(code == 1 and "FAILED: 1 KiB to begin with" in out and out.count("FAILED:") == 1,
            f"a client with a stack of 32 KiB: {code}\n{out}")
    box.quit()
    require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "the daemon does not end")
    box.env["OPENMPS_STACK"] = "16 cubits"
    box.start_daemon()
    code, out, _err = box.run(["drv_client_worker"], CLIENT_LIMIT_S)
    require(code == 1 and "CUDA_ERROR_MPS_CONNECTION_FAILED" in out, f"no stack: {code}\n{out}")
    require("OPENMPS_STACK=16 cubits is not a size" in box.logs(), box.logs())
    box.quit()


def memory_limits(box, _):
    """A limit of device memory from the daemon, one for one server, and the program's own: the lowest applies,
    exactly, to every kind of allocation, and all of it can be used."""
    box.start_daemon()

    def control(line):
        require(box.control(line) == (0, ""), f"{line}: {box.control(line)}")

    def limited(what, own):
        finish(box.start(["drv_memory_limit", "paths"], {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": own}), what)
        settled(box, server_of(box))

    control("set_default_device_pinned_mem_limit 0 64M")
    limited("the daemon's limit", "")
    server = server_of(box)
    # The main context and the cold context, which is made in the background. On a GPU only the processes are
    # known, and the cold context may be made later.
    known = box.driver == "softgpu"
    require(not known or wait_until(lambda: box.device_state()[0] == 2, SETTLE_LIMIT_S), str(box.device_state()))
    used = box.device_state()[1]
    limited("beside a higher one of the program's", "0=1G")
    control(f"set_device_pinned_mem_limit {server} 0 2G")
    limited("the program's own below the server's", "0=64M")
    control(f"set_device_pinned_mem_limit {server} 0 64M")
    child = box.start(["drv_memory_limit", "hold"], {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ""},
                      stdin=subprocess.PIPE)
    while (line := child.stdout.readline()) != "ready\n":
        require(line.startswith("ok: "), f"the server's limit: {line}")
    idle = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(idle)
    holds = {client["pid"]: [device["memory_bytes"] for device in client["usage"]["devices"]]
             for client in json.loads(box.control("ps --json")[1])}
    require(holds[child.pid] in ([], [0]), f"at its end it still holds memory: {holds}")
    child.stdin.write("\n")
    finish(child, "the server's limit")
    tell(idle)
    settled(box, server)
    # Deferred releases that wait for quiescence are made then.
    require(not known or wait_until(lambda: box.device_state()[1] <= used, SETTLE_LIMIT_S),
            f"device memory: {used} bytes, then {box.device_state()[1]}")
    box.quit()


def events_of(path):
    """The events of a trace, whose array has no end."""
    with open(path, encoding="utf-8") as file:
        return json.loads(file.read().rstrip().removesuffix(",") + "]")


def inspect_until(box, child, *parts):
    """Waits until `inspect` shows all these texts for a client."""
    said = []

    def seen():
        said[:] = [box.control(f"inspect {child.pid}")[1]]
        return all(part in said[0] for part in parts)
    require(wait_until(seen, SETTLE_LIMIT_S), f"inspect does not say {parts}:\n{said[0]}")


def traced(box, _):
    """The commands of a program as traced by client and worker, as lanes and as text."""
    worker, client, text, long = (os.path.join(box.tmp, name)
                                  for name in ("worker.json", "client.json", "text", "long.json"))
    box.env["OPENMPS_TRACE"] = worker
    box.start_daemon()
    for path in (client, text):
        code, out, err = box.run(["drv_client_worker"], CLIENT_LIMIT_S, {"OPENMPS_TRACE": path})
        require(code == 0, f"a traced program: {code}\n{out}{err}")
    sleeper = box.start(["drv_neighbour", "host"], {"OPENMPS_TRACE": long}, stdin=subprocess.PIPE)
    ready(sleeper)
    inspect_until(box, sleeper, "threads of the program that sleep: 1\n")
    tell(sleeper)
    box.quit()

    seen = {}
    for path in (worker, client):
        events = events_of(path)
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
        spans = [e for e in events if e["ph"] == "X"]
        require(all(e["tid"] in lanes and e["dur"] >= 0 for e in spans), f"{path}: a lane has no name")
        seen[path] = {(lanes[e["tid"]], e["name"]) for e in spans}
    require(any(lane.startswith("driver, sess-1 ") and name.startswith("cu") for lane, name in seen[worker]),
            f"no long call of the driver: {sorted(seen[worker])}")
    require({("session 1", "Launch"), ("session 1 stream 2", "Launch"), ("session 1", "ModuleLoad"),
             ("session 2", "Launch")} <= seen[worker], f"the worker's lanes: {sorted(seen[worker])}")
    names = {name for lane, name in seen[client] if lane.startswith("thread ")}
    require({"Launch", "ModuleLoad", "MemoryMap"} <= names, f"the client's commands: {names}")
    require(any(e["name"] == "wait" for e in events_of(long)), "no wait is traced")
    with open(text, encoding="utf-8") as file:
        lines = file.readlines()
    shape = re.compile(r"\d+\.\d{6} \d+ thread \d+: \w+\{.*\} = CUDA_\w+( \{.+\})? \(\d+\.\d{3} us\)\n")
    wrong = [line for line in lines if not shape.fullmatch(line)]
    require(lines and not wrong, f"lines of the trace: {wrong[:3]}")
    require(any("Launch{stream=" in line for line in lines), "no launch in the trace")
    # Answers, immediate and later ones, in both traces.
    for name, field in (("GetFunction", "attributes"), ("ModuleLoad", "info_bytes")):
        require(any(f" {name}{{" in line and f" {{{field}=" in line for line in lines),
                f"the client's {name} has no {field}")
        for path in (worker, client):
            replies = [e["args"].get("reply", {}) for e in events_of(path) if e.get("name") == name]
            require(replies and all(field in reply for reply in replies), f"{path}, {name}: {replies}")
    quiet = [e for e in events_of(worker) if e.get("name") == "Launch" and "reply" in e["args"]]
    require(not quiet, f"launches are not answered: {quiet[:1]}")
    for path in (worker, client, text, long):
        os.remove(path)


def inspected(box, _):
    """`inspect` of a stalled program: it waits for a host function of its own, for a value, and for
    quiescence; which sessions are in its way, and what is released later."""
    # The GPU waits for values here: while waits stay in the worker they keep no context busy.
    box.env.update({"SOFTGPU_LOADING_WAITS": "1", "OPENMPS_COLD_LANE": "off",
                    "OPENMPS_PERF": "no_held_waits"})
    box.start_daemon()

    look = functools.partial(inspect_until, box)
    neighbour = box.start(["drv_neighbour", "host"], stdin=subprocess.PIPE)
    ready(neighbour)
    look(neighbour, f"Session 1 of process {neighbour.pid}\n", "waits for host function ",
         "has not come to ", "threads of the program that sleep: 1\n")
    program = box.start(["drv_client_worker"])
    look(program, "its command needs a quiet moment", "a thread waits for the reply in slot ",
         f"in its way: session 1 of process {neighbour.pid} has work in stream ",
         ", and its program a host function to run")
    code, out, err = box.run(["openmps", "inspect", "--json", str(neighbour.pid)], CLIENT_LIMIT_S)
    require(code == 0, f"openmps inspect: {code}\n{out}{err}")
    report = json.loads(out)
    kinds = {wait["kind"] for wait in report["waits"]}
    require(report["id"] == 1 and {"fence", "host function"} <= kinds, f"inspect --json: {out}")
    code, out = box.control("inspect 4000000000")
    require((code, out) == (1, "There is no session 4000000000\n"), f"no such session: {code} {out!r}")
    code, out = box.control("inspect it")
    require(code == 1 and "inspect wants a session" in out, f"no number: {code} {out!r}")
    tell(neighbour)
    finish(program, "the program")

    neighbour = box.start(["drv_neighbour", "giving"], stdin=subprocess.PIPE)
    ready(neighbour)
    look(neighbour, "values that streams wait for: 1, as of ", " waits for 4 bytes at 0x",
         " to be at least 1, as it was told ", "given up and not yet given back: 1\n",
         "a texture or surface object, given up ", ": it waits for earlier work, first in stream ")
    program = box.start(["drv_client_worker"])
    look(program, f"in its way: session 3 of process {neighbour.pid} has work in stream ",
         ", which waits for a value")
    _code, out, _err = box.run(["openmps", "inspect", "--json", str(program.pid)], CLIENT_LIMIT_S)
    hindrances = [wait for wait in json.loads(out)["waits"] if wait["kind"] == "hindrance"]
    require([(wait["session"], wait["pid"], wait["why"]) for wait in hindrances]
            == [(3, neighbour.pid, "value")], f"inspect --json: {out}")
    _code, out, _err = box.run(["openmps", "inspect", "--json", str(neighbour.pid)], CLIENT_LIMIT_S)
    waits = {wait["kind"]: wait for wait in json.loads(out)["waits"]}
    require(waits["value"]["stands_at_it"] and waits["value"]["value"] == 1 and
            waits["return"]["what"] == "image" and waits["return"]["waits_for"] == "streams",
            f"inspect --json: {out}")
    tell(neighbour)
    finish(program, "the program beside a value")
    box.quit()


# The work of drv_measured: 51 launches in all, 3 of a graph with two kernels and a copy to the host.
MEASURED_WORDS = {"to": 700_001, "from": 4_321, "between": 5_000, "filled": 6_000}
MEASURED_GRAPHS = 3


def measured(box, _):
    """`openmps ps` shows what a program has used, to the byte, and what it waits for, without asking the
    worker."""
    box.start_daemon()
    child = box.start(["drv_measured"], stdin=subprocess.PIPE)
    ready(child)
    shown = {}

    def usage():
        code, out, err = box.run(["openmps", "ps", "--json"], CLIENT_LIMIT_S)
        require(code == 0, f"openmps ps: {code}\n{out}{err}")
        shown.clear()
        shown.update(json.loads(out)[0])
        return shown["usage"]
    require(wait_until(lambda: usage()["held"]["value"]["standing"] == 1, SETTLE_LIMIT_S),
            f"no wait for a value: {shown}")
    require(usage()["held"]["value"]["times"] == 1, f"waits: {shown}")
    # A stopped worker is not asked.
    worker = box.pids_named("openmps-worker")[0]
    os.kill(worker, signal.SIGSTOP)
    seen = usage()
    os.kill(worker, signal.SIGCONT)
    words = {what: 4 * count for what, count in MEASURED_WORDS.items()}
    expected = {"host_to_device": words["to"], "device_to_host": MEASURED_GRAPHS * words["from"],
                "device_to_device": words["between"], "host_to_host": 0, "filled": words["filled"]}
    require(seen["bytes"] == expected, f"bytes: {seen['bytes']}, not {expected}")
    counts = {what: seen[what] for what in ("launches", "graph_launches", "graph_kernels", "fills")}
    require(counts == {"launches": 50, "graph_launches": 3, "graph_kernels": 6, "fills": 1}, f"counts: {counts}")
    require(seen["gpu_ns_least"] <= seen["gpu_ns"] <= seen["gpu_ns_most"], f"time: {seen}")

    def go_on():
        child.stdin.write("go\n")
        child.stdin.flush()
    go_on()
    require(child.stdout.readline() == "done\n", "the program does not continue")
    require(wait_until(lambda: usage()["launches"] == 51 and not usage()["held"]["value"]["standing"],
                       SETTLE_LIMIT_S), f"the last launch: {shown}")
    require(usage()["held"]["value"]["ns"] > 0, f"waited: {shown}")
    # Without work the session's figures are complete after a second, and include all kernels.
    require(wait_until(lambda: usage()["gpu_ns"] > 0 and usage()["sm_ns"] > 0, SETTLE_LIMIT_S), f"time: {shown}")
    code, out, err = box.run(["openmps", "ps", "--watch", "0.1", "--times", "2"], CLIENT_LIMIT_S)
    lines = out.splitlines()
    require(code == 0 and len(lines) == 4 and lines[0] == lines[2] and lines[1].split()[0] == str(child.pid),
            f"openmps ps --watch: {code}\n{out}{err}")
    require("0/s" in lines[3], f"rates: {lines[3]}")
    go_on()
    finish(child, "the program")
    box.quit()


def remembered(box, _):
    """The next worker loads the code that a program has used at its start, before a client asks for it. Damaged
    files of the store are ignored, logged once, and removed."""
    store = box.root / "cache" / "openmps"
    store.parent.mkdir()
    box.env["OPENMPS_CACHE_DIRECTORY"] = str(store)

    def one_program(recalled, loaded, found):
        """Runs a program with a worker of its own. Returns the images that the worker loaded and the program found."""
        box.start_daemon()
        box.control(f"start_server -uid {os.geteuid()}")
        if recalled:
            require(wait_until(lambda: f"Remembered code: {recalled} " in box.logs().split("Initializing")[-1],
                               SETTLE_LIMIT_S), f"not remembered: {recalled}")
        # The program has two images: one with variables, and one with the kernel that it runs.
        child = box.start(["drv_neighbour", "kernel"], stdin=subprocess.PIPE)
        ready(child)
        code, out, err = box.run(["openmps", "ps", "--json"], CLIENT_LIMIT_S)
        require(code == 0, f"openmps ps: {code}\n{out}{err}")
        usage = json.loads(out)[0]["usage"]
        require((usage["images_loaded"], usage["images_found"]) == (loaded, found),
                f"images loaded and found: {usage['images_loaded']}, {usage['images_found']}, not {loaded}, {found}")
        child.stdin.write("go\n")
        finish(child, "the program")
        box.quit()

    one_program("", 2, 0)
    store = store / "openmps-code"
    files = sorted(path.name for path in store.iterdir() if path.name != "CACHEDIR.TAG")
    require([name.rsplit(".")[-1] for name in files] == ["image", "kernels"], f"stored: {files}")
    require(store.stat().st_mode & 0o777 == 0o700, f"mode {store.stat().st_mode:o}")
    one_program("1 images with 1 kernels", 1, 1)
    image = store / files[0]
    image.write_bytes(image.read_bytes()[:-1])
    one_program("0 images with 0 kernels", 2, 0)
    said = [line for line in box.logs().splitlines() if f"{files[0]} is ignored and removed: " in line]
    require(len(said) == 1, f"of the damaged file: {said}")
    one_program("1 images with 1 kernels", 1, 1)
    box.env["OPENMPS_PERF"] = "no_store"
    one_program("", 2, 0)
    box.env["OPENMPS_PERF"] = ""
    box.env["OPENMPS_CACHE_DIRECTORY"] = ""
    one_program("", 2, 0)


def confined(box, _):
    """Daemon, server and worker have given up the rights that docs/security.md lists, and serve a program."""
    if "LD_PRELOAD" in box.env or os.geteuid() != 0:
        print("skipped: not in a sanitizer build, and only root can look into them")
        return
    box.start_daemon()
    client = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(client)
    for program, no_new_privileges in (("openmps-control", "0"), ("openmps-server", "1"),
                                       ("openmps-worker", "1")):
        # For microseconds there is a second process of the daemon's name, which closes descriptors (decision 11).
        wait_until(lambda name=program: len(box.pids_named(name)) == 1, SETTLE_LIMIT_S)
        pids = box.pids_named(program)
        require(len(pids) == 1, f"{program}: {pids}")
        tasks = os.listdir(f"/proc/{pids[0]}/task")
        for task in tasks:
            with open(f"/proc/{pids[0]}/task/{task}/status", encoding="utf-8") as file:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            require(status["Seccomp"] == "2" and status["NoNewPrivs"] == no_new_privileges,
                    f"{program}, thread {status['Name']}: {status['Seccomp']}, {status['NoNewPrivs']}")
    client.stdin.write("go\n")
    client.stdin.flush()
    finish(client, "the client")
    box.quit()
    require("was refused" not in box.logs(), f"a call was refused:\n{box.logs()}")


def is_right(program):
    """Waits until the program is ready, and requires that its output until then is right."""
    said = []
    late = threading.Timer(CLIENT_LIMIT_S, program.kill)
    late.start()
    while not said or said[-1] != "ready\n":
        said.append(program.stdout.readline())
        require(said[-1] != "", f"the program came to {''.join(said)!r} only")
    late.cancel()
    wrong = [line for line in said if not line.startswith("ok: ") and line != "ready\n"]
    require(not wrong, f"beside the neighbour: {''.join(wrong)}")


def fresh_beside(box, kind, during, end):
    """Programs that load and run code beside a client that keeps the context from becoming quiescent, on a driver
    whose loading waits for quiescence: they come to all their results. When the neighbour has ended, the code
    that was loaded beside it still runs. `during`, `end`: what happens to the neighbour."""
    box.env["SOFTGPU_LOADING_WAITS"] = "1"
    box.start_daemon()
    neighbour = box.start(["drv_neighbour", kind], stdin=subprocess.PIPE)
    ready(neighbour)
    during(neighbour)
    program = box.start(["drv_fresh_code", "hold"], stdin=subprocess.PIPE)
    is_right(program)
    # Other programs start and end, and one that runs on does not hinder them.
    finish(box.start(["drv_fresh_order", "40"]), "the random programs")
    finish(box.start(["drv_client_worker", "3"]), "a client beside both")
    if kind != "kernel":  # a kernel may still end, so a limited client waits for its SMs
        limit = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
        finish(box.start(["drv_client_worker", "3"], env=limit), "a limited client beside both")
    require(neighbour.poll() is None, "the neighbour has ended")
    end(neighbour)
    program.stdin.write("go\n")
    finish(program, "the program afterwards")
    finish(box.start(["drv_fresh_order", "40", "1000"]), "the random programs afterwards")
    settled(box, server_of(box))
    box.quit()


def left_beside_waiting(box, _):
    """A kernel runs that does not end, and a program waits for the context, since its code prints and so cannot
    run in the cold context. Clients that start and end beside the two still end at once: their memory is
    released later, and no client loses the worker."""
    box.env.update({"SOFTGPU_LOADING_WAITS": "1", "OPENMPS_DRAIN_SECONDS": "1"})
    box.start_daemon()
    neighbour = box.start(["drv_neighbour", "kernel"], stdin=subprocess.PIPE)
    ready(neighbour)
    first = box.pids_named("openmps-worker")
    program = box.start(["drv_printing", "1", "4"])
    require(wait_until(lambda: "its command needs a quiet moment" in
                       box.control(f"inspect {program.pid}")[1], SETTLE_LIMIT_S),
            f"the program does not wait: {box.control(f'inspect {program.pid}')[1]}")
    for seed in range(1, 4):
        finish(box.start(["drv_client_worker", str(seed)]), f"client {seed} beside both")
    require(wait_until(lambda: "drv_client_worker" not in box.control("ps")[1], SETTLE_LIMIT_S),
            f"they do not end: {box.control('ps')[1]}")
    require(program.poll() is None, "the program has not waited")
    tell(neighbour)
    out = finish(program, "the program")
    require(out.splitlines() == [f"client 1 round {index} ok" for index in range(4)], out)
    require(box.pids_named("openmps-worker") == first, "the worker was replaced")
    settled(box, server_of(box))
    box.quit()


def leave_alone(_child):
    pass


def wake(child):
    child.send_signal(signal.SIGCONT)
    tell(child)


def kill(child):
    child.send_signal(signal.SIGKILL)
    child.communicate()


def fresh_beside_kernel(box, _):
    fresh_beside(box, "kernel", leave_alone, tell)


def fresh_beside_stopped(box, _):
    fresh_beside(box, "host", lambda child: child.send_signal(signal.SIGSTOP), wake)


def fresh_beside_value(box, _):
    fresh_beside(box, "value", leave_alone, kill)


def beside_waits(box, kind):
    """More streams than the context has hardware queues wait, each with work behind the wait: a program that was
    there before continues, new ones are served, and all work is done in the end."""
    box.env.update({"SOFTGPU_LOADING_WAITS": "1", "SOFTGPU_STREAM_LOTS": "1"})
    box.start_daemon()
    program = box.start(["drv_fresh_code", "hold"], stdin=subprocess.PIPE)
    is_right(program)
    neighbour = box.start(["drv_neighbour", kind], stdin=subprocess.PIPE)
    ready(neighbour)
    program.stdin.write("go\n")
    finish(program, "the program that was started before")
    finish(box.start(["drv_client_worker", "3"]), "a new client")
    require(neighbour.poll() is None, "the neighbour has ended")
    tell(neighbour)
    settled(box, server_of(box))
    box.quit()


def crowd_beside_host(box, clients):
    """Programs that start at one moment beside a stream that waits for its host function: each has code to load,
    more of them than the context has hardware queues sleep, and none waits for that stream."""
    box.env["SOFTGPU_STREAM_LOTS"] = "1"
    box.start_daemon()
    neighbour = box.start(["drv_neighbour", "host"], stdin=subprocess.PIPE)
    ready(neighbour)
    crowd = clients or 90  # a build with sanitizers admits 96 clients
    children = [box.start(["drv_client_worker", str(seed)]) for seed in range(crowd)]
    for child in children:
        finish(child, "one of them")
    require(neighbour.poll() is None, "the neighbour has ended")
    tell(neighbour)
    settled(box, server_of(box))
    box.quit()


def streams_beside_kernel(box, _):
    """A program with more streams, or executable graphs, than there are stream slots, beside a kernel that does
    not end: idle streams of the program give up their slots to its other streams, and instantiating a graph
    waits. No other program waits, whether it was there before or starts later."""
    box.env.update({"SOFTGPU_LOADING_WAITS": "1", "SOFTGPU_STREAM_LOTS": "1"})
    for kind in ((), ("graphs",)):
        box.start_daemon()
        program = box.start(["drv_fresh_code", "hold"], stdin=subprocess.PIPE)
        is_right(program)
        neighbour = box.start(["drv_neighbour", "kernel"], stdin=subprocess.PIPE)
        ready(neighbour)
        many = box.start(["drv_many_streams", "700", *kind])
        ready(many)
        held = lambda: next(client["usage"]["held"] for client in
                            json.loads(box.run(["openmps", "ps", "--json"], CLIENT_LIMIT_S)[1])
                            if client["pid"] == many.pid)
        if kind:
            require(wait_until(lambda: held()["quiet moment"]["standing"] > 0, SETTLE_LIMIT_S), f"held: {held()}")
        else:
            finish(many, "the program with many streams")
        program.stdin.write("go\n")
        finish(program, "the program that was started before")
        for seed in range(3):
            finish(box.start(["drv_client_worker", str(seed)]), "a new client")
        if kind:
            require(many.poll() is None, "there were stream slots for all graphs")
        tell(neighbour)
        if kind:
            finish(many, "the program with many graphs")
        settled(box, server_of(box))
        box.quit()
        require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "the daemon does not end")


def beside_values(box, _):
    beside_waits(box, "values")


def beside_device_values(box, _):
    beside_waits(box, "device_values")


def beside_calls(box, _):
    beside_waits(box, "calls")


def beside_events(box, _):
    beside_waits(box, "events")


def beside_legacy(box, _):
    beside_waits(box, "legacy")


# The switches of OPENMPS_PERF, each by itself and all together.
SWITCHES = [{"OPENMPS_PERF": switch} for switch in ("", "no_held_waits", "no_windows", "no_batch",
                                                    "no_held_waits,no_windows",
                                                    "no_connections,no_linger,no_policy,no_sparing,no_value_watch")]
# A device with one queue credit. Only softgpu has enough hardware queues then: these programs have more
# waiting streams than five queues of a GPU could hold.
ON_SOFTGPU_ONLY = [{"OPENMPS_DEVICE_MAX_CONNECTIONS": "5", "SOFTGPU_CONNECTIONS": "0"}]


def random_order(box, clients):
    """Random programs of several processes at once behind one worker: with any switch of OPENMPS_PERF, each comes
    to its own results. `clients`: programs of each process."""
    for number, switch in enumerate(SWITCHES + (ON_SOFTGPU_ONLY if box.driver == "softgpu" else [])):
        daemon_environment = {"OPENMPS_PERF": "", "OPENMPS_DEVICE_MAX_CONNECTIONS": "32",
                              "SOFTGPU_CONNECTIONS": "32", **switch}
        box.env.update(daemon_environment)
        box.start_daemon()
        seeds = [1000 * (1 + number) + 300 * process for process in range(3)]
        children = [box.start(["drv_random_order", str(seed), str(clients or 60)]) for seed in seeds]
        for seed, child in zip(seeds, children):
            finish(child, f"programs from {seed} on, with {daemon_environment}")
        require(len(box.pids_named("openmps-worker")) == 1, "the processes do not share one worker")
        box.quit()
        require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "the daemon does not end")


def ranks(box, _):
    """Programs of each rank at once, by OPENMPS_QOS and by MPS's priority: each computes, also on a driver whose
    destruction of graphs waits for others' work, and a value without meaning is reported."""
    box.env["SOFTGPU_DESTROYING_WAITS"] = "1"
    box.start_daemon()
    said = [{"OPENMPS_QOS": "latency"}, {"OPENMPS_QOS": "best-effort"}, {"OPENMPS_QOS": "normal"},
            {"CUDA_MPS_CLIENT_PRIORITY": "1"}, {"OPENMPS_QOS": "fast"}, {}]
    children = [box.start(["drv_random_order", str(300 * seed), "30"], env=words)
                for seed, words in enumerate(said, 1)]
    for words, child in zip(said, children):
        finish(child, f"a program with {words}")
    log = box.logs()
    require(log.count("OPENMPS_QOS is neither latency, normal nor best-effort: ignored") == 1,
            "the word \"fast\" is not said to be ignored, once")
    box.quit()


def sm_step(box):
    """The SMs of one chunk of the first device: limits are whole chunks."""
    return json.loads(box.control("device_query --json")[1])[0]["chunk_sms"]


def wait_for_line(child, start):
    for line in child.stdout:
        if line.startswith(start):
            return line
    raise Failure(f"{child.args} has ended before it said {start}")


def sm_report(line):
    """(number of SMs that a drv_sm_share was told, SMs that its kernels ran on), from its line."""
    words = line.split()
    require(words[:2] == ["#", "told"] and words[3] == "seen", f"no report: {line}")
    return int(words[2]), {int(word) for word in words[4:]}


def percentages(box, _):
    """Programs with active thread percentages, by the server's default and by their own environment, one after the
    other and at once: each runs on as many SMs as it is told, and together they use all SMs."""
    def report_of(child):
        out = finish(child, "a program with a percentage")
        return sm_report([line for line in out.splitlines() if line.startswith("# told")][-1])

    box.start_daemon()
    step = sm_step(box)
    device, seen = report_of(box.start(["drv_sm_share"]))
    require(len(seen) == device, f"without a limit it ran on {len(seen)} of {device} SMs")
    require(box.control("set_default_active_thread_percentage 50") == (0, "50.0\n"), "the default is not set")
    box.quit()
    require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "the daemon does not end")

    box.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "50"
    box.start_daemon()
    del box.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    for program in (["drv_conditionals", "run"], ["drv_conditionals", "change"], ["drv_graphs"], ["drv_graph_nodes"],
                    ["drv_random_order", "9000", "60"]):
        finish(box.start(program), f"{program} in a half of the device")
    # For the last two, a higher percentage and text that is no percentage, the default applies.
    for said, share in ((None, 50), ("25", 25), ("1", 1), ("100", 50), ("none", 50)):
        env = {} if said is None else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": said}
        told, seen = report_of(box.start(["drv_sm_share"], env=env))
        require(told == len(seen), f"told {told} SMs, ran on {len(seen)}, with {said}")
        require(told <= max(device * share / 100, step) and told > device * share / 100 - step,
                f"{told} SMs of {device} with {said}")
    halves = [box.start(["drv_sm_share", "hold"], stdin=subprocess.PIPE) for _ in range(2)]
    reports = [wait_for_line(half, "# told") for half in halves]
    shown = json.loads(box.control("ps --json")[1])
    require([client["active_thread_percentage"] for client in shown] == [50, 50], f"ps shows {shown}")
    for half in halves:
        tell(half)
    sets = [sm_report(line)[1] for line in reports]
    half = device // 2 - device // 2 % step
    require(not sets[0] & sets[1] and len(sets[0]) == len(sets[1]) == half,
            f"two halves of {device} SMs are {sorted(sets[0])} and {sorted(sets[1])}")
    box.quit()


def contexts(box, _):
    """Contexts of one program with percentages and numbers of SMs of their own: the work of each runs on as many
    SMs as the context is told, beside others and within the program's limit."""
    def reports(wishes, **env):
        out = finish(box.start(["drv_sm_share", "contexts", *wishes], env=env), f"contexts with {wishes}", client_limit(box))
        found = [sm_report(line) for line in out.splitlines() if line.startswith("# told")]
        require(len(found) == 2 * len(wishes), f"{len(found)} reports of {wishes}")
        for told, seen in found:
            require(told == len(seen), f"told {told} SMs, ran on {sorted(seen)}, of {wishes}")
        first, again = found[:len(wishes)], found[len(wishes):]
        require(all(later[0] == told for (told, _), later in zip(first, again)), f"{first} became {again}")
        used.update(*(seen for _, seen in found))
        return [told for told, _ in first]

    used = set()
    box.start_daemon()
    device, = reports(["-"])
    step, = reports(["1"])
    half = device // 2 // step * step
    require(step < half < device, f"the device has {device} SMs, in steps of {step}")
    by_context = {"CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING": "1"}
    neighbour = box.start(["drv_sm_share", "hold"], stdin=subprocess.PIPE)
    wait_for_line(neighbour, "# told")
    # Rounded up; more than the device has is all SMs.
    require(reports(["-", str(half), str(step + 1), str(device + 1), "1"]) ==
            [device, half, 2 * step, device, step], "execution affinity")
    require(reports(["25%", "-", "50%"]) == [device] * 3, "percentages count for contexts without the program's wish")
    quarter = max(device // 4 // step * step, step)
    require(reports(["25%", "-", "50%", "100%", str(step)], **by_context) ==
            [quarter, device, half, device, step], "percentages by context")
    # The worker knows a context's limit before it loads code, which might run in the cold context with all SMs.
    trace = box.root / "contexts.txt"
    reports([str(half)], OPENMPS_TRACE=str(trace))
    sent = [line for line in trace.read_text(encoding="utf-8").splitlines()
            if "ModuleLoad{" in line or ("StreamCreate{" in line and f"sms={half}," in line)]
    require("StreamCreate{" in sent[0], f"code before the limit: {sent[:2]}")
    # The program's limit takes precedence.
    held = {**by_context, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    used.clear()
    require(reports(["25%", "-", "75%", str(device)], **held) == [quarter, half, half, half],
            "percentages by context of a program that is limited")
    require(len(used) == half, f"contexts of a program that has {half} SMs ran on {sorted(used)}")
    tell(neighbour)
    box.quit()


def limited_from_cold(box, _):
    """A program whose code and graph were loaded in the cold context, which has all SMs, keeps to a limit that is
    set later as soon as the code can move, without its variables if it has some."""
    box.env["SOFTGPU_LOADING_WAITS"] = "1"
    box.start_daemon()
    step = sm_step(box)
    for arguments in ((), ("variables",), ("compiled",)):
        neighbour = box.start(["drv_neighbour", "kernel"], stdin=subprocess.PIPE)
        ready(neighbour)
        program = LiveSms(box, arguments=arguments)
        require(wait_until(lambda: program.rounds > 1, SETTLE_LIMIT_S), "the program does not begin")
        require(len(program.sms) > step, f"it is on {program.sms} from the start")
        code, text = box.control(f"set_client_sm_count {program.pid()} 0 {step}")
        require(code == 0, f"{code} {text}")
        tell(neighbour)
        finish(neighbour, "the neighbour")
        require(wait_until(lambda: len(program.sms) == step, SETTLE_LIMIT_S),
                f"{arguments}: it is on {program.sms}, not on {step}")
        beyond = lambda: json.loads(box.control("ps --json")[1])[0]["usage"]["beyond_limit"]
        before, rounds = beyond(), program.rounds
        require(wait_until(lambda: program.rounds > rounds + 2, SETTLE_LIMIT_S), "the program does not continue")
        require(beyond() == before, f"{arguments}: {beyond()} launches are beyond the limit, {before} before")
        program.end()
    box.quit()


def green_beside_values(box, _):
    """A program makes a green context of its own beside streams that wait for values. The driver would wait for
    these streams, so its work runs without the green context until the context is quiescent."""
    box.env["SOFTGPU_LOADING_WAITS"] = "1"
    box.start_daemon()
    most = json.loads(box.control("device_query --json")[1])[0]["sms"] * 2 // 3  # half, in whole groups
    neighbour = box.start(["drv_neighbour", "device_values"], stdin=subprocess.PIPE)
    ready(neighbour)
    program = LiveSms(box, arguments=("green",))
    require(wait_until(lambda: program.rounds > 1, SETTLE_LIMIT_S), "the program does not begin")
    require(len(program.sms) > most, f"it is on {program.sms}, although the context was never quiescent")
    finish(box.start(["drv_client_worker", "3"]), "a client beside both")
    require(neighbour.poll() is None, "the neighbour has ended")
    tell(neighbour)
    finish(neighbour, "the neighbour")
    require(wait_until(lambda: 0 < len(program.sms) <= most, SETTLE_LIMIT_S),
            f"it is on {program.sms}, not in its green context")
    program.end()
    settled(box, server_of(box))
    box.quit()


def live_limits(box, _):
    """Limits of running programs change at random: results are right, and each program keeps to its last
    limit."""
    box.start_daemon()
    step = sm_step(box)
    chance = random.Random(7)
    kinds = ((), ("green",), ("cooperative",), ("updates",))
    count = int(os.environ.get("OPENMPS_LIVE_PROGRAMS", "4"))
    programs = [LiveSms(box, arguments=kinds[i % len(kinds)]) for i in range(count)]
    started = lambda: all(program.rounds for program in programs)
    require(wait_until(started, SETTLE_LIMIT_S), "a program does not begin")
    device = json.loads(box.control("device_query --json")[1])[0]["sms"]
    for _ in range(int(os.environ.get("OPENMPS_LIVE_CHANGES", "60"))):
        pid = chance.choice(programs).pid()
        command = chance.choice([f"set_client_active_thread_percentage {pid} {chance.randint(1, 100)}",
                                 f"set_client_sm_count {pid} 0 {chance.randint(0, device)}",
                                 f"set_client_priority {pid} {chance.randint(0, 1)}"])
        require(box.control(command) == (0, ""), f"{command}: {box.control(command)}")
    for percentage in (100, 50, 13):
        for i, program in enumerate(programs):
            box.control(f"set_client_active_thread_percentage {program.pid()} {percentage}")
            most = max(device * percentage // 100, step)
            least = most / 4 if kinds[i % len(kinds)] else most / 2  # a green context of half the SMs has fewer blocks
            require(wait_until(lambda: least < len(program.sms) <= most, SETTLE_LIMIT_S),
                    f"{len(program.sms)} SMs of {device} at {percentage} %")
    shown = json.loads(box.control("ps --json")[1])
    require({client["active_thread_percentage"] for client in shown} == {13}, f"ps shows {shown}")
    for program in programs:
        program.end()
    for wrong, word in (("set_client_active_thread_percentage 1 50", "Client 1 not found"),
                        (f"set_client_active_thread_percentage {os.getpid()} 101", "101"),
                        ("set_client_sm_count 1 7", "Usage"), ("set_client_priority 1 2", "Usage")):
        code, text = box.control(wrong)
        require(code == 1 and word in text, f"{wrong}: {code} {text}")
    settled(box, server_of(box))
    box.quit()


def live_random(box, clients):
    """Random programs of several processes come to their results while their limits change at random.
    `clients`: programs of each process."""
    box.start_daemon()
    device = json.loads(box.control("device_query --json")[1])[0]["sms"]
    chance = random.Random(11)
    children = [box.start(["drv_random_order", str(9000 + 300 * process), str(clients or 120)])
                for process in range(3)]
    changes = 0
    while any(child.poll() is None for child in children):
        pid = chance.choice(children).pid
        code, _ = box.control(chance.choice([
            f"set_client_active_thread_percentage {pid} {chance.randint(1, 100)}",
            f"set_client_sm_count {pid} 0 {chance.randint(0, device)}", f"set_client_priority {pid} {chance.randint(0, 1)}"]))
        changes += code == 0  # the client has not connected yet, or has ended
        time.sleep(0.01)  # no result depends on this interval
    for child in children:
        finish(child, "one of them")
    require(changes > 0, "nothing was changed while they ran")
    settled(box, server_of(box))
    box.quit()


def live_placed(box, _):
    """Work that is bound to SMs when it is made, in a program's own green context or as a cooperative kernel, keeps
    to the program's current limit, and returns to its own SMs when the limit allows."""
    box.start_daemon()
    step = sm_step(box)
    for kind in ("green", "cooperative"):
        program = LiveSms(box, arguments=(kind,))
        require(wait_until(lambda: program.rounds > 2, SETTLE_LIMIT_S), f"{kind}: a program does not continue")
        its_own = set(program.sms)
        device = len(its_own) * (2 if kind == "green" else 1)
        for percentage in (25, 13, 25, 100, 6, 100):
            command = f"set_client_active_thread_percentage {program.pid()} {percentage}"
            require(box.control(command) == (0, ""), f"{command}: {box.control(command)}")
            if percentage == 100:
                is_so = lambda: program.sms == its_own if kind == "green" else program.sms >= its_own
            else:
                is_so = lambda: 0 < len(program.sms) <= max(device * percentage // 100, step)
            require(wait_until(is_so, SETTLE_LIMIT_S),
                    f"{kind}: {len(program.sms)} SMs at {percentage} %, its own {its_own}")
        owner = LiveSms(box)
        require(wait_until(lambda: len(owner.sms) > 0, SETTLE_LIMIT_S), "another program does not begin")
        code, text = box.control(f"reserve_sms {owner.pid()} 0 {len(its_own) // 2}")
        require(code == 0, text)
        are_apart = lambda: owner.sms and program.sms and not owner.sms & program.sms
        require(wait_until(are_apart, SETTLE_LIMIT_S), f"{kind}: {program.sms} beside {owner.sms} that are reserved")
        owner.end()
        require(wait_until(lambda: program.sms >= its_own, SETTLE_LIMIT_S), f"{kind}: {program.sms}, its own {its_own}")
        program.end()
    settled(box, server_of(box))
    box.quit()


def few_sms(box, _):
    """Beside a program that fills the device with long kernels, a program of higher rank finds SMs that the other
    keeps off, and one with small kernels has a few SMs to itself (on a GPU: softgpu's kernels are never short)."""
    on_softgpu = box.driver == "softgpu"
    if on_softgpu:
        box.env["SOFTGPU_SMS"] = "132"
    box.start_daemon()
    filler = LiveSms(box, arguments=(256, 400) if on_softgpu else (2112, 400_000))
    require(wait_until(lambda: len(filler.sms) > 0, SETTLE_LIMIT_S), "a program does not begin")
    device = len(filler.sms)
    has_all = lambda: len(filler.sms) == device
    for quality in ("latency",) if on_softgpu else ("latency", "normal"):
        small = LiveSms(box, {"OPENMPS_QOS": quality}, (8, 1))
        if quality == "latency":
            has_its_own = lambda: len(small.sms) > 0 and len(filler.sms) <= device - device // 16
        else:
            has_its_own = lambda: (0 < len(small.sms) <= device // 32 and not small.sms & filler.sms
                                   and len(filler.sms) >= device - device // 32)
        require(wait_until(has_its_own, SETTLE_LIMIT_S),
                f"{quality}: {small.sms} beside {len(filler.sms)} of {device} SMs")
        small.child.send_signal(signal.SIGSTOP)
        require(wait_until(has_all, SETTLE_LIMIT_S), f"{quality}: {len(filler.sms)} SMs while the other does nothing")
        small.child.send_signal(signal.SIGCONT)
        require(wait_until(has_its_own, SETTLE_LIMIT_S), f"{quality}: it has no SMs of its own again")
        small.end()
        require(wait_until(has_all, SETTLE_LIMIT_S), f"{quality}: {len(filler.sms)} SMs when the other has gone")
    filler.end()
    settled(box, server_of(box))
    box.quit()


def reserved_sms(box, _):
    """SMs that are reserved for a program run nothing else, until the reservation or the program ends."""
    box.start_daemon()
    owner, other = LiveSms(box), LiveSms(box)
    begun = lambda: owner.rounds > 0 and len(other.sms) > 0
    require(wait_until(begun, SETTLE_LIMIT_S), "a program does not begin")
    device = len(other.sms | owner.sms)
    device_count = len(json.loads(box.control("device_query --json")[1]))

    def reserve(whom, options=""):
        code, text = box.control(f"reserve_sms {whom} 0 4 {options}")
        require(code == 0 and text.endswith(f" SMs are reserved for {whom}\n"), f"{code} {text}")
        return int(text.split()[0])

    def are_apart():
        return len(owner.sms) == kept and not owner.sms & other.sms and len(owner.sms | other.sms) == device

    kept = reserve(owner.pid())
    require(wait_until(are_apart, SETTLE_LIMIT_S), f"{owner.sms} are not its own beside {other.sms}")
    third = LiveSms(box)
    require(wait_until(lambda: third.rounds > 2, SETTLE_LIMIT_S), "a new client does not begin")
    require(not third.sms & owner.sms, f"a new client has {third.sms} beside {owner.sms}")
    third.end()
    for wrong, word in ((f"reserve_sms {owner.pid()} 0 2", "already"),
                        (f"reserve_sms {other.pid()} 0 {device}", "not so many"),
                        (f"reserve_sms {other.pid()} {device_count} 2", "no such device"),
                        ("reserve_sms nobody 0 0", "No SMs are reserved")):
        code, text = box.control(wrong)
        require(code == 1 and word in text, f"{wrong}: {code} {text}")
    require(box.control(f"reserve_sms {owner.pid()} 0 0") == (0, ""), "the reservation does not end")
    has_all = lambda program: wait_until(lambda: len(program.sms) == device, SETTLE_LIMIT_S)
    require(has_all(owner) and has_all(other), f"{owner.sms}, {other.sms} of {device}")
    # By name: for each program of that name. The SMs are free again when all of the process has been released.
    kept = reserve(owner.pid(), "--lend")
    require(wait_until(are_apart, SETTLE_LIMIT_S), f"{owner.sms} are not its own beside {other.sms}")
    owner.child.send_signal(signal.SIGSTOP)
    require(has_all(other), f"{other.sms} of {device} while the owner does nothing")
    owner.child.send_signal(signal.SIGCONT)
    require(wait_until(are_apart, SETTLE_LIMIT_S), f"{owner.sms} are not its own again beside {other.sms}")
    owner.end()
    require(has_all(other), f"{other.sms} of {device} after the owner's end")
    kept = reserve("drv_live_sms")
    require(wait_until(lambda: len(other.sms) == kept, SETTLE_LIMIT_S), f"{other.sms}")
    other.end()
    settled(box, server_of(box))
    box.quit()


class PartitionedSms:
    """Starts a drv_sm_share in a static partition, which runs on; returns its number of SMs, and the SMs it ran on."""

    def __init__(self, box, partition, env=None, **kwargs):
        self.child = box.start(["drv_sm_share", "hold"], stdin=subprocess.PIPE,
                               env={"CUDA_MPS_SM_PARTITION": partition, **(env or {})}, **kwargs)
        self.told, self.sms = sm_report(wait_for_line(self.child, "# told"))

    def end(self):
        tell(self.child)
        finish(self.child, "a program in a partition")


def static_partitions(box, _):
    """Programs in static partitions: each runs on its partition's SMs and no others, a program in no partition is
    refused, and the partitions outlive workers."""
    as_other = {}
    if os.geteuid() == 0:
        box.share_build()
        box.env.pop("SOFTGPU_DEVICE", None)  # a simulated device belongs to one user
        as_other = as_user(OTHER_USER)
    box.env["SOFTGPU_DEVICES"] = "2"
    box.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "1"  # has no effect
    box.start_daemon(options=["-S"])

    def add(device, chunks):
        code, text = box.control(f"sm_partition add {device['uuid']} {chunks}")
        require(code == 0 and text.startswith(f"Partition {device['uuid']}/") and text.endswith(" created\n"),
                f"sm_partition add: {code} {text}")
        return text.split()[1]

    def remove(device, partition):
        return box.control(f"sm_partition rm {device['uuid']} {partition.split('/', 1)[1]}")

    def clients_of(partition):
        listed = [one for device in json.loads(box.control("lspart --json")[1]) for one in device["partitions"]]
        return [one["clients"] for one in listed if one["name"] == partition]

    def refused(variable, word):
        env = {} if variable is None else {"CUDA_MPS_SM_PARTITION": variable}
        child = box.start(["drv_sm_share"], env=env)
        out, err = child.communicate(timeout=CLIENT_LIMIT_S)
        require(child.returncode != 0 and "915" in out + err, f"{variable}: {child.returncode} {out}{err}")
        require(word in box.logs(), f"{variable}: the log does not say {word}")

    devices = json.loads(box.control("device_query --json")[1])
    first, last = devices[0], devices[-1]
    step = first["chunk_sms"]
    free = first["chunks"]
    small, large = add(first, 1), add(first, free - 1)
    require(box.control(f"sm_partition add {first['uuid']} 1") ==
            (0, "Failed to fulfill the requested SM partition of 1 chunks, "
                "error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n"), "a full device has another chunk")
    refused(None, "CUDA_MPS_SM_PARTITION is not set")
    refused(first["uuid"] + "/none", "there is no such partition")
    require(box.control("reserve_sms drv_sm_share 0 2")[0] == 1, "SMs are reserved beside the partitions")

    in_small = PartitionedSms(box, small)
    in_large = PartitionedSms(box, f"{first['uuid'][:12]}/{large.split('/', 1)[1]}")
    beside = PartitionedSms(box, small, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})
    for program, chunks in ((in_small, 1), (in_large, free - 1), (beside, 1)):
        require(program.told == len(program.sms) == chunks * step, f"{program.told} {program.sms} of {chunks}")
    shown = {client["pid"]: client["sm_partition"] for client in json.loads(box.control("ps --json")[1])}
    require(shown == {in_small.child.pid: small, in_large.child.pid: large, beside.child.pid: small}, f"ps shows {shown}")
    require(not in_small.sms & in_large.sms and beside.sms == in_small.sms,
            f"{in_small.sms} and {beside.sms} beside {in_large.sms}")
    if last is not first:
        elsewhere = add(last, 2)
        program = PartitionedSms(box, elsewhere)
        require(program.told == len(program.sms) == 2 * step, f"{program.told} {program.sms} of another device")
        program.end()

    require(remove(first, small) == (0, f"Partition {small} in use. Terminate all clients before removing.\n"),
            "a partition is removed under its client")
    require(clients_of(small) == [True], "lspart does not know of clients")
    # In the next worker the partitions have the SMs of before, whichever program starts first.
    kill_workers(box)
    for program in (in_small, in_large, beside):
        program.child.kill()
        program.child.communicate()
    large_again, again = PartitionedSms(box, large), PartitionedSms(box, small)
    require(again.sms == in_small.sms and large_again.sms == in_large.sms,
            f"{again.sms}, {large_again.sms} after {in_small.sms}, {in_large.sms}")
    # The next daemon knows the partitions, with the programs that run in them.
    kill_daemon(box)
    box.start_daemon(options=["-S"])
    known = lambda: clients_of(small) == clients_of(large) == [True]
    require(wait_until(known, SETTLE_LIMIT_S), "the next daemon does not know the partitions of the clients")
    require(remove(first, small)[1].startswith(f"Partition {small} in use"), "it removes a partition in use")
    newcomer = PartitionedSms(box, small)
    require(newcomer.sms == again.sms, f"a new client has {newcomer.sms} beside {again.sms}")
    newcomer.end()
    again.end()
    large_again.end()
    nobody = lambda: clients_of(small) == clients_of(large) == [False]
    require(wait_until(nobody, SETTLE_LIMIT_S), "lspart still has clients")
    for partition in (small, large):
        require(remove(first, partition) == (0, f"Partition {partition} removed\n"), f"{partition} can't be removed")
    refused(small, "there is no such partition")
    # Two partitions become one, in a worker that had both.
    all_chunks = add(first, free)
    whole = PartitionedSms(box, all_chunks)
    require(whole.told == len(whole.sms) == free * step, f"{whole.told} {whole.sms} of {free} chunks")
    whole.end()
    require(wait_until(lambda: "removed" in remove(first, all_chunks)[1], SETTLE_LIMIT_S), "the partition stays in use")
    if as_other:
        code, text = box.control(f"sm_partition add {first['uuid']} 1", user=OTHER_USER)
        require(code == 1 and text.startswith("Permission denied"), f"another user makes partitions: {text}")
        require(box.control("lspart", user=OTHER_USER)[0] == 0, "another user may not look at them")
        add(first, 1)
        shared = add(first, 2)
        ours, theirs = PartitionedSms(box, shared), PartitionedSms(box, shared, **as_other)
        require(len(json.loads(box.control("get_server_list --json")[1])) == 2, "two users do not have two servers")
        require(not ours.sms & in_small.sms, f"{ours.sms} are not behind {in_small.sms}")
        require(theirs.sms == ours.sms, f"another user's are {theirs.sms}, not {ours.sms}")
        ours.end()
        theirs.end()
    box.quit()


CONFIGURED_PARTITION = """
[[partitions]]
name = "{}"
device = 0
chunks = {}
"""


def configured_partitions(box, _):
    """Partitions of the configuration exist for the first client, by their own names; what `reload` adds
    is made at once, and the next daemon knows them."""
    box.start_daemon(options=["-S"], config=CONFIGURED_PARTITION.format("first", 2))
    first = PartitionedSms(box, "first")
    device = json.loads(box.control("device_query --json")[1])[0]
    require(first.told == len(first.sms) == 2 * device["chunk_sms"], f"{first.told} {first.sms} of two chunks")
    name = device["uuid"] + "/first"
    again = PartitionedSms(box, name)
    require(again.sms == first.sms, f"{again.sms} by the whole name, {first.sms} by its own")
    again.end()
    box.config().write_text(CONFIGURED_PARTITION.format("first", 3) + CONFIGURED_PARTITION.format("second", 1))
    code, text = box.control("reload")
    require((code, text.splitlines()) == (0, [
        f"partition {name} keeps its 2 chunks until it is removed",
        "partition second: 1 chunks of device 0", f"partition {device['uuid']}/second created"]), f"{code} {text}")
    second = PartitionedSms(box, "second")
    require(not second.sms & first.sms, f"{second.sms} beside {first.sms}")
    second.end()
    kill_daemon(box)
    box.start_daemon(options=["-S"], config=CONFIGURED_PARTITION.format("first", 2))
    newcomer = PartitionedSms(box, "first")
    require(newcomer.sms == first.sms, f"{newcomer.sms} behind the next daemon, {first.sms} before")
    newcomer.end()
    first.end()
    settled(box, server_of(box))
    require(box.control(f"sm_partition rm {device['uuid']} first") == (0, f"Partition {name} removed\n"), "rm")
    code, text = box.control("reload")
    require(code == 0 and text.endswith(f"partition {name} created\n"), f"made again: {code} {text}")
    box.quit()


def kept_answers(box, _):
    """The client asks the worker once for answers that cannot change, unless that is switched off."""
    box.start_daemon()

    def asked(program, command, **env):
        path = os.path.join(box.tmp, "asked")
        code, out, err = box.run(program, CLIENT_LIMIT_S, {"OPENMPS_TRACE": path, **env})
        require(code == 0, f"{' '.join(program)}: {code}\n{out}{err}")
        with open(path, encoding="utf-8") as file:
            count = sum(f": {command}{{" in line for line in file)
        os.remove(path)
        return count

    # Three shapes of two functions, one of them also before its settings change, and each once more after that.
    # Four limits in turn, each three times in one context and once in another.
    for program, command, kept, each in ((["drv_function_calls", "settings"], "Occupancy", 9, 12),
                                         (["drv_limits", "fixed"], "LimitGet", 8, 16)):
        counts = asked(program, command), asked(program, command, OPENMPS_PERF="no_kept_answers")
        require(counts == (kept, each), f"{command}: {counts[0]} times, {counts[1]} when no answers are kept")
    box.quit()


def thin_images(box, _):
    """A program with code for many devices sends the code for this one, unless that is switched off."""
    box.start_daemon()

    def sent(**env):
        path = os.path.join(box.tmp, "sent")
        code, out, err = box.run(["nbody_many_devices"], CLIENT_LIMIT_S, {"OPENMPS_TRACE": path, **env})
        require(code == 0, f"nbody_many_devices: {code}\n{out}{err}")
        with open(path, encoding="utf-8") as file:
            sizes = re.findall(r": BlobBegin\{bytes=(\d+)", file.read())
        os.remove(path)
        return [int(size) for size in sizes]

    thin, whole = sent(), sent(OPENMPS_PERF="no_thin_images")
    # PTX and code for six generations; at most two of the images are for this device.
    require(len(thin) == len(whole) == 1 and 0 < thin[0] < whole[0] / 2, f"{thin} bytes of {whole}")
    box.quit()


def fresh_beside_queue(box, _):
    fresh_beside(box, "queue", leave_alone, tell)


ALL = {f.__name__: f for f in
       (many_clients, idle_clients, churn, kill_beside, rogue_clients, confined, capture_vs_alloc,
        no_daemon, required, control_shell, kernel_output, assert_text, assert_beside_kernel, thin_images, fault_beside_idle, endless_kernel, endless_quit, terminated,
        few_threads, few_descriptors, memory_limits, full_heap, limits_at_start, endless_printer,
        kill_waiting, fresh_beside_kernel, fresh_beside_stopped, fresh_beside_value,
        beside_values, beside_device_values, beside_calls, beside_events, beside_legacy, crowd_beside_host,
        streams_beside_kernel, fresh_beside_queue, left_beside_waiting, ranks, random_order, traced, kept_answers, inspected, measured, remembered, percentages,
        contexts, limited_from_cold, green_beside_values, live_limits, live_placed, live_random, few_sms, reserved_sms, static_partitions, configured_partitions, transcript, recipes, users, secure_programs, pid_namespace, *GROUPS, *MEMORY, *NAMESPACES, *NVML, *CONTAINERS, *FAILURES, *HISTORY, *RECORDING, *WAITING, *LIBRARIES, watched, on_terminal)}

# Scenarios whose answers a GPU decides: `./dev gpu-test` runs them, too.
ON_GPU = ("memory_limits", "percentages", "contexts", "group_sms", "live_limits", "live_placed", "live_random", "few_sms", "limited_from_cold", "green_beside_values", "reserved_sms",
          "waiting_values", "waiting_device_values", "waiting_events", "waiting_kernel", "waiting_legacy",
          "waiting_contexts", "waiting_launches", "waiting_crowd",
          "beside_values", "beside_device_values", "beside_calls", "beside_events", "beside_legacy", "crowd_beside_host", "streams_beside_kernel",
          "static_partitions", "ranks", "random_order", "assert_text", "assert_beside_kernel", "thin_images")


def run(name, build, driver, clients):
    require(name in ALL, f"no scenario {name}; there are: {' '.join(sorted(ALL))}")
    # Scenarios count workers.
    box = Sandbox(build, "openmps", driver, {"OPENMPS_SPARE": "off"})
    try:
        try:
            ALL[name](box, clients)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"no end: {late}\n{box.logs()}") from None
        except Failure as failure:
            raise Failure(f"{failure}\n{box.logs()}") from None
        left = box.leftovers()
        require(not left, "\n".join(left) + "\n" + box.logs())
    finally:
        box.close()
