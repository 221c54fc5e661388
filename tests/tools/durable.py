#!/usr/bin/env python3
"""Writes files and notes what was acknowledged as durable; afterwards tells whether all of it is there.

    durable.py write DIR NOTES SEED      works in DIR until it is killed or DIR fails (a killed server: SERVER_GONE)
    durable.py verify DIR NOTES          compares DIR with the notes

NOTES is a directory on a file system that survives: each worker appends a line to its own file there *after* the call
that makes a thing durable has returned; NOTES/SEED.killed has the moment of that round's crash (seconds of
CLOCK_MONOTONIC; whoever kills writes it there). All content follows from names and numbers, so that the verifier can tell
every byte without having seen it. Each round of `write` works below DIR/SEED, and `verify` looks at all rounds: what
an earlier round made durable has to survive later crashes as well.

The contract that is checked (docs/SEMANTICS.md): after fsync a file's data, inode and name are there; a file replaced
by rename is the old one or the new one, whole, even without fsync; without fsync at most the last moments before the
crash are lost, and nothing that survives has content that was never written to it.
"""

import contextlib
import errno
import mmap
import multiprocessing
import os
import random
import struct
import sys
import time
import zlib

BLOCK = 4096
LAZY_SECS_MAX = 4.0  # how long something without fsync may take to become durable: a commit a second, on a busy machine
# ECANCELED: over io_uring, of a request that the kernel was about to hand to the process that died
SERVER_GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED}


