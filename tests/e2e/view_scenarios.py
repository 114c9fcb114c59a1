# SPDX-License-Identifier: Apache-2.0
"""Scenarios of `openmps top`, `stat` and `advise`: what they show of programs, and the effects of keys.

Called by scenarios.py, on its only thread.
"""

import json
import re
import signal
import subprocess

from sandbox import wait_until
from scenario_tools import CLIENT_LIMIT_S, SETTLE_LIMIT_S, ready, require, tell
from terminal import Terminal

# Arguments of drv_nbody: 2 blocks of 256 threads a step, so that a step is shorter than any interval, and more steps
# than it will execute.
WATCHED_BODIES = 512
# How long `advise` observes it: the slower the machine, the fewer kernels end in that time.
ADVISE_S = ["2", "8", "32"]
WATCHED = ["drv_nbody", str(WATCHED_BODIES), "100000000"]


def openmps(box, *words, expect=0):
    """The output of `openmps`."""
    code, out, err = box.run(["openmps", *words], CLIENT_LIMIT_S)
    require(code == expect, f"openmps {' '.join(words)}: exit code {code}\n{out}{err}")
    return out if expect == 0 else out + err


def one_of(view, pid):
    found = [client for client in view["clients"] if client["pid"] == pid]
    require(len(found) == 1, f"{pid} is {len(found)} times in {view}")
    return found[0]


def watched(box, _):
    """`openmps top --once`, `stat` and `advise` tell a busy program from an idle one and show the work of both; a
    filter leaves one of them."""
    require("Cannot find MPS control daemon" in openmps(box, "top", "--once", expect=1), "top without a daemon")
    require("Cannot find MPS control daemon" in openmps(box, "advise", "1", expect=1), "advise without a daemon")
    box.start_daemon()
    require(openmps(box, "stat", "--interval", "0.1", "--count", "1") == "No program uses OpenMPS\n", "stat without programs")
    require("no program with PID 1 " in openmps(box, "advise", "1", expect=1), "advise for a PID that is no client")
    idle = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(idle)
    busy = box.start(WATCHED)
    seen = {}

    def shows_both():
        seen.clear()
        seen.update(json.loads(openmps(box, "stat", "--json", "--interval", "0.3", "--count", "1")))
        clients = {client["pid"]: client for client in seen["clients"]}
        return (clients.keys() == {busy.pid, idle.pid} and clients[busy.pid]["rates"]["sm_share"] > 0
                and clients[busy.pid]["rates"]["launches_per_s"] > 0 and clients[idle.pid]["state"] == "idle")
    require(wait_until(shows_both, SETTLE_LIMIT_S), f"they are not told apart: {seen}")
    # A program that started during the interval has the rates of its own, shorter time.
    require(wait_until(shows_both, SETTLE_LIMIT_S), f"they are not told apart any more: {seen}")
    works, rests = one_of(seen, busy.pid), one_of(seen, idle.pid)
    require(seen["clients"][0] == works, f"not the busiest first: {seen}")
    require(works["state"] == "active" and "nbody" in works["command"] and works["quality"] == "normal",
            f"the busy one: {works}")
    require(rests["rates"]["launches_per_s"] == 0 and rests["rates"]["sm_share"] == 0
            and rests["rates"]["memory_bytes"] > 0, f"the idle one: {rests}")
    device = seen["devices"][0]
    require(device["clients"] == 2 and 0 < works["rates"]["sm_share"] <= device["sm_share"] + 1e-6 <= 1 + 1e-6,
            f"the device: {seen}")
    require(device["memory_used_bytes"] == sum(c["rates"]["memory_bytes"] for c in seen["clients"])
            and device["memory_used_bytes"] < device["memory_bytes"], f"its memory: {seen}")

    lines = openmps(box, "top", "--delay", "0.3").splitlines()  # without a terminal: one interval as text
    require(len(lines) == 4 and lines[0].startswith("GPU 0  SM time ") and lines[1].split()[0] == "PID"
            and lines[2].split()[0] == str(busy.pid), f"top: {lines}")
    lines = openmps(box, "top", "--once", "--delay", "0.1", "--filter", "client_worker").splitlines()
    require(len(lines) == 3 and lines[2].split()[0] == str(idle.pid), f"top with a filter: {lines}")
    lines = openmps(box, "stat", "--interval", "0.1", "--count", "2", "--filter", str(busy.pid)).splitlines()
    require(len(lines) == 6 and lines[1] == lines[4] and lines[5].split()[0] == str(busy.pid), f"stat: {lines}")

    for seconds in ADVISE_S:
        advice = json.loads(openmps(box, "advise", str(busy.pid), "--for", seconds, "--json"))
        if advice["sharing"] != "not known":
            break
    figures = advice["figures"]
    require(advice["sharing"] != "not known" and advice["active_thread_percentage"]["recommended"] > 0,
            f"advice: {advice}")
    require(figures["blocks_per_kernel"] == WATCHED_BODIES / 256 and figures["threads_per_block"] == 256
            and figures["kernels"] > 0 and figures["kernel_share"] > 0.1 and figures["clients"] == 2,
            f"figures: {figures}")
    text = openmps(box, "advise", str(busy.pid))
    require("Sharing the GPU: " in text and "Active thread percentage: " in text, f"advice: {text}")
    require("too little to go by" in openmps(box, "advise", str(idle.pid), "--for", "0.5"), "advice for an idle program")
    busy.kill()
    busy.wait()
    tell(idle)
    box.quit()


