#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chart of packaging/kubernetes with helm: it is well-formed, starts the programs with options that they have, gives
them the node's paths that these name, and asks for no more rights than it says. No cluster.

  kubernetes_chart_test.py --build BUILD

Run by ctest; ends with 77, skipped, where something is missing. `./dev test --ecosystem` fetches helm into BUILD/helm."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from debian_python import SKIPPED, use_debians_python

use_debians_python("yaml")

import yaml  # noqa: E402

SOURCE = Path(__file__).resolve().parents[2]
CHART = SOURCE / "packaging" / "kubernetes" / "openmps"
EXAMPLES = SOURCE / "packaging" / "kubernetes" / "examples"
LIMIT_S = 60
IMAGE = "image.repository=example.org/openmps"
# Every value that has two kinds.
VARIANTS = ((), ("mode=dra",), ("driver=softgpu", "runtimeClassName=", "multiUser=false", "devicePlugin.borrowSms=true"),
            ("mode=dra", "dra.deviceClass=", "kubeletDirectory=/data/kubelet", "pipeDirectory=/run/other"))


def expect(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def run(*words):
    return subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=LIMIT_S)


def rendered(helm, *values):
    done = run(helm, "template", "test", CHART, *(word for value in (IMAGE, *values) for word in ("--set", value)))
    expect(done.returncode == 0, f"helm template {values}\n{done.stdout}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def check_pod(pod, is_dra):
    """It has the host's PIDs and paths; none of its containers is privileged, and only the daemon has a right to add."""
    expect(pod["hostPID"] is True and not any(pod.get(key) for key in ("hostNetwork", "hostIPC")), "host namespaces")
    expect(pod["automountServiceAccountToken"] == is_dra, "a token that nobody uses, or none")
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    named = {volume["name"] for volume in pod["volumes"]}
    for container in pod["initContainers"] + pod["containers"]:
        context = container["securityContext"]
        expect(not context.get("privileged"), f"{container['name']} is privileged")
        if container["name"] == "daemon":
            expect(context == {"capabilities": {"add": ["SYS_ADMIN"]}}, f"the daemon's rights: {context}")
        else:
            expect(context["capabilities"] == {"drop": ["ALL"]} and context["allowPrivilegeEscalation"] is False
                   and context["readOnlyRootFilesystem"] is True, f"{container['name']}: {context}")
        expect({mount["name"] for mount in container["volumeMounts"]} <= named, f"{container['name']} mounts what is not there")
    kubernetes = next(one for one in pod["containers"] if one["name"] == "kubernetes")
    mounted = {mount["mountPath"] for mount in kubernetes["volumeMounts"] if hosts[mount["name"]] == mount["mountPath"]}
    for word in kubernetes["command"]:
        option, _, value = word.partition("=")
        if value.startswith("/"):
            expect(any(Path(value).is_relative_to(path) for path in mounted), f"{word} is no path of the node: {mounted}")
    library = next(word for word in kubernetes["command"] if word.startswith("--library=")).partition("=")[2]
    expect(Path(library).parent == Path(hosts["library"]), f"{library} is not where the library is put")
    return kubernetes["command"]


def check_options(build, command):
    """Of the program, the verb and each option."""
    program = build / "bin" / command[0]
    if not program.exists():
        print(f"{command[0]} is not built: its options are not compared")
        return
    done = run(program, command[1], "--help")
    known = set(re.findall(r"--[a-z-]+", done.stdout))
    used = {word.partition("=")[0] for word in command[2:]}
    expect(done.returncode == 0 and used <= known, f"{command[:2]} has no {used - known}")


def check_role(documents):
    """What src/kubernetes/dra.cc asks the API server for, and nothing else."""
    allowed = {(resource, verb) for role in of_kind(documents, "ClusterRole") for rule in role["rules"]
               for resource in rule["resources"] for verb in rule["verbs"]}
    expect(allowed == {("resourceslices", "get"), ("resourceslices", "create"), ("resourceslices", "update"),
                       ("resourceclaims", "get"), ("nodes", "get")}, f"the role: {allowed}")


def check_examples(resource, device_class):
    """They ask for what the chart offers."""
    asked = set()
    for path in sorted(EXAMPLES.glob("*.yaml")):
        text = path.read_text()
        documents = list(yaml.safe_load_all(text))
        expect(of_kind(documents, "Pod"), f"{path.name} has no pod")
        asked |= {resource} & set(re.findall(r"[\w.]+/[\w.]+", text))
        asked |= set(re.findall(r"deviceClassName: ([\w.]+)", text))
    expect(asked == {resource, device_class}, f"examples ask for {asked}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", required=True, type=Path)
    args = parser.parse_args()
    fetched = args.build / "helm" / "helm"
    helm = fetched if fetched.exists() else shutil.which("helm")
    if helm is None:
        print(f"skipped: there is no helm, neither installed nor {fetched}, where tests/ecosystem/fetch_helm.sh puts it")
        return SKIPPED
    done = run(helm, "lint", "--strict", CHART, "--set", IMAGE)
    expect(done.returncode == 0, f"helm lint\n{done.stdout}")
    for values in VARIANTS:
        documents = rendered(helm, *values)
        is_dra = "mode=dra" in values
        daemon_set, = of_kind(documents, "DaemonSet")
        command = check_pod(daemon_set["spec"]["template"]["spec"], is_dra)
        check_options(args.build, command)
        expect(len(of_kind(documents, "DeviceClass")) == (is_dra and "dra.deviceClass=" not in values), "device classes")
        expect(bool(of_kind(documents, "ClusterRole")) == is_dra, "a role that nobody needs, or none")
        if is_dra:
            check_role(documents)
        config, = of_kind(documents, "ConfigMap")
        expect("schema_version" in config["data"]["openmps.toml"], f"{config}")
    check_examples("openmps.org/gpu.shared", "gpu.openmps.org")
    for values, words in (((), "image.repository: name your image"), ((IMAGE, "mode=x"), "expected device-plugin or dra"),
                          ((IMAGE, "driver=x"), "expected nvidia or softgpu")):
        done = run(helm, "template", "test", CHART, *(word for value in values for word in ("--set", value)))
        expect(done.returncode != 0 and words in done.stdout, f"{values}: {done.stdout}")
    print("the chart is as the programs want it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
