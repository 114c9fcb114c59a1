# SPDX-License-Identifier: Apache-2.0
"""Scenarios of named servers and namespaces: a directory whose socket leads into limits that hold for all who come
through it, and the command line of MPS's interface v3.

Called by scenarios.py, on its only thread.
"""

import json
import os
import re
import signal
import subprocess
import time

from group_scenarios import Taker
from sandbox import as_user, wait_until
from scenario_tools import CLIENT_LIMIT_S, SETTLE_LIMIT_S, LiveSms, Skipped, finish, kill_daemon, ready, require, tell

OTHER, THIRD = 54321, 54322  # uids that no other user has
NAME = "openmps-control"


def say(box, line, env=None, user=None):
    """One call of the command line: (exit code, output)."""
    done = subprocess.run([box.resolve(NAME), *line.split()], env={**box.service_env(), **(env or {})}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                          timeout=CLIENT_LIMIT_S, cwd=box.tmp, **(user or {}))
    return done.returncode, done.stdout


def do(box, line):
    code, text = say(box, line)
    require(code == 0, f"{line}: exit code {code}\n{text}")
    return text


def rows(box, line):
    return [row.split(",") for row in do(box, line + " --format=csv,noheader").splitlines()]


def through(box, server, name="", **more):
    """The environment of a program that comes through a namespace's socket."""
    directory = box.pipe / server / name if name else box.pipe / server
    return {"CUDA_MPS_PIPE_DIRECTORY": str(directory), **more}


# What a program could try to get more than its namespace has.
TRIES = {"OPENMPS_QOS": "latency", "OPENMPS_WEIGHT": "100", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=32G,7=1G,GPU-1=9G",
         "OPENMPS_GROUP": "default", "CUDA_MPS_CLIENT_PRIORITY": "0"}


def told_sms(box, env):
    out = finish(box.start(["drv_sm_share"], env), "a member")
    words = [line for line in out.splitlines() if line.startswith("# told")][-1].split()
    require(int(words[2]) == len(words[4:]), f"it is told another number of SMs than it runs on: {words}")
    return int(words[2])


def part(box, percentage):
    """The SMs that a percentage of the first device is: whole chunks."""
    described = json.loads(box.control("device_query --json")[1])[0]
    return described["sms"] * percentage // 100 // described["chunk_sms"] * described["chunk_sms"] if percentage < 100 \
        else described["sms"]


def namespace_limits(box, _):
    """Who comes through a namespace's socket has its limits with the others there, whatever its environment says;
    they change while it runs, outlive daemon and server, and end with the namespace."""
    box.start_daemon()
    do(box, "server create shared")
    do(box, "namespace create pod --server=shared --active-thread-percentage=25 --pinned-memory-limit=64M")
    do(box, "namespace create big --server=shared")
    sms = part(box, 100)
    quarter, half = part(box, 25), part(box, 50)
    pod = through(box, "shared", "pod")
    require(told_sms(box, pod) == quarter and told_sms(box, {**pod, **TRIES}) == quarter, "the door's limit does not hold")
    require(told_sms(box, through(box, "shared", "big")) == sms, "a namespace without limits has some")
    require(told_sms(box, through(box, "shared")) == sms == told_sms(box, through(box, "shared", "default")), "default")
    require(told_sms(box, {**pod, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "13"}) <= quarter, "its own limit is lost")

    first, second = Taker(box, **pod, **TRIES), Taker(box, **pod)
    beside = Taker(box, **through(box, "shared", "big"))
    first.expect(("take 40", "ok"))
    second.expect(("free", "24 of 64"), ("take 26", "out of memory"), ("take 24", "ok"))
    beside.expect(("take 128", "ok"))
    qualities = {client["quality"] for client in json.loads(box.control("ps --json")[1])}
    require(qualities == {"normal"}, f"a program has made itself {qualities}")
    listed = {row[0]: (row[1], row[3].split()[0]) for row in rows(box, "client list")}
    require(listed == {str(first.child.pid): ("shared", "shared/pod"), str(second.child.pid): ("shared", "shared/pod"),
                       str(beside.child.pid): ("shared", "shared/big")}, f"client list shows {listed}")
    # Live: more for those that are there.
    do(box, "namespace set pod --server=shared --pinned-memory-limit=80M --active-thread-percentage=50")
    require(wait_until(lambda: second.say("free") == "16 of 80", SETTLE_LIMIT_S), "the new limit is not in force")
    # One that is killed leaves its part to the others.
    first.child.kill()
    first.child.wait()
    require(wait_until(lambda: second.say("take 40") == "ok", SETTLE_LIMIT_S), "what a killed member had is lost")

    # The daemon is killed: members go on, the next daemon knows all, and the directory is the same one.
    before = (os.stat(box.pipe / "shared/pod").st_ino, rows(box, "namespace list"), rows(box, "server list"))
    kill_daemon(box)
    second.expect(("give", "ok"), ("take 4", "ok"))
    box.start_daemon()
    require(wait_until(lambda: rows(box, "server list") == before[2], SETTLE_LIMIT_S), "the server is not back")
    require((os.stat(box.pipe / "shared/pod").st_ino, rows(box, "namespace list")) == before[:2], "another door")
    third = Taker(box, **pod, **TRIES)
    require(third.say("free").endswith(" of 80"), third.say("free"))
    require(told_sms(box, pod) == half, "the limit is not the one that was set")
    for taker in (third, beside):
        taker.end()
    # The server's process is killed: the next one has the limits, too.
    second.child.kill()
    second.child.wait()
    os.kill(int(before[2][0][2]), signal.SIGKILL)
    # A client that comes before the daemon has noticed is given to the dead server.
    require(wait_until(lambda: before[2][0][2] not in box.control("get_server_list")[1].split(), SETTLE_LIMIT_S),
            "the killed server is still there")
    require(told_sms(box, pod) == half, "the next server does not know the limit")

    last = Taker(box, **pod)
    code, text = say(box, "namespace delete pod --server=shared")
    require(code == 1 and "has 1 clients" in text and told_sms(box, pod) == half, text)
    code, text = say(box, "server delete shared")
    require(code == 1 and "has 1 clients" in text, text)
    do(box, "namespace delete pod --server=shared --force")
    require(not (box.pipe / "shared/pod").exists(), "the directory is left")
    last.child.stdin.close()
    last.child.wait()
    require(last.child.returncode != 0, "a client has outlived its namespace")
    do(box, "server delete shared")
    require(not (box.pipe / "shared").exists() and rows(box, "server list") == [], "the server is left")
    box.quit()
    require(list(box.pipe.iterdir()) == [], f"left: {list(box.pipe.iterdir())}")


