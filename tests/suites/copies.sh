#!/usr/bin/env bash
# Copies of volumes in another cell: snapshots sent and received by real commands and mounts, servers that are killed
# meanwhile, and the script of contrib.
. "$(dirname "$0")/../lib.sh"
suite copies
[ "$(id -u)" = 0 ] || { skip all "needs root"; exit 0; }
have_cell || { skip all "needs a cell"; exit 0; }
THERE=$WORK/there SRC=$MNT/home COPY=$WORK/there/mnt/home

# The snapshot that the copy shows; cases run in shells of their own.
last() { cat "$WORK/last" 2>/dev/null || true; }
is_last() { echo "$1" >"$WORK/last"; }

there() { "$LEE" "$@" --cell "$THERE"; }
PORT=$((30000 + $$ % 1000 * 2)) # below what the kernel gives to clients: servers come back at it
there_up() { "$LEE" up "$THERE" --background --no-keeper --listen "127.0.0.1:$PORT" >>"$WORK/there.log" 2>&1; }
# What is between the cells can be cut.
RELAY=$((PORT + 1))
relay_up() {
  python3 "$ROOT/tests/tools/relay.py" "$RELAY" "$PORT" >>"$WORK/relay.log" 2>&1 </dev/null &
  echo $! >"$WORK/relay.pid"
  disown
  wait_for 10 python3 -c "import socket; socket.create_connection(('127.0.0.1', $RELAY))" 2>/dev/null
}
relay_cut() { kill -9 "$(cat "$WORK/relay.pid")"; }
on_exit 'relay_cut'
there_pid() { sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$THERE/lock"; }
end_there() { [ ! -e "$THERE" ] || there down >>"$WORK/there.log" 2>&1 || umount -l "$THERE/mnt" 2>/dev/null || true; }
on_exit end_there

# send NAME: takes a snapshot and writes what has changed; next NAME: and the copy receives it.
send() {
  mkdir "$SRC/.snap/$1"
  local last
  last=$(last)
  lee snap send home "$1" ${last:+--from "$last"} 2>>"$WORK/sent"
}
next() {
  send "$1" | there snap receive home >>"$WORK/received"
  is_last "$1"
}

# All that programs see of a tree, a line for each name: attributes, number in the volume, links, allocation, content.
listing() {
  python3 - "$1" <<'PYTHON'
import hashlib, os, stat, sys
top = os.fsencode(sys.argv[1])
for at, dirs, files in os.walk(top):
    for path in [at] + [os.path.join(at, name) for name in files] + [
        os.path.join(at, name) for name in dirs if os.path.islink(os.path.join(at, name))]:
        s = os.lstat(path)
        line = [path[len(top):], s.st_ino % 2**40, oct(s.st_mode), s.st_nlink, s.st_uid, s.st_gid, s.st_rdev, s.st_size,
                s.st_blocks, s.st_mtime_ns, s.st_ctime_ns]
        for name in os.listxattr(path, follow_symlinks=False):
            line += [name, os.getxattr(path, name, follow_symlinks=False)]
        if stat.S_ISLNK(s.st_mode):
            line.append(os.readlink(path))
        if stat.S_ISREG(s.st_mode):
            fd, end, digest = os.open(path, os.O_RDONLY), 0, hashlib.sha256()
            while True:
                try:
                    data = os.lseek(fd, end, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(fd, data, os.SEEK_HOLE)
                line += [data, end]
                while data < end:
                    part = os.pread(fd, min(1 << 20, end - data), data)
                    digest.update(part)
                    data += len(part)
            os.close(fd)
            line.append(digest.hexdigest())
        sys.stdout.buffer.write(b" ".join(p if type(p) is bytes else str(p).encode() for p in line).replace(b"\n", b"\\n") + b"\n")
PYTHON
}
same() { # SNAPSHOT
  listing "$SRC/.snap/$1" | sort >"$WORK/was"
  listing "$COPY" | sort >"$WORK/is"
  [ "$(wc -l <"$WORK/was")" -gt 3 ]
  cmp "$WORK/was" "$WORK/is" || { diff -a "$WORK/was" "$WORK/is" >"$WORK/differ" || true; sed -n 1,6p "$WORK/differ"; return 1; }
  [ "$(lee snap digest home "$1")" = "$(there snap digest home "$1")" ]
}

everything_travels() {
  lee volume create home
  there volume create home --copy
  [ -z "$(ls -A "$COPY")" ]
  mkdir -p "$SRC/a/b/c" "$SRC/$(printf 'not\377utf8')"
  etc_copy
  cp -a "$WORK/etc" "$SRC/a/b/etc"
  ln "$SRC/a/b/etc/passwd" "$SRC/a/hard"
  ln -s nowhere "$SRC/a/soft"
  mkfifo "$SRC/fifo"
  mknod "$SRC/null" c 1 3
  truncate -s 1T "$SRC/sparse"
  dd if=/dev/urandom of="$SRC/sparse" bs=4k seek=1M count=300 conv=notrunc status=none
  fallocate -l 3M "$SRC/reserved"
  dd if=/dev/urandom of="$SRC/big" bs=1M count=60 status=none
  setfattr -n user.color -v red "$SRC/a"
  setfacl -m u:65534:rwx "$SRC/a/hard"
  chattr +i "$SRC/a/b/etc/hostname"
  chmod 6751 "$SRC/a/b/etc/fstab"
  touch -d '1969-01-01 00:00:01.123456789' "$SRC/a/b/c"
  next one
  same one
}

changes_travel() {
  chattr -i "$SRC/a/b/etc/hostname"
  mv "$SRC/a/b" "$SRC/moved"
  rm -r "$SRC/moved/etc/default"
  echo more >>"$SRC/moved/etc/passwd"
  dd if=/dev/urandom of="$SRC/big" bs=1k seek=33333 count=1 conv=notrunc status=none
  truncate -s 4G "$SRC/sparse"
  fallocate -p -o 1M -l 1M "$SRC/reserved"
  rm "$SRC/a/soft"
  mkdir "$SRC/a/soft"
  setfattr -x user.color "$SRC/a"
  next two
  same two
  [ "$(ls "$COPY/.snap")" = "$(printf 'one\ntwo')" ]
}

a_renamed_tree_is_a_few_bytes() {
  mkdir "$SRC/many"
  (cd "$SRC/many" && seq 20000 | xargs touch)
  next three
  mv "$SRC/many" "$SRC/renamed"
  local bytes
  bytes=$(send four | tee "$WORK/four" | wc -c)
  say "NOTE renaming a directory of 20,000 files sends $bytes bytes"
  [ "$bytes" -lt 2000 ]
  there snap receive home <"$WORK/four" >>"$WORK/received"
  is_last four
  same four
}

nobody_changes_it() {
  if touch "$COPY/new" 2>/dev/null || rm "$COPY/big" 2>/dev/null || mkdir "$COPY/.snap/mine" 2>/dev/null; then return 1; fi
  if there snap create /home mine 2>/dev/null || there volume create v --at /home/v 2>/dev/null; then return 1; fi
  if there snap remove /home four 2>"$WORK/refused"; then return 1; fi
  grep -q 'shows snapshot four' "$WORK/refused"
  there snap remove /home one >/dev/null
}

killed_at_any_time() {
  local n before
  for n in 1 2 3 4 5 6; do
    dd if=/dev/urandom of="$SRC/big$n" bs=1M count=20 status=none
    (cd "$SRC/renamed" && seq $((n * 1000)) $((n * 1000 + 900)) | xargs rm -f)
    before=$(ls "$COPY")
    send "killed$n" >"$WORK/stream"
    # a part of it, then nothing more comes; the server dies in between, or after that
    { head -c $((RANDOM * RANDOM % $(stat -c %s "$WORK/stream"))) "$WORK/stream"; sleep 1; } |
      there snap receive home 2>>"$WORK/refused" &
    sleep "0.$((RANDOM % 9))"
    kill -9 "$(there_pid)"
    wait $! || true
    there_up
    [ "$(ls "$COPY")" = "$before" ]
    there snap receive home <"$WORK/stream" >>"$WORK/received"
    is_last "killed$n"
    same "killed$n"
  done
  there fsck
}

a_sender_that_is_killed() {
  echo x >"$SRC/x"
  mkdir "$SRC/.snap/cut"
  lee sync
  cell_kill9
  cell_start
  if lee snap send home cut --from "$(last)" 2>/dev/null | head -c 100 | there snap receive home 2>"$WORK/refused"; then return 1; fi
  grep -q 'ends early' "$WORK/refused"
  lee snap send home cut --from "$(last)" 2>/dev/null | there snap receive home >>"$WORK/received"
  is_last cut
  same cut
}

shown() { there volume show home --json | sed -n 's/.*"copy":{"snapshot":"\([^"]*\)".*/\1/p'; }

by_the_script() {
  local n name
  for n in 1 2 3; do
    echo "$n" >"$SRC/by-the-script"
    KEEP=2 LEE="$LEE" "$ROOT/contrib/leeward-copy" home "$CELL" home "$THERE" "$LEE" >>"$WORK/received"
    [ "$(cat "$COPY/by-the-script")" = "$n" ]
  done
  name=$(shown)
  same "$name"
  [ "$(ls "$SRC/.snap" | grep -c ^copy-)" = 1 ]
  [ "$(ls "$COPY/.snap" | grep -c ^copy-)" = 2 ]
  if LEE="$LEE" "$ROOT/contrib/leeward-copy" home "$CELL" home "$THERE" false 2>/dev/null; then return 1; fi
  # the answer is lost: the next pass goes on from what came
  printf '#!/bin/sh\n"%s" "$@"; [ "$1" = volume ]\n' "$LEE" >"$WORK/lost"
  chmod +x "$WORK/lost"
  echo lost >"$SRC/by-the-script"
  if LEE="$LEE" "$ROOT/contrib/leeward-copy" home "$CELL" home "$THERE" "$WORK/lost" 2>"$WORK/refused"; then return 1; fi
  [ "$(cat "$COPY/by-the-script")" = lost ]
  LEE="$LEE" "$ROOT/contrib/leeward-copy" home "$CELL" home "$THERE" "$LEE" >>"$WORK/received"
  [ "$(ls "$SRC/.snap" | grep -c ^copy-)" = 1 ]
}

receives() { [[ $(there volume show home --json) == *'"receiving":true'* ]]; }

# A sender that is silent holds nobody up.
promoted() {
  local begun silent
  dd if=/dev/urandom of="$SRC/silent" bs=1M count=5 status=none
  is_last "$(shown)"
  send silent >"$WORK/stream"
  { head -c 20000 "$WORK/stream"; sleep 10; } | there snap receive home 2>"$WORK/ended" &
  silent=$!
  wait_for 10 receives
  begun=$(date +%s%N)
  there volume promote home
  echo new >"$COPY/new"
  say "NOTE promoted and written to after $((($(date +%s%N) - begun) / 1000000)) ms"
  wait "$silent" && return 1
  grep -q 'promoted' "$WORK/ended"
  python3 -c 'import os, sys; assert os.stat(sys.argv[1]).st_ino % 2**40 >= 2**26' "$COPY/new"
  if send late | there snap receive home 2>"$WORK/refused"; then return 1; fi
  grep -q 'is no copy' "$WORK/refused"
  there fsck
}

# Mirrors: the server of the cell itself keeps copies up to date.

mirrored() { # COPY SNAPSHOT-HERE: what users see is the same
  listing "$MNT/vol" | sort >"$WORK/was"
  listing "$WORK/there/mnt/$1" | sort >"$WORK/is"
  cmp "$WORK/was" "$WORK/is" || { diff -a "$WORK/was" "$WORK/is" | head -6; return 1; }
}
field() { lee mirror status vol --json | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

a_mirror_is_let_in_by_a_token() {
  local token
  lee volume create vol
  etc_copy
  cp -a "$WORK/etc" "$MNT/vol/etc"
  ln "$MNT/vol/etc/passwd" "$MNT/vol/hard"
  dd if=/dev/urandom of="$MNT/vol/big" bs=1M count=20 status=none
  if lee mirror add vol --to "127.0.0.1:$PORT" 2>"$WORK/refused"; then return 1; fi
  grep -q 'lee host add NAME --mirror' "$WORK/refused"
  token=$(there host add here --mirror --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
  lee mirror add vol --to "127.0.0.1:$PORT" --every 1h --keep 2h --token "$token"
  lee mirror run vol
  mirrored vol
  [ "$(field state)" = good ] && [ "$(field late)" = false ]
  lee mirror verify vol
  [ "$(field verified_secs)" -gt 0 ]
}

# Who has a file of the copy open reads it to its end, whatever the copy shows meanwhile.
a_reader_of_the_copy_reads_on() {
  lee mirror run vol # this one is not the one of the hour
  exec 9<"$WORK/there/mnt/vol/big"
  head -c 1000000 <&9 >"$WORK/read"
  for n in 1 2; do
    echo "$n" >"$MNT/vol/read-on"
    lee mirror run vol
  done
  mirrored vol
  cat <&9 >>"$WORK/read"
  exec 9<&-
  cmp "$WORK/read" "$MNT/vol/big"
  rm "$WORK/read"
}

# What a comparison has found is known to whoever serves the cell later, until another one is good.
a_difference_is_not_forgotten() {
  python3 - "$CELL/control.sock" "127.0.0.1:$PORT" <<'PYTHON'
import json, socket, sys
call = {"call": "admin", "request": {"request": "mirror-note", "volume": "vol", "to": sys.argv[2], "copy": "vol", "compared": {"at_secs": 1, "differs": "they differ"}}}
with socket.socket(socket.AF_UNIX) as control:
    control.connect(sys.argv[1])
    control.sendall(json.dumps(call).encode() + b"\n")
    said = control.recv(4096)
    assert b"done" in said, said
PYTHON
  cell_stop
  cell_start
  [ "$(field state)" = failing ] && [ "$(field error)" = 'they differ' ] && [ "$(field verified_secs)" = null ]
  lee mirror run vol
  [ "$(field state)" = failing ]
  lee mirror verify vol
  [ "$(field state)" = good ]
  cell_stop
  cell_start
  [ "$(field verified_secs)" -gt 1 ]
}

# How old the copy is, is known to whoever serves the cell later, also while the other cell is away.
its_age_is_known_while_the_other_cell_is_away() {
  local proven
  proven=$(field proven)
  [ -n "$proven" ] && [ "$proven" != null ]
  there down >>"$WORK/there.log"
  cell_kill9
  cell_start
  [ "$(field proven)" = "$proven" ] && [ "$(field age_secs)" -ge 0 ]
  there_up
  lee mirror run vol
  [ "$(field proven)" != "$proven" ] && [ "$(field proven)" != null ]
}

# The cell that has the copy says how old it is, and from where, while the other one is away.
the_copy_alone_says_how_old_it_is() {
  cell_stop
  there mirror status vol >"$WORK/status"
  grep -q '^vol  *vol  *here  *1h  *copy ' "$WORK/status" || { cat "$WORK/status"; return 1; }
  there mirror status vol --json | python3 -c 'import json, sys
[copy] = json.load(sys.stdin)["copies"]
assert copy["snapshot"].startswith("mirror-") and copy["age_secs"] >= 0 and not copy["late"], copy'
  there volume show vol | grep -q '^copy .*shows snapshot mirror-.*; of volume vol of here'
  cell_start
}

its_host_does_nothing_else() {
  local token
  mkdir -p "$WORK/other"
  token=$(there host add other --mirror --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
  if LEE_HOST_DIR="$WORK/keys" timeout -s KILL 20 "$LEE" mount "127.0.0.1:$PORT" "$WORK/other" --token "$token" --background >"$WORK/refused" 2>&1; then
    ls "$WORK/other" && return 1
    umount -l "$WORK/other"
  fi
  there host remove other
  # a volume that is no copy is not touched
  there volume create own
  echo mine >"$WORK/there/mnt/own/file"
  if lee mirror add vol --to "127.0.0.1:$PORT" --copy own 2>"$WORK/refused"; then return 1; fi
  grep -q 'is no copy' "$WORK/refused"
  [ "$(cat "$WORK/there/mnt/own/file")" = mine ]
}

a_mirror_goes_on_after_kills() {
  local n
  for n in 1 2; do
    dd if=/dev/urandom of="$MNT/vol/kill$n" bs=1M count=20 status=none
    rm -rf "$MNT/vol/etc/$(ls "$MNT/vol/etc" | sed -n "$((n * 7))p")"
    lee mirror run vol >"$WORK/run" 2>&1 &
    sleep "0.0$((RANDOM % 9))"
    if [ $((n % 2)) = 0 ]; then
      kill -9 "$(there_pid)"
      wait $! || true
      there_up
    else
      lee sync
      cell_kill9
      wait $! || true
      cell_start
    fi
    lee mirror run vol
    mirrored vol
    [ "$(ls "$MNT/vol/.snap" | grep -c ^mirror-)" = 1 ]
  done
  [ "$(ls "$WORK/there/mnt/vol/.snap" | grep -c ^mirror-)" -le 3 ]
}

a_mirror_on_this_machine() {
  lee mirror add vol --to "$THERE" --copy local
  lee mirror run vol --to "$THERE"
  mirrored local
  # a process that is stopped is not waited for
  head -c 3000000 /dev/urandom >"$MNT/vol/more"
  rm -f "$(name_socket "$(there_pid)")" # other programs of this machine would wait for it
  kill -STOP "$(there_pid)"
  if timeout 60 "$LEE" mirror run vol --to "$THERE" --cell "$CELL" 2>"$WORK/refused"; then kill -CONT "$(there_pid)"; return 1; fi
  kill -CONT "$(there_pid)"
  grep -q 'does not answer' "$WORK/refused"
  lee mirror run vol --to "$THERE"
  mirrored local
  lee mirror remove vol --to "$THERE"
  there mirror status local | grep -q '^local .* detached '
  [ -e "$WORK/there/mnt/local/big" ]
}

# left_is STATE: how the other cell says that the copy is.
left_is() {
  there mirror status left >"$WORK/status"
  grep -q "^left  *left  *[a-z]*  *1h  *$1 " "$WORK/status" || { cat "$WORK/status"; return 1; }
}
has_sent_left() { [ "$(lee mirror status left --json | sed -n 's/.*"sent_bytes":\([0-9]*\).*/\1/p')" -gt "$1" ]; }

# The other cell hears that a mirror is removed, also in the midst of a pass; else it is told there.
a_removed_mirror_is_not_waited_for() {
  local token running
  lee volume create left
  echo one >"$MNT/left/file"
  token=$(there host add leaver --mirror --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
  lee mirror add left --to "127.0.0.1:$PORT" --every 1h --limit 1M --token "$token"
  lee mirror run left
  left_is copy
  dd if=/dev/urandom of="$MNT/left/big" bs=1M count=60 status=none
  lee mirror run left >"$WORK/run" 2>&1 &
  running=$!
  wait_for 30 has_sent_left $((1 << 20))
  lee mirror remove left >"$WORK/removed"
  if wait "$running"; then return 1; fi
  if grep NOTE "$WORK/removed"; then return 1; fi
  left_is detached
  grep -q '^NOTE nothing newer comes for the copy left: its mirror was removed ' "$WORK/status"
  there volume show left | grep -q '^copy .*; its mirror was removed '
  [ "$(cat "$WORK/there/mnt/left/file")" = one ]
  if touch "$WORK/there/mnt/left/new" 2>/dev/null; then return 1; fi
  # added again, it goes on with the same copy
  token=$(there host invite leaver --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
  lee mirror add left --to "127.0.0.1:$PORT" --every 1h --token "$token"
  lee mirror run left
  left_is copy
  cmp "$MNT/left/big" "$WORK/there/mnt/left/big"
  # one that cannot be reached is told by hand
  there down >>"$WORK/there.log"
  lee mirror remove left >"$WORK/removed"
  grep -q 'NOTE .* was not told .*: run lee mirror detach left there' "$WORK/removed" || { cat "$WORK/removed"; return 1; }
  there_up
  left_is copy
  there mirror detach left
  left_is detached
  there mirror promote left
  echo two >"$WORK/there/mnt/left/file"
  there fsck
}

a_promoted_copy_is_said() {
  mkdir "$MNT/vol/few"
  lee quota set "$MNT/vol/few" --files 2
  lee quota set vol --user 65534 --bytes 1M
  lee mirror run vol
  there mirror promote vol
  # its quotas have come, and bind now
  touch "$WORK/there/mnt/vol/few/1" "$WORK/there/mnt/vol/few/2"
  if touch "$WORK/there/mnt/vol/few/3" 2>/dev/null; then return 1; fi
  touch "$WORK/there/mnt/vol/theirs"
  chown 65534 "$WORK/there/mnt/vol/theirs"
  if dd if=/dev/urandom of="$WORK/there/mnt/vol/theirs" bs=1M count=2 status=none 2>/dev/null; then return 1; fi
  echo new >"$WORK/there/mnt/vol/new"
  there mirror status vol >"$WORK/status"
  grep -q '^NOTE volume vol, .* was one of volume vol of here; promoted .* (by hand) as snapshot mirror-' "$WORK/status" || { cat "$WORK/status"; return 1; }
  there volume show vol | grep -q '^copy .*promoted .* (by hand)'
  if lee mirror run vol 2>"$WORK/refused"; then return 1; fi
  grep -q 'was promoted' "$WORK/refused"
  [ "$(field state)" = promoted ]
  lee mirror status >"$WORK/status"
  grep -q '^ALARM the mirror of vol' "$WORK/status"
  [ "$(cat "$WORK/there/mnt/vol/new")" = new ]
  lee mirror remove vol
  lee fsck
  there fsck
}

# The old volume, with what it had not sent, becomes a copy of the new one; then back in order.
roles_change_back() {
  echo unsent >"$MNT/vol/unsent"
  lee volume demote vol
  if touch "$MNT/vol/file" 2>/dev/null; then return 1; fi
  there mirror add vol --to "$CELL"
  there mirror run vol
  mirrored vol
  [ "$(cat "$MNT/vol/new")" = new ] && [ ! -e "$MNT/vol/unsent" ]
  [ "$(cat "$MNT"/vol/.snap/set-aside-*/unsent)" = unsent ]
  there volume demote vol
  lee volume promote vol
  echo back >"$MNT/vol/back"
  lee mirror add vol --to "$THERE"
  lee mirror run vol
  mirrored vol
  lee mirror verify vol
  lee mirror remove vol
  lee fsck
  there fsck
}

# A switch made the volume here a copy and ended there, and the other one was promoted by hand: what that never got is kept.
what_a_cut_switch_left_stays() {
  local kept="$MNT/vol/.snap/set-aside-mirror-0badcafe-2026-01-01T00:00:00.000Z"
  echo 'never sent' >"$MNT/vol/unsent"
  lee volume demote vol --snapshot "$(basename "${kept/set-aside-/}")"
  there volume promote vol
  there mirror run vol
  mirrored vol
  [ ! -e "$MNT/vol/unsent" ]
  [ "$(cat "$kept/unsent")" = 'never sent' ]
  there mirror status vol >"$WORK/status"
  grep -q 'NOTE .*set-aside-mirror-0badcafe' "$WORK/status" || { cat "$WORK/status"; return 1; }
  there volume demote vol
  lee volume promote vol
  lee mirror add vol --to "$THERE"
  lee mirror run vol
  lee mirror remove vol
  [ "$(cat "$kept/unsent")" = 'never sent' ]
}

# only_there, only_here: the volume is writable there and a copy here, or the other way around.
only_there() {
  echo "$1" >"$WORK/there/mnt/vol/last" || return 1
  if echo "$1" 2>/dev/null >"$MNT/vol/last"; then return 1; fi
}
only_here() {
  echo "$1" >"$MNT/vol/last" || return 1
  if echo "$1" 2>/dev/null >"$WORK/there/mnt/vol/last"; then return 1; fi
}

roles_are_switched() {
  local token
  token=$(there host add again --mirror --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
  lee mirror add vol --to "127.0.0.1:$PORT" --every 1h --token "$token"
  echo here >"$MNT/vol/by"
  lee mirror switch vol >"$WORK/switched"
  grep -q 'is the volume now' "$WORK/switched"
  say "NOTE $(grep -o 'nobody could write for .* ms' "$WORK/switched")"
  [ "$(cat "$WORK/there/mnt/vol/by")" = here ]
  only_there 1
  if lee mirror switch vol 2>"$WORK/refused"; then return 1; fi
  grep -q 'is a volume of its own' "$WORK/refused" || { cat "$WORK/refused"; return 1; }
  there mirror run vol
  mirrored vol
  if lee mirror switch vol 2>"$WORK/refused"; then return 1; fi
  grep -q 'is a copy, and no lee mirror switch' "$WORK/refused" || { cat "$WORK/refused"; return 1; }
  there mirror switch vol
  only_here 2
  lee mirror run vol
  mirrored vol
  lee mirror verify vol
  kill -9 "$(there_pid)"
  if lee mirror switch vol 2>"$WORK/refused"; then return 1; fi
  echo 3 >"$MNT/vol/last"
  there_up
  only_here 4
}

# Either cell is killed while roles change: nothing is lost, never are both written to, and asking again goes on.
killed_while_roles_change() {
  local n cut=0 copies=0 switching writing
  lee mirror add vol --to "127.0.0.1:$PORT" --every 1h --limit 1M # some pieces, so that what programs write meanwhile takes a while, too
  for n in 1 2 3 4; do
    echo "$n" >"$MNT/vol/round"
    lee sync
    while dd if=/dev/urandom of="$MNT/vol/busy" bs=700k count=1 status=none; do sleep 0.05; done 2>/dev/null &
    writing=$!
    lee mirror switch vol >"$WORK/run" 2>&1 &
    switching=$!
    sleep "$((RANDOM % 2)).$((RANDOM % 10))"
    touch "$MNT/vol/is-it" 2>/dev/null || copies=$((copies + 1))
    if [ $((n % 2)) = 0 ]; then
      kill -9 "$(there_pid)"
      wait "$switching" || cut=$((cut + 1))
      there_up
    else
      cell_kill9
      wait "$switching" || cut=$((cut + 1))
      cell_start
    fi
    kill "$writing" 2>/dev/null || true
    if ! lee mirror switch vol >"$WORK/run" 2>&1; then
      # done before, and perhaps the mirror there has run
      grep -q -e 'is a volume of its own' -e 'is a copy, and no' "$WORK/run" || { cat "$WORK/run"; return 1; }
    fi
    only_there "$n"
    [ "$(cat "$WORK/there/mnt/vol/round")" = "$n" ]
    there mirror switch vol
    only_here "$n"
    [ "$(cat "$MNT/vol/round")" = "$n" ]
  done
  say "NOTE $cut of 4 were cut short, $copies when the volume had become a copy"
  lee fsck
  there fsck
}

# A volume whose copy is at the other end of what can be cut.
cut_volume() {
  local token
  lee volume create cut
  token=$(there host add cutter --mirror --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
  relay_up
  lee mirror add cut --to "127.0.0.1:$RELAY" --every 1h --keep 2h --token "$token" "$@"
}
cut_field() { lee mirror status cut --json | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
# same_cut: what the copy shows is the newest snapshot of the mirror here.
same_cut() {
  listing "$MNT/cut" | sort >"$WORK/was"
  listing "$WORK/there/mnt/cut" | sort >"$WORK/is"
  cmp "$WORK/was" "$WORK/is" || { diff -a "$WORK/was" "$WORK/is" | head -6; return 1; }
}

has_sent() { [ "$(cut_field sent_bytes)" -gt "$1" ]; }

a_stream_that_was_cut_goes_on() {
  local sent
  cut_volume --limit 8M
  dd if=/dev/urandom of="$MNT/cut/big" bs=1M count=64 status=none
  lee sync
  lee mirror run cut >"$WORK/run" 2>&1 &
  wait_for 60 has_sent $((24 << 20))
  relay_cut
  wait $! && return 1
  relay_up
  lee mirror add cut --to "127.0.0.1:$RELAY" --every 1h --keep 2h
  lee mirror run cut
  same_cut
  sent=$(cut_field sent_bytes)
  say "NOTE of 64 MiB $((sent >> 20)) were sent after the cut"
  [ "$sent" -lt $((48 << 20)) ]
  lee mirror verify cut
}

on_exit '[ ! -e "$WORK/reading" ] || kill "$(cat "$WORK/reading")"'

# Sides and network are killed at random while a mirror is at work: it goes on, the copy is what it should be, and readers
# never see half of a snapshot. MIRROR_KILLS: how often.
a_mirror_goes_on_after_everything() {
  local n kind reading kills=${MIRROR_KILLS:-4} reads seed=${MIRROR_SEED:-$RANDOM}
  RANDOM=$seed
  say "NOTE MIRROR_SEED=$seed"
  mkdir -p "$MNT/cut/now"
  # each snapshot has the same number in all files of a directory, which comes and goes as a whole
  generation() {
    rm -rf "$MNT/cut/next"
    mkdir "$MNT/cut/next"
    for file in 1 2 3 4 5 6 7 8; do echo "$1" >"$MNT/cut/next/$file"; done
    mv "$MNT/cut/now" "$MNT/cut/old"
    mv "$MNT/cut/next" "$MNT/cut/now"
    rm -rf "$MNT/cut/old"
  }
  generation 0
  lee mirror run cut
  while true; do
    # in one directory, which stays the one that it was, while there is a server
    if (cd "$WORK/there/mnt/cut/now" && cat -- *) >"$WORK/seen.raw" 2>/dev/null; then
      sort "$WORK/seen.raw" | uniq -c >"$WORK/seen.new"
      if [ "$(awk '{print $1}' "$WORK/seen.new")" != 8 ]; then cp "$WORK/seen.new" "$WORK/half"; fi
    fi
    echo >>"$WORK/reads"
    sleep 0.02
  done &
  reading=$!
  echo "$reading" >"$WORK/reading"
  for n in $(seq "$kills"); do
    kind=$((RANDOM % 3))
    generation "$n"
    dd if=/dev/urandom of="$MNT/cut/file$((RANDOM % 5))" bs=64k count=$((RANDOM % 100)) status=none
    rm -rf "$MNT/cut/tree$((RANDOM % 3))"
    cp -a /etc/default "$MNT/cut/tree$((RANDOM % 3))" 2>/dev/null || true
    lee mirror run cut >"$WORK/run" 2>&1 &
    sleep "0.$((RANDOM % 40 + 10))"
    case $kind in
      0) lee sync >/dev/null; cell_kill9; wait $! || true; cell_start ;;
      1) kill -9 "$(there_pid)"; wait $! || true; there_up ;;
      2) relay_cut; wait $! || true; relay_up ;;
    esac
    lee mirror run cut >"$WORK/run" 2>&1 || { cat "$WORK/run"; return 1; }
    same_cut || { say "round $n, kind $kind"; return 1; }
    [ ! -e "$WORK/half" ] || { cat "$WORK/half"; say "half of a snapshot was shown, round $n"; return 1; }
  done
  kill "$reading"
  lee mirror verify cut
  reads=$(wc -l <"$WORK/reads")
  say "NOTE $kills kills, $reads looks at the copy meanwhile"
  lee mirror remove cut
  lee fsck
  there fsck
}

cell_start
there_up
# COPIES_CASES: only these, which need nothing of others.
if [ -z "${COPIES_CASES:-}" ]; then run everything_travels everything_travels; fi
for case in ${COPIES_CASES:-changes_travel a_renamed_tree_is_a_few_bytes nobody_changes_it killed_at_any_time a_sender_that_is_killed by_the_script promoted \
  a_mirror_is_let_in_by_a_token a_reader_of_the_copy_reads_on a_difference_is_not_forgotten its_age_is_known_while_the_other_cell_is_away the_copy_alone_says_how_old_it_is its_host_does_nothing_else a_mirror_goes_on_after_kills a_mirror_on_this_machine a_removed_mirror_is_not_waited_for a_promoted_copy_is_said \
  roles_change_back what_a_cut_switch_left_stays roles_are_switched killed_while_roles_change a_stream_that_was_cut_goes_on a_mirror_goes_on_after_everything}; do
  run "$case" "$case"
done
suite_end
