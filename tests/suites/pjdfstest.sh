#!/usr/bin/env bash
# pjdfstest, the POSIX conformance suite: every case has to pass, save those named in
# tests/known-failures/pjdfstest.txt, a list that may only shrink (a case on it that passes is a failure too).
. "$(dirname "$0")/../lib.sh"
suite pjdfstest

known_failures() { sed 's/#.*//; s/[[:space:]]//g; /^$/d; s/.*/    "&",/' "$ROOT/tests/known-failures/pjdfstest.txt"; }

# write_config FILE ALLOW-REMOUNT
write_config() {
  cat >"$1" <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01
allow_remount = $2
expected_failures = [
$(known_failures)
]

[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"]]
TOML
}

# The EROFS cases call mount(8) to remount read only. It would look for a helper of the file system's type (-i: without
# one, please), and the kernel says busy while the release of a file that was just closed and removed is on its way.
mount_wrapper() {
  mkdir "$WORK/bin"
  cat >"$WORK/bin/mount" <<WRAPPER
#!/bin/sh
for try in \$(seq 200); do
  $(command -v mount) -i "\$@" 2>/dev/null && exit 0
  sleep 0.05
done
exec $(command -v mount) -i "\$@"
WRAPPER
  chmod +x "$WORK/bin/mount"
}

# What is refused on one machine only, as no other knows of it: a program that is executed there, a directory where something
# is mounted. With two mounts these cases fail or not, as their calls fall.
OF_ONE_MACHINE='^(open::etxtbsy|truncate::etxtbsy|rmdir::ebusy)$'

# is_of_one_machine LOG: nothing else has failed.
is_of_one_machine() {
  [ "$CHANNEL" = two ] && grep '^Summary' "$1" >/dev/null || return 1
  ! awk '/ (FAILED|PASSED UNEXPECTEDLY)$/ { print $1 }' "$1" | grep -vE "$OF_ONE_MACHINE" >/dev/null
}

# pjdfstest ALLOW-REMOUNT SKIPS-ALLOWED [PATTERN...]; SKIPS-ALLOWED is a regular expression of case names.
pjdfstest() {
  local remount=$1 skips=$2 log=$WORK/pjdfstest.out skipped
  shift 2
  write_config "$WORK/pjdfstest.toml" "$remount"
  PATH=$WORK/bin:$PATH RUST_BACKTRACE=0 NO_COLOR=1 \
    by_turns "$TOOLS/pjdfstest" -c "$WORK/pjdfstest.toml" -p "$TOP" -s "$WORK/second" "$@" >"$log" 2>&1 || {
    is_of_one_machine "$log" || {
      grep -A 2 -E ' (FAILED|PASSED UNEXPECTEDLY)$' "$log"
      tail -n 2 "$log"
      return 1
    }
  }
  say "NOTE $(grep '^Summary' "$log")"
  skipped=$(awk '/ skipped$/ { print $1 }' "$log" | grep -vE "$skips" || true) # a case that is skipped tests nothing
  [ -z "$skipped" ] || { say "skipped: $skipped"; return 1; }
}

# All cases but those of a read-only mount. The C library does not know LINK_MAX of a FUSE file system.
main_cases() { pjdfstest false '::erofs_|^link::link_count_max$'; }

# pjdfstest leaves files open, which keep a file system from going read only: those cases have a process of their own.
read_only_cases() { pjdfstest true '^$' erofs; }

[ "$(id -u)" = 0 ] || die "needs root: it switches users"
user_account tests
mount_wrapper
cell_start
mkdir "$WORK/second"
mount -t tmpfs -o size=64m,mode=755 lee-second "$WORK/second" # another file system, for EXDEV
on_exit "umount '$WORK/second'"
FAIL_LINES=200 run main main_cases
if [ "$CHANNEL" = two ]; then
  run both both_were_used # a mount that goes read only does so alone
elif have_cell || [ -n "${ALLOW_REMOUNT:-}" ]; then
  run read_only read_only_cases
else
  skip read_only "the directory's file system stays as it is"
fi
suite_end
