# SPDX-License-Identifier: Apache-2.0
"""What bench/engine.py and bench/limits.py have in common: programs that run beside others, the sides on
which each case runs (natively, under NVIDIA's MPS, behind OpenMPS), what was found and how it is judged.

Each case runs on one side after the other, each time with a daemon of its own, so that what goes wrong
in one harms no other; what takes too long is given up and stands in the table as `> N s`.
build/bench/NAME.json holds every sample, and is written after each case. Python standard library only."""

import argparse
import importlib.util
import json
import os
import resource
import select
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tools"), str(ROOT / "bench")]
from demo import best_driver  # noqa: E402
from sandbox import Failure, Sandbox, wait_until  # noqa: E402
from smoke import SETTLE_S, MpsSandbox, prepare  # noqa: E402
from stack import show  # noqa: E402

START_LIMIT_S = 40   # natively 64 contexts, made one after the other, take 10 s
ANSWER_LIMIT_S = 30  # in addition to the time that a program is told to run
LOOK_S = 0.5         # between two checks for clients that have failed
SECONDS = 540        # for one round of all cases
LONGEST_RUN_S = 20   # for each of the cases that come last
SHOWN_LINES = 6      # lines of a failure that are printed
DESCRIPTORS = 8192


@dataclass
class Bench:
    """Cases, and how they are judged."""

    name: str
    doc: str
    # By driver; native_sizes and mps_sizes replace some of them on those sides.
    sizes: dict
    # metric: (title, unit, rival that the goal refers to or None, comparison or None, bound). Titles are
    # filled in from the sizes. A metric is named CASE.NAME.
    metrics: dict
    # Each case is called with its sandbox, the sizes, and a function to report metrics to.
    cases: dict
    native_sizes: dict = field(default_factory=dict)
    mps_sizes: dict = field(default_factory=dict)
    needs: dict = field(default_factory=dict)     # case: the Python module without which it is left out
    left_out: set = field(default_factory=set)    # (case, side)
    last: set = field(default_factory=set)        # cases that run after the others


class NotWithin(Failure):
    """A time limit has passed."""

    def __init__(self, limit_s):
        super().__init__(f"> {limit_s:.0f} s")


# --- programs ---------------------------------------------------------------------------------------


def output_of(child, what, limit_s=ANSWER_LIMIT_S):
    try:
        out, err = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise NotWithin(limit_s) from None
    if child.returncode != 0:
        raise Failure(f"{what}: exit code {child.returncode}\n{out}{err}")
    return out


def figures(box, command, limit_s=ANSWER_LIMIT_S, env=None):
    return json.loads(output_of(box.start(command, env), command[0], limit_s))


