"""Programs on machines: processes that do what a case asks of them, and may hang without the case hanging with them."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback

FORK = multiprocessing.get_context("fork")
PR_SET_PDEATHSIG = 1


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def dies_with_its_case():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Program:
    """A process that calls functions one after the other. Make all of a case before it starts a thread."""

    def __init__(self, name, *state):
        self.name = name
        self.pipe, other = FORK.Pipe()
        self.process = FORK.Process(target=self.run, args=(other, state), daemon=True)
        self.process.start()
        other.close()

    def run(self, pipe, state):
        dies_with_its_case()
        while True:
            do, args = pipe.recv()
            begun = time.monotonic()
            try:
                answer = ("done", do(*state, *args))
            except Exception:  # the case says what it makes of it
                answer = ("failed", traceback.format_exc(limit=-3))
            pipe.send((*answer, time.monotonic() - begun))

    def ask(self, do, *args):
        self.pipe.send((do, args))

    def has_answered(self):
        return self.pipe.poll(0)

    def answer(self, secs):
        """What it found, and how long that took."""
        expect(self.pipe.poll(secs), f"{self.name} has no answer after {secs:.1f} s")
        how, found, took = self.pipe.recv()
        expect(how == "done", f"{self.name}: {found}")
        return found, took

    def call(self, secs, do, *args):
        self.ask(do, *args)
        return self.answer(secs)


def at_once(secs, do, argument_lists):
    """Calls the function in a process for each list of arguments, all at the same moment; their results in order."""
    ready = FORK.Barrier(len(argument_lists))
    all_programs = [Program(f"{do.__name__}{args}", ready) for args in argument_lists]
    for program, args in zip(all_programs, argument_lists):
        program.ask(begin, do, *args)
    return [program.answer(secs)[0] for program in all_programs]


def begin(ready, do, *args):
    """Called in a program: waits for the others first."""
    ready.wait(30)
    return do(*args)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data, flags=os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        expect(os.write(fd, data) == len(data), f"{path}: a short write")
    finally:
        os.close(fd)


def note(text):
    print(f"NOTE {text}")
    sys.stdout.flush()
