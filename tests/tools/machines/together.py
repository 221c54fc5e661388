"""Machines that do the same thing at the same moment: append, make one name, take locks."""

import ctypes
import errno
import fcntl
import os
import signal
import time
import zlib

from program import FORK, Program, at_once, dies_with_its_case, expect, note, read, write

APPENDERS, LINES = 2, 150  # on each machine
NAMES = 50
COUNTERS, COUNTS = 2, 40  # on each machine
AT_FDCWD, RENAME_NOREPLACE = -100, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def append(*tops):
    """Each line is there once, whole, and those of one program are in its order."""
    os.mkdir(f"{tops[0]}/append")
    write(f"{tops[0]}/append/log", b"")
    writers = [(top, f"{machine}.{number}") for machine, top in enumerate(tops) for number in range(APPENDERS)]
    at_once(60, append_lines, writers)
    for top in tops:
        found = {}
        for text in read(f"{top}/append/log").decode().splitlines():
            who, number, *_ = text.split()
            expect(text == line(who, int(number)), f"{top}: a torn line: {torn(text, line(who, int(number)))}")
            found.setdefault(who, []).append(int(number))
        for _, who in writers:
            expect(found.get(who) == list(range(LINES)), f"{top}: {who} appended {LINES} lines, there are {found.get(who)}")
    note(f"{len(writers) * LINES} lines of {len(writers)} programs on {len(tops)} machines")


def line(who, number):
    """Of any length up to some pages, and all of it follows from who and number."""
    sum_ = zlib.crc32(f"{who} {number}".encode())
    return f"{who} {number} {sum_} " + "x" * (sum_ % 6000)


def torn(found, wanted):
    """Where a line differs, and what is there."""
    at = next((n for n, (a, b) in enumerate(zip(found + "$", wanted + "$")) if a != b), -1)
    return f"{wanted[:30]!r} has {len(found)} of {len(wanted)} bytes, and differs at {at}: {found[at : at + 30]!r}"


def append_lines(top, who):
    fd = os.open(f"{top}/append/log", os.O_WRONLY | os.O_APPEND)
    for number in range(LINES):
        data = line(who, number).encode() + b"\n"
        expect(os.write(fd, data) == len(data), "a short write")
    os.close(fd)


def exclusive(*tops):
    """Of all machines that make one name at the same moment exactly one is told that it did."""
    os.mkdir(f"{tops[0]}/exclusive")
    ways = sorted(WAYS)
    for top in tops:
        write(f"{tops[0]}/exclusive/of.{tops.index(top)}", b"", os.O_CREAT)
    results = at_once(90, take_names, [(top, number) for number, top in enumerate(tops)])
    for way in ways:
        wins = [sum(result[way][name] for result in results) for name in range(NAMES)]
        expect(wins == [1] * NAMES, f"{way}: so many have won each name: {wins}")
        there = [name for name in os.listdir(f"{tops[-1]}/exclusive") if name.startswith(f"{way}.")]
        expect(len(there) == NAMES, f"{way}: {len(there)} of {NAMES} names are there")
    shares = {way: [sum(result[way]) for result in results] for way in ways}
    expect(sum(any(share[of] for share in shares.values()) for of in range(len(tops))) > 1, f"one has won all: {shares}")
    note("won by each machine: " + ", ".join(f"{way} {share}" for way, share in shares.items()))


def take_names(top, number):
    """Tries each name as soon as the clock says so, for all machines at the same moment."""
    won = {way: [0] * NAMES for way in WAYS}
    begin = meeting(f"{top}/exclusive/go")
    for name in range(NAMES):
        for place, (way, take) in enumerate(sorted(WAYS.items())):
            pause = begin + (name * len(WAYS) + place) * 0.012 - time.monotonic()
            time.sleep(max(0, pause))
            try:
                take(f"{top}/exclusive", number, f"{top}/exclusive/{way}.{name}")
                won[way][name] = 1
            except OSError as e:
                expect(e.errno in (errno.EEXIST, errno.ENOTEMPTY), f"{way}: {e}")
    return won


