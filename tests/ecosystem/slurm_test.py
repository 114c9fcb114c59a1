#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenMPS under Slurm: munged, slurmctld and two slurmd, with the prolog, task prolog and epilog of packaging/slurm. Each
node has a daemon, two simulated GPUs and a /dev/shm of its own, node1 with gres/mps and node2 with gres/shard. Two users'
arrays of shares, MPI ranks on both nodes, a cancelled job, a killed daemon, a node that is drained, one whose daemon has
ended: right results, the share and no more, and nothing left.

All of it runs in namespaces of Linux (PID, network, mount, IPC, UTS), so that no process, address, user or mount outlives
the test. Needs root. Ends with 77, skipped, where something for it is missing."""

import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "e2e")]
from sandbox import Failure, as_user, wait_until  # noqa: E402

SKIPPED = 77
START_LIMIT_S = 60
JOB_LIMIT_S = 120
LOG_LINES = 40
CREDENTIAL_S = 20  # how long a job may take to start, and has to wait when it is queued again
PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge", "mpirun": "openmpi-bin",
            "ip": "iproute2", "nsenter": "util-linux"}
USERS = {"anne": 54321, "bert": 54322}  # uids that no other user has
ADDRESS = "10.77.0.1"
NODES = {"node1": "gpu:2,mps:200", "node2": "gpu:2,shard:16"}
SMS, MEMORY_MIB = 8, 2048  # of each GPU
SHORT_NBODY = ("256", "1500")
LONG_NBODY = ("256", "12000")
ENDLESS_NBODY = ("256", "100000000")

SLURM_CONF = """
ClusterName=test
SlurmctldHost=head({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket,cred_expire={credential_s}
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/%n/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n/slurmd.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2
SlurmdParameters=config_overrides
KillWait=1
GresTypes=gpu,mps,shard
PrologFlags=Alloc
Prolog={scripts}/prolog.sh
Epilog={scripts}/epilog.sh
TaskProlog={scripts}/task-prolog.sh
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def require(holds, what):
    if not holds:
        raise Failure(what)


def run(words, limit_s=JOB_LIMIT_S, **kwargs):
    """The output of a command that has to succeed."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=limit_s, check=False, **kwargs)
    require(done.returncode == 0, f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class Node:
    """One node: a mount namespace with a /dev/shm of its own, a name, a slurmd and a daemon."""

    def __init__(self, cluster, name):
        self.cluster, self.name, self.place = cluster, name, cluster.root / name
        for folder in ("spool", "pipe", "log"):
            (self.place / folder).mkdir(parents=True)
        self.pipe = self.place / "pipe"
        prepare = f"hostname {name}; mount -t tmpfs tmpfs /dev/shm; chmod 1777 /dev/shm; echo ready; exec sleep infinity"
        self.holder = subprocess.Popen(["unshare", "--mount", "--uts", "sh", "-ec", prepare], stdout=subprocess.PIPE,
                                       text=True)
        require(self.holder.stdout.readline() == "ready\n", f"{name} can't be made")
        self.env = {**cluster.env, "OPENMPS_DRIVER": "softgpu", "SOFTGPU_DEVICES": "2", "SOFTGPU_SMS": str(SMS),
                    "SOFTGPU_MEMORY": f"{MEMORY_MIB}M", "OPENMPS_CACHE_DIRECTORY": "",
                    "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.place / "log")}
        self.start_daemon()

    def inside(self, *words):
        return ["nsenter", "--mount", "--uts", f"--target={self.holder.pid}", *words]

    def start_daemon(self):
        with open(self.place / "daemon.txt", "w", encoding="utf-8") as out:
            subprocess.run(self.inside("openmps-control", "-d"), env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                           stderr=out, timeout=START_LIMIT_S, check=True)

    def kill_daemon(self):
        """Returns when it has ended."""
        pid = int((self.pipe / "openmps-control.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        require(wait_until(lambda: not alive(pid), START_LIMIT_S), "the killed daemon still runs")

    def control(self, line):
        return run(self.inside("openmps-control", *line.split()), env=self.env)

    def jobs(self):
        """The namespaces of jobs, by the daemon and by their directories, which have to agree."""
        listed = {row.split(",")[0] for row in self.control("namespace list --format=csv,noheader").splitlines()}
        return {name for name in listed if name.startswith("job-")}

    def servers(self):
        listed = {row.split(",")[0] for row in self.control("server list --format=csv,noheader").splitlines()}
        return {name for name in listed if name.startswith("slurm-")}

    def check_empty(self):
        """No share of a job is left, in the daemon or as a directory."""
        require(wait_until(lambda: not self.jobs() and not self.servers(), JOB_LIMIT_S),
                f"left on {self.name}: {self.jobs()} {self.servers()}")
        left = [path for path in self.pipe.rglob("*") if path.name.startswith(("job-", "slurm-"))]
        require(not left, f"left on {self.name}: {left}")


def alive(pid):
    try:
        return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Cluster:
    def __init__(self, root, build):
        self.root, self.services = root, []
        self.prefix = root / "usr"
        self.scripts = self.prefix / "share" / "openmps" / "slurm"
        for folder in ("munge", "state", "log", "out", "usr/bin", "usr/lib", "usr/share/openmps/slurm", "programs"):
            (root / folder).mkdir(parents=True)
        os.chmod(root, 0o755)
        os.chmod(root / "out", 0o1777)
        # As installed, in a place that every user can reach.
        for origin, place in ((build / "bin", self.prefix / "bin"), (build / "lib", self.prefix / "lib"),
                              (SOURCE / "packaging" / "slurm", self.scripts), (build / "tests/e2e", root / "programs")):
            run(["mount", "--bind", origin, place])
        self.make_machine()
        self.env = {"PATH": f"{self.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "SLURM_CONF": str(root / "slurm.conf"), "HOME": "/", "LC_ALL": "C"}
        self.configure()
        self.serve("munged", "--foreground", "--force", f"--key-file={root}/munge/key", f"--socket={root}/munge/socket",
                   f"--pid-file={root}/munge/pid", f"--log-file={root}/log/munged.log", f"--seed-file={root}/munge/seed")
        require(wait_until((root / "munge" / "socket").is_socket, START_LIMIT_S), "munged does not start")
        self.serve("slurmctld", "-D")
        self.nodes = [Node(self, name) for name in NODES]
        for node in self.nodes:
            self.serve(*node.inside("slurmd", "-D", "-N", node.name))
        self.wait_for_idle()

    def make_machine(self):
        """Names, users and a network, which this namespace alone has."""
        run(["hostname", "head"])
        for words in (("link", "set", "lo", "up"), ("link", "add", "slurm0", "type", "veth", "peer", "name", "slurm1"),
                      ("addr", "add", f"{ADDRESS}/24", "dev", "slurm0"), ("link", "set", "slurm0", "up"),
                      ("link", "set", "slurm1", "up")):
            run(["ip", *words])
        users = "".join(f"{name}:x:{uid}:{uid}::/tmp:/bin/sh\n" for name, uid in USERS.items())
        groups = "".join(f"{name}:x:{uid}:\n" for name, uid in USERS.items())
        for path, text in (("/etc/passwd", Path("/etc/passwd").read_text() + users),
                           ("/etc/group", Path("/etc/group").read_text() + groups),
                           ("/etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} head {' '.join(NODES)}\n")):
            copy = self.root / Path(path).name
            copy.write_text(text)
            run(["mount", "--bind", copy, path])

    def configure(self):
        key = self.root / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        conf = SLURM_CONF.format(root=self.root, scripts=self.scripts, address=ADDRESS, credential_s=CREDENTIAL_S)
        gres = "AutoDetect=off\n"
        # Slurm takes any character device for a GPU: null and zero.
        for index, minor in enumerate((3, 5)):
            os.mknod(self.root / f"gpu{index}", 0o020666, os.makedev(1, minor))
        for port, (name, resources) in enumerate(NODES.items(), 16821):
            conf += f"NodeName={name} NodeAddr={ADDRESS} Port={port} CPUs=8 Gres={resources}\n"
            gres += f"NodeName={name} Name=gpu File={self.root}/gpu[0-1]\n"
            shares, count = resources.split(",")[1].split(":")
            gres += f"NodeName={name} Name={shares} Count={count}\n"
        (self.root / "slurm.conf").write_text(conf)
        (self.root / "gres.conf").write_text(gres)
        self.configure_scripts(JOB_LIMIT_S)

    def configure_scripts(self, daemon_limit_s):
        (self.root / "openmps-slurm.conf").write_text(
            f"PATH={self.env['PATH']}\nCUDA_MPS_PIPE_DIRECTORY={self.root}/$SLURMD_NODENAME/pipe\n"
            f"accounting={self.root}/log/accounting-$SLURMD_NODENAME.csv\ndaemon_limit_s={daemon_limit_s}\n")

    def serve(self, *words):
        with open(self.root / "log" / f"{len(self.services)}.txt", "w", encoding="utf-8") as out:
            self.services.append(subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def program(self, name):
        return str(self.root / "programs" / name)

    def state_of(self, node):
        return run(["sinfo", "-h", "-n", node, "-o", "%T"], env=self.env).strip()

    def wait_for_idle(self):
        def idle():
            done = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=self.env, text=True, capture_output=True, check=False,
                                  timeout=START_LIMIT_S)
            return done.stdout.split() == ["idle"] * len(NODES)
        require(wait_until(idle, START_LIMIT_S), "the nodes are not idle: " + run(["sinfo", "-R", "-N", "-l"], env=self.env))

    # --- jobs ---------------------------------------------------------------------------------

    def srun(self, user, options, *command):
        return run(["srun", "--quiet", *options, *command], env=self.env, cwd="/tmp", **as_user(USERS[user]))

    def sbatch(self, user, options, script):
        """The number of a batch job of that user; its output is in output_of()."""
        done = subprocess.run(["sbatch", "--parsable", f"--output={self.root}/out/%A-%a.txt", *options], text=True,
                              input=f"#!/bin/sh\n{script}\n", env=self.env, cwd="/tmp", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=JOB_LIMIT_S, check=False, **as_user(USERS[user]))
        require(done.returncode == 0, f"sbatch {options}: {done.stdout}")
        return int(done.stdout)

    def queue(self, fmt="%i %T"):
        return run(["squeue", "-h", "-r", "-o", fmt], env=self.env).splitlines()

    def state(self, job):
        """The state of a job, or of the first one of an array."""
        shown = run(["scontrol", "-o", "show", "job", job], env=self.env)
        return re.search(r"JobState=(\S+)", shown)[1]

    def wait_for(self, job, *states):
        require(wait_until(lambda: self.state(job) in states, JOB_LIMIT_S),
                f"job {job} is {self.state(job)}, not {states}\n" + run(["scontrol", "show", "job", job], env=self.env))

    def wait_for_end(self):
        require(wait_until(lambda: not self.queue(), JOB_LIMIT_S), f"still there: {self.queue('%i %T %r %N')}")

    def outputs(self, job):
        return {path.stem: path.read_text() for path in sorted((self.root / "out").glob(f"{job}-*.txt"))}

    def logs(self):
        text = ""
        for path in [*sorted((self.root / "log").glob("*")), *sorted(self.root.glob("node?/log/*"))]:
            if path.is_file():
                text += f"--- end of {path.relative_to(self.root)}\n"
                text += "".join(f"{line}\n" for line in path.read_text(errors="replace").splitlines()[-LOG_LINES:])
        return text


# --- what is tested -------------------------------------------------------------------------------

def bits_of(text):
    """The n-body program's checksum: a hash of all positions."""
    found = re.findall(r"bits=(\w+)", text)
    require(len(found) == 1 and text.splitlines()[-1] == "PASSED", f"a wrong result:\n{text}")
    return found[0]


def reference(cluster):
    """The n-body program's checksums by its arguments, on a simulated GPU without OpenMPS."""
    env = {**cluster.env, "LD_LIBRARY_PATH": f"{cluster.prefix}/lib/softgpu", "SOFTGPU_DEVICE": "softgpu-slurm-reference"}
    return {size: bits_of(run([cluster.program("drv_nbody"), *size], env=env)) for size in (SHORT_NBODY, LONG_NBODY)}


def check_shares(cluster):
    """What a job sees is its share of its GPU, whatever it does to its environment."""
    def seen(user, options, wishes=("",)):
        """For each of these changes of the environment, the number of SMs and the MiB that a job's program is told."""
        script = "".join(f"env {wish} {cluster.program('drv_sm_share')}; echo go | env {wish} {cluster.program('drv_limited')}\n"
                         for wish in wishes)
        text = cluster.srun(user, options, "sh", "-c", script)
        found = list(zip(map(int, re.findall(r"# told (\d+) ", text)),
                         (int(size) >> 20 for size in re.findall(r"mem \(\d+, (\d+)\)", text))))
        require(len(found) == len(wishes) == text.count("PASSED"), f"{options} of {user}: {text}")
        return found

    for user, option, sms, mib in (("anne", "mps:25", SMS // 4, MEMORY_MIB), ("bert", "mps:50", SMS // 2, MEMORY_MIB),
                                   ("anne", "shard:2", SMS // 4, MEMORY_MIB // 4),
                                   ("bert", "shard:6", SMS * 6 // 8, MEMORY_MIB * 6 // 8), ("anne", "gpu:1", SMS, MEMORY_MIB)):
        told = seen(user, [f"--gres={option}"])
        require(told == [(sms, mib)], f"{option} of {user}: {told}, and not {sms} SMs and {mib} MiB")
    share = ["--gres=shard:2"]
    wishes = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G", "OPENMPS_GROUP=default",
              "OPENMPS_QOS=latency", "OPENMPS_WEIGHT=100", "-u CUDA_VISIBLE_DEVICES", "-u OPENMPS_REQUIRED")
    told = seen("anne", share, wishes)
    require(told == [(SMS // 4, MEMORY_MIB // 4)] * len(wishes), f"with {wishes}: {told}")
    # Another GPU of the node; the daemon's own directory; that of the server, which leads to no memory that is of use.
    nbody = cluster.program("drv_nbody")
    errors = ((f"CUDA_VISIBLE_DEVICES=1 {nbody}", "CUDA_ERROR_NO_DEVICE"),
              (f"CUDA_MPS_PIPE_DIRECTORY={cluster.nodes[1].pipe} {nbody}", "CUDA_ERROR_MPS_CONNECTION_FAILED"),
              (f"CUDA_MPS_PIPE_DIRECTORY=$(dirname $CUDA_MPS_PIPE_DIRECTORY) {nbody}", "CUDA_ERROR_OUT_OF_MEMORY"))
    for command, error in errors:
        text = cluster.srun("anne", share, "sh", "-c", f"{command} && echo was served; true")
        require(error in text and "was served" not in text, f"{command}: {text}")


# One program of a job takes most of the job's memory, and holds it while another one takes what it can get.
TWO_PROGRAMS = """
cd $(mktemp -d); mkfifo words
{program} < words > held & exec 3> words
echo take 400 >&3; until grep -q ok held; do sleep 0.05; done
(echo take 200; echo take 100) | {program}
exec 3>&-; wait; rm words held; rmdir $PWD
"""
def check_programs(cluster):
    """The programs of a job have its share together; others do not get at it; none of them outlives the job."""
    text = cluster.srun("anne", ["--gres=shard:2"], "sh", "-ec",
                        TWO_PROGRAMS.format(program=cluster.program("drv_group_memory")))
    require(text.splitlines() == ["ready", "out of memory", "ok"], f"beside 400 of 512 MiB:\n{text}")

    job = cluster.sbatch("anne", ["--gres=shard:2"], "echo $CUDA_MPS_PIPE_DIRECTORY; exec sleep infinity")
    shown = lambda: "".join(cluster.outputs(job).values()).strip()
    require(wait_until(shown, JOB_LIMIT_S), f"job {job} shows nothing")
    theirs = cluster.srun("bert", ["--gres=shard:2"], "sh", "-c",
                          f"CUDA_MPS_PIPE_DIRECTORY={shown()} {cluster.program('drv_nbody')} && echo was served; true")
    require("CUDA_ERROR_MPS_CONNECTION_FAILED" in theirs and "was served" not in theirs, f"another user's job: {theirs}")
    # A program of the user that Slurm does not know of, as of one who has logged in to the node.
    node = cluster.nodes[1]
    outside = subprocess.Popen(node.inside("setpriv", f"--reuid={USERS['anne']}", "--clear-groups", cluster.program("drv_nbody"),
                                           *ENDLESS_NBODY),
                               env={**cluster.env, "LD_LIBRARY_PATH": f"{cluster.prefix}/lib/openmps",
                                    "CUDA_MPS_PIPE_DIRECTORY": shown()}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    require(wait_until(lambda: f"job-{job}" in node.control("client list"), JOB_LIMIT_S), "a program is not in its user's job")
    run(["scancel", job], env=cluster.env)
    node.check_empty()
    require(outside.wait(JOB_LIMIT_S) != 0, "a program outlives the job whose share it had")


def check_devices(cluster):
    """Jobs and tasks have the GPUs that Slurm has given them."""
    who = f"echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES $({cluster.program('drv_limited')} device | cut -f2)"
    both = cluster.srun("anne", ["-w", "node1", "--gpus-per-node=2", "-n1"], "sh", "-c", who).split()
    require(both[1] == "0,1", f"a job with two GPUs has {both}")
    tasks = sorted(cluster.srun("bert", ["-w", "node1", "-n2", "--gpus-per-task=1", "--gpu-bind=single:1"], "sh", "-c",
                                who).splitlines())
    require([line.split()[1] for line in tasks] == ["0", "1"], f"tasks with a GPU each have {tasks}")
    require(len({line.split()[2] for line in tasks}) == 2, f"two tasks have one GPU: {tasks}")
    # Two jobs at once, and each counts its GPU from 0.
    first = cluster.sbatch("anne", ["-w", "node1", "--gpus-per-node=1"], f"{who}; exec sleep infinity")
    cluster.wait_for(first, "RUNNING")
    second = cluster.srun("anne", ["-w", "node1", "--gpus-per-node=1"], "sh", "-c", who).split()
    shown = lambda: next(iter(cluster.outputs(first).values()), "").split()
    require(wait_until(lambda: len(shown()) == 3, JOB_LIMIT_S), f"the first job shows {shown()}")
    require(shown()[1] == second[1] == "0" and shown()[2] != second[2], f"two jobs have {shown()} and {second}")
    run(["scancel", first], env=cluster.env)
    require("CUDA_MPS" not in cluster.srun("anne", ["-w", "node1"], "env"), "a job without GPUs has a share")


def check_arrays(cluster, expected):
    """Both users' arrays of shares on both nodes, more than fit at once. Meanwhile a job is cancelled while the daemon of
    its node, which was killed, is not there; all others end with right results."""
    node = cluster.nodes[0]
    doomed = cluster.sbatch("anne", ["--gres=mps:25"], f"exec {cluster.program('drv_nbody')} {' '.join(ENDLESS_NBODY)}")
    witness = cluster.sbatch("bert", ["--gres=mps:25"], f"exec {cluster.program('drv_nbody')} {' '.join(LONG_NBODY)}")
    script = f"exec {cluster.program('drv_nbody')} {' '.join(SHORT_NBODY)}"
    arrays = [cluster.sbatch(user, ["--array=1-4", f"--gres={share}"], script)
              for user in USERS for share in ("mps:25", "shard:2")]
    # A program that begins while there is no daemon would fail: no job may be on its way to its first call then.
    for job in (doomed, witness):
        cluster.wait_for(job, "RUNNING")
    run(["scontrol", "update", "PartitionName=all", "State=INACTIVE"], env=cluster.env)
    members = lambda: {row.split(",")[3].split("/")[-1].split()[0] for row in
                       node.control("client list --format=csv,noheader").splitlines()}
    require(wait_until(lambda: {f"job-{doomed}", f"job-{witness}"} <= members() == node.jobs(), JOB_LIMIT_S),
            f"not all of {node.jobs()} compute: {members()}")
    node.kill_daemon()
    run(["scancel", doomed], env=cluster.env)
    cluster.wait_for(doomed, "COMPLETING", "CANCELLED")
    require((node.pipe / f"slurm-{USERS['anne']}-0" / f"job-{doomed}").exists(), "an epilog did without a daemon")
    node.start_daemon()
    require(f"job-{witness}" in node.jobs(), f"the next daemon does not know job {witness}: {node.jobs()}")
    run(["scontrol", "update", "PartitionName=all", "State=UP"], env=cluster.env)
    cluster.wait_for_end()
    require(cluster.state(doomed) == "CANCELLED", f"the cancelled job is {cluster.state(doomed)}")
    require(bits_of("".join(cluster.outputs(witness).values())) == expected[LONG_NBODY], f"{cluster.outputs(witness)}")
    for array in arrays:
        outputs = cluster.outputs(array)
        require(len(outputs) == 4, f"array {array} has {sorted(outputs)}")
        for name, text in outputs.items():
            require(bits_of(text) == expected[SHORT_NBODY], f"job {name}: {text}")
    used = accounts(cluster, witness)
    require([line[:2] + line[3:4] for line in used] == [("node1", "bert", 1)] and used[0][4] > 0, f"the witness's accounts: {used}")
    for each in cluster.nodes:
        each.check_empty()


# Each rank computes on its node's GPU, and all of them compare the checksum by MPI.
RANK = """
import ctypes, os, re, subprocess, sys
out = subprocess.run(sys.argv[1:], capture_output=True, text=True)
bits = re.findall(r"bits=(\\w+)", out.stdout)
value = ctypes.c_uint64(int(bits[0], 16) if out.returncode == 0 and len(bits) == 1 else 0)
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
named = lambda name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + name)))
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(named("comm_world"), ctypes.byref(rank))
mpi.MPI_Comm_size(named("comm_world"), ctypes.byref(size))
found = []
for op in ("op_min", "op_max"):
    one = ctypes.c_uint64()
    mpi.MPI_Allreduce(ctypes.byref(value), ctypes.byref(one), 1, named("uint64_t"), named(op), named("comm_world"))
    found.append(f"{one.value:016x}")
print("rank", rank.value, "of", size.value, "at", os.environ.get("CUDA_MPS_PIPE_DIRECTORY"), *found, out.stderr.strip(), flush=True)
mpi.MPI_Finalize()
"""


def check_mpi(cluster, expected):
    """Four ranks on two nodes, each in the job's namespace of its node."""
    rank = cluster.root / "rank.py"
    rank.write_text(RANK)
    job = cluster.sbatch("bert", ["-N2", "-n4", "--ntasks-per-node=2", "--gpus-per-node=1"],
                         # Both nodes have the address of one host.
                         f"mpirun --mca btl tcp,self --mca btl_tcp_if_include slurm0 --mca oob_tcp_if_include slurm0 "
                         f"/usr/bin/python3 {rank} {cluster.program('drv_nbody')} {' '.join(SHORT_NBODY)}")
    cluster.wait_for_end()
    said = "".join(cluster.outputs(job).values())
    places = [f"{node.pipe}/slurm-{USERS['bert']}-0/job-{job}" for node in cluster.nodes]
    bits = expected[SHORT_NBODY]
    wanted = sorted(f"rank {rank} of 4 at {places[rank // 2]} {bits} {bits}" for rank in range(4))
    require(sorted(line.strip() for line in said.splitlines()) == wanted, f"{said}\nwanted: {wanted}")


def check_drain(cluster, expected):
    """A node is drained: its job ends as if nothing was, others wait for the node."""
    nbody = f"exec {cluster.program('drv_nbody')} {' '.join(SHORT_NBODY)}"
    first = cluster.sbatch("anne", ["--gres=shard:4"], nbody)
    cluster.wait_for(first, "RUNNING")
    run(["scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=test"], env=cluster.env)
    second = cluster.sbatch("bert", ["--gres=shard:4"], nbody)
    cluster.wait_for(first, "COMPLETED")
    require(cluster.state(second) == "PENDING", f"the job that waits is {cluster.state(second)}")
    cluster.nodes[1].check_empty()
    run(["scontrol", "update", "NodeName=node2", "State=RESUME"], env=cluster.env)
    cluster.wait_for(second, "COMPLETED")
    for job in (first, second):
        require(bits_of(next(iter(cluster.outputs(job).values()))) == expected[SHORT_NBODY], f"job {job}: {cluster.outputs(job)}")


def accounts(cluster, job):
    """What the nodes have written down about a job: (node, user, GPU, programs, GPU seconds, SM seconds)."""
    found = []
    for node in cluster.nodes:
        path = cluster.root / "log" / f"accounting-{node.name}.csv"
        with open(path, newline="", encoding="utf-8") as lines:
            found += [(row["node"], row["user"], row["gpu"], int(row["programs"]), float(row["gpu_seconds"]),
                       float(row["sm_seconds"])) for row in csv.DictReader(lines) if int(row["job"]) == job]
    return found


def check_accounting(cluster):
    """A job's GPU and SM seconds are written down, on each of its nodes, and for each run of a job that is queued again."""
    nbody = f"{cluster.program('drv_nbody')} {' '.join(SHORT_NBODY)}"
    job = cluster.sbatch("anne", ["--gres=shard:2", "--requeue"],
                         f"{nbody}; {nbody}; echo end; [ ${{SLURM_RESTART_COUNT:-0}} = 0 ] || exit 0; exec sleep infinity")
    idle = cluster.sbatch("bert", ["-N2", "--gpus-per-node=1"], "true")
    require(wait_until(lambda: "end" in "".join(cluster.outputs(job).values()), JOB_LIMIT_S), f"job {job} does not compute")
    run(["scontrol", "requeue", job], env=cluster.env)
    require(wait_until(lambda: len(accounts(cluster, job)) == 1, JOB_LIMIT_S), f"accounts: {accounts(cluster, job)}")
    cluster.wait_for_end()
    lines = accounts(cluster, job)
    require([(line[0], line[1], line[3]) for line in lines] == 2 * [("node2", "anne", 2)], f"accounts: {lines}")
    for line in lines:
        # It has no more SMs than its share.
        require(line[2].startswith("GPU-") and 0 < line[5] <= line[4] * SMS / 4, f"accounts: {line}")
    require(accounts(cluster, idle) == [(node, "bert", "-", 0, 0, 0) for node in NODES], f"accounts: {accounts(cluster, idle)}")


def check_no_daemon(cluster, expected):
    """A node without its daemon: jobs without GPUs run there; one with a share does not, and drains the node, with the
    reason in the log. When the daemon is there again, jobs run."""
    node = cluster.nodes[1]
    cluster.configure_scripts(1)
    node.control("quit")
    cluster.srun("anne", ["-w", node.name], "true")
    options, script = ["--gres=shard:4", "--no-requeue"], f"exec {cluster.program('drv_nbody')} {' '.join(SHORT_NBODY)}"
    job = cluster.sbatch("anne", options, script)
    cluster.wait_for(job, "CANCELLED")
    require(wait_until(lambda: "drain" in cluster.state_of(node.name), JOB_LIMIT_S), f"{node.name} is not drained")
    require(not "".join(cluster.outputs(job).values()), f"the job ran: {cluster.outputs(job)}")
    log = (cluster.root / "log" / f"slurmd-{node.name}.log").read_text()
    require(f"openmps: job {job}: no daemon of OpenMPS answers" in log, f"the log does not say why:\n{log}")
    node.start_daemon()
    cluster.configure_scripts(JOB_LIMIT_S)
    run(["scontrol", "update", f"NodeName={node.name}", "State=RESUME"], env=cluster.env)
    job = cluster.sbatch("anne", options, script)
    cluster.wait_for(job, "COMPLETED")
    require(bits_of(next(iter(cluster.outputs(job).values()))) == expected[SHORT_NBODY], f"job {job}: {cluster.outputs(job)}")


def check_end(cluster):
    """No share, server, process or simulated device is left on any node."""
    cluster.wait_for_idle()
    for node in cluster.nodes:
        node.check_empty()
        node.control("quit")
        left = [path for path in node.pipe.rglob("*") if path.is_socket()]
        require(not left, f"left on {node.name}: {left}")
        shared = run(node.inside("ls", "/dev/shm")).split()
        require(not shared, f"left in /dev/shm of {node.name}: {shared}")
    ours = lambda: [path for path in Path("/proc").glob("[0-9]*/comm") if re.match("openmps|drv_", comm_of(path))]
    require(wait_until(lambda: not ours(), START_LIMIT_S), f"processes are left: {[comm_of(path) for path in ours()]}")


def comm_of(path):
    try:
        return path.read_text() if alive(path.parent.name) else ""
    except (FileNotFoundError, ProcessLookupError):
        return ""


def main_inside(root, build):
    cluster = Cluster(root, build)
    try:
        begun = time.monotonic()
        expected = reference(cluster)
        for check, arguments in ((check_shares, ()), (check_programs, ()), (check_devices, ()), (check_arrays, (expected,)), (check_mpi, (expected,)),
                                 (check_drain, (expected,)), (check_accounting, ()),
                                 (check_no_daemon, (expected,)), (check_end, ())):
            check(cluster, *arguments)
            print(f"# {check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
            begun = time.monotonic()
    except Failure as failure:
        print(f"FAILED: {failure}\n{cluster.logs()}")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return main_inside(options.inside, options.build.resolve())
    missing = [package for tool, package in PACKAGES.items() if shutil.which(tool) is None]
    if missing:
        print(f"skipped: not installed: {' '.join(missing)}")
        return SKIPPED
    if os.geteuid() != 0:
        print("skipped: only root can run jobs of several users")
        return SKIPPED
    # Everything inside ends with its first process, and that with this one.
    inside = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child",
              "--mount-proc"]
    if subprocess.run([*inside, "true"], check=False).returncode != 0:
        print("skipped: namespaces of Linux can't be made here")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="omps-", dir="/tmp") as root:
        return subprocess.run([*inside, sys.executable, "-B", __file__, "--build", options.build, "--inside", root],
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
