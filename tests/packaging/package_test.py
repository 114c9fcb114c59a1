#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages that tools/make_packages.sh and packaging/openmps.spec make of a build tree. Ends with 77, skipped,
where no tool for it is.

  package_test.py deb --build BUILD
      what is in them, what they depend on, and lintian's word. Run by ctest.
  package_test.py rpm --build BUILD
      rpmlint's word on the spec, and what rpmbuild makes of it. Run by ctest.
  package_test.py root --build BUILD --roots FOLDER
      in Debian 12 roots: install, run a program, upgrade under running programs, purge; once without systemd and once
      with systemd in a container. FOLDER keeps the archive of the root, which mmdebstrap makes if it is not there.
      Needs root, and the network for that. By hand: ./dev package-test"""

import argparse
import contextlib
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
from sandbox import LOG_LINES, Failure, wait_until  # noqa: E402

SKIPPED = 77
RELEASE = "bookworm"
MAKE_LIMIT_S = 900
RUN_LIMIT_S = 120
SETTLE_LIMIT_S = 20
PACKAGES = ("openmps", "openmps-softgpu", "openmps-doc")
NEXT_VERSION = "0.1.0+next"
PROGRAMS = {"openmps": {"openmps", "openmps-control", "openmps-server", "openmps-worker"},
            "openmps-softgpu": {"softgpu-info", "softgpu-ptxas", "softgpu-scan"}, "openmps-doc": set()}
LIBRARIES = {"openmps": {"openmps/libcuda.so.1", "openmps/cupti/libcupti.so.12", "openmps/cupti/libcupti.so.13",
                         "openmps/nvml/libnvidia-ml.so.1"}, "openmps-doc": set(),
             "openmps-softgpu": {"softgpu/libcuda.so.1", "softgpu/libnvidia-ml.so.1", "softgpu/libsoftgpu-ptx.so"}}
# Of a machine, not of a package.
NOT_OURS = re.compile(r"/(proc|sys|dev|srv|tmp|run/(?!openmps|nvidia-mps)|root/\.cache|etc/(machine-id|hostname|resolv\.conf|"
                      r"localtime|\.updated|\.pwd\.lock)|var/(cache|tmp|\.updated|lib/(dpkg|apt|systemd|dbus|private)|"
                      r"log/(dpkg\.log|apt|alternatives\.log|journal|btmp|wtmp|lastlog|private)))(/|$)")


class Missing(Exception):
    """A tool that this machine does not have."""


def need(*tools):
    for tool in tools:
        if shutil.which(tool) is None:
            raise Missing(tool)


def run(words, limit_s=RUN_LIMIT_S, **kwargs):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=limit_s, check=False, **kwargs)
    if done.returncode != 0:
        raise Failure(f"{words}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def require(holds, what):
    if not holds:
        raise Failure(what)


def make_debs(build, out):
    need("dh", "dpkg-buildpackage", "dpkg-deb")
    run([SOURCE / "tools" / "make_packages.sh", out], MAKE_LIMIT_S,
        env={**os.environ, "OPENMPS_BUILD": str(build), "DEB_BUILD_OPTIONS": "noautodbgsym"})
    found = {name.split("_")[0]: Path(out, name) for name in os.listdir(out)}
    require(set(found) == set(PACKAGES), f"there are packages {sorted(found)}")
    return found


def check_deb(name, path):
    listing = run(["dpkg-deb", "-c", path])
    files = {line.split()[5].removeprefix(".") for line in listing.splitlines() if not line.startswith("d")}
    programs = {Path(file).name for file in files if file.startswith("/usr/bin/")}
    require(programs == PROGRAMS[name], f"{name} has programs {sorted(programs)}")
    libraries = {file.removeprefix("/usr/lib/") for file in files if re.match(r"/usr/lib/(openmps|softgpu)/.*\.so", file)}
    links = {"openmps/libcuda.so", "softgpu/libcuda.so", "softgpu/libnvidia-ml.so"}
    require(libraries - links == LIBRARIES[name], f"{name} has libraries {sorted(libraries)}")
    require(not any(file.startswith("/etc/") for file in files), f"{name} has configuration files")
    depends = run(["dpkg-deb", "-f", path, "Depends"]).strip()
    names = {word.split()[0] for word in depends.split(", ") if word}
    require(names <= {"libc6", "libgcc-s1", "libstdc++6"}, f"{name} depends on {depends}")


def deb(build, _):
    with tempfile.TemporaryDirectory() as folder:
        found = make_debs(build, folder)
        for name, path in found.items():
            check_deb(name, path)
        if shutil.which("lintian"):
            # It leaves files in the folder for temporary ones.
            said = run(["env", f"TMPDIR={folder}", "lintian", "--allow-root", "--fail-on", "error,warning", *found.values()])
            require(not re.search("^[EW]:", said, re.MULTILINE), said)
    return 0


def rpm(build, _):
    need("rpmlint")
    spec, filters = SOURCE / "packaging" / "openmps.spec", SOURCE / "packaging" / "openmps.rpmlintrc"
    said = run(["rpmlint", "--strict", "--rpmlintrc", filters, spec])
    require("0 errors, 0 warnings" in said, said)
    need("rpmbuild")
    with tempfile.TemporaryDirectory() as folder:
        name = "openmps-" + re.search(r"(?m)^Version: +(\S+)", spec.read_text())[1]
        sources = Path(folder, "SOURCES")
        sources.mkdir()
        run(["tar", "czf", sources / f"{name}.tar.gz", "--transform", f"s,^,{name}/,", "-C", SOURCE, "LICENSE",
             "README.md", "README.zh-CN.md", "docs"])
        run(["rpmbuild", "-bb", "--nodeps", "--define", f"_topdir {folder}", "--define", f"openmps_build {build}",
             "--define", "debug_package %{nil}", spec], MAKE_LIMIT_S)
        made = {path.name.rsplit("-", 2)[0]: path for path in Path(folder, "RPMS").rglob("*.rpm")}
        require(set(made) == set(PACKAGES), f"there are packages {sorted(made)}")
        for package, path in made.items():
            files = run(["rpm", "-qlp", path]).splitlines()
            programs = {Path(file).name for file in files if file.startswith("/usr/bin/")}
            require(programs == PROGRAMS[package], f"{package} has programs {sorted(programs)}")
            provides = run(["rpm", "-qp", "--provides", path])
            require("libcuda" not in provides, f"{package} provides {provides}")
    return 0


def build_hash(build):
    text = (build / "generated" / "wire" / "build_hash.h").read_text()
    return int(re.search(r"kBuildHash = (0x\w+)", text)[1], 16).to_bytes(8, "little")


def make_next(debs, build, folder):
    """The packages of a next version: the same programs with another build's number, so that they refuse this one's."""
    old = build_hash(build)
    new = bytes(byte ^ 0x5A for byte in old)
    made = {}
    for name, path in debs.items():
        tree = Path(folder, f"next-{name}")
        run(["dpkg-deb", "-R", path, tree])
        changed = 0
        for file in tree.rglob("*"):
            if file.is_symlink() or not file.is_file():
                continue
            data = file.read_bytes()
            if old in data:
                file.write_bytes(data.replace(old, new))
                changed += 1
        require(name != "openmps" or changed == 5, f"{changed} files have the build's number")
        control = tree / "DEBIAN" / "control"
        control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {NEXT_VERSION}", control.read_text()))
        made[name] = Path(folder, f"{name}-next.deb")
        run(["dpkg-deb", "-b", "-Znone", "--root-owner-group", tree, made[name]])
    return made


def root_archive(roots):
    need("mmdebstrap")
    archive = roots / f"{RELEASE}.tar"
    if not archive.exists():
        roots.mkdir(parents=True, exist_ok=True)
        part = roots / f"{RELEASE}.part.tar"
        made = subprocess.run(["mmdebstrap", "--variant=minbase", "--include=systemd,systemd-sysv", RELEASE, str(part)],
                              capture_output=True, text=True, timeout=MAKE_LIMIT_S, check=False)
        if made.returncode != 0:
            print(made.stderr)
            raise Missing("root: mmdebstrap could not make one")
        part.rename(archive)
    return archive


# Seen by the commands alone: /proc, and /dev with shared memory of its own.
CHROOT = """set -e
root=$1
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
exec chroot "$root" "$@"
"""
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


class Root:
    """A Debian root with the packages of two versions and the test's programs in /srv."""

    def __init__(self, archive, build, folder, debs, following):
        self.path = Path(folder, "root")
        self.path.mkdir()
        run(["tar", "-C", self.path, "-xf", archive], MAKE_LIMIT_S)
        for version, found in (("this", debs), ("next", following)):
            Path(self.path, "srv", version).mkdir()
            for name, path in found.items():
                shutil.copy(path, self.path / "srv" / version / f"{name}.deb")
        for program in ("drv_vector_add", "drv_client_worker"):
            run(["strip", "-o", self.path / "srv" / program, build / "tests" / "e2e" / program])
        self.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", CHROOT, "sh", self.path]

    def words(self, words):
        return [str(word) for word in (*self.prefix, *words)]

    def run(self, *words):
        return run(self.words(words), MAKE_LIMIT_S, env=CLEAN)

    def start(self, *words):
        return subprocess.Popen(self.words(words), env=CLEAN, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def logs(self):
        """The ends of both logs, if they are there."""
        text = ""
        for log in sorted(Path(self.path, "var/log/nvidia-mps").glob("*.log")):
            text += f"{log.name}:\n" + "".join(log.read_text().splitlines(keepends=True)[-LOG_LINES:])
        return text

    def install(self, version):
        return self.run("sh", "-c", f"dpkg -i /srv/{version}/*.deb")

    def files(self):
        out = self.run("find", "/", "-xdev", "(", "-path", "/proc", "-o", "-path", "/dev", "-o", "-path", "/sys", "-o",
                       "-path", "/srv", ")", "-prune", "-o", "-print")
        return {line for line in out.splitlines() if not NOT_OURS.match(line)}

    def purge(self, before):
        self.run("dpkg", "--purge", *reversed(PACKAGES))
        left = sorted(self.files() - before)
        require(not left, f"purge leaves {left}")
        gone = sorted(before - self.files())
        require(not gone, f"purge removes {gone}")


EXPECTED = HERE.parent / "e2e" / "expected" / "drv_vector_add.txt"


def expect_results(output):
    lines = [line for line in output.splitlines() if not line.startswith("# ")]
    require(lines == EXPECTED.read_text().splitlines(), f"the program said\n{output}")


def without_systemd(root):
    """Nothing starts by itself; a daemon of root in its usual place is found by programs of all users."""
    before = root.files()
    root.install("this")
    vector_add = "openmps run --required -- /srv/drv_vector_add"
    as_nobody = f"setpriv --reuid 65534 --regid 65534 --clear-groups {vector_add}"
    script = f"""set -e
export OPENMPS_DRIVER=softgpu
[ ! -e /run/openmps/openmps.control ]
openmps-control -d
[ -S /run/openmps/openmps.control ]
# By NVIDIA's name it would serve another directory.
if /usr/lib/openmps/compat/bin/nvidia-cuda-mps-control -d >/tmp/second; then exit 1; fi
grep -q 'already running' /tmp/second
{vector_add} >/tmp/of-root
{as_nobody} >/tmp/of-nobody
openmps ps >/tmp/ps
openmps-control quit
[ ! -e /run/openmps/openmps.control ]
rm -rf /run/openmps
/usr/lib/openmps/compat/bin/nvidia-cuda-mps-control -d
[ -S /run/nvidia-mps/openmps.control ]
{as_nobody} >/tmp/by-nvidias-name
openmps-control quit
rm -r /run/nvidia-mps
CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps openmps-control -d
if openmps-control -d >/tmp/second; then exit 1; fi
{as_nobody} >/tmp/in-the-old-place
openmps-control quit
"""
    root.run("sh", "-c", script)
    for name in ("of-root", "of-nobody", "by-nvidias-name", "in-the-old-place"):
        expect_results((root.path / "tmp" / name).read_text())
    root.purge(before)


def systemd_below(nspawn):
    """The PID of the container's systemd: nspawn has other children before."""
    for pid in Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                return pid
    return None


@contextlib.contextmanager
def booted(root):
    """systemd in a container with that root; commands run in it."""
    need("systemd-nspawn", "nsenter")
    prefix = root.prefix
    console = tempfile.TemporaryFile("w+")  # noqa: SIM115
    nspawn = subprocess.Popen(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe",
                               "-D", root.path], stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        leader = wait_until(lambda: nspawn.poll() is None and systemd_below(nspawn.pid), SETTLE_LIMIT_S)
        if not leader:
            console.seek(0)
            raise Missing(f"container with systemd: {console.read()}")
        root.prefix = ["nsenter", "--target", leader, "--mount", "--uts", "--ipc", "--net", "--pid"]
        wait_until(lambda: state_of(root) in ("running\n", "degraded\n"), SETTLE_LIMIT_S)
        yield
    finally:
        root.prefix = prefix
        # The container has nothing to save: its first process takes all others along.
        leader = systemd_below(nspawn.pid)
        os.kill(int(leader) if leader else nspawn.pid, signal.SIGKILL)
        nspawn.wait(SETTLE_LIMIT_S)
        console.close()


def state_of(root):
    return subprocess.run(root.words(["systemctl", "is-system-running"]), env=CLEAN, capture_output=True, text=True,
                          check=False).stdout


def is_active(root, unit):
    return subprocess.run(root.words(["systemctl", "--quiet", "is-active", unit]), env=CLEAN, check=False).returncode == 0


def daemon_of(root):
    return root.run("systemctl", "show", "-P", "MainPID", "openmps.service").strip()


def servers_of(root):
    return root.run("openmps-control", "get_server_list").split()


def all_servers(root):
    done = subprocess.run(root.words(["pidof", "openmps-server"]), env=CLEAN, capture_output=True, text=True, check=False)
    return set(done.stdout.split())


def start_client(root, *words):
    client = root.start("openmps", "run", "--required", "--", "/srv/drv_client_worker", *words)
    require(client.stdout.readline() == "ready\n", f"the client {words} does not start")
    return client


def newcomer(root):
    expect_results(root.run("openmps", "run", "--required", "--", "/srv/drv_vector_add"))


def upgrade(root, version, takes_back):
    """Under a client that computes and compares all the while, and an idle one that goes on afterwards."""
    idle, busy = start_client(root, "1", "40", "hold"), start_client(root, "2", "0")
    daemon, servers = daemon_of(root), servers_of(root)
    begun = time.monotonic()
    root.install(version)
    print(f"# {version}: installed in {time.monotonic() - begun:.1f} s")
    require(is_active(root, "openmps.service"), "the service does not run after the upgrade")
    require(daemon_of(root) != daemon, "the daemon was not replaced")
    newcomer(root)
    require(set(servers) <= all_servers(root), "the clients' server has gone")
    if takes_back:
        require(servers_of(root) == servers, f"servers {servers_of(root)}, not {servers}")
    else:
        log = (root.path / "var" / "log" / "nvidia-mps" / "control.log").read_text()
        require("is not taken back, server and daemon are of different builds" in log, log[-2000:])
        require(not set(servers_of(root)) & set(servers), "the old server serves new programs")
    require(busy.poll() is None, "the busy client has ended")
    out, _ = idle.communicate("go\n", timeout=RUN_LIMIT_S)
    require(idle.returncode == 0, f"the idle client: {idle.returncode}\n{out}")
    require(busy.poll() is None, "the busy client has ended")
    root.run("sh", "-c", "kill $(pidof drv_client_worker)")
    busy.communicate(timeout=RUN_LIMIT_S)
    if not takes_back:
        require(wait_until(lambda: not set(servers) & all_servers(root), SETTLE_LIMIT_S), "the old server stays")


def with_systemd(root):
    with booted(root):
        before = root.files()
        (root.path / "etc" / "default" / "openmps").write_text("OPENMPS_DRIVER=softgpu\n")
        root.install("this")
        for unit in ("openmps.service", "openmps.socket"):
            require(is_active(root, unit), f"{unit} is not active\n{root.run('journalctl', '--no-pager', '-n', '30')}")
        newcomer(root)
        # A service with a /tmp of its own.
        expect_results(root.run("systemd-run", "--quiet", "--wait", "--pipe", "--property=PrivateTmp=yes", "openmps", "run",
                                "--required", "--", "/srv/drv_vector_add"))
        upgrade(root, "this", takes_back=True)
        upgrade(root, "next", takes_back=False)
        # A daemon that has ended is started by the next program.
        root.run("openmps-control", "quit")
        require(wait_until(lambda: not is_active(root, "openmps.service"), SETTLE_LIMIT_S), "the service does not end")
        newcomer(root)
        # The service runs and is not enabled, without the socket.
        root.run("systemctl", "stop", "openmps.socket", "openmps.service")
        root.run("systemctl", "--quiet", "disable", "openmps.socket", "openmps.service")
        root.run("systemctl", "start", "openmps.service")
        upgrade(root, "this", takes_back=False)
        (root.path / "etc" / "default" / "openmps").unlink()
        root.purge(before)
        require(not all_servers(root), "servers run after the purge")


def in_roots(build, roots):
    if os.geteuid() != 0:
        raise Missing("root's rights")
    archive = root_archive(roots)
    with tempfile.TemporaryDirectory() as folder:
        debs = make_debs(build, Path(folder, "debs"))
        following = make_next(debs, build, folder)
        for number, scenario in enumerate((without_systemd, with_systemd)):
            place = Path(folder, str(number))
            place.mkdir()
            begun = time.monotonic()
            root = Root(archive, build, place, debs, following)
            try:
                scenario(root)
            except Failure as failure:
                raise Failure(f"{scenario.__name__}: {failure}\n{root.logs()}") from failure
            print(f"# {scenario.__name__}: {time.monotonic() - begun:.1f} s")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["deb", "rpm", "root"])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--roots", type=Path, help="root: where the archive of the root is kept")
    options = parser.parse_args()
    try:
        what = {"deb": deb, "rpm": rpm, "root": in_roots}[options.what]
        return what(options.build.resolve(), options.roots)
    except Missing as missing:
        print(f"skipped: there is no {missing}")
        return SKIPPED
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
