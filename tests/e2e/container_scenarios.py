# SPDX-License-Identifier: Apache-2.0
"""Scenarios of containers: programs in namespaces of their own, which reach the daemon by its directory alone.

Called by scenarios.py, on its only thread. They need root, and `containers` needs podman and runc.
"""

import json
import os
import re
import resource
import shutil
import socket
import subprocess
from pathlib import Path

from sandbox import as_user, wait_until
from scenario_tools import CLIENT_LIMIT_S, SETTLE_LIMIT_S, Skipped, finish, require, server_of, settled
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


# --- podman ---------------------------------------------------------------------------------------

LIBRARY_LINE = re.compile(r"(?:\S+ => )?(/\S+) \(0x")
TOOLS = ("sh", "env", "sleep")


def make_root(root, programs):
    """A root file system with these programs, some tools, and the libraries that they need; but no libcuda.so.1,
    wherever the programs would find one here. It is laid out as distributions are today."""
    for link in ("bin", "lib", "lib64"):
        (root / "usr" / link).mkdir(parents=True)
        (root / link).symlink_to(f"usr/{link}")
    for folder in ("tmp", "run", "dev", "proc", "sys", "etc"):
        (root / folder).mkdir()
    for program in [*programs, *map(shutil.which, TOOLS)]:
        shutil.copy(program, root / "bin" / Path(program).name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in LIBRARY_LINE.findall(listed):
            place = Path(root, "usr", library.removeprefix("/usr/").lstrip("/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists() and not library.endswith("/libcuda.so.1"):
                shutil.copy(library, place)


class Podman:
    """Runs containers of one root file system, in directories of the sandbox; and the CDI file of its devices."""

    def __init__(self, box, programs):
        if os.geteuid() != 0:
            raise Skipped("only root can make these containers")
        for tool in ("podman", "runc"):
            if shutil.which(tool) is None:
                raise Skipped(f"there is no {tool}")
        self.box, self.image = box, box.root / "image"
        make_root(self.image, [box.resolve(program) for program in programs])
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

    def start(self, options, command, **kwargs):
        """A container that runs `command`, by names of the image."""
        place = self.box.root
        limits = [f"--ulimit={name}={soft}:{hard}" for name, (soft, hard) in
                  (("nofile", resource.getrlimit(resource.RLIMIT_NOFILE)),
                   ("nproc", resource.getrlimit(resource.RLIMIT_NPROC)))]
        words = [shutil.which("podman"), "--storage-driver", "vfs", "--root", f"{place}/podman", "--runroot",
                 f"{place}/podman-run", "--tmpdir", f"{place}/podman-tmp", "--runtime", "runc", "--cgroup-manager",
                 "cgroupfs", "run", "--rm", "--interactive", "--network", "none", *limits, *options, "--rootfs",
                 str(self.image), *command]
        kwargs.setdefault("stdin", subprocess.PIPE)
        return self.box.start(words, {"LD_LIBRARY_PATH": "", "CUDA_MPS_PIPE_DIRECTORY": ""}, **kwargs)

    def close(self):
        self.spec.unlink(missing_ok=True)


CONTAINERS = (linux_namespaces, user_namespaces)
