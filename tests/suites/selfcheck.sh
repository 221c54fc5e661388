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

# The runner, with a cargo of our own

# cargo_of_our_own: says that it has built the programs in $WORK/programs.
cargo_of_our_own() {
  rm -rf "$WORK"/{bin,programs,tree,events,pids}
  mkdir -p "$WORK/bin" "$WORK/programs"
  cat >"$WORK/bin/cargo" <<END
#!/bin/bash
case "\$*" in
  *--no-run*)
    for program in "$WORK"/programs/*; do
      echo '{"reason":"compiler-artifact","manifest_path":"$WORK/Cargo.toml","target":{"src_path":"'\$program'"},"profile":{"test":true},"executable":"'\$program'"}'
    done ;;
  *--doc*) cat "$WORK/doc" ;;
  install*) [ -z "\${BUILD_SLEEPS:-}" ] || { echo "\$\$" >>"$WORK/pids"; sleep "\$BUILD_SLEEPS"; } ;;
esac
END
  chmod +x "$WORK/bin/cargo"
  echo 'test result: ok. 0 passed; 0 failed; 0 ignored;' >"$WORK/doc"
}

# program NAME: a test program that does what the input says.
program() { { echo '#!/bin/bash'; cat; } >"$WORK/programs/$1" && chmod +x "$WORK/programs/$1"; }

# unit_says STATUS LAST-LINE: `./test unit` ends so.
unit_says() {
  local status=0
  KEEP='' PATH=$WORK/bin:$PATH UNIT_AT_ONCE=2 UNIT_SECONDS_MAX=3 "$ROOT/test" unit >"$WORK/unit.out" 2>&1 || status=$?
  cat "$WORK/unit.out"
  [ "$status" = "$1" ]
  [ "$(tail -n 1 "$WORK/unit.out")" = "$2" ]
}

# A unit test that fails is counted once, and what it said is shown.
failed_test_is_shown() {
  cargo_of_our_own
  program good <<<'echo "test result: ok. 2 passed; 0 failed;"'
  program bad <<<'printf "%s\n" "test good ... ok" "test bad ... FAILED" "because" "test result: FAILED. 1 passed; 1 failed;"; exit 101'
  unit_says 1 '3 passed, 1 failed'
  grep -q '| because$' "$WORK/unit.out"
  if grep -q 'test good' "$WORK/unit.out"; then return 1; fi
}

# Two that wait for each other: they run at the same time.
tests_run_beside_each_other() {
  cargo_of_our_own
  mkfifo "$WORK/met"
  program one <<<"echo >'$WORK/met'; echo 'test result: ok. 1 passed; 0 failed;'"
  program two <<<"read -r <'$WORK/met'; echo 'test result: ok. 1 passed; 0 failed;'"
  unit_says 0 '2 passed, 0 failed'
}

# What hangs is ended with what it started; what ends without a word, or by a signal, has failed; so has a doc test that says so.
tests_that_do_not_end_well() {
  cargo_of_our_own
  program hangs <<<"sleep 1000 & echo \$! >'$WORK/child'; wait"
  program silent <<<'exit 0'
  program killed <<<'echo "test result: ok. 1 passed; 0 failed;"; kill -ABRT $$'
  echo 'test result: FAILED. 0 passed; 1 failed;' >"$WORK/doc"
  unit_says 1 '1 passed, 4 failed'
  grep -q '^FAIL unit .*hangs: not done after 3 s' "$WORK/unit.out"
  wait_gone "$(cat "$WORK/child")" 5
}

# tree_of_our_own: the runner with suites that only note their begin and end; `posix` fails.
tree_of_our_own() {
  local name
  cargo_of_our_own
  program good <<<'echo "test result: ok. 1 passed; 0 failed;"'
  mkdir -p "$WORK/tree/tests/suites" "$WORK/tree/target/tools/bin" "$WORK/tree/tmp"
  cp "$ROOT/test" "$WORK/tree" && cp "$ROOT/tests/lib.sh" "$WORK/tree/tests" && cp -r "$ROOT/tests/tools" "$WORK/tree/tests"
  ln -s "$ROOT/crates" "$WORK/tree"
  for name in pjdfstest fsx versitygw s5cmd cargo-deny; do ln -s /bin/true "$WORK/tree/target/tools/bin/$name"; done
  cat >"$WORK/suite" <<END
#!/bin/bash
name=\$(basename "\$0" .sh)\${CHANNEL:+:\$CHANNEL}
echo "begin \$name" >>"$WORK/events"
echo "\$\$" >>"$WORK/pids"
echo "PASS \$name/1"
sleep "\${SUITE_SLEEPS:-0.05}"
[ "\$name" != posix ] || { echo "FAIL \$name/2"; status=1; }
echo "PASS \$name/3"
echo "end \$name" >>"$WORK/events"
exit \${status:-0}
END
  chmod +x "$WORK/suite"
  for name in "$ROOT"/tests/suites/*; do ln -s "$WORK/suite" "$WORK/tree/tests/suites/${name##*/}"; done
  RUNNER=(env KEEP= PATH="$WORK/bin:$PATH" CARGO_TARGET_DIR="$WORK/tree/target" SUITES_TMP="$WORK/tree/tmp")
}

