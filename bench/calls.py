#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What single calls cost a program that is alone, natively and behind OpenMPS, in turns on one machine:
medians in microseconds and the ratio of each. Run by `./dev bench calls`: half a minute on a GPU; without
one it compares softgpu with OpenMPS on softgpu. build/bench/calls.json holds every round. Python
standard library only."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tools"), str(ROOT / "bench")]
from demo import best_driver  # noqa: E402
from sandbox import Failure, Sandbox, wait_until  # noqa: E402
from smoke import LIMIT_S, figures  # noqa: E402

MARKED_FROM = 1.05  # ratios above this are marked: docs/measurements/calls.md gives the reason of each
SHARE = {"nvidia": "1", "softgpu": "0.1"}


def measure(boxes, driver, rounds):
    """{side: [{call: microseconds} of each round]}; the sides take turns."""
    samples = {side: [] for side in boxes}
    for number in range(rounds):
        for side, box in boxes.items():
            samples[side].append(figures(box, ["call_costs", SHARE[driver]]))
            print(f"round {number + 1} of {rounds}: {side}", file=sys.stderr, flush=True)
    return samples


def table(medians, sides):
    base, ours = sides
    rows = [["call", f"{base}, us", f"{ours}, us", "ratio", ""]]
    for call, native in medians[base].items():
        ratio = medians[ours][call] / native
        mark = "*" if ratio > MARKED_FROM else ""
        rows.append([call, f"{native:.2f}", f"{medians[ours][call]:.2f}", f"{ratio:.2f}", mark])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path,
                        default=os.environ.get("OPENMPS_BUILD", ROOT / "build"))
    parser.add_argument("--driver", choices=["nvidia", "softgpu"], default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    driver = args.driver or best_driver()
    if not (Path(args.build) / "bench/call_costs").exists():
        print("bench/call_costs is missing: build it with nvcc or carry it here", file=sys.stderr)
        return 1
    base = "softgpu" if driver == "softgpu" else "native"
    boxes = {side: Sandbox(args.build, side, driver) for side in (base, "openmps")}
    try:
        boxes["openmps"].start_daemon()
        samples = measure(boxes, driver, args.rounds)
        boxes["openmps"].quit()
        wait_until(lambda: not boxes["openmps"].processes(), LIMIT_S)
    except (Failure, subprocess.SubprocessError, OSError) as failure:
        print(f"{failure}\n{boxes['openmps'].logs()}", file=sys.stderr)
        return 1
    finally:
        for box in boxes.values():
            box.close()
    medians = {side: {call: statistics.median(one[call] for one in rounds) for call in rounds[0]}
               for side, rounds in samples.items()}
    json_path = args.json or Path(args.build) / "bench" / "calls.json"
    json_path.write_text(json.dumps({"driver": driver, "samples": samples, "medians": medians},
                                    indent=1))
    rows = table(medians, list(boxes))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print(f"{driver}, medians of {args.rounds} rounds; * above {MARKED_FROM} x; rounds in {json_path}")
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
