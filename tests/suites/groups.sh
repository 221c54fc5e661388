#!/usr/bin/env bash
# Groups that users own: made without root, known to the machine by their names, and counting in the mount, at the doors and
# on other machines.
. "$(dirname "$0")/../lib.sh"
suite groups
[ "$(id -u)" = 0 ] || die "needs root: it becomes other users"
have_cell || { skip all "needs a cell"; exit 0; }
PORT=$((20000 + $$ % 2000 * 2)) # below what the kernel gives to clients
S3_PORT=$((PORT + 1))
URL=http://127.0.0.1:$PORT
SERVICES=$NAME_SERVICES
ALICE=lee-alice BEA=lee-bea EVE=lee-eve

# as NAME COMMAND...: that user, just logged in, in the mount.
as() { (cd "$MNT" && exec setpriv --reuid "$1" --regid "$1" --init-groups --inh-caps=-all --bounding-set=-all -- "${@:2}"); }

refused() {
  if "$@" >"$WORK/refused" 2>&1; then say "was allowed: $*"; return 1; fi
  grep -qE "${WORDS:-Permission denied|Operation not permitted}" "$WORK/refused" || { cat "$WORK/refused"; return 1; }
}

prepare() {
  local name
  for name in "$ALICE" "$BEA" "$EVE"; do user_account "$name"; done
  install -m 755 "$LEE" "$WORK/lee"
  LEE=$WORK/lee
  [ -d "$SERVICES" ] || { mkdir -p "$SERVICES" && on_exit 'rmdir "$SERVICES"'; } # other suites may have cells there
}

users_help_themselves() {
  as "$ALICE" "$LEE" group create "$ALICE:lab"
  as "$ALICE" "$LEE" group add "$ALICE:lab" "$BEA"
  WORDS="your groups are called $EVE:NAME" refused as "$EVE" "$LEE" group create "$ALICE:other"
  WORDS="belongs to $ALICE" refused as "$EVE" "$LEE" group add "$ALICE:lab" "$EVE"
  WORDS="belongs to $ALICE" refused as "$EVE" "$LEE" group remove "$ALICE:lab"
  WORDS='has a user nobody-there' refused as "$ALICE" "$LEE" group add "$ALICE:lab" nobody-there
  WORDS='has no colon' refused as "$ALICE" "$LEE" group create lab
  WORDS='has other than letters' refused as "$ALICE" "$LEE" group create "$ALICE:a b"
  [ "$CHANNEL" = remote ] || as "$EVE" "$LEE" status | grep -F "mounted at  $MNT" >/dev/null
  WORDS='for operators' refused as "$ALICE" "$LEE" group limit "$ALICE" 100
  WORDS='for operators' refused as "$ALICE" "$LEE" group range 5000-6000
  WORDS='for operators' refused as "$ALICE" "$LEE" pool list
  [ "$(as "$BEA" "$LEE" group list --json | json '["groups"][0]["name"]')" = "$ALICE:lab" ]
  [ -z "$(as "$EVE" "$LEE" group list --json | json '["groups"]' | tr -d '[]')" ]
  lee audit --json >"$WORK/asked"
  [ "$(added_by "$ALICE")" = 1 ]
  [ "$(added_by "$EVE")" = 0 ] # what is refused anyway fills no log
}
json() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

# added_by NAME: how often the cell says that this user asked for members.
added_by() {
  python3 -c 'import json, sys; print(sum(e["request"]["request"] == "group-add" and e["request"]["by"] == sys.argv[1] for e in json.load(open(sys.argv[2]))["events"]))' "$1" "$WORK/asked"
}

names_are_known() {
  local gid
  gid=$(lee group show "$ALICE:lab" --json | json '["gid"]')
  [ "$(getent group "$ALICE+lab")" = "$ALICE+lab:x:$gid:$BEA" ]
  [ "$(getent group "$gid" | cut -d: -f1)" = "$ALICE+lab" ]
  id -nG "$BEA" | tr ' ' '\n' | grep -Fx "$ALICE+lab"
  if id -nG "$EVE" | grep -F "$ALICE+lab"; then return 1; fi
  if getent group $((gid + 77)); then return 1; fi
}

