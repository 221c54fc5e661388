#!/usr/bin/env bash
# Rot: every kind of file that a cell has is damaged in every way (bits, zeros, cut off, gone, exchanged, an old copy). The
# cell is unaffected or repaired, or refuses with a clear word. tests/tools/rot.py says what is done, and what it knows of.
#
#   tests/suites/rot.sh [FROM..TO [TEMPLATE/KIND/DAMAGE]]   seeds (default ROT_SEEDS, 0..100; 0..378 is every case once)
. "$(dirname "$0")/../lib.sh"
suite rot
[ -z "$TARGET_DIR$CELL_URL" ] || { skip all "needs the files of a cell"; exit 0; }
SEEDS=${1:-${ROT_SEEDS:-0..100}}

rot() { python3 "$ROOT/tests/tools/rot.py" "$LEE" "$WORK" "$@"; }

lee_binary
run rounds rot "$SEEDS" ${2:+"$2"}
suite_end