def meeting(path):
    """A moment soon, the same for all who ask here."""
    try:
        write(path, b"%f " % (time.monotonic() + 0.2), os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        pass
    while not (said := read(path)).endswith(b" "):
        time.sleep(0.001)
    return float(said)


def take_by_create(_, _number, path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def take_by_link(dir_, number, path):
    os.link(f"{dir_}/of.{number}", path)


def take_by_rename(dir_, number, path):
    source = f"{dir_}/from.{number}"
    write(source, b"", os.O_CREAT)
    if LIBC.renameat2(AT_FDCWD, source.encode(), AT_FDCWD, path.encode(), RENAME_NOREPLACE) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


WAYS = {
    "create": take_by_create,
    "mkdir": lambda _, _number, path: os.mkdir(path),
    "link": take_by_link,
    "rename": take_by_rename,
}


def locks(*tops):
    dir_ = "locks"
    os.mkdir(f"{tops[0]}/{dir_}")
    for way in LOCKS:
        write(f"{tops[0]}/{dir_}/{way}", b"0")
    counters = [(f"{top}/{dir_}", way) for top in tops for way in LOCKS for _ in range(COUNTERS)]
    at_once(60, count_up, counters)
    for way in LOCKS:
        for top in tops:
            found, wanted = int(read(f"{top}/{dir_}/{way}")), len(tops) * COUNTERS * COUNTS
            expect(found == wanted, f"{way}: counted to {found}, not {wanted}, says {top}")
    excluded(tops[0], tops[-1])
    ends_with_its_program(tops[0], tops[-1])
    deadlock(tops[0], tops[1])
    note(f"{len(counters) * COUNTS} changes under locks of {len(counters)} programs on {len(tops)} machines")


def flocked(fd, how):
    fcntl.flock(fd, how)


def ranged(fd, how):
    fcntl.lockf(fd, how, 10, 0)


LOCKS = {"flock": flocked, "fcntl": ranged}


def count_up(dir_, way):
    """What it read cannot have changed before it writes, if the lock holds."""
    lock = LOCKS[way]
    fd = os.open(f"{dir_}/{way}", os.O_RDWR)
    for _ in range(COUNTS):
        lock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 20, 0))
        os.pwrite(fd, b"%d" % (number + 1), 0)
        lock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_free(path, lock):
    fd = os.open(path, os.O_RDWR)
    try:
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def excluded(one, other):
    for way, lock in LOCKS.items():
        fd = os.open(f"{one}/locks/{way}", os.O_RDWR)
        lock(fd, fcntl.LOCK_EX)
        expect(not is_free(f"{other}/locks/{way}", lock), f"{way}: both machines have it")
        lock(fd, fcntl.LOCK_UN)
        expect(is_free(f"{other}/locks/{way}", lock), f"{way}: it was unlocked, and is not free elsewhere")
        os.close(fd)


def hold(path, way, pipe):
    dies_with_its_case()
    fd = os.open(path, os.O_RDWR)
    LOCKS[way](fd, fcntl.LOCK_EX)
    pipe.send("held")
    time.sleep(60)


def ends_with_its_program(one, other):
    """Locks of a killed program are free for who waits elsewhere."""
    for way in LOCKS:
        pipe, its = FORK.Pipe()
        holder = FORK.Process(target=hold, args=(f"{one}/locks/{way}", way, its), daemon=True)
        holder.start()
        expect(pipe.poll(10) and pipe.recv() == "held", f"{way}: not to be had")
        waiting = Program(f"who waits for {way}")
        waiting.ask(wait_for_lock, f"{other}/locks/{way}", way)
        time.sleep(0.2)
        expect(not waiting.has_answered(), f"{way}: both machines have it")
        os.kill(holder.pid, signal.SIGKILL)
        waiting.answer(3)


def wait_for_lock(path, way):
    fd = os.open(path, os.O_RDWR)
    LOCKS[way](fd, fcntl.LOCK_EX)
    os.close(fd)


def deadlock(one, other):
    """Two programs on two machines that wait for each other: one of them is told."""
    for name in "ab":
        write(f"{one}/locks/{name}", b"")
    orders = [(f"{one}/locks/", "ab"), (f"{other}/locks/", "ba")]
    told = at_once(15, lock_both, orders)
    expect(errno.EDEADLK in told, f"they were told {told}")


def lock_both(dir_, names):
    first, second = (os.open(dir_ + name, os.O_RDWR) for name in names)
    try:
        fcntl.lockf(first, fcntl.LOCK_EX)
        time.sleep(0.5)
        fcntl.lockf(second, fcntl.LOCK_EX)
        return 0
    except OSError as e:
        return e.errno
    finally:
        os.close(first)
        os.close(second)
