# SPDX-License-Identifier: Apache-2.0
"""Tests of api/generate.py: golden output of a small description, errors of malformed ones.

After a change of the generator that is meant, look at what changed and take it over:
    api/generate.py --output OUT --coverage tests/api/golden/expected/api-coverage.md \\
        --tested tests/api/golden/tested tests/api/golden/mini.toml && cp OUT/api/* tests/api/golden/expected/
    api/generate.py --output OUT tests/api/golden/calls.toml &&
        cp OUT/api/{client_calls.cc,client_handlers.h,softgpu_calls.cc} tests/api/golden/calls/
"""
import glob
import os
import subprocess
import sys
import tempfile
import tomllib
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
GENERATOR = os.path.join(HERE, "..", "..", "api", "generate.py")
GOLDEN = os.path.join(HERE, "golden")


def run(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-B", GENERATOR, *arguments], cwd=cwd, text=True,
                          capture_output=True, check=False)


class GoldenTest(unittest.TestCase):
    """golden/expected holds every file that golden/mini.toml generates, byte for byte."""

    def test_output_is_the_expected(self):
        expected_folder = os.path.join(GOLDEN, "expected")
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "api-coverage.md")
            result = run("--output", folder, "--coverage", page,
                         "--tested", os.path.join(GOLDEN, "tested"), os.path.join(GOLDEN, "mini.toml"))
            self.assertEqual(result.stderr, "")
            self.assertEqual(result.returncode, 0)
            made = {name: os.path.join(folder, "api", name)
                    for name in os.listdir(os.path.join(folder, "api"))}
            made["api-coverage.md"] = page
            self.assertEqual(sorted(made), sorted(os.listdir(expected_folder)))
            for name, path in made.items():
                with open(path, encoding="utf-8") as file, \
                        open(os.path.join(expected_folder, name), encoding="utf-8") as expected:
                    self.assertEqual(file.read(), expected.read(), name)

    def test_calls_are_the_expected(self):
        """golden/calls holds what golden/calls.toml makes of `enter`, `get` and `returns`."""
        with tempfile.TemporaryDirectory() as folder:
            result = run("--output", folder, os.path.join(GOLDEN, "calls.toml"))
            self.assertEqual(result.stderr, "")
            for name in ("client_calls.cc", "client_handlers.h", "softgpu_calls.cc"):
                with open(os.path.join(folder, "api", name), encoding="utf-8") as file, \
                        open(os.path.join(GOLDEN, "calls", name), encoding="utf-8") as expected:
                    self.assertEqual(file.read(), expected.read(), name)

    def test_unchanged_files_keep_their_time_stamp(self):
        with tempfile.TemporaryDirectory() as folder:
            mini = os.path.join(GOLDEN, "mini.toml")
            run("--output", folder, mini)
            path = os.path.join(folder, "api", "prototypes.h")
            os.utime(path, (1, 1))
            run("--output", folder, mini)
            self.assertEqual(os.stat(path).st_mtime, 1)

    def test_stale_coverage_page_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            mini = os.path.join(GOLDEN, "mini.toml")
            run("--coverage", page, mini)
            self.assertEqual(run("--check-coverage", page, mini).returncode, 0)
            with open(page, "a", encoding="utf-8") as file:
                file.write("one line more\n")
            result = run("--check-coverage", page, mini)
            self.assertEqual(result.returncode, 1)
            self.assertIn("is not up to date", result.stderr)


    def test_tested_names_are_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "gpu.txt"), "w", encoding="utf-8") as file:
                file.write("cuInit\ncuNobody\n")
            result = run("--tested", folder, os.path.join(GOLDEN, "mini.toml"))
            self.assertEqual(result.returncode, 1)
            self.assertIn("gpu.txt:2: no symbol: 'cuNobody'", result.stderr)


GOOD = '''[cuGood]
since = 2000
doc = "Good."
params = ["in int n", "handle CUstream s"]
'''


def described(params):
    """A symbol in lines 1 to 6, its parameter in line 5."""
    return f'[cuTest]\nsince = 2000\ndoc = "Test."\nparams = [\n  {params}\n]\n'


