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


class AsyncIo:
    """Linux's asynchronous I/O (io_submit), which Python has not: direct writes that nobody waits for yet."""

    SETUP, DESTROY, GETEVENTS, SUBMIT = {
        "x86_64": (206, 207, 208, 209),
        "aarch64": (0, 1, 4, 2),
    }.get(os.uname().machine, (None,) * 4)
    PWRITE = 1

    class Control(ctypes.Structure):
        """struct iocb, little endian."""

        _fields_ = [
            ("data", ctypes.c_uint64),
            ("key", ctypes.c_uint32),
            ("rw_flags", ctypes.c_uint32),
            ("opcode", ctypes.c_uint16),
            ("priority", ctypes.c_int16),
            ("fd", ctypes.c_uint32),
            ("buffer", ctypes.c_uint64),
            ("bytes", ctypes.c_uint64),
            ("offset", ctypes.c_int64),
            ("reserved", ctypes.c_uint64),
            ("flags", ctypes.c_uint32),
            ("result_fd", ctypes.c_uint32),
        ]

    class Event(ctypes.Structure):
        _fields_ = [(name, ctypes.c_int64) for name in ("data", "control", "result", "result2")]

    def __init__(self, depth):
        if self.SETUP is None:
            raise Skip("the numbers of system calls are not known here")
        self.context = ctypes.c_ulong(0)
        self.call(self.SETUP, ctypes.c_ulong(depth), ctypes.byref(self.context))

    def call(self, number, *arguments):
        result = LIBC.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    def submit_write(self, fd, buffer, offset):
        """Begins to write a whole mmap buffer; it must live until the write has ended."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        control = self.Control(opcode=self.PWRITE, fd=fd, buffer=address, bytes=len(buffer), offset=offset)
        pointers = (ctypes.POINTER(self.Control) * 1)(ctypes.pointer(control))
        same(self.call(self.SUBMIT, self.context, ctypes.c_long(1), pointers), 1, "writes taken")

    def wait(self, count):
        """Waits until so many writes have ended; what each returned."""
        events = (self.Event * count)()
        wanted = ctypes.c_long(count)
        same(self.call(self.GETEVENTS, self.context, wanted, wanted, events, None), count, "writes that ended")
        return [event.result for event in events]

    def close(self):
        self.call(self.DESTROY, self.context)
