#!/usr/bin/env bash
# Projects: a group gets a budget and a place, and helps itself there: without root, on the server or another machine, and
# nowhere else.
. "$(dirname "$0")/../lib.sh"
suite projects
[ "$(id -u)" = 0 ] || die "needs root: it becomes other users"
have_cell || { skip all "needs a cell"; exit 0; }
PORT=$((22000 + $$ % 2000 * 2)) # below what the kernel gives to clients
S3_PORT=$((PORT + 1))
ALICE=lee-alice BEA=lee-bea EVE=lee-eve

# as NAME COMMAND...: that user, just logged in, in the mount.
as() { (cd "$MNT" && exec setpriv --reuid "$1" --regid "$1" --init-groups --inh-caps=-all --bounding-set=-all -- "${@:2}"); }

refused() {
  if "$@" >"$WORK/refused" 2>&1; then say "was allowed: $*"; return 1; fi
  grep -qE "${WORDS:-Permission denied|Operation not permitted|only operators may|[Ff]or operators|for an operator to set|an operator says|look after no|that you look after|is changed by|only between projects|users make tokens for a week|only root|may take and remove}" "$WORK/refused" ||
    { cat "$WORK/refused"; return 1; }
}
json() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

prepare() {
  local name
  for name in "$ALICE" "$BEA" "$EVE"; do user_account "$name"; done
  install -m 755 "$LEE" "$WORK/lee"
  LEE=$WORK/lee
}

an_operator_gives_a_project() {
  as "$ALICE" "$LEE" group create "$ALICE:atlas"
  as "$ALICE" "$LEE" group add "$ALICE:atlas" "$ALICE"
  mkdir -p "$MNT/projects" "$MNT/elsewhere"
  lee project create atlas --at /projects/atlas --owner "$ALICE:atlas" --bytes 8M --files 100 --volumes 3 >"$WORK/said"
  grep -F '8 MiB, 100 files, 3 volumes' "$WORK/said"
  [ "$(stat -c '%u %a' "$MNT/projects/atlas")" = '0 2775' ]
  lee volume create old --at /old
  [ "$(as "$ALICE" "$LEE" project list --json | json '["projects"][0]["name"]')" = atlas ]
  [ "$(as "$EVE" "$LEE" project list --json | json '["projects"]')" = '[]' ]
  WORDS='look after no project atlas' refused as "$EVE" "$LEE" project show atlas
}

its_group_makes_volumes() {
  as "$ALICE" "$LEE" volume create atlas.raw --at ./projects/atlas/raw
  [ "$(stat -c %U "$MNT/projects/atlas/raw")" = "$ALICE" ]
  as "$ALICE" "$LEE" volume create atlas.beas --at ./projects/atlas/beas --owner "$BEA"
  as "$BEA" touch "$MNT/projects/atlas/beas/hers"
  as "$ALICE" "$LEE" volume rename atlas.beas atlas.bea
  WORDS='names are atlas.NAME' refused as "$ALICE" "$LEE" volume create home.eve --at ./projects/atlas/eve
  WORDS='names are atlas.NAME' refused as "$ALICE" "$LEE" volume rename atlas.raw root2
  WORDS='no project that you look after' refused as "$ALICE" "$LEE" volume create atlas.x --at ./elsewhere/x
  WORDS='no project that you look after' refused as "$EVE" "$LEE" volume create atlas.x --at ./projects/atlas/x
  WORDS='an operator chooses the pool' refused as "$ALICE" "$LEE" volume create atlas.x --at ./projects/atlas/x --pool default
  WORDS='volumes of root are for operators' refused as "$ALICE" "$LEE" volume create atlas.x --at ./projects/atlas/x --owner root
  as "$ALICE" "$LEE" volume create atlas.x --at ./projects/atlas/x
  WORDS='has 3 volumes, and may have 3' refused as "$ALICE" "$LEE" volume create atlas.y --at ./projects/atlas/y
  as "$ALICE" "$LEE" volume remove atlas.x
  [ "$(as "$ALICE" "$LEE" volume list --json | json '["volumes"].__len__()')" = 2 ]
  [ "$(as "$BEA" "$LEE" volume list --json | json '["volumes"][0]["name"]')" = atlas.bea ]
  [ "$(as "$EVE" "$LEE" volume list --json | json '["volumes"]')" = '[]' ]
}

