#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""softgpu-scan: what it says of PTX, of a container inside a file, and of files that have no code.
usage: scan_test.py PATH_OF_SCAN PATH_OF_PTXAS. Python standard library only."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
GOOD = HEAD + ".visible .entry good() { ret; }\n"
FAULTS = HEAD + ".visible .entry good() { ret; }\n.visible .entry faults() { nonsense.u32; ret; }\n"
TOO_MUCH = HEAD + (".visible .entry large() { .shared .b8 s[300000]; .reg .b32 %r1;\n"
                   "mov.u32 %r1, s; st.shared.u32 [%r1], %r1; ret; }\n")
NEWER = GOOD.replace("sm_80", "sm_121")
BROKEN = HEAD + ".visible .entry broken() {"


class ScanTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, content):
        path = Path(self.folder.name) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def scan(self, *words):
        done = subprocess.run([SCAN, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def row(self, out, name):
        """modules, kernels, functions that fault, kernels and modules that are refused"""
        return [int(word) for line in out.splitlines() if line.startswith(name) for word in line.split()[1:]]

    def test_what_runs(self):
        code, out, _ = self.scan(self.file("good.ptx", GOOD))
        self.assertEqual((code, self.row(out, "good.ptx")), (0, [1, 1, 0, 0, 0]))

    def test_an_instruction_that_is_not_known(self):
        code, out, _ = self.scan("--verbose", self.file("faults.ptx", FAULTS))
        self.assertEqual((code, self.row(out, "faults.ptx")), (1, [1, 2, 1, 0, 0]))
        self.assertIn("nonsense.u32", out)
        self.assertRegex(out, r"(?m)^ +faults$")

    def test_what_is_refused(self):
        code, out, _ = self.scan(self.file("large.ptx", TOO_MUCH), self.file("broken.ptx", BROKEN))
        self.assertEqual((code, self.row(out, "large.ptx")), (1, [1, 1, 0, 1, 0]))
        self.assertEqual(self.row(out, "broken.ptx"), [1, 0, 0, 0, 1])

    def test_the_capability(self):
        path = self.file("newer.ptx", NEWER)
        self.assertEqual(self.row(self.scan(path)[1], "newer.ptx"), [1, 1, 0, 0, 0])
        self.assertEqual(self.row(self.scan("--capability", "9.0", path)[1], "newer.ptx"), [1, 0, 0, 0, 1])
        self.assertEqual(self.scan("--capability", "none", path)[0], 2)

    def test_containers_inside_a_file(self):
        made = Path(self.folder.name) / "made"
        subprocess.run([PTXAS, "-arch=sm_90", self.file("good.ptx", GOOD), "-o", made], check=True)
        inside = b"something" + made.read_bytes() + b"between" * 3 + made.read_bytes()
        code, out, _ = self.scan(self.file("program", inside))
        self.assertEqual((code, self.row(out, "program")), (0, [2, 2, 0, 0, 0]))

    def test_files_without_code(self):
        code, out, _ = self.scan(self.file("empty", b""), self.file("noise", b"\x50\xed\x55\xba" * 50))
        self.assertEqual(code, 0)
        self.assertEqual(self.row(out, "empty") + self.row(out, "noise"), [0] * 10)
        code, _, err = self.scan("/nowhere")
        self.assertEqual(code, 2)
        self.assertIn("/nowhere", err)
        self.assertEqual(self.scan()[0], 2)
        self.assertEqual(self.scan("--help")[0], 0)


if __name__ == "__main__":
    SCAN, PTXAS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
