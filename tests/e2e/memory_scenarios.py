# SPDX-License-Identifier: Apache-2.0
"""Scenarios of memory that is moved to the host: by hand, and because others need it. Called by scenarios.py, on its
only thread.
"""

import json
import os
import random
import re
import select
import signal
import subprocess
import time

from bystanders import MODES, Bystander, await_active, commit, outcome
from failure_scenarios import RENEWED, run_moving
from namespace_scenarios import do, through
from sandbox import Failure, wait_until
from scenario_tools import CLIENT_LIMIT_S, SETTLE_LIMIT_S, ready, require

MIB = 1 << 20


class Resident:
    """A drv_resident: computes with memory of every kind when it is told to."""

    def __init__(self, box, mib, seed=1, env=None):
        self.box, self.asked = box, None
        self.unread = b""  # answers that select() does not show any more
        self.child = box.start(["drv_resident", str(mib), str(seed)], env, stdin=subprocess.PIPE)
        ready(self.child)
        self.pid = self.child.pid

    def tell(self, words):
        self.child.stdin.write(words + "\n")
        self.child.stdin.flush()
        self.asked = words

    def read(self):
        data = os.read(self.child.stdout.fileno(), 4096)
        if not data:
            raise Failure(f"{self.asked}: {self.child.args} has ended: {self.child.stderr.read()}")
        self.unread += data

    def said(self):
        """The answer to the last command, and after how many milliseconds."""
        while b"\n" not in self.unread:
            self.read()
        line, self.unread = self.unread.split(b"\n", 1)
        words = line.decode().split()
        if len(words) < 2:
            raise Failure(f"{self.asked}: {self.child.args} said {line}")
        return " ".join(words[:-1]), float(words[-1])

    def has_answered(self):
        if b"\n" not in self.unread and select.select([self.child.stdout], [], [], 0)[0]:
            self.read()
        return b"\n" in self.unread

    def say(self, words):
        self.tell(words)
        return self.said()

    def step(self):
        said, ms = self.say("step")
        require(said == "ok", f"{self.child.args}: {said}\n{self.box.control('ps')[1]}")
        return ms

    def row(self):
        return next(client for client in json.loads(self.box.control("ps --json")[1]) if client["pid"] == self.pid)

    def suspend(self, *options):
        code, out = self.box.control(" ".join(["suspend", str(self.pid), *options]))
        require(code == 0, f"suspend: {code} {out}")
        return out

    def end(self):
        self.child.stdin.close()
        require(self.child.wait(CLIENT_LIMIT_S) == 0, f"{self.child.args}: {self.child.stderr.read()}")


def used(box):
    return box.device_state()[1]


def suspended(box, _):
    """What suspend and resume say and do to one program: its memory leaves the device, of every kind, and comes back
    with its next call, or after resume; nothing is left behind, whatever ends."""
    box.start_daemon()
    other, one = Resident(box, 4, 3), Resident(box, 48, 5)
    before = used(box)
    out = one.suspend("--until-used")
    moved = int(re.search(r": (\d+) MiB are on the host", out)[1])
    require(moved >= 48 + 3 + 10, out)
    require(wait_until(lambda: before - used(box) >= moved * MIB, SETTLE_LIMIT_S), f"{before} {used(box)}: {out}")
    require(one.row()["residence"] == "host" and one.row()["host_bytes"] >= 48 * MIB, str(one.row()))
    other.step()
    one.step()
    require(one.row()["residence"] == "device" and one.row()["host_bytes"] == 0, str(one.row()))
    require(wait_until(lambda: used(box) == before, SETTLE_LIMIT_S), f"{before} {used(box)}")

    one.suspend()
    require(one.row()["residence"] == "held", str(one.row()))
    one.tell("step")
    time.sleep(0.3)
    require(one.row()["residence"] == "held", "a call has woken it")
    require("no memory had to go" in one.suspend(), "there is nothing left to move")
    require(box.control(f"resume {one.pid}")[0] == 0, "resume")
    require(one.said()[0] == "ok", "after resume")
    require(box.control(f"resume {one.pid}")[0] == 0, "resume of one that is not suspended")

    # Its worker is replaced, or lost, while the memory is on the host.
    for lose in (lambda: box.control("reload --worker"), lambda: commit(box, "write")):
        for options in ([], ["--until-used"]):
            one.suspend(*options)
            lose()
            await_active(box, SETTLE_LIMIT_S)
            other.step()
            if not options:
                require(wait_until(lambda: one.row()["residence"] == "held", SETTLE_LIMIT_S), str(one.row()))
                require(box.control(f"resume {one.pid}")[0] == 0, "resume")
            one.step()

    for command in ("suspend 1", "resume 1", "suspend", f"suspend {one.pid} --until-noon"):
        require(box.control(command)[0] == 1, command)
    # It works all the time; and its end.
    busy = box.start(["drv_client_worker", "2", "0"])
    ready(busy)
    for _ in range(3):
        code, out = box.control(f"suspend {busy.pid} --until-used")
        require(code == 0 or "its work" in out, f"a busy one, which may be in use all the time: {code} {out}")
    require(box.control(f"suspend {busy.pid}")[0] == 0, "a busy one")
    one.suspend()
    one.tell("step")
    for child in (busy, one.child):
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    other.step()
    other.end()
    box.quit()


