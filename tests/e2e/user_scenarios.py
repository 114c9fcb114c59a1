# SPDX-License-Identifier: Apache-2.0
"""Scenarios of several users, by the table in docs/security.md: which user may connect to, see, change and end
which processes. They use two users besides root, so only root can run them. Called by scenarios.py.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from sandbox import as_user, wait_until
from scenario_tools import CLIENT_LIMIT_S, SETTLE_LIMIT_S, Skipped, daemon_of, kill_daemon, ready, require, tell

ROOT, ANNE, BERT = 0, 54321, 54322  # uids that no other user has
DENIED = "Permission denied: "

PTRACE_ATTACH = 16


def attach(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def reach(pids, say):
    """Prints which of these processes' files the caller can open."""
    for pid in pids:
        for what, attempt in (("descriptors", lambda: os.listdir(f"/proc/{pid}/fd")),
                              ("mappings", lambda: os.listdir(f"/proc/{pid}/map_files")),
                              ("memory", lambda: open(f"/proc/{pid}/mem", "rb").close()),
                              ("environment", lambda: Path(f"/proc/{pid}/environ").read_bytes()),
                              ("threads", lambda: attach(pid)), ("signals", lambda: os.kill(pid, 0))):
            try:
                attempt()
            except PermissionError:
                continue
            say(f"the {what} of {pid}")
    say("done")


def listen(path, say):
    """Listens where a daemon would, and prints what it receives."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        os.chmod(path, 0o666)
        listener.listen()
        say("ready")
        while True:
            said = listener.accept()[0].recv(65536)
            say(repr(said))


class Other:
    """A child of this process that runs as another user and does one thing; `lines` is its output. A fork and
    not a program, since the user may not be able to run this Python."""

    def __init__(self, user, act, *arguments):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                with os.fdopen(writer, "w", encoding="utf-8") as out:
                    act(*arguments, lambda text: print(text, file=out, flush=True))
            finally:
                os._exit(0)
        os.close(writer)
        self.lines = os.fdopen(reader, encoding="utf-8")

    def end(self):
        """Ends the child, and returns its remaining output."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        with self.lines:
            return self.lines.read()


def join(box, user):
    """A running program of that user."""
    child = box.start(["drv_client_worker", str(user + 1), "3", "hold"], stdin=subprocess.PIPE, **as_user(user))
    ready(child)
    return child


def owner(pid):
    for line in Path("/proc", str(pid), "status").read_text().splitlines():
        if line.startswith("Uid:"):
            return set(map(int, line.split()[1:]))
    return set()


def ask(box, user, line):
    return box.control(line, user=user)


def servers_of(box):
    return {server["uid"]: server["pid"] for server in json.loads(box.control("get_server_list --json")[1])}


def check_looking(box, servers, programs):
    """Commands that change nothing give every user one answer, except about other users' sessions."""
    lines = ["get_server_list", "ps", "get_device_client_list", "device_query",
             "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0",
             "get_default_client_priority"]
    for server in servers.values():
        lines += [f"get_server_status {server}", f"get_client_list {server}", f"ps -p {server}",
                  f"get_active_thread_percentage {server}", f"get_device_pinned_mem_limit {server} 0"]
    for line in lines:
        answers = {user: ask(box, user, line) for user in (ROOT, ANNE, BERT)}
        require(answers[ANNE] == answers[BERT] == answers[ROOT] and answers[ROOT][0] == 0, f"{line}: {answers}")
    for caller in (ROOT, ANNE, BERT):
        for user, program in programs.items():
            code, said = ask(box, caller, f"inspect {program.pid}")
            shown = code == 0 and f"of process {program.pid}\n" in said
            hidden = (code, said) == (1, f"There is no session {program.pid}\n")
            require(shown if caller in (ROOT, user) else hidden, f"inspect of {user}'s by {caller}: {said}")


