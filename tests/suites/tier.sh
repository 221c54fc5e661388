#!/usr/bin/env bash
# A hot pool of two small disks in front of a cold one, through the mount: data is flushed and evicted and read back, lee is killed in the
# middle of that, the cold pool is gone until the hot one is full, and all of it comes to order again.
. "$(dirname "$0")/../lib.sh"
suite tier
[ "$(id -u)" = 0 ] || die "needs root: it mounts disk images"
have_cell || { skip all "needs a cell"; exit 0; }

HOT_MIB=300
COLD=$WORK/cold
DURABLE=$ROOT/tests/tools/durable.py
FILL=$ROOT/tests/tools/fill.py

# tier FIELD: of the health of the tier.
tier() { lee pool show cold --json | python3 -c "import json, sys; print(json.load(sys.stdin)['health']['tier']['$1'])"; }

# until_so SECONDS COMMAND...: it succeeds within that time.
until_so() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || { say "not so in time: $*"; lee pool show cold; return 1; }
    sleep 0.2
  done
}

nothing_to_flush() { [ "$(tier searched)" = True ] && [ "$(tier unflushed_objects)" = 0 ]; }
is_evicted() { [ "$(tier hot_used_percent)" -le 40 ]; }
flush_fails() { [ -n "$(tier last_error)" ]; }
flush_works() { ! flush_fails; }

# files DIR FROM TO: of 1 MiB, incompressible, and their sums.
files() {
  python3 - "$@" <<'PY'
import hashlib, random, sys
path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for n in range(first, last):
    body = random.Random(n).randbytes(1 << 20)
    with open(f"{path}/f{n}", "wb") as f:
        f.write(body)
    print(hashlib.sha256(body).hexdigest(), f"f{n}")
PY
}
same() { (cd "$MNT/v" && sha256sum --quiet --strict -c "$WORK/sums"); }

disks() {
  local n
  for n in 0 1; do
    truncate -s "${HOT_MIB}M" "$WORK/hot$n.img"
    mkfs.ext4 -q -m 0 "$WORK/hot$n.img"
    mkdir "$WORK/hot$n"
    mount -o loop "$WORK/hot$n.img" "$WORK/hot$n"
    mkdir "$WORK/hot$n/store"
  done
}

setup() {
  mkdir -p "$COLD"/{0,1,2}
  lee pool create cold --layout 'erasure(2+1)' --force --store "$COLD/0" --store "$COLD/1" --store "$COLD/2"
  lee pool create hot --layout 'replica(2)' --store "$WORK/hot0/store" --store "$WORK/hot1/store"
  lee pool tier cold --hot hot --flush 20 --evict 40
  lee volume create v --pool cold
  lee volume create durable --pool cold
  lee volume create late --pool cold
}

# More goes through the hot pool than stays there, and all of it can be read, also by another process.
fill_flush_evict() {
  files "$MNT/v" 0 200 >"$WORK/sums"
  lee sync
  until_so 60 nothing_to_flush
  until_so 60 is_evicted
  same
  cell_restart
  same
  say "NOTE hot pool $(tier hot_used_percent) % full, $(find "$COLD/0" -type f | wc -l) objects are cold"
  lee fsck
}

# lee is killed while it flushes and evicts: every promise is kept.
killed_in_the_middle() {
  local round writer
  mkdir "$WORK/notes"
  for round in 1 2 3; do
    python3 "$DURABLE" write "$MNT/durable" "$WORK/notes" "$round" &
    writer=$!
    files "$MNT/v" $((200 + 40 * round)) $((240 + 40 * round)) >"$WORK/more" 2>/dev/null &
    local filler=$!
    sleep "1.$((3 * round))"
    alive "$writer" || { say "the writers ended before lee was killed"; return 1; }
    cut -d ' ' -f 1 /proc/uptime >"$WORK/notes/$round.killed"
    cell_kill9
    wait_gone "$writer" 30 || { kill -9 $(pgrep -P "$writer") "$writer"; return 1; }
    wait "$writer" || { say "a writer failed before lee was killed"; return 1; }
    wait "$filler" || true
    cell_start
    python3 "$DURABLE" verify "$MNT/durable" "$WORK/notes"
    same
  done
  lee fsck
}

# Its stores are gone: what is hot is read and written until the hot pool is full, also by another process, and removing works.
cold_is_dead() {
  lee sync
  until_so 60 nothing_to_flush
  mv "$COLD" "$COLD.away"
  python3 "$FILL" fill "$MNT/late" "$WORK/late" late 1048576
  [ "$(tier hot_used_percent)" -ge 90 ]
  until_so 60 flush_fails
  python3 "$FILL" check "$MNT/late" "$WORK/late"
  cell_kill9
  cell_start
  python3 "$FILL" check "$MNT/late" "$WORK/late"
  python3 "$FILL" remove "$MNT/late" "$WORK/late" 20
  [ ! -e "$COLD" ]
  say "NOTE the hot pool took $(wc -l <"$WORK/late") MiB more while the cold one was gone"
}

cold_is_back() {
  mv "$COLD.away" "$COLD"
  until_so 60 flush_works
  python3 "$FILL" resume "$MNT/late" "$WORK/late" 60
  lee sync
  until_so 90 nothing_to_flush
  until_so 60 is_evicted
  python3 "$FILL" check "$MNT/late" "$WORK/late"
  same
  python3 "$DURABLE" verify "$MNT/durable" "$WORK/notes"
  lee fsck
}

# The tier ends while it is used; nothing is left on the hot disks.
tier_ends() {
  lee pool tier cold --none
  cell_restart
  same
  python3 "$FILL" check "$MNT/late" "$WORK/late"
  lee pool remove hot
  [ -z "$(find "$WORK"/hot?/store -type f)" ]
}

on_exit "umount '$WORK/hot0' '$WORK/hot1' || umount -l '$WORK/hot0' '$WORK/hot1'"
run disks disks
cell_start
run setup setup
run fill-flush-evict fill_flush_evict
cell_ensure
run killed-in-the-middle killed_in_the_middle
cell_ensure
run cold-is-dead cold_is_dead
cell_ensure
run cold-is-back cold_is_back
cell_ensure
run tier-ends tier_ends
suite_end
