#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Native, NVIDIA's MPS and OpenMPS side by side on one machine in one run, medians of five, with
ratios and targets. Run by `./dev bench smoke`. On a GPU machine it takes about five minutes; without
a GPU a reduced set runs on softgpu (no MPS there, no targets). The table comes last;
build/bench/smoke.json holds every sample. Python standard library only."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tools")]
from demo import best_driver  # noqa: E402
from sandbox import Failure, Sandbox, wait_until  # noqa: E402

LIMIT_S = 120
SETTLE_S = 0.5     # daemon and worker finish their preparations
EXTRA_CLIENTS = 4  # clients beyond the first, for the memory of each
TOGETHER = 4       # programs that start at the same moment, as in the design's measurements
SIZES = {
    "nvidia": {"copy_mib": 1024, "bursts": 100, "small": (8192, 4000, 8), "large": (262144, 40, 4)},
    "softgpu": {"copy_mib": 64, "bursts": 20, "small": (256, 1500, 4), "large": (2048, 4, 2)},
}

# metric: (title, unit, rival that the target refers to or None, comparison, bound)
METRICS = {
    "start_ms": ("start to first kernel", "ms", None, "<=", 40),
    "start_together_ms": (f"the same, {TOGETHER} processes together", "ms", None, None, None),
    "memory_mib": ("device memory per extra client", "MiB", None, "<=", 8),
    "issue_us": ("launch issue", "us", None, "<=", 0.6),
    "launch_sync_us": ("launch + synchronise", "us", "native", "<=", 1.15),
    "pinned_to": ("pinned copy to device", "GB/s", "native", ">=", 0.97),
    "pinned_from": ("pinned copy from device", "GB/s", "native", ">=", 0.97),
    "pageable_to": ("pageable copy to device", "GB/s", "native", ">=", 1.0),
    "pageable_from": ("pageable copy from device", "GB/s", "native", ">=", 1.0),
    "nbody_small_ms": ("n-body, small grids", "ms", "mps", "<=", 1.05),
    "nbody_large_ms": ("n-body, large grids", "ms", "mps", "<=", 1.05),
}


class MpsSandbox(Sandbox):
    """NVIDIA's own daemon in the sandbox's directories."""

    def start_daemon(self):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.env, check=True, timeout=LIMIT_S)

    def quit(self):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=self.env,
                       check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)


def output_of(box, command):
    code, out, err = box.run(command, LIMIT_S)
    if code != 0:
        raise Failure(f"{' '.join(command)}: exit code {code}\n{out}{err}")
    return out


def figures(box, command):
    return json.loads(output_of(box, command))


def together(box, command, count):
    """Outputs of `count` copies started at the same moment."""
    children = [box.start(command) for _ in range(count)]
    outputs = []
    for child in children:
        out, err = child.communicate(timeout=LIMIT_S)
        if child.returncode != 0:
            raise Failure(f"{' '.join(command)}: exit code {child.returncode}\n{out}{err}")
        outputs.append(out)
    return outputs


def memory_used_mib(box):
    return box.device_state()[1] / 2**20


def memory_per_extra_client(box):
    """MiB that each client beyond the first takes."""
    clients = []

    def add():
        child = box.start(["gpu_bench", "hold"], stdin=subprocess.PIPE)
        clients.append(child)
        if child.stdout.readline() != "ready\n":
            raise Failure("gpu_bench hold: " + child.stderr.read())

    try:
        add()
        first = memory_used_mib(box)
        for _ in range(EXTRA_CLIENTS):
            add()
        return (memory_used_mib(box) - first) / EXTRA_CLIENTS
    finally:
        for child in clients:
            child.communicate(timeout=LIMIT_S)


def prepare(box):
    """Starts the server of a sandbox, with all that it makes for several clients (decision 16)."""
    together(box, ["gpu_bench", "start"], 2)
    time.sleep(SETTLE_S)


def nbody_ms(box, bodies, steps, processes):
    """The longest time that one of the processes takes for its steps."""
    outputs = together(box, ["nbody_bench", str(bodies), str(steps)], processes)
    return max(float(re.search(r"ms=([\d.]+)", out).group(1)) for out in outputs)