def check_changing(box, servers, programs):
    """A command without permission is refused with a reason, and changes nothing."""
    before = box.control("get_default_active_thread_percentage\nget_default_client_priority\n"
                         "get_default_device_pinned_mem_limit 0")
    for caller, other in ((ANNE, BERT), (BERT, ANNE), (ANNE, ROOT)):
        for line in ("set_default_active_thread_percentage 50", "set_default_client_priority 1",
                     "set_default_device_pinned_mem_limit 0 64M", "reload", f"start_server -uid {other}", "quit", "quit -t 0",
                     *(line.format(server) for server in (servers[caller], servers[other])
                       for line in ("set_active_thread_percentage {} 50",
                                    "set_device_pinned_mem_limit {} 0 64M"))):
            wanted = f"{DENIED}{line.split()[0]} is for root and for user 0, who runs the daemon\n"
            require(ask(box, caller, line) == (1, wanted), f"{line} by {caller}: {ask(box, caller, line)}")
        for line in (f"shutdown_server {servers[other]}", f"shutdown_server {servers[other]} -f",
                     f"terminate_client {servers[other]} {programs[other].pid}"):
            wanted = (f"{DENIED}{line.split()[0]} is for user {other}, whose server that is, for root and for "
                      "user 0, who runs the daemon\n") if other != ROOT else DENIED
            code, said = ask(box, caller, line)
            require(code == 1 and said.startswith(wanted), f"{line} by {caller}: {said}")
        for word in ("suspend", "resume"):
            line = f"{word} {programs[other].pid}"
            wanted = f"Client {programs[other].pid} not found in a server of user {caller}\n"
            require(ask(box, caller, line) == (1, wanted), f"{line} by {caller}: {ask(box, caller, line)}")
            line = f"{word} id:1@{servers[other]}"
            wanted = f"{DENIED}server {servers[other]} is user {other}'s\n"
            require(ask(box, caller, line) == (1, wanted), f"{line} by {caller}: {ask(box, caller, line)}")
    after = box.control("get_default_active_thread_percentage\nget_default_client_priority\n"
                        "get_default_device_pinned_mem_limit 0")
    require(after == before, f"the defaults were {before} and are {after}")
    require(servers_of(box) == servers, f"the servers were {servers} and are {servers_of(box)}")
    # A PID without a server has no owner.
    require(ask(box, ANNE, "shutdown_server 1") == (0, "Server 1 not found\n"), "a server 1 was found")


def check_reach(box, servers, programs):
    """No file with another user's data can be opened: the shared memory has no name."""
    daemon = daemon_of(box)
    workers = box.pids_named("openmps-worker")
    for pid in [*servers.values(), *workers]:
        require(len(owner(pid)) == 1, f"{pid} is {owner(pid)}'s")
    for caller in (ANNE, BERT):
        theirs = [pid for pid in [daemon, *servers.values(), *workers, *(p.pid for p in programs.values())]
                  if caller not in owner(pid)]
        require(len(theirs) == 7, f"processes of others: {theirs}")
        other = Other(caller, reach, theirs)
        reached = other.lines.read()
        other.end()
        require(reached == "done\n", f"user {caller} reaches {reached}")


def terminated(child):
    out, err = child.communicate("go\n", timeout=CLIENT_LIMIT_S)
    require(child.returncode == 1 and "CUDA_ERROR_MPS_CLIENT_TERMINATED (810)" in out,
            f"a terminated client: {child.returncode}\n{out}{err}")


def check_ending(box, servers, programs):
    """Each user may end their own clients and servers, root all."""
    require(ask(box, BERT, f"terminate_client {servers[BERT]} {programs[BERT].pid}") == (0, "0\n"),
            "their own client was not terminated")
    terminated(programs[BERT])
    second = join(box, ANNE)
    require(ask(box, ROOT, f"terminate_client {servers[ANNE]} {programs[ANNE].pid}") == (0, "0\n"),
            "root could not terminate a client")
    terminated(programs[ANNE])
    tell(second)
    require(ask(box, BERT, f"shutdown_server {servers[BERT]} -f") == (0, ""), "their own server stays")
    require(set(servers_of(box)) == {ROOT, ANNE}, f"servers: {servers_of(box)}")
    require(ask(box, ANNE, f"start_server -uid {ANNE}") == (0, ""), "a server of their own")
    tell(programs[ROOT])


def check_planted(box):
    """A directory, a socket and a daemon that another user has put in the usual place."""
    theirs = box.tmp / "theirs"
    theirs.mkdir()
    os.chown(theirs, BERT, BERT)
    planted = Other(BERT, listen, theirs / "openmps.control")
    require(planted.lines.readline() == "ready\n", "nobody listens")
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(theirs)}
    for user in (ROOT, ANNE):
        child = box.start(["drv_client_worker", "1"], {**env, "OPENMPS_DEBUG": "1"}, **as_user(user))
        out, err = child.communicate(timeout=CLIENT_LIMIT_S)
        wanted = f"is user {BERT}'s, neither root's nor user {user}'s: not trusted"
        require(child.returncode == 1 and wanted in err, f"a client of {user}: {child.returncode}\n{out}{err}")
        done = subprocess.run([box.resolve("openmps-control"), "ps"], text=True, capture_output=True,
                              env={**box.service_env(), **env}, check=False, timeout=CLIENT_LIMIT_S, **as_user(user))
        require(done.returncode == 1 and done.stdout == "" and wanted in done.stderr and
                done.stderr.count("\n") == 1, f"a shell of {user}: {done}")
    done = subprocess.run([box.resolve("openmps-control"), "-d"], text=True, capture_output=True, check=False,
                          env={**box.service_env(), **env}, timeout=CLIENT_LIMIT_S)
    require(done.returncode == 1 and done.stderr.count("\n") == 1 and
            f"is user {BERT}'s, who could replace what is in it" in done.stderr, f"a daemon in it: {done}")
    told = set(planted.end().splitlines())
    require(told == {"b''"}, f"it was told {told}")
    for path in (theirs / "openmps.control", theirs):
        path.unlink() if path.is_socket() else path.rmdir()


