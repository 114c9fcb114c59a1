# SPDX-License-Identifier: Apache-2.0
"""Scenarios of run_e2e.py: programs in which far more streams wait than the device has hardware queues or
stream slots. Programs beside them, and new ones, are served; the waiting programs continue when what they wait for
comes, and leave nothing behind when they are killed (docs/limits.md). Gathered by scenarios.py.
"""

import subprocess

from scenario_tools import client_limit, finish, ready, require, server_of, settled, tell

STREAMS = 600
CROWD = 8


def start_waiting(box, kind, count):
    child = box.start(["drv_waiting_work", kind, str(count)], stdin=subprocess.PIPE)
    ready(child)
    return child


def is_served(box, limit_s):
    """A new client computes, and a client that was started before continues."""
    finish(box.start(["drv_client_worker", "3"]), "a new client", limit_s)


def many_waiting(box, kind, count=STREAMS):
    box.env.update({"SOFTGPU_LOADING_WAITS": "1", "SOFTGPU_STREAM_LOTS": "1"})
    box.start_daemon()
    there = box.start(["drv_client_worker", "4", "3", "hold"], stdin=subprocess.PIPE)
    ready(there)
    waiting = start_waiting(box, kind, count)
    for _ in range(3):
        is_served(box, client_limit(box))
    there.stdin.write("go\n")
    finish(there, "the program that was started before")
    require(waiting.poll() is None, "the program that waits has ended")
    waiting.stdin.write("go\n")
    finish(waiting, "the program that waited", client_limit(box))
    settled(box, server_of(box))
    box.quit()


def waiting_values(box, _):
    many_waiting(box, "values")


def waiting_device_values(box, _):
    many_waiting(box, "device_values", 3000)


def waiting_events(box, _):
    many_waiting(box, "events")


def waiting_kernel(box, _):
    many_waiting(box, "kernel")


def waiting_legacy(box, _):
    many_waiting(box, "legacy")


def waiting_contexts(box, _):
    many_waiting(box, "contexts", 300)


def waiting_launches(box, _):
    """More launches behind a wait than the worker holds for a stream: the thread that launches waits, the thread that
    writes the value does not."""
    many_waiting(box, "launches", 40000)


def waiting_crowd(box, _):
    """Many such programs at once, each of which alone would find enough stream slots; one of them is killed."""
    box.env.update({"SOFTGPU_LOADING_WAITS": "1", "SOFTGPU_STREAM_LOTS": "1"})
    box.start_daemon()
    crowd = [start_waiting(box, ("device_values", "events", "kernel", "values")[i % 4], 250) for i in range(CROWD)]
    for _ in range(3):
        is_served(box, client_limit(box))
    killed = crowd.pop(0)
    killed.kill()
    killed.communicate()
    is_served(box, client_limit(box))
    for child in crowd:
        require(child.poll() is None, "one of those that wait has ended")
        tell(child)
    settled(box, server_of(box))
    box.quit()


WAITING = (waiting_values, waiting_device_values, waiting_events, waiting_kernel, waiting_legacy, waiting_contexts,
           waiting_launches, waiting_crowd)