# name of the case: (description, "line: message")
MALFORMED = {
    "syntax": ("[cuGood]\nsince = = 1\n", "2: Invalid value"),
    "unterminated": ('[cuGood]\ndoc = "x', "2: Unterminated string"),
    "outside_of_tables": ("x = 1\n", "1: 'x' is outside of any [symbol] table"),
    "symbol_name": ("[notCuda]\nsince = 2000\n",
                    "1: notCuda: a symbol starts with 'cu' and a capital letter"),
    "unknown_key": (GOOD + "colour = 1\n", "5: cuGood: unknown key 'colour'"),
    "wrong_type": (GOOD.replace("2000", '"2000"'), "2: cuGood: 'since' must be of type int"),
    "bool_is_no_int": (GOOD.replace("2000", "true"), "2: cuGood: 'since' must be of type int"),
    "missing_since": (GOOD.replace("since = 2000\n", ""), "1: cuGood: 'since' is missing"),
    "missing_params": ("\n".join(GOOD.splitlines()[:-1]) + "\n",
                       "1: cuGood: 'params' is missing"),
    "no_version": (GOOD.replace("2000", "12"), "2: cuGood: 12 is no CUDA version (major * 1000 + "
                                               "minor * 10, from 2000)"),
    "no_doc": (GOOD.replace('doc = "Good."\n', ""), "1: cuGood: 'doc' says what it does, or "
               "'reason' why it is a stub: one line of prose"),
    "doc_and_reason": (GOOD + 'reason = "why"\n', "1: cuGood: 'doc' says what it does, or "
                       "'reason' why it is a stub: one line of prose"),
    "result_without_stub": (GOOD + 'result = "CUDA_SUCCESS"\n',
                            "5: cuGood: 'result' is for stubs only"),
    "local_stub": (GOOD.replace("doc", "reason") + "local = true\n",
                   "5: cuGood: 'local' is for no stub"),
    "param_form": (described('"int n",'), "5: cuTest: parameter 'int n' is not "
                   "'<direction>[?] <C type> <name>[ [length]]'"),
    "param_is_a_number": (described("1"), "4: cuTest: parameter '1' is not "
                          "'<direction>[?] <C type> <name>[ [length]]'"),
    "direction": (described('"sideways int n",'), "5: cuTest: direction 'sideways' is none of in, "
                  "out, inout, handle, new, release, string, buffer, address, opaque, device"),
    "name_twice": (described('"in int n", "in long n",'),
                   "5: cuTest: parameter 'in long n': the name is used twice"),
    "out_by_value": (described('"out int n",'),
                     "5: cuTest: parameter 'out int n': 'out' needs a pointer"),
    "no_handle": (described('"handle int n",'),
                  "5: cuTest: parameter 'handle int n': 'int' is no handle type"),
    "new_by_value": (described('"new CUstream s",'),
                     "5: cuTest: parameter 'new CUstream s': 'new' needs a pointer"),
    "no_string": (described('"string char* s",'),
                  "5: cuTest: parameter 'string char* s': a string is a 'const char*'"),
    "buffer_without_length": (described('"buffer char* s",'), "5: cuTest: parameter "
                              "'buffer char* s': a buffer is a 'char*' with a length"),
    "length_of_a_value": (described('"in int n [3]",'),
                          "5: cuTest: parameter 'in int n [3]': only a pointer has a length"),
    "length_form": (described('"in const int* p [n + 1]",'), "5: cuTest: length 'n + 1' is none "
                    "of: number, parameter, parameter - number, parameter * number"),
    "length_unknown": (described('"in const int* p [n]",'), "5: cuTest: parameter "
                       "'in const int* p [n]': length 'n' is no 'in' number of this function"),
    "length_is_a_pointer": (described('"in const int* p [n]", "in const int* n",'),
                            "5: cuTest: parameter 'in const int* p [n]': length 'n' is no 'in' "
                            "number of this function"),
    "also_of_another_name": (GOOD + "also = {cuBad_ptsz = 7000}\n",
                             "5: cuGood: 'cuBad_ptsz' is no symbol of 'cuGood'"),
    "also_without_version": (GOOD + "also = {cuGood_ptsz = true}\n", "5: cuGood: True is no CUDA "
                             "version (major * 1000 + minor * 10, from 2000)"),
    "also_without_base": (GOOD + "also = {cuGood_v2_ptsz = 7000}\n", "5: cuGood: 'cuGood_v2_ptsz' "
                          "is a variant of 'cuGood_v2', which is not here"),
    "stream_field": (GOOD + 'stream_field = "x.y"\n',
                     "5: cuGood: stream_field 'x.y' is no parameter.member"),
    "no_device": (described('"device int n",'),
                  "5: cuTest: parameter 'device int n': a device is a 'CUdevice'"),
    "enter": (GOOD + 'enter = "door"\n', "5: cuGood: enter 'door' is none of local, session, "
              "unsafe session, unsafe, context, unsafe context, stream"),
    "enter_without_stream": (GOOD.replace("handle", "opaque") + 'enter = "stream"\n',
                             "5: cuGood: enter 'stream' needs one 'handle CUstream'"),
    "enter_of_a_stub": (GOOD.replace("doc", "reason") + 'enter = "session"\n',
                        "5: cuGood: 'enter' is for no stub"),
    "first": (GOOD + 'enter = "stream"\nfirst = ["n"]\n', "6: cuGood: 'first' is of s"),
    "first_without_enter": (GOOD + 'first = ["s"]\n', "5: cuGood: 'first' needs 'enter'"),
    "refuse": (GOOD + 'enter = "stream"\nrefuse = "always"\n', "6: cuGood: refuse 'always' is none "
               "of: capturing; unsafe; capturing, unsafe; capturing, at last"),
    "refuse_of_neither": (GOOD + 'enter = "session"\nrefuse = "capturing, unsafe"\n',
                          "6: cuGood: 'capturing' is what enter 'stream' or 'context' finds"),
    "refuse_behind_nothing": (GOOD + 'enter = "stream"\nrefuse = "capturing, at last"\n'
                              'returns = "CUDA_SUCCESS"\n',
                              "6: cuGood: 'at last' is behind a handler"),
    "refuse_without_enter": (GOOD + 'refuse = "unsafe"\n', "5: cuGood: 'refuse' needs 'enter'"),
    "get_without_enter": (GOOD.replace("in int n", "out int* n") + 'get = "1"\n',
                          "5: cuGood: 'get' needs 'enter'"),
    "get_of_nothing": (GOOD + 'enter = "local"\nget = "1"\n', "6: cuGood: 'get' is not for nothing"),
    "get_of_another": (GOOD.replace("in int n", "out int* n") + 'enter = "local"\nget.m = "1"\n',
                       "6: cuGood: 'get' is not for n"),
    "get_and_returns": (GOOD.replace("in int n", "out int* n")
                        + 'enter = "local"\nget = "1"\nreturns = "CUDA_SUCCESS"\n',
                        "7: cuGood: what has 'get' returns CUDA_SUCCESS"),
    "returns_unknown": (GOOD + 'returns = "cuBad(n)"\n', "5: cuGood: 'cuBad' is not described"),
    "same_name_and_version": (GOOD + GOOD.replace("[cuGood]", "[cuGood_v2]"),
                              "5: cuGood_v2: name 'cuGood' since 2000 is already cuGood"),
}