def namespace_users(box, _):
    """A door is for its server's user, for the user that it is made for, or, with -m, for everybody; others are
    refused, see nothing of it and change nothing."""
    if os.geteuid() != 0:
        raise Skipped("only root's daemon serves several users")
    box.share_build()
    box.env.pop("SOFTGPU_DEVICE", None)  # a simulated device belongs to one user
    box.start_daemon(options=["-m"])
    do(box, "server create open")
    do(box, f"namespace create theirs --server=open --uid={OTHER} --sm-count=2")
    do(box, f"server create own --uid={OTHER}")

    def outcome(user, env):
        child = box.start(["drv_sm_share"], env, **as_user(user))
        out, err = child.communicate(timeout=CLIENT_LIMIT_S)
        return child.returncode, out + err

    for user, server, name, may in ((OTHER, "open", "", True), (THIRD, "open", "", True), (OTHER, "open", "theirs", True),
                                    (THIRD, "open", "theirs", False), (0, "open", "theirs", True),
                                    (OTHER, "own", "", True), (THIRD, "own", "", False), (0, "own", "", True)):
        code, text = outcome(user, through(box, server, name))
        require((code == 0) == may, f"user {user} at {server}/{name}: {code}\n{text}")
    # A device is the same one for all users.
    do(box, f"server create part --uid={OTHER} --allowed-devices=0")
    code, text = outcome(OTHER, through(box, "part"))
    require(code == 0, f"user {OTHER} at a server with the device 0: {code}\n{text}")
    do(box, "server delete part --force")
    owners = {path: (box.pipe / path / "openmps.control").stat() for path in ("open", "open/theirs", "own/default")}
    require([(owners[path].st_uid, owners[path].st_mode & 0o777) for path in owners] ==
            [(0, 0o666), (OTHER, 0o600), (OTHER, 0o600)], f"{owners}")
    for path in ("open", "open/theirs", "own", "own/default"):
        info = (box.pipe / path).stat()
        require((info.st_uid, info.st_mode & 0o777) == (0, 0o755), f"{path}: {info}")

    # Reading: each user its own.
    def seen(user, line, env=None):
        code, text = say(box, line + " --format=csv,noheader", env, as_user(user))
        require(code == 0, text)
        return [row.split(",")[0] for row in text.splitlines()]
    require(seen(0, "server list") == ["open", "own"], str(seen(0, "server list")))
    require(seen(THIRD, "server list") == ["open"], str(seen(THIRD, "server list")))
    require(seen(THIRD, "namespace list") == ["default"], str(seen(THIRD, "namespace list")))
    require(seen(OTHER, "namespace list") == ["default", "theirs", "default"], str(seen(OTHER, "namespace list")))
    held = box.start(["drv_client_worker", "1", "3", "hold"], through(box, "open", "theirs"), stdin=subprocess.PIPE,
                     **as_user(OTHER))
    ready(held)
    require(seen(THIRD, "client list") == [] and seen(OTHER, "client list") == [str(held.pid)], "client list")
    # Whoever has a door, root included, sees that namespace and changes nothing.
    door = through(box, "open", "theirs")
    require(seen(0, "namespace list", door) == ["theirs"] and seen(0, "client list", door) == [str(held.pid)], "by door")
    shown = subprocess.run([box.resolve(NAME)], input="ps\n", env={**box.service_env(), **through(box, "open")},
                           text=True, capture_output=True, check=False, timeout=CLIENT_LIMIT_S).stdout
    require(str(held.pid) not in shown, f"ps by the door of default shows\n{shown}")
    for line in ("namespace set theirs --server=open --sm-count=8", "server delete open --force", "server create more",
                 "sm-partition create p --server=open --device=0 --chunks=1", f"client terminate {held.pid}", "quit",
                 "set_default_active_thread_percentage 10", "get_server_list", "reload"):
        code, text = say(box, line, door)
        require(code == 1 and ("Insufficient privileges" in text or "Permission denied" in text), f"{line}: {code} {text}")
    # Changing: the owner's and root's.
    for user, line, may in ((THIRD, "namespace set default --server=own --sm-count=2", False),
                            (OTHER, "namespace set default --server=own --sm-count=2", True),
                            (OTHER, "namespace set theirs --server=open --sm-count=4", False),
                            (THIRD, f"server create mine --uid={OTHER}", False)):
        code, text = say(box, line, user=as_user(user))
        require((code == 0) == may and (may or f"Insufficient privileges for UID {user}." in text), f"{line}: {text}")
    tell(held)
    finish(held, "the client that was held")
    box.quit()


