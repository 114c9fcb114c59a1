# SPDX-License-Identifier: Apache-2.0
"""Scenarios of failures around the service: a daemon that is killed, unusable directories, files of a killed
daemon, a full disk, no descriptors, other programs' descriptors in flight, processes that are stopped. Each
failure is reported in one line, no data is lost, and nothing is left behind. Called by scenarios.py.
"""

import array
import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import socket
import subprocess
from pathlib import Path

from bystanders import FAULTS, H200_LATENCY, MODES, Bystander, Logs, await_active, commit, named, outcome, suspected
from sandbox import as_user, wait_until
from scenario_tools import (CLIENT_LIMIT_S, OTHER_USER, SETTLE_LIMIT_S, Skipped, finish, kill_daemon,
                            kill_workers, ready, require, server_of, settled, tell)
from user_scenarios import Other


CUDA_ERROR_LAUNCH_FAILED = 719  # what a client is told whose work was lost by another's fault


def listed(box, server):
    return set(box.control(f"get_client_list {server}")[1].split())


def daemon_killed(box, _):
    """The daemon is killed and started again under running clients, twice: the clients continue, and the new
    daemon lists them, passes new clients to their server, and terminates one of them."""
    box.start_daemon()
    idle = box.start(["drv_client_worker", "1", "40", "hold"], stdin=subprocess.PIPE)
    busy = box.start(["drv_client_worker", "2", "0"])  # computes and compares until it is ended
    clients = [idle, busy]
    for client in clients:
        ready(client)
    server, workers = server_of(box), box.pids_named("openmps-worker")
    for _round in range(2):
        kill_daemon(box)
        code, out, _err = box.run(["drv_client_worker", "9"], CLIENT_LIMIT_S)
        require(code == 1 and "CUDA_ERROR_MPS_CONNECTION_FAILED" in out, f"without a daemon: {code}\n{out}")
        require(box.control("ps") == (1, "Cannot find MPS control daemon process\n"), "ps without a daemon")
        box.start_daemon()
        # As a rule before the first question; on a busy machine it may take longer.
        require(wait_until(lambda: box.control("get_server_list") == (0, f"{server}\n"), SETTLE_LIMIT_S),
                f"the servers are {box.control('get_server_list')}")
        require(listed(box, server) == {str(client.pid) for client in clients}, str(listed(box, server)))
        require(box.control(f"get_server_status {server}") == (0, "ACTIVE\n"), "its state")
        require(f"of process {idle.pid}\n" in box.control(f"inspect {idle.pid}")[1], "inspect")
        newcomer = box.start(["drv_client_worker", "4", "3", "hold"], stdin=subprocess.PIPE)
        ready(newcomer)
        require(str(newcomer.pid) in listed(box, server), "a new client did not get this server")
        tell(newcomer)
    require(box.control(f"terminate_client {server} {busy.pid}") == (0, "0\n"), "it was not terminated")
    out, err = busy.communicate(timeout=CLIENT_LIMIT_S)
    require(busy.returncode == 1 and "CUDA_ERROR_MPS_CLIENT_TERMINATED (810)" in out,
            f"a terminated client: {busy.returncode}\n{out}{err}")
    tell(idle)
    require(box.pids_named("openmps-worker") == workers, "the worker was replaced")
    settled(box, server)
    # Killed, as a server that is a child of the daemon would be.
    last = box.start(["drv_client_worker", "5", "3", "hold"], stdin=subprocess.PIPE)
    ready(last)
    require(box.control(f"shutdown_server {server} -f") == (0, ""), "shutdown_server -f")
    require(not box.pids_named("openmps-server"), "the killed server still runs")
    out, _err = last.communicate("go\n", timeout=CLIENT_LIMIT_S)
    require(last.returncode == 1 and "CUDA_ERROR_MPS_RPC_FAILURE" in out, f"a client of no server: {out}")
    # Without clients a server ends with its daemon.
    finish(box.start(["drv_client_worker", "6"]), "a client of the next server")
    kill_daemon(box)
    require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "a server without clients has outlived its daemon")
    box.start_daemon()
    box.quit()