rights_in_the_mount() {
  as "$ALICE" "$LEE" group add "$ALICE:lab" "$ALICE"
  install -d -o "$ALICE" -g "$ALICE" -m 700 "$MNT/shared" "$MNT/listed"
  as "$ALICE" chgrp "$ALICE+lab" "$MNT/shared"
  as "$ALICE" chmod 2770 "$MNT/shared"
  as "$ALICE" setfacl -m "g:$ALICE+lab:rwx" "$MNT/listed"
  [ "$(stat -c %G "$MNT/shared")" = "$ALICE+lab" ]
  as "$BEA" sh -c "echo hers >'$MNT/shared/file' && echo hers >'$MNT/listed/file'"
  [ "$(stat -c %G "$MNT/shared/file")" = "$ALICE+lab" ]
  refused as "$EVE" ls "$MNT/shared"
  refused as "$EVE" ls "$MNT/listed"
  as "$ALICE" getfacl -p "$MNT/listed" | grep -Fx "group:$ALICE+lab:rwx"
}

rights_in_words() {
  local tree=$MNT/words
  install -d -o "$ALICE" -g "$ALICE" -m 700 "$tree" "$tree/in"
  as "$ALICE" sh -c "umask 077; echo old >'$tree/in/old'"
  install -o "$EVE" -m 600 /dev/null "$tree/in/theirs"
  refused as "$BEA" cat "$tree/in/old"
  as "$BEA" ls "$MNT" >/dev/null # the kernel knows the directory
  as "$ALICE" "$LEE" acl set ./words "$ALICE:lab=write" "$EVE=list" --recursive | tee "$WORK/said"
  grep -F '1 belong to others' "$WORK/said" >/dev/null
  as "$BEA" sh -c "cat '$tree/in/old' && echo new >'$tree/in/old' && echo new >'$tree/in/new'"
  as "$ALICE" sh -c "umask 007; echo later >'$tree/in/later'"
  as "$BEA" sh -c "echo changed >'$tree/in/later'"
  as "$EVE" ls "$tree/in" >/dev/null
  refused as "$EVE" cat "$tree/in/old"
  as "$ALICE" getfacl -p "$tree/in" | grep -Fx "default:group:$ALICE+lab:rwx"
  as "$ALICE" "$LEE" acl show ./words | grep -E "^$ALICE:lab +list, read, write"
  as "$ALICE" "$LEE" acl show ./words | grep -E "^$EVE +list +r-x"
  WORDS='only its owner' refused as "$EVE" "$LEE" acl set ./words "$EVE=write"
  WORDS='append only' refused as "$ALICE" "$LEE" acl set ./words "$EVE=append"
  WORDS='is no right' refused as "$ALICE" "$LEE" acl set ./words "$EVE=paint"
  as "$ALICE" "$LEE" acl remove ./words "$ALICE:lab" "$EVE" --recursive
  refused as "$BEA" cat "$tree/in/old"
  refused as "$EVE" ls "$tree/in"
}

groups_in_groups() {
  as "$EVE" "$LEE" group create "$EVE:friends"
  as "$EVE" "$LEE" group add "$EVE:friends" "$EVE"
  as "$ALICE" "$LEE" group add "$ALICE:lab" "$EVE+friends"
  as "$EVE" cat "$MNT/shared/file"
  WORDS='cannot be a member' refused as "$EVE" "$LEE" group add "$EVE:friends" "$ALICE:lab"
  as "$ALICE" "$LEE" group drop "$ALICE:lab" "$EVE:friends"
  refused as "$EVE" cat "$MNT/shared/file"
}

