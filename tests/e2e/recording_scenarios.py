# SPDX-License-Identifier: Apache-2.0
"""Scenarios of recordings: what `openmps trace` writes, and what a profiler in a program is told beside others.

Called by scenarios.py, on its only thread.
"""

import json
import subprocess

from bystanders import Bystander, outcome
from sandbox import wait_until
from scenario_tools import CLIENT_LIMIT_S, client_limit, finish, ready, require, tell
from view_scenarios import openmps

# Arguments of drv_nbody: steps of some ten microseconds, more than it will execute.
STEADY = ["drv_nbody", "512", "100000000"]
# Steps of a program that runs from its first to its last within a trace.
SHORT_STEPS = 40
SHORT = ["drv_nbody", "512", str(SHORT_STEPS)]


def read(path):
    """The programs of a trace file by PID, each with its command and, by lane, its events in the order of time."""
    events = json.loads(path.read_text())
    programs = {}
    for event in events:
        program = programs.setdefault(event["pid"], {"command": None, "lanes": {}, "names": {}})
        if event["ph"] == "M" and event["name"] == "process_name":
            program["command"] = event["args"]["name"]
        elif event["ph"] == "M":
            program["names"][event["tid"]] = event["args"]["name"]
        else:
            program["lanes"].setdefault(event["tid"], []).append(event)
    for program in programs.values():
        for lane in program["lanes"].values():
            lane.sort(key=lambda event: event["ts"])
    return programs


def kernels(program):
    return [event for lane in program["lanes"].values() for event in lane if "grid" in event["args"]]


def await_launches(box):
    """Until a program has launched kernels."""
    launched = lambda: any((client["usage"] or {}).get("launches", 0) > 10 for client in json.loads(box.control("ps --json")[1]))
    require(wait_until(launched, CLIENT_LIMIT_S), "no program begins")


def check_lanes(program, what):
    for tid, lane in program["lanes"].items():
        require(program["names"][tid].startswith("GPU 0, stream "), f"{what}: a lane's name: {program['names']}")
        for before, after in zip(lane, lane[1:]):
            # Half a nanosecond is lost where the file states microseconds.
            require(before["ts"] + before["dur"] <= after["ts"] + 0.01, f"{what}: {before} and {after} overlap in a stream")
        require(all(event["dur"] >= 0 for event in lane), f"{what}: an event ends before it begins")


def recorded(box, _):
    """`openmps trace` shows when the kernels of all programs ran, or those of one, also of a program that comes
    while it records, from its first kernel to its last."""
    require("Cannot find MPS control daemon" in openmps(box, "trace", expect=1), "trace without a daemon")
    box.start_daemon()
    output = box.root / "trace.json"
    require("Client 1 not found" in openmps(box, "trace", "1", "--output", str(output), expect=1), "trace of no client")
    require(not output.exists(), "a trace of nobody leaves a file")
    require("use openmps trace" in box.control("trace")[1], "trace by the command shell")
    idle = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(idle)
    steady = box.start(STEADY)
    await_launches(box)

    said = openmps(box, "trace", str(steady.pid), "--seconds", "0.5", "--output", str(output))
    programs = read(output)
    require(said == "" and list(programs) == [steady.pid], f"trace of one program: {said!r}, {list(programs)}")
    one = programs[steady.pid]
    require("drv_nbody" in one["command"], f"its command: {one['command']}")
    require(len(kernels(one)) > 10 and {event["name"] for event in kernels(one)} == {"nbody_step"},
            f"its kernels: {kernels(one)[:3]}")
    require(kernels(one)[0]["args"]["block"] == "256 x 1 x 1", f"a kernel's block: {kernels(one)[0]}")
    check_lanes(one, "one")

    tracing = box.start(["openmps", "trace", "--seconds", "60", "--output", str(output)])
    began = lambda: output.exists() and '"nbody_step"' in output.read_text()
    require(wait_until(began, CLIENT_LIMIT_S), "the trace of all does not begin")
    comes = box.start(SHORT)
    finish(comes, "the program that comes", client_limit(box))
    tracing.send_signal(subprocess.signal.SIGINT)
    finish(tracing, "openmps trace", CLIENT_LIMIT_S)
    programs = read(output)
    require({steady.pid, comes.pid} <= programs.keys(), f"trace of all: {list(programs)}")
    require(len(kernels(programs[comes.pid])) == SHORT_STEPS,
            f"{len(kernels(programs[comes.pid]))} kernels of {SHORT_STEPS}")
    copies = [event for lane in programs[comes.pid]["lanes"].values() for event in lane
              if event["name"] == "copy, device to host"]
    require(sum(int(copy["args"]["bytes"]) for copy in copies) >= 512 * 16, f"its copies: {copies}")
    for pid in (steady.pid, comes.pid):
        check_lanes(programs[pid], f"{pid} of all")

    require(json.loads(openmps(box, "trace", str(idle.pid), "--seconds", "0.2", "--output", "-")) is not None,
            "a trace on standard output")
    steady.kill()
    steady.communicate()
    tell(idle)
    box.quit()