# All suites run, each once, and the output of each is whole; three at a time, but those that must be alone are.
suites_run_beside_each_other() {
  local status=0
  tree_of_our_own
  "${RUNNER[@]}" LEE= "$WORK/tree/test" >"$WORK/all.out" 2>&1 || status=$?
  cat "$WORK/all.out"
  [ "$status" = 1 ]
  python3 - "$WORK/events" "$WORK/all.out" "$ROOT"/tests/suites/*.sh <<'PYTHON'
import re, sys
from pathlib import Path

alone, classes = {"lab", "programs", "stress", "machines"}, [{"s3", "dav", "rgw", "versitygw", "package"}, {"groups", "console"}]
ran, now, most = [], [], 0
for what, name in map(str.split, open(sys.argv[1])):
    if what == "end":
        now.remove(name)
        continue
    now.append(name)
    ran.append(name)
    most = max(most, len(now))
    kinds = [other.split(":")[0] for other in now]
    assert len(now) == 1 or not alone & set(kinds), now
    assert all(sum(kind in one_at_a_time for kind in kinds) <= 1 for one_at_a_time in classes), now
assert len(set(ran)) == len(ran) and most == 3, (ran, most)
assert {name.split(":")[0] for name in ran} == {Path(suite).stem for suite in sys.argv[3:]}, ran
said = Path(sys.argv[2]).read_text()
for name in ran:
    failed = "FAIL posix/2\n" if name == "posix" else ""
    assert re.search(rf"^== {name} \(at .*\) ==\nPASS {name}/1\n{failed}PASS {name}/3\n", said, re.M), name
# besides the suites: fmt, structure, prose, clippy, a unit test, deny
assert said.endswith(f"\nFAIL posix/2\n{2 * len(ran) + 6} passed, 1 failed\n"), said[-200:]
PYTHON
}

# ends_all VARIABLE=VALUE...: with these, when two processes run that have noted themselves, the runner is ended; then all is gone.
ends_all() {
  local runner pid
  "${RUNNER[@]}" LEE= "$@" "$WORK/tree/test" >"$WORK/ended.out" 2>&1 &
  runner=$!
  wait_for 120 two_noted || { cat "$WORK/ended.out"; return 1; }
  kill "$runner"
  wait "$runner" || [ $? = 143 ]
  for pid in $(cat "$WORK/pids"); do wait_gone "$pid" 10 || { say "$pid is there"; return 1; }; done
  [ -z "$(ls -A "$WORK/tree/tmp")" ]
}
two_noted() { [ "$(cat "$WORK/pids" 2>/dev/null | wc -l)" -ge 2 ]; }

runner_is_ended_in_suites() {
  tree_of_our_own
  ends_all SUITE_SLEEPS=1000
}

# While a test runs, and a tool is built beside it.
runner_is_ended_in_unit() {
  tree_of_our_own
  rm "$WORK/tree/target/tools/bin/cargo-deny"
  program hangs <<<"echo \$\$ >>'$WORK/pids'; sleep 1000"
  ends_all BUILD_SLEEPS=1000
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
run tests_beside tests_run_beside_each_other
run tests_badly_ended tests_that_do_not_end_well
run suites_beside suites_run_beside_each_other
run ended_in_suites runner_is_ended_in_suites
run ended_in_unit runner_is_ended_in_unit
suite_end