def namespace_pids(box, _):
    """A daemon in a PID namespace of its own, which sees no PID of its clients: a door's limits hold all the same."""
    if os.geteuid() != 0:
        raise Skipped("only root can make a PID namespace")
    daemon = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", box.resolve(NAME), "-f"],
                              env=box.service_env(), cwd=box.tmp, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: box.control("whoami")[0] == 0 or daemon.poll() is not None, SETTLE_LIMIT_S)
        if daemon.poll() is not None:
            raise Skipped("no PID namespace can be made here")
        do(box, "server create shared")
        do(box, "namespace create pod --server=shared --sm-count=2 --pinned-memory-limit=64M")
        pod = through(box, "shared", "pod")
        require(told_sms(box, {**pod, **TRIES}) == 2, "the limit of SMs does not hold")
        first, second = Taker(box, **pod), Taker(box, **pod)
        first.expect(("take 40", "ok"))
        second.expect(("take 26", "out of memory"), ("take 24", "ok"))
        names = [row[0] for row in rows(box, "client list")]
        require(len(names) == 2 and all(name.startswith("id:") for name in names), f"clients {names}")
        first.child.kill()
        first.child.wait()
        require(wait_until(lambda: second.say("take 40") == "ok", SETTLE_LIMIT_S), "what a killed member had is lost")
        do(box, f"client terminate {rows(box, 'client list')[0][0]}")
        second.child.stdin.close()
        require(second.child.wait() != 0, "a terminated client goes on")
        box.quit()
        require(daemon.wait(SETTLE_LIMIT_S) == 0, f"the daemon ended with {daemon.returncode}")
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def namespace_storm(box, _):
    """Many programs of one namespace start at once, as of a fork bomb, and are killed: together they never have more
    than it has, another namespace works meanwhile, and afterwards nothing of them is left."""
    box.start_daemon()
    do(box, "server create shared")
    do(box, "namespace create pod --server=shared --pinned-memory-limit=64M --sm-count=2")
    pod = through(box, "shared", "pod")
    beside = Taker(box, **through(box, "shared"))
    storm = [Taker(box, **pod, **TRIES) for _ in range(24)]
    taken = 0
    for taker in storm:
        while taker.say("take 4") == "ok":
            taken += 4
    require(taken == 64, f"{taken} MiB of 64")
    beside.expect(("take 256", "ok"), ("give", "ok"))
    for taker in storm:
        taker.child.kill()
    for taker in storm:
        taker.child.wait()
    last = Taker(box, **pod)
    require(wait_until(lambda: last.say("free") == "64 of 64", SETTLE_LIMIT_S), last.say("free"))
    last.expect(("take 64", "ok"))
    last.end()
    beside.end()
    box.quit()


def namespace_borrows(box, _):
    """A namespace that borrows has all SMs while nobody else has work, and its own part while somebody has; one that
    does not borrow keeps to its part; both change while programs run."""
    box.start_daemon()
    do(box, "server create s")
    do(box, "namespace create few --server=s --active-thread-percentage=25 --borrow-sms=true")
    first = LiveSms(box, through(box, "s", "few"))

    def settles_at(program, sms, what):
        require(wait_until(lambda: len(program.sms) == sms, SETTLE_LIMIT_S), f"{what}: on {sorted(program.sms)}")
    settles_at(first, part(box, 100), "it does not borrow beside nobody")
    # The program takes it for wrong to run on more SMs than it is told of, as it does while they borrow.
    out = box.run(["drv_sm_share"], CLIENT_LIMIT_S, through(box, "s", "few"))[1]
    told = [line for line in out.splitlines() if line.startswith("# told")][-1].split()
    require(int(told[2]) == part(box, 25), f"it is told another number than that of its own part: {told}")
    # A kernel that runs until it is told: on a busy machine others may have no work for 20 ms, and lend.
    other = box.start(["drv_neighbour", "kernel"], through(box, "s"), stdin=subprocess.PIPE)
    settles_at(first, part(box, 25), "it keeps what it has borrowed")
    # Not once more while the other has work: rounds after the first one with its own part.
    until = first.rounds + 20
    begun = len(first.history)
    require(wait_until(lambda: first.rounds >= until, SETTLE_LIMIT_S), "it does not continue")
    most = max(found for _, found in first.history[begun:])
    require(most <= part(box, 25), f"{most} SMs beside another's work")
    tell(other)
    finish(other, "the other")
    settles_at(first, part(box, 100), "it does not borrow again")
    do(box, "namespace set few --server=s --borrow-sms=false")
    settles_at(first, part(box, 25), "it borrows without being allowed to")
    do(box, "namespace set few --server=s --borrow-sms=true --active-thread-percentage=50")
    settles_at(first, part(box, 100), "it does not borrow with the new part")
    other = LiveSms(box, through(box, "s"))
    settles_at(first, part(box, 50), "it does not return to the new part")
    other.end()
    first.end()
    box.quit()


CGROUPS = "/sys/fs/cgroup"