def recorded_while_it_moves(box, _):
    """A trace goes on when a program goes on in another worker."""
    box.start_daemon()
    output = box.root / "trace.json"
    works = Bystander(box, "requests", 1)
    works.wait_ready()
    seen = lambda: '"grid"' in output.read_text() if output.exists() else False
    tracing = box.start(["openmps", "trace", "--seconds", "60", "--output", str(output)])
    require(wait_until(seen, CLIENT_LIMIT_S), "the trace does not begin")
    worker = box.pids_named("openmps-worker")
    code, said = box.control("reload --worker")
    require(code == 0, f"reload --worker: {said}")
    require(box.pids_named("openmps-worker") != worker, "there is no other worker")
    size = output.stat().st_size
    require(wait_until(lambda: output.stat().st_size > 2 * size, CLIENT_LIMIT_S), "the trace ends with the worker")
    said = works.ask()
    require(outcome(said) == "unharmed", f"the program has noticed: {said}")
    works.end()
    tracing.send_signal(subprocess.signal.SIGINT)
    finish(tracing, "openmps trace", CLIENT_LIMIT_S)
    programs = read(output)
    require(list(programs) == [works.child.pid], f"one program is several: {list(programs)}")
    check_lanes(programs[works.child.pid], "before and after")
    box.quit()


def recorded_with_the_program(box, _):
    """A trace of one program ends with it; OPENMPS_TRACE_GPU puts the same into the worker's trace file."""
    path = box.root / "worker.json"
    box.env["OPENMPS_TRACE"], box.env["OPENMPS_TRACE_GPU"] = str(path), "on"
    box.start_daemon()
    del box.env["OPENMPS_TRACE"], box.env["OPENMPS_TRACE_GPU"]
    held = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    ready(held)
    tracing = box.start(["openmps", "trace", str(held.pid), "--seconds", "60", "--output", str(box.root / "own.json")])
    own = box.root / "own.json"
    began = lambda: own.exists() and '"process_name"' in own.read_text()
    require(wait_until(began, CLIENT_LIMIT_S), "the trace does not begin")
    tell(held)
    finish(tracing, "openmps trace of a program that ends", CLIENT_LIMIT_S)
    finish(box.start(SHORT), "nbody", client_limit(box))
    box.quit()
    text = path.read_text()
    require(text.count('"name":"nbody_step"') == SHORT_STEPS, f"{text.count('nbody_step')} kernels in the worker's trace")
    require('"name":"session 2 GPU 0 stream ' in text, "the lanes of the worker's trace")


def profiled(box, _):
    """A profiler in a program is told of the program's own kernels, beside one that is busy and one that is profiled
    as well; with openmps run --profile it finds the library."""
    box.start_daemon()
    steady = box.start(STEADY)
    await_launches(box)
    both = [box.start(["drv_cupti"]) for _ in range(2)]
    for one in both:
        out = finish(one, "a profiled program", client_limit(box))
        require("PASSED" in out and "FAILED" not in out, out)
    code, out, err = box.run(["openmps", "run", "--profile", "--", box.resolve("drv_cupti")], client_limit(box))
    require(code == 0 and "PASSED" in out, f"with --profile: {code}\n{out}{err}")
    steady.kill()
    steady.communicate()
    box.quit()


def native_tools(box, _):
    """A program that a tool of NVIDIA's has started runs on the plain driver and says so, unless OpenMPS is required;
    openmps run starts such tools like that."""
    box.start_daemon()
    inside = {"NV_SANITIZER_INJECTION_TRANSPORT_TYPE": "uds"}  # as compute-sanitizer sets it
    says = "openmps: compute-sanitizer works inside of NVIDIA's driver"
    log = box.log / "server.log"
    admitted = lambda: log.read_text().count(" connected: ") if log.exists() else 0
    code, out, err = box.run(SHORT, client_limit(box), {**inside, "OPENMPS_REQUIRED": "0"})
    require(code == 0 and err.startswith(says) and len(err.splitlines()) == 1 and admitted() == 0,
            f"inside of a tool: {code}, {admitted()} clients\n{out}{err}")
    code, out, err = box.run(SHORT, client_limit(box), {**inside, "OPENMPS_REQUIRED": "1"})
    require(code == 0 and "OPENMPS_REQUIRED is set" in err and admitted() == 1,
            f"with OPENMPS_REQUIRED: {code}, {admitted()} clients\n{out}{err}")

    tool = box.root / "ncu"
    tool.write_text("#!/bin/sh\necho \"path ${LD_LIBRARY_PATH:-none}\"\nexec \"$@\"\n")
    tool.chmod(0o755)
    others = {"LD_LIBRARY_PATH": f"{box.build}/lib/openmps:/elsewhere", "OPENMPS_REQUIRED": "0"}
    code, out, err = box.run(["openmps", "run", "--", str(tool), "true"], CLIENT_LIMIT_S, others)
    require((code, out) == (0, "path /elsewhere\n") and "works inside of NVIDIA's driver" in err,
            f"openmps run of a tool: {code}\n{out}{err}")
    code, out, err = box.run(["openmps", "run", "--required", "--", str(tool), "true"], CLIENT_LIMIT_S)
    require(code == 1 and out == "" and "not running it" in err, f"of a tool with --required: {code}\n{out}{err}")
    box.quit()


RECORDING = (recorded, recorded_while_it_moves, recorded_with_the_program, profiled, native_tools)
