#!/usr/bin/env bash
# A cell on a disk of 256 MiB that fills up: writers get ENOSPC, what was acknowledged is right, removal always works,
# a restart works, and it goes on when there is room again.
. "$(dirname "$0")/../lib.sh"
suite full-disk
[ "$(id -u)" = 0 ] || die "needs root: it mounts a disk image"
have_cell || { skip all "needs a cell"; exit 0; }
DISK=$WORK/disk
FILL=$ROOT/tests/tools/fill.py

make_disk() {
  truncate -s 256M "$WORK/disk.img"
  mkfs.ext4 -q -m 0 "$WORK/disk.img"
  mkdir "$DISK"
  mount -o loop "$WORK/disk.img" "$DISK"
}

fill() { python3 "$FILL" fill "$MNT" "$WORK/sums" "$@"; }
sums_hold() { python3 "$FILL" check "$MNT" "$WORK/sums"; }

fills_until_enospc() {
  fill large 1048576
  fill small 3901
  sums_hold
  df -B1 "$MNT"
}

checked_while_full() { cell_fsck && sums_hold; }

restart_while_full() {
  cell_restart
  sums_hold
}

kill_while_full() {
  cell_kill9
  cell_start
  sums_hold
  cell_fsck
}

# One at a time, each noted: removal must never get ENOSPC.
removal_works() {
  python3 "$FILL" remove "$MNT" "$WORK/sums" 60
  sums_hold
}

# The room comes back by itself, within a minute.
goes_on_writing() {
  python3 "$FILL" resume "$MNT" "$WORK/sums" 60
  sums_hold
}

# Somebody else fills the disk under the cell: errors are fine, hanging and damage are not; afterwards it goes on.
another_program_fills_the_disk() {
  dd if=/dev/zero of="$DISK/filler" bs=1M status=none 2>/dev/null || true
  timeout 60 python3 "$FILL" fill "$MNT" "$WORK/sums" more 65536
  sums_hold
  timeout 60 python3 "$FILL" remove "$MNT" "$WORK/sums" 20
  rm "$DISK/filler"
  goes_on_writing
  cell_fsck
}

# Somebody else takes nearly all inodes: the cell refuses writes while it still has some for itself, and goes on later.
another_program_takes_the_inodes() {
  mkdir "$DISK/many"
  python3 -c '
import os, sys
number = 0
while os.statvfs(sys.argv[1]).f_favail > 1000:
    open(f"{sys.argv[1]}/{number}", "x").close()
    number += 1' "$DISK/many"
  timeout 60 python3 "$FILL" fill "$MNT" "$WORK/sums" inodes 65536
  [ "$(stat -f -c %d "$DISK")" -gt 100 ]
  sums_hold
  timeout 60 python3 "$FILL" remove "$MNT" "$WORK/sums" 20
  rm -r "$DISK/many"
  goes_on_writing
  cell_fsck
}

run disk make_disk
on_exit "umount '$DISK' || umount -l '$DISK'"
CELL=$DISK/cell
cell_start
run fills_until_enospc fills_until_enospc
cell_ensure
run checked_while_full checked_while_full
cell_ensure
run restart_while_full restart_while_full
cell_ensure
run kill_while_full kill_while_full
cell_ensure
run removal_works removal_works
cell_ensure
run goes_on_writing goes_on_writing
cell_ensure
run another_program_fills_the_disk another_program_fills_the_disk
cell_ensure
run another_program_takes_the_inodes another_program_takes_the_inodes
cell_ensure
suite_end