def beside_faults(box, _):
    """Clients that fault, one after the other and with all delays of a GPU, and at last the death of all workers, beside
    an idle client, one that makes requests, and one whose work may be executed again: the idle one and the last are not
    harmed, the other is told once at most, and goes on. The log names the culprit, or those of whom it is one; a new
    client is served, and no client is left over."""
    box.env.update({"SOFTGPU_FAULT_LATENCY_US": H200_LATENCY, "OPENMPS_SPARE": "auto", "OPENMPS_QUARANTINE": "off"})
    box.start_daemon()
    logs = Logs(box)
    bystanders = [Bystander(box, "idle", 1), Bystander(box, "requests", 2),
                  Bystander(box, "copies", 3, {"OPENMPS_REPLAY": "always"})]
    for bystander in bystanders:
        bystander.wait_ready()
    server = server_of(box)
    for number, kind in enumerate((*FAULTS, "death")):
        for bystander in bystanders:
            bystander.ask()
        if kind == "death":
            for worker in box.pids_named("openmps-worker"):
                os.kill(worker, signal.SIGKILL)
        else:
            culprit, told = commit(box, kind)
            await_active(box, SETTLE_LIMIT_S)
            require(told.startswith("CUDA_ERROR_"), f"{kind}: the culprit was told {told}")
            text = logs.new()
            require(named(text) <= {culprit} and culprit in named(text) | set(suspected(text)) and
                    bystanders[0].child.pid not in suspected(text),
                    f"{kind}: named are {named(text)} of {suspected(text)} instead of {culprit}")
            require(kind != "assert" or named(text) == {culprit}, f"no other program has assertions:\n{text}")
        finish(box.start(["drv_client_worker", str(number + 10)]), "a newcomer")
        for bystander, outcomes in zip(bystanders, (("unharmed",), ("unharmed", "told"), ("unharmed",))):
            answer = bystander.ask()
            require(outcome(answer) in outcomes and answer["rounds"] > 0 and
                    all(error["code"] == CUDA_ERROR_LAUNCH_FAILED for error in answer["errors"]),
                    f"beside {kind}: {answer}")
    require(server_of(box) == server, "the server was replaced")
    for bystander in bystanders:
        bystander.end()
    require(wait_until(lambda: not listed(box, server), SETTLE_LIMIT_S), "clients are still listed after their end")
    box.quit()


def renewed_beside(box, _):
    """Workers are replaced (reload --worker) under clients of all kinds: none of them is told, and each result is right."""
    box.start_daemon()
    bystanders = [Bystander(box, mode, number) for number, mode in enumerate(MODES)]
    for bystander in bystanders:
        bystander.wait_ready()
    for number in range(5):
        before = box.pids_named("openmps-worker")
        code, out = box.control("reload --worker")
        require(code == 0 and f" {len(MODES) + 1} clients have moved to it, 0 stay" in out, f"reload --worker: {code}, {out}")
        for bystander in bystanders:
            answer = bystander.ask()
            require(outcome(answer) == "unharmed" and (answer["rounds"] > 0 or answer["mode"] == "idle"), f"{number}: {answer}")
        require(not set(before) & set(box.pids_named("openmps-worker")), "an old worker is left")
    for bystander in bystanders:
        bystander.end()
    box.quit()


def of_client(box, pid):
    """What `ps` says of the client."""
    return next(client for client in json.loads(box.control("ps --json")[1]) if client["pid"] == pid)


def quarantined(box, _):
    """A program that faults again and again, beside two others: its first fault is one of them all. From then on it
    runs apart, and the others notice nothing of its faults."""
    box.start_daemon()
    bystanders = [Bystander(box, "idle", 1), Bystander(box, "copies", 2)]
    for bystander in bystanders:
        bystander.wait_ready()
    moves = lambda: [of_client(box, bystander.child.pid)["moves"] for bystander in bystanders]
    commit(box, "assert")
    await_active(box, SETTLE_LIMIT_S)
    require(wait_until(lambda: moves() == [1, 1], SETTLE_LIMIT_S), f"they have moved {moves()} times")
    for bystander in bystanders:
        require(outcome(bystander.ask()) in ("unharmed", "told"), "beside the first fault")
    workers = set(box.pids_named("openmps-worker"))
    for _round in range(3):
        child = box.start(["drv_culprit", "assert"], stdin=subprocess.PIPE)
        ready(child)
        require(of_client(box, child.pid)["domain"] == "quarantine", str(of_client(box, child.pid)))
        out, err = child.communicate("\n", timeout=CLIENT_LIMIT_S)
        require(child.returncode == 0 and "CUDA_ERROR_ASSERT" in out, f"the culprit: {child.returncode} {out}{err}")
        for bystander in bystanders:
            answer = bystander.ask()
            require(outcome(answer) == "unharmed", f"beside a fault in quarantine: {answer}")
    require(moves() == [1, 1], f"they have moved {moves()} times")
    finish(box.start(["drv_client_worker", "3"]), "another program")
    require(" is in domain quarantine\n" in (box.log / "server.log").read_text(), "it is not logged")
    for bystander in bystanders:
        bystander.end()
    require(wait_until(lambda: len(set(box.pids_named("openmps-worker")) - workers) <= 1, SETTLE_LIMIT_S),
            "workers of the quarantine are left")
    box.quit()


