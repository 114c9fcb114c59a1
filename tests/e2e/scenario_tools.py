# SPDX-License-Identifier: Apache-2.0
"""Tools of the scenarios: starting clients that print when they are ready, asking the daemon, waiting for
conditions. Used by scenarios.py and the modules that it gathers, on run_e2e.py's only thread.
"""

import os
import select
import signal
import subprocess
import threading

from sandbox import Failure, thread_names, wait_until

CLIENT_LIMIT_S = 120
# The limit for a program that computes much, with the factor by which CMakeLists.txt extends tests of programs.
SANITIZED_CLIENT_LIMIT_S = 5 * CLIENT_LIMIT_S
OTHER_USER = 54321  # a user without processes
SETTLE_LIMIT_S = 20
# Queued work of a killed client is still executed; under ThreadSanitizer that takes 20 times as long.
SANITIZED_SETTLE_LIMIT_S = 60


class Skipped(Exception):
    """The scenario cannot run here; the text says why."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def ready(child):
    """Waits for the client's first line."""
    line = child.stdout.readline()
    require(line == "ready\n", f"client {child.args}: said {line!r} instead of ready\n"
            + (child.stderr.read() if child.poll() is not None else ""))


def finish(child, what, limit_s=CLIENT_LIMIT_S):
    out, err = child.communicate(timeout=limit_s)
    require(child.returncode == 0, f"{what}: exit code {child.returncode}\n{out}{err}")
    return out


def server_of(box):
    code, out = box.control("get_server_list")
    pids = out.split()
    require(code == 0 and len(pids) == 1, f"get_server_list: {code} {out!r}")
    return int(pids[0])


def client_limit(box):
    return SANITIZED_CLIENT_LIMIT_S if "LD_PRELOAD" in box.env else CLIENT_LIMIT_S


def settle_limit(box):
    return SANITIZED_SETTLE_LIMIT_S if "LD_PRELOAD" in box.env else SETTLE_LIMIT_S


def settled(box, server):
    """Waits until server and worker have released the clients that have ended."""
    def nobody():
        return box.control(f"get_client_list {server}")[1].split() == []

    require(wait_until(nobody, settle_limit(box)), "clients are still listed after their end")

    def drained():
        # The work of a killed client continues for a while in the worker, whose thread ends last; then
        # the server releases what it holds for the client. A thread that NVIDIA's driver has started has the
        # name of the session's thread that it was called on.
        log = (box.log / "server.log").read_text(errors="replace")
        return (log.count(" opens\n") == log.count(" is closed\n") == log.count(" disconnected\n")
                and (box.driver == "nvidia" or
                     not any(name.startswith("sess-") for pid in box.pids_named("openmps-worker")
                             for name in thread_names(pid))))

    require(wait_until(drained, settle_limit(box)), "sessions are still open after their clients' end")


def tell(child):
    child.stdin.write("go\n")
    finish(child, "the neighbour")


def kill_workers(box):
    """Kills the workers, and waits until the server has noticed: clients that connect sooner lose their session."""
    killed = box.pids_named("openmps-worker")
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    log = box.log / "server.log"
    noticed = lambda: all(f"Worker {pid} was killed" in log.read_text(errors="replace") for pid in killed)
    require(wait_until(noticed, SETTLE_LIMIT_S),
            "the server does not notice that its worker was killed")


def daemon_of(box):
    """By its pid file: it briefly has children of its name (base/disposal.h)."""
    return int((box.pipe / "openmps-control.pid").read_text())


def kill_daemon(box):
    """Returns when it has ended: one that ends can have no command line any more and still the lock."""
    daemon = os.pidfd_open(daemon_of(box))
    try:
        signal.pidfd_send_signal(daemon, signal.SIGKILL)
        require(select.select([daemon], [], [], SETTLE_LIMIT_S)[0], "the killed daemon still runs")
    finally:
        os.close(daemon)


class LiveSms:
    """A drv_live_sms and the SMs of its last round; for each round the time at which it began, by
    time.monotonic_ns(), and the most SMs that a launch had."""

    def __init__(self, box, env=None, arguments=()):
        self.child = box.start(["drv_live_sms", *map(str, arguments)], env, stdin=subprocess.PIPE)
        self.sms, self.rounds, self.history, self.last = set(), 0, [], ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.last = line.strip()
            words = line.split()
            if words[:2] == ["#", "round"]:
                self.sms, self.rounds = {int(word) for word in words[8:]}, int(words[2])
                self.history.append((int(words[4]), int(words[6])))

    def pid(self):
        return self.child.pid

    def end(self):
        self.child.stdin.close()
        self.reader.join()
        require(self.child.wait() == 0 and self.last == "PASSED",
                f"after {self.rounds} rounds: {self.last} {self.child.stderr.read()}")
