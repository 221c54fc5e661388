#!/usr/bin/env bash
# Three servers of one cell in a bucket of Ceph's RADOS gateway, and a machine that mounts it: servers are killed, stopped and drained, and
# the gateway is killed, while programs write. Nobody is told of an error, and nothing is lost. With names: only those cases.
# CEPH=DIR RGW_PORT=PORT: on one that runs already (bench/ceph-up).
. "$(dirname "$0")/../lib.sh"
suite servers
GIVEN=${CEPH:-}
CEPH=${CEPH:-$WORK/ceph}
PORT=${RGW_PORT:-$((20000 + $$ % 10000))}
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$PORT
CELL=s3://bucket/servers-$$
KILLS=${KILLS:-3} STOPS=${STOPS:-1} DRAINS=${DRAINS:-4}
SERVERS=3
GO_ON_SECS_MAX=40 # until programs go on after a server has died: its term, and the machine's patience
WANTED=("$@")

have_cell || { skip all "needs a cell"; exit 0; }

server_start() {
  radosgw --conf "$CEPH/ceph.conf" -n client.rgw.a
  python3 "$ROOT/tests/tools/bucket.py" make bucket
}

# of_server N COMMAND...: on that server's machine.
of_server() { local n=$1; shift; LEE_STATE_DIR=$WORK/state$n "$@"; }
server_pid() { cat "$WORK/server$1.pid"; }
address() { echo "127.0.0.1:$((PORT + 1 + $1))"; }

# one_serves N: that server is there; whether it has the cell or stands by is not its choice.
one_serves() {
  : >"$WORK/server$1.started"
  LEE_STATE_DIR=$WORK/state$1 "$LEE" serve "$CELL" --listen "$(address "$1")" >"$WORK/server$1.started" 2>>"$WORK/server$1.log" </dev/null &
  echo $! >"$WORK/server$1.pid"
  disown $!
  wait_for 40 serves_or_ended "$1"
  serves "$1" || { tail -n 5 "$WORK/server$1.log"; return 1; }
}

serves() { grep -q 'Ctrl-C ends it' "$WORK/server$1.started"; }
serves_or_ended() { serves "$1" || ! alive "$(server_pid "$1")"; }

