"""Programs at work on all machines while the server goes away and comes back, which check all that they were told.

    work NOTES MOUNT...      works until NOTES/end is there; says `at work` in NOTES/begun
    lost NOTES MOUNT...      see `lost`

No operation may fail: programs wait for the server, and go on. At the end every machine sees all that any program was
told was done, once: no name, content, line, count or link is missing, and none is there twice.
"""

import fcntl
import os
import random
import time

from program import FORK, Program, expect, note, read, write

PAUSE_SECS = 0.004
WORKERS, COUNTERS = 2, 1  # on each machine
END_SECS = 60
BLOCK, BLOCKS = 700, 40


class Worker:
    """One program. `told` is what it was told is done."""

    def __init__(self, top, number):
        self.top, self.dir, self.name = top, f"{top}/work/{number}", number
        self.rng, self.turn = random.Random(number), 0
        self.files, self.gone, self.links, self.blocks = {}, set(), {}, {}
        self.lines, self.taken, self.modes = 0, [], {}

    def run(self, end):
        os.mkdir(self.dir)
        self.log = os.open(f"{self.top}/work/log", os.O_WRONLY | os.O_APPEND)
        self.fd = os.open(f"{self.dir}/blocks", os.O_RDWR | os.O_CREAT, 0o644)
        while not end.is_set():
            self.turn += 1
            what = self.rng.choice(self.CHANGES)
            try:
                what(self)
            except OSError as e:
                raise AssertionError(f"{self.name}, turn {self.turn}, {what.__name__}: {e}") from e
            time.sleep(PAUSE_SECS)
        told = ("files", "gone", "links", "blocks", "lines", "taken", "modes", "name", "turn")
        return {name: getattr(self, name) for name in told}

    def make(self):
        name = f"file{self.turn}"
        write(f"{self.dir}/{name}", text(self.name, self.turn), os.O_CREAT | os.O_EXCL)
        self.files[name] = self.turn

    def a_file(self):
        return self.rng.choice(sorted(self.files)) if self.files else None

    def rename(self):
        if old := self.a_file():
            new = f"renamed{self.turn}"
            os.rename(f"{self.dir}/{old}", f"{self.dir}/{new}")
            self.files[new] = self.files.pop(old)
            self.modes[new] = self.modes.pop(old, 0o644)
            self.gone.add(old)

    def unlink(self):
        if (old := self.a_file()) and len(self.files) > 10:
            os.unlink(f"{self.dir}/{old}")
            del self.files[old]
            self.gone.add(old)

    def link(self):
        if old := self.a_file():
            os.link(f"{self.dir}/{old}", f"{self.dir}/link{self.turn}")
            self.links[f"link{self.turn}"] = self.files[old]

    def chmod(self):
        if old := self.a_file():
            self.modes[old] = self.rng.choice((0o600, 0o640, 0o755))
            os.chmod(f"{self.dir}/{old}", self.modes[old])

    def directory(self):
        os.mkdir(f"{self.dir}/dir{self.turn}")
        if self.rng.random() < 0.5:
            os.rmdir(f"{self.dir}/dir{self.turn}")
            self.gone.add(f"dir{self.turn}")

    def append(self):
        line = b"%s %d\n" % (self.name.encode(), self.lines)
        expect(os.write(self.log, line) == len(line), "a short write")
        self.lines += 1

    def overwrite(self):
        number = self.rng.randrange(BLOCKS)
        os.pwrite(self.fd, text(self.name, self.turn)[:BLOCK], number * BLOCK)
        self.blocks[number] = self.turn
        if self.rng.random() < 0.2:
            os.fsync(self.fd)

    def take(self):
        """A name that others try to make, too. Exactly one may be told that it did."""
        name = f"taken{int(time.monotonic() * 8)}"
        try:
            os.close(os.open(f"{self.top}/work/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            self.taken.append(name)
        except FileExistsError:
            pass

    def look(self):
        if name := self.a_file():
            found = read(f"{self.dir}/{name}")
            expect(found == text(self.name, self.files[name]), f"{self.dir}/{name} is not what was written: {found[:60]}")

    CHANGES = (make, make, rename, unlink, link, chmod, directory, append, append, overwrite, overwrite, take, look)


def text(name, number):
    unit = f"{name} {number} ".encode().ljust(20, b".")
    return unit * (35 + number % 13 * 40)


def count_under_lock(top, end):
    """Counts one file up, under a lock that holds over restarts of the server."""
    fd, counted = os.open(f"{top}/work/count", os.O_RDWR), 0
    while not end.is_set():
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 20, 0))
        os.pwrite(fd, b"%d" % (number + 1), 0)
        counted += 1
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(PAUSE_SECS)
    return counted


def work_until(end, top, number):
    return Worker(top, number).run(end)


def work(notes, *tops):
    """See the module's head."""
    number = len(os.listdir(notes))
    os.mkdir(f"{tops[0]}/work")
    write(f"{tops[0]}/work/log", b"")
    write(f"{tops[0]}/work/count", b"0")
    end, programs, counters = FORK.Event(), [], []
    for machine, top in enumerate(tops):
        for of in range(WORKERS):
            programs.append(Program(f"program {machine}.{of}", end, top, f"{machine}.{of}"))
            programs[-1].ask(work_until)
        counters.append(Program(f"who counts on {machine}", top, end))
        counters[-1].ask(count_under_lock)
    time.sleep(0.5)
    write(f"{notes}/begun", b"at work")
    while not os.path.exists(f"{notes}/end"):
        for program in programs + counters:
            if program.has_answered():
                program.answer(0)
                expect(False, f"{program.name} has ended")
        time.sleep(0.05)
    end.set()
    until = time.monotonic() + END_SECS
    told = [program.answer(max(0, until - time.monotonic()))[0] for program in programs]
    counted = [program.answer(max(0, until - time.monotonic()))[0] for program in counters]
    for top in tops:
        verify(top, told, counted)
    note(f"{sum(one['turn'] for one in told)} changes by {len(told)} programs, {sum(counted)} under a lock: {number}")


