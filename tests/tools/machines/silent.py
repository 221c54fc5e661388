"""A machine falls silent while another changes what it knows.

    silent CHANGER BESIDE VICTIM...      VICTIM is HOW:SECS:MOUNT:WHAT
    killed CHANGER BESIDE MOUNT PID

HOW is `stop` (SIGSTOP of the process WHAT, its `lee mount`), `stuck` (only those of its threads stop that answer recalls),
`both`, `in` or `out` (packets to or from the network namespace WHAT are dropped). All victims are silent at once. For each:

* the change elsewhere is done within LIMITS[HOW] seconds, and who works on other files (BESIDE) waits for nothing;
* nothing that a program on the silent machine reads after the change is what was there before it;
* when the silence is over the machine goes on by itself, with the files and locks that it had, without an error, and all
  that its programs were told is there, once.
"""

import concurrent.futures
import ctypes
import fcntl
import os
import signal
import stat
import subprocess
import threading
import time

from program import FORK, Program, expect, note, read, write
from together import flocked, is_free

LIMITS = {"stop": 6.0, "both": 6.0, "out": 6.0, "in": 9.0, "stuck": 9.0, "kill": 6.0}
SLACK_SECS = 0.8  # two processors are shared by all machines, and by whatever else runs here
BESIDE_SECS = 1.5
RENEWED_SECS = 1.2  # a machine that was silent may have to tell the server twice that it is there before its leases count
BACK_SECS = {"stop": 5.0, "stuck": 5.0, "both": 8.0, "in": 8.0, "out": 8.0}
OLD, NEW = b"old content " * 300, b"new content " * 300
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


# What programs do. Each is called in a process of its own.


class Dir:
    """A directory as one machine has it."""

    def __init__(self, top, name):
        self.at, self.held, self.locked = f"{top}/{name}", None, None

    def path(self, name):
        return f"{self.at}/{name}"


def prepare(dir_):
    os.mkdir(dir_.at)
    for name in ("file", "moved", "mode", "gone", "locked"):
        write(dir_.path(name), OLD)


def hold_open(dir_):
    dir_.held = os.open(dir_.path("file"), os.O_RDWR)


def take_lock(dir_):
    dir_.locked = os.open(dir_.path("locked"), os.O_RDWR)
    flocked(dir_.locked, fcntl.LOCK_EX)


def know(dir_):
    """Reads all, so that this machine has copies of it."""
    for name, (look, wanted) in LOOKS.items():
        found = look(dir_)
        expect(found == wanted[0], f"{name} of {dir_.at} before the silence: {str(found)[:100]}")
    os.path.exists(dir_.path("new"))


def write_old_again(dir_):
    write(dir_.path("file"), OLD, 0)


def change(dir_):
    write(dir_.path("file"), NEW, 0)
    os.rename(dir_.path("moved"), dir_.path("there"))
    os.chmod(dir_.path("mode"), 0o600)
    os.unlink(dir_.path("gone"))
    write(dir_.path("new"), NEW)
    # it may be open elsewhere, and locked; the machine that is silent keeps its lock
    return is_free(dir_.path("locked"), flocked)


def look_at(dir_, name):
    return LOOKS[name][0](dir_)


LOOKS = {
    "content": (lambda dir_: read(dir_.path("file")), (OLD, NEW)),
    "content by descriptor": (lambda dir_: os.pread(dir_.held, 1 << 20, 0), (OLD, NEW)),
    "mode": (lambda dir_: stat.S_IMODE(os.stat(dir_.path("mode")).st_mode), (0o644, 0o600)),
    "names": (
        lambda dir_: sorted(os.listdir(dir_.at)),
        (["file", "gone", "locked", "mode", "moved"], ["file", "locked", "mode", "new", "there"]),
    ),
    "a name that is gone": (lambda dir_: os.path.exists(dir_.path("gone")), (True, False)),
}


