#!/usr/bin/env python3
"""Whether a program that follows a tree hears of each change once, while the server and the program are killed.

    followed.py LEE CELL CHANGES KILLS

The cell is served by `lee up --background`. Processes make, rename, link and remove names until there were CHANGES changes, and
`lee watch` follows them. The server is killed KILLS times between, and `lee watch` as often, which then goes on after the
last cursor that was heard. At the end the numbers of the events must have no gap, and what they say be the tree.
"""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time

from kept import GONE, kill, served

WRITERS = 3
BACK_SECS_MAX = 90
HEARD_SECS_MAX = 120


def write(mnt, number, changes, done):
    """Changes names in an own directory; errors of a dead mount, and names that went with it, are passed over."""
    rng, names, made = random.Random(number), [], 0
    top = f"{mnt}/followed/{number}"
    while made < changes:
        new = f"{top}/{made}.{rng.random()}"
        old = names.pop(rng.randrange(len(names))) if len(names) > 10 and rng.randrange(2) else None
        what = rng.randrange(5)
        try:
            if old is None:
                os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                names.append(new)
            elif what < 2:
                os.rename(old, new)
                names.append(new)
            elif what < 3:
                os.link(old, new)
                names += [old, new]
            else:
                os.unlink(old)
            made += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in GONE:
                raise
            time.sleep(0.01)
    done.put(made)


class Follower:
    """Hears events, one after the other, also when `lee watch` ends between two of them."""

    def __init__(self, lee, cell, mnt):
        self.command = [lee, "--cell", cell, "watch", mnt]
        self.cursor, self.heard, self.process, self.wrong = None, [], None, None
        self.ended = threading.Event()

    def begin(self):
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            while not self.ended.is_set():
                self.follow(["--after", self.cursor] if self.cursor else ["--all"])
        except Exception as why:  # what a thread says would be lost
            self.wrong = why

    def follow(self, where):
        self.process = subprocess.Popen([*self.command, *where], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it wrote
            event = json.loads(line)
            if "lost" in event:
                raise SystemExit(f"lost: {event}")
            self.heard.append(event)
            self.cursor = event["cursor"]
        self.process.wait()

    def kill(self):
        if self.process:
            self.process.kill()

    def end(self):
        self.ended.set()
        self.kill()


def told(events):
    """Names and their inodes, as the events say."""
    names = {}
    for event in events:
        path, inode, what = event.get("path"), event["inode"], event["what"]
        if what in ("created", "linked"):
            if path in names:
                raise SystemExit(f"{path} was there: {event}")
            names[path] = inode
        elif what in ("removed", "renamed"):
            if names.pop(event.get("from", path), None) != inode:
                raise SystemExit(f"it was not there: {event}")
            if what == "renamed":
                names[path] = inode
    return names


def there(mnt):
    names = {}
    for top, dirs, files in os.walk(mnt):
        for name in dirs + files:
            path = os.path.join(top, name)
            names[path[len(mnt):]] = os.lstat(path).st_ino
    return names


def main():
    (lee, cell), (changes, kills) = sys.argv[1:3], map(int, sys.argv[3:])
    mnt = served(lee, cell, 0)["mount"]
    for number in range(WRITERS):
        os.makedirs(f"{mnt}/followed/{number}")
    os.makedirs(f"{mnt}/dir")
    follower = Follower(lee, cell, mnt)
    follower.begin()
    done = multiprocessing.Queue()
    begun = time.monotonic()
    writers = [multiprocessing.Process(target=write, args=(mnt, n, changes // WRITERS, done), daemon=True) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for number in range(kills):
        until = len(follower.heard) + changes // (kills + 1) // 2
        while len(follower.heard) < until and any(writer.is_alive() for writer in writers):
            time.sleep(0.01)
        kill(lee, cell, mnt, number, BACK_SECS_MAX)
        follower.kill()
    made = sum(done.get() for _ in writers)
    took = time.monotonic() - begun
    served(lee, cell, kills)
    with open(f"{mnt}/last", "w") as last:
        os.fsync(last.fileno())
    end = time.monotonic() + HEARD_SECS_MAX
    while not any(event.get("path") == "/last" for event in follower.heard[-10:]):
        if follower.wrong or time.monotonic() > end:
            sys.exit(f"the last change was not heard of: {follower.wrong}")
        time.sleep(0.01)
    follower.end()
    numbers = [event["number"] for event in follower.heard]
    if numbers != list(range(len(numbers))):
        wrong = next(n for n, number in enumerate(numbers) if n != number)
        sys.exit(f"event {wrong} is missing, or there twice: {follower.heard[wrong - 1 : wrong + 2]}")
    said, found = told(follower.heard), there(mnt)
    if said != found:
        differ = sorted(said.items() ^ found.items())[:4]
        sys.exit(f"the events say something else than the tree: {differ}")
    print(f"NOTE {made} changes in {took:.1f} s with {kills} kills of the server and of the follower: {len(numbers)} events, none missing, none twice")


if __name__ == "__main__":
    main()
