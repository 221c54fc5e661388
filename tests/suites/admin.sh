#!/usr/bin/env bash
# What an operator does with a cell, seen through the mount: volumes, quotas, statistics, start and end, damage.
. "$(dirname "$0")/../lib.sh"
suite admin
have_cell || { skip all "needs a cell"; exit 0; }

# fails_with TEXT COMMAND...: it fails, and its error has the text.
fails_with() {
  local text=$1
  shift
  if "$@" >"$WORK/said" 2>&1; then say "was allowed: $*"; return 1; fi
  grep -qi -- "$text" "$WORK/said" || { say "\"$text\" is not in:"; cat "$WORK/said"; return 1; }
}

json() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

doctor_says_what_to_change() {
  "$LEE" doctor "$WORK/not/there/yet"
  [ "$("$LEE" doctor "$WORK" --json | json '["findings"][0]["what"]')" = fuse ]
  [ -z "$(find "$WORK" -maxdepth 1 -name '.lee-doctor*')" ]
  mkdir "$WORK/memory"
  mount -t tmpfs none "$WORK/memory" || return 0 # only root may
  on_exit "umount '$WORK/memory'"
  fails_with 'BAD.*is memory' "$LEE" doctor "$WORK/memory/cell"
  mount -o remount,ro "$WORK/memory"
  fails_with 'BAD.*read-only' "$LEE" doctor "$WORK/memory"
}

background_start_and_end() {
  local cell=$WORK/background port=$((26000 + $$ % 2000)) # below what the kernel gives to clients
  mkdir "$WORK/background-mnt"
  "$LEE" up "$cell" --mount "$WORK/background-mnt" --background --http "$port"
  on_exit "'$LEE' down '$cell'"
  mountpoint "$WORK/background-mnt"
  [ "$("$LEE" status "$cell" --json | json '["running"]')" = True ]
  fails_with "pid\|process" "$LEE" up "$cell"
  cat "$WORK/said"
  (cd "$WORK/background-mnt" && "$LEE" df && "$LEE" volume list)
  curl -s -o "$WORK/answer" "http://127.0.0.1:$port/nothing"
  "$LEE" down "$cell"
  "$LEE" report transfers --cell "$cell" --json | grep -F '"door":"http","ipv6":false,"requests":1,' >/dev/null
  if mountpoint -q "$WORK/background-mnt"; then return 1; fi
  "$LEE" status "$cell" || [ $? = 3 ]
}

# SIGTERM: what was written is there after the next start.
sigterm_is_a_clean_end() {
  head -c 3000000 /dev/urandom >"$MNT/kept"
  local sum pid
  sum=$(cksum <"$MNT/kept")
  pid=$(cell_pid)
  kill -TERM "$pid"
  wait_gone "$pid" 30
  if mountpoint -q "$MNT"; then return 1; fi
  cell_fsck
  cell_start
  [ "$(cksum <"$MNT/kept")" = "$sum" ]
  rm "$MNT/kept"
}

volumes() {
  lee volume create home
  lee volume create deep --at /home/deep
  mkdir "$MNT/home/dir"
  echo 1 >"$MNT/file"
  fails_with "cross-device\|EXDEV" ln "$MNT/file" "$MNT/home/link"
  fails_with "cross-device\|Invalid" python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$MNT/file" "$MNT/home/file"
  mv "$MNT/file" "$MNT/home/file" # mv copies then
  [ "$(cat "$MNT/home/file")" = 1 ]
  echo 2 >"$MNT/home/deep/file"
  fails_with "" rmdir "$MNT/home/deep"
  lee volume rename deep deeper
  lee volume list --json | json '["volumes"]' | grep -q deeper
  fails_with deep lee volume show deep
  cell_restart
  [ "$(cat "$MNT/home/deep/file")" = 2 ]
  lee volume remove deeper
  if [ -e "$MNT/home/deep" ]; then say "a removed volume is still there"; return 1; fi
  fails_with "" lee volume create home
  fails_with "" lee volume create again --at /no/such/place
  cell_fsck
}

quota_of_bytes() {
  lee volume create limited
  lee quota set limited --bytes 10M
  head -c 9M /dev/urandom >"$MNT/limited/first"
  fails_with "quota" dd if=/dev/urandom of="$MNT/limited/second" bs=64k count=64 conv=fsync status=none
  local bytes
  bytes=$(lee quota show limited --json | json '["used_bytes"]')
  say "used $bytes"
  [ "$bytes" -le $((10 << 20)) ]
  rm "$MNT/limited/second"
  head -c 1000 /dev/urandom >"$MNT/limited/third"
  # Growing a hole costs nothing, filling it does.
  truncate -s 1G "$MNT/limited/sparse"
  fails_with "quota" dd if=/dev/zero of="$MNT/limited/sparse" bs=1M count=4 conv=notrunc,fsync status=none
  fails_with "quota" fallocate -l 64M "$MNT/limited/allocated"
  lee quota set limited --bytes none
  head -c 4M /dev/urandom >"$MNT/limited/more"
}