def domains(box, _):
    """Programs in fault domains: a fault reaches those of its domain only. Clients go from one to the other while they
    run, and a domain ends after its last client."""
    box.start_daemon()
    here = [Bystander(box, mode, number) for number, mode in enumerate(("idle", "requests", "variables"))]
    there = [Bystander(box, mode, number + 10, {"OPENMPS_DOMAIN": "there"}) for number, mode in enumerate(("idle", "graphs"))]
    for bystander in here + there:
        bystander.wait_ready()
    domain = lambda bystander: of_client(box, bystander.child.pid)["domain"]
    require([domain(one) for one in here + there] == ["common"] * 3 + ["there"] * 2, "where they are")
    require(len(box.pids_named("openmps-worker")) >= 2, "a domain has a worker of its own")
    child = box.start(["drv_culprit", "write"], {"OPENMPS_DOMAIN": "there"}, stdin=subprocess.PIPE)
    ready(child)
    child.communicate("\n", timeout=CLIENT_LIMIT_S)
    await_active(box, SETTLE_LIMIT_S)
    for bystander in here + there:
        answer = bystander.ask()
        require(outcome(answer) in (("unharmed",) if bystander in here else ("unharmed", "told")), f"beside the fault: {answer}")
    require([of_client(box, one.child.pid)["moves"] for one in here] == [0] * 3, "the others have not moved")
    # All of them change places, and back; one goes into a domain that there has not been.
    for goes in ((here, "there"), (there, "common"), (here, "common"), (there, "elsewhere"), (there[:1], "common")):
        for bystander in goes[0]:
            code, out = box.control(f"move_client {bystander.child.pid} {goes[1]}")
            require((code, out) == (0, ""), f"move_client to {goes[1]}: {code} {out}")
            require(domain(bystander) == goes[1], f"it is in {domain(bystander)} instead of {goes[1]}")
        if len(here) == 3:
            # A newcomer where these have been has other addresses: it meets them again.
            here.append(Bystander(box, "variables", 20))
            here[3].wait_ready()
        for bystander in here + there:
            answer = bystander.ask()
            require(outcome(answer) == "unharmed", f"moved to {goes[1]}: {answer}")
    require("\nIn domain elsewhere, with a worker of its own: " in box.run(["openmps", "ps"], CLIENT_LIMIT_S)[1], "openmps ps")
    for command, said in ((f"move_client {here[0].child.pid} a/b", "Usage"), ("move_client 1 there", "not found"),
                          (f"move_client {here[0].child.pid}", "Usage")):
        code, out = box.control(command)
        require(code == 1 and said in out, f"{command}: {code} {out}")
    for bystander in there:
        bystander.end()
    require(wait_until(lambda: all(client["domain"] == "common" for client in json.loads(box.control("ps --json")[1])),
                       SETTLE_LIMIT_S), "clients are left")
    only = {int(pid) for pid in re.findall(r"Server has started \(worker (\d+)\)", (box.log / "server.log").read_text())}
    require(wait_until(lambda: len(only & set(box.pids_named("openmps-worker"))) == 1, 3 * SETTLE_LIMIT_S),
            "workers of domains without clients are left")
    for bystander in here:
        require(outcome(bystander.ask()) == "unharmed", "at the end")
        bystander.end()
    box.quit()


def shared_between_domains(box, _):
    """Programs of two fault domains share memory (cuIpc), as those of one do."""
    box.start_daemon()
    # Its worker serves until the end.
    there = Bystander(box, "idle", 0, {"OPENMPS_DOMAIN": "there"})
    there.wait_ready()
    for group in ("memory", "free", "killed", "descriptor", "pool", "errors"):
        code, out, err = box.run(["drv_ipc", group, "there"], CLIENT_LIMIT_S)
        require(code == 0, f"drv_ipc {group}: {code}\n{out}{err}")
    require(outcome(there.ask()) == "unharmed", "the bystander")
    there.end()
    box.quit()


