#!/usr/bin/env bash
# Cleaning gives space back by itself: of SPACE_FILES (default 40000) small files of random bytes 90 % are removed at
# random, and within a minute of idle time the cell takes at most 1.3 times what is live,
# besides the little that every cell takes.
. "$(dirname "$0")/../lib.sh"
suite space
SPACE_FILES=${SPACE_FILES:-40000}
IDLE_SECONDS=60
RECORD_BYTES=512 # what the metadata of one live file may take: its inode, its name, its place in a segment
FIXED_BYTES=$((16 << 20)) # what every cell takes: two journal files, the reserve for a full disk
have_cell || { skip all "needs a cell"; exit 0; }

# files WHAT: `make` prints the bytes of the files made; `thin` removes 90 % and prints the bytes that stay.
files() {
  python3 - "$1" "$MNT" "$SPACE_FILES" <<'PYTHON'
import os, random, sys
what, top, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng, per_dir, total = random.Random(7), 1000, 0
sizes = [rng.randrange(100, 30000) for _ in range(count)]
stay = set(rng.sample(range(count), count // 10))
for i, size in enumerate(sizes):
    path = f"{top}/d{i // per_dir}/f{i}"
    if what == "make":
        if i % per_dir == 0:
            os.mkdir(f"{top}/d{i // per_dir}")
        with open(path, "wb") as file:
            file.write(rng.randbytes(size))
        total += size
    elif i in stay:
        total += size
    else:
        os.unlink(path)
print(total)
PYTHON
}

cell_bytes() { du -sB1 --exclude="$MNT" "$CELL" | cut -f 1; }

make_files() {
  local bytes
  bytes=$(files make)
  lee sync
  say "NOTE $SPACE_FILES files of $bytes bytes in all; the cell takes $(cell_bytes)"
}

space_comes_back() {
  local live limit taken start=$SECONDS
  live=$(files thin)
  limit=$(((live + SPACE_FILES / 10 * RECORD_BYTES) * 13 / 10 + FIXED_BYTES))
  say "removal took $((SECONDS - start)) s; live $live bytes, limit $limit"
  start=$SECONDS
  while taken=$(cell_bytes); [ "$taken" -gt "$limit" ]; do
    if [ $((SECONDS - start)) -gt "$IDLE_SECONDS" ]; then
      say "after $IDLE_SECONDS s the cell takes $taken bytes, $(ratio "$taken" "$live") times what is live"
      lee df
      return 1
    fi
    sleep 1
  done
  say "NOTE after $((SECONDS - start)) s the cell takes $taken bytes, $(ratio "$taken" "$live") times what is live"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

all_removed() {
  rm -rf "$MNT"/d*
  local limit=$((2 * FIXED_BYTES)) start=$SECONDS taken
  while taken=$(cell_bytes); [ "$taken" -gt "$limit" ]; do
    [ $((SECONDS - start)) -le "$IDLE_SECONDS" ] || { say "an empty cell takes $taken bytes"; lee df; return 1; }
    sleep 1
  done
  say "NOTE an empty cell takes $taken bytes"
}

cell_start
run make_files make_files
run space_comes_back space_comes_back
run still_clean cell_fsck
run all_removed all_removed
suite_end
