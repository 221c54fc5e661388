#!/usr/bin/env bash
# From the release before (tests/before) to this one, back, and on. The same of several servers is in servers.sh.
. "$(dirname "$0")/../lib.sh"
suite upgrade

have_cell || { skip all "needs a cell"; exit 0; }
lee_binary
lee_before || exit 0
PORT=$(free_port)
MNT2=$WORK/mnt2
mkdir "$MNT" "$MNT2"
export LEE_HOST_DIR=$WORK/keys LEE_STATE_DIR=$WORK/state

# serve LEE: serves the cell, without a mount.
serve() {
  : >"$WORK/lee.started"
  "$1" serve "$CELL" --listen "127.0.0.1:$PORT" >"$WORK/lee.started" 2>>"$WORK/lee.log" </dev/null &
  echo $! >"$WORK/cell.pid"
  disown $!
  wait_for "$CELL_START_SECS_MAX" grep -q 'Ctrl-C ends it' "$WORK/lee.started" || { cell_log; return 1; }
}

# serve_next LEE: the server ends in order, and this one begins. Mounts of other machines wait for it.
serve_next() {
  local pid
  pid=$(cell_pid)
  kill -TERM "$pid"
  wait_gone "$pid" 30 || return 1
  serve "$1"
}

# mount_of LEE NAME AT: another machine mounts the cell there.
mount_of() {
  local token
  token=$("$LEE" host add "$2" --cell "$CELL" --json | sed 's/.*"token": *"\([^"]*\)".*/\1/')
  : >"$WORK/$2.started"
  LEE_HOST_DIR=$WORK/keys-$2 LEE_STATE_DIR=$WORK/state-$2 \
    "$1" mount "127.0.0.1:$PORT" "$3" --token "$token" >"$WORK/$2.started" 2>>"$WORK/$2.log" </dev/null &
  echo $! >"$WORK/$2.pid"
  disown $!
  wait_for 20 grep -q '^mounted' "$WORK/$2.started" || { tail -n 20 "$WORK/$2.log"; return 1; }
}

mount_gone() { # of NAME at AT
  umount "$2" && wait_gone "$(cat "$WORK/$1.pid")" 20
}

format() { "$LEE" status "$CELL" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["format"])'; }
noted() { sed -n 's/.*"format": \([0-9]*\).*/\1/p' "$CELL/cell"; }

# verified: when the mirror was compared last, as far as that is known.
verified() {
  "$LEE" mirror status --cell "$CELL" --json | python3 -c 'import json, sys
print(*(m["verified_secs"] for m in json.load(sys.stdin)["mirrors"] if m.get("verified_secs")))'
}

# change NAME LEE: what of all that there can be, as far as the release before has it.
change() {
  mkdir "$MNT/$1" "$MNT/$1/deep"
  seq 20000 >"$MNT/$1/numbers"
  ln "$MNT/$1/numbers" "$MNT/$1/deep/link"
  ln -s numbers "$MNT/$1/symlink"
  setfacl -m u:1234:rwx "$MNT/$1/deep"
  setfattr -n user.who -v "$1" "$MNT/$1/numbers"
  "$2" volume create "volume-$1" --cell "$CELL" >/dev/null
  "$2" quota set "volume-$1" --bytes 1G --cell "$CELL" >/dev/null
  mkdir "$MNT/.snap/$1"
  rm "$MNT/$1/symlink"
}

# all_is_there AT NAME...: what `change` has made, also in the snapshot.
all_is_there() {
  local at=$1 name
  shift
  for name in "$@"; do
    seq 20000 | cmp - "$at/$name/deep/link"
    [ "$(stat -c %h "$at/$name/numbers")" = 2 ]
    [ "$(getfattr --only-values -n user.who "$at/$name/numbers")" = "$name" ]
    getfacl -np "$at/$name/deep" | grep -x user:1234:rwx >/dev/null
    [ "$(readlink "$at/.snap/$name/$name/symlink")" = numbers ]
    [ ! -e "$at/$name/symlink" ] && [ -d "$at/volume-$name" ]
  done
}

# everything_is_shown LEE: what this program shows of the cell, as JSON and as text, whatever serves it.
everything_is_shown() {
  local what how
  while read -r what; do
    for how in --json ''; do
      "$1" $what --cell "$CELL" $how >"$WORK/shown" 2>&1 </dev/null || { say "$what $how: $(head -c 500 "$WORK/shown")"; return 1; }
    done
  done <<'END'
status
df
volume list
volume show volume-first
pool list
pool show default
quota list
quota show volume-first
snap list /
snap usage
project list
group list
acl show /first
bucket list
user list
key list
host list
host show before
session list
flow list
top --once
why root
audit /first
bin list
mirror list
mirror status
backup list
scrub --status
report month
report usage
report transfers
config show
END
}