def measure(box, sizes, repeats, note):
    """All metrics on one side: metric -> list of `repeats` samples."""
    samples = {}

    def add(values):
        for key, value in values.items():
            samples.setdefault(key, []).append(value)

    steps = {
        "start": lambda: add(figures(box, ["gpu_bench", "start"])),
        "start together": lambda: add({"start_together_ms": max(
            json.loads(out)["start_ms"]
            for out in together(box, ["gpu_bench", "start"], TOGETHER))}),
        "memory": lambda: add({"memory_mib": memory_per_extra_client(box)}),
        "launch": lambda: add(figures(box, ["gpu_bench", "launch", str(sizes["bursts"])])),
        "copies": lambda: add(figures(box, ["gpu_bench", "copies", str(sizes["copy_mib"])])),
        "n-body small": lambda: add({"nbody_small_ms": nbody_ms(box, *sizes["small"])}),
        "n-body large": lambda: add({"nbody_large_ms": nbody_ms(box, *sizes["large"])}),
    }
    for name, step in steps.items():
        begin = time.monotonic()
        for _ in range(repeats):
            step()
        note(f"{name}: {time.monotonic() - begin:.1f} s")
    return samples


def side(name, build, driver, repeats, begin):
    """Runs one side in a sandbox of its own; a failure leaves its cells of the table empty."""
    def note(text):
        print(f"[{time.monotonic() - begin:6.1f} s] {name}: {text}", flush=True)

    plain = "softgpu" if driver == "softgpu" else "native"
    mode = {"native": plain, "mps": "native"}.get(name, "openmps")
    box = (MpsSandbox if name == "mps" else Sandbox)(build, mode, driver)
    try:
        if name != "native":
            box.start_daemon()
            prepare(box)
        samples = measure(box, SIZES[driver], repeats, note)
        if name != "native":
            box.quit()
            wait_until(lambda: not box.processes(), LIMIT_S)
        return samples
    except (Failure, subprocess.SubprocessError, OSError) as failure:
        note(f"FAILED: {failure}\n{box.logs()}")
        return {}
    finally:
        box.close()


def verdict(metric, medians):
    """(ratio text, target text, whether it holds or None if there is nothing to compare)."""
    _, unit, rival, sign, bound = METRICS[metric]
    ours = medians["openmps"].get(metric)
    against = rival or "native"
    base = medians.get(against, {}).get(metric)
    ratio = f"{ours / base:.2f} x {against}" if ours is not None and base else "-"
    if sign is None:
        return ratio, "-", None
    target = f"{sign} {bound} x {rival}" if rival else f"{sign} {bound} {unit}"
    limit = bound if rival is None else (bound * base if base else None)
    if ours is None or limit is None:
        return ratio, target, None
    return ratio, target, ours <= limit if sign == "<=" else ours >= limit


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path,
                        default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--driver", choices=["nvidia", "softgpu"], default=None)
    parser.add_argument("--sides", default="native,mps,openmps")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    driver = args.driver or best_driver()
    if not (Path(args.build) / "bench/gpu_bench").exists():
        print("bench/gpu_bench is missing: build it with nvcc or carry it here", file=sys.stderr)
        return 1
    sides = args.sides.split(",")
    if driver == "softgpu" or not shutil.which("nvidia-cuda-mps-control"):
        sides = [s for s in sides if s != "mps"]
    begin = time.monotonic()
    samples = {name: side(name, args.build, driver, args.repeats, begin) for name in sides}
    medians = {name: {k: statistics.median(v) for k, v in values.items()}
               for name, values in samples.items()}
    medians.setdefault("openmps", {})

    rows = [["metric", "unit", *sides, "ratio", "target", "holds"]]
    for metric, (title, unit, *_) in METRICS.items():
        ratio, target, holds = verdict(metric, medians)
        if driver == "softgpu":
            target, holds = "-", None
        cells = [f"{medians[s][metric]:.4g}" if metric in medians[s] else "-" for s in sides]
        answer = {True: "yes", False: "NO", None: "-"}[holds]
        rows.append([title, unit, *cells, ratio, target, answer])
    json_path = args.json or Path(args.build) / "bench" / "smoke.json"
    results = {"driver": driver, "samples": samples, "medians": medians}
    json_path.write_text(json.dumps(results, indent=1))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    spent = time.monotonic() - begin
    print(f"\n{driver}, medians of {args.repeats}, {spent:.0f} s; samples in {json_path}")
    for row in rows:
        first = row[0].ljust(widths[0])
        print("  ".join([first] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]))
    return 0 if samples.get("openmps") else 1


if __name__ == "__main__":
    sys.exit(main())
