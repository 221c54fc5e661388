#!/usr/bin/env python3
"""POSIX behaviour that programs depend on and that pjdfstest does not look at: data, locks, mmap, holes, directories
that change while they are read, several processes at once.

    posix.py DIR [CASE...]      run all cases, or those named, each in a directory of its own below DIR

Prints PASS, FAIL or SKIP and the name of each case; the exit status says whether one failed. Needs root: cases switch
users. LEE_CELL_TEST=1 switches on what holds for a cell of Leeward and not for every file system.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import multiprocessing
import os
import random
import shutil
import socket
import stat
import struct
import subprocess
import sys
import time
import traceback

CASES = []
ON_CELL = bool(os.environ.get("LEE_CELL_TEST"))
LIBC = ctypes.CDLL(None, use_errno=True)
FORK = multiprocessing.get_context("fork")
USER, OTHER = 61001, 61002

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE, INSERT = 1, 2, 8, 16, 32
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400


class Skip(Exception):
    """The case does not apply here."""


def case(function):
    CASES.append(function)
    return function


def note(text):
    print(f"     {function_name()}: {text}")


def function_name():
    return sys._getframe(2).f_code.co_name


def same(found, wanted, what=""):
    if found != wanted:
        raise AssertionError(f"{what} is {found!r}, expected {wanted!r}".strip())


@contextlib.contextmanager
def fails(*numbers):
    try:
        yield
    except OSError as error:
        if error.errno not in numbers:
            wanted = ", ".join(errno.errorcode[n] for n in numbers)
            raise AssertionError(f"{errno.errorcode.get(error.errno)} instead of {wanted}") from error
    else:
        raise AssertionError(f"succeeded instead of {', '.join(errno.errorcode[n] for n in numbers)}")


def write(path, data, mode="wb"):
    with open(path, mode) as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def libc(name, *arguments):
    if getattr(LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fallocate(fd, mode, offset, length):
    libc("fallocate", fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length))


def renameat2(old, new, flags):
    libc("renameat2", AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)


def child(function, *arguments, uid=None, gid=None, groups=()):
    """Runs a function in a process of its own, as another user if wanted; its failure is ours."""
    report, answer = FORK.Pipe(False)

    def body():
        try:
            if uid is not None:
                os.setgroups(groups)
                os.setgid(gid if gid is not None else uid)
                os.setuid(uid)
            answer.send((True, function(*arguments)))
        except BaseException:
            answer.send((False, traceback.format_exc()))

    process = FORK.Process(target=body)
    process.start()
    answer.close()
    try:
        good, result = report.recv()
    except EOFError:
        good, result = False, "the process died"
    process.join()
    if not good:
        raise AssertionError(result)
    return result


def together(count, function, *arguments):
    """`count` processes at once, each told its number."""
    processes = [FORK.Process(target=function, args=(i, *arguments)) for i in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    same([p.exitcode for p in processes], [0] * count, "exit status of the processes")


# names and links


@case
def names_of_255_bytes():
    for name in (b"n" * 255, "ü".encode() * 127 + b"x", b"\xff\xfe not unicode \x01\n"):
        write(name, name)
        same(read(name), name)
        assert name in os.listdir(b".")
    for make in (lambda n: write(n, b""), os.mkdir, lambda n: os.symlink("t", n), os.mkfifo):
        with fails(errno.ENAMETOOLONG):
            make("n" * 256)
    with fails(errno.ENAMETOOLONG):
        os.stat("n" * 256)
    with fails(errno.ENAMETOOLONG):
        os.rename(b"n" * 255, b"m" * 256)


@case
def deep_tree():
    top, depth = os.getcwd(), 400
    for level in range(depth):
        os.mkdir("directory")
        os.chdir("directory")
    write("bottom", b"deep")
    same(len(os.getcwd()), len(top) + depth * 10)
    os.chdir(top)
    shutil.rmtree("directory")


@case
def hard_links():
    write("a", b"one")
    for i in range(100):
        os.link("a", f"link{i}")
    same(os.stat("a").st_nlink, 101)
    same(os.stat("link7").st_ino, os.stat("a").st_ino)
    write("link9", b" two", "ab")
    same(read("a"), b"one two")
    before = os.stat("a").st_ctime_ns
    time.sleep(0.02)
    os.unlink("link0")
    same(os.stat("a").st_nlink, 100)
    assert os.stat("a").st_ctime_ns > before, "unlink of a link changes ctime"
    os.mkdir("d")
    with fails(errno.EPERM):
        os.link("d", "e")
    os.rename("link1", "link2")  # two names of one inode: nothing happens, both stay
    assert os.path.exists("link1") and os.path.exists("link2")


@case
def link_of_symlink():
    os.symlink("nowhere", "s")
    os.link("s", "t", follow_symlinks=False)
    same(os.readlink("t"), "nowhere")
    same(os.lstat("s").st_nlink, 2)


@case
def symlinks():
    for target in ("x", "../" * 300, "y" * 4095):
        os.symlink(target, "s")
        same(os.readlink("s"), target)
        same(os.lstat("s").st_size, len(target))
        os.unlink("s")
    with fails(errno.ENOENT, errno.EINVAL):
        os.symlink("", "s")
    os.symlink("loop", "loop")
    with fails(errno.ELOOP):
        os.stat("loop")


@case
def special_files():
    os.mkfifo("fifo", 0o640)
    os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod("block", 0o600 | stat.S_IFBLK, os.makedev(259, 1048575))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    for name, test in (("fifo", stat.S_ISFIFO), ("null", stat.S_ISCHR), ("block", stat.S_ISBLK), ("socket", stat.S_ISSOCK)):
        assert test(os.stat(name).st_mode), name
    same(os.stat("null").st_rdev, os.makedev(1, 3))
    same(os.stat("block").st_rdev, os.makedev(259, 1048575))
    listener.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect("socket")
    client.send(b"hello")
    same(listener.accept()[0].recv(9), b"hello")

    writer = FORK.Process(target=lambda: write("fifo", b"through the pipe"))
    writer.start()
    same(read("fifo"), b"through the pipe")
    writer.join()


@case
def rename_flags():
    write("a", b"a")
    write("b", b"b")
    with fails(errno.EEXIST):
        renameat2("a", "b", RENAME_NOREPLACE)
    renameat2("a", "c", RENAME_NOREPLACE)
    renameat2("b", "c", RENAME_EXCHANGE)
    same((read("b"), read("c")), (b"a", b"b"))
    os.makedirs("d/below")
    renameat2("d", "b", RENAME_EXCHANGE)
    same(read("d"), b"a")
    assert os.path.isdir("b/below")
    with fails(errno.ENOENT):
        renameat2("b", "missing", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2("b", "b/below", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2("b", "c", RENAME_EXCHANGE | RENAME_NOREPLACE)


@case
def rename_exchange_of_directories():
    os.makedirs("p/x/inside")
    os.makedirs("q")
    write("q/y", b"y")
    renameat2("p/x", "q/y", RENAME_EXCHANGE)
    same((os.stat("p").st_nlink, os.stat("q").st_nlink), (2, 3), "link counts after a directory moved")
    assert os.path.isdir("q/y/inside")
    same(os.stat("q/y/..").st_ino, os.stat("q").st_ino, "the parent of the moved directory")


@case
def rename_rules():
    os.makedirs("a/b/c")
    with fails(errno.EINVAL):
        os.rename("a", "a/b/c/d")
    os.makedirs("full/x")
    os.mkdir("empty")
    with fails(errno.ENOTEMPTY, errno.EEXIST):
        os.rename("a", "full")
    os.rename("a", "empty")
    assert os.path.isdir("empty/b/c")
    write("file", b"")
    with fails(errno.EISDIR):
        os.rename("file", "full")
    with fails(errno.ENOTDIR):
        os.rename("full", "file")


@case
def rename_over_open_file():
    write("old", b"old")
    fd = os.open("old", os.O_RDWR)
    write("new", b"new")
    os.rename("new", "old")
    same(os.read(fd, 9), b"old")
    same(os.fstat(fd).st_nlink, 0)
    os.pwrite(fd, b"still writable", 0)
    same(os.pread(fd, 99, 0), b"still writable")
    same(read("old"), b"new")
    os.close(fd)


@case
def unlinked_but_open():
    fd = os.open("gone", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 300000)
    os.unlink("gone")
    same(os.fstat(fd).st_nlink, 0)
    os.ftruncate(fd, 5)
    os.pwrite(fd, b"tail", 1 << 20)
    os.fsync(fd)
    os.fchmod(fd, 0o600)
    same(os.pread(fd, 5, 0), b"xxxxx")
    same(os.pread(fd, 9, 1 << 20), b"tail")
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)  # opened anew, without a name
    os.close(fd)
    same(os.pread(again, 9, 1 << 20), b"tail")
    os.close(again)
    with fails(errno.ENOENT):
        os.stat("gone")


@case
def removed_working_directory():
    top = os.getcwd()
    os.mkdir("d")
    os.chdir("d")
    os.rmdir(f"{top}/d")
    same(os.listdir("."), [])
    with fails(errno.ENOENT):
        write("file", b"")
    os.chdir(top)


@case
def directory_link_counts():
    for i in range(20):
        os.mkdir(f"d{i}")
    same(os.stat(".").st_nlink, 22)
    for i in range(10):
        os.rmdir(f"d{i}")
    same(os.stat(".").st_nlink, 12)
    os.mkdir("other")
    os.rename("d11", "other/d11")
    same((os.stat(".").st_nlink, os.stat("other").st_nlink), (12, 3))


@case
def o_tmpfile():
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        raise Skip("no O_TMPFILE here (EOPNOTSUPP: programs fall back to a named file)") from error
    os.write(fd, b"unnamed")
    libc("linkat", AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, b"named", AT_SYMLINK_FOLLOW)
    same(read("named"), b"unnamed")
    os.close(fd)


# reading and writing


@case
def open_flags():
    write("f", b"0123456789")
    with fails(errno.EEXIST):
        os.open("f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(os.open("f", os.O_RDONLY | os.O_CREAT))
    same(read("f"), b"0123456789")
    os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))
    same(os.stat("f").st_size, 0)
    with fails(errno.EISDIR):
        os.open(".", os.O_WRONLY)
    with fails(errno.ENOTDIR):
        os.open("f", os.O_DIRECTORY)
    os.symlink("f", "s")
    with fails(errno.ELOOP):
        os.open("s", os.O_RDONLY | os.O_NOFOLLOW)
    fd = os.open("f", os.O_WRONLY)
    with fails(errno.EBADF):
        os.read(fd, 1)
    os.close(fd)


@case
def exclusive_create_has_one_winner():
    wins = FORK.Value("i", 0)

    def race(_, rounds):
        for i in range(rounds):
            try:
                os.close(os.open(f"lock{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                continue
            with wins.get_lock():
                wins.value += 1

    together(4, race, 300)
    same(wins.value, 300, "number of winners")


@case
def append_from_many():
    def append(number):
        fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for i in range(500):
            os.write(fd, b"%02d %06d %s\n" % (number, i, b"." * 90))
        os.close(fd)

    together(4, append)
    lines = read("log").splitlines()
    same(len(lines), 2000)
    for number in range(4):
        mine = [line for line in lines if line.startswith(b"%02d " % number)]
        same(mine, [b"%02d %06d %s" % (number, i, b"." * 90) for i in range(500)], f"lines of process {number}")


@case
def random_writes_against_a_copy():
    rng, size = random.Random(4), 3 << 20
    copy = bytearray(size)
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    for i in range(1500):
        offset, length = rng.randrange(size - 70000), rng.choice((1, 13, 512, 4096, 4097, 65536))
        data = rng.randbytes(length)
        if i % 20 == 7:
            fallocate(fd, PUNCH_HOLE | KEEP_SIZE, offset, length)
            data = bytes(length)
        else:
            os.pwrite(fd, data, offset)
        copy[offset : offset + length] = data
        if i % 250 == 99:
            os.fsync(fd)
    os.ftruncate(fd, size)
    os.close(fd)
    drop_caches()
    assert read("f") == copy, "the file differs from its copy"


def drop_caches():
    """What the kernel holds of the files is forgotten where we may: the next read comes from the file system."""
    os.sync()
    with contextlib.suppress(OSError), open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


@case
def truncate_gives_zeros():
    write("f", b"x" * 10000)
    os.truncate("f", 5000)
    os.truncate("f", 10000)
    same(read("f"), b"x" * 5000 + bytes(5000))
    with open("f", "r+b") as file:
        file.seek(20000)
        file.write(b"end")
    same(read("f")[5000:], bytes(15000) + b"end")
    with fails(errno.EINVAL):
        os.truncate("f", -1)


@case
def sparse_16_tib():
    end = (1 << 44) if ON_CELL else (1 << 44) - 4096
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"last", end - 4)
    os.pwrite(fd, b"middle", 5 << 40)
    same(os.fstat(fd).st_size, end)
    assert os.fstat(fd).st_blocks < 1000, "holes occupy no blocks"
    same(os.pread(fd, 9, end - 4), b"last")
    same(os.pread(fd, 8, (5 << 40) - 1), b"\0middle\0")
    same(os.pread(fd, 4096, 1 << 40), bytes(4096))
    assert (5 << 40) - 65536 <= os.lseek(fd, 1 << 20, os.SEEK_DATA) <= 5 << 40
    os.ftruncate(fd, 0)
    same(os.fstat(fd).st_blocks, 0)
    os.close(fd)


@case
def too_large():
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    with fails(errno.EFBIG, errno.EINVAL):
        os.ftruncate(fd, (1 << 63) - 1)
    with fails(errno.EFBIG, errno.EINVAL):
        os.pwrite(fd, b"x", (1 << 63) - 2)
    same(os.fstat(fd).st_size, 0)
    os.close(fd)


@case
def holes_are_found():
    fd, mib = os.open("f", os.O_RDWR | os.O_CREAT), 1 << 20
    os.pwrite(fd, b"a" * mib, mib)
    os.pwrite(fd, b"b" * mib, 4 * mib)
    os.ftruncate(fd, 8 * mib)
    os.fsync(fd)
    same(os.lseek(fd, 0, os.SEEK_DATA), mib)
    same(os.lseek(fd, mib + 5, os.SEEK_DATA), mib + 5)
    same(os.lseek(fd, mib, os.SEEK_HOLE), 2 * mib)
    same(os.lseek(fd, 2 * mib, os.SEEK_DATA), 4 * mib)
    same(os.lseek(fd, 4 * mib, os.SEEK_HOLE), 5 * mib)
    with fails(errno.ENXIO):
        os.lseek(fd, 6 * mib, os.SEEK_DATA)
    with fails(errno.ENXIO):
        os.lseek(fd, 8 * mib, os.SEEK_HOLE)
    same(os.fstat(fd).st_blocks * 512, 2 * mib, "allocated bytes")
    os.close(fd)


@case
def fallocate_modes():
    fd, kib = os.open("f", os.O_RDWR | os.O_CREAT), 1024
    fallocate(fd, 0, 0, 256 * kib)
    same(os.fstat(fd).st_size, 256 * kib)
    same(os.pread(fd, 256 * kib, 0), bytes(256 * kib))
    assert os.fstat(fd).st_blocks * 512 >= 256 * kib, "allocated space counts"
    fallocate(fd, KEEP_SIZE, 0, 512 * kib)
    same(os.fstat(fd).st_size, 256 * kib)
    os.pwrite(fd, b"d" * 256 * kib, 0)
    os.fsync(fd)
    allocated = os.fstat(fd).st_blocks
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 64 * kib, 64 * kib)
    same(os.pread(fd, 256 * kib, 0), b"d" * 64 * kib + bytes(64 * kib) + b"d" * 128 * kib)
    same(allocated - os.fstat(fd).st_blocks, 128, "blocks that the hole gave back")
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 1000, 10)
    same(os.pread(fd, 12, 999), b"d" + bytes(10) + b"d")
    fallocate(fd, ZERO_RANGE, 200 * kib, 100 * kib)
    same(os.fstat(fd).st_size, 300 * kib)
    same(os.pread(fd, 100 * kib, 200 * kib), bytes(100 * kib))
    fallocate(fd, ZERO_RANGE | KEEP_SIZE, 299 * kib, 100 * kib)
    same(os.fstat(fd).st_size, 300 * kib)
    with fails(errno.EOPNOTSUPP, errno.EINVAL):
        fallocate(fd, PUNCH_HOLE, 0, 4096)
    with fails(errno.EINVAL):
        fallocate(fd, 0, 0, 0)
    with fails(errno.EINVAL):
        fallocate(fd, 0, -1, 10)
    os.close(fd)


@case
def copy_file_range_copies():
    data = random.Random(5).randbytes(5 << 20)
    write("a", data)
    a, b = os.open("a", os.O_RDONLY), os.open("b", os.O_RDWR | os.O_CREAT)
    done = 0
    while done < len(data):
        count = os.copy_file_range(a, b, len(data) - done, done, done)
        assert count > 0
        done += count
    same(os.copy_file_range(a, b, 100, len(data), 0), 0, "bytes copied from behind the end")
    assert read("b") == data
    c = os.open("b", os.O_RDWR)
    same(os.copy_file_range(a, c, 1000, 77, 100001), 1000)
    assert read("b") == data[:100001] + data[77:1077] + data[101001:]
    same(os.copy_file_range(c, c, 4096, 0, 1 << 20), 4096, "bytes copied within one file")
    with fails(errno.EINVAL):
        os.copy_file_range(c, c, 4096, 0, 100)
    write("b", b"changed afterwards", "r+b")
    assert read("a") == data, "a change of the copy reached the original"
    for fd in (a, b, c):
        os.close(fd)


# memory maps


@case
def mmap_shared_by_two_processes():
    size = 1 << 20
    write("f", bytes(size))

    def fill(number):
        with open("f", "r+b") as file, mmap.mmap(file.fileno(), size) as memory:
            for page in range(number, size // 4096, 2):
                memory[page * 4096 : page * 4096 + 4096] = bytes([number + 1]) * 4096
            memory.flush()

    together(2, fill)
    wanted = b"".join(bytes([page % 2 + 1]) * 4096 for page in range(size // 4096))
    assert read("f") == wanted
    drop_caches()
    assert read("f") == wanted, "the pages did not reach the file system"


@case
def mmap_and_write_see_each_other():
    write("f", bytes(8192))
    with open("f", "r+b") as file, mmap.mmap(file.fileno(), 8192) as memory:
        os.pwrite(file.fileno(), b"written", 100)
        same(memory[100:107], b"written")
        memory[5000:5006] = b"mapped"
        same(os.pread(file.fileno(), 6, 5000), b"mapped")
        time_before = os.stat("f").st_mtime_ns
        time.sleep(0.02)
        memory[0:1] = b"!"
        memory.flush()
        os.fsync(file.fileno())
        assert os.stat("f").st_mtime_ns >= time_before
    same(read("f")[:1], b"!")


@case
def mmap_private_and_of_unlinked():
    write("f", b"original" * 1024)
    with open("f", "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
        memory[0:3] = b"XXX"
        same(read("f")[:8], b"original")
        memory.close()
        memory = mmap.mmap(file.fileno(), 0)
    os.unlink("f")
    memory[0:5] = b"ghost"
    memory.flush()
    same(memory[:8], b"ghostnal")
    memory.close()


@case
def executable_runs():
    shutil.copy("/bin/true", "program")
    os.chmod("program", 0o755)
    same(subprocess.run(["./program"]).returncode, 0)
    write("script", b"#!/bin/sh\necho from a script\n")
    os.chmod("script", 0o755)
    same(subprocess.run(["./script"], capture_output=True).stdout, b"from a script\n")


# locks


@case
def flock_between_processes():
    write("f", b"")
    ours = open("f", "r+b")
    fcntl.flock(ours, fcntl.LOCK_EX)

    def attempt(how):
        with open("f", "r+b") as theirs:
            try:
                fcntl.flock(theirs, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return "refused"
            return "granted"

    same(child(attempt, fcntl.LOCK_EX), "refused")
    same(child(attempt, fcntl.LOCK_SH), "refused")
    fcntl.flock(ours, fcntl.LOCK_SH)
    same(child(attempt, fcntl.LOCK_SH), "granted")
    same(child(attempt, fcntl.LOCK_EX), "refused")
    ours.close()
    same(child(attempt, fcntl.LOCK_EX), "granted")


@case
def fcntl_locks_between_processes():
    write("f", bytes(1000))
    ours = open("f", "r+b")
    fcntl.lockf(ours, fcntl.LOCK_EX, 100, 0)
    fcntl.lockf(ours, fcntl.LOCK_SH, 100, 500)

    def attempt(how, length, start):
        with open("f", "r+b") as theirs:
            try:
                fcntl.lockf(theirs, how | fcntl.LOCK_NB, length, start)
            except (BlockingIOError, PermissionError):
                return "refused"
            return "granted"

    def holder():
        with open("f", "r+b") as theirs:
            query = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 50, 10, 0)
            kind, _, start, length, pid = struct.unpack("hhqqi4x", fcntl.fcntl(theirs, fcntl.F_GETLK, query))
            return (kind, start, length, pid)

    same(child(attempt, fcntl.LOCK_EX, 10, 50), "refused")
    same(child(attempt, fcntl.LOCK_EX, 100, 100), "granted")
    same(child(attempt, fcntl.LOCK_SH, 10, 550), "granted")
    same(child(attempt, fcntl.LOCK_EX, 10, 550), "refused")
    same(child(holder), (fcntl.F_WRLCK, 0, 100, os.getpid()), "what F_GETLK tells")
    fcntl.lockf(ours, fcntl.LOCK_UN, 20, 40)  # a hole in the middle of the lock
    same(child(attempt, fcntl.LOCK_EX, 10, 50), "granted")
    same(child(attempt, fcntl.LOCK_EX, 10, 60), "refused")
    open("f", "rb").close()  # closing any descriptor of the file gives up this process's locks
    same(child(attempt, fcntl.LOCK_EX, 1000, 0), "granted")
    ours.close()


@case
def blocking_lock_waits_and_wakes():
    write("f", b"")
    for lock in (fcntl.flock, fcntl.lockf):
        held, waited = FORK.Event(), FORK.Value("d", 0.0)

        def hold():
            with open("f", "r+b") as file:
                lock(file, fcntl.LOCK_EX)
                held.set()
                time.sleep(0.5)

        def wait():
            with open("f", "r+b") as file:
                start = time.monotonic()
                lock(file, fcntl.LOCK_EX)
                waited.value = time.monotonic() - start

        holder = FORK.Process(target=hold)
        holder.start()
        held.wait()
        waiter = FORK.Process(target=wait)
        waiter.start()
        waiter.join(10)
        hung = waiter.is_alive()
        if hung:
            waiter.kill()
        holder.join()
        assert not hung, f"{lock.__name__}: the waiter was never woken"
        assert 0.2 < waited.value < 5, f"{lock.__name__}: waited {waited.value} s"


@case
def waiting_for_a_lock_can_be_interrupted():
    write("f", b"")
    ours = open("f", "r+b")
    for lock in (fcntl.flock, fcntl.lockf):
        lock(ours, fcntl.LOCK_EX)

        def wait():
            with open("f", "r+b") as file:
                lock(file, fcntl.LOCK_EX)

        waiter = FORK.Process(target=wait)
        waiter.start()
        time.sleep(0.3)
        waiter.terminate()
        waiter.join(5)
        hung = waiter.is_alive()
        lock(ours, fcntl.LOCK_UN)
        waiter.join(5)
        assert not hung, f"{lock.__name__}: a waiter does not die of SIGTERM"
    ours.close()


@case
def locks_count_correctly():
    write("counter", b"0")

    def count(_, lock, rounds):
        for _ in range(rounds):
            with open("counter", "r+b") as file:
                lock(file, fcntl.LOCK_EX)
                value = int(file.read())
                file.seek(0)
                file.write(b"%d" % (value + 1))
                file.flush()
                lock(file, fcntl.LOCK_UN)

    together(3, count, fcntl.flock, 150)
    together(3, count, fcntl.lockf, 150)
    same(read("counter"), b"900")


# directories


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


# times, modes, owners


@case
def nanosecond_times():
    write("f", b"")
    for ns in (1234567890123456789, 1, 0, -5_000_000_001, 2**33 * 10**9 + 999_999_999):
        os.utime("f", ns=(ns, ns + 7))
        same((os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns), (ns, ns + 7))
    os.mkdir("d")
    os.utime("d", ns=(11, 22))
    write("d/x", b"")
    assert os.stat("d").st_mtime_ns > 22
    os.symlink("f", "s")
    os.utime("s", ns=(33, 44), follow_symlinks=False)
    same(os.lstat("s").st_mtime_ns, 44)
    write("g", b"x")
    assert abs(os.stat("g").st_mtime_ns - time.time_ns()) < 2 * 10**9, "a new file's time is now"


@case
def times_move_with_writes():
    write("f", b"x" * 10)
    before = os.stat("f")
    time.sleep(0.02)
    write("f", b"y", "ab")
    after = os.stat("f")
    assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    time.sleep(0.02)
    os.chmod("f", 0o600)
    same(os.stat("f").st_mtime_ns, after.st_mtime_ns)
    assert os.stat("f").st_ctime_ns > after.st_ctime_ns


@case
def setgid_directory():
    os.mkdir("d")
    os.chown("d", 0, OTHER)
    os.chmod("d", 0o2777)
    os.mkdir("d/sub")
    write("d/file", b"")
    same((os.stat("d/sub").st_gid, os.stat("d/file").st_gid), (OTHER, OTHER))
    assert os.stat("d/sub").st_mode & stat.S_ISGID, "a directory inherits setgid"
    child(lambda: write("d/theirs", b""), uid=USER)
    same((os.stat("d/theirs").st_uid, os.stat("d/theirs").st_gid), (USER, OTHER))


@case
def sticky_directory():
    os.mkdir("d")
    os.chmod("d", 0o1777)
    child(lambda: write("d/mine", b""), uid=USER)

    def remove():
        with fails(errno.EPERM, errno.EACCES):
            os.unlink("d/mine")
        with fails(errno.EPERM, errno.EACCES):
            os.rename("d/mine", "d/theirs")

    child(remove, uid=OTHER)
    child(lambda: os.unlink("d/mine"), uid=USER)


@case
def permissions_by_user_and_group():
    write("f", b"secret")
    os.chown("f", USER, 61003)
    os.chmod("f", 0o640)
    os.chmod(".", 0o755)

    def denied():
        with fails(errno.EACCES):
            open("f", "rb").close()
        with fails(errno.EACCES):
            write("new", b"")
        with fails(errno.EPERM):
            os.chmod("f", 0o666)
        with fails(errno.EPERM):
            os.chown("f", OTHER, OTHER)

    same(child(read, "f", uid=USER), b"secret")
    child(denied, uid=OTHER)
    same(child(read, "f", uid=OTHER, groups=[61003]), b"secret")
    os.chmod("f", 0o000)
    same(read("f"), b"secret")  # root


@case
def many_supplementary_groups():
    write("f", b"shared")
    os.chown("f", 0, 62039)
    os.chmod("f", 0o040)
    same(child(read, "f", uid=USER, groups=list(range(62000, 62040))), b"shared")


@case
def setuid_is_dropped_by_a_write():
    for how in ("write", "truncate"):
        write("f", b"x")
        os.chmod("f", 0o6777)
        child(lambda: write("f", b"y", "ab") if how == "write" else os.truncate("f", 0), uid=USER)
        same(stat.S_IMODE(os.stat("f").st_mode), 0o777, f"mode after a stranger's {how}")
    os.chmod("f", 0o6777)
    os.chown("f", OTHER, OTHER)
    same(stat.S_IMODE(os.stat("f").st_mode) & 0o6010 & ~0o2000, 0o010, "mode after chown")


# extended attributes


@case
def xattrs():
    write("f", b"")
    for name in ("user.a", "trusted.b", "security.c"):
        os.setxattr("f", name, b"value \0 of any bytes")
        same(os.getxattr("f", name), b"value \0 of any bytes")
    same(sorted(os.listxattr("f")), ["security.c", "trusted.b", "user.a"])
    os.setxattr("f", "user.a", b"", os.XATTR_REPLACE)
    same(os.getxattr("f", "user.a"), b"")
    with fails(errno.EEXIST):
        os.setxattr("f", "user.a", b"x", os.XATTR_CREATE)
    with fails(errno.ENODATA):
        os.setxattr("f", "user.new", b"x", os.XATTR_REPLACE)
    with fails(errno.ENODATA):
        os.getxattr("f", "user.new")
    with fails(errno.ENODATA):
        os.removexattr("f", "user.new")
    with fails(errno.EOPNOTSUPP):
        os.setxattr("f", "nonsense.x", b"x")
    with fails(errno.ERANGE):
        os.setxattr("f", "user." + "n" * 251, b"x")
    os.removexattr("f", "user.a")
    same(sorted(os.listxattr("f")), ["security.c", "trusted.b"])
    os.chmod("f", 0o644)
    child(_xattr_rights, uid=USER)


def _xattr_rights():
    same(os.listxattr("f"), ["security.c"], "trusted attributes are for root")
    with fails(errno.EACCES, errno.EPERM):
        os.setxattr("f", "user.a", b"x")
    with fails(errno.EPERM, errno.ENODATA):
        os.getxattr("f", "trusted.b")


@case
def xattrs_many_and_large():
    os.mkdir("d")
    size = 60000 if ON_CELL else 3000
    os.setxattr("d", "user.large", b"v" * size)
    same(len(os.getxattr("d", "user.large")), size)
    with fails(errno.E2BIG, errno.ENOSPC):
        os.setxattr("d", "user.larger", b"v" * 65537)
    for i in range(500 if ON_CELL else 10):
        os.setxattr("d", f"user.n{i}", b"%d" % i)
    same(len(os.listxattr("d")), 501 if ON_CELL else 11)
    os.symlink("d", "s")
    with fails(errno.EPERM):
        os.setxattr("s", "user.a", b"x", follow_symlinks=False)


def setfacl(*arguments):
    subprocess.run(["setfacl", *arguments], check=True)


def getfacl(path):
    output = subprocess.run(["getfacl", "-cnpE", path], check=True, capture_output=True, text=True).stdout
    return output.split()


@case
def acl_gives_and_takes_access():
    write("f", b"acl")
    os.chmod("f", 0o600)
    setfacl("-m", f"u:{USER}:r,g:{OTHER}:rw", "f")
    same(getfacl("f"), ["user::rw-", f"user:{USER}:r--", "group::---", f"group:{OTHER}:rw-", "mask::rw-", "other::---"])
    same(stat.S_IMODE(os.stat("f").st_mode), 0o660, "the group bits show the mask")
    same(child(read, "f", uid=USER), b"acl")

    def may_not_write():
        with fails(errno.EACCES):
            write("f", b"")

    child(may_not_write, uid=USER)
    child(lambda: write("f", b"acl", "r+b"), uid=OTHER)
    os.chmod("f", 0o640)  # now the mask is r--
    child(may_not_write, uid=OTHER)
    setfacl("-b", "f")
    same(getfacl("f"), ["user::rw-", "group::---", "other::---"])


@case
def default_acl_is_inherited():
    os.mkdir("d")
    setfacl("-d", "-m", f"u::rwx,g::rx,o::-,u:{USER}:rwx", "d")
    os.mkdir("d/sub", 0o777)
    write("d/f", b"")
    same(
        getfacl("d/sub"),
        ["user::rwx", f"user:{USER}:rwx", "group::r-x", "mask::rwx", "other::---",
         "default:user::rwx", f"default:user:{USER}:rwx", "default:group::r-x", "default:mask::rwx", "default:other::---"],
    )  # fmt: skip
    same(getfacl("d/f"), ["user::rw-", f"user:{USER}:rwx", "group::r-x", "mask::rw-", "other::---"])
    child(lambda: write("d/sub/theirs", b""), uid=USER)
    old = os.umask(0o077)
    try:
        write("d/g", b"")
    finally:
        os.umask(old)
    same(getfacl("d/g")[1], f"user:{USER}:rwx", "entry despite the umask")
    same(stat.S_IMODE(os.stat("d/g").st_mode), 0o660, "a default ACL takes the umask's place")


@case
def statfs_is_plausible():
    before = os.statvfs(".")
    same(before.f_namemax, 255)
    assert 0 < before.f_bavail <= before.f_bfree <= before.f_blocks
    assert before.f_files > 0 and before.f_ffree > 0
    write("f", random.Random(1).randbytes(32 << 20))
    os.sync()
    after = os.statvfs(".")
    fell = (before.f_bfree - after.f_bfree) * before.f_frsize
    assert fell >= 16 << 20, f"32 MiB written, free space fell by {fell} bytes"


def main():
    top = os.path.abspath(sys.argv[1])
    wanted = sys.argv[2:]
    unknown = set(wanted) - {function.__name__ for function in CASES}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    failed = 0
    for function in CASES:
        name = function.__name__
        if wanted and name not in wanted:
            continue
        directory = os.path.join(top, name)
        os.mkdir(directory)
        os.chmod(directory, 0o777)
        os.chdir(directory)
        start = time.monotonic()
        try:
            function()
        except Skip as reason:
            print(f"SKIP {name}: {reason}")
        except BaseException as error:  # a case that dies is a case that fails
            failed += 1
            print(f"FAIL {name} ({time.monotonic() - start:.1f} s)")
            for line in traceback.format_exc().splitlines()[-12:]:
                print(f"     {line}")
            if isinstance(error, KeyboardInterrupt):
                break
        else:
            print(f"PASS {name} ({time.monotonic() - start:.1f} s)")
            sys.stdout.flush()
        os.chdir(top)
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
