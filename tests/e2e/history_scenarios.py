# SPDX-License-Identifier: Apache-2.0
"""Scenarios of `totals` and `events`: figures of all clients there have been, and what has happened to them.

Called by scenarios.py, on its only thread.
"""

import json
import os
import signal
import subprocess

from bystanders import Bystander, commit
from namespace_scenarios import do, say, through
from sandbox import wait_until
from scenario_tools import CLIENT_LIMIT_S, SETTLE_LIMIT_S, finish, kill_daemon, kill_workers, ready, require, tell

# Each has the same number of launches and copies whenever it runs.
COUNTED = ["drv_nbody", "256", "40"]


def totals(box, env=None):
    """The lines of `totals --json` by server and group."""
    code, text = say(box, "totals --json", env)
    require(code == 0, f"totals: {code} {text}")
    return {(line["server"], line["group"]): line for line in json.loads(text)}


def figures(line):
    usage = line["usage"]
    return (line["sessions"], usage["launches"], usage["copies"], usage["bytes"]["host_to_device"],
            usage["bytes"]["device_to_host"])


def times(count, one):
    return tuple(count * figure for figure in one)


def reaches(box, key, wanted):
    """Waits until that line has these figures and nobody is there: a server reads of a client's end a bit later."""
    def there():
        line = totals(box).get(key)
        return line is not None and line["open"] == 0 and figures(line) == wanted
    require(wait_until(there, SETTLE_LIMIT_S), f"{key} should be {wanted}: {totals(box)}")


def totals_kept(box, _):
    """What clients have used adds up exactly: one after the other, at once, while they move between workers, over the
    end of the daemon, of a namespace and of its server. By a namespace's socket there is its line alone."""
    box.start_daemon()
    do(box, "server create main")
    for name in ("a", "b"):
        do(box, f"namespace create {name} --server=main")
    require(totals(box) == {}, "there are figures without clients")
    in_a, in_b = through(box, "main", "a"), through(box, "main", "b")
    finish(box.start(COUNTED, in_a), "the first one")
    require(wait_until(lambda: ("main", "a") in totals(box), SETTLE_LIMIT_S), "there is no line of the first one")
    require(wait_until(lambda: totals(box)["main", "a"]["open"] == 0, SETTLE_LIMIT_S), "the first one is still there")
    one = figures(totals(box)["main", "a"])
    require(one[0] == 1 and min(one) > 0, f"figures of one client: {one}")
    line = totals(box)["main", "a"]
    device = line["usage"]["devices"][0]
    require(len(line["usage"]["devices"]) == 1 and device["gpu_ns"] > 0 and device["memory_bytes"] == 0 and
            0 < line["usage"]["gpu_ns"] == device["gpu_ns"], f"its device: {line}")

    programs = [box.start(COUNTED, in_a) for _ in range(3)] + [box.start(COUNTED, in_b)]
    for program in programs:
        finish(program, "one of several")
    reaches(box, ("main", "a"), times(4, one))
    reaches(box, ("main", "b"), one)
    box.start_moving(box.renew, 0.05)
    long = box.start(["drv_nbody", "256", "2000"], in_b)
    finish(long, "one that moves")
    require(wait_until(lambda: totals(box)["main", "b"]["open"] == 0, SETTLE_LIMIT_S), "it is still there")
    moved = figures(totals(box)["main", "b"])
    box.stop_moves()
    finish(box.start(["drv_nbody", "256", "2000"], in_b), "one that does not move")
    reaches(box, ("main", "b"), tuple(2 * now - before for now, before in zip(moved, one)))

    # A client that is there counts.
    holder = box.start(["drv_client_worker", "1", "3", "hold"], in_a, stdin=subprocess.PIPE)
    ready(holder)
    with_it = totals(box)["main", "a"]
    require(with_it["open"] == 1 and with_it["sessions"] == 5 and with_it["usage"]["launches"] >= 4 * one[1],
            f"a client that is there: {with_it}")
    code, text = say(box, "totals --json", in_b)
    require(code == 0 and [(line["server"], line["group"]) for line in json.loads(text)] == [("main", "b")],
            f"by a namespace's socket: {text}")
    csv = do(box, "totals --csv").splitlines()
    require(csv[0] == "SERVER,GROUP,DEVICE,CLIENTS,THERE,GPU SECONDS,SM SECONDS" and len(csv) == 3 and
            csv[1].startswith("main,a,GPU-"), f"csv: {csv}")

    before = totals(box)
    kill_daemon(box)
    box.start_daemon()
    require(wait_until(lambda: totals(box).keys() == before.keys(), SETTLE_LIMIT_S), f"after the daemon's end: {totals(box)}")
    after = totals(box)
    require(all(figures(after[key]) == figures(before[key]) for key in before), f"{before} has become {after}")
    tell(holder)
    require(wait_until(lambda: totals(box)["main", "a"]["open"] == 0, SETTLE_LIMIT_S), "the holder is still there")
    last = {key: figures(line) for key, line in totals(box).items()}
    do(box, "namespace delete a --server=main")
    require({key: figures(line) for key, line in totals(box).items()} == last, "a deleted namespace has lost its figures")
    for pid in box.pids_named("openmps-server"):
        os.kill(pid, signal.SIGKILL)
    require(wait_until(lambda: not box.pids_named("openmps-server"), SETTLE_LIMIT_S), "the server is still there")
    require({key: figures(line) for key, line in totals(box).items()} == last, "a killed server has lost its figures")
    finish(box.start(COUNTED, in_b), "one with the next server")
    reaches(box, ("main", "b"), tuple(a + b for a, b in zip(last["main", "b"], one)))
    box.quit()


