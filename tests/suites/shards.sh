#!/usr/bin/env bash
# A cell of several shards through real mounts: commands, borders, crashes, another machine.
. "$(dirname "$0")/../lib.sh"
suite shards
[ "$(id -u)" = 0 ] || { skip all "needs root"; exit 0; }
have_cell || { skip all "needs a cell"; exit 0; }
lee_binary

field() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }
volumes_by_shard() { lee shard list --json | python3 -c 'import json, sys; print(*[s["volumes"] for s in json.load(sys.stdin)["shards"]])'; }

adds_shards() {
  cell_start
  lee volume create old --owner root
  local refused
  refused=$(lee shard add 99 2>&1) && return 1
  [[ $refused == *'32 are the most'* ]]
  lee quota set --user root --everywhere --bytes 1T
  refused=$(lee shard add 2>&1) && return 1
  [[ $refused == *'limits everywhere'* ]]
  lee quota set --user root --everywhere --bytes none
  lee shard add | grep '2 shards as soon as'
  cell_stop
  lee shard add | grep '3 shards as soon as' # also while nothing serves it
  cell_start --listen "$(served_at)"
  [ "$(volumes_by_shard)" = '2 0 0' ]
  lee volume create one --owner root | grep /one
  lee volume create two --owner root
  [ "$(volumes_by_shard)" = '2 1 1' ]
  [ "$(lee volume show two --json | field '["shard"]')" = 2 ]
  refused=$(lee volume create none --shard 3 2>&1) && return 1
  [[ $refused == *'shards 0 to 2'* ]]
}

borders() {
  cd "$MNT"
  [ "$(echo *)" = 'old one two' ]
  mkdir one/d two/d
  seq 100000 >one/d/f
  [ "$(stat -c %i one/..)" = "$(stat -c %i .)" ]
  # names do not cross, and what programs do then does
  if ln one/d/f two/l 2>/dev/null; then return 1; fi
  if rmdir one 2>/dev/null || mv one uno 2>/dev/null; then return 1; fi
  mv one/d/f two/d/f
  [ ! -e one/d/f ]
  cp -a --reflink=auto two/d one/copy
  seq 100000 | cmp - one/copy/f
  seq 100000 | cmp - two/d/f
  python3 - one/copy/f old/g <<'PYTHON'
import os, sys
source, target = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
left = os.fstat(source).st_size
while left:
    left -= os.copy_file_range(source, target, left)
PYTHON
  cmp one/copy/f old/g
  [ "$(find . -type f | wc -l)" = 3 ]
  tar cf - one two | tar xf - -C old
  diff -r one old/one
  cd /
}

requests_find_their_shard() {
  local volume
  for volume in old one two; do
    lee snap create "/$volume" first
    lee quota set "/$volume" --bytes 1G
    echo later >"$MNT/$volume/later"
    [ ! -e "$MNT/$volume/.snap/first/later" ]
    lee snap diff "/$volume" first | grep later
  done
  [ "$(lee snap list --json | field '["snapshots"].__len__()')" = 3 ]
  [ "$(lee quota list --json | field '["quotas"].__len__()')" = 3 ]
  lee snap restore /two first later 2>/dev/null && return 1
  lee volume rename two deux
  lee volume rename deux two
  [ "$(lee df --json | field '["segments"]')" -gt 0 ]
  lee du "$MNT/one" | grep .
  lee audit "$MNT/two" | grep later
}

crashes() {
  local volume
  for volume in old one two; do
    seq 300000 >"$MNT/$volume/synced"
    sync "$MNT/$volume/synced"
  done
  cell_kill9
  cell_start --listen "$(served_at)"
  for volume in old one two; do seq 300000 | cmp - "$MNT/$volume/synced"; done
  cell_fsck
}

# Another machine sees one server, and what it was told is done once.
another_machine() {
  local far=$WORK/far token volume
  export LEE_HOST_DIR=$WORK/host
  token=$(lee host add far --json | field '["token"]')
  mkdir "$far"
  "$LEE" mount "$(served_at)" "$far" --token "$token" >"$WORK/far.log" 2>&1 </dev/null &
  echo $! >"$WORK/far.pid"
  disown
  wait_for 20 mountpoint -q "$far"
  for volume in old one two; do
    seq 100000 | cmp - "$far/one/copy/f"
    mkdir "$far/$volume/far"
    for n in $(seq 50); do echo "$n" >"$far/$volume/far/$n"; done
    [ "$(find "$MNT/$volume/far" -type f | wc -l)" = 50 ]
    echo here >"$MNT/$volume/here"
    [ "$(cat "$far/$volume/here")" = here ]
    flock "$far/$volume/here" sh -c "! flock -n '$MNT/$volume/here' true"
  done
  for volume in old one two; do for n in $(seq 50); do mv "$far/$volume/far/$n" "$far/$volume/far/m$n"; done; done
  cell_kill9
  cell_start --listen "$(served_at)"
  for volume in old one two; do
    for n in $(seq 50); do [ "$(cat "$far/$volume/far/m$n")" = "$n" ]; done
    [ "$(find "$far/$volume/far" -type f | wc -l)" = 50 ]
  done
  umount "$far"
  cell_fsck
}
on_exit 'kill -9 $(cat "$WORK/far.pid")'

volumes_go() {
  lee volume remove one
  [ ! -e "$MNT/one" ]
  lee volume create one --shard 2 --owner root
  [ -z "$(ls -A "$MNT/one")" ]
  cell_restart --listen "$(served_at)"
  [ -z "$(ls -A "$MNT/one")" ]
  [ "$(volumes_by_shard)" = '2 0 2' ]
  cell_fsck
}

run adds adds_shards
run borders borders
run requests requests_find_their_shard
run crashes crashes
run machine another_machine
run volumes volumes_go
cell_stop
suite_end
