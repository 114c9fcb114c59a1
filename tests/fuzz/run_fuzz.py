# SPDX-License-Identifier: Apache-2.0
"""Runs each fuzz target for some time, as many at once as there are processors (./dev fuzz).

usage: run_fuzz.py --build BUILD [--seconds N] [TARGET...]

Inputs that reach new code are kept in BUILD/fuzz/learnt/TARGET for the next run; inputs with which a
target fails are kept as BUILD/fuzz/broken/TARGET-*. Prints one line per target; the exit code is 1 if
one of them failed.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent
# An input that takes longer than this is reported: no real image of this size does.
SECONDS_PER_INPUT = 20
MEMORY_LIMIT_MIB = 3072  # several copies of 256 MiB, the largest text that an image may unpack to
LARGEST_INPUT = {"fatbin": 8192, "ptx": 8192, "kernel": 8192, "session": 16384, "wire": 8192,
                 "message": 4096, "command": 4096}
# Further corpora that a target reads.
MORE_CORPORA = {"kernel": ["ptx"]}


def ptx_words():
    """Mnemonics, modifiers and names of the parser's own tables, for libFuzzer's dictionary."""
    words = set()
    for name in ("opcode_table.cc", "types.cc", "parser.cc", "parser_body.cc", "parser_value.cc"):
        for text in re.findall(r'"([^"\\\n]+)"', (SOURCE / "../../src/softgpu/ptx" / name).read_text()):
            words.update(re.findall(r"[.%]?[a-zA-Z_][a-zA-Z0-9_:.]*", text))
    return sorted(word for word in words if len(word) <= 24)


def run(target, build, seconds):
    folder = build / "fuzz"
    learnt = folder / "learnt" / target
    broken = folder / "broken"
    learnt.mkdir(parents=True, exist_ok=True)
    broken.mkdir(exist_ok=True)
    corpora = [SOURCE / "corpus" / name for name in [target, *MORE_CORPORA.get(target, [])]]
    command = [folder / f"{target}_fuzz", learnt, *corpora,
               f"-max_total_time={seconds}", f"-timeout={SECONDS_PER_INPUT}",
               f"-rss_limit_mb={MEMORY_LIMIT_MIB}", f"-max_len={LARGEST_INPUT.get(target, 4096)}",
               f"-artifact_prefix={broken}/{target}-", "-print_final_stats=1"]
    if target in ("ptx", "kernel"):
        dictionary = folder / "ptx.dict"
        dictionary.write_text("".join(f'"{word}"\n' for word in ptx_words()))
        command.append(f"-dict={dictionary}")
    # The sanitizer must not map memory at the fixed addresses of sessions' windows.
    environment = dict(os.environ, ASAN_OPTIONS="allocator_may_return_null=1:detect_leaks=1")
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
    (folder / f"{target}.log").write_text(done.stderr + done.stdout)
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    return done.returncode, int(executions[1]) if executions else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    build = options.build.resolve()
    there = sorted(path.name.removesuffix("_fuzz") for path in (build / "fuzz").glob("*_fuzz"))
    targets = options.targets or there
    unknown = set(targets) - set(there)
    if unknown or not targets:
        sys.exit(f"no such fuzz target in {build}/fuzz: {' '.join(sorted(unknown)) or '(none built)'}")
    failed = False
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {target: pool.submit(run, target, build, options.seconds) for target in targets}
        for target, result in runs.items():
            code, executions = result.result()
            failed |= code != 0
            verdict = "clean" if code == 0 else f"FAILED, see {build}/fuzz/{target}.log"
            print(f"{target}: {options.seconds} s, {executions} executions: {verdict}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
