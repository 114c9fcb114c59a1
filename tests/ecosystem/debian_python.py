# SPDX-License-Identifier: Apache-2.0
"""Modules that are Debian packages belong to Debian's own interpreter, which need not be the one that runs the tests."""

import importlib
import os
import sys

DEBIAN_PYTHON = "/usr/bin/python3"
SKIPPED = 77


def use_debians_python(*modules):
    """Goes on in Debian's interpreter if this one has not these modules; ends the test, skipped, if that has not either."""
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as missing:
        if os.path.realpath(sys.executable) != os.path.realpath(DEBIAN_PYTHON) and os.path.exists(DEBIAN_PYTHON):
            os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, "-B", *sys.argv])
        print(f"skipped: {missing}; Debian has these modules in packages called python3-...")
        sys.exit(SKIPPED)
