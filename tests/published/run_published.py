#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published programs on softgpu: NVIDIA's cuda-samples, and the examples and tests of CUB and Thrust.
This repository does not contain them; fetch them, then

  run_published.py build  --samples DIR --cccl DIR --out OUT [--variant sm_80] [--only REGEX]
  run_published.py run    --build BUILD --out OUT [--variant ...] [--side ...] [--limit S]
  run_published.py report --out OUT [--json]

`build` compiles each program (nvcc) into OUT/VARIANT/NAME unless that exists; `run` runs the programs
that have no result yet, those known to be short first, and saves each result at once. So both continue
where they were stopped. docs/softgpu.md has the counts and the differences. Python standard library
only.
"""

import argparse
import concurrent.futures
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import sandbox  # noqa: E402  pylint: disable=wrong-import-position

CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
SIDES = ("direct", "openmps")
# How each variant is compiled; the first is nvcc's own default architecture.
VARIANTS = {"default": [], "sm_80": ["-arch=sm_80"], "sm_90": ["-arch=sm_90"], "rdc": ["-rdc=true"]}
RDC_LIBRARY = "-lcudadevrt"  # what separately compiled programs are linked to

# Packages that a sample's build description asks for and softgpu or this machine does not have: the
# sample is left out.
GRAPHICS = re.compile(r"find_package\((?:OpenGL|GLUT|X11|EGL|Vulkan|NVSCI|FreeImage|MPI)\b|d3d1[12]", re.I)
# Headers of libraries whose kernels are machine code, which softgpu does not execute, and of LLVM.
LIBRARIES = re.compile(r"#include\s*[<\"](?:cublas|cusolver|cusparse|cufft|npp|nvjpeg|llvm/)|"
                       r"curandGenerate|nvjpegCreate")
# Targets in the samples' build descriptions, and the options that they stand for.
LINKS = {"CUDA::cuda_driver": "-lcuda", "CUDA::nvrtc": "-lnvrtc", "CUDA::curand": "-lcurand",
         "OpenMP::OpenMP_CXX": "-Xcompiler=-fopenmp", "nvJitLink": "-lnvJitLink",
         "NVVM_LIB": "-lnvvm", "nvvm": "-lnvvm"}
# Headers that a program's NVRTC sources include. They and what they include are placed beside it.
NVRTC_HEADERS = ("cooperative_groups.h", "cooperative_groups", "cccl/nv", "cccl/cuda")
WAIVED = 2  # exit code of the samples: the machine lacks something that the program needs
# Text of a failure in a program's output, whatever its exit code.
FAILED = re.compile(r"\bFAIL(ED|URE)?\b|Test failed|Result = FAIL|error code|verification failed|"
                    r"mismatch at", re.I)
# Text that looks like a failure and is none.
NOT_FAILED = re.compile(r"(0|no) (tests? )?(fail|error)|failed *[:=] *0|If .*fail|as expected|"
                        r"Assertion `", re.I)
ARGUMENTS = {"ptxgen": ["test.ll"]}
SEVERAL_DEVICES = re.compile(r"P2P|p2p|MultiDevice|MultiGPU|IPC")
# Limit of the files that a program writes, in bytes: a program that does not end may write endlessly.
MOST_WRITTEN = 256 << 20
TAIL = 2000  # characters of the output kept with a result


class Program:
    """One published program: its sources, and how it is compiled."""

    def __init__(self, name, sources, options, folder, images=(), check=None):
        self.name = name
        self.sources = sources  # files for one call of nvcc
        self.options = options
        self.folder = folder    # its files are placed beside the program when it runs; None: no files
        self.images = images    # (source, file) of kernels that the program loads from a file
        self.check = check      # a FileCheck description of its output


def sample_programs(root):
    """(programs, [(name, why it is left out)]) of a checkout of cuda-samples."""
    programs, left_out = [], []
    for listing in sorted(root.glob("Samples/*/*/CMakeLists.txt")):
        text = re.sub(r"(?m)#.*$", "", listing.read_text())
        folder = listing.parent
        name = folder.name
        target = re.search(r"add_executable\(\s*(\S+)\s+([^)]*)\)", text)
        if not target:
            continue
        code = "".join(p.read_text(errors="replace") for p in folder.rglob("*")
                       if p.suffix in (".cu", ".cuh", ".cpp", ".c", ".h"))
        needs = GRAPHICS.search(text) or LIBRARIES.search(code)
        if needs:
            left_out.append((name, needs.group()))
            continue
        sources = [folder / word for word in target.group(2).split()
                   if re.search(r"\.(cu|cpp|c)$", word) and (folder / word).exists()]
        links = sorted({option for word, option in LINKS.items() if word in text})
        options = ["-I", str(root / "Common"), "-I", str(folder), "-I", str(folder / "inc"), *links]
        if name.startswith("cdp") or "cudadevrt" in text.lower():
            options += ["-rdc=true", RDC_LIBRARY]
        if "7_libNVVM" in str(folder):
            options += ["-I", str(folder.parent / "common" / "include"), "-lcuda",
                        "-DLIBDEVICE_MAJOR_VERSION=1", "-DLIBDEVICE_MINOR_VERSION=0",
                        f'-DLIBCUDADEVRT="{CUDA}/lib64/libcudadevrt.a"', f"-DLIBNVVM_HOME={CUDA}/nvvm"]
        programs.append(Program(name, sources, options, folder, kernel_files(text, folder)))
    return programs, left_out


def kernel_files(text, folder):
    """The kernels that a build description compiles to files of their own: (source, file)."""
    found = []
    files = dict(re.findall(r"set\((\w+)\s+\"?\$\{CMAKE_CURRENT_BINARY_DIR\}/([\w.]+)\"?\)", text))
    sources = dict(re.findall(r"set\((\w+)\s+\"?\$\{CMAKE_CURRENT_SOURCE_DIR\}/([\w.]+)\"?\)", text))
    for file, source in re.findall(r"-o \$\{(\w+)\}.*?\$\{(\w+)\}", text):
        if file in files and source in sources:
            found.append((folder / sources[source], files[file]))
    return found


def cccl_programs(root):
    """Programs of a checkout of CUB and Thrust."""
    includes = []
    for folder in ("cub", "thrust", "libcudacxx/include", "thrust/examples", "cub/test", "c2h/include"):
        includes += ["-I", str(root / folder)]
    programs = []
    for path in sorted([*root.glob("cub/examples/*/*.cu"), *root.glob("thrust/examples/**/*.cu")]):
        relative = path.relative_to(root)
        if relative.parts[-2] in ("include", "cpp_integration"):
            continue  # parts of other examples
        name = "_".join((relative.parts[0], *relative.parts[2:-1], path.stem))
        options = list(includes)
        text = path.read_text()
        if "catch2" in text or "test_util.h" in text:
            options += ["-lCatch2Main"] * ("C2H_TEST" in text or "TEST_CASE" in text) + ["-lCatch2"]
        described = ".".join(("thrust.example", *relative.parts[2:-1], path.stem, "filecheck"))
        check = root / "thrust/internal/test" / described
        programs.append(Program(name, [path], options, None, check=check if check.exists() else None))
    host = root / "thrust/examples/cpp_integration"
    if host.exists():
        programs.append(Program("thrust_cpp_integration", [host / "device.cu", host / "host.cpp"],
                                [*includes, "-I", str(host)], None))
    return programs


def compile_program(program, variant, out, more):
    """Compiles one program into its folder; returns the compiler's messages if it failed."""
    folder = out / variant / program.name
    binary = folder / "bin"
    if binary.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if program.folder:
        shutil.copytree(program.folder, folder, dirs_exist_ok=True)
        common = program.folder.parents[2] / "Common" / "data"
        if common.exists():
            shutil.copytree(common, folder / "data", dirs_exist_ok=True)
        if "-lnvrtc" in program.options:
            for header in NVRTC_HEADERS:
                os.symlink(CUDA / "include" / header, folder / Path(header).name)
    nvcc = [str(CUDA / "bin" / "nvcc"), "-w", "-O2", "-std=c++17", "--extended-lambda", *more]
    flags = VARIANTS[variant]
    commands = [[*nvcc, *flags, *program.options, *map(str, program.sources), "-o", str(binary),
                 "-L", str(CUDA / "lib64" / "stubs"), "-lpthread", *([RDC_LIBRARY] if variant == "rdc" else [])]]
    architecture = [flag for flag in flags if flag.startswith("-arch")]
    for source, file in program.images:
        commands.append([*nvcc, *architecture, "-ptx" if file.endswith(".ptx") else "-fatbin", str(source),
                         "-o", str(folder / file)])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode != 0:
            binary.unlink(missing_ok=True)
            return done.stdout + done.stderr
    if program.check:
        shutil.copy(program.check, folder / "filecheck")
    return None


