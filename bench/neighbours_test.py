#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/neighbours.py: goals, table cells, and clients that do not start. Run
by ctest; needs no GPU. Python standard library only."""

import sys
import types
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import engine  # noqa: E402
import limits  # noqa: E402
from neighbours import ROOT, Clients, NotWithin, Results, runs  # noqa: E402
from sandbox import Failure, Sandbox  # noqa: E402

SIDES = ["native", "mps", "openmps"]


def results(case, metric, values, failures=None, driver="nvidia"):
    made = Results(engine.BENCH, driver, SIDES)
    made.samples[case] = {side: {metric: found} for side, found in values.items()}
    made.failures[case] = failures or {}
    return made


def judged(key, **values):
    case, metric = key.split(".")
    return results(case, metric, {side: [value] for side, value in values.items()}).row(key)[-1]


class Goals(unittest.TestCase):
    def test_a_bound_by_itself(self):
        self.assertEqual(judged("alone.first_ms", openmps=11), "yes")
        self.assertEqual(judged("alone.first_ms", openmps=11.1), "NO")
        self.assertEqual(judged("launches.one", openmps=650), "yes")
        self.assertEqual(judged("launches.one", openmps=649), "NO")

    def test_a_bound_that_refers_to_a_rival(self):
        self.assertEqual(judged("nbody_small.ms", mps=1500, openmps=1500), "yes")
        self.assertEqual(judged("nbody_small.ms", mps=1500, native=9000, openmps=1501), "NO")
        self.assertEqual(judged("training.lenet_one", mps=500, openmps=549), "NO")
        self.assertEqual(judged("training.lenet_one", mps=500, openmps=551), "yes")

    def test_nothing_to_compare_with(self):
        self.assertEqual(judged("nbody_small.ms", native=9000, openmps=1500), "-")
        self.assertEqual(judged("alone.p50", openmps=0.1), "-")
        soft = results("alone", "first_ms", {"openmps": [50]}, driver="softgpu")
        self.assertEqual(soft.row("alone.first_ms")[-2:], ["-", "-"])

    def test_the_median_of_the_rounds_counts(self):
        self.assertEqual(results("alone", "first_ms", {"openmps": [9, 50, 10]})
                         .row("alone.first_ms")[-3:], ["10", "<= 11", "yes"])

    def test_who_gives_no_answer_misses_the_goal(self):
        late = f"round 1: {NotWithin(20)}"
        made = results("many", "wall_s", {}, {"native": late, "openmps": "round 1: exit code 1"})
        self.assertEqual(made.row("many.wall_s")[2:], ["> 20 s", "-", "failed", "<= 2.2", "NO"])

    def test_what_no_goal_speaks_of_runs_last_on_the_bare_gpu(self):
        order = runs(engine.BENCH, ["alone", "torch_start", "idle"], SIDES)
        self.assertEqual(order, [("alone", "mps"), ("alone", "openmps"), ("torch_start", "native"),
                                 ("torch_start", "mps"), ("torch_start", "openmps"), ("idle", "openmps"),
                                 ("alone", "native")])

    def test_each_metric_is_of_a_case(self):
        for bench in (engine.BENCH, limits.BENCH):
            self.assertEqual({key.split(".")[0] for key in bench.metrics}, set(bench.cases))

    def test_titles_name_the_sizes(self):
        for bench in (engine.BENCH, limits.BENCH):
            for title, *_ in bench.metrics.values():
                self.assertNotIn("{", title.format(**bench.sizes["nvidia"]))


class ChangedLimits(unittest.TestCase):
    def since(self, *history):
        """A limit of 20 SMs that was set at time 100."""
        return limits.in_force(types.SimpleNamespace(history=list(history)), 100, 20)

    def test_a_round_that_had_begun_is_the_old_limits(self):
        self.assertIsNone(self.since((90, 20), (100, 20)))
        self.assertEqual(self.since((100, 50), (101, 20)), (None, 101))

    def test_rounds_with_more_or_with_what_was_before_are_late(self):
        self.assertIsNone(self.since((101, 21), (102, 10)))
        self.assertEqual(self.since((101, 21), (104, 10), (107, 11), (109, 21)), (104, 107))


class Programs(unittest.TestCase):
    def setUp(self):
        self.box = Sandbox(ROOT, "native")
        self.addCleanup(self.box.close)

    def clients(self, script, count):
        return Clients(self.box, ["/bin/sh", "-c", script], count)

    def test_clients_are_there_until_released(self):
        with self.clients("echo ready; cat; echo end", 3) as crowd:
            crowd.wait_ready()
            crowd.release()
            self.assertEqual(crowd.lines(3, 30), ["end"] * 3)
            crowd.finish()

    def test_one_that_fails_at_its_end_is_noticed(self):
        with self.clients("echo ready; cat; exit 3", 1) as crowd:
            crowd.wait_ready()
            with self.assertRaisesRegex(Failure, r"exit codes \[3\]"):
                crowd.finish()

    def test_one_that_fails_before_it_is_ready_is_not_waited_for(self):
        with self.clients("mkdir one 2>/dev/null && exit 4; cat", 2) as crowd:  # the other copy runs on
            with self.assertRaisesRegex(Failure, r"exit codes \[4\]"):
                crowd.wait_ready()

    def test_one_that_says_nothing_is_given_up(self):
        with self.clients("cat", 1) as crowd, self.assertRaises(NotWithin):
            crowd.lines(1, 0.1)

    def test_a_copy_differs_in_machine_code_and_ptx(self):
        program = self.box.tmp / "program"
        number = engine.UNIQUE
        program.write_bytes(b"code" + number.to_bytes(4, "little") + b"add 0f%08X;" % number)
        path, other = engine.never_seen(self.box, str(program), "copy")
        self.assertEqual(Path(path).read_bytes(),
                         b"code" + other.to_bytes(4, "little") + b"add 0f%08X;" % other)
        self.assertNotEqual(other, number)
        with self.assertRaises(Failure):  # the second call finds nothing
            engine.never_seen(self.box, path, "copy-of-copy")


if __name__ == "__main__":
    unittest.main()
