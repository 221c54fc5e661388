"""What the trials `powercut.py` and `rot.py` share: a server of a cell, commands with a deadline, and cleaning up."""

import os
import re
import signal
import subprocess
import sys
import time

START_SECS_MAX = 60
COMMAND_SECS_MAX = 120


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended on the way out


class Failed(Exception):
    """A promise that was broken; the message says which."""


def expect(holds, message):
    if not holds:
        raise Failed(message)


def first_lines(text, lines=12, width=300):
    return "\n".join(line[:width] for line in str(text).splitlines()[:lines])


def is_mounted(path):
    with open("/proc/mounts") as mounts:
        return any(line.split()[1] == path for line in mounts)


def unmount(path):
    if is_mounted(path):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


def wait_until(seconds, what, holds):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Cell:
    """A cell in `at` that is mounted at `mnt` while it is served. All it prints goes to `log`."""

    def __init__(self, lee, at, mnt, log):
        self.lee, self.at, self.mnt, self.log, self.server = lee, at, mnt, log, None
        os.makedirs(mnt, exist_ok=True)

    def command(self, *arguments, seconds=COMMAND_SECS_MAX):
        """A command on the cell: its exit status and all it printed. A hang is a failure, and so is a panic."""
        said = f"lee {' '.join(arguments)}"
        try:
            done = subprocess.run(
                [self.lee, *arguments], env={**os.environ, "LEE_CELL": self.at, "RUST_BACKTRACE": "0"}, text=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired as e:
            raise Failed(f"{said} did not end within {seconds} s") from e
        with open(self.log, "a") as log:
            log.write(f"$ {said}: {done.returncode}\n{done.stdout}")
        expect("panicked" not in done.stdout, f"{said} panicked:\n{first_lines(done.stdout[done.stdout.find('panicked') :])}")
        expect(done.returncode >= 0, f"{said} was ended by signal {-done.returncode}")
        return done.returncode, done.stdout

    def must(self, *arguments):
        status, said = self.command(*arguments)
        expect(status == 0, f"lee {' '.join(arguments)}: exit status {status}\n{said}")
        return said

    def launch(self):
        """Begins to serve; what the server prints is in the log from `self.since` on."""
        self.since = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            arguments = [self.lee, "up", self.at, "--mount", self.mnt]
            self.server = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def said(self):
        with open(self.log, errors="replace") as log:
            log.seek(self.since)
            return log.read()

    def start(self, seconds=START_SECS_MAX):
        """Serves: True. False when `lee up` refused; `said()` tells why."""
        self.launch()
        mounted = re.compile("is mounted at")
        wait_until(seconds, "lee up", lambda: self.server.poll() is not None or mounted.search(self.said()))
        if self.server.poll() is None:
            return True
        expect(self.server.returncode > 0, f"lee up ended with {self.server.returncode}:\n{self.said()}")
        self.server = None
        return False

    def kill(self):
        if self.server:
            self.server.kill()
            self.server.wait()
            self.server = None

    def stop(self):
        """The polite end: the exit status of `lee down`."""
        status, _ = self.command("down", self.at)
        if self.server:
            try:
                self.server.wait(COMMAND_SECS_MAX)
            except subprocess.TimeoutExpired as e:
                raise Failed("the server is there long after lee down") from e
            self.server = None
        return status

    def end(self):
        """Whatever is left of it."""
        self.kill()
        unmount(self.mnt)

    def panics(self):
        with open(self.log, errors="replace") as log:
            return [line for line in log if "panicked" in line]
