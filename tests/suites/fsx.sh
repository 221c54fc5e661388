#!/usr/bin/env bash
# fsx, the file system exerciser: random reads, writes, mmap, truncates, holes and copies on one file, every read
# compared. Two run side by side, on files of their own, until FSX_SECONDS (default 70) are over: each takes the next
# profile and the next seed. To replay one: tests/suites/fsx.sh PROFILE SEED
. "$(dirname "$0")/../lib.sh"
suite fsx
{ [ "$CHANNEL" != two ] && [ "$CHANNEL" != shards ]; } || FSX_SECONDS=${FSX_SECONDS:-50}
FSX_SECONDS=${FSX_SECONDS:-70}
FSX_SEED=${FSX_SEED:-1}

# profile NAME: the configuration of fsx, and how many operations one run makes.
profile() {
  local flen=262144 max=65536 align=1 mapped=10 truncate=5 fallocate=3
  OPERATIONS=4000
  case $1 in
    mixed) ;;
    small) flen=20000 max=700 truncate=2 OPERATIONS=8000 ;;
    pages) flen=1048576 align=4096 fallocate=0 ;; # fsx would allocate no bytes at all, which is EINVAL
    large) flen=16777216 max=1048576 OPERATIONS=1200 ;;
    unmapped) mapped=0 truncate=10 ;;
    *) die "no profile $1" ;;
  esac
  cat >"$WORK/$1.toml" <<TOML
flen = $flen
[opsize]
max = $max
min = 1
align = $align
[weights]
close_open = 2
read = 10
write = 10
mapread = $mapped
mapwrite = $mapped
invalidate = 1
truncate = $truncate
fsync = 1
fdatasync = 1
posix_fallocate = $fallocate
punch_hole = 5
sendfile = 3
posix_fadvise = 1
copy_file_range = 5
TOML
}
PROFILES=(mixed small pages large unmapped)

# exercise PROFILE SEED
exercise() {
  local file=$TOP/fsx-$1-$2 log=$WORK/$1-$2.fsx
  mkdir -p "$WORK/failed"
  TWO_MOUNTS_FILES=1 by_turns "$TOOLS/fsx" -q -q -f "$WORK/$1.toml" -N "$OPERATIONS" -S "$2" -P "$WORK/failed" "$file" >"$log" 2>&1 || {
    tail -n 40 "$log"
    say "to replay it: tests/suites/fsx.sh $1 $2"
    return 1
  }
  rm "$file" "$log"
}

# lane FIRST: every second (profile, seed) pair from the FIRST on, until the time is over.
lane() {
  local i=$1 end=$((SECONDS + FSX_SECONDS)) operations=0 p
  while [ "$SECONDS" -lt "$end" ] || [ "$i" -lt "${#PROFILES[@]}" ]; do
    p=${PROFILES[$((i % ${#PROFILES[@]}))]}
    profile "$p"
    exercise "$p" $((FSX_SEED + i)) || return 1
    operations=$((operations + OPERATIONS))
    i=$((i + 2))
  done
  say "NOTE lane $1: $operations operations, profiles ${PROFILES[*]}, seeds $((FSX_SEED + $1)) to $((FSX_SEED + i - 2)), step 2"
}

both_lanes() {
  lane 0 >"$WORK/lane0" 2>&1 &
  local first=$! status=0
  lane 1 || status=$?
  wait "$first" || status=$?
  cat "$WORK/lane0"
  return "$status"
}

for p in "${PROFILES[@]}"; do profile "$p"; done
cell_start
if [ $# -eq 2 ]; then
  profile "$1"
  run "$1-$2" exercise "$1" "$2"
else
  run lanes both_lanes
  [ "$CHANNEL" != two ] || run both both_were_used
fi
suite_end
