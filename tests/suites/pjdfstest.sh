#!/usr/bin/env bash
# pjdfstest, the POSIX conformance suite: every case has to pass, save those named in
# tests/known-failures/pjdfstest.txt, a list that may only shrink (a case on it that passes is a failure too).
. "$(dirname "$0")/../lib.sh"
suite pjdfstest

known_failures() { sed 's/#.*//; s/[[:space:]]//g; /^$/d; s/.*/    "&",/' "$ROOT/tests/known-failures/pjdfstest.txt"; }

write_config() {
  local remount=false
  # The EROFS cases remount the file system read only: on a cell of our own we may.
  if have_cell || [ -n "${ALLOW_REMOUNT:-}" ]; then remount=true; fi
  cat >"$WORK/pjdfstest.toml" <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01
allow_remount = $remount
expected_failures = [
$(known_failures)
]

[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"]]
TOML
}

pjdfstest_case() {
  local log=$WORK/pjdfstest.out
  PATH=$WORK/bin:$PATH RUST_BACKTRACE=0 NO_COLOR=1 "$TOOLS/pjdfstest" -c "$WORK/pjdfstest.toml" -p "$MNT" -s "$WORK/second" >"$log" 2>&1 || {
    grep -A 2 -E ' (FAILED|PASSED UNEXPECTEDLY)$' "$log"
    tail -n 2 "$log"
    return 1
  }
  say "NOTE $(grep '^Summary' "$log")"
  # A case that is skipped tests nothing. The C library does not know LINK_MAX of a FUSE file system; no other may be.
  local skipped
  skipped=$(awk '/ skipped$/ { print $1 }' "$log" | grep -vx 'link::link_count_max' || true)
  if have_cell && [ -n "$skipped" ]; then say "skipped: $skipped"; return 1; fi
}

# The EROFS cases call mount(8) to remount read only. It would look for a helper of the file system's type (-i: without
# one, please), and the kernel says busy while the release of a file that was just closed and removed is on its way.
mount_wrapper() {
  mkdir "$WORK/bin"
  cat >"$WORK/bin/mount" <<WRAPPER
#!/bin/sh
for try in 1 2 3 4 5 6 7 8 9; do
  $(command -v mount) -i "\$@" 2>/dev/null && exit 0
  sleep 0.05
done
exec $(command -v mount) -i "\$@"
WRAPPER
  chmod +x "$WORK/bin/mount"
}

[ "$(id -u)" = 0 ] || die "needs root: it switches users"
getent passwd tests >/dev/null || useradd -r -U -M -d / -s /usr/sbin/nologin tests
write_config
mount_wrapper
cell_start
mkdir "$WORK/second"
mount -t tmpfs -o size=64m,mode=755 lee-second "$WORK/second" # another file system, for EXDEV
on_exit "umount '$WORK/second'"
FAIL_LINES=200 run all pjdfstest_case
suite_end
