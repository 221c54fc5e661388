#!/usr/bin/env python3
"""The blocks of commands of a page, by section.

    blocks.py PAGE                  each block's section and number in it
    blocks.py PAGE SECTION NUMBER   this block, as the page has it

A block is indented by four blanks. One whose first line is a setting, a table or other output is told from commands by whoever
runs them.
"""

import sys
from pathlib import Path


def blocks(page):
    """(section, number, text) of each, in the order of the page."""
    found, section, number, lines = [], "", 0, []
    for line in Path(page).read_text().splitlines() + ["end"]:
        if line.startswith("    ") or (not line and lines):
            lines.append(line[4:])
            continue
        if lines:
            number += 1
            found.append((section, number, "\n".join(lines).rstrip() + "\n"))
            lines = []
        if line.startswith("## "):
            section, number = line[3:], 0
    return found


def main(page, *which):
    if not which:
        for section, number, _ in blocks(page):
            print(f"{section}\t{number}")
        return 0
    wanted = [text for section, number, text in blocks(page) if [section, str(number)] == list(which)]
    if not wanted:
        sys.exit(f"{page} has no block {which[1]} in a section {which[0]}")
    print(wanted[0], end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