def work_time(box, _):
    """Work that does not end is ended by a limit of time: its program is told, the others go on."""
    box.start_daemon()
    bystanders = [Bystander(box, mode, number) for number, mode in enumerate(("idle", "requests", "long"))]
    for bystander in bystanders:
        bystander.wait_ready()
    worker = set(box.pids_named("openmps-worker"))
    finish(box.start(["drv_trouble", "overdue"], {"OPENMPS_WORK_TIME_LIMIT": "0.5"}), "the endless one")
    require(wait_until(lambda: not worker & set(box.pids_named("openmps-worker")), SETTLE_LIMIT_S), "its worker is left")
    for bystander in bystanders:
        answer = bystander.ask()
        require(outcome(answer) == "unharmed" and (answer["rounds"] > 0 or answer["mode"] == "idle"), f"beside it: {answer}")
    # Of one that runs, and of all that come.
    runs = box.start(["drv_trouble", "overdue"])
    ready(runs)
    require(box.control(f"set_client_work_time_limit {runs.pid} 0.2") == (0, ""), "the command")
    finish(runs, "the second one")
    require("Usage" in box.control(f"set_client_work_time_limit {runs.pid} soon")[1], "a bad value")
    for bystander in bystanders:
        require(outcome(bystander.ask()) == "unharmed", "beside the second one")
        bystander.end()
    box.quit()


# None that compares free memory: for a while two workers have the device.
RENEWED = [["drv_globals"], ["drv_constants"], ["drv_streams_events"], ["drv_graph_nodes", "change"], ["drv_pools", "use"], ["drv_contexts"],
           ["drv_stream_calls", "values"], ["drv_libraries"], ["drv_copies", "1048576"], ["drv_linker"],
           ["drv_many_streams"], ["drv_random_order"]]


def renewed_programs(box, _):
    """Programs go from worker to worker all the time, and print what they do otherwise. All of the suite's:
    OPENMPS_TEST_RENEW=0.003 ctest -R e2e.openmps."""
    box.start_daemon()
    run_moving(box, box.renew)


def moved_programs(box, _):
    """The same between two fault domains. All of the suite's: OPENMPS_TEST_CHANGE_DOMAINS=0.003."""
    box.start_daemon()
    run_moving(box, box.change_domains)


def constants_beside_busy(box, _):
    """Code that is loaded beside a busy GPU, in the second context, and moves to the first: its constants are where
    it runs."""
    box.start_daemon()
    busy = [Bystander(box, mode, number) for number, mode in enumerate(("long", "requests", "graphs"))]
    for bystander in busy:
        bystander.wait_ready()
    for _ in range(3):
        finish(box.start(["drv_constants"]), "the constants")
    for bystander in busy:
        require(outcome(bystander.ask()) == "unharmed", "beside the constants")
        bystander.end()
    box.quit()


def moved_on_two_devices(box, _):
    """In workers of two GPUs programs with variables go on in the next worker, too, at a fault and when it is replaced;
    and one whose library has variables on both."""
    box.env["SOFTGPU_DEVICES"] = "2"
    box.start_daemon()
    bystander = Bystander(box, "variables", 1, {"OPENMPS_REPLAY": "always"})
    bystander.wait_ready()
    for kind in ("write", "assert"):
        commit(box, kind)
        await_active(box, SETTLE_LIMIT_S)
        answer = bystander.ask()
        require(outcome(answer) == "unharmed" and answer["rounds"] > 0, f"beside {kind}: {answer}")
    bystander.end()
    run_moving(box, box.renew, [["drv_libraries", "rounds"], ["drv_libraries"], ["drv_globals"]])