def events_told(box, _):
    """`events` has each fault with its culprit and what became of the others, each client that was terminated or
    refused, each worker that died, and counts them."""
    box.env["OPENMPS_SPARE"] = "auto"
    box.start_daemon()

    def events(*kinds):
        listed = json.loads(do(box, "events --json"))
        return [event for event in listed["events"] if event["event"] in kinds], listed["counts"]

    neighbour = Bystander(box, "copies", 1, {"OPENMPS_REPLAY": "always"})
    neighbour.wait_ready()
    require([event["event"] for event in events("worker-started", "fault", "lost")[0]] == ["worker-started"], "at the start")
    culprit, _told = commit(box, "assert")
    # What became of the others comes last.
    require(wait_until(lambda: events("takeover")[0], SETTLE_LIMIT_S), f"no takeover: {do(box, 'events')}")
    [fault], counts = events("fault")
    require(fault["pid"] == culprit and fault["command"].endswith("drv_culprit assert") and fault["result"] == 710 and
            counts["fault"] == 1, f"the fault: {fault} {counts}")
    moved = [event["pid"] for event in events("moved")[0]]
    lost = [event["pid"] for event in events("lost")[0]]
    require(neighbour.child.pid in moved and culprit in lost, f"moved {moved}, lost {lost}")
    require([event["pid"] for event in events("quarantined")[0]] == [culprit], do(box, "events"))
    neighbour.end()

    held = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(held)
    server = box.control("get_server_list")[1].split()[0]
    require(box.control(f"terminate_client {server} {held.pid}")[0] == 0, "terminate_client")
    require([event["pid"] for event in events("terminated")[0]] == [held.pid], do(box, "events"))
    held.communicate("go\n", timeout=CLIENT_LIMIT_S)

    kill_workers(box)
    require(len(events("worker-died")[0]) >= 1, do(box, "events"))

    do(box, "server create main")
    do(box, "namespace create a --server=main")
    door = through(box, "main", "a")
    require(say(box, "events", door)[1].splitlines()[1:] == [], "others' events are seen through a namespace's socket")
    code, out, err = box.run(["openmps", "ps"], CLIENT_LIMIT_S, door)
    require((code, out) == (0, "No program uses OpenMPS\n"), f"openmps ps there: {code} {out}{err}")
    require(say(box, "events many")[0] == 1 and say(box, "totals of all")[0] == 1, "wrong words are taken")
    box.quit()

    # With -S each client has to name a partition.
    box.start_daemon(options=["-S"])
    refused = box.start(["drv_client_worker", "1"])
    refused.communicate(timeout=CLIENT_LIMIT_S)
    [refusal], counts = events("refused")
    require(refusal["pid"] == refused.pid and "CUDA_MPS_SM_PARTITION" in refusal["text"] and refusal["result"] != 0 and
            counts["refused"] == 1, f"{refusal}")
    last = do(box, "events 1").splitlines()
    require(len(last) == 2 and " refused " in last[1], f"the last event: {last}")
    box.quit()


HISTORY = (totals_kept, events_told)