# owner: the number of the server that has the cell.
owner() {
  local pid n
  pid=$("$LEE" server list --cell "$CELL" --json | python3 -c '
import json, sys
print(next((s["pid"] for s in json.load(sys.stdin)["servers"] if s["has_cell"]), 0))')
  for n in $(seq "$SERVERS"); do [ "$(server_pid "$n")" != "$pid" ] || echo "$n"; done
}

# all_are_there: each server lives, one has the cell, and clients have been told of all.
all_are_there() {
  local n
  for n in $(seq "$SERVERS"); do alive "$(server_pid "$n")" || one_serves "$n"; done
  wait_for 20 owns
  sleep 2.5
}

owns() { [ -n "$(owner)" ]; }
owned_by_another() { local now; now=$(owner); [ -n "$now" ] && [ "$now" != "$1" ]; }

# programs_begin SEED: that write until programs_end.
programs_begin() {
  mkdir -p "$WORK/notes"
  python3 "$ROOT/tests/tools/durable.py" write "$MNT" "$WORK/notes" "$1" >"$WORK/writers.log" 2>&1 &
  echo $! >"$WORK/writers.pid"
  disown $!
  sleep 1
}

# go_on: a durable write returns; how long it took, in ms.
go_on() {
  local begun
  begun=$(now_ms)
  timeout "$GO_ON_SECS_MAX" python3 -c 'import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b"x"); os.fsync(fd)' "$MNT/go-on" || { say "programs do not go on"; return 1; }
  echo $(($(now_ms) - begun))
}

end_writers() {
  local writers
  writers=$(cat "$WORK/writers.pid")
  kill -9 $(pgrep -P "$writers") "$writers"
}

# programs_end SEED: none of them was told of an error, and all that they noted is there.
programs_end() {
  local writers
  writers=$(cat "$WORK/writers.pid")
  alive "$writers" || { tail -n 20 "$WORK/writers.log"; say "a program had an error"; return 1; }
  cut -d ' ' -f 1 /proc/uptime >"$WORK/notes/$1.killed"
  end_writers
  python3 "$ROOT/tests/tools/durable.py" verify "$MNT" "$WORK/notes"
  rm -rf "${MNT:?}/$1" "$WORK/notes"
}

# rounds NAME COUNT FUNCTION: under load; the waits of programs are noted.
rounds() {
  local round had took=() seed=$RANDOM
  programs_begin "$seed"
  for round in $(seq "$2"); do
    all_are_there
    had=$(owner)
    took+=("$("$3" "$had")") || { end_writers; return 1; }
  done
  say "NOTE $1: a durable write after ${took[*]} ms"
  programs_end "$seed"
}

killed() {
  kill -9 "$(server_pid "$1")"
  go_on
}

# Another server has the cell meanwhile. The one that was stopped ends when it goes on.
stopped() {
  local pid
  pid=$(server_pid "$1")
  stop_process "$pid"
  go_on || { kill -CONT "$pid"; return 1; }
  owned_by_another "$1" || { kill -CONT "$pid"; say "nobody took over"; return 1; }
  kill -CONT "$pid"
  wait_gone "$pid" 10 || { say "the server that was stopped does not end"; return 1; }
}

drained() {
  "$LEE" server drain "$(id_of "$1")" --cell "$CELL" >/dev/null || return 1
  go_on || return 1
  owned_by_another "$1" || return 1
  "$LEE" server undrain "$(id_of "$1")" --cell "$CELL" >/dev/null
}

id_of() {
  "$LEE" server list --cell "$CELL" --json | PID=$(server_pid "$1") python3 -c '
import json, os, sys
print(next(s["id"] for s in json.load(sys.stdin)["servers"] if s["pid"] == int(os.environ["PID"])))'
}

# Nobody can know who is alive meanwhile, so the one that has the cell keeps it.
store_away() {
  local pid
  pid=$(cat "$CEPH/run/client.rgw.a.pid")
  kill -9 "$pid"
  wait_gone "$pid" 20
  sleep 4
  server_start
  go_on || return 1
  [ "$(owner)" = "$1" ] || { say "another server has the cell"; return 1; }
}

servers_killed() { rounds killed "$KILLS" killed; }
servers_stopped() { rounds stopped "$STOPS" stopped; }
servers_drained() { rounds drained "$DRAINS" drained; }
store_restarts() { rounds "the store was away for 4 s" 2 store_away; }

# Of another cell: three servers of the release before are replaced one by one, one comes back as it was, and at last the format is
# raised. Programs write meanwhile, on a mount of the release before.
servers_upgraded() {
  local seed=$RANDOM n
  CELL=s3://bucket/upgraded-$$ PORT=$((PORT + 10)) MNT=$WORK/upgraded/mnt WORK=$WORK/upgraded
  mkdir -p "$MNT" "$WORK/mnt2"
  export LEE_HOST_DIR=$WORK/keys
  for n in 1 2 3 4 5; do # that release refuses a good store one time in twenty: it wrote the same bytes twice to try it
    LEE=$BEFORE one_serves 1 && break
  done
  for n in 2 3; do LEE=$BEFORE one_serves "$n"; done
  LEE=$BEFORE machine_mounts before "$MNT"
  programs_begin "$seed"
  for n in 1 2 3; do replaced "$n" "$LEE"; done
  says_format 18
  machine_mounts this "$WORK/mnt2"
  # back, and that one has the cell
  replaced 1 "$BEFORE"
  for n in 2 3; do "$LEE" server drain "$(id_of "$n")" --cell "$CELL" >/dev/null; done
  wait_for 20 owned_by_another 2 && wait_for 20 owned_by_another 3
  go_on
  echo this >"$WORK/mnt2/from-this"
  [ "$(cat "$MNT/from-this")" = this ]
  for n in 2 3; do "$LEE" server undrain "$(id_of "$n")" --cell "$CELL" >/dev/null; done
  "$LEE" server drain "$(id_of 1)" --cell "$CELL" >/dev/null
  go_on
  ! of_server "$(owner)" "$LEE" upgrade "$CELL" 2>"$WORK/refused" || return 1
  grep "the server $(id_of 1) on .* does not say which formats it knows" "$WORK/refused" >/dev/null || { cat "$WORK/refused"; return 1; }
  replaced 1 "$LEE"
  says_format 18
  of_server "$(owner)" "$LEE" upgrade "$CELL"
  says_format 20
  go_on
  # and so is what the next one finds
  kill -9 "$(server_pid "$(owner)")"
  go_on
  programs_end "$seed"
  says_format 20
  umount "$MNT" "$WORK/mnt2"
  for n in before this; do wait_gone "$(cat "$WORK/mount-$n.pid")" 20; done
  for n in 1 2 3; do
    alive "$(server_pid "$n")" || continue
    of_server "$n" "$LEE" down "$CELL" >/dev/null
    wait_gone "$(server_pid "$n")" 30
  done
  of_server 1 "$LEE" fsck --cell "$CELL"
}

# machine_mounts NAME AT: a machine mounts the cell there, by a server that may stand by.
machine_mounts() {
  local token
  token=$(of_server "$(owner)" "$LEE" host add "$1" --cell "$CELL" --json | sed 's/.*"token": *"\([^"]*\)".*/\1/')
  : >"$WORK/mount-$1.started"
  LEE_STATE_DIR=$WORK/state-$1 LEE_HOST_DIR=$WORK/keys-$1 \
    "$LEE" mount "$(address 2)" "$2" --token "$token" >"$WORK/mount-$1.started" 2>>"$WORK/mount-$1.log" </dev/null &
  echo $! >"$WORK/mount-$1.pid"
  disown $!
  wait_for 20 grep -q '^mounted' "$WORK/mount-$1.started" || { tail -n 5 "$WORK/mount-$1.log"; return 1; }
}

# replaced N LEE: that server ends, with no error to anybody, and this version starts in its place.
replaced() {
  "$LEE" server drain "$(id_of "$1")" --cell "$CELL" >/dev/null
  of_server "$1" "$LEE" down "$CELL" >/dev/null
  wait_gone "$(server_pid "$1")" 30
  LEE=$2 one_serves "$1"
  wait_for 20 owns
  go_on
}

# says_format N: the one that has the cell, and the cell itself.
says_format() {
  local said
  said=$(of_server "$(owner)" "$LEE" status "$CELL" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["format"])')
  [ "$said" = "$1" ] || { say "the server says format $said, not $1"; return 1; }
}

everything_down() {
  local n
  umount "$MNT"
  wait_gone "$(cat "$WORK/mount-machine.pid")" 20 || { echo "the machine's mount does not end:"; threads_of "$(cat "$WORK/mount-machine.pid")"; return 1; }
  for n in $(seq "$SERVERS"); do
    alive "$(server_pid "$n")" || continue # the last one that was killed
    of_server "$n" "$LEE" down "$CELL" >/dev/null || return 1
    wait_gone "$(server_pid "$n")" 30 || return 1
  done
  LEE_STATE_DIR=$WORK/state1 "$LEE" fsck --cell "$CELL"
}

# threads_of PID: what each of its threads does, and the end of its log.
threads_of() {
  local task
  for task in "/proc/$1/task"/*; do echo "$(cat "$task/comm"): $(cat "$task/wchan")"; done
  tail -n 20 "$WORK/mount-machine.log"
}

case_of() {
  [ "${#WANTED[@]}" = 0 ] || [[ " ${WANTED[*]} " == *" $1 "* ]] || return 0
  run "$1" "$1"
}

leave_none() {
  local file
  for file in "$WORK"/writers.pid "$WORK"/mount*.pid "$WORK"/server*.pid "$WORK"/upgraded/*.pid; do
    [ ! -e "$file" ] || kill -9 $(pgrep -P "$(cat "$file")") "$(cat "$file")"
  done
}

if [ -z "$GIVEN" ]; then
  on_exit 'ROOT=$CEPH "$ROOT/bench/ceph-down" --wipe'
  # a machine that cannot have Ceph says nothing about us; the server in crates/bucket stands in for it in crates/lee/tests/servers.rs
  if ! FS=0 ROOT=$CEPH OSDS=1 SIZE=1 OSD_GB=6 OBJECTSTORE=bluestore RGW_PORT=$PORT RGW_THREADS=64 "$ROOT/bench/ceph-up" >"$WORK/ceph-up.log" 2>&1 </dev/null; then
    tail -n 5 "$WORK/ceph-up.log"
    skip all "Ceph does not start here"
    exit 0
  fi
fi
python3 "$ROOT/tests/tools/bucket.py" make bucket
on_exit leave_none
lee_binary
export LEE_HOST_DIR=$WORK/keys
for n in $(seq "$SERVERS"); do one_serves "$n"; done
mkdir "$MNT"
machine_mounts machine "$MNT" || die "the machine did not mount"
for name in servers_killed servers_stopped servers_drained store_restarts; do case_of "$name"; done
! lee_before || case_of servers_upgraded
run everything_down everything_down
suite_end
