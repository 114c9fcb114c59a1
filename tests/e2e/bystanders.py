# SPDX-License-Identifier: Apache-2.0
"""Clients beside others that fault or die: programs that check every word of their results and tell what they
were told, and the faulting ones. Used by bench/faults.py and by scenarios, each sandbox on one thread."""

import json
import os
import random
import re
import select
import signal
import subprocess

from sandbox import Failure, wait_until
from scenario_tools import ready

MODES = ("idle", "requests", "long", "copies", "graphs", "hosts", "pools", "ipc", "variables", "registered")
FAULTS = ("read", "write", "null", "misaligned", "trap", "assert", "stack")
KILL = "kill"      # the client is killed while its kernel runs, of some 0.5 s
GONE = "gone"      # the client is killed while its fault is not known yet
WORKER = "worker"  # a worker of OpenMPS is killed, the serving one or a spare one
DOUBLE = "double"  # two clients fault, the second while the sessions of the first one's worker move, or about then
RENEW = "renew"    # no fault: the workers are replaced under their clients (reload --worker)
DEATHS = "deaths"  # a client faults, and meanwhile a worker is killed
BESIDE_S = (0, 0.25)  # how long after the first the second comes
# About as measured on an H200, for SOFTGPU_FAULT_LATENCY_US.
H200_LATENCY = "range:147000,misaligned:176000/110000,trap:700000/14000/hold,assert:5000/12000"
ANSWER_LIMIT_S = 60
RUN_S = 0.05  # how long a kernel runs before its client is killed

NAMED = re.compile(r"Fault by client \{PID: (\d+)")
SUSPECTED = re.compile(r"Suspect is client \{PID: (\d+)")


class Bystander:
    """A drv_bystander."""

    def __init__(self, box, mode, seed, env=None):
        self.mode, self.box = mode, box
        # Its texts go to a file: nobody reads them while it runs.
        self.errors = open(box.root / f"bystander-{len(box.children)}.err", "w+", errors="replace")
        self.child = box.start(["drv_bystander", mode, str(seed)], stdin=subprocess.PIPE, stderr=self.errors,
                               env=env)

    def wait_ready(self):
        line = self.child.stdout.readline()
        if line != "ready\n":
            raise Failure(f"bystander {self.mode}: said {line!r} instead of ready")

    def ask(self, limit_s=ANSWER_LIMIT_S):
        """What has happened since the last question: a dictionary, see driver/bystander.cc. One that has ended,
        or does not answer, is lost, with the reason as "ended"."""
        try:
            self.child.stdin.write("\n")
            self.child.stdin.flush()
            waiting = select.poll()  # descriptors may be numbered above what select() takes
            waiting.register(self.child.stdout, select.POLLIN)
            if not waiting.poll(limit_s * 1000):
                return self.gone(f"no answer within {limit_s} s")
            line = self.child.stdout.readline()
            return json.loads(line) if line.startswith("{") else self.gone(line)
        except OSError as error:
            return self.gone(str(error))

    def gone(self, said):
        self.errors.seek(0)
        text = f"exit code {self.child.poll()}: {said.strip()} {self.errors.read().strip()}"
        return {"mode": self.mode, "pid": self.child.pid, "rounds": 0, "wrong": 0, "longest_ms": 0, "lost": True,
                "errors": [], "ended": text}

    def end(self):
        try:
            self.child.stdin.close()
            self.child.wait(ANSWER_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()
        self.child.stdout.close()
        self.errors.close()


def outcome(answer, events=1):
    """unharmed, told (at most once for each process and event, and it went on), told often, lost, or WRONG."""
    if answer["wrong"]:
        return "WRONG"
    if answer["lost"]:
        return "lost"
    if not answer["errors"]:
        return "unharmed"
    sessions = 2 if answer["mode"] == "ipc" else 1
    return "told" if len(answer["errors"]) <= sessions * events else "told often"


class Logs:
    """What has been logged since the last look."""

    def __init__(self, box):
        self.box, self.seen = box, {}
        self.new()

    def new(self):
        text = ""
        for name in ("control.log", "server.log"):
            path = self.box.log / name
            if not path.is_file():
                continue
            with open(path, "rb") as file:
                file.seek(self.seen.get(name, 0))
                data = file.read()
                self.seen[name] = file.tell()
            text += data.decode(errors="replace")
        return text


def named(text):
    """PIDs of the clients that a log names as culprits."""
    return {int(pid) for pid in NAMED.findall(text)}


def suspected(text):
    """PIDs of those among which it says that the culprit is, the one first whose work has stood still the longest."""
    return [int(pid) for pid in SUSPECTED.findall(text)]


def commit(box, kind, env=None):
    """Starts a culprit, lets it fault or kills it, and waits for its end. (its pid, what it was told)"""
    if kind == WORKER:
        worker = random.choice(box.pids_named("openmps-worker"))
        os.kill(worker, signal.SIGKILL)
        return worker, ""
    if kind == RENEW:
        code, out = box.control("reload --worker")
        return 0, " ".join(out.split())
    program = {KILL: "busy", GONE: "write"}.get(kind) or (random.choice(FAULTS) if kind in (DOUBLE, DEATHS) else kind)
    child = box.start(["drv_culprit", program], env, stdin=subprocess.PIPE)
    ready(child)
    second = box.start(["drv_culprit", random.choice(FAULTS)], env, stdin=subprocess.PIPE) if kind == DOUBLE else None
    if second is not None:
        ready(second)
    child.stdin.write("\n")
    child.stdin.flush()
    if kind in (DOUBLE, DEATHS):
        select.select([], [], [], random.uniform(*BESIDE_S))
    if kind == DEATHS:
        os.kill(random.choice(box.pids_named("openmps-worker")), signal.SIGKILL)
    if second is not None:
        try:
            second.communicate("\n", timeout=ANSWER_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(second.pid, signal.SIGKILL)
            raise Failure(f"the second culprit has no end after {ANSWER_LIMIT_S} s") from None
    if kind in (KILL, GONE):
        if kind == KILL:
            child.stdout.readline()
        select.select([], [], [], RUN_S)
        child.send_signal(signal.SIGKILL)
    try:
        out, err = child.communicate(timeout=ANSWER_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise Failure(f"the culprit ({kind}) has no end after {ANSWER_LIMIT_S} s") from None
    if kind not in (KILL, GONE, DEATHS, DOUBLE) and child.returncode != 0:
        raise Failure(f"the culprit ({kind}): exit code {child.returncode}\n{out}{err}")
    return child.pid, out.strip()


def is_active(box):
    """No server handles a fault."""
    servers = box.control("get_server_list")[1].split()
    return all("FAULT" not in box.control(f"get_server_status {server}")[1] for server in servers)


def await_active(box, limit_s):
    if not wait_until(lambda: is_active(box), limit_s):
        raise Failure("the server still handles a fault")