def build(options):
    programs, left_out = [], []
    if options.samples:
        programs, left_out = sample_programs(options.samples.resolve())
    if options.cccl:
        programs += cccl_programs(options.cccl.resolve())
    programs = [p for p in programs if re.search(options.only, p.name)]
    failed = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(compile_program, p, options.variant, options.out, options.flags.split()): p for p in programs}
        for number, future in enumerate(concurrent.futures.as_completed(futures), 1):
            program = futures[future]
            said = future.result()
            if said is not None:
                failed[program.name] = said
            print(f"[{number}/{len(futures)}] {program.name}{': NOT BUILT' if said is not None else ''}", flush=True)
    for name, said in sorted(failed.items()):
        print(f"--- {name}\n{said[-TAIL:]}")
    for name, why in left_out:
        print(f"left out: {name} ({why})")
    print(f"{len(programs) - len(failed)} built, {len(failed)} not, {len(left_out)} left out")
    return 1 if failed else 0


class Results:
    """OUT/results.json: (variant, side, program) -> result."""

    def __init__(self, out):
        self.path = out / "results.json"
        self.lock = threading.Lock()
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {}

    def key(self, variant, side, name):
        return f"{variant}/{side}/{name}"

    def add(self, key, result):
        with self.lock:
            self.all[key] = result
            # Other runs may have written the file meanwhile; this one changes only its own keys.
            written = json.loads(self.path.read_text()) if self.path.exists() else {}
            written[key] = result
            part = self.path.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(written, indent=1, sort_keys=True))
            os.replace(part, self.path)

    def known_seconds(self, name):
        times = [r["seconds"] for k, r in self.all.items() if k.split("/")[2] == name]
        return max(times, default=0)


