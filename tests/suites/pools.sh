#!/usr/bin/env bash
# Pools through the mount: a 4+2 pool on six directories that loses two of them while files are written and read, stores
# drained and replaced, data moved from pool to pool under load, a pool that is away when the cell starts.
. "$(dirname "$0")/../lib.sh"
suite pools
have_cell || { skip all "needs a cell"; exit 0; }

STORES=$WORK/stores
FILES=${POOLS_FILES:-60} # of up to 1 MiB each

json() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

# fails_with TEXT COMMAND...: it fails, and its error has the text.
fails_with() {
  local text=$1
  shift
  if "$@" >"$WORK/said" 2>&1; then say "was allowed: $*"; return 1; fi
  grep -qi -- "$text" "$WORK/said" || { say "\"$text\" is not in:"; cat "$WORK/said"; return 1; }
}

# stores NAME...: new directories, each as --store DIR.
stores() { local n; for n in "$@"; do mkdir -p "$STORES/$n"; printf -- '--store %s ' "$STORES/$n"; done; }

# source_files DIR FROM TO: files whose content depends on their number, some of it compressible, and their sums.
source_files() {
  python3 - "$@" <<'PY'
import hashlib, random, sys
path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for n in range(first, last):
    r = random.Random(n)
    body = r.randbytes(r.randrange(1, 1 << 20)) if n % 3 else b"%d " % n * r.randrange(1, 100_000)
    with open(f"{path}/f{n}", "wb") as f:
        f.write(body)
    print(hashlib.sha256(body).hexdigest(), f"f{n}")
PY
}

# same DIR: its files are those that were written there.
same() { (cd "$1" && sha256sum --quiet --strict -c "$WORK/sums"); }

# cold: what was read before is not in memory any more.
cold() { cell_restart; }

health() { lee pool show "$1" --json | json "['health']['$2']"; }

# until_whole POOL: repaired, within a minute.
until_whole() {
  local tries
  for ((tries = 0; tries < 120; tries++)); do
    lee pool show "$1" --json >"$WORK/health.json"
    if python3 - "$WORK/health.json" "$2" <<'PY'
import json, sys
h = json.load(open(sys.argv[1]))["health"]
good = h and h["searched"] and not h["degraded_objects"] and not h["lost_objects"] and h["may_lose"] == int(sys.argv[2])
sys.exit(not good)
PY
    then return 0; fi
    sleep 0.5
  done
  lee pool show "$1"
  return 1
}

setup() {
  # shellcheck disable=SC2046 # options, one word each
  fails_with "force" lee pool create wide --layout 'erasure(4+2)' $(stores 0 1 2 3 4 5)
  # shellcheck disable=SC2046
  lee pool create wide --layout 'erasure(4+2)' --force $(stores 0 1 2 3 4 5)
  # shellcheck disable=SC2046
  lee pool create other $(stores other)
  fails_with "already" lee pool create again --store "$STORES/other"
  fails_with "layout" lee pool create again --layout nonsense --store "$WORK"
  lee volume create v --pool wide
  [ "$(getfattr --only-values -n leeward.pool "$MNT/v")" = wide ]
  source_files "$MNT/v" 0 "$FILES" >"$WORK/sums"
  lee sync
  same "$MNT/v"
  [ "$(health wide may_lose)" = 2 ]
  local n
  for n in 0 1 2 3 4 5; do [ "$(find "$STORES/$n" -type f | wc -l)" -gt 1 ]; done
  cold
  same "$MNT/v"
}

# Two directories are moved away while a writer writes and a reader reads; they come back with what they missed.
two_stores_die() {
  source_files "$MNT/v" "$FILES" $((2 * FILES)) >"$WORK/more" &
  local writer=$!
  (for _ in 1 2 3; do same "$MNT/v"; done) &
  local reader=$!
  sleep 0.3
  mv "$STORES/1" "$STORES/1.away"
  sleep 0.3
  mv "$STORES/4" "$STORES/4.away"
  wait "$writer"
  wait "$reader"
  cat "$WORK/more" >>"$WORK/sums"
  lee sync
  same "$MNT/v"
  # nothing was written where the stores were
  [ ! -e "$STORES/1" ] && [ ! -e "$STORES/4" ]
  # also when the cell starts without them
  cold
  same "$MNT/v"
  [ "$(health wide may_lose)" = 0 ]
  lee pool show wide
  mv "$STORES/1.away" "$STORES/1"
  mv "$STORES/4.away" "$STORES/4"
  until_whole wide 2
  lee scrub wide
  # now the others may go
  mv "$STORES/0" "$STORES/0.away"
  mv "$STORES/5" "$STORES/5.away"
  cold
  same "$MNT/v"
  mv "$STORES/0.away" "$STORES/0"
  mv "$STORES/5.away" "$STORES/5"
  until_whole wide 2
  lee fsck
}

bytes_rot() {
  local victim
  victim=$(find "$STORES/2" -type f -size +64k | sort | sed -n 1p)
  printf 'rotten' | dd of="$victim" bs=1 seek=20000 conv=notrunc status=none
  cold
  lee scrub wide --json >"$WORK/scrub.json"
  [ "$(json "['pools'][0]['repaired_objects']" <"$WORK/scrub.json")" -ge 1 ]
  lee scrub wide --json | json "['pools'][0]['bad_pieces']" | grep -qx 0
  same "$MNT/v"
}