def make_cgroup(box):
    """A cgroup of the test's, its path below the mount and its directory; None: none can be made here."""
    for root in (CGROUPS, f"{CGROUPS}/unified", f"{CGROUPS}/pids", f"{CGROUPS}/freezer"):
        directory = f"{root}/openmps-{box.mark}"
        try:
            os.mkdir(directory)
        except OSError:
            continue
        if os.path.exists(f"{directory}/cgroup.procs"):
            return directory
        os.rmdir(directory)
    return None


def namespace_cgroups(box, _):
    """Clients of the main socket get into the namespace of their cgroup, as deep as it says; others into their
    user's server."""
    directory = make_cgroup(box)
    if directory is None:
        raise Skipped("no cgroup can be made here")
    try:
        below = f"{directory}/below"
        os.makedirs(f"{below}/deep")
        pattern = f"{CGROUPS}/openmps-{box.mark}"  # /proc/PID/cgroup has paths without the hierarchy's directory
        box.start_daemon(config=f'[servers.shared.namespaces.job]\nsm_count = {{"*" = 2}}\ncgroup = "{pattern}"\n'
                                "cgroup_depth = 1\n")

        def held(cgroup):
            def enter():
                with open(f"{cgroup}/cgroup.procs", "w", encoding="utf-8") as procs:
                    procs.write("0")
            child = box.start(["drv_client_worker", "1", "3", "hold"], stdin=subprocess.PIPE,
                              **({"preexec_fn": enter} if cgroup else {}))
            ready(child)
            return child

        wanted = []
        for cgroup, place in ((directory, "shared/job"), (below, "shared/job"),
                              (f"{below}/deep", f"uid_{os.geteuid()}/default"), (None, f"uid_{os.geteuid()}/default")):
            wanted.append((held(cgroup), place))
        places = {row[0]: row[3].split()[0] for row in rows(box, "client list")}
        require(places == {str(child.pid): place for child, place in wanted}, f"client list shows {places}")
        for child, _ in wanted:
            tell(child)
            finish(child, "a held client")
        box.quit()
    finally:
        for path in (f"{below}/deep", below, directory):
            wait_until(lambda: not remove(path), SETTLE_LIMIT_S)


