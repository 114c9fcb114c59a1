# SPDX-License-Identifier: Apache-2.0
"""Scenarios of containers: programs in namespaces of their own, which reach the daemon by its directory alone.

Called by scenarios.py, on its only thread. They need root, and `containers` needs podman and runc.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from group_scenarios import Taker
from sandbox import as_user, wait_until
from scenario_tools import (CLIENT_LIMIT_S, SETTLE_LIMIT_S, LiveSms, Skipped, finish, kill_daemon, ready, require, server_of,
                            settled)
from user_scenarios import ANNE, BERT, Other, servers_of

HERE = Path(__file__).resolve().parent
OVERFLOW_USER = Path("/proc/sys/kernel/overflowuid").read_text().strip()

PID_NAMESPACE = ("--pid", "--fork", "--mount-proc")
# What a container has by itself, each alone and all together.
KINDS = {
    "mount": ("--mount",), "pid": PID_NAMESPACE, "ipc": ("--ipc",), "network": ("--net",), "uts": ("--uts",),
    "cgroup": ("--cgroup",), "user": ("--user", "--map-root-user"),
    "all": ("--mount", *PID_NAMESPACE, "--ipc", "--net", "--uts", "--cgroup"),
    "all and user": ("--user", "--map-root-user", "--mount", *PID_NAMESPACE, "--ipc", "--net", "--uts", "--cgroup"),
}
# What is done in a mount namespace of the program before it begins.
CHANGES = {
    "read-only root": "mount -o remount,bind,ro / && ! touch /read-only-root 2>/dev/null",
    "64 KiB of /dev/shm": "mount -t tmpfs -o size=64k tmpfs /dev/shm",
    "read-only directory": "mount --bind {pipe} {pipe} && mount -o remount,bind,ro,nosuid,nodev,noexec {pipe}",
}

WITHOUT_PROC = "umount -l /proc && test ! -e /proc/self"
WORKER = ["drv_client_worker", "7", "3"]
# The second one has more pinned memory than a container's usual 64 KiB of /dev/shm, and registers memory.
PROGRAMS = (WORKER, ["drv_copies"])


def in_namespaces(flags, command, prepare="true"):
    """A command line that runs a program of the build in such namespaces, after those shell commands."""
    return [shutil.which("unshare"), *flags, "sh", "-ec", f'{prepare}; exec "$@"', "sh", *command]


def expected(program):
    return (HERE / "expected" / f"{program}.txt").read_text().splitlines()


def facts(text):
    return [line for line in text.splitlines() if not line.startswith("# ")]


def is_right(box, what, flags, prepare="true", env=None, programs=PROGRAMS, **kwargs):
    """Programs that compare their results, and whose output is compared."""
    for command in programs:
        words = [box.resolve(command[0]), *command[1:]]
        out = finish(box.start(in_namespaces(flags, words, prepare), env, **kwargs), f"{command[0]} in {what}")
        require(command[0] != "drv_copies" or facts(out) == expected("drv_copies"), f"drv_copies in {what}: {out}")


def linux_namespaces(box, _):
    """A program in each kind of namespace, in all of them, with a read-only root, a tiny /dev/shm and without
    /proc: its results are right, and it has a session with the daemon outside."""
    if os.geteuid() != 0:
        raise Skipped("only root can make all kinds of namespaces")
    box.start_daemon()
    for what, flags in KINDS.items():
        is_right(box, f"namespace: {what}", flags)
    for what, change in CHANGES.items():
        is_right(box, what, ("--mount",), change.format(pipe=box.pipe))
    # There a program can't register memory, which is found by /proc/self/maps.
    is_right(box, "no /proc", ("--mount",), WITHOUT_PROC, programs=(WORKER,))
    settled(box, server_of(box))
    opened = (box.log / "server.log").read_text().count(" opens\n")
    require(opened == len(PROGRAMS) * (len(KINDS) + len(CHANGES)) + 1,
            f"{opened} sessions: a program did without the daemon")
    box.quit()


# --- user namespaces ------------------------------------------------------------------------------

AS_ROOT = ("--user", "--map-root-user")
# Who has no user number inside; `setgroups` is no part of what is tried.
UNMAPPED = ("--user",)
DEBUG = {"OPENMPS_DEBUG": "1"}


def refused(box, what, flags, reason, env):
    child = box.start(in_namespaces(flags, [box.resolve(WORKER[0]), *WORKER[1:]]), {**DEBUG, **env}, **as_user(ANNE))
    out, err = child.communicate(timeout=CLIENT_LIMIT_S)
    require(child.returncode == 1 and reason in err, f"{what}: {child.returncode}\n{out}{err}")


def relay(directory, real, say):
    """Listens in a directory of its own and passes packets on, in both directions, to the daemon of root."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(directory / "openmps.control"))
        os.chmod(directory / "openmps.control", 0o666)
        listener.listen()
        say("ready")
        while True:
            program = listener.accept()[0]
            with program, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
                daemon.connect(str(real / "openmps.control"))
                asked = program.recv(65536)
                say(f"{len(asked)} bytes from the program")
                if asked:
                    daemon.send(asked)
                    answer = daemon.recv(65536)
                    say(f"{len(answer)} bytes from the daemon")
                    program.send(answer)
                    say(f"{len(program.recv(65536))} bytes then")


