"""flock and fcntl locks between processes."""

import fcntl
import os
import struct
import threading
import time

from harness import FORK, case, child, read, same, together, write


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
        held, tried, waited = FORK.Event(), FORK.Event(), FORK.Value("d", 0.0)

        def hold():
            with open("f", "r+b") as file:
                lock(file, fcntl.LOCK_EX)
                held.set()
                tried.wait(10)
                time.sleep(0.5)

        def wait():
            with open("f", "r+b") as file:
                start = time.monotonic()
                tried.set()
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
def a_lock_that_is_given_after_a_close_goes_with_the_next():
    write("f", b"")
    ours = open("f", "r+b")
    fcntl.lockf(ours, fcntl.LOCK_EX)
    closed, locked, gone, over = (FORK.Event() for _ in range(4))

    def body():
        fd = os.open("f", os.O_RDWR)
        waiter = threading.Thread(target=fcntl.lockf, args=(fd, fcntl.LOCK_EX), daemon=True)
        waiter.start()
        time.sleep(0.3)
        os.close(os.open("f", os.O_RDWR))  # gives up what the process has, and not what it waits for
        closed.set()
        waiter.join(10)
        if not waiter.is_alive():
            locked.set()
        os.close(fd)
        gone.set()
        over.wait(10)

    other = FORK.Process(target=body)
    other.start()
    closed.wait(10)
    fcntl.lockf(ours, fcntl.LOCK_UN)
    try:
        assert gone.wait(20) and locked.is_set(), "the waiter was never woken"
        fcntl.lockf(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        over.set()
        other.join(10)
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
