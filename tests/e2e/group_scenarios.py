# SPDX-License-Identifier: Apache-2.0
"""Scenarios of groups: programs that have limits together.

Called by scenarios.py, on its only thread.
"""

import json
import subprocess

from sandbox import wait_until
from scenario_tools import (SETTLE_LIMIT_S, LiveSms, finish, kill_workers, ready, require, server_of, settled, tell)

GROUPS_CONFIG = """
[[groups]]
name = "workers"
program = "drv_client_worker"
[[groups]]
name = "half"
active_thread_percentage = 50
[[groups]]
name = "pod"
device_pinned_mem_limit = {0 = "64M"}
"""
MIB = 1 << 20


def of_group(name, **more):
    return {"OPENMPS_GROUP": name, **more}


def group_list(box):
    return {group["name"]: group for group in json.loads(box.control("get_group_list --json")[1])}


def group_sms(box, _):
    """Programs of a group have one set of SMs, which other programs avoid; a change moves all members,
    holds for later members and outlives the worker; a member's own limit holds inside the set."""
    box.start_daemon(config=GROUPS_CONFIG)
    members = [LiveSms(box, of_group("half")) for _ in range(2)]
    other = LiveSms(box, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})
    everybody = [*members, other]
    begun = lambda: all(program.rounds > 2 for program in everybody)
    require(wait_until(begun, SETTLE_LIMIT_S), "a program does not begin")
    described = json.loads(box.control("device_query --json")[1])[0]
    step = described["chunk_sms"]

    def part(percentage):
        return described["sms"] * percentage // 100 // step * step

    def together():
        return members[0].sms | members[1].sms

    # Over many rounds each program is seen on SMs of the group's set only, and all of the set is used.
    seen = set()
    until = [program.rounds + 20 for program in members]

    def looked():
        seen.update(together())
        return all(program.rounds >= most for program, most in zip(members, until))
    require(wait_until(looked, SETTLE_LIMIT_S), "a program does not continue")
    require(len(seen) == part(50), f"two of a group of 50 % are on {sorted(seen)} of {described}")
    require(not seen & other.sms, f"one outside is on {sorted(other.sms)} beside {sorted(seen)}")

    small = LiveSms(box, of_group("half", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25"))
    require(wait_until(lambda: small.rounds > 2, SETTLE_LIMIT_S), "a new client does not begin")
    require(len(small.sms) == part(25) and small.sms <= seen, f"{sorted(small.sms)} of {sorted(seen)}")
    small.end()

    require(box.control("set_client_active_thread_percentage half 25") == (0, ""), "the group is not changed")
    are_fewer = lambda: all(len(program.sms) == part(25) for program in members)
    require(wait_until(are_fewer, SETTLE_LIMIT_S), f"{members[0].sms}, {members[1].sms} at 25 %")
    require(members[0].sms == members[1].sms, f"{members[0].sms} and {members[1].sms} at 25 %")
    shown = {client["pid"]: client for client in json.loads(box.control("ps --json")[1])}
    require([(shown[program.pid()]["group"], shown[program.pid()]["active_thread_percentage"])
             for program in everybody] == [("half", 25), ("half", 25), (None, 50)], f"ps shows {shown}")
    require(group_list(box)["half"]["members"] == 2, str(group_list(box)))

    def told():
        out = finish(box.start(["drv_sm_share"], of_group("half")), "a member")
        words = [line for line in out.splitlines() if line.startswith("# told")][-1].split()
        require(int(words[2]) == len(words[4:]), f"it is told another number of SMs than it runs on: {words}")
        return int(words[2])
    require(told() == part(25), "a later member is not told the group's number of SMs")
    require(box.control(f"set_client_sm_count half 0 {2 * step}") == (0, "") and told() == 2 * step, "a number of SMs")
    for program in everybody:
        program.end()
    server = server_of(box)
    settled(box, server)
    kill_workers(box)
    require(told() == 2 * step, "the next worker does not know the group")
    # The configuration file has another limit than before.
    box.config().write_text(GROUPS_CONFIG.replace("= 50", f"= 75\nsm_count = {{0 = {3 * step}}}"))
    code, text = box.control("reload")
    require(code == 0 and text == "group half active_thread_percentage: 50.0 -> 75.0\n"
            f"group half sm_count of 0: none -> {3 * step}\n" and told() == 3 * step, f"reload: {text}")
    box.quit()


class Taker:
    """A drv_group_memory: allocates and frees device memory by commands."""

    def __init__(self, box, group="", **more):
        env = of_group(group, **more) if group else more
        self.child = box.start(["drv_group_memory"], env, stdin=subprocess.PIPE)
        ready(self.child)

    def say(self, words):
        self.child.stdin.write(words + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()

    def expect(self, *pairs):
        for words, answer in pairs:
            said = self.say(words)
            require(said == answer, f"{words}: {said}, not {answer}")

    def end(self):
        self.child.stdin.close()
        require(self.child.wait() == 0, f"{self.child.args}: {self.child.stderr.read()}")


def group_memory(box, _):
    """Programs of a group have one budget of device memory, exactly, by every kind of allocation; memory that
    one frees, or has at its end, is available to the others at once."""
    box.start_daemon(config=GROUPS_CONFIG)
    first, second = Taker(box, "pod"), Taker(box, "pod")
    outside = Taker(box, "other")
    first.expect(("take 40", "ok"))
    second.expect(("free", "24 of 64"), ("take 26", "out of memory"), ("take 24", "ok"), ("take 1", "out of memory"))
    first.expect(("take 1", "out of memory"), ("free", "0 of 64"))
    outside.expect(("take 128", "ok"))
    shown = group_list(box)["pod"]
    require(shown["members"] == 2 and shown["devices"][0]["memory_bytes"] == 64 * MIB, str(shown))
    # Freed memory is available to the others when cuMemFree returns, small allocations included.
    for _ in range(20):
        first.expect(("give", "ok"))
        second.expect(("take 40", "ok"), ("take 2", "out of memory"), ("give", "ok"))
        first.expect(("take 40", "ok"))

    def change(mib):  # in force soon after the command
        command = f"set_client_device_pinned_mem_limit pod 0 {mib}M"
        require(box.control(command) == (0, ""), "the group is not changed")
        require(wait_until(lambda: second.say("free").endswith(f" of {mib}"), SETTLE_LIMIT_S), f"{command}: not in force")

    change(80)
    second.expect(("take 16", "ok"), ("take 1", "out of memory"))
    change(32)
    second.expect(("free", "0 of 32"), ("give", "ok"), ("take 1", "out of memory"))
    change(64)
    second.expect(("take 1", "out of memory"))
    first.child.kill()
    first.child.wait()
    require(wait_until(lambda: second.say("take 40") == "ok", SETTLE_LIMIT_S), "the memory of a killed member is not available")
    second.expect(("take 1", "out of memory"))
    second.end()
    outside.end()
    settled(box, server_of(box))
    # The group's limit applies to every kind of allocation.
    finish(box.start(["drv_memory_limit", "paths"], of_group("pod")), "one in a group")
    settled(box, server_of(box))
    require(group_list(box)["pod"]["devices"][0]["memory_bytes"] == 0, str(group_list(box)))
    box.quit()


def group_rules(box, _):
    """The operator's rules decide the group of a client; OPENMPS_GROUP counts where no rule fits."""
    box.start_daemon(config=GROUPS_CONFIG)
    by_rule = box.start(["drv_client_worker", "1", "3", "hold"], of_group("pod"), stdin=subprocess.PIPE)
    ready(by_rule)
    by_word = Taker(box, "workers")  # a rule chooses the members of this group
    alone = Taker(box, "its own")  # not a valid name
    named = Taker(box, "named")

    def groups():
        return {client["pid"]: client["group"] for client in json.loads(box.control("ps --json")[1])}
    require(groups() == {by_rule.pid: "workers", by_word.child.pid: None, alone.child.pid: None,
                         named.child.pid: "named"}, f"ps shows {groups()}")
    require(box.control("set_client_priority named 1") == (0, ""), "the group is not changed")
    qualities = {client["pid"]: client["quality"] for client in json.loads(box.control("ps --json")[1])}
    require(qualities[named.child.pid] == "best-effort" and qualities[by_rule.pid] == "normal", str(qualities))
    table = box.control("get_group_list")[1].splitlines()
    require([line.split()[-1] for line in table] == ["GROUP", "workers", "half", "pod", "named"], str(table))
    log = (box.log / "control.log").read_text()
    require("OPENMPS_GROUP names workers" in log and "OPENMPS_GROUP is not the name" in log, log)
    code, text = box.control("set_client_priority later 1")
    require(code == 0 and "no members yet" in text, f"{code} {text}")
    for taker in (by_word, alone, named):
        taker.end()
    tell(by_rule)
    settled(box, server_of(box))
    box.quit()


GROUPS = (group_sms, group_memory, group_rules)