class Clients:
    """Copies of one program that share standard input and output. They print "ready", and end when their
    input ends."""

    def __init__(self, box, command, count=1, env=None):
        self.name, self.buffer = " ".join(command), b""
        self.errors = open(box.root / f"clients-{len(box.children)}.err", "w+", errors="replace")
        their_input, self.input = os.pipe()
        self.output, their_output = os.pipe()
        try:
            self.children = [box.start(command, env, stdin=their_input, stdout=their_output,
                                       stderr=self.errors) for _ in range(count)]
        finally:
            os.close(their_input)
            os.close(their_output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        os.close(self.output)
        self.errors.close()

    def _failure(self, text):
        self.errors.seek(0)
        return Failure(f"{self.name}: {text}\n" + "".join(self.errors.readlines()[-10:]))

    def lines(self, count, limit_s):
        """The next lines that any of them print."""
        deadline = time.monotonic() + limit_s
        found = []
        while len(found) < count:
            line, end, rest = self.buffer.partition(b"\n")
            if end:
                found.append(line.decode())
                self.buffer = rest
                continue
            left = deadline - time.monotonic()
            poll = select.poll()
            poll.register(self.output, select.POLLIN)
            if not poll.poll(max(0, min(left, LOOK_S)) * 1e3):
                codes = {child.poll() for child in self.children} - {None, 0}
                if codes:
                    raise self._failure(f"exit codes {sorted(codes)}")
                if left <= 0:
                    raise NotWithin(limit_s)
                continue
            data = os.read(self.output, 1 << 16)
            if not data:
                raise self._failure("all of them have ended")
            self.buffer += data
        return found

    def wait_ready(self):
        for line in self.lines(len(self.children), START_LIMIT_S):
            if line != "ready":
                raise self._failure(f"says {line}")

    def ask(self):
        """The answer to a line."""
        os.write(self.input, b"\n")
        return json.loads(self.lines(1, ANSWER_LIMIT_S)[0])

    def release(self):
        if self.input is not None:
            os.close(self.input)
            self.input = None

    def finish(self, limit_s=ANSWER_LIMIT_S):
        """Releases all and waits for their end."""
        self.release()
        deadline = time.monotonic() + limit_s
        for child in self.children:
            try:
                child.wait(timeout=max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise NotWithin(limit_s) from None
        codes = {child.returncode for child in self.children}
        if codes != {0}:
            raise self._failure(f"exit codes {sorted(codes)}")


def latency(box, sizes, seconds=None, env=None):
    """p50 and p99 of requests, one after the other."""
    seconds = seconds or sizes["latency_s"]
    return figures(box, ["clients", "latency", str(seconds), str(sizes["fmas"])],
                   seconds + ANSWER_LIMIT_S, env)


def percentiles(found):
    return {"p50": found["p50"], "p99": found["p99"]}


class Neighbour(Clients):
    """n-body that always has steps queued."""

    def __init__(self, box, sizes, bodies, env=None):
        # Checked every few milliseconds: after each step of 262144 bodies, each 16th of 8192.
        every = max(1, min(16, sizes["large"] // bodies // 2))
        super().__init__(box, ["clients", "nbody", str(bodies), str(sizes["ahead"]), str(every)],
                         env=env)
        self.wait_ready()
        time.sleep(SETTLE_S)

    def speed_during(self, work):
        """(steps per second while `work` ran, its result)"""
        before = self.ask()
        result = work()
        after = self.ask()
        spent = after["at"] - before["at"]
        return (after["steps"] - before["steps"]) / spent if spent else 0.0, result


def together(box, commands, limit_s, envs=None):
    """(wall seconds of all, their outputs)"""
    begin = time.monotonic()
    children = [box.start(command, env) for command, env in zip(commands, envs or [None] * len(commands))]
    outputs = [output_of(child, command[0], max(0.1, limit_s - (time.monotonic() - begin)))
               for child, command in zip(children, commands)]
    return time.monotonic() - begin, outputs


# --- sides --------------------------------------------------------------------------------------------


class Side:
    """One way to run programs: `native`, `mps`, `openmps`, or a switch of OPENMPS_PERF."""

    def __init__(self, bench, name, build, driver):
        self.bench, self.name, self.build, self.driver = bench, name, build, driver
        self.sizes = dict(bench.sizes[driver])
        if driver == "nvidia":
            self.sizes.update({"native": bench.native_sizes, "mps": bench.mps_sizes}.get(name, {}))

    def sandbox(self):
        if self.name == "mps":
            return MpsSandbox(self.build, "native", self.driver)
        if self.name == "native":
            return Sandbox(self.build, "softgpu" if self.driver == "softgpu" else "native", self.driver)
        env = {} if self.name == "openmps" else {"OPENMPS_PERF": self.name}
        return Sandbox(self.build, "openmps", self.driver, env)

    def run(self, case, found):
        """The reason why the case ended early, or None."""
        box = self.sandbox()
        try:
            if self.name != "native":
                box.start_daemon()
                prepare(box)
            self.bench.cases[case](box, self.sizes, found)
            if self.name != "native":
                box.quit()
                if not wait_until(lambda: not box.processes(), ANSWER_LIMIT_S):
                    raise Failure("something of it is still there after its end")
            return None
        except NotWithin as late:
            return str(late)
        except (Failure, subprocess.SubprocessError, OSError, ValueError) as failure:
            return f"{failure}\n{box.logs()}"
        finally:
            box.close()


class Results:
    """samples[case][side][metric]: one for each round; failures[case][side]: why one ended early."""

    def __init__(self, bench, driver, sides):
        self.bench, self.driver, self.sides = bench, driver, sides
        self.samples, self.failures = {}, {}

    def take(self, case, side, number):
        """Runs a case once on a side; returns a line about it."""
        of_side = self.samples.setdefault(case, {}).setdefault(side.name, {})
        line = []

        def found(**values):
            for metric, value in values.items():
                of_side.setdefault(metric, []).append(value)
                line.append(f"{metric} {value:.4g}")

        reason = side.run(case, found)
        if reason:
            self.failures.setdefault(case, {})[side.name] = f"round {number}: {reason}"
            line.append("\n".join(reason.splitlines()[:SHOWN_LINES]))  # the JSON has all of it
        return ", ".join(line)

    def median(self, key, side):
        case, metric = key.split(".")
        samples = self.samples.get(case, {}).get(side, {}).get(metric)
        return statistics.median(samples) if samples else None

    def cell(self, key, side):
        value = self.median(key, side)
        if value is not None:
            return f"{value:.4g}"
        case, _ = key.split(".")
        reason = self.failures.get(case, {}).get(side)
        if reason is None:
            return "-"
        late = reason.split(": ", 1)[1]
        return late if late.startswith("> ") and "\n" not in late else "failed"

    def row(self, key):
        title, unit, rival, sign, bound = self.bench.metrics[key]
        goal, holds = "-", "-"
        if sign and self.driver == "nvidia":
            goal = f"{sign} {bound} x {rival}" if rival else f"{sign} {bound}"
            base = self.median(key, rival) if rival else 1
            ours = self.median(key, "openmps")
            if ours is not None and base is not None:
                limit = bound * base
                holds = "yes" if (ours <= limit if sign == "<=" else ours >= limit) else "NO"
            elif ours is None and "openmps" in self.failures.get(key.split(".")[0], {}):
                holds = "NO"
        cells = [self.cell(key, side) for side in self.sides]
        return [title.format(**self.bench.sizes[self.driver]), unit, *cells, goal, holds]

    def table(self):
        chosen = [key for key in self.bench.metrics if key.split(".")[0] in self.samples]
        return [["case", "unit", *self.sides, "goal", "met"], *map(self.row, chosen)]

    def write(self, path):
        path.write_text(json.dumps({"driver": self.driver, "samples": self.samples,
                                    "failures": self.failures}, indent=1))


def runs(bench, cases, names):
    """(case, side) in the order in which they run: last native runs that no goal refers to, and the cases
    of Bench.last."""
    wanted = {(key.split(".")[0], rival) for key, (_, _, rival, _, _) in bench.metrics.items()}
    return sorted(((case, name) for case in cases for name in names if (case, name) not in bench.left_out),
                  key=lambda run: (run[0] in bench.last, run[1] == "native" and run not in wanted))


def available_sides(names, driver):
    """Without NVIDIA's MPS where it is not."""
    if driver == "softgpu" or not shutil.which("nvidia-cuda-mps-control"):
        return [name for name in names if name != "mps"]
    return names


def raise_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def chosen_cases(bench, only):
    cases = only.split(",") if only else list(bench.cases)
    for case in cases:
        if case not in bench.cases:
            raise SystemExit(f"no case {case}; there are {', '.join(bench.cases)}")
    missing = [case for case in cases
               if case in bench.needs and not importlib.util.find_spec(bench.needs[case])]
    for case in missing:
        print(f"{case}: left out, it needs {bench.needs[case]}", flush=True)
    return [case for case in cases if case not in missing]


def main(bench):
    parser = argparse.ArgumentParser(description=bench.doc)
    parser.add_argument("--build", type=Path,
                        default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--driver", choices=["nvidia", "softgpu"], default=None)
    parser.add_argument("--sides", default="native,mps,openmps")
    parser.add_argument("--perf", metavar="SWITCH", action="append", default=[],
                        help="one more side: OpenMPS with OPENMPS_PERF=SWITCH")
    parser.add_argument("--only", metavar="CASE,...", help=", ".join(bench.cases))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=None,
                        help="leave out what would end later; runs on the bare GPU that no goal speaks of "
                             f"come last (one round: {SECONDS}, more: 0, no limit)")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    driver = args.driver or best_driver()
    if not (Path(args.build) / "bench/clients").exists():
        print("bench/clients is missing: build it with nvcc or carry it here", file=sys.stderr)
        return 1
    names = available_sides(args.sides.split(",") + args.perf, driver)
    raise_descriptors()
    begin = time.monotonic()
    results = Results(bench, driver, names)
    json_path = args.json or Path(args.build) / "bench" / f"{bench.name}.json"
    cases = [case for case in chosen_cases(bench, args.only)
             if driver != "softgpu" or case not in bench.needs]
    if any(bench.needs.get(case) == "torch" for case in cases):  # so that no side is the first to read PyTorch's files
        subprocess.run([sys.executable, "-c", "import torch"], check=False)
    seconds = args.seconds if args.seconds is not None else SECONDS if args.rounds == 1 else 0
    late = []
    for case, name in runs(bench, cases, names):
        if seconds and time.monotonic() - begin > seconds - LONGEST_RUN_S:
            late.append(f"{case} ({name})")
            continue
        for number in range(1, args.rounds + 1):
            start = time.monotonic()
            line = results.take(case, Side(bench, name, args.build, driver), number)
            now = time.monotonic()
            print(f"[{now - begin:6.1f} s] {case}, {name}, {now - start:.1f} s: {line}", flush=True)
        results.write(json_path)
    if late:
        print(f"left out, to end within {seconds} s: {', '.join(late)}")
    print(f"\n{driver}, medians of {args.rounds}, {time.monotonic() - begin:.0f} s; samples in {json_path}")
    show(results.table())
    return 1 if any(side not in ("native", "mps") for of in results.failures.values() for side in of) else 0

