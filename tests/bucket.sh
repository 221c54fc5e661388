# What suites on an object store share. They have set the AWS variables, and have `server_kill` and `server_start`.

BUCKET_URL=s3://bucket/cells

# cell_in_bucket: $CELL is there from now on.
cell_in_bucket() {
  CELL=$BUCKET_URL/$SUITE
  export LEE_STATE_DIR=$WORK/state
}

# What the file system must do through the mount, on cells that live in the bucket. FSX_SECONDS and KILL9_SECONDS make it longer.
suites_in_bucket() {
  on_bucket posix
  on_bucket pjdfstest
  on_bucket fsx FSX_SECONDS="${FSX_SECONDS:-15}"
  on_bucket kill9 KILL9_SECONDS="${KILL9_SECONDS:-30}" OPEN_MS_MAX=10000 KEPT="3 2 90" FOLLOWED="6000 2" # a slow store gets what it can bear
}

# A tree goes in by tar, and comes back after the cell was closed and opened, byte for byte.
trees_come_back() {
  local tree=$WORK/tree
  mkdir "$tree"
  cp -r "$ROOT/crates" "$ROOT/docs" "$tree"
  head -c 40000000 /dev/urandom >"$tree/large"
  level_directory_times "$tree"
  mkdir "$MNT/tree"
  tar -C "$tree" --format=posix -cf - . | tar -C "$MNT/tree" -xf -
  cell_restart
  tree_same "$tree" "$MNT/tree"
  rm -r "$MNT/tree"
}

# 10,000 small files are a few objects.
few_objects() {
  local before after
  cell_restart
  before=$(objects)
  python3 -c '
import os, sys
for d in range(100):
    os.mkdir(f"{sys.argv[1]}/few{d}")
    for f in range(100):
        with open(f"{sys.argv[1]}/few{d}/{f}", "wb") as file:
            file.write(b"x" * (500 + 37 * f))' "$MNT"
  lee sync >/dev/null
  after=$(objects)
  say "NOTE 10,000 small files: $((after - before)) objects more, $(data_objects) of them data"
  [ $((after - before)) -le 100 ] || return 1
}

objects() { python3 "$ROOT/tests/tools/bucket.py" list bucket "${CELL#s3://bucket/}/" | wc -l; }
data_objects() { python3 "$ROOT/tests/tools/bucket.py" list bucket "${CELL#s3://bucket/}/data/" | wc -l; }

# Writers go on when the server is back; nothing acknowledged is lost, also when lee is killed afterwards.
server_restarts_under_load() {
  mkdir "$WORK/notes"
  python3 "$ROOT/tests/tools/durable.py" write "$MNT" "$WORK/notes" 1 &
  local writer=$! round
  for round in 1 2 3; do
    sleep 2
    server_kill
    sleep 2
    alive "$writer" || { say "the writers ended when the server was away"; return 1; }
    server_start
  done
  sleep 10 # calls that have failed are repeated after up to 2 s, and what need not be durable soon comes after them
  cut -d ' ' -f 1 /proc/uptime >"$WORK/notes/1.killed"
  cell_kill9
  wait_gone "$writer" 60 || { kill -9 $(pgrep -P "$writer") "$writer"; return 1; }
  wait "$writer" || { say "a writer failed while the server was away"; return 1; }
  cell_start
  python3 "$ROOT/tests/tools/durable.py" verify "$MNT" "$WORK/notes"
  rm -rf "$MNT/1"
}

# Another machine (another state directory) takes the cell over while the first writes: the first ends by itself, with a message, and
# all that it acknowledged is there.
second_takes_over() {
  local first start took
  first=$(cell_pid)
  rm -rf "$WORK/notes"
  mkdir "$WORK/notes" "$WORK/mnt2"
  python3 "$ROOT/tests/tools/durable.py" write "$MNT" "$WORK/notes" 7 &
  local writer=$!
  sleep 3
  cut -d ' ' -f 1 /proc/uptime >"$WORK/notes/7.killed"
  start=$(now_ms)
  LEE_LOG=info LEE_STATE_DIR=$WORK/state2 "$LEE" up "$CELL" --mount "$WORK/mnt2" --background
  echo x >"$WORK/mnt2/first-write"
  sync "$WORK/mnt2/first-write"
  took=$(($(now_ms) - start))
  say "NOTE taken over from a process that runs; first durable write after $took ms ($(opened "$WORK/state2"))"
  wait_gone "$first" 30 || { say "the first process does not end"; return 1; }
  rm -f "$WORK/cell.pid"
  kill -9 $(pgrep -P "$writer") "$writer" 2>/dev/null || true
  grep -q 'was taken over by another process' "$WORK/lee.log" || { cell_log; return 1; }
  python3 "$ROOT/tests/tools/durable.py" verify "$WORK/mnt2" "$WORK/notes"
  LEE_STATE_DIR=$WORK/state2 "$LEE" fsck --cell "$CELL"
  LEE_STATE_DIR=$WORK/state2 "$LEE" down "$CELL"
  cell_start
}

# opened STATE-DIR: what opening took, as the log has it.
opened() { grep -oh 'opened in .*' "$1"/*/log | tail -n 2 | paste -sd ';' -; }

# The process that has the cell is killed while it writes, and another machine takes the cell over.
killed_and_taken_over() {
  local start took writer
  rm -rf "$WORK/notes"
  mkdir "$WORK/notes" "$WORK/mnt3"
  python3 "$ROOT/tests/tools/durable.py" write "$MNT" "$WORK/notes" 8 &
  writer=$!
  sleep 3
  cut -d ' ' -f 1 /proc/uptime >"$WORK/notes/8.killed"
  start=$(now_ms)
  cell_kill9
  LEE_LOG=info LEE_STATE_DIR=$WORK/state3 "$LEE" up "$CELL" --mount "$WORK/mnt3" --background
  echo x >"$WORK/mnt3/after-kill"
  sync "$WORK/mnt3/after-kill"
  took=$(($(now_ms) - start))
  say "NOTE taken over after kill -9; first durable write after $took ms ($(opened "$WORK/state3"))"
  wait_gone "$writer" 30 || { kill -9 $(pgrep -P "$writer") "$writer"; return 1; }
  python3 "$ROOT/tests/tools/durable.py" verify "$WORK/mnt3" "$WORK/notes"
  LEE_STATE_DIR=$WORK/state3 "$LEE" down "$CELL"
  cell_start
}

# What a cell in a bucket must bear, whoever keeps the bucket.
cell_cases() {
  local case
  cell_in_bucket
  cell_start
  for case in trees_come_back few_objects server_restarts_under_load second_takes_over killed_and_taken_over; do run "$case" "$case"; done
}