the_budget_is_exact() {
  local raw=$MNT/projects/atlas/raw bea=$MNT/projects/atlas/beas
  as "$ALICE" dd if=/dev/urandom of="$raw/file" bs=1M count=5 status=none
  WORDS='Disk quota exceeded|No space' refused as "$BEA" dd if=/dev/urandom of="$bea/file" bs=1M count=5 conv=fsync status=none
  sync -f "$MNT"
  [ "$(as "$ALICE" "$LEE" project show atlas --json | json '["used_bytes"]')" -le $((8 << 20)) ]
  [ "$(as "$ALICE" "$LEE" project show atlas --json | json '["used_bytes"]')" -gt $((6 << 20)) ]
  as "$BEA" df --output=avail -k "$bea" | tail -1 | { read -r kib; [ "$kib" -lt 2048 ]; }
  rm "$raw/file"
  as "$BEA" dd if=/dev/urandom of="$bea/file" bs=1M count=5 conv=fsync status=none
  WORDS='changed by an operator' refused as "$ALICE" "$LEE" project set atlas --bytes 1T
  lee project set atlas --bytes 20M
  as "$ALICE" dd if=/dev/urandom of="$raw/file" bs=1M count=8 conv=fsync status=none
}

what_it_does_with_its_volumes() {
  local raw=./projects/atlas/raw bea=./projects/atlas/beas kept
  as "$ALICE" "$LEE" quota set atlas.raw --bytes 9M
  as "$ALICE" "$LEE" quota set atlas.bea --user "$BEA" --files 50
  [ "$(as "$ALICE" "$LEE" quota usage atlas.bea --user "$BEA" --json | json '["owners"][0]["files_limit"]' 2>/dev/null || echo 50)" = 50 ]
  as "$ALICE" "$LEE" volume set atlas.bea bin-days=3 snapshots-max=100
  as "$ALICE" "$LEE" volume allow atlas.bea snapshot "$BEA"
  as "$ALICE" "$LEE" snap schedule "$bea" 1h --keep 3h
  as "$ALICE" "$LEE" snap schedule list --json | grep -F '/projects/atlas/beas' >/dev/null
  as "$ALICE" "$LEE" snap schedule remove "$bea"
  # bea's directory, which alice may not even look into
  as "$BEA" install -d -m 700 "$MNT/projects/atlas/beas/secret"
  as "$BEA" sh -c "echo first >'$MNT/projects/atlas/beas/secret/text'"
  as "$ALICE" "$LEE" snap create "$bea" before
  as "$BEA" sh -c "echo second >'$MNT/projects/atlas/beas/secret/text'"
  refused as "$ALICE" cat "$MNT/projects/atlas/beas/secret/text"
  as "$ALICE" "$LEE" snap restore "$bea" before secret/text --in-place
  [ "$(as "$BEA" cat "$MNT/projects/atlas/beas/secret/text")" = first ]
  as "$BEA" rm "$MNT/projects/atlas/beas/secret/text"
  as "$ALICE" "$LEE" bin list "$bea" --json | grep -F secret/text >/dev/null
  as "$ALICE" "$LEE" bin restore "$bea/secret/text"
  [ "$(as "$BEA" cat "$MNT/projects/atlas/beas/secret/text")" = first ]
  as "$ALICE" "$LEE" audit "$bea" --json | grep -F '"text"' >/dev/null || as "$ALICE" "$LEE" audit "$bea" | grep -F secret >/dev/null
  as "$ALICE" "$LEE" report census "$bea" >/dev/null
  as "$ALICE" "$LEE" bucket create atlas.june --path /projects/atlas/raw
  WORDS='are called atlas.NAME' refused as "$ALICE" "$LEE" bucket create other --path /projects/atlas/raw
  WORDS='what anybody may read' refused as "$ALICE" "$LEE" bucket create atlas.open --path /projects/atlas/raw --public
  kept=$(as "$ALICE" "$LEE" bucket list --json | json '["buckets"].__len__()')
  [ "$kept" = 3 ] # with those of its volumes, which S3 knows by their names
  as "$ALICE" "$LEE" bucket remove atlas.june
}

