#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the GPU suite's own machinery, without a GPU: programs that crash, hang and fail, copies
that disagree, and the verdict on two results. Run by ctest on its only thread."""

import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
import cases  # noqa: E402
import execution  # noqa: E402
import report  # noqa: E402
import run_gpu  # noqa: E402

PROGRAM = f"""
import os, sys, time
sys.path[:0] = [{str(HERE / "programs")!r}]
from harness import Skip, run, test

@test
def good():
    print("not a result")
    return 7

@test
def bad():
    raise ValueError("as expected")

@test
def crash():
    os.kill(os.getpid(), 9)

@test
def skip():
    raise Skip("no reason")

@test
def odd():
    return os.environ.get("ODD") and os.getpid()

@test
def hang():
    print("openmps[1]: cuFoo failed\\nopenmps: not supported: cuBar: pending", file=sys.stderr, flush=True)
    if "HANG" in os.environ:
        time.sleep(600)

@test
def last():
    return 8

run()
"""


class Programs(unittest.TestCase):
    def run_program(self, processes=1, limit_s=20, **env):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.py"
            path.write_text(PROGRAM)
            case = cases.Case("test", "program", (sys.executable, "-B", str(path)), env=env,
                              processes=processes, limit_s=limit_s)
            return execution.run_case(case, "native", folder)

    def test_a_crash_ends_only_its_test(self):
        outcome = self.run_program()
        status = {name: result["status"] for name, result in outcome["results"].items()}
        self.assertEqual(status, {"good": "ok", "bad": "failed", "crash": "crashed", "skip": "skipped",
                                  "odd": "ok", "hang": "ok", "last": "ok"})
        self.assertEqual(outcome["results"]["good"]["value"], 7)
        self.assertIn("ValueError: as expected", outcome["results"]["bad"]["detail"])
        self.assertEqual(outcome["results"]["crash"]["detail"], "signal 9")
        self.assertEqual(outcome["debug"], ["cuFoo failed", "not supported: cuBar: pending"])

    def test_a_hang_ends_only_its_test(self):
        results = self.run_program(HANG="1", limit_s=3)["results"]
        self.assertEqual(results["hang"]["status"], "timed out")
        self.assertEqual(results["good"]["status"], "ok")
        self.assertEqual(results["last"]["status"], "not run")  # the case's time is over

    def test_copies_must_agree(self):
        results = self.run_program(processes=2, ODD="1")["results"]
        self.assertEqual(results["odd"]["status"], "failed")
        self.assertIn("differ", results["odd"]["detail"])
        self.assertEqual(results["last"]["status"], "ok")

    def test_a_program_that_does_not_start(self):
        case = cases.Case("test", "none", (sys.executable, "-c", "raise SystemExit(3)"))
        results = execution.run_case(case, "native", "/nonexistent")["results"]
        self.assertEqual(results, {"(start)": {"status": "crashed", "detail": "exit code 3"}})


class Verdicts(unittest.TestCase):
    def test_judge(self):
        ok, failed = {"status": "ok"}, {"status": "failed", "detail": "AssertionError: no"}
        skipped = {"status": "skipped", "detail": "why"}
        for native, openmps, verdict in (
                (ok, ok, "ok"), (ok, failed, "FAILED"), (failed, failed, "native"),
                (failed, ok, "native"), (skipped, skipped, "skipped"), (ok, skipped, "FAILED"),
                ({"status": "ok", "value": "a"}, {"status": "ok", "value": "a"}, "ok"),
                ({"status": "ok", "value": "a"}, {"status": "ok", "value": "b"}, "FAILED"),
                (None, ok, "ok"), (ok, None, "ok"), (ok, {"status": "not run"}, "FAILED")):
            self.assertEqual(report.judge(native, openmps)[0], verdict, f"{native} {openmps}")

    def test_counts_and_page(self):
        def outcome(**results):
            return {"results": {n: {"status": s} for n, s in results.items()}, "seconds": 1}

        run = {"machine": "a GPU", "date": "2026-01-01", "cases": {
            "a": {"native": outcome(x="ok", y="ok"), "openmps": outcome(x="ok", y="crashed")},
            "b": {"native": {"results": {"(start)": {"status": "crashed"}}, "seconds": 1},
                  "openmps": outcome(x="crashed")},
            "c": {"skipped": "needs 2 GPUs, 1 here"}}}
        run["cases"]["a"]["openmps"]["debug"] = ["session 1 of server 2", "cuFoo is missing (2 x)", "usual"]
        run["cases"]["d"] = {"openmps": {**outcome(x="ok"), "debug": ["usual (9 x)"]}}
        words, failed = report.text(run)
        self.assertEqual(failed, 1)
        self.assertIn("a y: crashed", words)
        self.assertIn("what OpenMPS logged in a:\n  cuFoo is missing", words)
        self.assertIn("| a | 2 | 2 | 1 | 1 FAILED |", report.page(run))
        self.assertIn("| c | 0 | - | - | skipped |", report.page(run))

    def test_a_run_that_was_stopped(self):
        ran = {"results": {"x": {"status": "ok"}}, "seconds": 1}
        run = {"machine": "a GPU", "date": "2026-01-01", "modes": ["native", "openmps"],
               "cases": {"a": {"native": ran, "openmps": ran}, "b": {"native": ran}, "c": {}}}
        words, failed = report.text(run)
        self.assertEqual(failed, 0)
        self.assertIn("b (all): not run: openmps", words)
        self.assertIn("c (all): not run: native, openmps", words)
        self.assertIn("1 passed, 0 failed, 2 skipped", words)

    def test_lines_printed_after_a_case(self):
        outcome = {"seconds": 3.2, "results": {
            "a": {"status": "ok"}, "b": {"status": "skipped", "detail": "why"},
            "c": {"status": "failed", "detail": "line 3\nValueError: no\n"}}}
        self.assertEqual(run_gpu.told(outcome),
                         "1 of 2, 1 skipped in 3 s\n    c: failed: ValueError: no")


if __name__ == "__main__":
    unittest.main()