def gpu_domains(box, _):
    """Of several GPUs each has a worker for the programs that see it alone: its faults reach no program of another one,
    busy or not. Who sees several is in the common domain, and so are all that see a GPU of which SMs are reserved, or on
    which one that sees several works."""
    box.env.update({"SOFTGPU_DEVICES": "2", "SOFTGPU_FAULT_LATENCY_US": H200_LATENCY, "OPENMPS_QUARANTINE": "off"})
    box.start_daemon()
    on = [{"CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in range(2)]
    # All of them come before the GPUs are known.
    first = [Bystander(box, mode, number, on[0]) for number, mode in enumerate(("idle", "copies"))]
    second = [Bystander(box, mode, number, on[1]) for number, mode in enumerate(("requests", "variables"), 10)]
    both = Bystander(box, "idle", 20)
    everyone = [*first, *second, both]
    for bystander in everyone:
        bystander.wait_ready()
    expected = ["gpu:0"] * len(first) + ["gpu:1"] * len(second) + ["common"]
    domains_are = lambda wanted: [of_client(box, one.child.pid)["domain"] for one in everyone] == wanted
    require(domains_are(expected), box.control("ps")[1])
    for kind in ("write", "misaligned", "assert"):
        commit(box, kind, on[0])
        await_active(box, SETTLE_LIMIT_S)
    for bystander in (*second, both):
        answer = bystander.ask()
        require(outcome(answer) == "unharmed", f"of another GPU: {answer}")
        require(of_client(box, bystander.child.pid)["moves"] == 0, "it has not moved")
    for bystander in first:
        answer = bystander.ask()
        require(outcome(answer) in ("unharmed", "told", "told often") and not answer["lost"], f"of that GPU: {answer}")
    owner = second[0].child.pid
    require(box.control(f"reserve_sms {owner} 1 2")[0] == 0, "SMs are reserved")
    require(wait_until(lambda: domains_are(["gpu:0"] * len(first) + ["common"] * (len(second) + 1)), SETTLE_LIMIT_S),
            "with reserved SMs: " + box.control("ps")[1])
    require(box.control(f"reserve_sms {owner} 1 0")[0] == 0, "and no longer")
    require(wait_until(lambda: domains_are(expected), SETTLE_LIMIT_S), "without them: " + box.control("ps")[1])
    everyone.append(Bystander(box, "requests", 21))  # on the first GPU
    everyone[-1].wait_ready()
    expected = ["common"] * len(first) + expected[len(first):] + ["common"]
    require(wait_until(lambda: domains_are(expected), SETTLE_LIMIT_S), "beside who sees both: " + box.control("ps")[1])
    for bystander in everyone:
        answer = bystander.ask()
        require(outcome(answer) == "unharmed", f"moved to and fro: {answer}")
    for bystander in everyone:
        bystander.end()
    box.quit()


def gpu_domains_off(box, _):
    """OPENMPS_GPU_DOMAINS=off: one worker for all GPUs."""
    box.env["OPENMPS_GPU_DOMAINS"] = "off"
    all_are_common(box)


def gpu_domains_exclusive(box, _):
    """In exclusive process mode a GPU has one worker: clients of one GPU are served by that of all."""
    box.env["SOFTGPU_COMPUTE_MODE"] = "EXCLUSIVE_PROCESS"
    all_are_common(box)


def all_are_common(box):
    box.env["SOFTGPU_DEVICES"] = "2"
    box.start_daemon()
    both = [Bystander(box, "requests", gpu, {"CUDA_VISIBLE_DEVICES": str(gpu)}) for gpu in range(2)]
    for one in both:
        one.wait_ready()
        require(of_client(box, one.child.pid)["domain"] == "common", "where it is")
    for one in both:
        require(outcome(one.ask()) == "unharmed", "in the common domain")
        one.end()
    box.quit()


def run_moving(box, way, commands=RENEWED):
    box.start_moving(way, 0.003)
    for command in commands:
        code, out, err = box.run(command, CLIENT_LIMIT_S)
        require(code == 0, f"{command}: exit code {code}\n{out}{err}")
    box.quit()


def start(box, env=None, **kwargs):
    """openmps-control -d: its exit code, and its output on both streams."""
    done = subprocess.run([box.resolve("openmps-control"), "-d"], text=True, capture_output=True, check=False,
                          env={**box.service_env(), **(env or {})}, timeout=CLIENT_LIMIT_S, cwd=box.tmp, **kwargs)
    return done.returncode, done.stdout, done.stderr


def told(answer, text):
    """Requires that a start has failed with one line of output, which contains the text."""
    code, out, err = answer
    require(code == 1 and out == "" and err.count("\n") == 1 and err.startswith("openmps-control: ") and text in err,
            f"{text!r} is not all that is said: {answer}")


def everything_below(folder):
    return sorted(str(path) for path in folder.rglob("*"))


def bad_directories(box, _):
    """A pipe directory that is no directory, cannot be made or written, or is too long for a socket: one line,
    and nothing is made. An unusable log directory: one line, and the logs are beside the sockets."""
    file = box.tmp / "file"
    file.touch()
    closed = box.tmp / "closed"
    closed.mkdir(mode=0o755 if os.geteuid() == 0 else 0o555)
    somebody = {}
    if os.geteuid() == 0:  # root ignores file modes
        box.share_build()
        somebody = as_user(OTHER_USER)
    long = box.tmp / ("x" * 120)
    before = everything_below(box.root)
    for user, path, text in (({}, file, "Not a directory"), ({}, file / "below", "Not a directory"),
                             ({}, long, "bytes, the system allows 107"),
                             ({}, "/proc/nowhere", "making the pipe directory /proc/nowhere"),
                             (somebody, closed, "openmps-control.lock: Permission denied"),
                             (somebody, closed / "below", "Permission denied")):
        pipe = {"CUDA_MPS_PIPE_DIRECTORY": str(path)}
        told(start(box, pipe, **user), text)
        require(everything_below(box.root) == before, f"{path}: {everything_below(box.root)}")
        require(not box.processes(), f"{path}: processes {box.processes()}")
        child = box.start(["drv_client_worker", "1"], {**pipe, "OPENMPS_DEBUG": "1"})
        out, err = child.communicate(timeout=CLIENT_LIMIT_S)
        require(child.returncode == 1 and "CUDA_ERROR_MPS_CONNECTION_FAILED (805)" in out and
                err.count(f"no daemon at {path}/openmps.control (") == 1, f"a client of {path}: {child.returncode}\n{out}{err}")
        done = subprocess.run([box.resolve("openmps-control"), "ps"], text=True, capture_output=True, check=False,
                              env={**box.service_env(), **pipe}, timeout=CLIENT_LIMIT_S)
        require((done.returncode, done.stdout, done.stderr) ==
                (1, "Cannot find MPS control daemon process\n", ""), f"a shell at {path}: {done}")
    # A missing directory is made, with its parents.
    box.pipe = box.tmp / "made" / "here"
    box.env["CUDA_MPS_PIPE_DIRECTORY"] = str(box.pipe)
    code, out, err = start(box, {"CUDA_MPS_LOG_DIRECTORY": str(file)})
    require((code, out) == (0, "") and err.count("\n") == 1 and
            f"no logs in {file} (making {file}: Not a directory); writing them to {box.pipe}\n" in err,
            f"no log directory: {code} {out}{err}")
    require(box.pipe.stat().st_mode & 0o777 == 0o755, "its mode")
    finish(box.start(["drv_client_worker", "1"]), "a client")
    require("NEW CLIENT" in (box.pipe / "control.log").read_text(), "nothing is logged")
    box.quit()
    require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "processes are left")
    require(sorted(os.listdir(box.pipe)) == ["control.log", "server.log"], str(os.listdir(box.pipe)))
    for path in (box.pipe / "control.log", box.pipe / "server.log", file):
        path.unlink()
    for path in (box.pipe, box.pipe.parent, closed):
        path.rmdir()


def left_behind(box, _):
    """Files where the daemon's files go: those of a killed daemon are replaced, a link is not followed, and a
    file that cannot be replaced is named."""
    precious = box.tmp / "precious"
    precious.write_text("precious")
    names = {"openmps.control", "openmps-control.lock", "openmps-control.pid"}
    box.start_daemon()
    kill_daemon(box)
    require(set(os.listdir(box.pipe)) == names, f"a killed daemon has left {os.listdir(box.pipe)}")
    require(box.control("ps") == (1, "Cannot find MPS control daemon process\n"), "a killed daemon answers")
    code, out, _err = box.run(["drv_client_worker", "1"], CLIENT_LIMIT_S)
    require(code == 1 and "CUDA_ERROR_MPS_CONNECTION_FAILED (805)" in out, f"a client: {code}\n{out}")

    def serves(what):
        box.start_daemon()
        daemon = int((box.pipe / "openmps-control.pid").read_text())
        require(daemon in box.pids_named("openmps-control"), f"{what}: the pid file")
        finish(box.start(["drv_client_worker", "1"]), f"{what}: a client")
        box.quit()
        require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), f"{what}: processes are left")
        require(not os.listdir(box.pipe), f"{what}: {os.listdir(box.pipe)} is left")

    serves("the files of a killed daemon")
    (box.pipe / "openmps-control.pid").write_text(f"{os.getpid()}\n")  # the PID of a process that is no daemon
    (box.pipe / "openmps.control").touch()
    serves("a pid file with another process's PID, a file in place of the socket")
    for name in ("openmps-control.pid", "openmps.control"):
        (box.pipe / name).symlink_to(precious)
    serves("links")
    (box.pipe / "openmps-control.lock").symlink_to(precious)
    told(start(box), f"opening {box.pipe}/openmps-control.lock: ")
    (box.pipe / "openmps-control.lock").unlink()
    require(precious.read_text() == "precious", "the target of a link has changed")
    for name, text in (("openmps.control", "Address already in use"), ("openmps-control.pid", "File exists"),
                       ("openmps-control.lock", "Is a directory")):
        (box.pipe / name).mkdir()
        told(start(box), text)
        require(os.listdir(box.pipe) == [name], f"{name}: {os.listdir(box.pipe)}")
        (box.pipe / name).rmdir()
    precious.unlink()


