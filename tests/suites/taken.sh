#!/usr/bin/env bash
# What a cell stands on is taken away while it serves: its directory is renamed, its disk is unmounted lazily or turns
# read-only, its log cannot be written, its socket and lock are removed. Each outcome is right and comes in bounded time.
. "$(dirname "$0")/../lib.sh"
suite taken
[ "$(id -u)" = 0 ] || die "needs root: it mounts disk images"
have_cell || { skip all "needs a cell"; exit 0; }
[ -z "$CELL_URL" ] || { skip all "needs a cell in a directory"; exit 0; }
STEP_SECS=60

# within COMMAND...: no step may hang.
within() { timeout -k 5 "$STEP_SECS" "$@"; }

# up CELL [OPTION...]: serves it in the background; its processes are ended with the suite, the keeper first.
up() {
  within "$LEE" up "$@" --background
  sed -E 's/.*"pid":([0-9]+),"server.*/\1/' "$1/keeper" >>"$WORK/pids"
  sed -E 's/.*"pid":([0-9]+).*/\1/' "$1/lock" >>"$WORK/pids"
}

end_all() {
  local pid
  for pid in $(cat "$WORK/pids" 2>/dev/null); do
    [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(readlink -f "$LEE")" ] && kill -9 "$pid"
  done
  unmount_below "$WORK"
}
on_exit end_all

pid_of() { sed -E 's/.*"pid":([0-9]+).*/\1/' "$1/lock"; }

# put FILE MIB: writes it durably and notes its sum beside the others.
put() { within dd if=/dev/urandom of="$1" bs=1M count="$2" conv=fsync status=none; }

# refuses WORDS COMMAND...: it fails within its time and says so.
refuses() {
  local words=$1 status=0
  shift
  within "$@" >"$WORK/said" 2>&1 || status=$?
  cat "$WORK/said"
  [ "$status" -ne 0 ] || { say "was done: $*"; return 1; }
  [ "$status" != 124 ] && [ "$status" != 137 ] || { say "hung: $*"; return 1; }
  grep -qiE "$words" "$WORK/said" || { say "did not say \"$words\": $*"; return 1; }
}

# disk NAME: an ext4 of its own at $WORK/NAME.
disk() {
  truncate -s 300M "$WORK/$1.img"
  mkfs.ext4 -q -m 0 "$WORK/$1.img"
  mkdir -p "$WORK/$1"
  mount -o loop "$WORK/$1.img" "$WORK/$1"
}

renamed() {
  local old=$WORK/r/old new=$WORK/r/new
  mkdir "$WORK/r"
  up "$old"
  put "$old/mnt/before" 2
  mv "$old" "$new"
  put "$new/mnt/after" 40
  within mkdir "$new/mnt/dir"
  sha256sum "$new/mnt/before" "$new/mnt/after" >"$WORK/r/sums"
  within "$LEE" --cell "$new" sync
  within "$LEE" status "$new"
  if [ -e "$old" ]; then say "something was made at the old path"; ls -lR "$old"; return 1; fi
  # another cell at the old path is another one, and takes nothing from this one
  up "$old"
  [ -z "$(ls "$old/mnt")" ]
  within sha256sum -c --quiet "$WORK/r/sums"
  within "$LEE" down "$new"
  if mountpoint -q "$new/mnt"; then say "still mounted"; return 1; fi
  put "$old/mnt/own" 1
  within "$LEE" down "$old"
  up "$new"
  within sha256sum -c --quiet "$WORK/r/sums"
  within "$LEE" fsck --cell "$new"
  within "$LEE" fsck --cell "$old"
  within "$LEE" down "$new"
}

lazily_unmounted() {
  local cell=$WORK/lazy/cell mnt=$WORK/lazy-mnt pid
  disk lazy
  mkdir "$mnt"
  up "$cell" --mount "$mnt"
  pid=$(pid_of "$cell")
  put "$mnt/before" 2
  umount -l "$WORK/lazy"
  put "$mnt/after" 40
  within mkdir "$mnt/dir"
  sha256sum "$mnt/before" "$mnt/after" >"$WORK/lazy.sums"
  [ -z "$(ls -A "$WORK/lazy")" ] || { say "written below the mount point"; ls -lR "$WORK/lazy"; return 1; }
  refuses 'cannot be reached|served' "$LEE" down "$mnt"
  umount "$mnt"
  wait_gone "$pid" 30
  [ -z "$(ls -A "$WORK/lazy")" ]
  mount -o loop "$WORK/lazy.img" "$WORK/lazy"
  up "$cell" --mount "$mnt"
  within sha256sum -c --quiet "$WORK/lazy.sums"
  within "$LEE" fsck --cell "$cell"
  within "$LEE" down "$cell"
  umount "$WORK/lazy"
}

turned_read_only() {
  local cell=$WORK/ro/cell mnt=$WORK/ro-mnt pid
  disk ro
  mkdir "$mnt"
  up "$cell" --mount "$mnt"
  put "$mnt/stored" 40
  sha256sum "$mnt/stored" >"$WORK/ro.sums"
  within "$LEE" down "$cell"
  up "$cell" --mount "$mnt"
  pid=$(pid_of "$cell")
  echo 3 >/proc/sys/vm/drop_caches
  mount -o remount,abort "$WORK/ro" || true # as ext4 does by itself at an error
  if touch "$WORK/ro/x" 2>/dev/null; then say "the disk can still be written"; return 1; fi
  within sha256sum -c --quiet "$WORK/ro.sums"
  refuses 'error|read-only' dd if=/dev/zero of="$mnt/new" bs=1M count=24 conv=fsync status=none
  within "$LEE" status "$cell" | tee "$WORK/status"
  grep -q ALARM "$WORK/status"
  within sha256sum -c --quiet "$WORK/ro.sums"
  refuses 'commit failed.*may be lost|could not be stored' "$LEE" down "$cell"
  if grep -q 'everything is durable' "$WORK/said"; then return 1; fi
  wait_gone "$pid" 30
  umount "$WORK/ro"
  e2fsck -fy "$WORK/ro.img" >/dev/null || [ $? -lt 4 ]
  mount -o loop "$WORK/ro.img" "$WORK/ro"
  up "$cell" --mount "$mnt"
  within sha256sum -c --quiet "$WORK/ro.sums"
  within "$LEE" fsck --cell "$cell"
  within "$LEE" down "$cell"
  umount "$WORK/ro"
}

# serve_beside LOG CELL: in the foreground, saying very much to LOG.
serve_beside() {
  : >"$WORK/started"
  LEE_LOG=trace "$LEE" up "$2" >"$WORK/started" 2>"$1" </dev/null &
  SERVER=$!
  echo "$SERVER" >>"$WORK/pids"
  wait_for 30 grep -q 'is mounted at' "$WORK/started"
}

works_and_ends() {
  local cell=$1 status=0
  put "$cell/mnt/file" 20
  within mv "$cell/mnt/file" "$cell/mnt/other"
  within "$LEE" --cell "$cell" sync
  within "$LEE" status "$cell" | tee "$WORK/status"
  if grep -q ALARM "$WORK/status"; then return 1; fi
  within "$LEE" down "$cell"
  wait "$SERVER" || status=$?
  [ "$status" -eq 0 ] || { say "it ended with $status"; return 1; }
  within "$LEE" fsck --cell "$cell"
}

log_pipe_gone() {
  mkfifo "$WORK/pipe"
  head -c 100 "$WORK/pipe" >/dev/null &
  serve_beside "$WORK/pipe" "$WORK/pipe-cell"
  works_and_ends "$WORK/pipe-cell"
}

log_disk_full() {
  mkdir "$WORK/small"
  mount -t tmpfs -o size=64k tmpfs "$WORK/small"
  serve_beside "$WORK/small/log" "$WORK/full-cell"
  dd if=/dev/zero of="$WORK/small/filler" bs=4k status=none 2>/dev/null || true
  works_and_ends "$WORK/full-cell"
  umount "$WORK/small"
}

log_closed() {
  local cell=$WORK/closed-cell
  : >"$WORK/started"
  LEE_LOG=trace "$LEE" up "$cell" >"$WORK/started" 2>&- </dev/null &
  SERVER=$!
  echo "$SERVER" >>"$WORK/pids"
  wait_for 30 grep -q 'is mounted at' "$WORK/started"
  works_and_ends "$cell"
}

socket_and_lock_removed() {
  local cell=$WORK/bare pid
  up "$cell"
  pid=$(pid_of "$cell")
  put "$cell/mnt/file" 1
  rm "$cell/control.sock"
  refuses "in use by.*process $pid" "$LEE" down "$cell"
  within "$LEE" status "$cell" | tee "$WORK/status"
  grep -q "in use by.*process $pid" "$WORK/status"
  rm "$cell/lock"
  STEP_SECS=90 refuses 'in use by' "$LEE" up "$cell" --mount "$WORK/other-mnt"
  refuses 'in use by' "$LEE" fsck --cell "$cell"
  within "$LEE" status "$cell" | grep -q 'in use'
  put "$cell/mnt/more" 1
  kill -TERM "$pid"
  wait_gone "$pid" 30
  up "$cell"
  cmp -n 1 "$cell/mnt/more" "$cell/mnt/more"
  within "$LEE" fsck --cell "$cell"
  within "$LEE" down "$cell"
}

# A user who may do nothing there cannot keep the cell from being opened.
locked_by_a_stranger() {
  local cell=$WORK/strange
  up "$cell"
  within "$LEE" down "$cell"
  chmod 644 "$cell/lock" # as lee made it before
  setpriv --reuid 61003 --regid 61003 --clear-groups flock -s "$cell/lock" sleep 120 &
  echo $! >"$WORK/stranger"
  wait_for 10 sh -c "! flock -xn '$cell/lock' true"
  up "$cell"
  [ "$(stat -c %a "$cell/lock")" = 600 ]
  refuses 'denied' setpriv --reuid 61003 --regid 61003 --clear-groups flock -sn "$cell/lock" true
  refuses 'denied' setpriv --reuid 61003 --regid 61003 --clear-groups flock -sn "$cell/meta" true
  within "$LEE" down "$cell"
  kill "$(cat "$WORK/stranger")"
}

half_restored() {
  local cell=$WORK/half
  up "$cell"
  put "$cell/mnt/file" 3
  within "$LEE" down "$cell"
  mv "$cell/cell" "$WORK/kept"
  (cd "$cell" && find . -type f ! -name lock -exec sha256sum {} + | sort) >"$WORK/half.sums"
  refuses 'restore .cell' "$LEE" up "$cell"
  rm "$cell/lock"
  refuses 'restore .cell' "$LEE" up "$cell"
  rm -r "$cell/meta"
  refuses 'restore .cell' "$LEE" up "$cell"
  (cd "$cell" && grep -v ' ./meta/' "$WORK/half.sums" | sha256sum -c --quiet)
}

ended_by_umount_and_served_again() {
  local cell=$WORK/again n
  up "$cell"
  for n in 1 2 3 4 5; do
    put "$cell/mnt/file$n" 2
    umount "$cell/mnt"
    up "$cell"
  done
  [ "$(ls "$cell/mnt" | wc -l)" = 5 ]
  within "$LEE" down "$cell"
}

mount_options() {
  local cell=$WORK/options mnt=$WORK/options-mnt
  up "$cell"
  mkdir -p "$cell/mnt/a/b"
  echo inside >"$cell/mnt/a/b/file"
  install -m 755 /bin/true "$cell/mnt/true"
  ln -s /etc "$cell/mnt/link"
  within "$LEE" down "$cell"
  up "$cell" -o ro,nosuid,nodev,noexec,allow_other
  grep " $cell/mnt " /proc/mounts | tee "$WORK/said"
  grep -q 'ro,nosuid,nodev,noexec' "$WORK/said"
  refuses 'read-only' touch "$cell/mnt/x"
  refuses 'denied' "$cell/mnt/true"
  within "$LEE" down "$cell"
  mkdir "$mnt"
  up "$cell" --mount "$mnt" -o subdir=/a/b
  [ "$(cat "$mnt/file")" = inside ]
  put "$mnt/more" 1
  within "$LEE" --cell "$mnt" du "$mnt"
  within "$LEE" down "$mnt"
  if mountpoint -q "$mnt"; then say "still mounted"; return 1; fi
  refuses 'subdir=/link' "$LEE" up "$cell" --mount "$mnt" -o subdir=/link
  refuses 'subdir=/none' "$LEE" up "$cell" --mount "$mnt" -o subdir=/none
  refuses 'no such option' "$LEE" up "$cell" -o sync
  if mountpoint -q "$mnt"; then say "still mounted"; return 1; fi
  up "$cell" # the setuid and exec of before are back
  "$cell/mnt/true"
  [ -s "$cell/mnt/a/b/more" ]
  within "$LEE" fsck --cell "$cell"
  within "$LEE" down "$cell"
}

lee_binary
run renamed renamed
run lazily-unmounted lazily_unmounted
run turned-read-only turned_read_only
run log-pipe-gone log_pipe_gone
run log-disk-full log_disk_full
run log-closed log_closed
run socket-and-lock-removed socket_and_lock_removed
run locked-by-a-stranger locked_by_a_stranger
run half-restored half_restored
run umount-and-up ended_by_umount_and_served_again
run mount-options mount_options
end_all
suite_end
