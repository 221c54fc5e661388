#!/usr/bin/env bash
# Many machines mount one cell. Each is a network namespace of this one, with a wire to that of the server; what they do
# together is in tests/tools/machines. They see each other's changes, work with each other's programs, and go on when one of
# them, the network or the server is stopped, cut off or killed. With names: only those cases.
. "$(dirname "$0")/../lib.sh"
suite machines
MACHINES=4
PORT=7433
NET=10.213.77     # inside the namespaces only: machine N has .N*4+2, the server's end of its wire .N*4+1
TAG=${WORK##*.}
KILLS=${KILLS:-3} # of the server under load
RESTARTS=${RESTARTS:-3}
SEED=${MACHINES_SEED:-$RANDOM}
D_SECS_MAX=25     # how long a program may be in state D while its server is away, and after it was killed
D_KILLED_SECS_MAX=2
export LEE_MACHINES=$WORK # what this suite started is known by it

have_cell || { skip all "needs a cell"; exit 0; }
RANDOM=$SEED
WANTED=("$@")

# Namespaces

netns() { echo "lee-$TAG-$1"; }

# in_net NAME COMMAND...: in that network, and in this mount namespace (`ip netns exec` makes one of its own).
in_net() {
  local of=$1
  shift
  exec nsenter --net="/run/netns/$(netns "$of")" -- "$@"
}

# nets_up: the server's namespace s, and one for each machine, with a wire between them.
nets_up() {
  local n
  ip netns add "$(netns s)"
  ip -n "$(netns s)" link set lo up
  for n in $(seq "$MACHINES"); do
    ip netns add "$(netns "$n")"
    ip -n "$(netns "$n")" link set lo up
    ip -n "$(netns s)" link add "m$n" type veth peer name wire netns "$(netns "$n")"
    ip -n "$(netns s)" addr add "$NET.$((n * 4 + 1))/30" dev "m$n"
    ip -n "$(netns "$n")" addr add "$NET.$((n * 4 + 2))/30" dev wire
    ip -n "$(netns s)" link set "m$n" up
    ip -n "$(netns "$n")" link set wire up
  done
}

nets_down() {
  local n
  for n in s $(seq "$MACHINES"); do ip netns del "$(netns "$n")"; done
}

can_cut() { command -v nft >/dev/null && (in_net 1 nft add table inet probe) && (in_net 1 nft delete table inet probe); }

# The server, and machines

server_start() {
  : >"$WORK/lee.started"
  (in_net s "$LEE" serve "$CELL" --listen "*:$PORT" >"$WORK/lee.started" 2>>"$WORK/lee.log" </dev/null) &
  server_started $!
}

server_started() {
  echo "$1" >"$WORK/cell.pid"
  disown "$1"
  wait_for "$CELL_START_SECS_MAX" grep -q 'Ctrl-C ends it' "$WORK/lee.started" || { cell_log; die "lee serve did not begin"; }
}

# of_machine N COMMAND...: with the keys of that machine.
of_machine() {
  local n=$1
  shift
  LEE_HOST_DIR=$WORK/keys$n LEE_STATE_DIR=$WORK/state$n "$@"
}

address() { echo "$NET.$(($1 * 4 + 1)):$PORT"; }
mnt() { echo "$WORK/m$1"; }
pid_of() { cat "$WORK/m$1.pid"; }

# machine_up N [AT [LEE-MOUNT-OPTION...]]: machine N mounts the cell. The first time it enrols.
machine_up() {
  local n=$1 at=${2:-m$1} token=()
  shift $(($# < 2 ? $# : 2))
  mkdir -p "$WORK/$at"
  [ -e "$WORK/keys$n" ] ||
    token=(--token "$("$LEE" host add "node$n" --cell "$CELL" --json | sed 's/.*"token": *"\([^"]*\)".*/\1/')")
  : >"$WORK/$at.started"
  (of_machine "$n" in_net "$n" "$LEE" mount "$(address "$n")" "$WORK/$at" "${token[@]}" "$@" >"$WORK/$at.started" 2>>"$WORK/$at.log" </dev/null) &
  echo $! >"$WORK/$at.pid"
  disown $!
  wait_for 20 grep -q '^mounted' "$WORK/$at.started" || { tail -n 20 "$WORK/$at.log"; die "machine $n did not mount"; }
}

# machine_down AT: unmounts, and the process of the mount ends by itself.
machine_down() {
  local pid
  pid=$(cat "$WORK/$1.pid")
  wait_for 10 umount "$WORK/$1" || return 1
  wait_gone "$pid" 10 || { say "lee mount at $1 is there 10 s after umount"; return 1; }
  rm "$WORK/$1.pid"
}

# machine_dead N: what is left of a mount whose process was killed.
machine_dead() {
  wait_gone "$(pid_of "$1")" 5
  umount "$(mnt "$1")" || umount -l "$(mnt "$1")"
  rm "$WORK/m$1.pid"
}

all_mounts() { local n; for n in $(seq "$MACHINES"); do mnt "$n"; done; }

machines() { python3 -uB "$ROOT/tests/tools/machines" "$@"; }

# case_of NAME FUNCTION...: one that was asked for; every machine has the cell before it.
case_of() {
  local name=$1
  shift
  [ "${#WANTED[@]}" = 0 ] || [[ " ${WANTED[*]} " == *" $name "* ]] || return 0
  everybody_there
  run "$name" "$@"
}

# everybody_there: what an earlier case, that failed, has left behind is over.
everybody_there() {
  local n
  set +e
  alive "$(cell_pid || echo 0)" || server_start
  for n in $(seq "$MACHINES"); do
    [ "$n" != "${REMOVED:-}" ] || continue
    answers "$n" && continue
    say "machine $n mounts again"
    [ ! -e "$WORK/m$n.pid" ] || kill -9 "$(pid_of "$n")" 2>/dev/null
    umount -l "$(mnt "$n")" 2>/dev/null
    machine_up "$n"
  done
  set -e
}

answers() {
  [ -e "$WORK/m$1.pid" ] && alive "$(pid_of "$1")" || return 1
  [[ $(timeout -k 1 15 stat "$(mnt "$1")/nothing$RANDOM" 2>&1) == *'No such file'* ]]
}

# Together

all_machines() {
  local mounts
  mapfile -t mounts < <(all_mounts)
  machines "$@" "${mounts[@]}"
}

git_quiet() { git -c user.name=test -c user.email=test@test -c commit.gpgsign=false -c gc.auto=0 -c safe.directory='*' "$@"; }

# commits N NAME COUNT: a program on machine N adds to its own clone, and pushes; what others have pushed it takes first.
commits() {
  local clone i try
  clone=$(mnt "$1")/git/$2
  for i in $(seq "$3"); do
    echo "$2 $i" >>"$clone/$2"
    git_quiet -C "$clone" add "$2"
    git_quiet -C "$clone" commit -qm "$2 $i"
    for try in $(seq 30); do
      git_quiet -C "$clone" push -q origin main 2>/dev/null && break
      [ "$try" -lt 30 ] || { say "$2 could not push $i"; return 1; }
      git_quiet -C "$clone" pull -q --rebase origin main 2>/dev/null || git_quiet -C "$clone" rebase --abort 2>/dev/null || true
    done
  done
}

# One tree is worked in by all machines in turn, then each pushes to one repository at the same time.
git_on_all() {
  local n top count jobs=()
  mkdir "$(mnt 1)/git"
  git_quiet init -q -b main "$(mnt 1)/git/tree"
  for n in 1 2 3 4 1 3 2; do
    top=$(mnt "$n")/git/tree
    [ -z "$(git_quiet -C "$top" status --porcelain)" ]
    echo "turn $n" >>"$top/file"
    git_quiet -C "$top" add file
    git_quiet -C "$top" commit -qm "turn of $n"
    [ -z "$(git_quiet -C "$(mnt $((n % MACHINES + 1)))/git/tree" status --porcelain)" ]
  done
  git_quiet clone -q --bare "$(mnt 2)/git/tree" "$(mnt 2)/git/bare"
  for n in $(seq "$MACHINES"); do
    git_quiet clone -q "$(mnt "$n")/git/bare" "$(mnt "$n")/git/clone$n"
  done
  for n in $(seq "$MACHINES"); do
    commits "$n" "clone$n" 3 &
    jobs+=($!)
  done
  for n in "${jobs[@]}"; do wait "$n"; done
  for n in 1 3; do
    git_quiet -C "$(mnt "$n")/git/bare" fsck --strict
    count=$(git_quiet -C "$(mnt "$n")/git/bare" log --oneline main | wc -l)
    [ "$count" = $((7 + 3 * MACHINES)) ] || { say "$count commits are there, says machine $n"; return 1; }
  done
}

# The second machine has nothing to do, a change on a third leads the fourth to do just what it must; two build at the same time.
make_on_all() {
  local dir n built jobs=()
  dir=$(mnt 1)/make
  mkdir "$dir"
  for n in 1 2 3 4 5 6; do printf '#include "h%d.h"\nint f%d(void) { return N; }\n' $((n % 2)) "$n" >"$dir/f$n.c"; done
  for n in 0 1; do echo "#define N $n" >"$dir/h$n.h"; done
  printf 'int main(void) { return 0; }\n' >"$dir/main.c"
  cat >"$dir/Makefile" <<'END'
ODD = f1.o f3.o f5.o
EVEN = f2.o f4.o f6.o
all: program
program: main.c odd.a even.a ; gcc -o $@ $^
odd.a: $(ODD) ; ar rc $@ $^
even.a: $(EVEN) ; ar rc $@ $^
$(ODD): h1.h
$(EVEN): h0.h
%.o: %.c ; gcc -c -o $@ $< && echo built $@
END
  make -s -C "$(mnt 1)/make" >/dev/null
  "$(mnt 2)/make/program"
  built=$(make -C "$(mnt 2)/make")
  [[ $built == *'Nothing to be done'* ]] || { say "the second machine did: $built"; return 1; }
  sleep 0.02 # a file that is newer has a later time
  echo '#define N 7' >"$(mnt 3)/make/h1.h"
  built=$(make -C "$(mnt 4)/make" | grep -c '^built')
  [ "$built" = 3 ] || { say "the fourth machine built $built of 3 files"; return 1; }
  make -s -C "$(mnt 4)/make" -q
  sleep 0.02
  touch "$(mnt 1)/make/h0.h" "$(mnt 2)/make/h1.h"
  make -C "$(mnt 3)/make" odd.a >"$WORK/odd" &
  jobs+=($!)
  make -C "$(mnt 4)/make" even.a >"$WORK/even" &
  jobs+=($!)
  for n in "${jobs[@]}"; do wait "$n"; done
  [ "$(grep -c '^built' "$WORK/odd" "$WORK/even" | tr '\n' ' ')" = "$WORK/odd:3 $WORK/even:3 " ]
  make -s -C "$(mnt 1)/make" >/dev/null
  make -s -C "$(mnt 2)/make" -q
}

# A tree goes in from one machine and comes out at another; then all send trees at the same time.
rsync_on_all() {
  local n again jobs=()
  mkdir "$WORK/tree"
  cp -r "$ROOT"/docs "$ROOT"/crates/fs "$WORK/tree"
  level_directory_times "$WORK/tree"
  rsync -a "$WORK/tree/" "$(mnt 1)/rsync/"
  tree_same "$WORK/tree" "$(mnt 2)/rsync"
  again=$(rsync -ai --checksum "$WORK/tree/" "$(mnt 3)/rsync/")
  [ -z "$again" ] || { say "rsync on another machine did:"; head -n 20 <<<"$again"; return 1; }
  rm -r "$WORK/tree/docs/runbooks"
  echo more >>"$WORK/tree/fs/Cargo.toml"
  level_directory_times "$WORK/tree"
  rsync -a --delete "$WORK/tree/" "$(mnt 4)/rsync/"
  tree_same "$WORK/tree" "$(mnt 1)/rsync"
  mkdir "$(mnt 1)/rsyncs"
  for n in $(seq "$MACHINES"); do
    rsync -a "$WORK/tree/" "$(mnt "$n")/rsyncs/$n/" &
    jobs+=($!)
  done
  for n in "${jobs[@]}"; do wait "$n"; done
  for n in $(seq "$MACHINES"); do tree_same "$WORK/tree" "$(mnt $((n % MACHINES + 1)))/rsyncs/$n"; done
  rm -r "$(mnt 2)/rsyncs" "$(mnt 3)/rsync" "$WORK/tree"
}

# Silent machines

stopped() {
  machines silent "$(mnt 1)" "$(mnt 3)" "stop:1:$(mnt 2):$(pid_of 2)"
  machines silent "$(mnt 1)" "$(mnt 3)" "stop:4:$(mnt 2):$(pid_of 2)"
  machines silent "$(mnt 1)" "$(mnt 4)" "stop:8:$(mnt 2):$(pid_of 2)" "stop:12:$(mnt 3):$(pid_of 3)"
}

# stuck: and then it mounts again, as the server gives no leases for a minute to who has kept what was asked for.
stuck() {
  machines silent "$(mnt 1)" "$(mnt 3)" "stuck:12:$(mnt 4):$(pid_of 4)"
  machine_down m4
  machine_up 4
}

# cut_off SECS: one machine in both directions, one in each, at the same time.
cut_off() {
  machines silent "$(mnt 1)" "$(mnt 1)" "both:$1:$(mnt 2):$(netns 2)" "in:$1:$(mnt 3):$(netns 3)" "out:$1:$(mnt 4):$(netns 4)"
}

# held: it has files open whose pages it keeps.
held() { machines held "$(mnt 1)" "$(mnt 3)" "$(netns 3)"; }

# mount_killed: whoever wants its locks gets them after 6 s.
mount_killed() {
  local locked begun
  machines killed "$(mnt 1)" "$(mnt 2)" "$(mnt 4)" "$(pid_of 4)"
  locked=$(echo "$(mnt 1)"/kill.m4.*/locked)
  if flock -n "$locked" true; then say "a machine that was killed has lost a lock that nobody wanted"; return 1; fi
  begun=$(now_ms)
  timeout 9 flock "$locked" true || { say "a lock of a machine that was killed is not free after 9 s"; return 1; }
  say "NOTE its lock was free after $(($(now_ms) - begun)) ms"
  machine_dead 4
  machine_up 4
  echo back >"$(mnt 4)/back"
  [ "$(cat "$(mnt 1)/back")" = back ]
}

# The server under load

# longest_write: the longest time that a durable write took on machine 1 until it is ended.
longest_write() {
  exec python3 -c '
import os, signal, sys, time
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
fd, longest = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o644), 0
while not ended:
    begun = time.monotonic()
    os.pwrite(fd, b"x", 0)
    os.fsync(fd)
    longest = max(longest, time.monotonic() - begun)
    time.sleep(0.01)
print(round(longest * 1000), "ms")' "$(mnt 1)/longest"
}

# at_work FUNCTION...: programs on all machines at work while it runs; then everything they were told is checked.
at_work() {
  local work longest status=0
  rm -rf "$WORK/notes"
  mkdir "$WORK/notes"
  all_machines work "$WORK/notes" &
  work=$!
  wait_for 20 test -e "$WORK/notes/begun"
  longest_write >"$WORK/longest" &
  longest=$!
  wait_for 10 test -s "$(mnt 1)/longest"
  "$@"
  sleep 1
  kill "$longest"
  wait "$longest" || { say "a durable write had an error"; return 1; }
  say "NOTE programs waited for $(cat "$WORK/longest") at most"
  alive "$work" || { wait "$work"; return 1; }
  touch "$WORK/notes/end"
  wait "$work" || status=$?
  rm -rf "$(mnt 1)/work"
  return "$status"
}

kills() {
  local kill
  for kill in $(seq "$KILLS"); do
    sleep "$((RANDOM % 2 + 1)).$((RANDOM % 10))"
    cell_kill9
    sleep "0.$((RANDOM % 9))"
    server_start
  done
}

server_killed() { at_work kills; }

# An upgrade: it ends in order, and another one begins. Programs keep what they have open.
restarts() {
  local restart
  for restart in $(seq "$RESTARTS"); do
    sleep "0.$((RANDOM % 9))"
    "$LEE" down "$CELL" >/dev/null
    wait_gone "$(cell_pid)" 30 || { say "the server is still there 30 s after lee down"; return 1; }
    server_start
  done
}

server_restarted() { at_work restarts; }

pause_server() {
  stop_process "$(cell_pid)"
  sleep 10
  kill -CONT "$(cell_pid)"
}

server_stopped() { at_work pause_server; }

# A machine is stopped, the server killed, and the machine back when it is too late.
too_late() {
  local lost
  rm -rf "$WORK/notes"
  mkdir "$WORK/notes"
  machines lost "$WORK/notes" "$(mnt 4)" "$(mnt 1)" &
  lost=$!
  wait_for 20 test -e "$WORK/notes/written"
  stop_process "$(pid_of 4)"
  cell_kill9
  server_start
  touch "$WORK/notes/served"
  wait_for 20 test -e "$WORK/notes/seen" || true
  sleep 1
  kill -CONT "$(pid_of 4)"
  touch "$WORK/notes/back"
  wait "$lost"
}

# Without a server

# away: programs that wait can be killed, requests of a mount with a time limit fail, another is unmounted.
away() {
  local waiting pid begun status
  rm -rf "$WORK/notes"
  mkdir "$WORK/notes"
  machine_up 3 limited --timeout 2s
  machines waiting "$WORK/notes" "$(mnt 2)" >"$WORK/waiting" 2>&1 &
  waiting=$!
  wait_for 20 test -e "$WORK/notes/ready"
  cell_kill9
  touch "$WORK/notes/away"
  begun=$(now_ms)
  status=$(timeout 10 stat "$WORK/limited/nothing" 2>&1 || true)
  [[ $status == *'Input/output error'* ]] || { say "with --timeout: $status"; return 1; }
  begun=$(($(now_ms) - begun))
  [ "$begun" -ge 1000 ] && [ "$begun" -lt 6000 ] || { say "with --timeout 2s it took $begun ms"; return 1; }
  say "NOTE --timeout 2s: EIO after $begun ms"
  pid=$(pid_of 4)
  begun=$(now_ms)
  timeout 10 umount "$(mnt 4)"
  wait_gone "$pid" 5 || { say "lee mount is there 5 s after umount, without a server"; return 1; }
  rm "$WORK/m4.pid"
  say "NOTE unmounted without the server within $(($(now_ms) - begun)) ms"
  wait "$waiting" || { cat "$WORK/waiting"; return 1; }
  cat "$WORK/waiting"
  server_start
  machine_up 4
  [ -d "$(mnt 4)/waiting.read" ]
  wait_for 10 test -d "$WORK/limited/waiting.read"
  echo again >"$WORK/limited/again"
  [ "$(cat "$(mnt 2)/again")" = again ]
  machine_down limited
}

# A host that is removed while it has the cell mounted: it is out within a second, and the others go on.
host_removed() {
  local begun answer
  echo secret >"$(mnt 1)/secret"
  [ "$(cat "$(mnt 4)/secret")" = secret ]
  exec 7<"$(mnt 4)/secret"
  lee host remove node4
  begun=$(now_ms)
  sleep 0.9
  answer=$(timeout 5 cat "$(mnt 4)/secret" 2>&1 || true)
  [[ $answer != *secret && -n $answer ]] || { say "a machine that was removed reads: $answer"; return 1; }
  answer=$(timeout 5 cat <&7 2>&1 || true)
  [[ $answer != *secret ]] || { say "a machine that was removed reads what it had open: $answer"; return 1; }
  if timeout 5 touch "$(mnt 4)/written" 2>"$WORK/answer"; then say "a machine that was removed writes"; return 1; fi
  begun=$(($(now_ms) - begun))
  [ "$begun" -lt 3000 ] || { say "operations of a machine that was removed take $begun ms"; return 1; }
  exec 7<&-
  begun=$(now_ms)
  echo changed >"$(mnt 1)/secret"
  begun=$(($(now_ms) - begun))
  [ "$begun" -le 6800 ] || { say "a change has waited $begun ms for a machine that was removed"; return 1; }
  say "NOTE $(cat "$WORK/answer"); a change of what it knew waited $begun ms"
  if [[ $(lee session list) == *node4* ]]; then say "its session is there"; return 1; fi
  machine_down m4
}

# At the end

watch_start() {
  machines watch "$WORK" "$WORK/watch" "$D_SECS_MAX" "$D_KILLED_SECS_MAX" >"$WORK/watch.out" 2>&1 </dev/null &
  echo $! >"$WORK/watch.pid"
  disown $!
}

# The watchdog finds a process that is in state D.
watchdog_sees() {
  machines watch "$WORK" "$WORK/watch.test" 1 1 >/dev/null 2>&1 &
  local watch=$!
  disown "$watch"
  machines hang 2.5
  kill "$watch"
  grep -q 'FOUND .* is in state D' "$WORK/watch.test"
}

# Nothing was in state D for long, and nothing is now; no process of ours has panicked.
nothing_stuck() {
  local now
  now=$(date +%s)
  [ $((now - $(cut -d " " -f 1 "$WORK/watch.alive"))) -lt 5 ] || { say "the watchdog has ended"; cat "$WORK/watch.out"; return 1; }
  if grep FOUND "$WORK/watch"; then return 1; fi
  sed 's/^[0-9]*/NOTE/' "$WORK/watch.alive"
  if grep -n panicked "$WORK"/m*.log "$WORK"/limited.log; then return 1; fi
}

unmounted() { local n; for n in 1 2 3; do machine_down "m$n"; done; }

machines_end() {
  machines sweep "$WORK"
  local at
  for at in "$WORK"/m? "$WORK/limited"; do umount -l "$at"; done
}

[ "$(id -u)" = 0 ] || { skip all "needs root: it makes network namespaces"; exit 0; }
command -v ip >/dev/null || { skip all "needs ip (apt install iproute2)"; exit 0; }
on_exit nets_down
on_exit machines_end
(nets_up) >"$WORK/nets.log" 2>&1 || { skip all "no network namespaces here: $(tail -n 1 "$WORK/nets.log")"; exit 0; }
lee_binary
[ "${#WANTED[@]}" != 0 ] || run watchdog watchdog_sees
watch_start
server_start
for n in $(seq "$MACHINES"); do machine_up "$n"; done

case_of seen all_machines seen
case_of git git_on_all
case_of make make_on_all
case_of rsync rsync_on_all
case_of sqlite all_machines sqlite
case_of append all_machines append
case_of exclusive all_machines exclusive
case_of locks all_machines locks
case_of turns all_machines turns "$SEED" 450
case_of stopped stopped
case_of stuck stuck
case_of mount_killed mount_killed
if can_cut >"$WORK/nft.log" 2>&1; then
  case_of cut_3s cut_off 3
  case_of cut_15s cut_off 15
  case_of held held
else
  skip cut "nft cannot drop packets here (apt install nftables): $(tail -n 1 "$WORK/nft.log")"
fi
case_of server_killed server_killed
case_of server_restarted server_restarted
case_of server_stopped server_stopped
case_of too_late too_late
case_of away away
case_of host_removed host_removed
REMOVED=4
run nothing_stuck nothing_stuck
run unmounted unmounted
suite_end