scrub_by_the_clock() {
  local state="['pools'][1]['scrub']"
  lee scrub --every 30d | grep -q 'all pools every 30d'
  lee scrub wide --every 1w
  fails_with "interval" lee scrub --every often
  fails_with "too often" lee scrub --every 1m
  cell_kill9
  cell_start
  [ "$(lee scrub --status --json | json "${state}['every_secs']")" = 604800 ]
  [ "$(lee scrub --status --json | json "${state}['last']['found']['bad_pieces']")" = 0 ] # as bytes_rot left it
  lee scrub --status
  lee pool show wide | grep '^scrubbed .*all whole; every 1w: good'
  lee scrub --every never
  lee pool show wide | grep '^scrubbed .*all whole$'
}

swapped_and_foreign_stores() {
  cell_stop
  mv "$STORES/2" "$STORES/x"
  mv "$STORES/3" "$STORES/2"
  mv "$STORES/x" "$STORES/3"
  cell_start
  lee pool show wide | tee "$WORK/shown"
  grep -q swapped "$WORK/shown"
  same "$MNT/v"
  cell_stop
  mv "$STORES/2" "$STORES/x"
  mv "$STORES/3" "$STORES/2"
  mv "$STORES/x" "$STORES/3"
  cell_start
  until_whole wide 2
}

stores_change() {
  mkdir "$STORES/n0" "$STORES/n1"
  rm -rf "${STORES:?}/0"
  lee pool store replace wide 0 --by "$STORES/n0" --force
  until_whole wide 2
  lee pool store drain wide "$STORES/1" --to "$STORES/n1" --force
  local tries
  for ((tries = 0; tries < 60; tries++)); do
    if lee pool store remove wide "$STORES/1" >"$WORK/said" 2>&1; then break; fi
    sleep 0.5
  done
  until_whole wide 2
  [ -z "$(find "$STORES/1" -type f)" ]
  cold
  same "$MNT/v"
  lee fsck
}

# All goes to another pool while a writer goes on, with kill -9 on the way.
data_moves() {
  lee volume move-data v --to other --no-wait
  sleep 0.2
  cell_kill9
  cell_start
  source_files "$MNT/v" $((2 * FILES)) $((3 * FILES)) >"$WORK/more" &
  local writer=$!
  lee volume move-data v --to other
  wait "$writer"
  cat "$WORK/more" >>"$WORK/sums"
  lee volume move-data v --to other
  lee sync
  [ "$(lee pool show wide --json | json "['live_bytes']")" = 0 ]
  same "$MNT/v"
  cold
  same "$MNT/v"
  lee fsck
}

directories_choose() {
  mkdir "$MNT/v/d"
  setfattr -n leeward.pool -v wide "$MNT/v/d"
  mkdir "$MNT/v/d/sub"
  head -c 3000000 /dev/urandom >"$MNT/v/d/sub/file"
  [ "$(getfattr --only-values -n leeward.pool "$MNT/v/d/sub/file")" = wide ]
  lee sync
  [ "$(lee pool show wide --json | json "['live_bytes']")" = 3000000 ]
  rm -r "$MNT/v/d"
}

# A pool that is away: EIO for its data, by name in fsck, and nothing else is hurt; it comes back by itself.
a_pool_is_away() {
  cell_stop
  mv "$STORES/other" "$STORES/other.away"
  cell_start
  echo here >"$MNT/elsewhere"
  [ "$(cat "$MNT/elsewhere")" = here ]
  if cat "$MNT/v/f1" >/dev/null 2>"$WORK/said"; then return 1; fi
  grep -q "Input/output" "$WORK/said"
  lee pool list
  lee pool show other | grep -q away
  if lee fsck >"$WORK/lost"; then return 1; fi
  grep -q "/v/f1: " "$WORK/lost"
  if grep -q elsewhere "$WORK/lost"; then return 1; fi
  mv "$STORES/other.away" "$STORES/other"
  local tries
  for ((tries = 0; tries < 60; tries++)); do
    if cat "$MNT/v/f1" >/dev/null 2>&1; then break; fi
    sleep 0.5
  done
  same "$MNT/v"
  lee fsck
}

an_empty_pool_goes() {
  fails_with "move-data" lee pool remove other
  local tries
  for ((tries = 0; tries < 60; tries++)); do
    if lee pool remove wide >"$WORK/said" 2>&1; then break; fi
    sleep 0.5
  done
  cat "$WORK/said"
  lee pool list | tee "$WORK/shown"
  if grep -q wide "$WORK/shown"; then return 1; fi
  [ -z "$(find "$STORES" -path "$STORES/other" -prune -o -type f -print)" ]
}

cell_start
run setup setup
run two-stores-die two_stores_die
run bytes-rot bytes_rot
run scrub-by-the-clock scrub_by_the_clock
run swapped swapped_and_foreign_stores
run stores-change stores_change
run data-moves data_moves
run directories-choose directories_choose
run a-pool-is-away a_pool_is_away
run an-empty-pool-goes an_empty_pool_goes
suite_end