def content(name, version, length):
    """The bytes that version `version` of `name` has."""
    unit = struct.pack("<IIQ", zlib.crc32(name.encode()), version, 0x6C65657761726421) + name.encode()[:16].ljust(16, b".")
    return (unit * (length // len(unit) + 1))[:length]


def length_of(name, version):
    return random.Random(f"{name}/{version}").choice((0, 1, 100, 3901, 4096, 10000, 70000, 400000))


class Notes:
    """One worker's list of what it was promised: lines of words, written at once."""

    def __init__(self, path):
        self.file = open(path, "ab", buffering=0)

    def add(self, *words):
        self.file.write((" ".join(str(w) for w in words) + "\n").encode())


def read_notes(path):
    with open(path) as file:
        lines = file.read().split("\n")
    return [line.split() for line in lines[:-1]]  # a last line without an end was never finished


def read(path):
    with open(path, "rb") as file:
        return file.read()


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# Workers. Each makes `top`, works below it and never returns by itself.


def record(number):
    body = content("record", number, 20 + number * 37 % 3000)
    return struct.pack("<III", number, len(body), zlib.crc32(body)) + body


def append_records(top, notes, rng):
    fd = os.open(f"{top}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = size = 0
    while True:
        for _ in range(rng.randrange(1, 8)):
            size += os.write(fd, record(number))
            number += 1
        (os.fsync if rng.random() < 0.5 else os.fdatasync)(fd)
        notes.add(number, size)


def verify_append_records(top, notes, _crash):
    records, size = (int(word) for word in notes[-1]) if notes else (0, 0)
    data = read(f"{top}/log") if records or os.path.exists(f"{top}/log") else b""
    expect(len(data) >= size, f"{top}/log has {len(data)} bytes, {size} were fsynced")
    wanted, number = bytearray(), 0
    while len(wanted) < len(data):
        wanted += record(number)
        number += 1
    expect(data == wanted[: len(data)], f"{top}/log differs at byte {first_difference(data, wanted)}, {size} were fsynced")
    return records


def overwrite_blocks(top, notes, rng):
    """Blocks of one file, in any order, by write and by mmap."""
    blocks = 512
    fd = os.open(f"{top}/blocks", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, blocks * BLOCK)
    os.fsync(fd)
    notes.add("made")
    memory = mmap.mmap(fd, blocks * BLOCK)
    version = 0
    while True:
        version += 1
        chosen = rng.sample(range(blocks), rng.randrange(1, 6))
        mapped = rng.random() < 0.3
        for block in chosen:
            data = content(f"block{block}", version, BLOCK)
            if mapped:
                memory[block * BLOCK : (block + 1) * BLOCK] = data
            else:
                os.pwrite(fd, data, block * BLOCK)
        if mapped:
            memory.flush()
        else:
            os.fsync(fd)
        notes.add(version, *chosen)


def verify_overwrite_blocks(top, notes, _crash):
    if not notes:
        return 0
    promised = {}
    for version, *chosen in notes[1:]:
        for block in chosen:
            promised[int(block)] = int(version)
    data = read(f"{top}/blocks")
    expect(len(data) == 512 * BLOCK, f"{top}/blocks has {len(data)} bytes")
    for block in range(512):
        found = data[block * BLOCK : (block + 1) * BLOCK]
        version = struct.unpack_from("<I", found, 4)[0]
        whole = found == (content(f"block{block}", version, BLOCK) if version else bytes(BLOCK))
        expect(whole, f"{top}/blocks: block {block} is not whole (it claims version {version})")
        expect(version >= promised.get(block, 0), f"{top}/blocks: block {block} is back at version {version}, {promised.get(block)} was fsynced")
    return len(notes)


def replace_files(top, notes, rng):
    """Saving as editors do: write beside, rename over. With fsync of the new file, or, when there is an old one, without any."""
    version, there = 0, set()
    while True:
        version += 1
        name = f"document{rng.randrange(10)}"
        careful = rng.random() < 0.5 or name not in there
        there.add(name)
        with open(f"{top}/{name}.new", "wb") as file:
            file.write(content(name, version, 1 + length_of(name, version)))
            file.flush()
            if careful:
                os.fsync(file.fileno())
        os.rename(f"{top}/{name}.new", f"{top}/{name}")
        if careful:
            sync_dir(top)
            notes.add(name, version)


def verify_replace_files(top, notes, _crash):
    promised = {name: int(version) for name, version in notes}
    for number in range(10):
        name = f"document{number}"
        try:
            data = read(f"{top}/{name}")
        except FileNotFoundError:
            expect(name not in promised, f"{top}/{name} is gone, version {promised.get(name)} was durable")
            continue
        expect(len(data) > 0, f"{top}/{name} is empty")
        version = struct.unpack_from("<I", data.ljust(8, b"\0"), 4)[0] if len(data) >= 8 else None
        candidates = [version] if version is not None else range(promised.get(name, 1), promised.get(name, 1) + 2000)
        whole = any(data == content(name, v, 1 + length_of(name, v)) for v in candidates)
        expect(whole, f"{top}/{name} is not whole (it claims version {version} and has {len(data)} bytes)")
        if version is not None:
            expect(version >= promised.get(name, 0), f"{top}/{name} is back at version {version}, {promised.get(name)} was durable")
    return len(notes)


def make_and_remove(top, notes, rng):
    """Files and directories come, move and go; each step is made durable and noted."""
    os.mkdir(f"{top}/a")
    os.mkdir(f"{top}/b")
    sync_dir(top)
    alive, number = [], 0
    while True:
        number += 1
        action = rng.random()
        if action < 0.55 or not alive:
            name = f"file{number}"
            with open(f"{top}/a/{name}", "wb") as file:
                file.write(content(name, 1, length_of(name, 1)))
                file.flush()
                os.fsync(file.fileno())  # this alone makes the name durable, too
            notes.add("made", name)
            alive.append(name)
        elif action < 0.65:
            os.makedirs(f"{top}/b/dir{number}/below")
            os.symlink(f"target{number}", f"{top}/b/dir{number}/link")
            os.setxattr(f"{top}/b/dir{number}", "user.number", str(number).encode())
            sync_dir(f"{top}/b/dir{number}")
            sync_dir(f"{top}/b")
            notes.add("dir", f"dir{number}")
        elif action < 0.8:
            name = alive.pop(rng.randrange(len(alive)))
            notes.add("moving", name)
            os.rename(f"{top}/a/{name}", f"{top}/b/{name}")
            sync_dir(f"{top}/b")
            notes.add("moved", name)
        else:
            name = alive.pop(rng.randrange(len(alive)))
            notes.add("removing", name)
            os.unlink(f"{top}/a/{name}")
            sync_dir(f"{top}/a")
            notes.add("removed", name)


def verify_make_and_remove(top, notes, _crash):
    state = {}
    for what, name in notes:
        state[name] = what
    for name, what in state.items():
        if what == "dir":
            path = f"{top}/b/{name}"
            expect(os.path.isdir(f"{path}/below"), f"{path}/below is gone")
            expect(os.readlink(f"{path}/link") == f"target{name[3:]}", f"{path}/link is wrong")
            expect(os.getxattr(path, "user.number").decode() == name[3:], f"{path}: attribute is wrong")
            continue
        places = [place for place in ("a", "b") if os.path.lexists(f"{top}/{place}/{name}")]
        allowed = {"made": (["a"],), "moving": (["a"], ["b"]), "moved": (["b"],), "removing": (["a"], []), "removed": ([],)}
        expect(places in allowed[what], f"{top}: {name}, last noted as {what}, is in {places}")
        for place in places:
            data = read(f"{top}/{place}/{name}")
            expect(data == content(name, 1, length_of(name, 1)), f"{top}/{place}/{name} has wrong content")
    return len(notes)


def write_lazily(top, notes, rng):
    """No fsync at all: files, hard links and renames that are some seconds old are durable all the same."""
    number = 0
    while True:
        number += 1
        name = f"lazy{number}"
        with open(f"{top}/{name}", "wb") as file:
            file.write(content(name, 1, length_of(name, 1)))
        if number % 3 == 0:
            os.link(f"{top}/{name}", f"{top}/{name}.link")
        notes.add(name, f"{time.monotonic():.3f}")
        time.sleep(rng.random() * 0.02)


def verify_write_lazily(top, notes, crash):
    old = 0
    for name, when in notes:
        if float(when) > crash - LAZY_SECS_MAX:
            continue
        old += 1
        path = f"{top}/{name}"
        age = crash - float(when)
        expect(os.path.exists(path), f"{path} is gone, {age:.1f} s old at the crash")
        expect(read(path) == content(name, 1, length_of(name, 1)), f"{path}, {age:.1f} s old at the crash, has wrong content")
        if int(name[4:]) % 3 == 0:
            expect(os.stat(path).st_nlink == 2, f"{path} has {os.stat(path).st_nlink} links")
    return old


WORKERS = {
    "append": (append_records, verify_append_records),
    "blocks": (overwrite_blocks, verify_overwrite_blocks),
    "replace": (replace_files, verify_replace_files),
    "names": (make_and_remove, verify_make_and_remove),
    "lazy": (write_lazily, verify_write_lazily),
}


def expect(holds, message):
    if not holds:
        raise AssertionError(message)


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def work(worker, top, notes, seed):
    """Until the server is gone; anything else that fails is an error. A SIGBUS of the mmap worker ends it as well."""
    try:
        os.makedirs(top)
        worker(top, Notes(notes), random.Random(seed))
    except OSError as error:
        if error.errno not in SERVER_GONE:
            raise


def main_write(directory, notes, seed):
    processes = []
    for name, (worker, _) in WORKERS.items():
        arguments = (worker, f"{directory}/{seed}/{name}", f"{notes}/{seed}.{name}", f"{seed}/{name}")
        processes.append(multiprocessing.Process(target=work, args=arguments))
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    if any(code not in (0, -7) for code in codes):
        sys.exit(f"workers ended with {codes}")


def main_verify(directory, notes):
    checked, problems = {}, []
    for file in sorted(os.listdir(notes)):
        seed, name = file.split(".")
        if name == "killed":
            continue
        with open(f"{notes}/{seed}.killed") as killed:
            crash = float(killed.read())
        top = f"{directory}/{seed}/{name}"
        try:
            checked[name] = checked.get(name, 0) + WORKERS[name][1](top, read_notes(f"{notes}/{file}"), crash)
        except (AssertionError, OSError) as error:
            problems.append(f"round {seed}, {name}: {error}")
    print("NOTE promises checked:", ", ".join(f"{name} {count}" for name, count in checked.items()))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        {"write": main_write, "verify": main_verify}[mode](*arguments)
