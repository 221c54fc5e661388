#!/usr/bin/env python3
"""A cell on a disk whose power is cut (`crates/fuse/examples/cutdisk`) while programs write in it.

    powercut.py LEE CUTDISK WORK FROM..TO       one life of a cell for each seed
    powercut.py LEE CUTDISK WORK selfcheck      what a cut leaves, and that a disk that lies is found out

A life: a cell is made, with a mirrored and an erasure coded pool on the same disk; then, CUTS times, writers work in all
of them and note what was acknowledged as durable (durable.py), the server is killed, the power cut, and the cell opened on
what the disk kept. Every promise of this life must hold and fsck find nothing. Some cuts come while the cell is made or
recovers, and in some lives a file may have both names of a rename. A failure prints the seed; the moments and
what survives are the same in a replay, what was in flight is not.
"""

import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import time

import durable
from trial import Cell, Failed, expect, unmount, wait_until

CUTS = int(os.environ.get("POWERCUT_CUTS", "4"))
WORK_SECS_MAX = float(os.environ.get("POWERCUT_WORK_SECS", "2.5"))
WRITERS = 6
ONLY = os.environ.get("POWERCUT_ONLY", "")  # a regular expression: only writers whose names it matches
POOLS = {"mirror": "replica(2)", "coded": "erasure(2+1)"}
PLACES = ["", *POOLS]


# Known findings.
# After some cuts fsck reports `unknown-object` in a pool with several stores for longer than a minute: space that no
# record knows and nobody removes. Nothing is lost by it, so it is not counted.


def only_leftovers(said):
    is_log = re.compile(r"\d{4}-\d\d-\d\dT")
    lines = [line for line in said.splitlines() if ": " in line and "finding" not in line and not is_log.match(line)]
    return bool(lines) and all(line.startswith("unknown-object: ") and "in pool" in line for line in lines)


# Writers beside those of durable.py.


def take_snapshots(top, notes, rng):
    """A file changes, and snapshots of its directory come and go; fsync of `.snap` makes each step durable."""
    version, taken = 0, []
    while True:
        version += 1
        with open(f"{top}/file", "wb") as file:
            file.write(durable.content("snapped", version, 1 + durable.length_of("snapped", version)))
        os.mkdir(f"{top}/.snap/s{version}")
        durable.sync_dir(f"{top}/.snap")
        notes.add("taken", version)
        taken.append(version)
        if len(taken) > 3 and rng.random() < 0.5:
            gone = taken.pop(rng.randrange(len(taken)))
            notes.add("removing", gone)
            os.rmdir(f"{top}/.snap/s{gone}")
            durable.sync_dir(f"{top}/.snap")
            notes.add("removed", gone)


def verify_take_snapshots(top, notes, _crash):
    state = {int(version): what for what, version in notes}
    for version, what in state.items():
        there = os.path.isdir(f"{top}/.snap/s{version}")
        durable.expect(there or what != "taken", f"{top}/.snap/s{version} is gone")
        durable.expect(not there or what != "removed", f"{top}/.snap/s{version} is back")
        wanted = durable.content("snapped", version, 1 + durable.length_of("snapped", version))
        if there:
            durable.expect(durable.read(f"{top}/.snap/s{version}/file") == wanted, f"{top}/.snap/s{version}/file differs")
    return len(notes)


