# SPDX-License-Identifier: Apache-2.0
"""A private world for one end-to-end test: its own pipe, log and temporary directories, its own
simulated device, a daemon if the mode wants one, and a check that nothing of it is left afterwards.

Used by run_e2e.py, gpu-test and the demo, each sandbox on one thread. Python standard library only.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

# How long processes may take to disappear after `quit`, seconds: the daemon's own stop is bounded
# by its clients, and there are none left by then. Generous because tests share two cores.
QUIT_LIMIT_S = 60
POLL_S = 0.02
LOG_LINES = 60  # lines of each log that are shown when a test fails
MARK = "OPENMPS_E2E_RUN"
# Seconds between two `reload --worker` beside everything that a sandbox with a daemon runs. By hand:
# OPENMPS_TEST_RENEW=0.1 ctest --test-dir build -R e2e.openmps
RENEW = "OPENMPS_TEST_RENEW"
CHANGE_DOMAINS = "OPENMPS_TEST_CHANGE_DOMAINS"  # the same, between two workers that stay
SUSPEND = "OPENMPS_TEST_SUSPEND"  # the same, from the device to the host and back


class Failure(Exception):
    """A test has failed; the text is shown to the user."""


def wait_until(condition, limit_s):
    """Polls `condition` until it is true; returns its last value."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(POLL_S)


def as_user(uid):
    """Arguments for subprocess: run as that user, without root's groups."""
    return {"user": uid, "group": uid, "extra_groups": []}


