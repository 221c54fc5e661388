"""Directories that are read while they change, and changed by several at once."""

import contextlib
import ctypes
import os
import random
import time

from harness import FORK, LIBC, case, read, same, together, write


@case
def readdir_while_the_directory_changes():
    stay = {f"stay{i:05}" for i in range(20000)}
    for name in stay:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    for i in range(2000):
        os.close(os.open(f"go{i:05}", os.O_CREAT | os.O_WRONLY))
    stop = FORK.Event()

    def disturb():
        i = 0
        while not stop.is_set():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"go{i % 2000:05}")
            os.close(os.open(f"new{i}", os.O_CREAT | os.O_WRONLY))
            if i >= 500:
                os.unlink(f"new{i - 500}")
            os.close(os.open(f"go{(i + 1000) % 2000:05}", os.O_CREAT | os.O_WRONLY))
            i += 1

    disturber = FORK.Process(target=disturb)
    disturber.start()
    try:
        for _ in range(5):
            seen = []
            with os.scandir(".") as entries:
                for number, entry in enumerate(entries):
                    seen.append(entry.name)
                    if number % 4000 == 0:
                        time.sleep(0.02)
            kept = [name for name in seen if name.startswith("stay")]
            same(len(kept), len(set(kept)), "entries that stay: seen, and distinct")
            same(stay - set(kept), set(), "entries that were missed")
    finally:
        stop.set()
        disturber.join()


@case
def readdir_removing_what_it_reads():
    for i in range(5000):
        write(f"f{i}", b"")
    removed = 0
    with os.scandir(".") as entries:
        for entry in entries:
            os.unlink(entry.name)
            removed += 1
    same((removed, os.listdir(".")), (5000, []))


@case
def readdir_types_and_inodes():
    os.mkdir("d")
    write("f", b"")
    os.symlink("f", "l")
    os.mkfifo("p")
    with os.scandir(".") as entries:
        for entry in entries:
            same(entry.inode(), os.lstat(entry.name).st_ino, f"inode of {entry.name}")
            same((entry.is_dir(follow_symlinks=False), entry.is_symlink()), (entry.name == "d", entry.name == "l"))


@case
def telldir_and_seekdir():
    for i in range(3000):
        write(f"f{i}", b"")

    class Dirent(ctypes.Structure):
        _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("length", ctypes.c_uint16), ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]

    LIBC.opendir.restype = ctypes.c_void_p
    LIBC.readdir.restype = ctypes.POINTER(Dirent)
    LIBC.telldir.restype = ctypes.c_long
    stream = ctypes.c_void_p(LIBC.opendir(b"."))

    def entries():
        while entry := LIBC.readdir(stream):
            yield entry.contents.name

    listed, places = [], []
    places.append(LIBC.telldir(stream))
    for name in entries():
        listed.append(name)
        places.append(LIBC.telldir(stream))
    same(len(listed), 3002)
    for index in (0, 1, 2, 777, 2500, 3001):
        LIBC.seekdir(stream, ctypes.c_long(places[index]))
        same(next(entries()), listed[index], f"entry after seekdir to the {index}th")
    LIBC.rewinddir(stream)
    write("added", b"")
    LIBC.rewinddir(stream)
    same(len(list(entries())), 3003, "entries after rewinddir")
    LIBC.closedir(stream)


@case
def creates_from_many_in_one_directory():
    def create(number):
        for i in range(1000):
            write(f"f{number}-{i}", b"%d" % i)
            if i % 3 == 0:
                os.rename(f"f{number}-{i}", f"g{number}-{i}")
            if i % 5 == 0:
                os.unlink(f"g{number}-{i}" if i % 3 == 0 else f"f{number}-{i}")

    together(4, create)
    wanted = {("g" if i % 3 == 0 else "f") + f"{n}-{i}" for n in range(4) for i in range(1000) if i % 5}
    same(set(os.listdir(".")) ^ wanted, set())


@case
def renames_from_many_keep_the_tree_whole():
    for i in range(8):
        os.makedirs(f"top{i}/sub/leaf")
        write(f"top{i}/sub/leaf/file", b"%d" % i)

    def shuffle(number):
        rng = random.Random(number)
        for _ in range(400):
            a, b = rng.sample(range(8), 2)
            with contextlib.suppress(OSError):
                os.rename(f"top{a}/sub", f"top{b}/sub{number}")
            with contextlib.suppress(OSError):
                os.rename(f"top{b}/sub{number}", f"top{a}/sub")
            with contextlib.suppress(OSError):
                os.rename(f"top{a}/sub", f"top{b}/sub/leaf/deeper")
            with contextlib.suppress(OSError):
                os.rename(f"top{b}/sub/leaf/deeper", f"top{a}/sub")

    together(3, shuffle)
    found = sorted(read(os.path.join(d, "file")) for d, _, files in os.walk(".") if "file" in files)
    same(found, [b"%d" % i for i in range(8)], "files after the renames")
    for directory, below, _ in os.walk("."):
        same(os.stat(directory).st_nlink, 2 + len(below), f"links of {directory}")
