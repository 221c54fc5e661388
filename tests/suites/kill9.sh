#!/usr/bin/env bash
# kill -9 of the server while programs write, again and again for KILL9_SECONDS (default 60). After each the cell opens
# by itself and quickly, every promise is kept (tests/tools/durable.py says which), and fsck finds nothing.
# The moments come from KILL9_SEED (default 1). At last a keeper brings a killed server back by itself, 20 times.
. "$(dirname "$0")/../lib.sh"
suite kill9
KILL9_SECONDS=${KILL9_SECONDS:-60}
KILL9_SEED=${KILL9_SEED:-1}
OPEN_MS_MAX=${OPEN_MS_MAX:-2000} # in the median: one may meet a disk that is busy
DURABLE=$ROOT/tests/tools/durable.py
ROUNDS_KEPT=3
WORKERS=5
KEPT_SECS_MAX=300
KEPT=${KEPT:-20 16 20} # kills, threads beside them, seconds until the path must be back
FOLLOWED=${FOLLOWED:-60000 3} # changes, kills of the server and of who follows them

have_cell || { skip all "needs a cell"; exit 0; }
RANDOM=$KILL9_SEED

# at_work ROUND WRITER: waits until each writer has begun its notes.
at_work() {
  local tries=1500
  until [ "$(find "$WORK/notes" -name "$1.*" | wc -l)" = "$WORKERS" ]; do
    alive "$2" || { say "the writers ended before the server was killed"; return 1; }
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { say "not all writers were at work after 30 s"; return 1; }
    sleep 0.02
  done
}

# writer_round ROUND SECONDS: writers at work until the server is killed under them.
writer_round() {
  python3 "$DURABLE" write "$MNT" "$WORK/notes" "$1" &
  local writer=$! workers
  at_work "$1" "$writer"
  sleep "$2"
  workers=$(pgrep -c -P "$writer" || true)
  cut -d ' ' -f 1 /proc/uptime >"$WORK/notes/$1.killed"
  cell_kill9
  wait_gone "$writer" 30 || { say "the writers did not end 30 s after the server"; kill -9 $(pgrep -P "$writer") "$writer"; return 1; }
  wait "$writer" || { say "a writer failed before the server was killed"; return 1; }
  [ "$workers" = "$WORKERS" ] || { say "only $workers of $WORKERS writers were at work at the kill"; return 1; }
}

# timed_start: `lee up` after a crash; prints how long it took.
timed_start() {
  local start took
  start=$(now_ms)
  cell_start
  took=$(($(now_ms) - start))
  echo "$took" >>"$WORK/open-ms"
  [ "$took" -le $((OPEN_MS_MAX * 10)) ] || { say "opening took $took ms"; return 1; }
}

forget_round() {
  [ "$1" -ge 1 ] || return 0
  rm -rf "$MNT/${1:?}"
  rm -f "$WORK/notes/$1".*
}

rounds() {
  local end=$((SECONDS + KILL9_SECONDS)) round=0 moment
  while [ "$SECONDS" -lt "$end" ]; do
    round=$((round + 1))
    moment=$((500 + RANDOM % 5500))
    say "round $round: kill after $moment ms"
    writer_round "$round" "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    if [ $((round % 3)) -eq 0 ]; then cell_fsck; fi # of what the crash left, before anything opened it
    if [ $((round % 4)) -eq 0 ]; then kill_while_starting; fi
    timed_start
    python3 "$DURABLE" verify "$MNT" "$WORK/notes" | sed 's/^NOTE //'
    cell_fsck
    forget_round $((round - ROUNDS_KEPT))
  done
  local median
  median=$(sort -n "$WORK/open-ms" | sed -n "$(((round + 1) / 2))p")
  say "NOTE $round kills; opened in $median ms in the median, in $(sort -n "$WORK/open-ms" | tail -n 1) ms at most"
  [ "$median" -le "$OPEN_MS_MAX" ]
}

# kill_while_starting: the recovery itself is interrupted.
kill_while_starting() {
  "$LEE" up "$CELL" --mount "$MNT" "${UP_OPTIONS[@]}" >>"$WORK/lee.log" 2>&1 </dev/null &
  echo $! >"$WORK/cell.pid"
  disown $!
  sleep "0.0$((RANDOM % 90 + 10))"
  cell_kill9
}

# A file that was open and without a name at the crash is reclaimed: its space comes back.
orphans_are_reclaimed() {
  local used
  used=$(live_bytes)
  python3 -c '
import os, sys, time
fds = []
for i in range(20):
    fds.append(os.open(f"{sys.argv[1]}/orphan{i}", os.O_RDWR | os.O_CREAT))
    os.write(fds[-1], os.urandom(1 << 20))
    os.fsync(fds[-1])
    os.unlink(f"{sys.argv[1]}/orphan{i}")
fd = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(fd)
print("ready", flush=True)
time.sleep(60)' "$MNT" >"$WORK/orphans" &
  local holder=$!
  until grep -q ready "$WORK/orphans"; do alive "$holder"; sleep 0.05; done
  cell_kill9
  disown "$holder"
  kill -9 "$holder"
  cell_start
  local tries=100
  while [ "$(live_bytes)" -gt $((used + (1 << 20))) ]; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { say "live bytes: $used before, $(live_bytes) 10 s after the crash"; return 1; }
    sleep 0.1
  done
  cell_fsck
}

# with_keeper TOOL ARGUMENT...: tests/tools/TOOL.py on a cell of its own, whose server comes back by itself when it is killed.
with_keeper() {
  local tool=$1 cell=$CELL-$1 status=0
  shift
  echo "$cell" >"$WORK/kept.cell"
  mkdir "$WORK/kept-mnt"
  "$LEE" up "$cell" --mount "$WORK/kept-mnt" "${UP_OPTIONS[@]}" --background
  timeout -k 5 "$KEPT_SECS_MAX" python3 "$ROOT/tests/tools/$tool.py" "$LEE" "$cell" "$@" &
  echo $! >"$WORK/kept.pid"
  wait $! || status=$?
  rm "$WORK/kept.pid"
  [ "$status" -lt 124 ] || say "$tool.py: exit status $status; 124 and 137 mean that $KEPT_SECS_MAX s were not enough"
  "$LEE" down "$cell"
  [ "$status" -eq 0 ] || return 1
  [ -z "$(ls -A "$WORK/kept-mnt")" ] || { say "written below the mount point:"; ls -l "$WORK/kept-mnt"; return 1; }
  "$LEE" fsck --cell "$cell"
  rm -rf --one-file-system "$cell" "$WORK/kept-mnt"
}

# kept_end: ends what with_keeper has started, when the suite ends early. First the program that kills the server.
kept_end() {
  local pid
  pid=$(cat "$WORK/kept.pid")
  [ -z "$pid" ] || { kill "$pid"; wait_gone "$pid" 10; }
  timeout -k 5 60 "$LEE" down "$(cat "$WORK/kept.cell")"
}

live_bytes() { lee df --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["live_bytes"])'; }

mkdir "$WORK/notes"
cell_start
run rounds rounds
cell_ensure
run orphans_are_reclaimed orphans_are_reclaimed
on_exit kept_end # here, because what a case registers is lost with its subshell
run comes_back with_keeper kept $KEPT
run followed with_keeper followed $FOLLOWED
suite_end