def check_private_daemon(box):
    """A daemon of one user serves no other user, and no other user connects to it by mistake."""
    box.pipe = box.root / "pipe of anne"
    box.pipe.mkdir(mode=0o755)
    for directory in (box.pipe, box.log):
        os.chown(directory, ANNE, ANNE)
    for log in box.log.iterdir():
        log.unlink()
    box.env["CUDA_MPS_PIPE_DIRECTORY"] = str(box.pipe)
    box.env["OPENMPS_CONFINE"] = "0"  # else only root could see which processes are left
    box.user = as_user(ANNE)
    box.start_daemon()
    tell(join(box, ANNE))
    daemon = {"OPENMPS_DAEMON_UID": str(ANNE), "OPENMPS_DEBUG": "1"}  # OPENMPS_DAEMON_UID makes a client trust it
    for user in (ROOT, BERT):
        child = box.start(["drv_client_worker", "1"], daemon, **as_user(user))
        out, err = child.communicate(timeout=CLIENT_LIMIT_S)
        require(child.returncode == 1 and f"can't start a server for user {user}" in err,
                f"a client of {user}: {child.returncode}\n{out}{err}")
    require(set(servers_of(box)) == {ANNE}, f"servers: {servers_of(box)}")
    box.env["OPENMPS_DAEMON_UID"] = str(ANNE)
    code, said = ask(box, BERT, "quit")
    require((code, said) == (1, f"{DENIED}quit is for root and for user {ANNE}, who runs the daemon\n"), said)
    require(ask(box, BERT, "get_default_client_priority") == (0, "0\n"), "a command that changes nothing is refused")
    require(ask(box, ROOT, "set_default_client_priority 1") == (0, ""), "root may not change it")
    require(ask(box, ANNE, "get_default_client_priority") == (0, "1\n"), "it was not changed")
    box.quit()


def users(box, _):
    """Root's daemon serves three users at once, each by a server of their own; then a daemon of one of these
    users, and files that another user has planted in the usual place."""
    if os.geteuid() != 0:
        raise Skipped("only root can be several users")
    box.share_build()
    del box.env["SOFTGPU_DEVICE"]  # a simulated device belongs to one user
    box.start_daemon()
    programs = {user: join(box, user) for user in (ROOT, ANNE, BERT)}
    servers = servers_of(box)
    require(set(servers) == {ROOT, ANNE, BERT}, f"servers: {servers}")
    for user, server in servers.items():
        require(owner(server) == {user}, f"the server {server} of {user} is {owner(server)}'s")
    check_looking(box, servers, programs)
    check_changing(box, servers, programs)
    check_reach(box, servers, programs)
    check_planted(box)
    kill_daemon(box)  # the servers register with the next daemon, each as its own user's
    box.start_daemon()
    require(wait_until(lambda: servers_of(box) == servers, SETTLE_LIMIT_S),
            f"the servers were {servers} and are {servers_of(box)}")
    check_ending(box, servers, programs)
    box.quit()
    left = box.leftovers()
    require(not left, "\n".join(left))
    check_private_daemon(box)
    for user in (ROOT, ANNE, BERT):
        require(not Path(f"/dev/shm/openmps-softgpu-{user}").exists(), f"the device of {user} is left")