@contextlib.contextmanager
def small_disk(folder):
    """Mounts a file system of 64 KiB on the folder."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], check=False,
                          capture_output=True)
    if done.returncode != 0:
        raise Skipped("no file system can be mounted here")
    try:
        yield folder / "filling"
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full_log_disk(box, _):
    """On a full disk all clients are served, and when the disk has space again the logs say how many lines
    are missing."""
    if os.geteuid() != 0:
        raise Skipped("only root can mount a small disk")
    with small_disk(box.log) as filling:
        box.start_daemon()
        first = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
        ready(first)
        with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        for name in ("control.log", "server.log"):  # filled to the end of the last page
            with contextlib.suppress(OSError), (box.log / name).open("ab", buffering=0) as file:
                file.write(b"\n" * 8192)
        server = server_of(box)
        for seed in (2, 3):
            finish(box.start(["drv_client_worker", str(seed)]), f"client {seed} without logs")
        require(str(first.pid) in box.control(f"get_client_list {server}")[1], "the list")
        require(" lines before this one are lost" not in box.logs(), "the disk was not full")
        filling.unlink()
        tell(first)
        finish(box.start(["drv_client_worker", "4"]), "a client with logs again")
        for name in ("control.log", "server.log"):
            text = (box.log / name).read_text()
            require(text.count(" lines before this one are lost: No space left on device\n") >= 1, f"{name}: {text}")
        box.quit()
        require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "processes are left")


@contextlib.contextmanager
def memory_cgroup():
    """A cgroup whose memory is counted: a function that adds this process, and one that reads the bytes."""
    first = Path("/sys/fs/cgroup/memory")  # cgroup v1
    count, folder = "memory.usage_in_bytes", first / f"openmps-test-{os.getpid()}"
    if not first.is_dir():
        count, folder = "memory.current", Path("/sys/fs/cgroup") / folder.name
    try:
        folder.mkdir()
    except OSError as error:
        raise Skipped(f"no cgroup can be made here: {error}") from error
    try:
        if not (folder / count).exists():
            raise Skipped("the memory of cgroups is not counted here")
        yield (lambda: (folder / "cgroup.procs").write_text(str(os.getpid()))), (lambda: int((folder / count).read_text()))
    finally:
        require(wait_until(lambda: not (folder / "cgroup.procs").read_text(), SETTLE_LIMIT_S), "the cgroup is left")
        folder.rmdir()


def memory_is_the_programs(box, _):
    """Pinned, managed and registered memory is charged to the program's cgroup."""
    if os.geteuid() != 0:
        raise Skipped("only root can make a cgroup")
    box.start_daemon()
    with memory_cgroup() as (join, used):
        client = box.start(["drv_host_memory", "held"], stdin=subprocess.PIPE, preexec_fn=join)
        while (line := client.stdout.readline()) != "ready\n":
            require(line != "", "the client holds its memory")
        require(used() >= 4 * 64 << 20, f"{used() >> 20} MiB are the client's, of 256")
        tell(client)
        finish(client, "a client with memory of each kind")
    box.quit()


