# SPDX-License-Identifier: Apache-2.0
"""The test framework of the Python programs of tests/gpu. Tests announce themselves before they run, so
that the runner knows which test crashed or did not end. Runs on the program's main thread. Python
standard library only, since not every program is a PyTorch program.

One JSON object per line on standard output (whatever the tests print goes to standard error):
  {"plan": [NAMES]}                                      first
  {"test": NAME, "status": "running"}                    before each test
  {"test": NAME, "status": "ok"|"failed"|"skipped", "value": ..., "detail": ..., "seconds": ...}
A test fails by raising an exception. Its return value, if any, is expected to be the same number
natively and behind OpenMPS, to the last digit.
"""

import argparse
import json
import os
import sys
import time
import traceback

# Exit code after an error that makes all later calls fail (a lost device). The runner starts the
# remaining tests in a new process.
DEVICE_LOST = 70
DETAIL_LINES = 12  # of a failure's text: enough for an assert_close message and the line that raised

_tests = {}


class Skip(Exception):
    """This machine cannot run the test; the text says why."""


def test(function):
    """Registers a function under its own name."""
    return add(function.__name__, function)


def add(name, function, *arguments):
    """Registers function(*arguments) under a name of its own."""
    if name in _tests:
        raise ValueError(f"two tests are called {name}")
    _tests[name] = (function, arguments)
    return function


def cases(prefix, table):
    """Decorator: registers function(*row) for each row of {name: row}."""
    def register(function):
        for name, row in table.items():
            add(f"{prefix}_{name}", function, *(row if isinstance(row, tuple) else (row,)))
        return function
    return register


def device():
    """`cuda`, or `cpu` when the tests themselves are tested on a machine without a GPU."""
    return os.environ.get("OPENMPS_TEST_DEVICE", "cuda")


def need_cuda():
    if device() != "cuda":
        raise Skip("only on a GPU")


def run(still_alive=None):
    """Runs the registered tests and ends the process. still_alive() raises if the device is lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--after", help="begin after this test")
    parser.add_argument("--only", help="comma-separated names")
    args = parser.parse_args()
    names = list(_tests)
    if args.after:
        names = names[names.index(args.after) + 1:]
    if args.only:
        names = [name for name in names if name in args.only.split(",")]

    # Libraries may write to descriptor 1, too, so the results get a descriptor of their own.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**fields):
        results.write(json.dumps(fields) + "\n")
        results.flush()

    say(plan=names)
    failed = 0
    for name in names:
        function, arguments = _tests[name]
        say(test=name, status="running")
        begin = time.monotonic()
        outcome = {"status": "ok"}
        try:
            value = function(*arguments)
            if value is not None:
                outcome["value"] = value
        except Skip as reason:
            outcome = {"status": "skipped", "detail": str(reason)}
        except Exception:  # noqa: BLE001  any exception is a failure of the test
            lines = traceback.format_exc().splitlines()
            outcome = {"status": "failed", "detail": "\n".join(lines[-DETAIL_LINES:])}
            failed += 1
        say(test=name, seconds=round(time.monotonic() - begin, 3), **outcome)
        if outcome["status"] == "failed" and still_alive:
            try:
                still_alive()
            except Exception as lost:  # noqa: BLE001
                print(f"the device is lost: {lost}", file=sys.stderr, flush=True)
                os._exit(DEVICE_LOST)  # a normal exit could hang in destructors that call the lost device
    sys.exit(1 if failed else 0)
