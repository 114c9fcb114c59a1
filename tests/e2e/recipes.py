# SPDX-License-Identifier: Apache-2.0
"""Scripts that administrators, batch systems' prologs and container plugins use for NVIDIA's MPS, unchanged:
with lib/openmps/compat/bin in PATH they start, query and stop OpenMPS's daemon. Called by scenarios.py."""

import os
import signal
import subprocess
from pathlib import Path

from sandbox import Failure, wait_until

LIMIT_S = 120

# This nvidia-smi only accepts the call; the mode of the simulated GPU comes from SOFTGPU_COMPUTE_MODE.
NVIDIA_SMI = '#!/bin/sh\necho "$@" >> "$0.calls"\n'

NODE = """
set -euo pipefail
nvidia-smi -i 0 -c EXCLUSIVE_PROCESS
taskset -c {cpu} nvidia-cuda-mps-control -d
echo "set_default_active_thread_percentage 50" | nvidia-cuda-mps-control
[ "$(echo get_default_active_thread_percentage | nvidia-cuda-mps-control)" = 50.0 ]
"""
NODE_END = """
set -euo pipefail
for server in $(echo get_server_list | nvidia-cuda-mps-control); do
  for client in $(echo get_client_list $server | nvidia-cuda-mps-control); do
    echo terminate_client $server $client | nvidia-cuda-mps-control
  done
done
echo quit | nvidia-cuda-mps-control
nvidia-smi -i 0 -c DEFAULT
"""
# One daemon for each GPU, with directories of its own.
PROLOG = """
set -euo pipefail
for gpu in 0 1; do
  export CUDA_VISIBLE_DEVICES=$gpu
  export CUDA_MPS_PIPE_DIRECTORY=$BASE/pipe_$gpu CUDA_MPS_LOG_DIRECTORY=$BASE/log_$gpu
  nvidia-cuda-mps-control -d
  echo "start_server -uid $(id -u)" | nvidia-cuda-mps-control
done
"""
EPILOG = """
for gpu in 0 1; do
  export CUDA_MPS_PIPE_DIRECTORY=$BASE/pipe_$gpu
  echo quit -t 10 | nvidia-cuda-mps-control || exit 1
done
"""
# Checks by which scripts find out whether MPS is installed, and for which version of CUDA.
LOOK = """
set -eu
nvidia-cuda-mps-control --help | grep -q "^Usage: nvidia-cuda-mps-control "
nvidia-cuda-mps-control -v
nvidia-cuda-mps-server -v
echo get_server_list | nvidia-cuda-mps-control || echo $?
"""
# How a plugin calls from a program: no newline after a command, health by the exit status.
PLUGIN = """
set -eu
printf 'set_default_device_pinned_mem_limit 0 1024M' | nvidia-cuda-mps-control
printf 'set_default_active_thread_percentage 25' | nvidia-cuda-mps-control
printf 'get_default_active_thread_percentage' | nvidia-cuda-mps-control
"""


def require(condition, text):
    if not condition:
        raise Failure(text)


# How a program that runs a daemon of its own checks that the daemon runs.
OWNED = """
set -eu
nvidia-cuda-mps-control -d
pid=$(cat $CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid)
[ "$(basename "$(tr '\\0' '\\n' < /proc/$pid/cmdline | head -1)")" = nvidia-cuda-mps-control ]
kill -0 $pid
echo quit | nvidia-cuda-mps-control
[ ! -e $CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid ]
"""


def environment(box):
    """The environment of a script: NVIDIA's names, and an nvidia-smi."""
    tools = box.root / "tools"
    tools.mkdir(exist_ok=True)
    smi = tools / "nvidia-smi"
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
    env = box.service_env()
    # OpenMPS's programs contain the sanitizer's run time; a shell may not run with it preloaded.
    env.pop("LD_PRELOAD", None)
    env["PATH"] = f"{box.build}/lib/openmps/compat/bin:{tools}:{env['PATH']}"
    env["BASE"] = str(box.pipe)
    return env


