#!/usr/bin/env bash
# Power cuts: cells on a disk in user space (crates/fuse/examples/cutdisk) that keeps what was synced and loses the rest,
# also out of order. Every promise is kept, and fsck finds nothing. tests/tools/powercut.py says what is done.
#
#   tests/suites/powercut.sh [FROM..TO]    seeds, one life of a cell each (default POWERCUT_SEEDS, 1..4)
#
# POWERCUT_ONLY=REGEX runs only writers whose names match. CUTDISK=PATH takes another disk.
. "$(dirname "$0")/../lib.sh"
suite powercut
[ -z "$TARGET_DIR$CELL_URL" ] || { skip all "needs a cell on a disk of its own"; exit 0; }
SEEDS=${1:-${POWERCUT_SEEDS:-1..4}}

build_disk() { (cd "$ROOT" && cargo build --quiet --locked --example cutdisk); } # as the unit tests have it

powercut() { python3 "$ROOT/tests/tools/powercut.py" "$LEE" "$CUTDISK" "$WORK" "$1"; }

lee_binary
if [ -z "${CUTDISK:-}" ]; then
  run build build_disk
  CUTDISK=$CARGO_TARGET_DIR/debug/examples/cutdisk
fi
run selfcheck powercut selfcheck
run "lives" powercut "$SEEDS"
suite_end