def lee_command(top, *arguments):
    """A command in directory `top` of the mount; an error of the mount when the server is gone."""
    done = subprocess.run([os.environ["LEE"], *arguments], cwd=top, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        for _ in range(250):  # the command may notice that the server is gone before the mount does
            os.listdir(top)
            time.sleep(0.02)
        raise AssertionError(f"lee {arguments}: {done.stdout}{done.stderr}")
    return done.stdout


def command(top, notes, rng):
    """Limits that are set, and files without an fsync that `lee sync` makes durable."""
    number = 0
    while True:
        number += 1
        files = 1000 + number
        notes.add("limiting", files)
        lee_command(top, "quota", "set", top, "--files", str(files))
        notes.add("limited", files)
        name = f"file{number}"
        with open(f"{top}/{name}", "wb") as file:
            file.write(durable.content(name, 1, durable.length_of(name, 1)))
        lee_command(top, "sync")
        notes.add("synced", name)
        time.sleep(rng.random() * 0.1)


def verify_command(top, notes, _crash):
    limits = [(what, int(value)) for what, value in notes if what != "synced"]
    if any(what == "limited" for what, _ in limits):
        done = subprocess.run([os.environ["LEE"], "quota", "show", top, "--json"], cwd=top, capture_output=True, text=True)
        durable.expect(done.returncode == 0, f"quota show: {done.stderr}")
        low = max(value for what, value in limits if what == "limited")
        found = json.loads(done.stdout)["files"]
        durable.expect(low <= found <= limits[-1][1], f"{top}: the limit is {found} files, {low} was acknowledged")
    for what, name in notes:
        if what == "synced":
            wanted, found = durable.content(name, 1, durable.length_of(name, 1)), durable.read(f"{top}/{name}")
            at = durable.first_difference(found, wanted)
            durable.expect(found == wanted, f"{top}/{name}, {len(found)} bytes of {len(wanted)}, differs at byte {at}")
    return len(notes)


durable.WORKERS["snapshots"] = (take_snapshots, verify_take_snapshots)
durable.WORKERS["command"] = (command, verify_command)


class Disk:
    """The disk in memory, mounted at `at`."""

    def __init__(self, program, at, log, *flags):
        os.makedirs(at, exist_ok=True)
        self.at, self.log = at, open(log, "ab")
        self.process = subprocess.Popen([program, *flags, at], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        wait_until(20, "cutdisk", lambda: self.process.poll() is not None or os.path.ismount(at))
        expect(self.process.poll() is None, f"cutdisk ended: see {log}")

    def cut(self, seed):
        os.setxattr(self.at, "user.cut", str(seed).encode())

    def end(self):
        subprocess.run(["umount", self.at], check=False, capture_output=True)
        unmount(self.at)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Life:
    def __init__(self, lee, program, work, seed, *flags):
        self.rng = random.Random(seed)
        self.work = f"{work}/{seed}"
        self.notes = f"{self.work}/notes"
        os.makedirs(self.notes)
        if self.rng.random() < 0.3:
            flags += ("--half-renames",)
        self.disk = Disk(program, f"{self.work}/disk", f"{self.work}/disk.log", *flags)
        self.cell = Cell(lee, f"{self.work}/disk/cell", f"{self.work}/mnt", f"{self.work}/lee.log")
        self.writers, self.cuts, self.promises = [], 0, 0

    def cut(self):
        """Kills the server and cuts the power."""
        self.cell.kill()
        self.disk.cut(self.rng.getrandbits(32))
        self.cuts += 1

    def live(self):
        if self.rng.random() < 0.4:
            self.cut_while_starting(0.3)
        self.open()
        if self.rng.random() < 0.5:  # a cell that was only just made
            self.cell.must("sync")
            self.cut()
            expect(os.path.exists(f"{self.cell.at}/cell"), "lee up and lee sync said that the cell is durable, and it is gone")
            self.open()
        for pool, layout in POOLS.items():
            stores = [f"{self.disk.at}/{pool}/{n}" for n in range(3 if pool == "coded" else 2)]
            for store in stores:
                os.makedirs(store)
                for directory in (store, os.path.dirname(store), self.disk.at):
                    durable.sync_dir(directory)  # they are the operator's
            named = [word for store in stores for word in ("--store", store)]
            self.cell.must("pool", "create", pool, "--layout", layout, "--force", *named)
            self.cell.must("volume", "create", pool, "--pool", pool)
        self.cell.must("sync")
        for number in range(CUTS):
            self.round(number)
        expect(self.cell.stop() == 0, "lee down failed")
        self.check_fsck("after the end")
        expect(not self.cell.panics(), f"{self.cell.panics()}")

    def cut_while_starting(self, seconds):
        self.cell.launch()
        time.sleep(self.rng.random() * seconds)
        self.cut()

    def open(self):
        expect(self.cell.start(), f"lee up refused:\n{self.cell.said()}")

    def round(self, number):
        self.write(number)
        time.sleep(0.3 + self.rng.random() * WORK_SECS_MAX)
        with open(f"{self.notes}/{number}.killed", "w") as file:
            file.write(f"{time.monotonic():.3f}")
        self.cut()
        self.end_writers()
        if self.rng.random() < 0.3:
            self.check_fsck("of what the cut left")
        if self.rng.random() < 0.3:
            self.cut_while_starting(0.5)
        self.open()
        self.verify()
        self.check_fsck("served")

    def write(self, number):
        os.environ["LEE_CELL"] = self.cell.at
        pairs = [(name, place) for name in sorted(durable.WORKERS) for place in PLACES if re.search(ONLY, name)]
        for name, place in self.rng.sample(pairs, min(WRITERS, len(pairs))):
            notes = f"{self.notes}/{number}.{name}.{place}"
            open(notes, "w").close()
            arguments = (durable.WORKERS[name][0], self.top(number, name, place), notes, self.rng.getrandbits(32))
            self.writers.append(multiprocessing.Process(target=durable.work, args=arguments))
        for writer in self.writers:
            writer.start()

    def top(self, number, name, place):
        return os.path.join(self.cell.mnt, place, f"round{number}", name)

    def end_writers(self):
        for writer in self.writers:
            writer.join(30)
            expect(writer.exitcode is not None, "a writer did not end 30 s after the server")
        codes = [writer.exitcode for writer in self.writers]
        self.writers = []
        expect(all(code in (0, -7) for code in codes), f"writers ended with {codes}")

    def verify(self):
        for file in sorted(os.listdir(self.notes)):
            number, name, *place = file.split(".")
            if name == "killed":
                continue
            crash = float(durable.read(f"{self.notes}/{number}.killed"))
            try:
                checked = durable.WORKERS[name][1](
                    self.top(number, name, place[0]), durable.read_notes(f"{self.notes}/{file}"), crash
                )
            except (AssertionError, OSError) as error:
                raise Failed(f"round {number}, {name} in {place[0] or 'pool 0'}: {error}") from error
            self.promises += checked

    def check_fsck(self, when):
        status, said = self.cell.command("fsck")
        expect(status == 0 or only_leftovers(said), f"fsck {when}: exit status {status}\n{said}")

    def end(self):
        self.cell.end()
        for writer in self.writers:
            writer.kill()
            writer.join()
        self.disk.end()


def live(lee, program, work, seed, *flags):
    life = Life(lee, program, work, seed, *flags)
    try:
        life.live()
    except Failed as failed:
        raise Failed(f"seed {seed}, cut {life.cuts}: {failed}") from failed
    finally:
        life.end()
    if not os.environ.get("KEEP"):
        shutil.rmtree(life.work)
    return life.cuts, life.promises


def selfcheck(lee, program, work):
    """Without a cell: what was synced survives each cut, what was not is sometimes lost and sometimes kept."""
    disk = Disk(program, f"{work}/plain", f"{work}/plain.log")
    seen = set()
    try:
        for seed in range(40):
            top = f"{disk.at}/{seed}"
            os.mkdir(top)
            fd = os.open(f"{top}/synced", os.O_RDWR | os.O_CREAT)
            os.write(fd, b"a" * 8192)
            os.fsync(fd)
            durable.sync_dir(top)
            durable.sync_dir(disk.at)
            os.pwrite(fd, b"b" * 16384, 0)
            os.close(fd)
            with open(f"{top}/new", "w") as file:
                file.write("c" * 5000)
            os.rename(f"{top}/synced", f"{top}/moved")
            disk.cut(seed)
            names = sorted(set(os.listdir(top)) - {"new"})
            expect(names in (["synced"], ["moved"]), f"seed {seed}: a rename left {names}")
            data = durable.read(f"{top}/{names[0]}")
            blocks = [data[at : at + 4096] for at in range(0, len(data), 4096)]
            expect(all(len(set(block)) == 1 for block in blocks), f"seed {seed}: a block is torn")
            expect(len(blocks) in (2, 4) and all(block[:1] in b"ab" for block in blocks[:2]), f"seed {seed}: a synced block is gone")
            seen |= {names[0], *(bytes(block[:1]) for block in blocks), "new" if "new" in os.listdir(top) else "none"}
    finally:
        disk.end()
    expect(seen == {"synced", "moved", b"a", b"b", b"\0", "new", "none"}, f"40 cuts left only {seen}")
    try:
        live(lee, program, f"{work}/lies", 1, "--lies")
    except Failed as failed:
        expect("cut 0:" not in str(failed), str(failed))
        print(f"NOTE a disk that lies: {str(failed).splitlines()[0]}")
        return
    raise Failed("a disk that lies was not noticed")


def main(lee, program, work, what):
    os.environ["LEE"] = lee
    if what == "selfcheck":
        return selfcheck(lee, program, work)
    first, last = (int(number) for number in what.split(".."))
    cuts = promises = 0
    for seed in range(first, last):
        done = live(lee, program, work, seed)
        cuts, promises = cuts + done[0], promises + done[1]
        print(f"seed {seed}: {done[0]} cuts, {done[1]} promises checked", flush=True)
    print(f"NOTE {last - first} cells, {cuts} cuts, {promises} promises checked")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Failed as failed:
        sys.exit(str(failed))