def remove(path):
    """Whether the cgroup is still there."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


# The command line of the interface v3, each verb well and wrong: (command, exit code, what the output is by a regular
# expression). GPU is the device's UUID.
WORD = r"\S+"
TRANSCRIPT = (
    ("server create training", 0, ""),
    ("server create training", 1, r"Error: server 'training' already exists\n"),
    ("server create", 1, "Error: a name or --uid is required\n"),
    ("server create no.name", 1, r'Error: "no\.name" is no name of a server: .*\n'),
    ("server create far --allowed-devices=9", 1, "Error: there is no device '9', only these 1: 0 GPU\n"),
    ("server create near --allowed-devices=GPU", 0, ""),
    ("server list", 0, r'NAME +UID +PID +STATUS +"PIPE DIRECTORY" +"ALLOWED DEVICES" +"CONTEXT IDS"\n'
                       r"near +\d+ +\d+ +Ready +\S+/near +GPU +-\ntraining +\d+ +\d+ +Ready +\S+/training +all +-\n"),
    ("server list training --format=csv", 0, r"NAME,UID,PID,STATUS,PIPE DIRECTORY,ALLOWED DEVICES,CONTEXT IDS\n"
                                             r"training,\d+,\d+,Ready,/\S+/training,all,-\n"),
    ("server list nobody", 1, "Error: server 'nobody' does not exist\n"),
    ("server list --format=xml", 1, "Error: unknown format 'xml': .*\n"),
    ("server get training status", 0, "Ready\n"),
    ("server get near allowed-devices", 0, "GPU\n"),
    ("server get training colour", 1, "Error: unknown field 'colour': .*\n"),
    ("server set training --active-thread-percentage=50", 0, ""),
    ("server set training --active-thread-percentage=101", 1,
     "Error: --active-thread-percentage=101: expected a number above 0, up to 100, or none\n"),
    ("server set training", 1, "Error: nothing to set; .*\n"),
    ("server set nobody --client-priority=1", 1, "Error: server 'nobody' does not exist\n"),
    ("namespace create high_priority --server=training", 0, ""),
    ("namespace create high_priority --server=training", 1,
     "Error: namespace 'high_priority' already exists on server 'training'\n"),
    ("namespace create alone", 1, "Error: --server=<name> is required\n"),
    ("namespace create " + 65 * "x" + " --server=training", 1, 'Error: "x+" is no name of a namespace: .*\n'),
    ("namespace set high_priority --server=training --pinned-memory-limit=4G --client-priority=1", 0, ""),
    ("namespace set high_priority --server=training --pinned-memory-limit=4", 1,
     "Error: --pinned-memory-limit=4: expected a size .*\n"),
    ("namespace get high_priority training pinned-memory-limit", 0, "4G\n"),
    ("namespace get high_priority training colour", 1, "Error: unknown field 'colour': .*\n"),
    ("namespace get nobody training name", 1, "Error: namespace 'nobody' does not exist on server 'training'\n"),
    ("namespace list --server=training --format=csv,noheader", 0,
     r"default,training,Ready,-,50\.00,-,\S+/training/default\n"
     r"high_priority,training,Ready,4G,-,1,\S+/training/high_priority\n"),
    ("namespace list --server=nobody", 1, "Error: server 'nobody' does not exist\n"),
    ("namespace list nobody", 1, "Error: namespace 'nobody' does not exist\n"),
    ("namespace delete default --server=training", 1, "Error: namespace 'default' is there as long as its server\n"),
    ("namespace delete nobody --server=training", 1, "Error: namespace 'nobody' does not exist on server 'training'\n"),
    ("device list --format=csv", 0, "ORDINAL,SERVER,PCI ID,DEVICE UUID,NAME,TOTAL SMS,TOTAL CHUNKS,ATTRIBUTES\n"
                                    r"0,-,[0-9a-f:.]+,GPU,.*,\d+,\d+,-\n"),
    ("device list --server=near --format=csv,noheader", 0, "0,near,.*\n"),
    ("device list --server=nobody", 1, "Error: server 'nobody' does not exist\n"),
    ("sm-partition create large --server=training --device=0 --chunks=2", 0,
     r"SM partition 'large' created on device GPU \(sm-count=\d+\)\nCUDA_MPS_SM_PARTITION=GPU/\S+\n"),
    ("sm-partition create large --server=training --device=0 --chunks=1", 1, "Error: partition .* is there already\n"),
    ("sm-partition create huge --server=training --device=0 --chunks=99", 1, "Error: there are no 99 chunks free\n"),
    ("sm-partition create none --server=training --device=0 --chunks=0", 1, "Error: --chunks=0: expected a number, .*\n"),
    ("sm-partition create p --server=training --device=8 --chunks=1", 1, "Error: there is no device '8'; .*\n"),
    ("sm-partition list --all --format=csv", 0,
     r"SERVER,DEVICE,NAME,CHUNKS,SM COUNT,INCLUDE REMAINDER,STATUS,VISIBLE UUID\n"
     r"training,GPU,large,2,\d+,false,created,GPU/\S+\n-,GPU,-,\d+,\d+,false,unallocated,-\n"),
    ("sm-partition delete small --server=training --device=0", 1,
     "Error: SM partition 'small' does not exist on device GPU\n"),
    ("sm-partition delete large --server=training --device=0", 0, "SM partition 'large' deleted from device GPU\n"),
    ("client list", 0, 'PID +SERVER +DEVICE +"MAWS NS" +CMD\n'),
    ("client list --server=nobody", 1, "Error: server 'nobody' does not exist\n"),
    ("client get 1 cmd", 1, "Error: client '1' does not exist\n"),
    ("client terminate 1", 1, "Error: client '1' does not exist\n"),
    ("feature describe --format=csv", 0, "FEATURE,STATE,MODULE,COVERS\nmemacct,enabled \\(default\\),memacct,.*\n"
                                         "context-share,enabled \\(default\\),context-share,.*\n"),
    ("feature enable memacct", 0, ""),
    ("feature disable memacct", 1, "Error: memacct is always on in OpenMPS\n"),
    ("feature enable colour", 1, "Error: unknown feature 'colour': memacct, context-share\n"),
    ("memacct set audit_log=true", 0, ""),
    ("memacct set audit_log=maybe", 1, "Error: audit_log=maybe: expected true or false\n"),
    ("memacct describe --format=csv,noheader", 0, "audit_log,true\n"),
    ("context-share set default_socket=off", 0, ""),
    ("context-share set default_socket=maybe", 1, "Error: default_socket=maybe: expected on or off\n"),
    ("context-share describe --format=csv,noheader", 0, "default_socket,off\n"),
    ("server frobnicate", 1, "Error: module 'server' has no verb 'frobnicate'; see 'server help'\n"),
    ("server list --colour=red", 1, "Error: unknown option '--colour=red'; see 'server list help'\n"),
    ("server list one two", 1, "Error: unexpected argument 'two'; see 'server list help'\n"),
    ("namespace", 1, "namespace: .*\n(.*\n)+"),
    ("namespace help", 0, "namespace: .*\n(.*\n)+"),
    ("namespace create help", 0, "namespace create <name>: .*\n(.*\n)+"),
    ("server delete near", 0, ""),
    ("server delete near", 1, "Error: server 'near' does not exist\n"),
    ("get_default_active_thread_percentage", 0, r"100\.0\n"),  # the commands of v2 on the same daemon
    ("server delete training --force", 0, ""),
)


def v3_commands(box, _):
    """Each verb of the interface v3, well and wrong, with -p 3 and without; a name too long for a socket's path says
    so with the number; tables cut nothing."""
    box.start_daemon()
    gpu = rows(box, "device list")[0][3]
    for line, wanted_code, wanted in TRANSCRIPT:
        command = ("-p 3 " if "_" not in line.split()[0] else "") + line.replace("GPU", gpu)
        code, text = say(box, command)
        right = code == wanted_code and re.fullmatch(wanted.replace("GPU", re.escape(gpu)), text)
        require(right, f"{command}: exit code {code}, expected {wanted_code} and\n{wanted}\nthe output is\n{text}")
    do(box, "server create s")
    most = 107 - len(str(box.pipe / "s" / "openmps.control")) - 1
    if most < 64:
        do(box, f"namespace create {most * 'n'} --server=s")
        code, text = say(box, f"namespace create {(most + 1) * 'n'} --server=s")
        require(code == 1 and "has 108 bytes, the system allows 107" in text, text)
    require("NAME" not in do(box, "namespace list --format=table,noheader"), "noheader")
    require([row["name"] for row in json.loads(do(box, "server list --format=json"))] == ["s"], "json")
    code, text = say(box, "-p 3 --help")
    require(code == 0 and all(f"\n  {module} " in text for module in ("server", "namespace", "client", "sm-partition")), text)
    code, text = say(box, "-p 3 -q")
    require((code, text) == (0, "") and wait_until(lambda: not box.pids_named(NAME), SETTLE_LIMIT_S), f"-q: {text}")


# As a Kubernetes driver writes it: memory accounting with its log, only clients of doors share a context.
DRIVERS_FILE = """
schema_version = "1.0"
[features.memacct]
enabled = true
audit_log = true
[features.context-share]
enabled = true
default_socket = "off"
[servers.shared]
"""


def v3_driver(box, _):
    """What a driver for Kubernetes does with the interface v3: a daemon in the foreground that its standard input ends,
    a namespace for each container, its clients listed and terminated, the namespace deleted; a reloaded file."""
    multiuser = ["-m"] if os.geteuid() == 0 else []
    config = box.config()
    config.write_text(DRIVERS_FILE)
    daemon = subprocess.Popen([box.resolve(NAME), "-p", "3", *multiuser, "-f", "-a", str(config)], text=True,
                              env=box.service_env(), cwd=box.tmp, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        first = daemon.stdout.readline()
        require(first == f"To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY={box.pipe}\n", first)
        is_up = lambda: say(box, "-p 3 server get shared status") == (0, "Ready\n")
        require(wait_until(is_up, SETTLE_LIMIT_S), "the configured server does not start")
        for name, memory in (("pod_a", "64M"), ("pod_b", "128M")):
            do(box, f"-p 3 namespace create {name} --server=shared")
            do(box, f"-p 3 namespace set {name} --server=shared --pinned-memory-limit={memory} "
                    "--active-thread-percentage=50")
        one, other = Taker(box, **through(box, "shared", "pod_a")), Taker(box, **through(box, "shared", "pod_b"))
        one.expect(("free", "64 of 64"))
        other.expect(("free", "128 of 128"), ("take 100", "ok"))
        lines = do(box, "-p 3 client list --format=csv,noheader").splitlines()
        wanted = rf"{one.child.pid},shared,GPU-[0-9a-f-]+,shared/pod_a \(\d+\),\S*drv_group_memory"
        require(len(lines) == 2 and any(re.fullmatch(wanted, line) for line in lines), f"{wanted}\n{lines}")
        require(say(box, "-p 3 namespace delete pod_a --server=shared")[0] != 0, "a namespace with a client is deleted")
        began = time.monotonic()
        do(box, f"-p 3 client terminate {one.child.pid}")
        require(time.monotonic() - began < SETTLE_LIMIT_S, "terminate takes too long")
        one.child.stdin.close()
        require(one.child.wait() != 0, "a terminated client goes on")
        do(box, "-p 3 namespace delete pod_a --server=shared")
        other.expect(("take 20", "ok"), ("take 20", "out of memory"))
        # The file again, with other limits and one namespace more.
        config.write_text(DRIVERS_FILE + 'pinned_memory_limit = "32M"\n[servers.shared.namespaces.pod_c]\n'
                                         'active_thread_percentage = "25"\n')
        text = do(box, "reload")
        require("namespace pod_c of server shared is there from now on" in text and
                "namespace default of server shared device_pinned_mem_limit of each device: none -> 32M" in text, text)
        require(told_sms(box, through(box, "shared", "pod_c")) == part(box, 25), "pod_c")
        config.write_text(DRIVERS_FILE + "colour = 1\n")
        code, text = say(box, "reload")
        require(code == 1 and 'unknown key "colour"' in text and "Nothing is changed" in text, text)
        other.end()
        daemon.stdin.write("quit\n")
        daemon.stdin.flush()
        require(daemon.wait(SETTLE_LIMIT_S) == 0, f"the daemon ended with {daemon.returncode}")
        # The directories of what the file describes stay, empty, for those who have them mounted.
        left = sorted(str(path.relative_to(box.pipe)) for path in box.pipe.rglob("*"))
        require(left == ["shared", "shared/default", "shared/pod_c"], f"left: {left}")
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def v3_partitions(box, _):
    """Partitions of a server: a client runs in the one that it names or that its namespace has, and gets into none that
    is not its server's, not its namespace's, or larger than its namespace's share."""
    box.start_daemon()
    do(box, "server create s")
    do(box, "server create t")
    chunk = json.loads(box.control("device_query --json")[1])[0]["chunk_sms"]
    named = {}
    for name, chunks in (("small", 1), ("large", 2)):
        text = do(box, f"sm-partition create {name} --server=s --device=0 --chunks={chunks}")
        named[name] = re.search("CUDA_MPS_SM_PARTITION=(.*)", text)[1]
    do(box, f"namespace create tight --server=s --sm-count={chunk}")

    def sms(server, namespace, partition):
        env = through(box, server, namespace, **({"CUDA_MPS_SM_PARTITION": partition} if partition else {}))
        child = box.start(["drv_sm_share"], env)
        out = child.communicate(timeout=CLIENT_LIMIT_S)[0]
        words = [line for line in out.splitlines() if line.startswith("# told")]
        return int(words[-1].split()[2]) if child.returncode == 0 and words else None

    for server, namespace, partition, wanted in (
            ("s", "", named["small"], chunk), ("s", "", named["large"], 2 * chunk), ("s", "", "large", 2 * chunk),
            ("t", "", named["small"], None), ("s", "tight", named["small"], chunk), ("s", "tight", named["large"], None),
            ("s", "", "nothing", None)):
        got = sms(server, namespace, partition)
        require(got == wanted, f"{server}/{namespace} in {partition}: {got} SMs, expected {wanted}")
    uuid = named["large"].split("/")[0]
    for wrong in ("large", "0=large", f"{uuid}=", f"{uuid}=a.b", f"{uuid}=large,"[:-1] + ",x"):
        code, text = say(box, f"namespace create own --server=s --sm-partitions={wrong}")
        require(code == 1 and "expected partitions by device" in text, f"{wrong}: {text}")
    do(box, f"namespace create own --server=s --sm-partitions={uuid}=large")
    require(sms("s", "own", "") == 2 * chunk, "a namespace's partition is not that of its clients")
    require(sms("s", "", named["large"]) is None, "others get into a namespace's partition")
    do(box, "namespace delete own --server=s")
    held = LiveSms(box, through(box, "s", "", CUDA_MPS_SM_PARTITION=named["small"]))
    require(wait_until(lambda: held.rounds > 2, SETTLE_LIMIT_S), "it does not begin")
    code, text = say(box, "sm-partition delete small --server=s --device=0")
    require(code == 1 and "has clients" in text, text)
    kill_daemon(box)
    box.start_daemon()
    require(sms("s", "", named["large"]) == 2 * chunk, "the next daemon does not know the partition")
    held.end()
    delete_after_clients(box, "sm-partition delete small --server=s --device=0")
    box.quit()