def judge(folder, code, output):
    """(state, reason) of a program that ended."""
    if code == WAIVED:
        return "waived", "the program waives itself"
    if code != 0:
        return "failed", f"exit code {code}"
    for line in output.splitlines():
        if FAILED.search(line) and not NOT_FAILED.search(line):
            return "failed", line.strip()
    if (folder / "filecheck").exists():
        tool = shutil.which("FileCheck") or shutil.which("FileCheck-14")
        if tool:
            done = subprocess.run([tool, str(folder / "filecheck")], input=output, text=True,
                                  capture_output=True, check=False)
            if done.returncode != 0 and output.strip():
                return "failed", "FileCheck: " + done.stderr[:TAIL]
    return "passed", ""


def run_one(world, folder, limit):
    """Runs one program in its folder, in an environment of `world`; returns its result."""
    env = dict(world.env)
    env["LD_PRELOAD"] = str(world.build / "lib/softgpu/libsoftgpu-ptx.so")
    begin = time.monotonic()
    with tempfile.TemporaryFile() as written:
        child = subprocess.Popen(
            ["./bin", *ARGUMENTS.get(folder.name, [])], cwd=folder, env=env, stdin=subprocess.DEVNULL,
            stdout=written, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN)))
        try:
            child.wait(limit)
            ended = True
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            ended = False
        written.seek(0)
        output = written.read().decode(errors="replace")
    state, reason = judge(folder, child.returncode, output) if ended else ("stopped", f"no end after {limit} s")
    return {"state": state, "reason": reason, "seconds": round(time.monotonic() - begin, 1),
            "output": output[-TAIL:]}


