#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs end-to-end programs and scenarios. Called by ctest, `./dev gpu-test` and by hand.

  run_e2e.py program  --mode softgpu|openmps|native [--driver nvidia] [--groups] -- NAME [ARGS]
  run_e2e.py scenario NAME [--clients N]
  run_e2e.py all      --mode native,openmps --driver nvidia     every program, both modes compared, and
                      the scenarios of limits
  run_e2e.py record   NAME [GROUP...] [--to DIR]                what this machine's GPU prints, as files

A program passes if it exits with 0, its output equals expected/NAME.txt (what an H200 printed with
NVIDIA's driver), and nothing of the run is left behind. Lines that start with "# " are for people.
"""

import argparse
import os
import sys
from pathlib import Path

from sandbox import Failure, Sandbox
from scenario_tools import Skipped

HERE = Path(__file__).resolve().parent
SKIPPED = 77  # the exit code that ctest reports as skipped
# Suffixes of builds of one source: they share its expected output.
VARIANTS = ("_shared", "_sm_80", "_sm_90", "_ptds")
# NVIDIA's driver crashes on some wrong handles, so these aren't run on it directly. Behind OpenMPS
# they run on it, too.
NOT_NATIVE = {("drv_bad_input", "destroyed"), ("drv_graph_nodes", "bad"), ("drv_textures",),
              ("drv_old_launch", "bad"), ("drv_logs", "bad"), ("drv_graph_calls", "cycles"),
              ("drv_green_contexts", "detached"),
              ("drv_stream_calls", "bad"), ("drv_memory_calls", "bad"),
              ("drv_thread_ends", "pending")}  # the driver leaves a lock locked when a thread in it is cancelled
# Programs whose comparisons other programs on the device would disturb: each runs when all others have
# ended.
ALONE = {"device_enum": "free memory before and after an allocation",
         "drv_textures": "free memory before and after arrays",
         "drv_virtual_memory": "free memory before and after mappings"}
EVERYTHING = [
    ["vector_add"], ["tiled_matmul"], ["nbody"], ["reduction_shuffle"], ["scan"],
    ["histogram_atomics"], ["monte_carlo_curand"], ["overlap_streams"], ["symbols"],
    ["dynamic_shared"], ["copies", "268435456"], ["memset_all"], ["occupancy"], ["device_enum"],
    ["separate_compilation"], ["separate_compilation_sm_80"], ["separate_compilation_sm_90"],
    ["nested_launches"], ["nested_launches_sm_90"], ["nested_streams"], ["nested_streams_sm_90"],
    ["nested_limits"],
    ["captured_kernels"], ["captured_kernels_shared"],
    ["host_threads"], ["host_threads_ptds"], ["errors_runtime"], ["device_printf"], ["managed"],
    *[[f"{program}_shared"] for program in (
        "vector_add", "tiled_matmul", "nbody", "reduction_shuffle", "scan", "histogram_atomics",
        "monte_carlo_curand", "overlap_streams", "symbols", "dynamic_shared", "memset_all",
        "occupancy", "device_enum", "host_threads", "errors_runtime", "device_printf", "managed",
        "textures", "cube_textures")],
    ["copies_shared", "268435456"],
    ["nbody_sm_90"], ["reduction_shuffle_sm_90"], ["histogram_atomics_sm_90"], ["group_matrices"], ["drv_vector_add"],
    ["drv_nbody"], ["drv_reduction"], ["drv_globals"], ["drv_streams_events"],
    ["drv_copies", "268435456"], ["drv_contexts"], ["drv_graphs"], ["drv_capture_vs_alloc"],
    ["drv_graph_nodes", "build"], ["drv_graph_nodes", "change"], ["drv_graph_nodes", "bad"],
    ["drv_graph_capture"], ["drv_graph_capture", "memory"],
    *[["drv_graph_memory", group] for group in ("life", "footprint", "rules")],
    ["drv_virtual_memory", "segments"], ["drv_virtual_memory", "aliases"], ["drv_pools", "use"],
    ["drv_copy_batches"], ["textures"], ["cube_textures"], ["drv_textures"], ["drv_fork_after_init"],
    ["drv_client_worker"], ["drv_linker"], ["drv_libraries"], ["drv_bad_input", "images"],
    ["drv_bad_input", "handles"], ["drv_bad_input", "destroyed"], ["drv_bad_input", "memory"],
    ["drv_bad_input", "launches"], ["drv_conditionals", "run"], ["drv_conditionals", "change"],
    ["drv_conditionals", "bad"], ["drv_graph_arrays"], ["drv_old_launch", "run"],
    ["drv_old_launch", "bad"], ["drv_logs", "run"], ["drv_logs", "bad"],
    ["drv_attributes"], *[["drv_limits", group] for group in ("heap", "stack", "overflow", "fixed")],
    ["drv_green_contexts"], ["drv_green_contexts", "detached"],
    *[["drv_green_graphs", group] for group in ("added", "captured", "changed", "conditionals", "cooperative",
                                                "libraries", "occupancy")],
    *[["drv_stream_calls", group]
      for group in ("attributes", "values", "callbacks", "capture", "bad")],
    *[["drv_stream_waits", group] for group in ("blocking", "thread", "legacy", "free")],
    ["drv_stream_order"], ["drv_fresh_code"], ["drv_fresh_order"],
    ["drv_random_order"],
    *[["drv_capture_refusals", group]
      for group in ("streams", "events", "copies", "memory", "code", "captures", "nodes")],
    *[["drv_capture_ends", group]
      for group in ("invalidated", "ends", "events", "graph", "legacy", "destroy")],
    *[["drv_function_calls", group]
      for group in ("occupancy", "cooperative", "modules", "libraries", "settings")],
    *[["drv_memory_calls", group]
      for group in ("fills", "copies", "places", "pointers", "managed", "bad")],
    *[["drv_device_calls", group] for group in ("devices", "contexts", "attached", "arrays")],
    ["drv_host_functions"], ["drv_managed_modules"], ["drv_visible"],
    ["drv_faults"], ["drv_core_dump"], ["drv_exit_calls"], ["drv_launch_blocking"], ["drv_environment"],
    *[["drv_thread_ends", group] for group in ("cancelled", "pending", "exits")],
    *[["drv_host_memory", group] for group in ("kinds", "refused", "writers", "stack", "changes", "neighbours",
                                               "direct", "forks")],
    *[["drv_no_context", group] for group in ("devices", "nodes", "streams", "reset")],
    *[["drv_launch_errors", group]
      for group in ("shapes", "attributes", "contexts", "captures")],
    *[["drv_clusters", group] for group in ("run", "attributes", "graphs", "errors")],
    *[["drv_graph_calls", group] for group in ("nodes", "execs", "edges", "memory", "moved", "cycles")],
]


def scenarios():
    """The module of scenarios, imported on demand: hundreds of tests run a program and do not need it."""
    import scenarios as module
    return module


def facts(text):
    return [line for line in text.splitlines() if not line.startswith("# ")]


def source_of(command):
    """The name of a program without the suffix of its build."""
    name = command[0]
    for suffix in VARIANTS:
        name = name.removesuffix(suffix)
    return name


def expected_output(command):
    """The golden output of a program with these arguments, or None if it has none."""
    path = HERE / "expected" / (".".join([source_of(command)] + command[1:]) + ".txt")
    return path.read_text().splitlines() if path.exists() else None


def with_differences(wanted, command, mode):
    """The expected lines in this mode: lines of differs/NAME.MODE.txt, which are CALL: RESULT, replace the
    GPU's. A line there that equals the GPU's is a mistake."""
    path = HERE / "differs" / f"{source_of(command)}.{mode}.txt"
    if wanted is None or not path.exists():
        return wanted
    known = dict(line.rsplit(": ", 1) for line in facts(path.read_text()))
    lines = []
    for line in wanted:
        call, _, result = line.rpartition(": ")
        if known.get(call) == result:
            raise Failure(f"{path.name}: no difference: {line}")
        lines.append(f"{call}: {known[call]}" if call in known else line)
    return lines


def judge(command, mode, code, out, err):
    """The faults of this run of a program, as lines."""
    lines, wanted = facts(out), with_differences(expected_output(command), command, mode)
    problems = [f"exit code {code}"] if code != 0 else []
    if wanted is not None and lines != wanted:
        import difflib
        problems.append("output differs from what an H200 printed, or is known to differ:")
        problems += difflib.unified_diff(wanted, lines, "expected", "got", lineterm="", n=1)
    return [*problems, f"--- stdout\n{out}--- stderr\n{err}"] if problems else []


def run_programs(build, mode, driver, commands, timeout, softgpu=()):
    """Runs programs in one mode, one after another in one sandbox, each for `timeout` seconds at most; returns
    their facts. `softgpu`: (variable, value) of its configuration. Raises Failure, which names those that fail."""
    box = Sandbox(build, mode, driver, dict(softgpu))
    lines, problems = [], []
    try:
        try:
            if mode == "openmps":
                box.start_daemon()
            for command in commands:
                try:
                    code, out, err = box.run(command, timeout)
                    found = judge(command, mode, code, out, err)
                    lines += facts(out)
                except Failure as failure:
                    found = [str(failure)]
                problems += [f"{' '.join(command)}: FAILED", *found] if found else []
            if mode == "openmps":
                box.quit()
        except Failure as failure:
            problems.append(str(failure))
        problems += box.leftovers()
        if problems:
            raise Failure("\n".join(problems) + f"\n{box.logs()}")
        return lines
    finally:
        box.close()


def run_in_modes(build, modes, driver, timeout, command):
    """One program in every mode, outputs compared. Returns what to print and how many failed."""
    title, first, report, failed = " ".join(command), None, [], 0
    for mode in modes:
        if mode == "native" and tuple(command) in NOT_NATIVE:
            continue
        try:
            lines = run_programs(build, mode, driver, [command], timeout)
            if first is not None and lines != first:
                raise Failure("output differs from that of the first mode")
            first = lines
            report.append(f"ok      {mode:8} {title}")
        except Failure as failure:
            failed += 1
            report.append(f"FAILED  {mode:8} {title}\n{failure}")
    return "\n".join(report), failed


def record(build, name, groups, to, timeout):
    """Writes what a program prints natively into its file of expected output, or one for each group."""
    for command in [[name, group] for group in groups] or [[name]]:
        box = Sandbox(build, "native", "nvidia")
        try:
            code, out, err = box.run(command, timeout)
            if code != 0:
                raise Failure(f"{' '.join(command)}: exit code {code}\n{out}{err}")
        finally:
            box.close()
        path = to / (".".join(command) + ".txt")
        path.write_text("\n".join(facts(out)) + "\n")
        print(f"{path}: {len(facts(out))} lines", flush=True)


def run_scenario(build, driver, name):
    """As run_in_modes()."""
    try:
        scenarios().run(name, build, driver, None)
    except Failure as failure:
        return f"FAILED  openmps  scenario {name}\n{failure}", 1
    return f"ok      openmps  scenario {name}", 0


def run_everything(build, modes, driver, timeout, jobs):
    """Every program in every mode, `jobs` programs at once except those of ALONE; then, behind OpenMPS, the
    scenarios whose answers a GPU decides. Prints in the order of EVERYTHING, those of ALONE last. Returns
    how many failed."""
    def run(command):
        return run_in_modes(build, modes, driver, timeout, command)

    import concurrent.futures
    failed = 0
    alone = [command for command in EVERYTHING if source_of(command) in ALONE]
    together = [command for command in EVERYTHING if command not in alone]
    for group, width in ((together, jobs), (alone, 1)):
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            for report, failures in pool.map(run, group):
                print(report, flush=True)
                failed += failures
    for name in scenarios().ON_GPU if "openmps" in modes and driver == "nvidia" else ():
        report, failures = run_scenario(build, driver, name)
        print(report, flush=True)
        failed += failures
    print(f"{failed} failed" if failed else "all passed")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build",
                        default=os.environ.get("OPENMPS_BUILD", HERE.parents[1] / "build"))
    commands = parser.add_subparsers(dest="what", required=True)
    program = commands.add_parser("program")
    program.add_argument("--mode", choices=["softgpu", "openmps", "native"], required=True)
    program.add_argument("--driver", default="softgpu")
    program.add_argument("--timeout", type=float, default=60)
    program.add_argument("--devices", default="1", help="of softgpu")
    program.add_argument("--capability", default="9.0", help="compute capability of softgpu")
    program.add_argument("--groups", action="store_true",
                         help="a run for each of ARGS, all in one sandbox; those that fail are named")
    program.add_argument("command", nargs=argparse.REMAINDER)
    scenario = commands.add_parser("scenario")
    scenario.add_argument("name")
    scenario.add_argument("--clients", type=int)
    scenario.add_argument("--driver", default="softgpu")
    recorded = commands.add_parser("record")
    recorded.add_argument("name")
    recorded.add_argument("groups", nargs="*")
    recorded.add_argument("--to", type=Path, default=HERE / "expected")
    recorded.add_argument("--timeout", type=float, default=600)
    everything = commands.add_parser("all")
    everything.add_argument("--mode", default="native,openmps")
    everything.add_argument("--driver", default="nvidia")
    everything.add_argument("--timeout", type=float, default=60)
    everything.add_argument("--jobs", type=int, default=1, help="programs at once")
    args = parser.parse_args()

    if args.what == "all":
        modes = args.mode.split(",")
        failed = run_everything(args.build, modes, args.driver, args.timeout, args.jobs)
        return 1 if failed else 0
    try:
        if args.what == "program":
            command = args.command[1:] if args.command[:1] == ["--"] else args.command
            commands = [[command[0], group] for group in command[1:]] if args.groups else [command]
            softgpu = {"SOFTGPU_DEVICES": args.devices, "SOFTGPU_CC": args.capability}
            print("\n".join(run_programs(args.build, args.mode, args.driver, commands, args.timeout,
                                         softgpu)))
        elif args.what == "record":
            record(args.build, args.name, args.groups, args.to, args.timeout)
        else:
            scenarios().run(args.name, args.build, args.driver, args.clients)
            print(f"{args.name}: passed")
    except Skipped as why:
        print(f"skipped: {why}")
        return SKIPPED
    except Failure as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
