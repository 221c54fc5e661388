#!/usr/bin/env bash
# The checks check: on the local disk, without a cell, notes of a writer hold; after each kind of damage they do not.
TARGET_DIR=${TMPDIR:-/var/tmp}
. "$(dirname "$0")/../lib.sh"
suite selfcheck
DURABLE=$ROOT/tests/tools/durable.py

verify() { python3 "$DURABLE" verify "$MNT" "$WORK/notes"; }

# enough: the writers got so far that each kind of damage has something to damage.
enough() {
  local notes=$WORK/notes/1
  awk '$2 > 10000 { found = 1 } END { exit !found }' "$notes.append" && [ "$(wc -l <"$notes.blocks")" -ge 2 ] && [ -s "$notes.replace" ] &&
    awk '{ n[$1]++ } END { exit !(n["moved"] && n["made"] > n["moving"] + n["removing"]) }' "$notes.names" && grep -q '^lazy3 ' "$notes.lazy"
}

write_and_verify() {
  mkdir "$WORK/notes"
  timeout -s KILL 60 python3 "$DURABLE" write "$MNT" "$WORK/notes" 1 &
  local writers=$! # a process group of their own
  until enough 2>/dev/null; do alive "$writers"; sleep 0.05; done
  kill -KILL -- "-$writers"
  wait "$writers" || [ $? = 137 ]
  # As if the crash came a minute later, so that the lazy worker's files count, too.
  awk '{ print $1 + 60 }' /proc/uptime >"$WORK/notes/1.killed"
  verify
}

# damage COMMAND: in a copy of what was written; the verifier has to complain.
damage() {
  cp -a "$MNT/1" "$MNT/kept"
  (cd "$MNT/1" && eval "$1")
  if verify; then say "the verifier did not see: $1"; return 1; fi
  rm -rf "$MNT/1"
  mv "$MNT/kept" "$MNT/1"
}

tree_same_sees() {
  mkdir -p "$WORK/x" && printf 1 >"$WORK/x/file" && cp -a "$WORK/x" "$WORK/y"
  tree_same "$WORK/x" "$WORK/y"
  chmod 600 "$WORK/y/file"
  ( tree_same "$WORK/x" "$WORK/y" ) && return 1
  cp -a "$WORK/x/file" "$WORK/y/file"
  touch -d @0.000000001 "$WORK/y/file"
  ( tree_same "$WORK/x" "$WORK/y" ) && return 1
  return 0
}

# A unit test that fails is counted once, and what it said is shown.
failed_test_is_shown() {
  mkdir "$WORK/bin"
  cat >"$WORK/bin/cargo" <<'END'
#!/bin/sh
case "$*" in *--no-run*) exit 0 ;; esac
printf '%s\n' "test good ... ok" "test bad ... FAILED" "---- bad stdout ----" "because" "test result: FAILED. 1 passed; 1 failed;"
exit 101
END
  chmod +x "$WORK/bin/cargo"
  local status=0
  PATH=$WORK/bin:$PATH "$ROOT/test" unit >"$WORK/unit.out" 2>&1 || status=$?
  [ "$status" = 1 ]
  grep -q '^because$' "$WORK/unit.out"
  [ "$(tail -n 1 "$WORK/unit.out")" = "1 passed, 1 failed" ]
}

cell_start
run notes_hold write_and_verify
run lost_tail damage 'truncate -s $(($(stat -c %s append/log) / 2)) append/log'
run lost_file damage 'rm -f append/log'
run changed_record damage 'printf X | dd of=append/log bs=1 seek=9999 conv=notrunc status=none'
run old_block damage 'dd if=/dev/zero of=blocks/blocks bs=4096 count=512 conv=notrunc status=none'
run torn_block damage 'printf X | dd of=blocks/blocks bs=1 seek=409600 conv=notrunc status=none'
run torn_document damage 'for f in replace/document?; do truncate -s -1 $f; done'
run lost_name damage 'rm -f names/a/*'
run name_came_back damage 'f=$(ls names/b | grep file | head -n 1); cp names/b/$f names/a/$f'
run lost_lazy damage 'rm -f lazy/lazy1'
run lost_link damage 'rm -f lazy/lazy3.link'
run tree_comparison tree_same_sees
run failed_unit_test failed_test_is_shown
suite_end
