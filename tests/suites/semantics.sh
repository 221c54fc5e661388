#!/usr/bin/env bash
# The examples of docs/SEMANTICS.md, each run as a test on a mounted cell.
. "$(dirname "$0")/../lib.sh"
suite semantics
have_cell || { skip all "needs a cell"; exit 0; }

examples() { MNT=$MNT CELL=$CELL LEE=$LEE python3 "$ROOT/tests/semantics.py"; }

cell_start
pass_lines examples
suite_end