def script(box, text):
    """Runs a script and returns its output. A daemon that it starts must not keep it from ending."""
    with open(box.root / "script.txt", "w+", encoding="utf-8") as output:
        done = subprocess.run(["bash", "-c", text], env=environment(box), cwd=box.tmp, stdout=output,
                              stderr=output, stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
        output.seek(0)
        said = output.read()
    require(done.returncode == 0, f"exit code {done.returncode} from\n{text}\n{said}")
    return said


def called(box, name):
    """PIDs of the sandbox's processes with that name."""
    def first_word(pid):
        try:
            return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            return ""
    return [pid for pid in box.processes() if os.path.basename(first_word(pid)) == name]


def affinities(pid):
    """The sets of processors that the threads of a process may use."""
    found = set()
    for task in Path("/proc", str(pid), "task").iterdir():
        status = (task / "status").read_text()
        found.add(next(line.split()[1] for line in status.splitlines()
                       if line.startswith("Cpus_allowed_list:")))
    return found


def program(box, command, env=None):
    code, out, err = box.run(command, LIMIT_S, env)
    require(code == 0, f"{command}: exit code {code}\n{out}{err}")
    return out


def node(box, _):
    """A node whose GPU is in exclusive process mode, and whose daemon is bound to one processor: programs share
    the GPU, after a fault too; a program that does not use the daemon is refused."""
    box.env["SOFTGPU_COMPUTE_MODE"] = "EXCLUSIVE_PROCESS"
    cpu = min(os.sched_getaffinity(0))
    script(box, NODE.format(cpu=cpu))
    held = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE)
    require(held.stdout.readline() == "ready\n", "the first program is not served")
    program(box, ["drv_client_worker", "2", "3"])
    names = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "openmps-worker")
    # Between fork and exec a process has its parent's name.
    alone = lambda: all(len(called(box, name)) == 1 for name in names)
    require(wait_until(alone, LIMIT_S), f"{[called(box, name) for name in names]}")
    _, servers, workers = (called(box, name) for name in names)
    for pid in servers + workers:
        require(affinities(pid) == {str(cpu)}, f"process {pid} runs on {affinities(pid)}, not on {cpu}")
    natively = {"LD_LIBRARY_PATH": str(box.build / "lib" / "softgpu")}
    code, out, _ = box.run(["drv_client_worker", "3", "1"], LIMIT_S, natively)
    require(code == 1 and "CUDA_ERROR_DEVICE_UNAVAILABLE" in out, f"past the daemon: {code}\n{out}")

    program(box, ["drv_trouble", "fault"])
    program(box, ["drv_client_worker", "4", "3"])  # the next worker has the device
    held.kill()
    left = box.start(["drv_client_worker", "5", "3", "hold"], stdin=subprocess.PIPE)
    require(left.stdout.readline() == "ready\n", "no program is served after a fault")
    require("0\n" in script(box, NODE_END), "the program that was still running was not terminated")
    left.kill()
    calls = (box.root / "tools" / "nvidia-smi.calls").read_text()
    require(calls == "-i 0 -c EXCLUSIVE_PROCESS\n-i 0 -c DEFAULT\n", calls)
    require(wait_until(lambda: not called(box, "openmps-worker"), LIMIT_S), "the worker does not end")
    program(box, ["drv_client_worker", "6", "1"], natively)


def daemon_per_gpu(box, _):
    """Two daemons, each with a GPU and directories of its own: a program sees its daemon's GPU as number 0."""
    box.env["SOFTGPU_DEVICES"] = "2"
    natively = {"LD_LIBRARY_PATH": str(box.build / "lib" / "softgpu")}
    wanted = [program(box, ["drv_limited", "device"], {**natively, "CUDA_VISIBLE_DEVICES": str(gpu)})
              for gpu in range(2)]
    require(wanted[0] != wanted[1], f"both devices are {wanted[0]!r}")
    script(box, PROLOG)
    for gpu in range(2):
        own = {"CUDA_MPS_PIPE_DIRECTORY": str(box.pipe / f"pipe_{gpu}")}
        for visible in ({}, {"CUDA_VISIBLE_DEVICES": "0"}):
            got = program(box, ["drv_limited", "device"], {**own, **visible})
            require(got == wanted[gpu], f"behind daemon {gpu}: {got!r}, not {wanted[gpu]!r}")
        program(box, ["drv_client_worker", str(gpu), "3"], own)
    servers = called(box, "nvidia-cuda-mps-server")
    require(len(servers) == 2, f"servers {servers}")
    script(box, EPILOG)
    require(wait_until(lambda: not box.processes(), LIMIT_S), f"processes {box.processes()} are left")
    for gpu in range(2):
        require(not list((box.pipe / f"pipe_{gpu}").iterdir()), f"pipe_{gpu} is not empty")


def plugin(box, _):
    """A plugin that runs the daemon in the foreground, as its child."""
    lines = script(box, LOOK).splitlines()
    require([line.split(". ")[-1] for line in lines[:2]] == 2 * ["Binary version: 13000"], f"{lines}")
    require(lines[2:] == ["Cannot find MPS control daemon process", "1"], f"{lines}")
    daemon = subprocess.Popen(["nvidia-cuda-mps-control", "-f"], env=environment(box), cwd=box.tmp,
                              stdin=subprocess.DEVNULL)
    try:
        health = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control >/dev/null"
        require(wait_until(lambda: subprocess.run(["bash", "-c", health], env=environment(box), check=False)
                           .returncode == 0, LIMIT_S), "the daemon never became healthy")
        require(script(box, PLUGIN) == "25.0\n25.0\n", "the plugin's settings")
        code, out, err = box.run(["drv_limited", "device"], LIMIT_S)
        require(code == 0, f"a container's program: {code}\n{out}{err}")
        limited = box.start(["drv_limited"], stdin=subprocess.PIPE)
        said = limited.stdout.readline()
        require(said.startswith("sms 2 mem (") and said.endswith(f", {1 << 30})\n"), said)
        limited.communicate("go\n", LIMIT_S)
        script(box, "printf quit | nvidia-cuda-mps-control")
        require(daemon.wait(LIMIT_S) == 0, f"the daemon ended with {daemon.returncode}")
    finally:
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()


def owned(box, _):
    """A program that finds its daemon by the pid file."""
    script(box, OWNED)


def recipes(box, clients):
    """Runs each script by itself, and checks that it leaves nothing behind."""
    for part in (node, daemon_per_gpu, plugin, owned):
        part(box, clients)
        require(wait_until(lambda: not box.processes(), LIMIT_S), f"{part.__name__}: {box.processes()} are left")
        box.env.pop("SOFTGPU_COMPUTE_MODE", None)
        box.env.pop("SOFTGPU_DEVICES", None)
