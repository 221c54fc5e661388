"""SQLite from several machines, in its usual journal modes: in turn and at the same time."""

import sqlite3

from program import at_once, expect, note

ROWS = 12  # by each program
MODES = ("delete", "truncate", "persist")
BUSY_SECS = 30


def sqlite(*tops):
    """The transactions of all machines, each of which reads a sum and writes it anew: none is lost."""
    for mode in MODES:
        name = f"{mode}.sqlite"
        with sqlite3.connect(f"{tops[0]}/{name}") as made:
            made.execute("create table rows (who integer, number integer)")
            made.execute("create table sum (value integer)")
            made.execute("insert into sum values (0)")
        made.close()
        for number in range(2 * len(tops)):
            add_rows(tops[number % len(tops)], name, mode, number, 1)
        before = 2 * len(tops)
        at_once(60, add_rows, [(top, name, mode, 1000 + who, ROWS) for who, top in enumerate(tops)])
        for top in tops:
            check(top, name, before + len(tops) * ROWS)
    note(f"{len(tops) * (ROWS + 2)} transactions from {len(tops)} machines in each of {', '.join(MODES)}")


def add_rows(top, name, mode, who, rows):
    base = sqlite3.connect(f"{top}/{name}", timeout=BUSY_SECS, isolation_level=None)
    base.execute(f"pragma journal_mode = {mode}")
    for number in range(rows):
        base.execute("begin immediate")
        (value,) = base.execute("select value from sum").fetchone()
        base.execute("insert into rows values (?, ?)", (who, number))
        base.execute("update sum set value = ?", (value + 1,))
        base.execute("commit")
    base.close()


def check(top, name, wanted):
    base = sqlite3.connect(f"{top}/{name}", timeout=BUSY_SECS)
    (value,), (rows,) = base.execute("select value from sum").fetchone(), base.execute("select count(*) from rows").fetchone()
    (whole,) = base.execute("pragma integrity_check").fetchone()
    base.close()
    expect((value, rows, whole) == (wanted, wanted, "ok"), f"{top}/{name}: sum {value}, {rows} rows of {wanted}, {whole}")