token() { lee token create "$1" --path / --read --write --for 1h --json | json '["token"]'; }
# status USER-TOKEN [CURL-OPTION...]: of a request for the shared file.
status() { curl -s -o "$WORK/out" -w '%{http_code}' --oauth2-bearer "$1" "${@:2}" "$URL/shared/file"; }
is_status() { [ "$(status "$2")" = "$1" ]; }

# by_key KEY: the status of a request for the same file by S3.
by_key() {
  curl -s -o "$WORK/out" -w '%{http_code}' --aws-sigv4 aws:amz:us-east-1:s3 -u "$1" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
    "http://127.0.0.1:$S3_PORT/lee-shared/file"
}

# At a gateway within two seconds, else at once.
soon() { if [ "$CHANNEL" = gateway ]; then wait_for 4 "$@"; else "$@"; fi; }

rights_at_the_doors() {
  local bea eve key
  bea=$(token "$BEA")
  eve=$(token "$EVE")
  key=$(lee key create "$EVE" --json | python3 -c 'import json, sys; k = json.load(sys.stdin); k = k.get("key", k); print(k["access_key_id"] + ":" + k["secret_access_key"])')
  lee bucket create lee-shared --path /shared
  doors_hear
  is_status 200 "$bea"
  is_status 403 "$eve"
  as "$ALICE" "$LEE" group add "$ALICE:lab" "$EVE"
  soon is_status 200 "$eve"
  [ "$(by_key "$key")" = 200 ]
  [ "$(curl -s -o "$WORK/out" -w '%{http_code}' --oauth2-bearer "$eve" -T /etc/hostname "$URL/shared/new")" = 201 ]
  [ "$(stat -c %U:%G "$MNT/shared/new")" = "$EVE:$ALICE+lab" ]
  as "$EVE" "$LEE" group drop "$ALICE:lab" "$EVE" # everybody may leave
  soon is_status 403 "$eve"
  [ "$(by_key "$key")" = 403 ]
  as "$ALICE" "$LEE" group drop "$ALICE:lab" "$BEA"
  soon is_status 403 "$bea"
  refused as "$BEA" ls "$MNT/shared"
  as "$ALICE" "$LEE" group add "$ALICE:lab" "$BEA"
  soon is_status 200 "$bea"
}

# in_seconds MAX COMMAND...: it succeeds within that time.
in_seconds() {
  local begun
  begun=$(now_ms)
  "${@:2}"
  [ $(($(now_ms) - begun)) -le $(($1 * 1000)) ] || { say "${*:2} took $(($(now_ms) - begun)) ms"; return 1; }
}

# Somebody who connects and says nothing keeps names from nobody.
names_while_somebody_hammers() {
  local socket status=0
  for socket in "$SERVICES"/org.leeward.*; do
    python3 -c '
import os, socket, sys, time
os.setgroups([])
os.setresgid(*[int(sys.argv[2])] * 3)
os.setresuid(*[int(sys.argv[2])] * 3)
held = []
for n in range(60):
    held.append(socket.socket(socket.AF_UNIX))
    try:
        held[-1].connect(sys.argv[1])
    except (ConnectionRefusedError, FileNotFoundError): # its process has ended just now
        break
print("connected", flush=True)
time.sleep(60)' "$socket" "$(id -u "$EVE")" >>"$WORK/hammered" &
    echo $! >>"$WORK/hammers"
  done
  wait_for 10 hammered
  in_seconds 2 getent group "$ALICE+lab" && in_seconds 2 is_in_lab "$BEA" || status=1
  kill $(cat "$WORK/hammers")
  return "$status"
}
hammered() { [ "$(wc -l <"$WORK/hammered")" = "$(wc -l <"$WORK/hammers")" ]; }
is_in_lab() { id -nG "$1" | tr ' ' '\n' | grep -Fx "$ALICE+lab"; }