and_nothing_else() {
  local who command
  while read -r who command; do
    # shellcheck disable=SC2086 # words
    refused as "$who" "$LEE" $command || { say "$who: $command"; return 1; }
  done <<END
$ALICE quota set /elsewhere --bytes 1M
$ALICE quota set root --bytes 1M
$ALICE quota set old --user $EVE --bytes 1M
$ALICE quota set --everywhere --user $EVE --bytes 1M
$ALICE volume remove old
$ALICE volume remove root
$ALICE volume rename old atlas.old
$ALICE volume show old
$ALICE volume set old bin-days=1
$ALICE volume set atlas.raw public=yes
$ALICE volume set atlas.raw snapshots-max=1000000
$ALICE volume allow old snapshot $ALICE
$ALICE volume move-data atlas.raw --to default
$ALICE volume promote atlas.raw
$ALICE volume demote atlas.raw
$ALICE snap schedule ./elsewhere 1h --keep 3h
$ALICE snap schedule remove ./old
$ALICE snap create ./old mine
$ALICE snap usage old
$ALICE bucket create atlas.old --path /old
$ALICE report census ./old
$ALICE audit ./old
$ALICE bin empty old
$ALICE flow weight $ALICE 1000
$ALICE key list $BEA
$ALICE key create $BEA
$ALICE key revoke $BEA --all
$ALICE user create robot --uid 70001
$ALICE user disable $BEA
$ALICE token create $BEA --read
$ALICE token create $ALICE --read --for 8d
$ALICE pool list
$ALICE fsck
$ALICE project set atlas --owner $ALICE:atlas
$ALICE project add atlas old
$ALICE project drop atlas.raw
$ALICE project remove atlas
$ALICE project create mine --at ./elsewhere --owner $ALICE:atlas
$EVE volume remove atlas.raw
$EVE volume show atlas.raw
$EVE volume set atlas.raw bin-days=0
$EVE quota set /projects/atlas/raw --bytes 1M
$EVE quota set atlas.raw --bytes 1M
$EVE snap create ./projects/atlas/raw eves
$EVE snap schedule ./projects/atlas/raw 1h --keep 3h
$EVE bucket create atlas.eve --path /projects/atlas/raw
$EVE project remove atlas
$EVE project add atlas atlas.raw
$BEA volume remove atlas.bea
$BEA quota set atlas.bea --bytes 1T
$BEA volume set atlas.bea bin-days=0
END
  # restores stay within the project, and bring no files of root
  as "$ALICE" "$LEE" snap create ./projects/atlas/raw out
  refused as "$ALICE" "$LEE" snap restore ./projects/atlas/raw out . --to ./elsewhere/copy
  # who is not in the group any more looks after nothing
  lee group drop "$ALICE:atlas" "$ALICE"
  refused as "$ALICE" "$LEE" quota set atlas.raw --bytes 1M
  WORDS='no project that you look after' refused as "$ALICE" "$LEE" volume create atlas.z --at ./projects/atlas/z
  lee group add "$ALICE:atlas" "$ALICE"
  as "$ALICE" "$LEE" quota set atlas.raw --bytes 9M
}

