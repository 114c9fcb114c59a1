#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients notice of others that fault or die: bystanders of several kinds beside one faulting client after the
other, natively, under NVIDIA's MPS or behind OpenMPS. Each bystander compares every word of its results with what
the host computes. Run by `./dev bench faults`; without a GPU on softgpu, with an H200's delays. Exit code 1: a
result was wrong, a newcomer was not served, or something was left. Python standard library only."""

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tools"), str(ROOT / "bench")]
from bystanders import (DEATHS, DOUBLE, FAULTS, GONE, H200_LATENCY, KILL, MODES, RENEW, WORKER, Bystander,  # noqa: E402
                        Logs, await_active, commit, named, outcome, suspected)
from demo import best_driver  # noqa: E402
from sandbox import Failure, Sandbox, wait_until  # noqa: E402
from scenario_tools import SETTLE_LIMIT_S, finish  # noqa: E402
from smoke import MpsSandbox  # noqa: E402
from stack import show  # noqa: E402

KINDS = (*FAULTS, KILL, GONE, WORKER, DOUBLE, DEATHS, RENEW)
SIDES = ("openmps", "mps", "native")
NEWCOMER_LIMIT_S = 60
IDLE_BYTES = 128 << 20  # of softgpu's memory, without clients: what workers keep of freed memory
WORKER_DESCRIPTORS = 2  # of the server: a worker's socket and process
KEPT_IMAGES = 4         # of code that no client has any more
KNOWN_S = 0.5           # after that a fault is known whose client has gone
OUTCOMES = ("unharmed", "told", "lost", "told often", "WRONG")


def sandbox(options):
    if options.side == "mps":
        return MpsSandbox(options.build, "native", options.driver)
    if options.side == "native":
        return Sandbox(options.build, "softgpu" if options.driver == "softgpu" else "native", options.driver)
    env = {"SOFTGPU_FAULT_LATENCY_US": options.latency} if options.driver == "softgpu" else {}
    env["OPENMPS_QUARANTINE"] = options.quarantine
    return Sandbox(options.build, "openmps", options.driver, env)


def bystander_names(words):
    """What --bystanders asks for: "long", "idle*3" as idle, idle.2, idle.3."""
    names = []
    for word in words:
        mode, _, count = word.partition("*")
        names += [mode if number == 1 else f"{mode}.{number}" for number in range(1, int(count or 1) + 1)]
    return names


def mode_of(name):
    return name.partition(".")[0]


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


class Campaign:
    """One sandbox, its bystanders, and the events."""

    def __init__(self, options):
        self.options, self.random = options, random.Random(options.seed)
        self.box = sandbox(options)
        self.bystanders, self.events, self.problems = {}, [], []
        self.with_daemon = options.side != "native"
        self.env = {"OPENMPS_REPLAY": options.replay} if options.side == "openmps" else {}

    def problem(self, text):
        self.problems.append(text)
        print("  " + text.replace("\n", "\n    "), flush=True)

    def fill(self):
        """Starts the bystanders that are not there."""
        fresh = []
        for name in self.options.bystanders:
            if name not in self.bystanders:
                self.bystanders[name] = Bystander(self.box, mode_of(name), self.random.randrange(1, 1000), self.env)
                fresh.append(self.bystanders[name])
        for one in fresh:
            one.wait_ready()

    def server_descriptors(self):
        """Of all servers, without those for their workers, of which there is sometimes a spare one more."""
        time.sleep(self.options.between)  # memory that lives for a while is kept by the server
        return (sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.box.pids_named("openmps-server"))
                - WORKER_DESCRIPTORS * len(self.box.pids_named("openmps-worker")))

    @staticmethod
    def blame(kind, pid, culprits, suspects):
        """right, first (of the suspects), suspected, wrong or no. One that has gone is not among the suspects that are
        listed."""
        if culprits == {pid}:
            return "right"
        if culprits or (suspects and pid not in suspects and kind != GONE):
            return "wrong"
        if suspects and suspects[0] == pid:
            return "first"
        return "suspected" if suspects else "no"

    def event(self, number, kind):
        for one in self.bystanders.values():
            one.ask()  # from here on
        time.sleep(self.options.between)
        begin = time.monotonic()
        pid, told = commit(self.box, kind)
        spent = time.monotonic() - begin
        if kind == GONE:
            time.sleep(KNOWN_S)
        if self.options.side == "openmps":
            await_active(self.box, SETTLE_LIMIT_S)
        code, out, err = self.box.run(["drv_client_worker", str(number + 2)], NEWCOMER_LIMIT_S)
        if code != 0:
            self.problem(f"event {number}, {kind}: a newcomer: exit code {code}\n{out}{err}")
        time.sleep(self.options.between)
        answers = {name: one.ask() for name, one in self.bystanders.items()}
        text = self.logs.new()
        found = {"number": number, "kind": kind, "pid": pid, "culprit_told": told, "ms": spent * 1e3,
                 "named": self.blame(kind, pid, named(text), suspected(text)), "answers": answers, "log": text}
        self.events.append(found)
        for answer in answers.values():
            answer["outcome"] = outcome(answer, 2 if kind in (DOUBLE, DEATHS) else 1)
        line = [f"{name} {answer['outcome']}" for name, answer in answers.items()
                if name == mode_of(name) or answer["outcome"] != "unharmed"]
        print(f"{number:4d} {kind:10s} {told or 'killed':32s} named: {found['named']}; " + ", ".join(line), flush=True)
        for name, answer in answers.items():
            if answer["outcome"] in ("WRONG", "told often") or answer.get("ended"):
                self.problem(f"event {number}, {kind}: {name}: {json.dumps(answer)}")
            if answer["lost"]:
                self.bystanders.pop(name).end()

    def run(self):
        if self.with_daemon:
            self.box.start_daemon()
            for child in [self.box.start(["drv_client_worker", "1"]) for _ in range(2)]:
                finish(child, "the first client")
        self.logs = Logs(self.box)
        kinds = []
        descriptors = None
        try:
            for number in range(self.options.events):
                if not kinds:
                    kinds = self.random.sample(self.options.kinds, len(self.options.kinds))
                self.fill()
                self.event(number, kinds.pop())
                if number == 0:
                    self.fill()
                    descriptors = self.server_descriptors()
            self.fill()
            after = self.server_descriptors()
            for one in self.bystanders.values():
                one.end()
            if self.options.side == "openmps" and self.events:
                self.look_for_leaks(descriptors, after)
            if self.with_daemon:
                self.box.quit()
            left = self.box.leftovers()
            if left and self.options.side != "mps":
                self.problem("\n".join(left))
        except (Failure, OSError, ValueError, subprocess.SubprocessError) as failure:
            self.problem(f"the campaign has ended after {len(self.events)} events: {failure}\n{self.box.logs()}")
        finally:
            self.box.close()

    def look_for_leaks(self, before, after):
        """Descriptors with the same bystanders after the first event and the last; memory of nobody."""
        if after > before + KEPT_IMAGES:
            self.problem(f"the server has {after} descriptors with the same clients, {before} before")
        def idle():
            return len(self.box.pids_named("openmps-worker")) <= 2  # one that serves, and a spare one

        if not wait_until(idle, SETTLE_LIMIT_S):
            self.problem(f"workers {self.box.pids_named('openmps-worker')} are left")
        if self.options.driver != "softgpu":
            return
        # A client's device memory is gone with it.
        if not wait_until(lambda: self.box.device_state()[1] <= IDLE_BYTES, SETTLE_LIMIT_S):
            self.problem(f"{self.box.device_state()[1]} bytes of device memory are used without clients")

    # --- the tables

    def by_kind(self):
        rows = [["event", "tries", *OUTCOMES[:3], "named", "first", "suspected", "wrong one", "culprit's ms",
                 "pause p50", "p99", "wrong words"]]
        for kind in [*self.options.kinds, None]:
            events = [event for event in self.events if kind in (None, event["kind"])]
            if not events:
                continue
            answers = [answer for event in events for answer in event["answers"].values()]
            counts = Counter(answer["outcome"] for answer in answers)
            pauses = [answer["longest_ms"] for answer in answers
                      if not answer["lost"] and answer["mode"] != "idle"]
            faults = [event for event in events if event["kind"] in (*FAULTS, GONE)]
            blamed = Counter(event["named"] for event in faults)
            rows.append([kind or "all", str(len(events)), str(counts["unharmed"]),
                         str(counts["told"] + counts["told often"]), str(counts["lost"]),
                         f"{blamed['right']}" if faults else "-", f"{blamed['first']}" if faults else "-",
                         f"{blamed['suspected']}" if faults else "-",
                         f"{blamed['wrong']}" if faults else "-",
                         f"{statistics.median(event['ms'] for event in events):.0f}",
                         *(f"{percentile(pauses, part):.1f}" if pauses else "-" for part in (0.5, 0.99)),
                         str(sum(answer["wrong"] for answer in answers))])
        return rows

    def by_bystander(self):
        rows = [["bystander", *OUTCOMES, "codes", "pause p50", "p99"]]
        for mode in dict.fromkeys(map(mode_of, self.options.bystanders)):
            answers = [answer for event in self.events for answer in event["answers"].values()
                       if answer["mode"] == mode]
            counts = Counter(answer["outcome"] for answer in answers)
            codes = Counter(error["code"] for answer in answers for error in answer["errors"])
            pauses = [answer["longest_ms"] for answer in answers if not answer["lost"]]
            rows.append([mode, *(str(counts[one]) for one in OUTCOMES),
                         " ".join(f"{code} x{count}" for code, count in sorted(codes.items())) or "-",
                         *(f"{percentile(pauses, part):.1f}" if pauses else "-" for part in (0.5, 0.99))])
        return rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--events", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--driver", choices=("softgpu", "nvidia"), default=None)
    parser.add_argument("--side", choices=SIDES, default="openmps")
    parser.add_argument("--bystanders", default=",".join(MODES), help="of " + ", ".join(MODES) + "; idle*56: of that kind, 56")
    parser.add_argument("--kinds", default=",".join((*FAULTS, KILL, GONE)), help="of " + ", ".join(KINDS))
    parser.add_argument("--between", type=float, default=0.3,
                        help="seconds of work before and after each event; from 2 on a spare worker is ready")
    parser.add_argument("--replay", choices=("copies", "always", "never"), default="copies",
                        help="what of the bystanders' work may be given again (OPENMPS_REPLAY)")
    parser.add_argument("--quarantine", choices=("on", "off"), default="off",
                        help="whether a culprit that comes again runs apart (OPENMPS_QUARANTINE); off: each fault meets all")
    parser.add_argument("--latency", default=H200_LATENCY, help="softgpu's SOFTGPU_FAULT_LATENCY_US")
    parser.add_argument("--json", default=None, help="file for every answer (default: build/bench/faults.json)")
    options = parser.parse_args()
    for name, known, counts in (("bystanders", MODES, r"(\*[1-9]\d{0,3})?"), ("kinds", KINDS, "")):
        chosen = [word for word in getattr(options, name).split(",") if word]
        unknown = {word for word in chosen if not re.fullmatch(f"({'|'.join(known)}){counts}", word)}
        if unknown or not chosen:
            parser.error(f"--{name}: {', '.join(sorted(unknown)) or 'none'}; there are {', '.join(known)}")
        setattr(options, name, chosen)
    options.bystanders = bystander_names(options.bystanders)
    options.driver = options.driver or best_driver()
    if options.side != "openmps" and {WORKER, DEATHS, RENEW} & set(options.kinds):
        parser.error(f"--kinds {WORKER}, {DEATHS}, {RENEW}: OpenMPS only")
    if options.side == "mps" and options.driver != "nvidia":
        parser.error("--side mps needs a GPU")
    return options


def main():
    options = parse()
    # Whoever ends it early gets what has been seen.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    campaign = Campaign(options)
    try:
        campaign.run()
    except KeyboardInterrupt:
        campaign.problem(f"the campaign was interrupted after {len(campaign.events)} events")
    print()
    show(campaign.by_kind())
    print()
    show(campaign.by_bystander())
    path = Path(options.json) if options.json else Path(options.build) / "bench" / "faults.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"options": vars(options), "events": campaign.events,
                                "problems": campaign.problems}, indent=1))
    for text in campaign.problems:
        print("PROBLEM: " + text.splitlines()[0])
    return 1 if campaign.problems or len(campaign.events) < options.events else 0


if __name__ == "__main__":
    sys.exit(main())
