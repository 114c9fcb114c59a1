#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/experiments.py and its page: what is chosen, cases that fail or take too long, the progress, and
the figures in docs/experiments*.md; with --build also some experiments on softgpu. Run by ctest; needs no GPU.
Python standard library only."""

import argparse
import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import experiments  # noqa: E402
import experiments_page as page  # noqa: E402
from neighbours import ROOT  # noqa: E402
from sandbox import Failure  # noqa: E402

DOCS = ROOT / "docs"
RUN_LIMIT_S = 200  # of what takes some 15 s
BUILD = None       # by --build


def made(driver="nvidia", **changes):
    """Results of a run in which n-body worked on two sides."""
    sides = ["native", "mps", "openmps"]
    result = {"driver": driver, "machine": {"device": "NVIDIA H200", "version": "580.159", "cores": 16},
              "sides": sides, "experiments": ["nbody"], "sizes": {side: experiments.SIZES[driver] for side in sides},
              "left_out": {}, "failures": {}, "seconds": 100,
              "samples": {"nbody": {side: {f"{metric}_{count}": [count * factor] for count in (1, 2, 4)
                                           for metric in ("wall_s", "gflops")}
                                    for side, factor in (("native", 2.0), ("openmps", 1.5))}}}
    return {**result, **changes}


class Choice(unittest.TestCase):
    def test_all_by_default_and_parts_by_name(self):
        self.assertEqual(list(experiments.chosen(None)), list(experiments.EXPERIMENTS))
        self.assertEqual(experiments.chosen("hyperq,stop_trap,nbody"),
                         {"nbody": ["nbody"], "stopping": ["stop_trap"], "hyperq": ["hyperq"]})

    def test_an_unknown_name_is_told_with_those_that_are(self):
        with self.assertRaisesRegex(SystemExit, "no experiment hyperk; there are nbody, .*stop_kill_9"):
            experiments.chosen("nbody,hyperk")

    def test_the_page_has_each_experiment_and_way(self):
        self.assertEqual(set(page.EXPERIMENTS), set(experiments.EXPERIMENTS))
        self.assertEqual(set(page.WAYS), set(experiments.WAYS))
        for experiment, cases in experiments.EXPERIMENTS.items():
            for case in cases:
                self.assertTrue(page.belongs(case, experiment), case)


class Cases(unittest.TestCase):
    """With cases of the test's own, on softgpu natively: no program is started."""

    def take(self, acts, seconds=60, budget=30):
        out = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, out)
        args = argparse.Namespace(only=None, build=ROOT, seconds=seconds, out=out)
        given = {name: {name: (act, budget)} for name, act in acts.items()}
        with mock.patch.multiple(experiments, EXPERIMENTS=given, BUDGETS=dict.fromkeys(acts, budget),
                                 BENCH=experiments.Bench("test", "", experiments.SIZES, {}, acts)), \
                mock.patch.object(sys, "stdout", io.StringIO()) as said:
            experiments.take_all(args, "softgpu", ["native"])
        return json.loads((out / "results.json").read_text()), said.getvalue()

    def test_one_that_fails_is_reported_and_the_others_go_on(self):
        def fails(_box, _sizes, found):
            found(before=1)
            raise Failure("for a reason")

        result, said = self.take({"first": fails, "second": lambda _box, _sizes, found: found(value=2)})
        self.assertIn("for a reason", result["failures"]["first"]["native"])
        self.assertEqual(result["samples"], {"first": {"native": {"before": [1]}}, "second": {"native": {"value": [2]}}})
        self.assertRegex(said, r"first, native, [\d.]+ s FAILED: before 1, for a reason")

    def test_one_that_takes_too_long_is_given_up_and_nothing_is_left(self):
        boxes = []

        def sleeps(box, _sizes, _found):
            boxes.append((box.root, box.start(["/bin/sleep", "1000"])))
            time.sleep(1000)

        result, _ = self.take({"first": sleeps}, budget=1)
        self.assertEqual(result["failures"]["first"]["native"], "round 1: > 1 s")
        (root, child), = boxes
        self.assertFalse(root.exists())
        self.assertIsNotNone(child.returncode)

    def test_what_has_no_time_is_left_out(self):
        result, said = self.take({"first": lambda *_: self.fail("it ran")}, seconds=experiments.LEAST_S - 1)
        self.assertEqual(result["left_out"], {"first": {"native": "no time was left of 9 s"}})
        self.assertEqual((result["samples"], result["failures"]), ({}, {}))
        self.assertIn("left out", said)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class TheProgress(unittest.TestCase):
    def shown(self, out):
        progress = experiments.Progress(2, time.monotonic(), out)
        progress.doing("nbody, native")
        progress.line("nbody, native: done")
        progress.doing("nbody, openmps")
        progress.end()
        return out.getvalue()

    def test_lines_alone_where_no_terminal_is(self):
        self.assertRegex(self.shown(io.StringIO()), r"^\[ +[\d.]+ s\] nbody, native: done\n$")

    def test_a_bar_on_a_terminal(self):
        shown = self.shown(Terminal())
        self.assertIn("[" + "." * 30 + "] 0/2", shown)
        self.assertIn("[" + "#" * 15 + "." * 15 + "] 1/2", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"))  # nothing of the bar stays


class ThePage(unittest.TestCase):
    def setUp(self):
        self.docs = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.docs)
        for name in page.PAGES.values():
            shutil.copy(DOCS / name, self.docs)

    def text(self, language):
        return (self.docs / page.PAGES[language]).read_text()

    def block(self, language, experiment):
        return next(match[0] for match in page.MARKED.finditer(self.text(language)) if match[2] == experiment)

    def test_both_pages_have_a_place_for_each_experiment(self):
        for language in page.PAGES:
            self.assertEqual([match[2] for match in page.MARKED.finditer(self.text(language))], list(page.EXPERIMENTS))

    def test_figures_sentences_and_plots(self):
        paths = page.update(made(), self.docs)
        self.assertIn("| 4 | 8.00 s, 8 GFLOP/s | – | 6.00 s, 6 GFLOP/s |", self.block("en", "nbody"))
        self.assertIn("NVIDIA H200, driver 580.159, 16 host cores: From the first start to the last end 4 programs take "
                      "8.00 s natively, 6.00 s behind OpenMPS.", self.block("en", "nbody"))
        self.assertIn("4 个程序从第一个启动到最后一个结束：原生驱动 8.00 s，OpenMPS 6.00 s。", self.block("zh", "nbody"))
        self.assertIn("![nbody](experiments/nbody.svg)", self.block("zh", "nbody"))
        self.assertEqual(paths[-1], self.docs / "experiments" / "nbody.svg")
        ElementTree.parse(paths[-1])

    def test_the_same_run_twice_and_a_run_of_something_else(self):
        page.update(made(), self.docs)
        once = self.text("en")
        page.update(made(), self.docs)
        self.assertEqual(self.text("en"), once)
        page.update(made(experiments=["hyperq"]), self.docs)  # without values
        self.assertIn("8.00 s natively", self.block("en", "nbody"))

    def test_failures_say_why(self):
        failures = {"nbody": {"mps": "round 1: nbody_bench: exit code 1\nmore", "openmps": "round 1: > 40 s"}}
        samples = {"nbody": {"native": made()["samples"]["nbody"]["native"]}}
        page.update(made(failures=failures, samples=samples), self.docs)
        self.assertIn("| 1 | 2.00 s, 2 GFLOP/s | failed | > 40 s |", self.block("en", "nbody"))
        self.assertIn("- nbody, NVIDIA's MPS: round 1: nbody_bench: exit code 1\n", self.block("en", "nbody"))
        self.assertNotIn("more", self.block("en", "nbody"))

    def test_the_table_of_stops(self):
        def counts(unharmed, told, lost, wrong, **more):
            return {key: [value] for key, value in dict(unharmed=unharmed, told=told, lost=lost, wrong=wrong, **more).items()}

        samples = {"stop_trap": {"native": counts(4, 0, 0, 0, newcomer_ms=10), "mps": counts(0, 0, 4, 0),
                                 "openmps": counts(2, 1, 0, 1, newcomer_ms=12)}}
        page.update(made(experiments=["stopping"], samples=samples), self.docs)
        self.assertIn("| `trap` | 4 unharmed | 4 dead, a new program is not served | "
                      "2 unharmed, 1 told an error, 1 WRONG RESULT |", self.block("en", "stopping"))
        self.assertIn("Unharmed over all ways: 4/4 natively, 0/4 under NVIDIA's MPS, 2/4 behind OpenMPS.",
                      self.block("en", "stopping"))

    def test_every_experiment_has_a_page_without_any_value(self):
        for driver in experiments.SIZES:
            for language in page.PAGES:
                for experiment in page.EXPERIMENTS:
                    empty = made(driver, experiments=[experiment], samples={})
                    self.assertIn("| – |" if experiment != "hyperq" else "|  |", page.block(experiment, empty, language, ""))
                    self.assertEqual(list(page.plots(experiment, empty)), [])

    def test_what_are_no_results_is_an_error(self):
        results = self.docs / "results.json"
        for text in (None, "not JSON", "{}"):
            if text is not None:
                results.write_text(text)
            done = subprocess.run([sys.executable, "-B", str(ROOT / "bench" / "experiments.py"), "--page", str(results)],
                                  capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"^{results}: no results of experiments: .*\n$")

    def test_a_page_without_a_place_is_an_error(self):
        (self.docs / page.PAGES["zh"]).write_text("nothing")
        before = self.text("en")
        with self.assertRaisesRegex(ValueError, "no place for nbody"):
            page.update(made(), self.docs)
        self.assertEqual(self.text("en"), before)