the_release_before_makes_a_cell() {
  : >"$WORK/there.started" # another cell, for mirrors
  "$BEFORE" serve "$WORK/there" >"$WORK/there.started" 2>>"$WORK/there.log" </dev/null &
  echo $! >"$WORK/there.pid"
  disown $!
  wait_for "$CELL_START_SECS_MAX" grep -q 'Ctrl-C ends it' "$WORK/there.started"
  serve "$BEFORE"
  noted >"$WORK/format"
  mount_of "$BEFORE" before "$MNT"
  change first "$BEFORE"
  all_is_there "$MNT" first
}

# In its format; its mount goes on, what a program has open stays open.
this_one_serves_it() {
  exec 7<"$MNT/first/numbers"
  serve_next "$LEE" 7<&-
  [ "$(format)" = "$(cat "$WORK/format")" ] && [ "$(noted)" = "$(cat "$WORK/format")" ]
  "$LEE" status "$CELL" | grep 'lee upgrade raises it' >/dev/null
  seq 20000 | cmp - <(cat <&7)
  exec 7<&-
  mount_of "$LEE" this "$MNT2"
  change second "$LEE"
  all_is_there "$MNT2" first second
  "$LEE" group create root:lab --cell "$CELL" >/dev/null
  # what only the newer format keeps
  "$LEE" mirror add volume-first --to "$WORK/there" --every 1h --cell "$CELL" >/dev/null
  "$LEE" mirror run volume-first --cell "$CELL" >/dev/null
  "$LEE" mirror verify volume-first --cell "$CELL" >/dev/null
  [ -n "$(verified)" ]
  "$LEE" project create lab --at /lab --owner root:lab --cell "$CELL" >/dev/null
  everything_is_shown "$BEFORE"
  "$LEE" fsck --cell "$CELL" >/dev/null
}

# Both mounts go on, the one of this version at a server of the one before.
the_one_before_serves_it_again() {
  serve_next "$BEFORE"
  all_is_there "$MNT2" first second
  echo more >"$MNT2/second/more"
  [ "$(cat "$MNT/second/more")" = more ]
  change third "$BEFORE"
  everything_is_shown "$LEE"
  [ -z "$(verified)" ]
  all_is_there "$MNT2" first second third
  "$BEFORE" fsck --cell "$CELL" >/dev/null
  # it does not know what is asked, and says so
  ! "$LEE" upgrade "$CELL" 2>"$WORK/refused" || return 1
  say "NOTE $(cut -c 1-100 "$WORK/refused")"
  [ "$(noted)" = "$(cat "$WORK/format")" ]
}

# Nobody goes back from there.
the_format_is_raised() {
  serve_next "$LEE"
  echo whole >"$MNT/third/whole"
  "$LEE" upgrade "$CELL" --json >"$WORK/upgraded"
  python3 - "$WORK/upgraded" "$(cat "$WORK/format")" <<'P'
import json, sys
got = json.load(open(sys.argv[1]))
assert got["raised"] and got["before"] == int(sys.argv[2]) < got["format"], got
P
  [ "$(noted)" = "$(format)" ] && [ "$(format)" -gt "$(cat "$WORK/format")" ]
  "$LEE" upgrade "$CELL" | grep 'already' >/dev/null
  "$LEE" mirror verify volume-first --cell "$CELL" >/dev/null
  serve_next "$LEE"
  [ -n "$(verified)" ]
  [ "$(cat "$MNT2/third/whole")" = whole ]
  all_is_there "$MNT" first second third
  mount_gone before "$MNT"
  mount_gone this "$MNT2"
  "$LEE" down "$CELL" >/dev/null
  wait_gone "$(cell_pid)" 30
  rm "$WORK/cell.pid"
  timeout 20 "$BEFORE" serve "$CELL" --listen "127.0.0.1:$PORT" >"$WORK/refused" 2>&1 </dev/null && return 1
  grep 'use a newer lee' "$WORK/refused" >/dev/null || { cat "$WORK/refused"; return 1; }
  "$LEE" fsck --cell "$CELL"
}

on_exit 'for file in "$WORK"/before.pid "$WORK"/this.pid "$WORK"/there.pid; do [ ! -e "$file" ] || kill -9 "$(cat "$file")"; done'
for name in the_release_before_makes_a_cell this_one_serves_it the_one_before_serves_it_again the_format_is_raised; do
  run "$name" "$name"
done
suite_end