def verify(top, told, counted):
    """All of it, as this machine sees it."""
    for one in told:
        verify_files(f"{top}/work/{one['name']}", one)
    lines = read(f"{top}/work/log").decode().splitlines()
    for one in told:
        own = [line for line in lines if line.split()[0] == one["name"]]
        wanted = [f"{one['name']} {n}" for n in range(one["lines"])]
        expect(own == wanted, f"{top}: {one['name']} appended {len(wanted)} lines, there are {len(own)}: {differing(own, wanted)}")
    expect(len(lines) == sum(one["lines"] for one in told), f"{top}: {len(lines)} lines in the log")
    taken = sorted(name for one in told for name in one["taken"])
    there = sorted(name for name in os.listdir(f"{top}/work") if name.startswith("taken"))
    expect(taken == there, f"{top}: names that one was told it made, and those there: {sorted(set(taken) ^ set(there))}, {len(taken)}")
    found = int(read(f"{top}/work/count"))
    expect(found == sum(counted), f"{top}: counted to {found}, and {sum(counted)} times one more was told")


def differing(found, wanted):
    return next(((a, b) for a, b in zip(found + [None], wanted + [None]) if a != b), None)


def verify_files(dir_, one):
    there = set(os.listdir(dir_))
    for name in one["gone"]:
        expect(name not in there, f"{dir_}/{name} is there, and was removed")
    for name, number in {**one["files"], **one["links"]}.items():
        expect(name in there, f"{dir_}/{name} is gone")
        found = read(f"{dir_}/{name}")
        expect(found == text(one["name"], number), f"{dir_}/{name} is not what was written: {found[:60]}")
    for name in set(one["modes"]) & set(one["files"]):
        mode = os.stat(f"{dir_}/{name}").st_mode & 0o777
        expect(mode == one["modes"][name], f"{dir_}/{name} has mode {mode:o}, not {one['modes'][name]:o}")
    blocks = read(f"{dir_}/blocks")
    for number, version in one["blocks"].items():
        found = blocks[number * BLOCK :][:BLOCK]
        expect(found == text(one["name"], version)[:BLOCK], f"{dir_}/blocks: block {number} is not what was written: {found[:40]}")
    unknown = {name for name in there if not name.startswith("dir")} - set(one["files"]) - set(one["links"]) - {"blocks"}
    expect(not unknown, f"{dir_}: {sorted(unknown)[:5]} are there, and nobody made them")


# A machine that is too late.

LATE_FILES = 12


def open_and_write(files, top):
    """Without fsync."""
    os.mkdir(f"{top}/late")
    for number in range(LATE_FILES):
        files.append(os.open(f"{top}/late/{number}", os.O_RDWR | os.O_CREAT, 0o644))
    for fd in files:
        os.fsync(fd)


def write_late(files, _):
    for number, fd in enumerate(files):
        expect(os.pwrite(fd, text("late", number), 0) == len(text("late", number)), "a short write")


def sync_late(files, top):
    """What fsync says of each file, and what it says then."""
    told = []
    for number, fd in enumerate(files):
        says = []
        for _ in range(2):
            try:
                os.fsync(fd)
                says.append(0)
            except OSError as e:
                says.append(e.errno)
        told.append(says)
        os.pwrite(fd, b"again", 0)
        os.fsync(fd)
    write(f"{top}/late/after", b"after")
    return told


def late_content(_, top):
    return [read(f"{top}/late/{number}") for number in range(LATE_FILES)], os.path.exists(f"{top}/late/after")


def lost(notes, late, other):
    """A machine that does not come back in time after the server has crashed. What is lost then is told by fsync, once.

    Goes on when NOTES/killed is there (the machine is stopped and the server killed), and NOTES/back (both are back)."""
    program, elsewhere = Program("the late machine", [], late), Program("another machine", [], other)
    program.call(20, open_and_write)
    program.call(20, write_late)
    write(f"{notes}/written", b"")
    wait_for(f"{notes}/served")
    (found, _), took = elsewhere.call(20, late_content)
    write(f"{notes}/seen", b"")
    wait_for(f"{notes}/back")
    told, _ = program.call(20, sync_late)
    for number, (content, says) in enumerate(zip(found, told)):
        is_there = content == text("late", number)
        expect(is_there or not content, f"file {number} has content that nobody wrote: {content[:60]}")
        expect(says[0] == (0 if is_there else 5), f"file {number}: fsync says {says}, and its content is {'there' if is_there else 'lost'}")
        expect(says[1] == 0, f"file {number}: fsync says {says}")
    (found, is_after), _ = elsewhere.call(20, late_content)
    expect(is_after and all(content.startswith(b"again") for content in found), "the late machine does not go on")
    gone = sum(says[0] != 0 for says in told)
    note(f"{gone} of {LATE_FILES} files were lost, and fsync said so; the other machine's look took {took:.1f} s")


def wait_for(path, secs=40):
    until = time.monotonic() + secs
    while not os.path.exists(path):
        expect(time.monotonic() < until, f"no {path} after {secs} s")
        time.sleep(0.01)