def run(options):
    results = Results(options.out)
    folders = [f for f in sorted((options.out / options.variant).iterdir())
               if (f / "bin").exists() and re.search(options.only, f.name)]
    keys = {f: results.key(options.variant, options.side, f.name) for f in folders}
    wanted = [f for f in folders if options.again or results.all.get(keys[f], {}).get("state") not in
              ("passed", "failed", "waived", *(() if options.stopped else ("stopped",)))]
    wanted.sort(key=lambda f: results.known_seconds(f.name))

    def one(folder):
        extra = {"SOFTGPU_DEVICES": "2"} if SEVERAL_DEVICES.search(folder.name) else {}
        world = sandbox.Sandbox(options.build, "softgpu" if options.side == "direct" else "openmps",
                                extra_env=extra)
        try:
            if options.side == "openmps":
                world.start_daemon()
            result = run_one(world, folder, options.limit)
        finally:
            world.close()
        results.add(keys[folder], result)
        return result

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(one, folder): folder for folder in wanted}
        for number, future in enumerate(concurrent.futures.as_completed(futures), 1):
            result = future.result()
            print(f"[{number}/{len(wanted)}] {futures[future].name}: {result['state']} "
                  f"{result['seconds']} s {result['reason'][:150]}", flush=True)
    return report(options)


def report(options):
    """Prints, for each variant and side (all, or those that options name), counts and what did not pass."""
    results = Results(options.out).all
    if options.json:
        print(json.dumps(results, indent=1, sort_keys=True))
        return 0
    groups = {}
    for key, result in results.items():
        variant, side, name = key.split("/")
        if variant != getattr(options, "variant", variant) or side != getattr(options, "side", side):
            continue
        origin = "CUB/Thrust" if name.startswith(("cub_", "thrust_")) else "samples"
        groups.setdefault((origin, variant, side), []).append((name, result))
    bad = False
    for (origin, variant, side), found in sorted(groups.items()):
        states = [r["state"] for _, r in found]
        print(f"{origin:10} {variant:8} {side:8}", ", ".join(
            f"{states.count(s)} {s}" for s in ("passed", "failed", "waived", "stopped") if s in states))
        for name, result in sorted(found):
            if result["state"] != "passed":
                bad = True
                print(f"    {name}: {result['state']} after {result['seconds']} s: {result['reason'][:200]}")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--out", type=Path, required=True, help="folder of the programs and results")
    one_variant = argparse.ArgumentParser(add_help=False, parents=[shared])
    one_variant.add_argument("--variant", choices=VARIANTS, default="default")
    one_variant.add_argument("--only", default="", help="regular expression that names must contain")
    one_variant.add_argument("--jobs", type=int, default=os.cpu_count())
    verb = verbs.add_parser("build", parents=[one_variant])
    verb.add_argument("--samples", type=Path, help="a checkout of cuda-samples")
    verb.add_argument("--cccl", type=Path, help="a checkout of CCCL")
    verb.add_argument("--flags", default="", help="more options for nvcc: where Catch2 is, for CUB's")
    verb = verbs.add_parser("run", parents=[one_variant])
    verb.add_argument("--build", type=Path, default=ROOT / "build", help="build tree of OpenMPS")
    verb.add_argument("--side", choices=SIDES, default="direct")
    verb.add_argument("--limit", type=float, default=600, help="seconds for one program")
    verb.add_argument("--stopped", action="store_true", help="run what was stopped once more")
    verb.add_argument("--again", action="store_true", help="run what has a result once more")
    verb.set_defaults(json=False)
    verb = verbs.add_parser("report", parents=[shared])
    verb.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    return {"build": build, "run": run, "report": report}[options.verb](options)


if __name__ == "__main__":
    sys.exit(main())
