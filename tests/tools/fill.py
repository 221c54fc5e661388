#!/usr/bin/env python3
"""Fills a file system, and knows what must be in it.

    fill.py fill DIR SUMS PREFIX SIZE   files PREFIX0, PREFIX1, ... of SIZE random bytes, fsynced, until ENOSPC or EDQUOT
    fill.py check DIR SUMS              every file that was acknowledged is there and right
    fill.py remove DIR SUMS PERCENT     removes so much of them, each of which must work
    fill.py resume DIR SUMS SECS_MAX    writes 8 MiB again, trying for so long

SUMS is a file elsewhere: name and CRC of each file whose fsync returned.
"""

import errno
import os
import random
import sys
import time
import zlib

FULL = (errno.ENOSPC, errno.EDQUOT)


def load(sums):
    if not os.path.exists(sums):
        return {}
    with open(sums) as file:
        return dict(line.split() for line in file)


def store(sums, known):
    with open(sums, "w") as file:
        file.writelines(f"{name} {crc}\n" for name, crc in known.items())


def put(path, data):
    """Written and fsynced, or removed again and False when there is no room. A short write counts as no room."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except OSError as error:
        if error.errno not in FULL:
            raise
        os.close(fd)
        os.unlink(path)
        return error
    os.close(fd)
    return None


def fill(directory, sums, prefix, size):
    known, number = load(sums), 0
    while True:
        data, name = os.urandom(int(size)), f"{prefix}{number}"
        try:
            full = put(f"{directory}/{name}", data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            full = error  # no room even for the name
        if full:
            break
        known[name] = str(zlib.crc32(data))
        number += 1
    store(sums, known)
    print(f"NOTE {number} files of {size} bytes, then {errno.errorcode[full.errno]}")


def check(directory, sums):
    known = load(sums)
    wrong = []
    for name, crc in known.items():
        with open(f"{directory}/{name}", "rb") as file:
            if str(zlib.crc32(file.read())) != crc:
                wrong.append(name)
    stray = set(os.listdir(directory)) - set(known)
    if wrong or stray:
        sys.exit(f"wrong content: {wrong[:10]} ({len(wrong)}), should not be there: {sorted(stray)[:10]}")


def remove(directory, sums, percent):
    known = load(sums)
    names = sorted(known)
    for name in random.Random(len(names)).sample(names, len(names) * int(percent) // 100):
        os.unlink(f"{directory}/{name}")
        del known[name]
    store(sums, known)


def resume(directory, sums, secs_max):
    known, start = load(sums), time.monotonic()
    number = len(known)
    while len(known) < number + 8:
        data, name = os.urandom(1 << 20), f"resumed{time.monotonic_ns()}"
        try:
            full = put(f"{directory}/{name}", data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            full = error
        if not full:
            known[name] = str(zlib.crc32(data))
        elif time.monotonic() - start > float(secs_max):
            sys.exit(f"still {full} {secs_max} s after removal")
        else:
            time.sleep(0.2)
    store(sums, known)
    print(f"NOTE 8 MiB written {time.monotonic() - start:.1f} s after removal")


if __name__ == "__main__":
    {"fill": fill, "check": check, "remove": remove, "resume": resume}[sys.argv[1]](*sys.argv[2:])
