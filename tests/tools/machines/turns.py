"""Two machines that read and write one file in turn, with a model of its bytes: what fsx does, with a machine each time
another one. Then both write at once, each its own blocks.

    turns SEED STEPS MOUNT...
"""

import ctypes
import mmap
import os
import random

from program import at_once, expect, note, read

SIZE_MAX = 300_000
LENGTH_MAX = 40_000
BLOCK, BLOCKS, ROUNDS = 4096, 48, 12
PUNCH = 1 | 2  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
LIBC = ctypes.CDLL(None, use_errno=True)


def turns(seed, steps, *tops):
    path = "turns"
    made = [os.open(f"{top}/{path}", os.O_RDWR | os.O_CREAT, 0o644) for top in tops]
    ends = [(fd, os.open(f"{top}/{path}", os.O_WRONLY | os.O_APPEND)) for fd, top in zip(made, tops)]
    rng, model, done = random.Random(int(seed)), bytearray(), []
    for step in range(int(steps)):
        at = rng.randrange(len(tops))
        change = rng.choice(CHANGES)
        done.append(f"{step}: {tops[at][-2:]} {change.__name__}")
        try:
            change(rng, model, *ends[at])
            compare(rng, model, step, tops, made)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}; the last steps: {'; '.join(done[-6:])}") from e
    for top in tops:
        expect(read(f"{top}/{path}") == model, f"{top}: the file at the end, seed {seed}")
    at_the_same_time(tops)
    note(f"{steps} changes of one file by {len(tops)} machines in turn, seed {seed}")


def compare(rng, model, step, tops, made):
    """Another machine than before, mostly: all of it, or a part, or through a new mapping."""
    at = rng.randrange(len(tops))
    fd = made[at]
    size = os.fstat(fd).st_size
    expect(size == len(model), f"step {step}: {tops[at]} says {size} bytes, not {len(model)}")
    start = 0 if rng.random() < 0.3 else rng.randrange(size + 1)
    length = size if start == 0 else rng.randrange(LENGTH_MAX)
    if rng.random() < 0.2 and size:
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory:
            found = memory[start : start + length]
    else:
        found = os.pread(fd, length, start)
    wanted = model[start : start + length]
    first = next((n for n in range(len(wanted)) if found[n : n + 1] != wanted[n : n + 1]), None)
    expect(found == wanted, f"step {step}: {tops[at]} differs at {start} + {first} of {size}, {len(found)} bytes read")


def some(rng, model):
    return rng.randrange(min(len(model) + 5000, SIZE_MAX) + 1), rng.randbytes(1 + rng.randrange(LENGTH_MAX))


def put(model, start, data):
    model.extend(bytes(max(0, start + len(data) - len(model))))
    model[start : start + len(data)] = data


def written(rng, model, fd, _):
    start, data = some(rng, model)
    expect(os.pwrite(fd, data, start) == len(data), "a short write")
    put(model, start, data)


def appended(rng, model, _, end):
    _, data = some(rng, model)
    if len(model) + len(data) <= SIZE_MAX:
        expect(os.write(end, data) == len(data), "a short write")
        put(model, len(model), data)


def cut(rng, model, fd, _):
    size = rng.randrange(SIZE_MAX)
    os.ftruncate(fd, size)
    del model[size:]
    put(model, size, b"")


def mapped(rng, model, fd, _):
    if not model:
        return
    start, data = some(rng, model)
    start = min(start, len(model) - 1)
    data = data[: len(model) - start]
    with mmap.mmap(fd, len(model)) as memory:
        memory[start : start + len(data)] = data
        memory.flush()
    put(model, start, data)


def punched(rng, model, fd, _):
    start, data = some(rng, model)
    hole = LIBC.fallocate(fd, PUNCH, ctypes.c_long(start), ctypes.c_long(len(data)))
    expect(hole == 0, f"fallocate: {os.strerror(ctypes.get_errno())}")
    model[start : start + len(data)] = bytes(len(model[start : start + len(data)]))


def copied(rng, model, fd, _):
    """A part of the file to another place in it, where they do not meet."""
    half = len(model) // 2
    length = min(rng.randrange(LENGTH_MAX), half)
    if length == 0:
        return
    to = len(model) - length
    start = rng.randrange(to - length + 1) if to > length else 0
    os.fstat(fd)  # the kernel copies up to the size that it knows, and does not ask
    expect(os.copy_file_range(fd, fd, length, start, to) == length, "a short copy")
    put(model, to, model[start : start + length])


def synced(_rng, _model, fd, _end):
    os.fsync(fd)


CHANGES = (written, written, written, appended, appended, cut, mapped, punched, copied, synced)


def at_the_same_time(tops):
    """Each machine writes the blocks that are its own; all of them see all of it."""
    with open(f"{tops[0]}/blocks", "wb") as file:
        file.truncate(BLOCK * BLOCKS)
    at_once(60, write_blocks, [(f"{top}/blocks", of, len(tops)) for of, top in enumerate(tops)])
    wanted = b"".join(block(n, ROUNDS - 1) for n in range(BLOCKS))
    for top in tops:
        found = read(f"{top}/blocks")
        wrong = [n for n in range(BLOCKS) if found[n * BLOCK :][:BLOCK] != wanted[n * BLOCK :][:BLOCK]]
        expect(not wrong, f"{top}: blocks {wrong} are not what was written last")


def block(number, version):
    return f"{number} {version} ".encode().ljust(16, b".") * (BLOCK // 16)


def write_blocks(path, of, machines):
    fd = os.open(path, os.O_RDWR)
    for version in range(ROUNDS):
        for number in range(of, BLOCKS, machines):
            os.pwrite(fd, block(number, version), number * BLOCK)
            found = os.pread(fd, BLOCK, number * BLOCK)
            expect(found == block(number, version), f"{path}: block {number} is not what this machine has just written")
    os.close(fd)