def suspended_while_it_moves(box, _):
    """suspend and resume hold for a program that is between two workers: its next worker is told."""
    box.start_daemon()
    one = Resident(box, 16)
    box.start_moving(box.renew, 0.0)
    until = time.monotonic() + CLIENT_LIMIT_S
    while one.row()["moves"] < 10:
        require(time.monotonic() < until, f"it does not move: {one.row()}")
        one.suspend()
        one.tell("step")
        require(one.row()["residence"] == "held", str(one.row()))
        require(box.control(f"resume {one.pid}")[0] == 0, "resume")
        require(one.said()[0] == "ok", "the step after resume")
    one.end()
    box.quit()


def suspended_programs(box, _):
    """Programs are suspended again and again, and print what they do otherwise. All of the suite's:
    OPENMPS_TEST_SUSPEND=0.003 ctest -R e2e.openmps."""
    box.start_daemon()
    run_moving(box, box.suspend, RENEWED)


def suspended_randomly(box, events):
    """Programs of every kind are suspended, held for a while and resumed at random, alone and several at a time, while
    they and others work: each computes what it should. The number of events is the argument."""
    box.start_daemon()
    events = events or 60
    chance = random.Random(7)
    programs = [Bystander(box, mode, number, {"OPENMPS_REPLAY": "always"}) for number, mode in enumerate(MODES)]
    residents = [Resident(box, 8, 50 + number) for number in range(2)]
    for program in programs:
        program.wait_ready()
    pids = [program.child.pid for program in programs] + [one.pid for one in residents]
    held, refused = set(), 0
    for event in range(events):
        pid = chance.choice(pids)
        if pid in held:
            require(box.control(f"resume {pid}")[0] == 0, "resume")
            held.discard(pid)
        elif chance.random() < 0.5:
            # One that has commands all the time goes on.
            code, out = box.control(f"suspend {pid} --until-used")
            require(code == 0 or "its work" in out, out)
        elif len(held) < 3:
            code = box.control(f"suspend {pid}")[0]
            refused += code
            if code == 0:
                held.add(pid)
        if event % 10 == 9:
            for one in residents:
                if one.pid not in held:
                    one.step()
    for pid in held:
        require(box.control(f"resume {pid}")[0] == 0, "resume")
    for program in programs:
        answer = program.ask()
        require(outcome(answer) == "unharmed", f"{answer}")
        program.end()
    for one in residents:
        one.step()
        one.end()
    # Work that does not end within two seconds, on a busy machine.
    require(refused <= events // 20, f"{refused} of {events} were refused")
    box.quit()


def suspended_beside(box, _):
    """A program that is suspended keeps nobody from working, also not when the host has too little memory for it."""
    box.start_daemon()
    busy = Bystander(box, "requests", 1)
    busy.wait_ready()
    one = Resident(box, 64, 2)
    for _ in range(10):
        one.suspend("--until-used")
        one.step()
    one.suspend()
    first = busy.ask()
    time.sleep(0.2)
    answer = busy.ask()
    require(outcome(answer) == "unharmed" and answer["rounds"] > 0, f"beside: {first} {answer}")
    require(box.control(f"resume {one.pid}")[0] == 0, "resume")
    one.step()
    one.end()
    busy.end()
    box.quit()
    box.env["OPENMPS_SUSPEND"] = "off"
    box.start_daemon()
    one = Resident(box, 4)
    code, out = box.control(f"suspend {one.pid}")
    require(code == 1 and "OPENMPS_SUSPEND" in out, f"{code} {out}")
    one.step()
    one.end()
    box.quit()


def two_tenants(box, guaranteed, **more):
    """Namespaces a and b on a device of 512 MiB."""
    box.env["SOFTGPU_MEMORY"] = "512M"
    box.start_daemon()
    do(box, "server create s")
    options = "".join(f" --{name.replace('_', '-')}={value}" for name, value in more.items())
    for name in ("a", "b"):
        do(box, f"namespace create {name} --server=s --guaranteed-memory={guaranteed}{options}")


def memory_shared(box, _):
    """Programs of which each has more than half of the device: whoever computes has its memory there, and what is
    guaranteed stays."""
    two_tenants(box, "32M", pinned_memory_limit="400M")
    one, other = Resident(box, 280, 1, through(box, "s", "a")), None
    require(one.say("free")[0].endswith(" of 400"), "the total is not the limit")
    other = Resident(box, 280, 2, through(box, "s", "b"))
    for _ in range(3):
        for program in (one, other):
            program.step()
    rests = [program.row() for program in (one, other)]
    require([row["residence"] for row in rests] == ["host", "device"], str(rests))
    # Both want to: each waits for its turn, and nobody gets an error.
    for _ in range(2):
        for program in (one, other):
            program.tell("step")
        for program in (one, other):
            said, _ms = program.said()
            require(said == "ok", said)
    # Another one in the same namespace, and one that is suspended.
    other.suspend()
    third = Resident(box, 60, 3, through(box, "s", "a"))
    third.step()
    one.step()
    require(box.control(f"resume {other.pid}")[0] == 0, "resume")
    other.step()
    for program in (one, other, third):
        program.end()
    box.quit()


def memory_turns(box, _):
    """Two programs that never rest and together have more than the device: they take turns."""
    two_tenants(box, "32M")
    one = Resident(box, 280, 1, through(box, "s", "a"))
    other = Resident(box, 280, 2, through(box, "s", "b"))
    steps = [0, 0]
    end = time.monotonic() + CLIENT_LIMIT_S
    for program in (one, other):
        program.tell("step")
    while time.monotonic() < end and min(steps) < 3:
        for number, program in enumerate((one, other)):
            if not wait_until(lambda p=program: p.has_answered(), 0.05):
                continue
            require(program.said()[0] == "ok", "a step")
            steps[number] += 1
            program.tell("step")
    require(min(steps) >= 3, f"steps: {steps}")
    for program in (one, other):
        require(program.said()[0] == "ok", "the last step")
        program.end()
    box.quit()


def memory_choices(box, _):
    """What becomes of an allocation when the one that borrows has work under way: it fails, waits, or that one ends, as
    the operator has said; guaranteed memory is not taken from those who rest."""
    for choice in ("oom", "wait", "terminate"):
        two_tenants(box, "300M", on_pressure=choice)
        do(box, "namespace set a --server=s --guaranteed-memory=16M")
        borrower = Resident(box, 280, 1, through(box, "s", "a"))
        guest = Resident(box, 60, 2, through(box, "s", "b"))
        borrower.say("hold")
        guest.tell("more 200")
        if choice == "oom":
            said, ms = guest.said()
            require(said == "CUDA_ERROR_OUT_OF_MEMORY", f"{said} beside one with work under way")
            require(ms < 1000 * SETTLE_LIMIT_S, f"it has waited for {ms} ms")
            require(borrower.say("go")[0] == "ok", "the borrower")
            # At rest it gives way.
            require(wait_until(lambda: guest.say("more 200")[0] == "ok", SETTLE_LIMIT_S), "beside one at rest")
            guest.step()
            guest.end()
            borrower.step()
            borrower.end()
        elif choice == "wait":
            require(not wait_until(guest.has_answered, 2), "it does not wait")
            require(borrower.say("go")[0] == "ok", "the borrower")
            require(guest.said()[0] == "ok", "beside one at rest")
            guest.step()
            # The guest has what is guaranteed to it, at rest, too.
            borrower.tell("step")
            require(not wait_until(borrower.has_answered, 0.5), "it has taken what is guaranteed to another")
            require(guest.row()["residence"] == "device", str(guest.row()))
            guest.end()
            require(borrower.said()[0] == "ok", "the borrower")
            borrower.end()
        else:
            require(guest.said()[0] == "ok", "in the place of the one that borrows")
            guest.step()
            out, _err = borrower.child.communicate("go\n", timeout=CLIENT_LIMIT_S)
            require("CUDA_ERROR_MPS_CLIENT_TERMINATED" in out, out[-500:])
            require("on_pressure" in (box.log / "server.log").read_text(), "the reason in the log")
            guest.end()
        box.quit()


MEMORY = (suspended, suspended_while_it_moves, suspended_programs, suspended_randomly, suspended_beside, memory_shared, memory_turns, memory_choices)