class Sandbox:
    """mode: `softgpu` and `native` run programs straight on a driver, `openmps` through a daemon,
    `nodaemon` on our client library without one. driver: what is underneath, softgpu or nvidia."""

    def __init__(self, build, mode, driver="softgpu", extra_env=None):
        self.build = Path(build).resolve()
        self.mode = mode
        self.driver = driver
        self.mark = os.urandom(6).hex()
        # Short: a socket's path may have 107 bytes at most.
        self.root = Path(tempfile.mkdtemp(prefix="omps-", dir="/tmp"))
        self.pipe, self.log, self.tmp = (self.root / n for n in ("pipe", "log", "tmp"))
        for directory in (self.pipe, self.log, self.tmp):
            directory.mkdir(mode=0o755)  # the daemon refuses a directory that others can write
        self.device = f"softgpu-e2e-{self.mark}"
        self.env = self._environment(extra_env or {})
        self.children = []
        self.user = {}  # arguments for subprocess of programs, see become()
        self.moving = None  # the thread of _move()
        self.stop_moving = threading.Event()

    def share_build(self):
        """Copies what a sandbox needs of the build to a place that every user can read."""
        copy = self.root / "build"
        for folder in ("bin", "lib", "tests/e2e"):
            shutil.copytree(self.build / folder, copy / folder, symlinks=True)
        self.build = copy
        os.chmod(self.root, 0o755)
        self.env = self._environment({})

    def become(self, uid):
        """Runs everything from now on as that user (root only)."""
        self.share_build()
        for directory in (self.pipe, self.log, self.tmp):
            os.chown(directory, uid, uid)
        self.user = as_user(uid)

    def _environment(self, extra):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("CUDA_MPS_", "OPENMPS_", "SOFTGPU_"))}
        env.update({MARK: self.mark, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
                    "CUDA_MPS_LOG_DIRECTORY": str(self.log), "TMPDIR": str(self.tmp),
                    "OPENMPS_DRIVER": self.driver,
                    "OPENMPS_CACHE_DIRECTORY": ""})  # no code of earlier programs is stored
        if os.geteuid() != 0:
            env["OPENMPS_CONFINE"] = "0"  # else only root could see which processes are left
        if "OPENMPS_CALLS_FILE" in os.environ:
            env["OPENMPS_CALLS_FILE"] = os.environ["OPENMPS_CALLS_FILE"]
        if self.driver == "softgpu":
            env["SOFTGPU_DEVICE"] = self.device
        folder = {"softgpu": "softgpu", "openmps": "openmps", "nodaemon": "openmps"}.get(self.mode)
        if folder:
            # The machine's own library path, which leads to its driver, follows our folder.
            ours = str(self.build / "lib" / folder)
            inherited = os.environ.get("LD_LIBRARY_PATH")
            env["LD_LIBRARY_PATH"] = f"{ours}:{inherited}" if inherited else ours
        if self.mode == "openmps":
            env["OPENMPS_REQUIRED"] = "1"
        env.update(self._sanitizer())
        env.update(extra)
        return env

    def _sanitizer(self):
        """In a sanitizer build libcuda.so.1 is loaded into programs that were built without the sanitizer, so
        the sanitizer's run time is preloaded. Its reports go to the log directory, see leftovers()."""
        cache = self.build / "CMakeCache.txt"
        text = cache.read_text() if cache.exists() else ""
        match = re.search(r"^OPENMPS_SANITIZE:\w+=(.+)$", text, re.M)
        if not match:
            return {}
        library = "libtsan.so" if match.group(1) == "thread" else "libasan.so"
        path = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True,
                              text=True, check=True).stdout.strip()
        # A small quarantine: scenarios watch the memory of server and worker.
        options = f"log_path={self.log}/sanitizer:exitcode=99"
        return {"LD_PRELOAD": path, "ASAN_OPTIONS": options + ":detect_leaks=0:quarantine_size_mb=4",
                "TSAN_OPTIONS": options,
                "UBSAN_OPTIONS": options + ":print_stacktrace=1:halt_on_error=1"}

    # --- programs -----------------------------------------------------------------------------

    def resolve(self, name):
        for folder in ("tests/e2e", "bench", "bin"):
            path = self.build / folder / name
            if path.exists():
                return str(path)
        raise Failure(f"no program {name} under {self.build}")

    def start(self, command, env=None, **kwargs):
        """Starts a program of the build tree in a process group of its own."""
        argv = [self.resolve(command[0])] + list(command[1:])
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        child = subprocess.Popen(argv, env={**self.env, **(env or {})}, text=True, cwd=self.tmp,
                                 start_new_session=True, **{**self.user, **kwargs})
        self.children.append(child)
        return child

    def run(self, command, timeout, env=None):
        """Runs a program to its end; returns (exit code, stdout, stderr)."""
        child = self.start(command, env)
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            raise Failure(f"{command[0]}: no end after {timeout} s\n{out}{err}") from None
        return child.returncode, out, err

    def control(self, text, timeout=QUIT_LIMIT_S, user=None):
        """One call of the control shell with `text` on its standard input, as `user` (root only)."""
        done = subprocess.run([self.resolve("openmps-control")], input=text + "\n", text=True,
                              env=self.service_env(), capture_output=True, timeout=timeout,
                              cwd=self.tmp, check=False, **(self.user if user is None else as_user(user)))
        return done.returncode, done.stdout

    def service_env(self):
        """The environment of a program that is no client: without our library path."""
        ours = ("LD_LIBRARY_PATH", "OPENMPS_REQUIRED")
        env = {k: v for k, v in self.env.items() if k not in ours}
        if "LD_LIBRARY_PATH" in os.environ:
            env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        return env

    def start_daemon(self, limit=None, config=None, options=()):
        """`limit`: (a RLIMIT_ of the resource module, its value) for the daemon and its children. `config`: the
        text of the configuration file, whose path is config(). `options`: more options."""
        def prepare():
            resource.setrlimit(limit[0], (limit[1], limit[1]))

        # The daemon inherits no pipe of this process: reading its output would wait for its end.
        with open(self.root / "daemon.txt", "w+", encoding="utf-8") as output:
            words = ["-d", *options] + ([] if config is None else ["--config", str(self.config())])
            if config is not None:
                self.config().write_text(config)
            done = subprocess.run([self.resolve("openmps-control"), *words], stdout=output,
                                  env=self.service_env(), stderr=output,
                                  stdin=subprocess.DEVNULL, timeout=QUIT_LIMIT_S, cwd=self.tmp,
                                  check=False, preexec_fn=prepare if limit else None, **self.user)
            output.seek(0)
            if done.returncode != 0:
                raise Failure(f"openmps-control -d: exit code {done.returncode}\n{output.read()}")
        for way, name in ((self.renew, RENEW), (self.change_domains, CHANGE_DOMAINS), (self.suspend, SUSPEND)):
            if name in os.environ:
                self.start_moving(way, float(os.environ[name]))

    def start_moving(self, way, pause_s):
        """Until quit() or close() whatever runs here moves to another worker again and again: nobody may notice."""
        self.moving = threading.Thread(target=self._move, args=(way, pause_s), daemon=True)
        self.moving.start()

    def _move(self, way, pause_s):
        while not self.stop_moving.wait(pause_s):
            try:
                way()
            except (subprocess.SubprocessError, OSError, ValueError):
                return

    def stop_moves(self):
        if self.moving:
            self.stop_moving.set()
            self.moving.join()

    def renew(self):
        self.control("reload --worker")

    def change_domains(self):
        for client in json.loads(self.control("ps --json")[1]):
            self.control(f"move_client id:{client['id']} {'there' if client['domain'] == 'common' else 'common'}")

    def suspend(self):
        for client in json.loads(self.control("ps --json")[1]):
            self.control(f"suspend id:{client['id']} --until-used")

    def config(self):
        return self.root / "openmps.toml"

    def processes(self):
        """PIDs of every living process of this sandbox except the caller."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                environ = Path("/proc", entry, "environ").read_bytes()
                state = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in environ and state != "Z":
                found.append(int(entry))
        return found

    def pids_named(self, name):
        return [p for p in self.processes() if command_of(p) == name]

    def device_state(self):
        """(contexts on the device, bytes of device memory in use)."""
        if self.driver == "nvidia":
            used = int(query_gpu("--query-gpu=memory.used")[0])
            return len(query_gpu("--query-compute-apps=pid")), used << 20
        device = self.device_info()["devices"][0]
        return device["context_count"], device["memory_used"]

    def device_info(self):
        """The output of softgpu-info for this sandbox's devices."""
        done = subprocess.run([self.resolve("softgpu-info")], env=self.service_env(), text=True,
                              capture_output=True, timeout=QUIT_LIMIT_S, check=False, **self.user)
        if done.returncode != 0:
            raise Failure(f"softgpu-info: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    # --- the end ------------------------------------------------------------------------------

    def quit(self):
        """Stops daemon, servers and workers."""
        self.stop_moves()
        code, out = self.control("quit")
        if code != 0:
            raise Failure(f"quit: exit code {code}: {out}")

    def leftovers(self):
        """What a test must not leave behind, as sentences."""
        wait_until(lambda: not self.processes(), QUIT_LIMIT_S)
        found = [f"process {p} ({command_of(p)}) still runs" for p in self.processes()]
        found += [f"shared memory /dev/shm/{n} is left" for n in os.listdir("/dev/shm")
                  if self.mark in n]
        # ThreadSanitizer's run time makes a file of that name at its start; a process killed then leaves it.
        found += [f"temporary file {p} is left" for p in self.tmp.rglob("*")
                  if not p.name.startswith("tsan.rodata.")]
        found += [f"sanitizer report {p.name}" for p in self.log.glob("sanitizer.*")]
        found += [f"socket {p} is left" for p in self.pipe.rglob("*") if p.is_socket()]
        return found

    def logs(self):
        text = ""
        for path in sorted(self.log.rglob("*")):
            if path.is_file():
                lines = path.read_text(errors="replace").splitlines()
                text += f"--- end of {path.name}\n" + "\n".join(lines[-LOG_LINES:]) + "\n"
        return text

    def close(self):
        self.stop_moving.set()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for child in self.children:
            child.wait()
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        for name in os.listdir("/dev/shm"):
            if self.mark in name:
                os.unlink(os.path.join("/dev/shm", name))
        shutil.rmtree(self.root, ignore_errors=True)


def query_gpu(what):
    """The lines that nvidia-smi prints."""
    done = subprocess.run(["nvidia-smi", what, "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if line.strip()]


def command_of(pid):
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return "?"


def thread_names(pid):
    """The names of a process's threads, without those that end meanwhile."""
    names = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            names.append(Path("/proc", str(pid), "task", task, "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return names


def footprint(pid):
    """Memory (KiB resident), descriptors and threads of a process."""
    status = Path("/proc", str(pid), "status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {"rss": int(fields["VmRSS"].split()[0]), "threads": int(fields["Threads"]),
            "fds": len(os.listdir(f"/proc/{pid}/fd"))}