def delete_after_clients(box, line):
    """The server learns that a client's process has ended a moment after others do."""
    require(wait_until(lambda: say(box, line)[0] == 0, SETTLE_LIMIT_S), f"{line}: {say(box, line)}")


def create_partition(box, name, server, device, options):
    """The value of CUDA_MPS_SM_PARTITION for a new partition."""
    text = do(box, f"sm-partition create {name} --server={server} --device={device} {options}")
    return re.search("CUDA_MPS_SM_PARTITION=(.*)", text)[1]


def v3_shareable(box, _):
    """A shareable partition grows, up to its max-chunks, by what others lend while their clients have no work, and has its
    own part while they have; one that is not shareable neither lends nor borrows."""
    box.env["SOFTGPU_SMS"] = "13"  # six chunks, and one SM in none
    box.start_daemon()
    do(box, "server create s")
    device = json.loads(box.control("device_query --json")[1])[0]
    chunk, rest = device["chunk_sms"], device["chunks"] - 4
    in_no_chunk = device["sms"] - device["chunks"] * chunk
    for options, fault in (("--chunks=2 --max-chunks=4", "for a shareable partition only"),
                           ("--chunks=2 --shareable --max-chunks=1", "is less than the 2 chunks"),
                           (f"--chunks=2 --shareable --max-chunks={rest + 5}", f"more than the {rest + 4} chunks"),
                           ("--chunks=2 --shareable=perhaps", "expected true or false"),
                           ("--chunks=2 --shareable --max-chunks=x", "expected a number")):
        code, text = say(box, "sm-partition create wrong --server=s --device=0 " + options)
        require(code == 1 and fault in text, f"{options}: {text}")
    names = {name: create_partition(box, name, "s", 0, options)
             for name, options in (("grows", "--chunks=2 --shareable --max-chunks=4"),
                                   ("lends", "--chunks=2 --shareable=true"), ("alone", f"--chunks={rest}"))}

    def listed():
        return [(row["name"], row["chunks"], row["shareable"], row["max-chunks"])
                for row in json.loads(do(box, "sm-partition list --format=json"))]
    shown = [("grows", "2", "true", "4"), ("lends", "2", "true", "2"), ("alone", str(rest), "false", str(rest))]
    require(listed() == shown, f"the list shows {listed()}")
    require(do(box, "sm-partition list --fields=max-chunks,name --format=csv").splitlines()[:2] ==
            ["MAX CHUNKS,NAME", "4,grows"], "--fields")

    def env(name):
        return through(box, "s", "", CUDA_MPS_SM_PARTITION=names[name])

    def settles_at(program, chunks, what):
        require(wait_until(lambda: len(program.sms) == chunks * chunk, SETTLE_LIMIT_S), f"{what}: on {sorted(program.sms)}")
    alone, first = LiveSms(box, env("alone")), LiveSms(box, env("grows"))
    settles_at(first, 4, "it does not grow beside an empty partition")
    # The program takes it for wrong to run on more SMs than it is told of, as it does while its partition borrows.
    out = box.run(["drv_sm_share"], CLIENT_LIMIT_S, env("grows"))[1]
    told = [line for line in out.splitlines() if line.startswith("# told")][-1].split()
    require(int(told[2]) == 2 * chunk, f"it is told another number than that of its own chunks: {told}")

    other = LiveSms(box, env("lends"))
    settles_at(first, 2, "it keeps what was lent")
    settles_at(other, 2, "what was lent is not given back")
    until, begun = first.rounds + 20, len(first.history)
    require(wait_until(lambda: first.rounds >= until, SETTLE_LIMIT_S), "it does not continue")
    most = max(found for _, found in first.history[begun:])
    require(most <= 2 * chunk and not first.sms & other.sms, f"{most} SMs beside the other's work")
    kill_daemon(box)
    box.start_daemon()
    require(listed() == shown, f"the next daemon shows {listed()}")
    lent = set(other.sms)
    other.end()
    settles_at(first, 4, "it does not grow again")
    # The other is there, works, and idles.
    begun = len(first.history)
    held = box.start(["drv_client_worker", "1", "3", "hold"], env("lends"), stdin=subprocess.PIPE)
    ready(held)
    require(wait_until(lambda: any(found <= 2 * chunk for _, found in first.history[begun:]), SETTLE_LIMIT_S),
            "it keeps what was lent while the other begins")
    require(wait_until(lambda: lent < first.sms, SETTLE_LIMIT_S), f"{first.sms} without {lent}, which idle")
    require(max(found for _, found in alone.history) == len(alone.sms) == rest * chunk and
            max(found for _, found in first.history) == 4 * chunk and not alone.sms & first.sms,
            f"{alone.sms} alone, {first.sms}")
    # Programs of no partition have what is lent, too, beside what is in no partition.
    free, own = set(alone.sms), first.sms - lent
    alone.end()
    delete_after_clients(box, "sm-partition delete alone --server=s --device=0")
    outside = LiveSms(box, through(box, "s"))

    def is_outside_on(wanted):
        found = set(outside.sms)
        return found >= wanted and len(found) == len(wanted) + in_no_chunk and not found & (own | (lent - wanted))
    require(wait_until(lambda: is_outside_on(free | lent), SETTLE_LIMIT_S),
            f"outside: {outside.sms} of {lent}, {free}; own {own}")
    require(wait_until(lambda: len(first.sms) == 4 * chunk and not first.sms & free, SETTLE_LIMIT_S),
            f"{first.sms} beside work outside")
    other = LiveSms(box, env("lends"))
    settles_at(first, 2, "it keeps what was lent to two")
    require(wait_until(lambda: is_outside_on(free), SETTLE_LIMIT_S), f"outside: {outside.sms} of {free}")
    require(wait_until(lambda: other.sms == lent, SETTLE_LIMIT_S), f"{other.sms} of {lent}")
    for program in (outside, other, first):
        program.end()
    tell(held)
    finish(held, "the one that was idle")
    box.quit()