keys_of_ones_own() {
  local id token made_on
  id=$(as "$ALICE" "$LEE" key create --label laptop --json | json '["access_key_id"]')
  [ "$(as "$ALICE" "$LEE" key list --json | json '["keys"][0]["label"]')" = laptop ]
  [ "$(as "$BEA" "$LEE" key list --json | json '["keys"]')" = '[]' ]
  refused as "$BEA" "$LEE" key revoke "$ALICE" "$id"
  made_on=$(as "$ALICE" "$LEE" key list --json | json '["keys"][0].get("host")')
  if [ "$CHANNEL" = remote ]; then
    # where a key was made is known when that machine goes
    [ "$made_on" = machine ]
    WORDS='1 S3 keys of 1 users were made on machine' refused lee host remove machine
    # a machine that may not use all of the cell makes none
    lee host set machine --read-only >/dev/null
    WORDS='may not use all of the cell' refused as "$ALICE" "$LEE" key create
    WORDS='may not use all of the cell' refused as "$ALICE" "$LEE" token create --read
    lee host set machine --read-write >/dev/null
  else
    [ "$made_on" = None ]
  fi
  as "$ALICE" "$LEE" key revoke "$ALICE" "$id"
  token=$(as "$ALICE" "$LEE" token create --path "$MNT/projects/atlas/raw" --read --for 10m)
  [ "${#token}" -gt 100 ]
  as "$ALICE" "$LEE" token revoke "$ALICE"
}

projects_nest() {
  as "$BEA" "$LEE" group create "$BEA:muon"
  as "$BEA" "$LEE" group add "$BEA:muon" "$BEA"
  as "$ALICE" "$LEE" volume create atlas.sub --at ./projects/atlas/sub
  as "$ALICE" "$LEE" project create atlas.muon --at ./projects/atlas/sub/muon --owner "$BEA:muon" --bytes 2M
  lee project set atlas --volumes 5
  as "$BEA" "$LEE" volume create atlas.muon.one --at ./projects/atlas/sub/muon/one
  WORDS='Disk quota exceeded|No space' refused as "$BEA" dd if=/dev/urandom of="$MNT/projects/atlas/sub/muon/one/file" bs=1M count=4 conv=fsync status=none
  WORDS='no project that you look after' refused as "$BEA" "$LEE" volume create atlas.two --at ./projects/atlas/two
  WORDS='changed by those who look after atlas' refused as "$BEA" "$LEE" project set atlas.muon --bytes 1T
  as "$ALICE" "$LEE" project set atlas.muon --bytes 3M
  as "$ALICE" "$LEE" volume show atlas.muon.one --json | grep -F '"project":"atlas.muon"' >/dev/null
  WORDS='is in project atlas.muon' refused as "$ALICE" "$LEE" project remove atlas.muon
  as "$ALICE" "$LEE" volume remove atlas.muon.one
  as "$ALICE" "$LEE" project remove atlas.muon
}

projects_last() {
  local before after
  lee sync >/dev/null
  before=$(lee project show atlas --json | json '["used_bytes"]')
  if [ "$CHANNEL" = '' ]; then
    kill -9 "$(cell_pid)"
    wait_gone "$(cell_pid)" 10
    umount -l "$MNT" || true
    cell_start --s3 "$S3_PORT"
  fi
  after=$(lee project show atlas --json | json '["used_bytes"]')
  [ "$before" = "$after" ] || { say "used $before before, $after after"; return 1; }
  lee audit --json | grep -F project-create >/dev/null
  as "$ALICE" "$LEE" report usage --by volume >/dev/null || true # nothing is sampled yet
}

lee_binary
prepare
if [ "$CHANNEL" = remote ]; then cell_start; else cell_start --s3 "$S3_PORT"; fi
run given an_operator_gives_a_project
run volumes its_group_makes_volumes
run budget the_budget_is_exact
run owners what_it_does_with_its_volumes
run others and_nothing_else
run keys keys_of_ones_own
run nested projects_nest
run last projects_last
suite_end