class LayoutTest(unittest.TestCase):
    """Parameters stand in one line if that has at most 120 columns, otherwise one in a line."""

    def test_params(self):
        for path in glob.glob(os.path.join(os.path.dirname(GENERATOR), "*.toml")):
            with open(path, "rb") as file:
                tables = tomllib.load(file)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for symbol, table in tables.items():
                quoted = [f'"{param}"' for param in table["params"]]
                line = f"params = [{', '.join(quoted)}]\n"
                if len(line) > 121:
                    line = "params = [\n" + "".join(f"  {param},\n" for param in quoted) + "]\n"
                self.assertIn(line, text, f"{path}: {symbol}")


class MalformedTest(unittest.TestCase):
    """Each malformed description ends with file:line: message, status 1 and no output."""

    def check(self, files, expected):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            output = os.path.join(folder, "out")
            result = run("--output", output, *files, cwd=folder)
            self.assertEqual(result.stderr, expected + "\n")
            self.assertEqual(result.returncode, 1)
            self.assertFalse(os.path.exists(output))

    def test_described_twice(self):
        self.check({"a.toml": GOOD, "b.toml": "\n" + GOOD},
                   "b.toml:2: cuGood is described twice, first at a.toml:1")
        self.check({"a.toml": GOOD, "b.toml": "[cuGood_v2]\nalso = {cuGood = 4000}\n"
                    + GOOD.partition("\n")[2].replace("2000", "5000")},
                   "b.toml:2: cuGood is described twice, first at a.toml:1")

    def test_the_good_one_is_good(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "good.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(GOOD)
            self.assertEqual(run(path).returncode, 0)

    def test_missing_file(self):
        result = run("/nonexistent.toml")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent.toml", result.stderr)


def add_case(name, text, expected):
    def test(self):
        self.check({"t.toml": text}, f"t.toml:{expected}")

    setattr(MalformedTest, f"test_{name}", test)


for case, (case_text, case_expected) in MALFORMED.items():
    add_case(case, case_text, case_expected)


if __name__ == "__main__":
    unittest.main()