def v3_allowed_devices(box, _):
    """Partitions of a server that may use the second of two devices only: clients get their SMs there."""
    box.env["SOFTGPU_DEVICES"] = "2"
    box.start_daemon()
    devices = json.loads(box.control("device_query --json")[1])
    chunk, second = devices[1]["chunk_sms"], devices[1]["uuid"]
    do(box, f"server create near --allowed-devices={second}")
    do(box, "server create both")
    code, text = say(box, "sm-partition create far --server=near --device=0 --chunks=1")
    require(code == 1 and "is not among the devices of server 'near'" in text, text)
    names = {(server, device): create_partition(box, f"of_{server}", server, device, f"--chunks={2 + device}")
             for server, device in (("near", 1), ("both", 0))}
    names["both", 1] = create_partition(box, "second", "both", second, "--chunks=1 --shareable --max-chunks=2")
    do(box, f"namespace create pod --server=near --sm-count={2 * chunk}")
    shell = box.start(["openmps-control"], through(box, "near", "pod", LD_LIBRARY_PATH=""), stdin=subprocess.PIPE)
    seen = json.loads(shell.communicate("device_query --json\n", timeout=CLIENT_LIMIT_S)[0])
    share = {"sms": 2 * chunk, "memory_bytes": devices[1]["memory_bytes"]}
    require(seen == [{**devices[1], "share": share}], f"by the namespace's socket: {seen}")

    def place(server, partition, namespace=""):
        child = box.start(["drv_sm_share"], through(box, server, namespace, CUDA_MPS_SM_PARTITION=partition))
        out, err = child.communicate(timeout=CLIENT_LIMIT_S)
        words = [line for line in out.splitlines() if line.startswith("# told")]
        return len(words[-1].split()[4:]) if child.returncode == 0 else err.strip().splitlines()[-1:]
    for server, device, chunks in (("near", 1, 3), ("both", 0, 2)):
        got = place(server, names[server, device])
        require(got == chunks * chunk, f"{names[server, device]}: {got}")
    require(not isinstance(place("near", names["near", 1], "pod"), int), "it gets into one above its namespace's share")
    held = {key: LiveSms(box, through(box, key[0], "", CUDA_MPS_SM_PARTITION=name)) for key, name in names.items()}
    for (server, device), chunks in zip(names, (3, 2, 2)):
        program = held[server, device]
        require(wait_until(lambda: len(program.sms) == chunks * chunk, SETTLE_LIMIT_S), f"{server} {device}: {program.sms}")
    shown = {row["pid"]: (row["device"], row["sm_partition"]) for row in json.loads(box.control("ps --json")[1])}
    wanted = {held[key].pid(): (devices[key[1]]["uuid"], name) for key, name in names.items()}
    require(shown == wanted, f"ps shows {shown}, not {wanted}")
    for name, server in (("of_near", "near"), ("second", "both")):
        code, text = say(box, f"sm-partition delete {name} --server={server} --device=1")
        require(code == 1 and "has clients" in text, text)
    kill_daemon(box)
    box.start_daemon()
    require(wait_until(lambda: len(json.loads(box.control("ps --json")[1])) == 3, SETTLE_LIMIT_S), "clients are unknown")
    code, text = say(box, "sm-partition delete of_near --server=near --device=1")
    require(code == 1 and "has clients" in text, text)
    require(place("near", names["near", 1]) == 3 * chunk, "the next daemon does not know the partition")
    for program in held.values():
        program.end()
    delete_after_clients(box, "sm-partition delete of_near --server=near --device=1")
    box.quit()


NAMESPACES = (namespace_limits, namespace_borrows, namespace_users, namespace_pids, namespace_storm, namespace_cgroups, v3_commands, v3_driver,
              v3_partitions, v3_shareable, v3_allowed_devices)
