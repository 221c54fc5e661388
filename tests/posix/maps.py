"""Memory maps, and programs that are run from the file system."""

import errno
import mmap
import os
import shutil
import subprocess
import time

from harness import case, drop_caches, fails, read, same, together, write


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
def what_is_stored_through_a_mapping_is_data():
    size, page = 1 << 20, 4096
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as memory:
        memory[40 * page : 40 * page + 4] = b"data"
        memory[80 * page : 80 * page + 4] = b"data"
        same(os.lseek(fd, 0, os.SEEK_DATA), 40 * page)
        same(os.lseek(fd, 41 * page, os.SEEK_DATA), 80 * page)
        with fails(errno.ENXIO):
            os.lseek(fd, 81 * page, os.SEEK_DATA)
        same(os.lseek(fd, 40 * page, os.SEEK_HOLE), 41 * page)
        memory[41 * page : 41 * page + 4] = b"data"
        same(os.lseek(fd, 40 * page, os.SEEK_HOLE), 42 * page)
        same(memory[40 * page : 40 * page + 4], b"data")
        os.fsync(fd)
        same(os.lseek(fd, 40 * page, os.SEEK_HOLE), 42 * page)
    os.close(fd)


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