# A server that does not answer delays names on other machines by seconds, and what it has said goes on. This machine is the
# server, too: its own socket is taken away, as programs here would wait for it.
names_while_the_server_hangs() {
  local pid status=0
  pid=$(cell_pid)
  getent group "$ALICE+lab" >/dev/null
  rm "$(name_socket "$pid")"
  on_exit "kill -CONT $pid"
  kill -STOP "$pid"
  sleep 6 # what was said is old now
  in_seconds 8 getent group "$ALICE+lab" && in_seconds 8 not_known || status=1
  kill -CONT "$pid"
  [ "$status" = 0 ] || return 1
  wait_for 10 getent group "$ALICE+lab"
}

not_known() { ! getent group "$ALICE+never"; }

groups_last() {
  local before
  before=$(lee group show "$ALICE:lab" --json)
  if [ "$CHANNEL" = '' ] || [ "$CHANNEL" = device ]; then
    kill -9 "$(cell_pid)"
    wait_gone "$(cell_pid)" 10
    umount -l "$MNT" || true
    cell_start --http "$PORT" --s3 "$S3_PORT"
  fi
  [ "$(lee group show "$ALICE:lab" --json)" = "$before" ]
  getent group "$ALICE+lab"
  as "$BEA" cat "$MNT/shared/file"
  as "$ALICE" "$LEE" group remove "$ALICE:lab"
  [ "$(stat -c %g "$MNT/shared")" = "$(json '["gid"]' <<<"$before")" ]
  if getent group "$ALICE+lab" && [ "$CHANNEL" != remote ]; then return 1; fi
  as "$ALICE" "$LEE" group create "$ALICE:lab"
  [ "$(lee group show "$ALICE:lab" --json | json '["gid"]')" != "$(json '["gid"]' <<<"$before")" ]
}

# Files of copies and backups have numbers: another cell gets the groups with theirs.
groups_in_another_cell() {
  local there=$WORK/there range
  there() { "$LEE" "$@" --cell "$there"; }
  "$LEE" up "$there" --background --no-keeper
  range=$(lee group range --json | json '["ranges"][-1]["first"]')
  there group range "$range-1899999999"
  lee group create "$BEA:outer"
  lee group add "$BEA:outer" "$ALICE:lab" "$EVE"
  lee group set "$BEA:outer" --owner "$ALICE:lab"
  lee group limit "$BEA" 33
  lee group export >"$WORK/groups.json"
  there group import "$WORK/groups.json"
  there group export | cmp - "$WORK/groups.json"
  # again and again: what has changed here changes there, also the other way round
  lee group drop "$BEA:outer" "$ALICE:lab"
  lee group add "$ALICE:lab" "$BEA:outer"
  lee group export >"$WORK/groups.json"
  [ "$(there group import - --json <"$WORK/groups.json" | json '["changed"]')" = 2 ]
  [ "$(there group import "$WORK/groups.json" --json | json '["changed"]')" = 0 ]
  there group export | cmp - "$WORK/groups.json"
  # a group of that cell only stays; a number that is another group's there is refused before anything changes
  there group create "$EVE:there"
  lee group create "$EVE:here"
  lee group drop "$ALICE:lab" "$BEA:outer"
  lee group export >"$WORK/later.json"
  WORDS="of $EVE:there here" refused there group import "$WORK/later.json"
  there group remove "$EVE:there"
  there group export | cmp - "$WORK/groups.json"
  there group import "$WORK/later.json"
  WORDS='is not what lee group export wrote' refused there group import "$0"
  there down
  there fsck
}

lee_binary
prepare
if [ "$CHANNEL" = remote ]; then cell_start; else cell_start --http "$PORT" --s3 "$S3_PORT"; fi
# another cell of this machine may have the usual ones
lee group range "$((1890000000 + $$ % 1000 * 1000))-1899999999"
run own users_help_themselves
run names names_are_known
run mount rights_in_the_mount
run words rights_in_words
run nested groups_in_groups
[ "$CHANNEL" = remote ] || run doors rights_at_the_doors
run hammered names_while_somebody_hammers
[ "$CHANNEL" != remote ] || run hangs names_while_the_server_hangs
run last groups_last
[ "$CHANNEL" != '' ] || run another groups_in_another_cell
suite_end
