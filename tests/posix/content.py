"""Reading and writing: append, holes, allocation, copies."""

import errno
import mmap
import os
import random

from harness import (
    FORK,
    KEEP_SIZE,
    ON_CELL,
    PUNCH_HOLE,
    ZERO_RANGE,
    AsyncIo,
    case,
    drop_caches,
    fails,
    fallocate,
    read,
    same,
    together,
    write,
)


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


@case
def direct_writes_nobody_waits_for_are_seen_by_buffered_readers():
    """What a buffered read brings into the page cache while a direct write is under way is not kept beyond its end."""
    block, count, rounds = 1 << 16, 8, 40
    write("f", bytes(block * count))
    fd, direct = os.open("f", os.O_RDONLY), os.open("f", os.O_WRONLY | os.O_DIRECT)
    over = FORK.Event()

    def read_all_the_time():
        while not over.is_set():
            for n in range(count):
                os.pread(fd, block, n * block)

    readers = [FORK.Process(target=read_all_the_time) for _ in range(2)]
    for reader in readers:
        reader.start()
    buffers = [mmap.mmap(-1, block) for _ in range(count)]
    writes = AsyncIo(count)
    try:
        for number in range(1, rounds + 1):
            for n, buffer in enumerate(buffers):
                buffer[:] = bytes([number]) * block
                writes.submit_write(direct, buffer, n * block)
                os.pread(fd, block, n * block)
            same(writes.wait(count), [block] * count, "bytes written")
            for n in range(count):
                found = set(os.pread(fd, block, n * block))
                same(found, {number}, f"what block {n} is of in round {number}")
    finally:
        over.set()
        for reader in readers:
            reader.join()
        writes.close()
        os.close(fd)
        os.close(direct)