def user_namespaces(box, _):
    """In a user namespace root's daemon outside has no number. It proves itself; another user's process that
    listens, and passes on what root's daemon says, does not; nor does anybody to a program without a number."""
    if os.geteuid() != 0:
        raise Skipped("only root can be several users")
    try:
        subprocess.run(["unshare", *AS_ROOT, "true"], check=True, capture_output=True, **as_user(ANNE))
    except subprocess.CalledProcessError as failure:
        raise Skipped(f"no user namespace can be made here: {failure.stderr}") from None
    box.share_build()
    os.chmod(box.tmp, 0o1777)
    del box.env["SOFTGPU_DEVICE"]  # a simulated device belongs to one user
    box.start_daemon()
    anne = as_user(ANNE)
    is_right(box, "a user namespace as root", AS_ROOT, **anne)
    is_right(box, "a user namespace as 1000", ("--user", "--map-user=1000"), **anne)
    is_right(box, "all namespaces", KINDS["all and user"], **anne)
    inner = ["unshare", *AS_ROOT, box.resolve(WORKER[0]), *WORKER[1:]]
    finish(box.start(in_namespaces(AS_ROOT, inner), **anne), "a user namespace in a user namespace")
    require(set(servers_of(box)) == {ANNE}, f"the programs are not {ANNE}'s: {servers_of(box)}")
    done = subprocess.run(["unshare", *AS_ROOT, box.resolve("openmps"), "doctor"], env=box.service_env(), text=True,
                          capture_output=True, check=False, timeout=CLIENT_LIMIT_S, **anne)
    require(done.returncode == 0 and f"a daemon serves {box.pipe}" in done.stdout, f"doctor: {done}")

    refused(box, "without a number", UNMAPPED, "all users without a number in this user namespace", {})
    is_right(box, "without a number, told whom to trust", UNMAPPED, env={"OPENMPS_DAEMON_UID": OVERFLOW_USER}, **anne)

    theirs = box.tmp / "theirs"
    theirs.mkdir()
    os.chown(theirs, BERT, BERT)
    planted = Other(BERT, relay, theirs, box.pipe)
    require(planted.lines.readline() == "ready\n", "nobody listens")
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(theirs)}
    refused(box, "another user's relay", AS_ROOT, "does not prove to be root's (its answer is no proof)", env)
    told = planted.end().splitlines()
    require(told[:2] == ["16 bytes from the program", "16 bytes from the daemon"] and
            all(line in ("0 bytes then", "0 bytes from the program") for line in told[2:]),
            f"the relay was told {told}")
    shutil.rmtree(theirs)
    settled(box, servers_of(box)[ANNE])
    box.quit()
    for user in (0, ANNE):
        require(not Path(f"/dev/shm/openmps-softgpu-{user}").exists(), f"the device of {user} is left")