def append_numbers(path, end):
    """Appends line after line, until it is told to end."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    number = 0
    while not end.is_set():
        os.write(fd, b"%d\n" % number)
        number += 1
        time.sleep(0.005)
    os.fsync(fd)
    os.close(fd)
    return number


def use_again(dir_):
    """With what was open all along."""
    expect(os.pwrite(dir_.held, b"again", 0) == 5, "a short write")
    os.fsync(dir_.held)
    write(dir_.path("after"), b"after")
    flocked(dir_.locked, fcntl.LOCK_UN)


def was_used_again(dir_):
    expect(read(dir_.path("file")) == b"again" + NEW[5:], f"{dir_.at}: what was written after the silence is not seen")
    expect(read(dir_.path("after")) == b"after", f"{dir_.at}: a file that was made after the silence is not seen")
    expect(is_free(dir_.path("locked"), flocked), f"{dir_.at}: the lock was given up, and is not free")


def numbers_are_there(_, path, count):
    found = read(path).split()
    expect(found == [b"%d" % n for n in range(count)], f"{path}: {len(found)} lines of {count} that were appended")


def work_beside(dir_, end):
    """Small operations, one after the other; how long the longest took, and how many there were."""
    os.mkdir(dir_.at)
    longest, count = (0, ""), 0
    while not end.is_set():
        for name, do in BESIDE.items():
            begun = time.monotonic()
            do(dir_, count)
            longest = max(longest, (time.monotonic() - begun, name))
        count += 1
        time.sleep(0.01)
    return longest, count


BESIDE = {
    "create": lambda dir_, n: write(dir_.path(f"file{n}"), OLD),
    "rename": lambda dir_, n: os.rename(dir_.path(f"file{n}"), dir_.path("file")),
    "read": lambda dir_, n: read(dir_.path("file")),
    "list": lambda dir_, n: os.listdir(dir_.at),
    "chmod": lambda dir_, n: os.chmod(dir_.path("file"), 0o600 + n % 64),
}


# How a machine falls silent.


class Stopped:
    def __init__(self, pid):
        self.pid = int(pid)

    def begin(self):
        os.kill(self.pid, signal.SIGSTOP)

    def end(self):
        os.kill(self.pid, signal.SIGCONT)


class Killed(Stopped):
    def begin(self):
        os.kill(self.pid, signal.SIGKILL)

    def end(self):
        pass


class Stuck:
    """Threads that wait until the kernel has dropped pages, and answer a recall then: held as a debugger would."""

    def __init__(self, pid):
        self.pid, self.held = int(pid), []

    def begin(self):
        tasks = f"/proc/{self.pid}/task"
        for tid in map(int, os.listdir(tasks)):
            if read(f"{tasks}/{tid}/comm").startswith(b"remote-drop"):
                for request in (SEIZE, INTERRUPT):
                    done = LIBC.ptrace(request, tid, ctypes.c_void_p(0), ctypes.c_void_p(0))
                    expect(done == 0, f"ptrace: {os.strerror(ctypes.get_errno())}")
                os.waitpid(tid, WALL)
                self.held.append(tid)
        expect(self.held, "no thread answers recalls there")

    def end(self):
        for tid in self.held:
            LIBC.ptrace(DETACH, tid, ctypes.c_void_p(0), ctypes.c_void_p(0))
        self.held = []


class Cut:
    RULES = {"in": ("input",), "out": ("output",), "both": ("input", "output")}

    def __init__(self, namespace, way):
        self.namespace, self.hooks = namespace, self.RULES[way]
        self.is_cut, self.ending = False, threading.Lock()

    def nft(self, *words):
        subprocess.run(["ip", "netns", "exec", self.namespace, "nft", *words], check=True, timeout=10)

    def begin(self):
        self.is_cut = True
        self.nft("add table inet cut")
        for hook in self.hooks:
            self.nft(f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; policy drop; }}")

    def end(self):
        with self.ending:
            if self.is_cut:
                self.nft("delete table inet cut")
            self.is_cut = False


def silence(how, what):
    return {"stop": Stopped, "kill": Killed, "stuck": Stuck}[how](what) if how not in Cut.RULES else Cut(what, how)


# The cases.


class Victim:
    """A machine that falls silent, and the programs around it."""

    def __init__(self, changer, number, said):
        self.how, secs, self.top, what = said.split(":", 3)
        self.secs, self.silence, self.failed = float(secs), silence(self.how, what), None
        self.name, self.asked = os.path.basename(self.top), set()
        dir_ = f"{self.how}.{self.name}.{number}"
        self.changer = Program(f"the machine that changes {dir_}", Dir(changer, dir_))
        self.user = Program(f"the user of {dir_}", Dir(self.top, dir_))
        self.lookers = {name: Program(f"who looks at {name} in {dir_}", Dir(self.top, dir_)) for name in LOOKS}
        self.stop_appending = FORK.Event()
        self.appender = Program(f"who appends in {dir_}", f"{self.top}/{dir_}.appended", self.stop_appending)
        self.appended_elsewhere = f"{changer}/{dir_}.appended"

    def run(self):
        """In a thread of its own: whoever holds threads of a process must let go of them, too."""
        try:
            self.learn()
            self.fall_silent()
        except BaseException as e:  # told by the case
            self.failed = e
        finally:
            self.silence.end()
            self.stop_appending.set()

    def learn(self):
        self.changer.call(10, prepare)
        for program in (self.user, *self.lookers.values()):
            program.call(10, hold_open)
        self.user.call(10, take_lock)
        self.appender.ask(append_numbers)
        self.user.call(10, know)
        self.changer.call(10, write_old_again)
        time.sleep(RENEWED_SECS)
        self.user.call(10, know)

    def fall_silent(self):
        begun = time.monotonic()
        self.silence.begin()
        self.changer.ask(change)
        waited = self.wait_for_change()
        if self.how != "kill":
            self.look_while_silent(begun + self.secs)
        self.silence.end()
        if self.how == "kill":
            return note(f"{self.name} was killed: the other waited {waited:.1f} s")
        self.go_on(waited, time.monotonic() - begun)

    def wait_for_change(self):
        """It is done in time; where the silence is shorter, soon after that is over."""
        limit, at_least = LIMITS[self.how] + SLACK_SECS, min(self.secs, 4.0) - 0.3
        if self.how in ("stop", "both", "in", "out"):
            threading.Timer(self.secs, self.silence.end).start()
        was_free, waited = self.changer.answer(max(limit, self.secs) + 5)
        expect(waited <= limit, f"`{self.how}` of {self.name}: the change elsewhere has waited {waited:.1f} s")
        expect(waited >= at_least, f"{self.name} knew nothing that the change had to wait for: {waited:.1f} s")
        expect(not was_free, f"`{self.how}` of {self.name}: its lock was given to another")
        return waited

    def look_while_silent(self, end):
        """After the change: what can be read on the silent machine at all is not old."""
        if time.monotonic() > end - 0.5:
            return time.sleep(max(0, end - time.monotonic()))
        self.look()
        time.sleep(max(0, end - time.monotonic()))
        for name, looker in self.lookers.items():
            if looker.has_answered():
                self.see_new(name, 0)

    def look(self):
        for name in set(self.lookers) - self.asked:
            self.lookers[name].ask(look_at, name)
            self.asked.add(name)

    def see_new(self, name, secs):
        found, _ = self.lookers[name].answer(secs)
        self.asked.remove(name)
        expect(found == LOOKS[name][1][1], f"`{self.how}` of {self.name}: {name} is old there: {str(found)[:120]}")

    def go_on(self, waited, silent):
        over = time.monotonic()
        left = lambda: max(0.1, over + BACK_SECS[self.how] - time.monotonic())
        self.look()
        for name in self.lookers:
            self.see_new(name, left())
        self.user.call(left(), use_again)
        back = time.monotonic() - over
        self.changer.call(10, was_used_again)
        self.stop_appending.set()
        count, _ = self.appender.answer(10)
        self.changer.call(10, numbers_are_there, self.appended_elsewhere, count)
        note(f"{self.name} `{self.how}` for {silent:.1f} s: the other waited {waited:.1f} s, it was back after {back:.1f} s")


def silent(changer, beside, *victims):
    """See the module's head."""
    end = FORK.Event()
    number = len(os.listdir(changer))  # nothing that an earlier case has made
    workers = [Program(f"who works beside on {top}", Dir(top, f"beside.{number}.{n}"), end) for n, top in enumerate((beside, changer))]
    victims = [Victim(changer, number, said) for said in victims]
    for worker in workers:
        worker.ask(work_beside)
    threads = [threading.Thread(target=victim.run) for victim in victims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end.set()
    for victim in victims:
        if victim.failed:
            raise victim.failed
    for worker in workers:
        (longest, name), count = worker.answer(10)[0]
        expect(longest <= BESIDE_SECS, f"{worker.name} has waited {longest:.1f} s in {name}")
        expect(count >= 4, f"{worker.name} has done little: {count} rounds")


def killed(changer, beside, top, pid):
    silent(changer, beside, f"kill:4:{top}:{pid}")


# Many descriptors.

HELD_FILES, HELD_SECS = 120, 9.0


def held(changer, top, namespace):
    """Reads that wait while their machine is cut off, through descriptors whose pages it has, are not old."""
    dir_ = f"held.{len(os.listdir(changer))}"
    other, user = Program("the other machine", Dir(changer, dir_)), Program("who holds files open", Dir(top, dir_), [])
    silence = Cut(namespace, "both")
    other.call(20, make_many)
    time.sleep(RENEWED_SECS)
    user.call(20, hold_many)
    try:
        silence.begin()
        _, waited = other.call(LIMITS["both"] + SLACK_SECS, change_many)
        user.ask(read_many)
        time.sleep(HELD_SECS - waited)
        expect(not user.has_answered(), "a machine that is cut off reads what may be old")
    finally:
        silence.end()
    old, _ = user.answer(BACK_SECS["both"])
    expect(not old, f"{len(old)} of {HELD_FILES} files were read with the content of before: {old[:8]} ...")
    note(f"{HELD_FILES} reads by descriptors that waited for the network; the change had waited {waited:.1f} s")


def make_many(dir_):
    os.mkdir(dir_.at)
    for number in range(HELD_FILES):
        write(dir_.path(str(number)), OLD)


def change_many(dir_):
    for number in range(HELD_FILES):
        write(dir_.path(str(number)), NEW, 0)


def hold_many(dir_, files):
    files += [os.open(dir_.path(str(number)), os.O_RDONLY) for number in range(HELD_FILES)]
    for _ in range(2):
        for fd in files:
            expect(os.pread(fd, 1 << 20, 0) == OLD, "not what was written")


def read_many(_, files):
    """All at once; those that are old."""
    with concurrent.futures.ThreadPoolExecutor(len(files)) as threads:
        found = list(threads.map(lambda fd: os.pread(fd, 1 << 20, 0), files))
    return [number for number, data in enumerate(found) if data != NEW]
