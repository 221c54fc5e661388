"""Processes that cannot be ended: who waits for a server that is away can be killed, and nothing stays in state D.

    watch MARK LOG PROCESS_SECS KILLED_SECS   looks at all processes of the suite until it is ended
    waiting NOTES MOUNT                       programs that wait for a server that is away, killed
    sweep MARK                                kills what is left of the suite
    hang SECS                                 is in state D for so long (for a test of `watch`)

Processes of the suite are those with LEE_MACHINES=MARK in the environment that they began with.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import sys
import time

from program import FORK, dies_with_its_case, expect, note, read, write

STEP_SECS = 0.1
KILLED_SECS = 2.0
LIBC = ctypes.CDLL(None, use_errno=True)
SYS_CLONE, CLONE_VFORK = 56, 0x4000


def processes_of(mark, known):
    """Pids of the suite; `known` remembers what was found out of each process."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            began = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19]
            if (pid, began) not in known:
                known[pid, began] = f"LEE_MACHINES={mark}".encode() in read(f"/proc/{pid}/environ").split(b"\0")
            if known[pid, began]:
                yield int(pid)
        except OSError:
            pass  # it has ended


def tasks_in_d(pid):
    """Threads of the process in state D: number, name, whether they were killed, and where in the kernel they are."""
    tasks = f"/proc/{pid}/task"
    for tid in os.listdir(tasks):
        status = dict(line.split(":\t", 1) for line in read(f"{tasks}/{tid}/status").decode().splitlines() if ":\t" in line)
        if status["State"].startswith("D"):
            pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
            yield tid, status["Name"], bool(pending & 1 << signal.SIGKILL - 1), read(f"{tasks}/{tid}/wchan").decode()


def watch(mark, log, secs, killed_secs):
    """Notes in the log each thread that was in state D without a break for too long."""
    secs, killed_secs = float(secs), float(killed_secs)
    known, since, told, longest = {}, {}, set(), {False: (0, ""), True: (0, "")}
    while True:
        now, seen = time.monotonic(), {}
        for pid in processes_of(mark, known):
            try:
                for tid, name, is_killed, where in tasks_in_d(pid):
                    seen[tid, is_killed] = begun = since.get((tid, is_killed), now)
                    longest[is_killed] = max(longest[is_killed], (now - begun, f"{name} in {where}"))
                    if now - begun > (killed_secs if is_killed else secs) and (tid, is_killed) not in told:
                        told.add((tid, is_killed))
                        killed = " after it was killed" if is_killed else ""
                        say(log, f"FOUND {name}, {pid}/{tid}, is in state D in {where} for {now - begun:.1f} s{killed}")
            except OSError:
                pass
        since = seen
        alive = f"longest in state D: {longest[False][0]:.1f} s ({longest[False][1]}), {longest[True][0]:.1f} s after a kill"
        with open(f"{log}.alive.new", "w") as file:
            file.write(f"{time.time():.0f} {alive}\n")
        os.replace(f"{log}.alive.new", f"{log}.alive")
        time.sleep(STEP_SECS)


def say(log, text):
    with open(log, "a") as file:
        file.write(text + "\n")


def sweep(mark):
    """Ends what is left, however it was stopped."""
    for _ in range(20):
        left = [pid for pid in processes_of(mark, {}) if pid != os.getpid()]
        for pid in left:
            for number in (signal.SIGKILL, signal.SIGCONT):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        if not left:
            return
        time.sleep(0.1)


def hang(secs):
    """A parent is in state D until the child of its vfork has ended."""
    child = LIBC.syscall(SYS_CLONE, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        time.sleep(float(secs))
        os._exit(0)
    os.waitpid(child, 0)


# Programs that wait for the server.


def locked(dir_):
    fcntl.flock(os.open(f"{dir_}/locked", os.O_RDWR), fcntl.LOCK_EX)


def ranged(dir_):
    fcntl.lockf(os.open(f"{dir_}/locked", os.O_RDWR), fcntl.LOCK_EX)


def faulted(dir_):
    fd = os.open(f"{dir_}/mapped", os.O_RDWR)
    with mmap.mmap(fd, 1 << 16) as memory:
        memory[5000:5003] = b"new"
        memory.flush()


def synced(dir_):
    fd = os.open(f"{dir_}/synced", os.O_RDWR)
    os.write(fd, b"x")
    os.fsync(fd)


def written_twice(dir_):
    """A second program waits for the first one's lock of the inode in the kernel."""
    fd = os.open(f"{dir_}/written", os.O_RDWR)
    for _ in range(10_000):
        os.pwrite(fd, b"x" * 9000, 0)


WAITS = {
    "make": lambda dir_: write(f"{dir_}/new", b"new"),
    "read": lambda dir_: read(f"{dir_}/read"),
    "stat": lambda dir_: os.stat(f"{dir_}/nothing"),
    "list": lambda dir_: os.listdir(dir_),
    "rename": lambda dir_: os.rename(f"{dir_}/read", f"{dir_}/renamed"),
    "unlink": lambda dir_: os.unlink(f"{dir_}/read"),
    "mkdir": lambda dir_: os.mkdir(f"{dir_}/dir"),
    "truncate": lambda dir_: os.truncate(f"{dir_}/read", 1),
    "write": written_twice,
    "write beside": written_twice,
    "flock": locked,
    "fcntl": ranged,
    "mmap": faulted,
    "fsync": synced,
    "statfs": lambda dir_: os.statvfs(dir_),
    "chmod": lambda dir_: os.chmod(f"{dir_}/read", 0o600),
    "xattr": lambda dir_: os.setxattr(f"{dir_}/read", "user.x", b"x"),
}
SHARED = ("write", "write beside")  # in one directory


def wait(dir_, do, ready):
    dies_with_its_case()
    os.chdir("/")
    ready.set()
    while True:
        try:
            do(dir_)
        except OSError:
            time.sleep(0.01)


def waiting(notes, top):
    """Programs that wait are killed, and are gone. NOTES/ready: they are about to ask, NOTES/away: the server is away."""
    dirs = {name: f"{top}/waiting.{'write' if name in SHARED else name}" for name in WAITS}
    for dir_ in set(dirs.values()):
        os.mkdir(dir_)
        for name in ("read", "locked", "mapped", "synced", "written"):
            write(f"{dir_}/{name}", b"content" * 10_000)
    write(f"{notes}/ready", b"")
    until = time.monotonic() + 30
    while not os.path.exists(f"{notes}/away"):
        expect(time.monotonic() < until, "the server was not killed")
        time.sleep(0.01)
    programs, begun = {}, FORK.Event()
    for name, do in WAITS.items():
        programs[name] = FORK.Process(target=wait, args=(dirs[name], do, begun), daemon=True)
        programs[name].start()
    time.sleep(1.5)
    waited = {name: wait_channel(program.pid) for name, program in programs.items()}
    for program in programs.values():
        os.kill(program.pid, signal.SIGKILL)
    killed = time.monotonic()
    for program in programs.values():
        program.join(max(0, killed + KILLED_SECS - time.monotonic()))
    left = {name: wait_channel(program.pid) for name, program in programs.items() if program.is_alive()}
    expect(not left, f"{KILLED_SECS} s after SIGKILL these are there: {left}")
    idle = [name for name, where in waited.items() if where in ("0", "", "hrtimer_nanosleep")]
    note(f"{len(programs)} programs killed, gone after {time.monotonic() - killed:.2f} s; did not wait: {', '.join(idle) or 'none'}")
    sys.stdout.flush()


def wait_channel(pid):
    try:
        return read(f"/proc/{pid}/wchan").decode()
    except OSError:
        return ""
