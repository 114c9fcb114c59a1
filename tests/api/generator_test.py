# SPDX-License-Identifier: Apache-2.0
"""Tests of api/generate.py: golden output of a small description, errors of malformed ones.

After a change of the generator that is meant, look at what changed and take it over:
    api/generate.py --output OUT --coverage tests/api/golden/expected/api-coverage.md \\
        --tested tests/api/golden/tested tests/api/golden/mini.toml && cp OUT/api/* tests/api/golden/expected/
"""
import os
import subprocess
import sys
import tempfile
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
name = "cuGood"
since = 2000
class = "service"
doc = "Good."
params = ["in int n", "handle CUstream s"]
'''


def described(params, cls="service"):
    """A symbol in lines 1 to 8, its parameter in line 7."""
    return (f'[cuTest]\nname = "cuTest"\nsince = 2000\nclass = "{cls}"\ndoc = "Test."\n'
            f'params = [\n  {params}\n]\n')


# name of the case: (description, "line: message")
MALFORMED = {
    "syntax": ("[cuGood]\nname = = 1\n", "2: Invalid value"),
    "unterminated": ('[cuGood]\nname = "x', "2: Unterminated string"),
    "outside_of_tables": ("x = 1\n", "1: 'x' is outside of any [symbol] table"),
    "symbol_name": ("[notCuda]\nname = 'x'\n",
                    "1: notCuda: a symbol starts with 'cu' and a capital letter"),
    "unknown_key": (GOOD + "colour = 1\n", "7: cuGood: unknown key 'colour'"),
    "wrong_type": (GOOD.replace("2000", '"2000"'), "3: cuGood: 'since' must be of type int"),
    "bool_is_no_int": (GOOD.replace("2000", "true"), "3: cuGood: 'since' must be of type int"),
    "missing_name": (GOOD.replace('name = "cuGood"\n', ""), "1: cuGood: 'name' is missing"),
    "missing_params": ("\n".join(GOOD.splitlines()[:-1]) + "\n",
                       "1: cuGood: 'params' is missing"),
    "no_version": (GOOD.replace("2000", "12"), "3: cuGood: 12 is no CUDA version (major * 1000 + "
                                               "minor * 10, from 2000)"),
    "unknown_class": (GOOD.replace("service", "magic"),
                      "4: cuGood: class 'magic' is none of local, service, stub"),
    "stub_without_reason": (GOOD.replace("service", "stub"), "1: cuGood: a stub needs a reason"),
    "no_doc": (GOOD.replace('doc = "Good."\n', ""),
               "1: cuGood: 'doc' is missing: one line of prose"),
    "reason_without_stub": (GOOD + 'reason = "why"\n',
                            "1: cuGood: 'reason' and 'result' are for stubs only"),
    "pending_stub": (GOOD.replace("service", "stub").replace('doc = "Good."', 'reason = "Bad."')
                     + "pending = true\n", "7: cuGood: only hand-written functions can be pending"),
    "param_form": (described('"int n",'), "7: cuTest: parameter 'int n' is not "
                   "'<direction>[?] <C type> <name>[ [length]]'"),
    "param_is_a_number": (described("1"), "6: cuTest: parameter '1' is not "
                          "'<direction>[?] <C type> <name>[ [length]]'"),
    "direction": (described('"sideways int n",'), "7: cuTest: direction 'sideways' is none of in, "
                  "out, inout, handle, new, release, string, buffer, address, opaque"),
    "name_twice": (described('"in int n", "in long n",'),
                   "7: cuTest: parameter 'in long n': the name is used twice"),
    "out_by_value": (described('"out int n",'),
                     "7: cuTest: parameter 'out int n': 'out' needs a pointer"),
    "no_handle": (described('"handle int n",'),
                  "7: cuTest: parameter 'handle int n': 'int' is no handle type"),
    "new_by_value": (described('"new CUstream s",'),
                     "7: cuTest: parameter 'new CUstream s': 'new' needs a pointer"),
    "no_string": (described('"string char* s",'),
                  "7: cuTest: parameter 'string char* s': a string is a 'const char*'"),
    "buffer_without_length": (described('"buffer char* s",'), "7: cuTest: parameter "
                              "'buffer char* s': a buffer is a 'char*' with a length"),
    "length_of_a_value": (described('"in int n [3]",'),
                          "7: cuTest: parameter 'in int n [3]': only a pointer has a length"),
    "length_form": (described('"in const int* p [n + 1]",'), "7: cuTest: length 'n + 1' is none "
                    "of: number, parameter, parameter - number, parameter * number"),
    "length_unknown": (described('"in const int* p [n]",'), "7: cuTest: parameter "
                       "'in const int* p [n]': length 'n' is no 'in' number of this function"),
    "length_is_a_pointer": (described('"in const int* p [n]", "in const int* n",'),
                            "7: cuTest: parameter 'in const int* p [n]': length 'n' is no 'in' "
                            "number of this function"),
    "variant_of_nothing": ('[cuA]\nname = "cuA"\nsince = 2000\nvariant_of = "cuB"\n'
                           'stream = "per_thread"\n',
                           "4: cuA: variant_of 'cuB' is not described"),
    "variant_without_stream": (GOOD + '[cuA]\nname = "cuA"\nsince = 2000\nvariant_of = "cuGood"\n',
                               '7: cuA: a variant needs stream = "per_thread"'),
    "variant_with_class": (GOOD + '[cuA]\nname = "cuA"\nsince = 2000\nalias_of = "cuGood"\n'
                           'class = "service"\n',
                           "11: cuA: unknown key 'class' for a variant or alias"),
    "alias_of_alias": (GOOD + '[cuA]\nname = "cuA"\nsince = 2000\nalias_of = "cuGood"\n'
                       '[cuB]\nname = "cuB"\nsince = 2000\nalias_of = "cuA"\n',
                       "14: cuB: alias_of 'cuA' is derived itself"),
    "variant_and_alias": (GOOD + '[cuA]\nname = "cuA"\nsince = 2000\nvariant_of = "cuGood"\n'
                          'alias_of = "cuGood"\n',
                          "11: cuA: a symbol is a variant or an alias, not both"),
    "stream_field": (GOOD + '[cuA]\nname = "cuGood"\nsince = 2000\nvariant_of = "cuGood"\n'
                     'stream = "per_thread"\nstream_field = "x.y"\n',
                     "12: cuA: stream_field 'x.y' is no parameter.member"),
    "same_name_and_version": (GOOD + GOOD.replace("[cuGood]", "[cuOther]"),
                              "7: cuOther: name 'cuGood' since 2000 is already cuGood"),
}


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
