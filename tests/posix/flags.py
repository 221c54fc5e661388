"""Flags of inodes: chattr and lsattr, what immutable and append-only files and directories refuse, also to root."""

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import subprocess
import time

from harness import (
    KEEP_SIZE,
    ON_CELL,
    PUNCH_HOLE,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    USER,
    ZERO_RANGE,
    Skip,
    case,
    child,
    fails,
    fallocate,
    read,
    renameat2,
    same,
    write,
)

GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820


# user 1 may read: version, then tag, permissions and user of each entry
ACL = struct.pack("<I" + 5 * "HHI", 2, 1, 6, 0, 2, 4, 1, 4, 4, 0, 16, 4, 0, 32, 4, 0)


def chattr(change, *paths):
    done = subprocess.run(["chattr", change, "--", *paths], capture_output=True, text=True)
    if done.returncode:
        raise OSError(errno.EPERM if "not permitted" in done.stderr else errno.EIO, done.stderr)


def lsattr(path):
    """The letters that are set, without those that a file system shows for reasons of its own."""
    letters = subprocess.run(["lsattr", "-d", path], check=True, capture_output=True, text=True).stdout.split()[0]
    return "".join(sorted(letter for letter in letters if letter in "iad"))


@contextlib.contextmanager
def flagged(flag, *paths):
    """The files have a flag meanwhile. Where a file system has no flags, the case does not apply."""
    try:
        chattr(f"+{flag}", *paths)
    except OSError as error:
        if ON_CELL:
            raise
        raise Skip(f"no flags here: {error}") from error
    try:
        yield
    finally:
        chattr(f"-{flag}", *paths)


@case
def flags_are_shown_and_set():
    write("f", b"x")
    os.mkdir("d")
    for path in ("f", "d"):
        for flag in "iad":
            with flagged(flag, path):
                same(lsattr(path), flag)
        same(lsattr(path), "")
    with flagged("d", "d"):
        write("d/new", b"x")
        os.mkdir("d/sub")
        same((lsattr("d/new"), lsattr("d/sub")), ("d", "d"), "new ones inherit no-dump")
    with flagged("a", "d"):
        write("d/newer", b"x")
        same(lsattr("d/newer"), "", "and nothing else")


@case
def flags_change_the_time_of_change():
    write("f", b"x")
    before = os.stat("f")
    with flagged("i", "f"):
        deadline = time.monotonic() + 5
        while os.stat("f").st_ctime_ns == before.st_ctime_ns and time.monotonic() < deadline:
            time.sleep(0.01)
        after = os.stat("f")
        same(after.st_ctime_ns > before.st_ctime_ns, True, "a later time")
        same(after.st_mtime_ns, before.st_mtime_ns, "of modification")


def refused():
    return fails(errno.EPERM)


@case
def immutable_files_stay_as_they_are():
    write("f", b"content")
    write("other", b"other")
    os.setxattr("f", "user.x", b"1")
    with open("f", "r+b", buffering=0) as before, flagged("i", "f"):
        with refused():
            before.write(b"C")
        with refused():
            before.truncate(3)
        with refused():
            fallocate(before.fileno(), KEEP_SIZE, 0, 100)
        with refused(), open("f", "ab", buffering=0) as file:
            file.write(b"more")
        with refused():
            write("f", b"")
        _attributes_stay("f")
        with refused():
            os.utime("f")
        _names_stay("f", "other")
        same(read("f"), b"content")
    write("f", b"changed")
    os.unlink("f")


def _attributes_stay(path):
    for change in (
        lambda: os.chmod(path, 0o600),
        lambda: os.chown(path, 1, 1),
        lambda: os.utime(path, (1, 1)),
        lambda: os.truncate(path, 1),
        lambda: os.truncate(path, 100),
        lambda: os.setxattr(path, "user.y", b"2"),
        lambda: os.removexattr(path, "user.x"),
        lambda: os.setxattr(path, "system.posix_acl_access", ACL),
    ):
        with refused():
            change()


def _names_stay(path, other):
    with refused():
        os.unlink(path)
    with refused():
        os.link(path, "link")
    with refused():
        os.rename(path, "renamed")
    with refused():
        os.rename(other, path)
    with refused():
        renameat2(path, other, RENAME_EXCHANGE)


@case
def immutable_directories_keep_their_names():
    os.mkdir("d")
    os.mkdir("d/sub")
    write("d/f", b"x")
    write("g", b"y")
    with flagged("i", "d"):
        for change in (
            lambda: write("d/new", b""),
            lambda: os.mkdir("d/new"),
            lambda: os.symlink("x", "d/new"),
            lambda: os.mkfifo("d/new"),
            lambda: os.link("g", "d/new"),
            lambda: os.rename("g", "d/new"),
            lambda: os.rename("g", "d/f"),
            lambda: os.unlink("d/f"),
            lambda: os.rmdir("d/sub"),
            lambda: os.rename("d/f", "d/h"),
            lambda: os.rename("d/f", "h"),
            lambda: renameat2("g", "d/new", RENAME_NOREPLACE),
            lambda: os.rename("d", "e"),
            lambda: os.close(os.open("d", os.O_TMPFILE | os.O_RDWR)),
        ):
            with refused():
                change()
        write("d/f", b"what is in a file may change")
        write("d/sub/new", b"and what is below")
        same(sorted(os.listdir("d")), ["f", "sub"])
    os.rename("d", "e")


