"""What tests/suites/machines.sh asks of several mounts of one cell, each of which plays another machine.

    machines CASE ARGUMENT...

Each case is a function of that name in one of the modules beside this; it prints what it found and ends with an exit
status of 0 only if every check held.
"""

import signal
import sys

import programs
import seen
import silent
import stuck
import together
import turns
import work

CASES = {
    "seen": seen.seen,
    "append": together.append,
    "exclusive": together.exclusive,
    "locks": together.locks,
    "turns": turns.turns,
    "sqlite": programs.sqlite,
    "silent": silent.silent,
    "killed": silent.killed,
    "held": silent.held,
    "work": work.work,
    "lost": work.lost,
    "waiting": stuck.waiting,
    "watch": stuck.watch,
    "sweep": stuck.sweep,
    "hang": stuck.hang,
}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that whatever is stopped or cut goes on
    CASES[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