# --- shares ---------------------------------------------------------------------------------------

MIB = 1 << 20
SHARE = "--active-thread-percentage=25 --pinned-memory-limit=0=64M"
SHARE_MIB = 64
# What a program may set so as to have more than its share. None of these is an error.
WISHES = (
    {}, {"OPENMPS_GROUP": "other"}, {"OPENMPS_GROUP": "default"}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"},
    {"CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING": "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"},
    {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G"}, {"CUDA_MPS_CLIENT_PRIORITY": "0"}, {"OPENMPS_QOS": "latency"},
    {"OPENMPS_DOMAIN": "mine"}, {"CUDA_VISIBLE_DEVICES": "0"},
)


class Jail:
    """A mount namespace that has the directory of one namespace of the daemon, read-only, and not the daemon's own.
    Starts programs as a sandbox does."""

    def __init__(self, box, door, inside="share"):
        self.box, self.inside = box, box.root / inside
        self.inside.mkdir(exist_ok=True)
        prepare = (f"mount --bind {door} {self.inside} && mount -o remount,bind,ro,nosuid,nodev,noexec {self.inside} && "
                   f"mount -t tmpfs tmpfs {box.pipe} && echo ready")
        self.holder = box.start(in_namespaces(("--mount",), ["cat"], prepare), stdin=subprocess.PIPE)
        ready(self.holder)

    def start(self, command, env=None, **kwargs):
        words = [shutil.which("nsenter"), "--mount", f"--target={self.holder.pid}", self.box.resolve(command[0]),
                 *command[1:]]
        return self.box.start(words, {**(env or {}), "CUDA_MPS_PIPE_DIRECTORY": str(self.inside)}, **kwargs)

    def control(self, line):
        """One command by the namespace's own socket, as root of a container can give it."""
        done = self.start(["openmps-control"], {"LD_LIBRARY_PATH": ""}, stdin=subprocess.PIPE)
        out, err = done.communicate(line + "\n", timeout=CLIENT_LIMIT_S)
        return done.returncode, out + err

    def close(self):
        self.holder.stdin.close()
        require(self.holder.wait() == 0, "the namespace's first program")


class Member(Taker):
    def __init__(self, jail, env=None):
        self.child = jail.start(["drv_group_memory"], env, stdin=subprocess.PIPE)
        ready(self.child)


def command(box, line):
    code, said = box.control(line)
    require((code, said) == (0, ""), f"{line}: {code} {said}")


def make_share(box, name="small", limits=SHARE):
    command(box, f"namespace create {name} --server=main {limits}")
    return box.pipe / "main" / name


def device_sms(box):
    described = json.loads(box.control("device_query --json")[1])[0]
    return described["sms"], described["sms"] * 25 // 100 // described["chunk_sms"] * described["chunk_sms"]


def check_wishes(jail, share_sms):
    """Whatever a program asks for, it is told its share and runs on no more SMs than it is told."""
    for wish in WISHES:
        out = finish(jail.start(["drv_sm_share"], wish), f"a program with {wish}")
        told = [line for line in out.splitlines() if line.startswith("# told")][-1].split()
        require(int(told[2]) <= share_sms and len(told[4:]) <= share_sms, f"{wish}: {told}, the share is {share_sms}")
        limited = jail.start(["drv_limited"], wish, stdin=subprocess.PIPE)
        out, err = limited.communicate("go\n", CLIENT_LIMIT_S)
        memory = re.search(r"mem \((\d+), (\d+)\)", out)
        require(memory and int(memory[2]) == SHARE_MIB * MIB and "ALLOC CUDA_SUCCESS" in out, f"{wish}: {out}{err}")


def check_memory(jail):
    """All members have one budget, also those that have asked for a fault domain of their own."""
    first, second = Member(jail), Member(jail)
    apart = Member(jail, {"OPENMPS_DOMAIN": "apart"})
    first.expect(("take 40", "ok"))
    second.expect(("free", "24 of 64"), ("take 25", "out of memory"))
    apart.expect(("take 25", "out of memory"), ("take 20", "ok"))
    first.expect(("take 5", "out of memory"))
    apart.child.kill()
    apart.child.wait()
    require(wait_until(lambda: second.say("take 24") == "ok", SETTLE_LIMIT_S), "a killed member keeps its memory")
    first.expect(("take 1", "out of memory"))
    first.end()
    second.end()


def check_sms(jail, neighbour, share_sms):
    """All members together run on the share's SMs, which other namespaces keep off."""
    # Members are where the first of them is.
    members = [LiveSms(jail, {"OPENMPS_DOMAIN": "apart"})]
    members += [LiveSms(jail), LiveSms(jail, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"})]
    other = LiveSms(neighbour)
    everybody = [*members, other]
    begun = lambda: all(program.rounds > 2 for program in everybody)
    require(wait_until(begun, SETTLE_LIMIT_S), "a program does not begin")
    seen, theirs, until = set(), set(), [program.rounds + 20 for program in everybody]

    def looked():
        for member in members:
            seen.update(member.sms)
        theirs.update(other.sms)
        return all(program.rounds >= most for program, most in zip(everybody, until))
    require(wait_until(looked, SETTLE_LIMIT_S), "a program does not continue")
    require(len(seen) <= share_sms, f"three members are on {sorted(seen)}, their share is {share_sms} SMs")
    require(not seen & theirs, f"another namespace is on {sorted(theirs)} beside {sorted(seen)}")
    workers = jail.box.pids_named("openmps-worker")
    require(len(workers) == 1, f"a member has got a worker of its own: {workers}")
    for program in everybody:
        program.end()


# Commands that change something, show others, or end the daemon; each line must be refused.
FORBIDDEN = ("quit", "quit -t 0", "reload", "set_default_active_thread_percentage 100", "set_default_client_priority 0",
             "set_default_device_pinned_mem_limit 0 1G", "set_active_thread_percentage {server} 100",
             "set_client_active_thread_percentage small 100", "set_client_device_pinned_mem_limit small 0 1G",
             "shutdown_server {server}", "shutdown_server {server} -f", "terminate_client {server} {client}",
             "reserve_sms 0 1", "move_client {client} mine", "suspend {client}", "resume {client}",
             "namespace set small --server=main --active-thread-percentage=100",
             "namespace set small --server=main --pinned-memory-limit=0=1G", "namespace create mine --server=main",
             "namespace delete small --server=main --force", "namespace delete other --server=main --force",
             "server create mine", "server delete main --force", "server set main --active-thread-percentage=100")


def check_commands(box, jail, neighbours):
    """Root of a container is root for the daemon, too; but it has come by its namespace's socket."""
    before = box.control("namespace list")[1]
    server = [line["pid"] for line in json.loads(box.control("get_server_list --json")[1])][0]
    for line in FORBIDDEN:
        line = line.format(server=server, client=neighbours[0].child.pid)
        code, said = jail.control(line)
        require(code == 1 and said != "", f"{line} by a namespace's socket: {code} {said}")
    require(box.control("namespace list")[1] == before, f"before: {before}now: {box.control('namespace list')[1]}")
    listed = jail.control("namespace list --format=csv,noheader")[1]
    require([line.split(",")[:2] for line in listed.splitlines()] == [["small", "main"]], f"it sees {listed}")
    shown = jail.control("ps --json")[1]
    require(str(neighbours[0].child.pid) not in shown, f"it sees {shown}")
    doctor = jail.start(["openmps", "doctor"])
    out, err = doctor.communicate(timeout=CLIENT_LIMIT_S)
    require(doctor.returncode == 0 and f"a daemon serves {jail.inside}" in out, f"doctor: {doctor.returncode} {out}{err}")


def shares(box, _):
    """A program that can reach the daemon by a namespace's directory alone can't exceed the namespace's limits."""
    if os.geteuid() != 0:
        raise Skipped("only root can make mount namespaces")
    box.start_daemon()
    command(box, "server create main")
    small, other = Jail(box, make_share(box)), Jail(box, make_share(box, "other", "--active-thread-percentage=50"), "other")
    share_sms = device_sms(box)[1]
    check_wishes(small, share_sms)
    check_memory(small)
    check_sms(small, other, share_sms)
    neighbours = [Member(other)]
    check_commands(box, small, neighbours)

    # The next daemon has the same namespaces, and the directory that a container has mounted is still theirs.
    member = Member(small)
    member.expect(("take 40", "ok"))
    kill_daemon(box)
    member.expect(("take 25", "out of memory"))
    box.start_daemon()
    said = finish(small.start(["drv_sm_share"]), "a program beside the next daemon")
    require(f"# told {share_sms} " in said, said)
    late = Member(small)
    late.expect(("take 25", "out of memory"), ("take 24", "ok"))
    member.expect(("take 1", "out of memory"))
    for program in (member, late, *neighbours):
        program.end()
    for jail in (small, other):
        jail.close()
    box.quit()


# --- podman ---------------------------------------------------------------------------------------

LIBRARY_LINE = re.compile(r"(?:\S+ => )?(/\S+) \(0x")
TOOLS = ("sh", "env", "sleep")


def make_root(root, programs, library):
    """A root file system with these programs, some tools, and what they and our library need; but no libcuda.so.1,
    wherever the programs would find one here. It is laid out as distributions are today."""
    for link in ("bin", "lib", "lib64"):
        (root / "usr" / link).mkdir(parents=True)
        (root / link).symlink_to(f"usr/{link}")
    for folder in ("tmp", "run", "dev", "proc", "sys", "etc"):
        (root / folder).mkdir()
    programs = [*programs, *map(shutil.which, TOOLS)]
    for program in programs:
        shutil.copy(program, root / "bin" / Path(program).name)
    listed = subprocess.run(["ldd", *programs, library], capture_output=True, text=True, check=True).stdout
    for needed in set(LIBRARY_LINE.findall(listed)):
        if not needed.endswith("/libcuda.so.1"):
            place = Path(root, "usr", needed.removeprefix("/usr/").lstrip("/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(needed, place)


# Podman would raise limits by itself, which root of a container or a confined root may not do.
ULIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")


class Podman:
    """Runs containers of one root file system, in directories of the sandbox; and the CDI file of its devices."""

    def __init__(self, box, programs):
        if os.geteuid() != 0:
            raise Skipped("only root can make these containers")
        for tool in ("podman", "runc"):
            if shutil.which(tool) is None:
                raise Skipped(f"there is no {tool}")
        self.box, self.image = box, box.root / "image"
        make_root(self.image, [box.resolve(program) for program in programs],
                  str(box.build / "lib" / "openmps" / "libcuda.so.1"))
        self.vendor = f"e2e-{box.mark}.openmps.org"
        # Podman 4 looks here and in /etc/cdi.
        self.spec = Path("/run/cdi", f"openmps-e2e-{box.mark}.json")

    def generate(self, *words):
        done = subprocess.run([self.box.resolve("openmps"), "cdi", "generate", "--output", str(self.spec), "--vendor",
                               self.vendor, *words], env=self.box.service_env(), text=True, capture_output=True,
                              check=False, timeout=CLIENT_LIMIT_S)
        require((done.returncode, done.stdout, done.stderr) == (0, "", ""), f"cdi generate: {done}")
        return json.loads(self.spec.read_text())

    def device(self, name):
        return ("--device", f"{self.vendor}/share={name}")

    def words(self, *words):
        place = self.box.root
        return [shutil.which("podman"), "--storage-driver", "vfs", "--root", f"{place}/podman", "--runroot",
                f"{place}/podman-run", "--tmpdir", f"{place}/podman-tmp", "--runtime", "runc", "--cgroup-manager",
                "cgroupfs", *words]

    def start(self, options, command, **kwargs):
        """A container that runs `command`, by names of the image."""
        words = self.words("run", "--rm", "--interactive", "--network", "none", *ULIMITS, *options, "--rootfs",
                           str(self.image), *command)
        kwargs.setdefault("stdin", subprocess.PIPE)
        return self.box.start(words, {"LD_LIBRARY_PATH": "", "CUDA_MPS_PIPE_DIRECTORY": ""}, **kwargs)

    def close(self):
        """Also of containers that a failure has left: each has a mount."""
        self.spec.unlink(missing_ok=True)
        if (self.box.root / "podman").exists():
            subprocess.run(self.words("rm", "--all", "--force", "--time", "0"), env=self.box.service_env(),
                           capture_output=True, check=False, timeout=CLIENT_LIMIT_S)


class Container:
    """Starts programs as a sandbox does, each in a container with these options."""

    def __init__(self, podman, *options):
        self.podman, self.options = podman, options

    def start(self, command, env=None, **kwargs):
        set_there = [f"--env={name}={value}" for name, value in (env or {}).items()]
        return self.podman.start([*self.options, *set_there], command, **kwargs)


HARDENED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--shm-size=64k")
# The users 100000 and above of the host have no processes.
REMAPPED = ("--uidmap=0:100000:1000", "--gidmap=0:100000:1000")


def containers(box, _):
    """Containers of podman and runc with a device of `openmps cdi generate`: right results, the share's SMs and
    memory for all containers of the share together, whatever they set and unset."""
    podman = Podman(box, ["drv_client_worker", "drv_copies", "drv_limited", "drv_sm_share", "drv_group_memory", "drv_nvml"])
    box.share_build()
    del box.env["SOFTGPU_DEVICE"]  # a simulated device belongs to one user
    try:
        box.start_daemon()
        command(box, "server create main")
        make_share(box)
        command(box, "server create mapped --uid=100000")
        command(box, f"namespace create small --server=mapped {SHARE}")
        spec = podman.generate("main/small", "mapped/small", "--all")
        require([device["name"] for device in spec["devices"]] == ["main:small", "mapped:small", "all"], str(spec))
        share, mapped = (podman.device(f"{server}:small") for server in ("main", "mapped"))
        for options in (share, (*share, *HARDENED), (*mapped, *REMAPPED), (*mapped, *REMAPPED, *HARDENED)):
            for program in PROGRAMS:
                out = finish(podman.start(options, program), f"{program[0]} in a container with {options}")
                require(program == WORKER or facts(out) == expected("drv_copies"), f"drv_copies, {options}: {out}")
        refused_in = podman.start((*mapped, "--env=OPENMPS_DEBUG=1", "--user=5"), WORKER)
        out, err = refused_in.communicate(timeout=CLIENT_LIMIT_S)
        require(refused_in.returncode == 1 and "CUDA_ERROR_MPS_CONNECTION_FAILED" in out, f"another's share: {out}{err}")

        for options in ((*share, *HARDENED), (*mapped, *REMAPPED)):
            finish(podman.start(options, ["drv_nvml", "share"]), f"NVML in a container with {options}")

        inside = Container(podman, *share)
        check_wishes(inside, device_sms(box)[1])
        first, second = Member(inside), Member(inside)
        first.expect(("take 40", "ok"))
        second.expect(("free", "24 of 64"), ("take 25", "out of memory"), ("take 20", "ok"))
        first.expect(("take 5", "out of memory"))
        first.end()
        require(wait_until(lambda: second.say("take 40") == "ok", SETTLE_LIMIT_S), "a container's memory is not freed")
        second.end()
        # Without any variable programs look where the share's directory is mounted.
        members = lambda: (box.log / "control.log").read_text().count("group small")
        before = members()
        bare = podman.start(share, ["env", "-i", f"/bin/{WORKER[0]}"])
        out, err = bare.communicate(timeout=CLIENT_LIMIT_S)
        require(bare.returncode == 0 and members() == before + 1, f"without variables: {bare.returncode} {out}{err}")
        box.quit()
    finally:
        podman.close()


CONTAINERS = (linux_namespaces, user_namespaces, shares, containers)
