"""What the cases of the other files stand on: how one is declared, expectations, system calls that Python has not, and
other processes and users."""

import contextlib
import ctypes
import errno
import multiprocessing
import os
import traceback

CASES = []
ON_CELL = bool(os.environ.get("LEE_CELL_TEST"))
LIBC = ctypes.CDLL(None, use_errno=True)
FORK = multiprocessing.get_context("fork")
USER, OTHER = 61001, 61002

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400


class Skip(Exception):
    """The case does not apply here."""


def case(function):
    CASES.append(function)
    return function


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


def drop_caches():
    """What the kernel holds of the files is forgotten where we may: the next read comes from the file system."""
    os.sync()
    with contextlib.suppress(OSError), open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
