#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openmps-kubernetes with a real daemon on two simulated GPUs. A kubelet and an API server that speak the published APIs
stand in for real ones (fake_kubelet.py, fake_dra.py); podman with runc runs containers with what was answered.

  kubernetes_test.py [--only NAME] --build BUILD

Run by ctest; ends with 77, skipped, where something is missing."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from debian_python import SKIPPED, use_debians_python  # noqa: E402

use_debians_python("grpc", "google.protobuf")

import device_plugin_cases  # noqa: E402
import dra_cases  # noqa: E402
from sandbox import Failure  # noqa: E402
from scenario_tools import Skipped  # noqa: E402

SUITES = {"device-plugin": device_plugin_cases.run, "dra": dra_cases.run}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--only", choices=SUITES)
    args = parser.parse_args()
    try:
        for name, suite in SUITES.items():
            if args.only in (None, name):
                suite(args.build)
    except Skipped as why:
        print(f"skipped: {why}")
        return SKIPPED
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