def pid_namespace(box, _):
    """A daemon in a PID namespace of its own, whose clients are outside it and have no PID there: clients are named
    by ID, PID 0 is refused, and the output says that rules by cgroup do not fit them."""
    if os.geteuid() != 0:
        raise Skipped("only root can make a PID namespace")
    box.config().write_text('[[groups]]\nname = "all"\ncgroup = "/*"\n')
    daemon = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", box.resolve("openmps-control"), "-f",
                               "--config", str(box.config())], env=box.service_env(), cwd=box.tmp,
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: box.control("whoami")[0] == 0 or daemon.poll() is not None, SETTLE_LIMIT_S)
        if daemon.poll() is not None:
            raise Skipped("no PID namespace can be made here")
        children = []
        for seed in "12":  # one after the other, so that the first has the first ID
            children.append(box.start(["drv_client_worker", seed, "3", "hold"], stdin=subprocess.PIPE))
            ready(children[-1])
        server = box.control("get_server_list")[1].strip()
        names = box.control(f"get_client_list {server}")[1].split()
        require(len(names) == 2 and all(name.startswith("id:") for name in names), f"clients {names}")

        def said(*command):
            done = subprocess.run([box.resolve("openmps"), *command], env=box.service_env(), text=True,
                                  capture_output=True, check=False, timeout=CLIENT_LIMIT_S)
            return done.stdout + done.stderr

        for table in (box.control("ps")[1], said("ps")):
            own = all(f"(PID {child.pid} by its own word)" in table for child in children)
            require(own and all(name in table for name in names) and "rules by cgroup do not fit" in table, table)
        doctor = said("doctor")
        require("the daemon can't see this PID namespace: rules by cgroup" in doctor, doctor)
        log = (box.log / "control.log").read_text()
        require("its cgroup can't be read, so it is not in group all" in log, log)
        told = box.control(f"terminate_client {server} 0")[1]
        require(told.startswith("0 is no client's PID") and told.endswith("\n1\n"), told)
        require(box.control(f"terminate_client {server} {names[0]}") == (0, "0\n"), "the first is not terminated")
        children[0].communicate("go\n", CLIENT_LIMIT_S)
        require(children[0].returncode != 0, "the first has not ended")
        tell(children[1])
        box.quit()
        require(daemon.wait(SETTLE_LIMIT_S) == 0, f"the daemon ended with {daemon.returncode}")
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


# Variables that name a file or a device: one for each way in which the environment influences the libraries.
STEERED = ("CUDA_LOG_FILE", "OPENMPS_CALLS_FILE", "OPENMPS_TRACE", "SOFTGPU_TRACE", "SOFTGPU_DEVICE")


def with_library_in(folder, program):
    """A program of tests/e2e/secure_program.cc, linked to find its library in that folder."""
    place = re.compile(rb"/place-of-the-library_+")
    longest = len(place.search(program).group())
    require(len(os.fsencode(folder)) <= longest, f"{folder}: longer than {longest} bytes")
    return place.sub(os.fsencode(folder).ljust(longest, b"\0"), program)


def secure_programs(box, _):
    """A program with a set-user-ID bit: no variable of its caller can name a library to load, a file to write or
    a daemon to trust, or make it print. The program without that bit follows each of these variables."""
    if os.geteuid() != 0:
        raise Skipped("only root can give rights to a program")
    if os.statvfs(box.root).f_flag & os.ST_NOSUID:
        raise Skipped("set-user-ID bits do not count here")
    os.chmod(box.root, 0o755)
    box.share_build()
    named = box.root / "named"  # the folder that the caller's variables name
    env = {name: str(named / name) for name in STEERED}
    env |= {"SOFTGPU_DEVICE": box.device, "OPENMPS_DRIVER": str(named / "driver.so"), "OPENMPS_DEBUG": "1",
            "SOFTGPU_DEBUG": "1", "SOFTGPU_DEVICES": "7", "CUDA_MPS_PIPE_DIRECTORY": str(named)}

    def use(library, folder, mode, extra):
        """Which variables the program has followed, and its output."""
        shutil.rmtree(named, ignore_errors=True)
        named.mkdir()
        os.chmod(named, 0o777)
        shutil.copyfile(box.build / "lib/softgpu/libcuda.so.1", named / "driver.so")
        program = box.root / library
        program.write_bytes(with_library_in(box.build / folder, Path(box.resolve(library)).read_bytes()))
        os.chmod(program, mode)
        done = subprocess.run([str(program), str(named)], env={**env, **extra, "PATH": os.environ["PATH"]}, text=True,
                              capture_output=True, check=False, timeout=CLIENT_LIMIT_S, **as_user(ANNE))
        require(done.returncode == 0, f"{library}, mode {mode:o}: {done}")
        loaded = {"driver.so"} if "loaded" in done.stdout else set()
        written = {path.name for path in named.iterdir()} - {"driver.so"}
        counted = {"SOFTGPU_DEVICES"} if "devices 7" in done.stdout else set()
        return loaded | written | counted, done.stderr

    required = {"OPENMPS_REQUIRED": "1"}
    client, softgpu = ("secure_client_library", "lib/openmps"), ("secure_softgpu_cuda", "lib/softgpu")
    for (library, folder), extra, steered in ((client, {}, {"driver.so", "SOFTGPU_DEVICES", "SOFTGPU_TRACE"}),
                                              (client, required, {"OPENMPS_CALLS_FILE", "CUDA_LOG_FILE"}),
                                              (softgpu, {}, {"SOFTGPU_DEVICES", "SOFTGPU_TRACE"})):
        followed, said = use(library, folder, 0o755, extra)
        require(followed == steered and said, f"{library} {extra} of its caller's: {followed}\n{said}")
        followed, said = use(library, folder, 0o4755, extra)
        require((followed, said) == (set(), ""), f"{library} {extra} of another user's: {followed}\n{said}")
    require(not [name for name in os.listdir("/dev/shm") if box.device in name], "its device is left")