@case
def append_only_files_grow():
    write("log", b"1")
    with flagged("a", "log"):
        with open("log", "ab", buffering=0) as file:
            file.write(b"2")
            file.write(b"3" * 3_000_000)
            file.write(b"4")
            fallocate(file.fileno(), KEEP_SIZE, 0, 4_000_000)
            for mode in (PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE):
                with fails(errno.EPERM, errno.EOPNOTSUPP):
                    fallocate(file.fileno(), mode, 0, 1)
        with refused(), open("log", "r+b", buffering=0) as file:
            file.write(b"x")
        with refused():
            write("log", b"")
        _append_only_attributes("log")
        write("other", b"")
        _names_stay("log", "other")
        same(read("log"), b"12" + b"3" * 3_000_000 + b"4")
        subprocess.run("echo 5 >> log", shell=True, check=True)
    same(os.stat("log").st_size, 3_000_005)


def _append_only_attributes(path):
    os.utime(path)
    with refused():
        os.utime(path, (1, 1))
    with refused():
        os.chmod(path, 0o600)
    with refused():
        os.setxattr(path, "user.y", b"2")


@case
def append_only_directories_take_names():
    os.mkdir("d")
    write("g", b"g")
    with flagged("a", "d"):
        write("d/f", b"f")
        os.mkdir("d/sub")
        os.rename("g", "d/g")
        os.link("d/f", "d/f2")
        for change in (
            lambda: os.unlink("d/f"),
            lambda: os.rmdir("d/sub"),
            lambda: os.rename("d/f", "d/h"),
            lambda: os.rename("d/f", "h"),
            lambda: os.rename("d/f", "d/g"),
            lambda: renameat2("d/f", "d/g", RENAME_EXCHANGE),
        ):
            with refused():
                change()
        same(sorted(os.listdir("d")), ["f", "f2", "g", "sub"])


@case
def mapped_pages_are_stored_before_the_flag_and_not_after():
    write("f", b"x")
    with flagged("i", "f"):
        pass
    for flag in (0x10, 0x20):
        write("f", b"a" * 8192)
        with open("f", "r+b") as file, mmap.mmap(file.fileno(), 8192) as pages:
            pages[0] = ord("b")
            flags = struct.unpack("Q", fcntl.ioctl(file, GETFLAGS, bytes(8)))[0]
            # not by chattr, whose closing of the file would write the page
            fcntl.ioctl(file, SETFLAGS, struct.pack("Q", flags | flag))
            if ON_CELL:  # elsewhere a page that may not be written ends the process
                pages[1] = ord("c")
                with contextlib.suppress(OSError):
                    pages.flush()
            fcntl.ioctl(file, SETFLAGS, struct.pack("Q", flags))
        same(read_uncached("f")[:3], b"baa")


def read_uncached(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


@case
def flags_are_for_root_and_no_dump_for_the_owner():
    write("f", b"x")
    os.chown("f", USER, USER)
    with flagged("a", "f"):
        child(_owner_sets_no_dump_alone, uid=USER)
        chattr("-d", "f")
    with flagged("i", "f"):
        child(_owner_cannot_take_it, uid=USER)


def _owner_sets_no_dump_alone():
    for change in ("+i", "-a"):
        with refused():
            chattr(change, "f")
    chattr("+d", "f")
    same(lsattr("f"), "ad")


def _owner_cannot_take_it():
    with refused():
        chattr("-i", "f")
    with refused():
        write("f", b"")


@case
def flags_that_are_not_there_are_refused():
    write("f", b"x")
    with open("f", "rb") as file:
        if not ON_CELL:
            raise Skip("other file systems have other flags")
        for bits in (0x1, 0x8, 0x80, 0x800000):
            with fails(errno.EOPNOTSUPP):
                fcntl.ioctl(file, SETFLAGS, struct.pack("Q", bits))
        shown = fcntl.ioctl(file, FSGETXATTR, bytes(28))
        same(struct.unpack("5I8x", shown), (0, 0, 0, 0, 0), "flags and project")
        with fails(errno.EOPNOTSUPP):
            fcntl.ioctl(file, FSSETXATTR, struct.pack("5I8x", 0, 0, 0, 42, 0))
        fcntl.ioctl(file, FSSETXATTR, struct.pack("5I8x", 0x80, 0, 0, 0, 0))
        same(struct.unpack("Q", fcntl.ioctl(file, GETFLAGS, bytes(8)))[0], 0x40)
    same(lsattr("f"), "d")


@case
def snapshots_show_flags_and_take_none():
    if not ON_CELL:
        raise Skip("no snapshots here")
    os.mkdir("d")
    write("d/f", b"x")
    with flagged("i", "d/f", "d"):
        os.mkdir("d/.snap/s")
        same((lsattr("d/.snap/s/f"), lsattr("d/.snap/s")), ("i", "i"))
    same((lsattr("d/.snap/s/f"), lsattr("d/f")), ("i", ""))
    with open("d/.snap/s/f", "rb") as file, fails(errno.EROFS):
        fcntl.ioctl(file, SETFLAGS, struct.pack("Q", 0))
    os.rmdir("d/.snap/s")
