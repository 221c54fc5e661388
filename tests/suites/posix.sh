#!/usr/bin/env bash
# What programs expect of a POSIX file system, case by case: tests/posix/. With names: only those cases.
. "$(dirname "$0")/../lib.sh"
suite posix
[ "$(id -u)" = 0 ] || die "needs root: it switches users"
cell_start
if have_cell; then export LEE_CELL_TEST=1; fi
pass_lines timeout 900 python3 -uB "$ROOT/tests/posix" "$TOP" "$@"
suite_end