class OnSoftgpu(unittest.TestCase):
    def test_some_experiments(self):
        if BUILD is None:
            self.skipTest("without --build")
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run([sys.executable, "-B", str(ROOT / "bench" / "experiments.py"), "--build", str(BUILD),
                                   "--driver", "softgpu", "--only", "nbody,hyperq,stop_kill_9", "--out", out],
                                  capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads((Path(out) / "results.json").read_text())
            text = (Path(out) / "page.md").read_text()
            for name in ("nbody", "hyperq-streams", "hyperq-threads", "hyperq-processes", "stopping"):
                self.assertIn(f"({name}.svg)", text)
                ElementTree.parse(Path(out) / f"{name}.svg")
        samples = result["samples"]
        self.assertEqual(set(samples), {"nbody", "hyperq", "stop_kill_9"})
        for case, sides in samples.items():
            self.assertEqual(set(sides), {"native", "openmps"}, case)
        for side in ("native", "openmps"):
            ended = samples["stop_kill_9"][side]
            self.assertEqual([ended[one] for one in ("unharmed", "told", "lost", "wrong")], [[4], [0], [0], [0]], side)
        # A chain behind another one in the only queue begins with the other's last kernel.
        streams, kernels, _ = experiments.SIZES["softgpu"]["chains"]
        most = streams * kernels / (streams * (kernels - 1) + 1)
        self.assertLess(samples["hyperq"]["native"]["streams_1"][0], most * 1.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path)
    given, rest = parser.parse_known_args()
    BUILD = given.build
    unittest.main(argv=[sys.argv[0], *rest])