quota_of_files_on_a_directory() {
  mkdir -p "$MNT/counted/below"
  lee quota set "$MNT/counted" --files 10
  local i made=0
  for i in $(seq 20); do
    if (: >"$MNT/counted/below/f$i") 2>/dev/null; then made=$((made + 1)); fi
  done
  [ "$made" = 9 ] || { say "$made files beside one directory, with a limit of 10"; return 1; }
  fails_with "quota" mkdir "$MNT/counted/dir"
  rm "$MNT/counted/below/f1"
  mkdir "$MNT/counted/dir"
  : >"$MNT/outside"
  fails_with "quota" mv -n "$MNT/outside" "$MNT/counted/"
}

# The statistics of a tree: at once, and equal to what a walk finds.
recursive_statistics() {
  mkdir -p "$MNT/tree/a/b/c"
  local i
  for i in $(seq 50); do head -c $((i * 1000)) /dev/urandom >"$MNT/tree/a/b/f$i"; done
  ln "$MNT/tree/a/b/f1" "$MNT/tree/a/link"
  ln -s nowhere "$MNT/tree/a/symlink"
  rm "$MNT/tree/a/b/f50"
  mv "$MNT/tree/a/b/f49" "$MNT/tree/"
  sync -f "$MNT"
  same_as_a_walk tree
  same_as_a_walk tree/a
  mv "$MNT/tree/a" "$MNT/tree-moved"
  same_as_a_walk tree
  same_as_a_walk tree-moved
}

computed() { getfattr --only-values --absolute-names -n "leeward.$2" "$MNT/$1"; }