def without_randomisation():
    """Switches the randomisation of addresses off, as `setarch -R` does: equal programs have equal addresses."""
    ctypes.CDLL(None).personality(0x0040000)  # ADDR_NO_RANDOMIZE


def same_addresses(box, _):
    """Two programs with memory at equal addresses: each reads its own contents."""
    box.start_daemon()
    first = box.start(["drv_host_memory", "held"], stdin=subprocess.PIPE, preexec_fn=without_randomisation)
    while (line := first.stdout.readline()) != "ready\n":
        require(line != "", "the first client holds its memory")
    for group in ("kinds", "neighbours", "changes", "forks", "writers"):
        finish(box.start(["drv_host_memory", group], preexec_fn=without_randomisation), f"the second client, {group}")
    tell(first)
    finish(first, "the first client")
    box.quit()


def may_open(files):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))}


def no_descriptors(box, _):
    """A program or a daemon with a low limit of open files works, or says in one line what is missing."""
    box.start_daemon()
    refused = served = 0
    for files in range(4, 12):  # 3 are open, one more loads libraries
        child = box.start(["drv_client_worker", "1"], {"OPENMPS_DEBUG": "1"}, **may_open(files))
        out, err = child.communicate(timeout=CLIENT_LIMIT_S)
        if child.returncode == 0:
            served += 1
            continue
        refused += 1
        require(child.returncode == 1 and "cuInit(0): CUDA_ERROR_MPS_" in out and
                err.count("cuInit failed with error ") == 1 and "(ulimit -n)" in err,
                f"a client with {files} descriptors: {child.returncode}\n{out}{err}")
    require(refused and served, f"of all clients {refused} were refused and {served} served")
    settled(box, server_of(box))
    box.quit()
    require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "processes are left")

    # few_descriptors tests a daemon whose limit suffices for itself.
    for files in (4, 16, 32, 47):
        told(start(box, **may_open(files)), f"at most {files} files may be open, 48 are needed (ulimit -n)")
        require(not os.listdir(box.pipe) and not box.processes(), f"{files} descriptors: something is left")
    require(start(box, **may_open(48)) == (0, "", ""), "a daemon with 48 descriptors")
    finish(box.start(["drv_client_worker", "1"]), "a client of a daemon with 48 descriptors")
    box.quit()


