#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is in packaging/: that systemd takes the units and directories, logrotate its file, and that each shell's
completion lists all options and commands. Run by ctest; ends with 77, skipped, where no tool for it is.

  packaging_test.py systemd|logrotate|bash|zsh|fish --build BUILD"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "packaging"
LIMIT_S = 60
SKIPPED = 77
SERVERS = ["4711", "4712"]


class Missing(Exception):
    """A tool that this machine does not have."""


def run(command, **kwargs):
    if shutil.which(command[0]) is None:
        raise Missing(command[0])
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S, check=False, **kwargs)


def expect(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def systemd(build):
    units = [str(build / "packaging" / name) for name in ("openmps.service", "openmps.socket")]
    done = run(["systemd-analyze", "verify", "--man=no", *units])
    expect(done.returncode == 0 and "openmps" not in done.stdout, f"systemd-analyze verify\n{done.stdout}")
    with tempfile.TemporaryDirectory() as root:
        done = run(["systemd-tmpfiles", "--create", f"--root={root}", str(SOURCE / "openmps.tmpfiles")])
        made = [Path(root, name) for name in ("run/openmps", "var/log/nvidia-mps")]
        # Only root can give them to root.
        expect(os.geteuid() != 0 or all(path.stat().st_mode & 0o7777 == 0o755 for path in made),
               f"systemd-tmpfiles\n{done.stdout}")


def logrotate(_):
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "openmps")
        shutil.copy(SOURCE / "openmps.logrotate", copy)
        copy.chmod(0o644)
        done = run(["logrotate", "--debug", "--state", f"{folder}/state", str(copy)])
        expect(done.returncode == 0 and "error" not in done.stdout, f"logrotate\n{done.stdout}")


def words_of_help(build):
    """Options and commands as openmps-control says them."""
    text = run([str(build / "bin" / "openmps-control"), "--help"]).stdout
    options = text.split("\nOptions:\n")[1].split("\n\n")[0]
    commands = text.split("\nCommands:\n")[1].split("\n\n")[0]
    found = set(re.findall(r"(?<=\s)--?[a-zA-Z-]+", re.sub(r"  [A-Z][a-z].*", "", options)))
    found |= set(re.findall(r"(?m)^  ([a-z_]+)", commands))
    expect({"-d", "--daemon", "--config", "quit", "terminate_client"} <= found, f"--help has {found}")
    return found


def daemon(folder, build):
    """A program of the daemon's name that has its help, two servers, and clients of the second."""
    path = Path(folder, "openmps-control")
    path.write_text(f"""#!/bin/sh
if [ "$1" = --help ]; then exec {build}/bin/openmps-control --help; fi
read -r command
case $command in
  get_server_list) printf '4711\\n4712\\n' ;;
  "get_client_list 4712") printf '99\\n' ;;
  *) echo "Unknown command" ;;
esac
""")
    path.chmod(0o755)
    Path(folder, "openmps").symlink_to(build / "bin" / "openmps")


def complete_bash(words):
    script = f"""source {SOURCE}/completion/{words[0]}.bash
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_{words[0].replace("-", "_")}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    return ["bash", "-c", script, "bash", *words]


def complete_zsh(words):
    # The system of completion wants a terminal: the calls that matter are taken over.
    script = f"""compadd() {{ shift; print -l -- $@; }}
_files() {{ print -l -- files; }}
_normal() {{ print -l -- $CURRENT $words; }}
words=("$@") CURRENT=$#
complete_it() {{ source {SOURCE}/completion/{words[0]}.zsh }}
complete_it
"""
    return ["zsh", "-f", "-c", script, "zsh", *words]


def complete_fish(words):
    line = " ".join(words)
    return ["fish", "--no-config", "-c",
            f"source {SOURCE}/completion/{words[0]}.fish; complete -C '{line}'"]


def front_end(build, offered):
    """openmps: subcommands, and the options of each, as CLI11 prints them."""
    def of_help(*words):
        text = run([str(build / "bin" / "openmps"), *words, "--help"]).stdout
        options = text.split("\nOptions:\n")[1].split("\n\n")[0]
        found = set(re.findall(r"(?m)^  (-[-a-z]+)", options)) | set(re.findall(r",(--[-a-z]+)", options))
        if "\nSubcommands:\n" in text:
            found |= set(re.findall(r"(?m)^  ([a-z]+)", text.split("\nSubcommands:\n")[1]))
        return found

    subcommands = {word for word in of_help() if not word.startswith("-")}
    expect({"run", "ps", "doctor"} <= subcommands, f"openmps --help has {subcommands}")
    for words in ((), *((word,) for word in sorted(subcommands)), ("cdi", "generate")):
        got = offered("openmps", *words, "") | offered("openmps", *words, "-")
        expect(got == of_help(*words), f"openmps {words}: offers {sorted(got)}, not {sorted(of_help(*words))}")
    expect("--required" not in offered("openmps", "run", "--", "prog", "-"), "options of openmps for a program")


def completion(build, complete):
    with tempfile.TemporaryDirectory() as folder:
        daemon(folder, build)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": folder}

        def offered_by(*words):
            done = run(complete(list(words)), env=env, cwd=folder)
            lines = [line.split("\t")[0] for line in done.stdout.splitlines()]
            return {line for line in lines if line.startswith(words[-1]) and line != ""}

        def offered(*words):
            return offered_by("openmps-control", *words)

        everything = words_of_help(build)
        expect(offered("") | offered("-") == everything,
               f"offers {sorted(offered('') | offered('-'))}, not {sorted(everything)}")
        cases = [(("get_server_st",), ["get_server_status"]),
                 (("-d", "--conf"), ["--config"]),
                 (("get_server_status", ""), SERVERS),
                 (("set_active_thread_percentage", ""), SERVERS),
                 (("terminate_client", "4712", ""), ["99"]),
                 (("ps", "-p", ""), SERVERS),
                 (("ps", "--"), ["--json"]),
                 (("quit", "-"), ["-t"]),
                 (("get_default_client_priority", ""), [])]
        for words, wanted in cases:
            expect(offered(*words) >= set(wanted) and (wanted or not offered(*words)),
                   f"{words}: offers {sorted(offered(*words))}, not {wanted}")
        front_end(build, offered_by)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["systemd", "logrotate", "bash", "zsh", "fish"])
    parser.add_argument("--build", type=Path, required=True)
    args = parser.parse_args()
    try:
        if args.what in ("systemd", "logrotate"):
            globals()[args.what](args.build.resolve())
        else:
            completion(args.build.resolve(), globals()[f"complete_{args.what}"])
    except Missing as missing:
        print(f"skipped: there is no {missing}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