def on_terminal(box, _):
    """`openmps top` on a terminal: keys sort, filter, ask before they terminate, and quit; it copes with another
    size and an unknown terminal, and restores the terminal at its end, also when a signal ends it."""
    box.start_daemon()
    idle = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(idle)
    busy = box.start(WATCHED)
    terminal = Terminal()

    def shows(what, condition):
        require(terminal.wait_for(condition, SETTLE_LIMIT_S), f"{what}:\n{terminal.text()}")

    def rows(text):
        return [int(line.split()[0]) for line in text.splitlines() if re.match(r" *\d+ +\d+% ", line)]

    def ends(code):
        require(terminal.child.wait(timeout=SETTLE_LIMIT_S) == code, f"top: exit code {terminal.child.returncode}")
        require(terminal.is_restored(), "the terminal is not as it was")

    try:
        terminal.start(box, ["openmps", "top", "--delay", "0.2"])
        shows("both, the busy one first", lambda text: rows(text) == [busy.pid, idle.pid] and " active " in text)
        require(not terminal.is_restored(), "the terminal is not taken over")
        terminal.send("r")
        shows("the other way round", lambda text: rows(text) == [idle.pid, busy.pid])
        terminal.send("<<<<<")
        shows("by PID", lambda text: "by pid from below" in text and rows(text) == sorted([busy.pid, idle.pid]))
        terminal.send("/nbody")
        shows("the filter as typed", "command: nbody_")
        terminal.send("\r")
        shows("the filter", lambda text: rows(text) == [busy.pid] and '1 with "nbody"' in text)
        terminal.resize(6, 50)
        shows("a small terminal", lambda text: str(busy.pid) in text and "q quit" in text)
        terminal.resize(24, 120)
        shows("a large one again", lambda text: rows(text) == [busy.pid])
        terminal.send("t")
        shows("a question", f"Terminate {busy.pid} ")
        terminal.send("n")
        shows("no answer to it", lambda text: "Terminate" not in text)
        require(busy.poll() is None, "it was terminated without a confirmation")
        terminal.send("ty")
        shows("the end of the busy one", lambda text: "has been terminated" in text and rows(text) == [])
        out, err = busy.communicate(timeout=CLIENT_LIMIT_S)
        require(busy.returncode == 1 and "CUDA_ERROR_MPS_CLIENT_TERMINATED" in out + err,
                f"the terminated program: {busy.returncode}\n{out}{err}")
        terminal.send("q")
        ends(0)

        terminal.start(box, ["openmps", "top", "--delay", "3600"])
        shows("the other one", str(idle.pid))
        terminal.child.send_signal(signal.SIGTERM)
        ends(0)

        terminal.start(box, ["openmps", "top", "--delay", "0.1"])
        shows("the other one again", str(idle.pid))
        tell(idle)
        shows("no programs", "No program uses OpenMPS")
        box.quit()
        shows("no daemon", "The daemon has gone")
        terminal.send("q")
        ends(0)

        box.start_daemon()
        terminal.start(box, ["openmps", "top"], term="no-such-terminal")
        _, err = terminal.child.communicate(timeout=SETTLE_LIMIT_S)
        require(terminal.child.returncode == 1 and "'no-such-terminal'" in err and err.count("\n") == 1,
                f"an unknown terminal: {terminal.child.returncode} {err}")
        box.quit()
    finally:
        terminal.close()