IN_FLIGHT_FILES = 1024  # the limit of open files, and so of descriptors in flight, of daemon, server and worker


def fill_flight(say):
    """Puts descriptors in flight until the user's other programs can send none."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1] * 253))]
    held, sent = [], 0
    while sent < 2 * IN_FLIGHT_FILES:
        held.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        for _ in range(8):  # the system queues ten
            held[-1][0].sendmsg([b"x"], rights)
            sent += 253
    say("full")
    signal.pause()


def descriptors_in_flight(box, _):
    """An unrelated program of the user has filled the user's quota of descriptors in flight: running clients
    continue, new clients and the next worker wait until the quota has space, and no process dies."""
    if os.geteuid() != 0:
        raise Skipped("only root can be another user, and root has no such quota")
    box.become(OTHER_USER)
    box.start_daemon(limit=(resource.RLIMIT_NOFILE, IN_FLIGHT_FILES))
    beside = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(beside)
    server = server_of(box)
    filler = Other(OTHER_USER, fill_flight)
    require(filler.lines.readline() == "full\n", "the quota is not full")
    newcomer = box.start(["drv_client_worker", "2", "3"])
    said = lambda: (box.log / "control.log").read_text(errors="replace")
    held_up = "is not told of clients at once: sending a message: Too many references"
    require(wait_until(lambda: held_up in said(), SETTLE_LIMIT_S), "the new client was not held up")
    tell(beside)
    kill_workers(box)
    require(newcomer.poll() is None, "the new client did not wait")
    filler.end()
    finish(newcomer, "the new client")
    require(server_of(box) == server, "the server was replaced")
    require(server in box.pids_named("openmps-server"), "the server has died")
    box.quit()


def stopped(box, _):
    """A stopped worker, then a stopped server: each is noticed and named, new clients get another worker or an
    error, and its own clients continue when it continues."""
    box.start_daemon()
    beside = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(beside)
    server, worker = server_of(box), box.pids_named("openmps-worker")[0]
    os.kill(worker, signal.SIGSTOP)
    finish(box.start(["drv_client_worker", "2", "3"]), "a new client beside a stopped worker")
    said = lambda name: (box.log / name).read_text(errors="replace")
    require(re.search(rf"Worker {worker} has not answered for \d+ ms: it is stopped by a signal\. Its clients wait for it; "
                      "new ones get another\n", said("server.log")), "the worker is not named")
    require(" (worker does not answer)\n" in box.control("ps")[1], f"ps: {box.control('ps')[1]}")
    # The new client's first session, which ends when the worker continues, is listed, too.
    shown = {client["pid"]: client["worker_silent"] for client in json.loads(box.control("ps --json")[1])
             if not client["ending"]}
    require(shown == {beside.pid: True}, f"ps --json: {shown}")
    os.kill(worker, signal.SIGCONT)
    require(wait_until(lambda: f"Worker {worker} answers again" in said("server.log"), SETTLE_LIMIT_S), "its answer is not logged")

    os.kill(server, signal.SIGSTOP)
    waits = box.start(["drv_client_worker", "3", "3"])
    require(wait_until(lambda: re.search(rf"Server {server} of user \d+ has not answered for \d+ ms: it is stopped by a signal",
                                         said("control.log")), SETTLE_LIMIT_S), "the server is not named")
    code, out, _ = box.run(["drv_client_worker", "4", "3"], CLIENT_LIMIT_S)
    require(code == 1 and "CUDA_ERROR_MPS_SERVER_NOT_READY" in out, f"a new client of a stopped server: {code} {out}")
    os.kill(server, signal.SIGCONT)
    finish(waits, "a client that connected before the stop was noticed")
    finish(box.start(["drv_client_worker", "5", "3"]), "a new client after the server continues")
    tell(beside)
    box.quit()


FAILURES = (daemon_killed, bad_directories, left_behind, full_log_disk, no_descriptors, descriptors_in_flight, stopped,
            memory_is_the_programs, same_addresses, beside_faults, renewed_beside, renewed_programs, moved_programs, moved_on_two_devices, gpu_domains, gpu_domains_off, gpu_domains_exclusive, constants_beside_busy,
            quarantined, domains, shared_between_domains, work_time)
