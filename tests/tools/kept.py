#!/usr/bin/env python3
"""How long a path is away when its server is killed and its keeper starts it again.

    kept.py LEE CELL KILLS THREADS SECONDS

The cell is served by `lee up --background`. While THREADS threads make, write, fsync and read files, the server is killed
KILLS times; each time a new file must be readable and writable again within SECONDS, all that was fsynced be there, and
nothing have landed below the mount point. Prints the median and the longest time.
"""

import json
import multiprocessing
import os
import select
import signal
import statistics
import subprocess
import sys
import threading
import time

NOTED_SECS_MAX = 20
ASKED_SECS_MAX = 20
BETWEEN_SECS = 1.0
PROCESSES = 2
GONE = (2, 5, 103, 107, 108, 125)  # of a dead mount, and of a mount point without its mount


def content(name):
    return f"{name}\n".encode() * 500


class Load(threading.Thread):
    """New files, each fsynced; what was acknowledged is remembered. Errors of a dead mount are passed over."""

    def __init__(self, top, number, end):
        super().__init__(daemon=True)
        self.top, self.number, self.end, self.durable, self.failed = top, number, end, [], []

    def run(self):
        turn = 0
        while not self.end.is_set():
            turn += 1
            name = f"{self.top}/dir/{self.number}.{turn}"
            try:
                with open(name, "wb") as file:
                    file.write(content(name))
                    file.flush()
                    os.fsync(file.fileno())
                self.durable.append(name)
                os.stat(f"{self.top}/dir/{self.number}.{turn // 2}")
            except OSError as error:
                if error.errno not in GONE:
                    self.failed.append(f"{name}: {error}")
                time.sleep(0.002)


def load(top, numbers, end, results):
    """A process with a thread for each number."""
    threads = [Load(top, number, end) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(([name for t in threads for name in t.durable], [why for t in threads for why in t.failed]))


def status(lee, cell):
    asked = [lee, "status", cell, "--json"]
    said = subprocess.run(asked, capture_output=True, check=False, timeout=ASKED_SECS_MAX).stdout
    return json.loads(said or "{}")


def served(lee, cell, restarts):
    """Waits until a server runs and its keeper has noted so many restarts; returns what `lee status` says.

    The path answers a moment earlier: the server reports to the keeper after it has mounted."""
    until = time.monotonic() + NOTED_SECS_MAX
    while True:
        now = status(lee, cell)
        if now.get("running") and now["restarts"] == restarts:
            return now
        if time.monotonic() > until:
            sys.exit(f"no server with {restarts} restarts after {NOTED_SECS_MAX} s: {now}")
        time.sleep(0.01)


def kill(lee, cell, mnt, number, secs):
    """Kills the server, which was killed `number` times before; returns for how many seconds the path was away."""
    server = served(lee, cell, number)["pid"]
    gone = os.pidfd_open(server)
    begun = time.monotonic()
    os.kill(server, signal.SIGKILL)
    select.select([gone], [], [], secs)
    os.close(gone)
    while time.monotonic() < begun + secs:
        try:
            with open(f"{mnt}/dir/kill{number}", "w") as file:
                file.write("x")
            return time.monotonic() - begun
        except OSError:
            time.sleep(0.001)
    sys.exit(f"kill {number}: the path is not back after {secs} s")


def kill_again_and_again(lee, cell, mnt, kills, secs):
    """Returns for how many seconds the path was away each time."""
    times = []
    for number in range(kills):
        time.sleep(BETWEEN_SECS)
        times.append(kill(lee, cell, mnt, number, secs))
    served(lee, cell, kills)
    return times


def gather(results):
    """What the processes made durable, and what failed in them."""
    durable, failed = [], []
    for _ in range(PROCESSES):
        own = results.get(timeout=60)
        durable += own[0]
        failed += own[1]
    return durable, failed


def main():
    (lee, cell), (kills, threads, secs) = sys.argv[1:3], map(int, sys.argv[3:])
    mnt = served(lee, cell, 0)["mount"]
    os.makedirs(f"{mnt}/dir", exist_ok=True)
    end, results = multiprocessing.Event(), multiprocessing.Queue()
    for first in range(PROCESSES):
        own = range(first, threads, PROCESSES)
        # A daemon: after a failure here Python ends it, instead of waiting for it without a limit.
        multiprocessing.Process(target=load, args=(mnt, own, end, results), daemon=True).start()
    try:
        times = kill_again_and_again(lee, cell, mnt, kills, secs)
    finally:
        end.set()
    durable, failed = gather(results)
    lost = [name for name in durable if open(name, "rb").read() != content(name)]
    if failed or lost:
        sys.exit(f"failed: {failed[:3]}, lost: {lost[:3]}")
    middle, longest = statistics.median(times), max(times)
    print(f"NOTE {kills} kills beside {threads} threads: back after {middle * 1000:.0f} ms in the middle, {longest * 1000:.0f} ms at most")
    print(f"{len(durable)} files as they were fsynced; {' '.join(f'{secs * 1000:.0f}' for secs in times)}")


if __name__ == "__main__":
    main()