same_as_a_walk() {
  local shown walked
  shown=$(lee du "/$1" --json | python3 -c 'import json, sys
u = json.load(sys.stdin)["paths"][0]
print(u["bytes"], u["files"], u["dirs"])')
  walked=$(python3 - "$MNT/$1" <<'PYTHON'
import os, stat, sys
seen, dirs = {}, 0
for top, below, names in os.walk(sys.argv[1]):
    dirs += len(below)
    for name in names:
        s = os.lstat(os.path.join(top, name))
        seen[s.st_ino] = s.st_size if stat.S_ISREG(s.st_mode) else 0  # no holes here: the size is what is allocated
print(sum(seen.values()), len(seen), dirs)
PYTHON
)
  say "$1: lee du $shown, a walk $walked"
  [ "$shown" = "$walked" ]
  [ "$(computed "$1" rbytes) $(computed "$1" rfiles) $(computed "$1" rdirs)" = "$walked" ]
}

# What operators do with snapshots, seen by users; and what is left of it after the server was killed.
snapshots() {
  lee volume create snapped
  lee quota set snapped --bytes 13M
  head -c 6M /dev/urandom >"$MNT/snapped/file"
  local sum
  sum=$(cksum <"$MNT/snapped/file")
  lee snap create "$MNT/snapped" first
  head -c 6M /dev/urandom >"$WORK/other"
  cp "$WORK/other" "$MNT/snapped/file"
  sync -f "$MNT"
  [ "$(lee snap list /snapped --json | json '["snapshots"][0]["alone_bytes"]')" = $((6 << 20)) ]
  lee volume set snapped quota-counts-snapshots=yes
  [ "$(lee quota show snapped --json | json '["used_bytes"]')" = $((12 << 20)) ]
  fails_with "quota" dd if=/dev/zero of="$MNT/snapped/more" bs=64k count=32 conv=fsync status=none
  rm "$MNT/snapped/more"
  lee snap lock /snapped first --until +1d
  local pid
  pid=$(cell_pid)
  kill -9 "$pid"
  wait_gone "$pid" 30
  cell_start
  fails_with "locked until" lee snap remove /snapped first
  fails_with "Operation not permitted" rmdir "$MNT/snapped/.snap/first"
  fails_with "first.*locked until" lee volume remove snapped
  [ "$(cksum <"$MNT/snapped/.snap/first/file")" = "$sum" ]
  [ "$(lee snap diff /snapped first)" = "M file" ]
  fails_with "in-place" lee snap restore /snapped first file
  lee volume set snapped quota-counts-snapshots=no
  lee snap restore /snapped first . --to /snapped/back
  cmp "$MNT/snapped/back/file" "$MNT/snapped/.snap/first/file"
  cell_fsck
}

# What was used in a time: by volume and by owner, for a person, for programs, as a page.
usage_is_reported() {
  local said
  lee volume create measured
  head -c 100000 /dev/urandom >"$MNT/measured/f"
  chown 12345 "$MNT/measured/f"
  sync -f "$MNT"
  said=$(lee report usage measured)
  grep -q '^measured  *root ' <<<"$said" || { echo "$said"; return 1; }
  [ "$(lee report usage --by user 12345 --json | json '["rows"][0]["end"]["files"]')" = 1 ]
  [ "$(lee report usage --by volume --csv | grep -c '^volumes,measured,root,0,100000,100000,')" = 1 ]
  [ "$(lee report usage measured --daily --csv | tail -1)" = 'now,measured,100000,1' ]
  lee report month --json | json '["parts"][0]["rows"][0]["name"]'
  said=$(lee report month --html)
  grep -q '<h2>Largest volumes</h2>' <<<"$said" && grep -q '<td class="w">measured</td>' <<<"$said"
  head -c 3000000 /dev/urandom >"$MNT/measured/g.Dat" # and is counted at once
  said=$(lee report census "$MNT/measured")
  grep -q '^/measured: 2 files with 3 MiB ' <<<"$said" && grep -q '^\.dat  *1  *2\.9 MiB' <<<"$said"
  [ "$(lee report census "$MNT/measured" --csv | grep -c '^owner,12345,1,100000,')" = 1 ]
  lee report census "$MNT/measured" --json | json '["by_age"][0]["files"]'
  said=$(lee report usage nothing 2>&1) && return 1
  grep -q 'nothing is kept of volume nothing' <<<"$said"
  lee volume remove measured
}

# One byte changed in the store: EIO on what it holds and nothing else, and fsck names it and says so by its status.
damage_is_found() {
  local i
  cell_restart
  mkdir "$MNT/damaged"
  for i in $(seq 200); do head -c 50000 /dev/urandom >"$MNT/damaged/f$i"; done
  sync -f "$MNT"
  cp -r "$MNT/damaged" "$WORK/undamaged"
  cell_stop
  python3 - "$CELL/data" "$WORK/undamaged/f100" <<'PYTHON'
import os, sys
with open(sys.argv[2], "rb") as file:
    middle = file.read()[25000:25064]  # random bytes are stored as they are
for top, _, names in os.walk(sys.argv[1]):
    for path in (os.path.join(top, name) for name in names):
        with open(path, "r+b") as file:
            at = file.read().find(middle)
            if at >= 0:
                file.seek(at)
                file.write(bytes([middle[0] ^ 0x40]))
                sys.exit(print("changed one byte of", path))
sys.exit("f100 is nowhere in the store")
PYTHON
  lee fsck >"$WORK/fsck" && { say "fsck says clean"; return 1; }
  # checksums are for blocks of 4 KiB: where two files meet in a block, both are lost
  local named
  grep -q damaged/f100: "$WORK/fsck" || { cat "$WORK/fsck"; return 1; }
  named=$(grep -c damaged/f "$WORK/fsck")
  [ "$named" = 1 ] || [ "$named" = 2 ] || { cat "$WORK/fsck"; return 1; }
  cell_start
  local bad=0
  for i in $(seq 200); do
    if cat "$MNT/damaged/f$i" >"$WORK/read" 2>"$WORK/error"; then
      cmp "$WORK/read" "$WORK/undamaged/f$i"
      continue
    fi
    grep -qi 'input/output error' "$WORK/error" || { say "f$i: not EIO but:"; cat "$WORK/error"; return 1; }
    grep -q "damaged/f$i:" "$WORK/fsck" || say "f$i gave EIO, fsck does not name it"
    bad=$((bad + 1))
  done
  [ "$bad" = "$named" ] || { say "$bad files gave EIO, fsck named $named"; return 1; }
  grep -q "damaged/f" "$WORK/lee.log" || { say "the log does not name the file"; return 1; }
  lee fsck --json >"$WORK/fsck.json" || true # 1: there are findings
  json '["findings"][0]["path"]' <"$WORK/fsck.json"
  rm -r "$MNT/damaged"
  lee sync
}

lee_binary
run doctor_says_what_to_change doctor_says_what_to_change
run background_start_and_end background_start_and_end
cell_start
run sigterm_is_a_clean_end sigterm_is_a_clean_end
cell_ensure
for name in volumes quota_of_bytes quota_of_files_on_a_directory recursive_statistics snapshots usage_is_reported damage_is_found; do
  run "$name" "$name"
  cell_ensure
done
suite_end
