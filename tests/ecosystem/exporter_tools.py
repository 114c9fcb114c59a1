# SPDX-License-Identifier: Apache-2.0
"""A running openmps-exporter of a sandbox, and requests to it. Used by monitoring_test.py and page_test.py."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "e2e")]
from sandbox import Failure, Sandbox, wait_until  # noqa: E402

SKIPPED = 77
SETTLE_LIMIT_S = 60  # bounds a hang: two busy cores
CLIENT_LIMIT_S = 120


class Missing(Exception):
    """An engine that this machine does not have."""


def need(build, *tools):
    for tool in tools:
        if shutil.which(tool) is None:
            raise Missing(tool)
    if not (build / "bin/openmps-exporter").exists():
        raise Missing("openmps-exporter: libcpp-httplib-dev or prometheus-cpp-dev was missing when this was built")


def require(condition, text):
    if not condition:
        raise Failure(text)


def eventually(condition, text):
    """Waits until the condition is true; `text` is called for the words of the failure."""
    value = wait_until(condition, SETTLE_LIMIT_S)
    require(value, text() if callable(text) else text)
    return value


class Exporter:
    def __init__(self, box, *arguments):
        self.child = box.start(["openmps-exporter", "--listen", "127.0.0.1:0", *arguments])
        line = self.child.stderr.readline()
        found = re.fullmatch(r"openmps-exporter: http://127\.0\.0\.1:(\d+)/metrics\n", line)
        require(found, f"openmps-exporter says {line!r}")
        self.port = int(found.group(1))
        self.address = f"127.0.0.1:{self.port}"

    def request(self, method, path, headers=None, body=None, unix=None):
        """(status, headers, body) of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SETTLE_LIMIT_S)
        if unix:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.connect(str(unix))
        try:
            connection.request(method, path, body, {"Host": self.address, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def metrics(self):
        status, headers, text = self.request("GET", "/metrics")
        require(status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), f"{status} {headers}")
        return text

    def value(self, series):
        """The value of the only series that begins with the text; None: there is none."""
        found = [line for line in self.metrics().splitlines() if line.startswith(series)]
        require(len(found) <= 1, f"{series} is there {len(found)} times")
        return float(found[0].split()[-1]) if found else None

    def act(self, wanted, headers=None, unix=None):
        status, _, text = self.request("POST", "/act", {"Content-Type": "application/json", **(headers or {})},
                                       json.dumps(wanted), unix)
        return status, json.loads(text)

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        _, err = self.child.communicate(timeout=SETTLE_LIMIT_S)
        require(self.child.returncode == 0, f"openmps-exporter ends with {self.child.returncode}: {err}")
        return err


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end(child):
    child.terminate()
    try:
        child.wait(timeout=SETTLE_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def run_test(test, arguments):
    """Runs test(box, ...) in a sandbox. The exit status."""
    build = Path(arguments.build).resolve()
    box = Sandbox(build, "openmps")
    try:
        try:
            test(box, build)
        except (Failure, subprocess.SubprocessError) as failure:
            raise Failure(f"{failure}\n{box.logs()}") from failure
        left = box.leftovers()
        require(not left, "\n".join(left))
    except Missing as missing:
        print(f"skipped: {missing} is missing")
        return SKIPPED
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    finally:
        box.close()
    print("passed")
    return 0



