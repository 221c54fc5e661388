#!/usr/bin/env bash
# The console in a real browser: the way in, every page, what users do with it, other sites, old sessions.
. "$(dirname "$0")/../lib.sh"
suite console
[ "$(id -u)" = 0 ] || die "needs root: it becomes other users"
have_cell || { skip all "needs a cell"; exit 0; }
PORT=$((22000 + $$ % 2000 * 2)) # below what the kernel gives to clients
BASE=http://127.0.0.1:$PORT
PROVIDER_PORT=$((PORT + 1))
ALICE=lee-alice BEA=lee-bea
BROWSER_TOOLS=$CARGO_TARGET_DIR/tools/browser # what pip installs

# as NAME COMMAND...: that user, in the mount.
as() { (cd "$MNT" && exec setpriv --reuid "$1" --regid "$1" --init-groups --inh-caps=-all --bounding-set=-all -- "${@:2}"); }
json() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

prepare() {
  for name in "$ALICE" "$BEA"; do user_account "$name"; done
  install -m 755 "$LEE" "$WORK/lee"
  LEE=$WORK/lee
  [ "$CHANNEL" != remote ] || return 0
  [ -d "$BROWSER_TOOLS/selenium" ] ||
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$BROWSER_TOOLS" selenium
  [ -d "$BROWSER_TOOLS/axe_playwright_python" ] ||
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$BROWSER_TOOLS" axe-playwright-python
}

# The cell as it was used on the days before this one, so that there is a history.
used_on_days_before() {
  local day clock
  clock=/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1
  for day in 5 4 3 2 1; do
    LD_PRELOAD=$clock FAKETIME=-${day}d cell_start
    [ -d "$MNT/mine" ] || lee volume create mine --at /mine --owner "$ALICE" >/dev/null
    wait_for 20 were_there "$day" $((5 - day))
    head -c 1M /dev/zero >"$MNT/mine/used-$day"
    cell_stop >/dev/null
  done
}
# were_there DAYS FILES: so many days ago, when the day began. A day that was not sampled yet has what the one before had.
were_there() {
  lee report usage --by volume --daily --from "$(date -u -d '6 days ago' +%F)" --json | grep -F "\"day\":\"$(date -u -d "$1 days ago" +%F)\",\"files\":$2," >/dev/null
}

# Each day tells what there was when it began.
days_are_reported() {
  local day
  for day in 4 3 2 1 0; do wait_for 20 were_there "$day" $((5 - day)); done
  lee report month >"$WORK/month"
  grep -F mine "$WORK/month" >/dev/null
}

furnish() {
  [ -d "$MNT/mine" ] || lee volume create mine --at /mine --owner "$ALICE" >/dev/null
  lee volume create theirs --at /theirs --owner "$BEA" >/dev/null
  lee volume set mine bin-days=7 >/dev/null
  as "$ALICE" sh -c "umask 077; mkdir mine/papers && echo 'years of work' >mine/papers/thesis.txt"
  as "$ALICE" touch "$MNT/mine/<img src=x onerror=document.title='run'>"
  as "$ALICE" sh -c "echo '<title>run</title><script>document.title = \"run\"</script>' >mine/page.html"
  as "$ALICE" "$LEE" snap create ./mine before >/dev/null
  as "$ALICE" sh -c "echo gone >\"mine/gone <img src=x onerror=document.title='run'>\""
  as "$ALICE" rm "$MNT/mine/gone <img src=x onerror=document.title='run'>"
}

# A provider where people log in, and the settings of the cell for it. Olga is an operator.
provider_start() {
  python3 "$ROOT/tests/tools/provider.py" "$WORK" "$PROVIDER_PORT" leeward 's:cret %' >"$WORK/provider.log" 2>&1 </dev/null &
  echo $! >"$WORK/provider.pid"
  disown
  on_exit 'kill $(cat "$WORK/provider.pid")'
  wait_for 20 curl -s -o /dev/null "http://127.0.0.1:$PROVIDER_PORT/jwk"
  mkdir -p "$CELL"
  echo 's:cret %' >"$WORK/secret"
  printf 'console-url = "%s"\n[console-login]\nurl = "http://127.0.0.1:%s/"\nname = "Example"\nclient-id = "leeward"\nsecret-file = "%s"\noperators = ["olga"]\n[console-login.users]\n"alice.adams" = "%s"\n' \
    "$BASE" "$PROVIDER_PORT" "$WORK/secret" "$ALICE" >"$CELL/leeward.toml"
}

# link [NAME]: a link of that user, or of an operator.
link() {
  if [ $# = 0 ]; then lee console --json | json '["urls"][0]'; else as "$1" "$LEE" console --json | json '["urls"][0]'; fi
}

# in_browser CASE LINK...
in_browser() {
  USER_NAME=$ALICE timeout -s KILL 300 python3 "$ROOT/tests/tools/console.py" "$WORK" "$BROWSER_TOOLS" "$BASE" "$MNT" "$@" >"$WORK/browser.log" 2>&1 ||
    { grep -vE '^#[0-9]+ 0x' "$WORK/browser.log"; return 1; }
  grep NOTE "$WORK/browser.log" || true
}

# enter LINK JAR: logs in as a browser does; prints the status.
enter() {
  curl -s -o "$WORK/out" -w '%{http_code}' -c "$2" -H "Origin: $BASE" -d "code=${1##*code=}" "$BASE/console/login"
}
# page JAR PATH: the status.
page() { curl -s -o "$WORK/out" -w '%{http_code}' -b "$1" "$BASE/console$2"; }

links_log_in() {
  local mine
  mine=$(link "$ALICE")
  [ "$(as "$ALICE" "$LEE" console --json | json '["user"]')" = "$ALICE" ]
  [ "$(enter "$mine" "$WORK/alice.jar")" = 303 ]
  [ "$(page "$WORK/alice.jar" /volume?name=mine)" = 200 ]
  [ "$(page "$WORK/alice.jar" /volume?name=theirs)" = 403 ]
  [ "$(page "$WORK/alice.jar" /machines)" = 403 ]
  # used up
  enter "$mine" "$WORK/again.jar" >/dev/null
  [ "$(page "$WORK/again.jar" /)" = 303 ]
  lee console | grep -F 'logs in as operator root, once, within 5 minutes' >/dev/null
  as "$ALICE" "$LEE" console | grep -F "logs in as $ALICE" >/dev/null
  # no secret is in the access log or in the log
  ! grep -rF "${mine##*code=}" "$CELL"/*.log "$WORK"/*.log
}

a_user_is_locked_out_at_once() {
  [ "$(enter "$(link "$BEA")" "$WORK/bea.jar")" = 303 ]
  [ "$(page "$WORK/bea.jar" /volumes)" = 200 ]
  lee user create "$BEA" >/dev/null 2>&1 || true
  lee user disable "$BEA" >/dev/null
  [ "$(page "$WORK/bea.jar" /volumes)" = 303 ]
  lee user enable "$BEA" >/dev/null
  [ "$(page "$WORK/bea.jar" /volumes)" = 303 ] # that session has ended
}

pages_are_used_in_a_browser() { in_browser every_page "$(link)"; }
pages_of_a_user_are() { in_browser every_page_of_a_user "$(link "$ALICE")"; }
a_user_restores_by_keyboard() { in_browser restored_by_keyboard "$(link "$ALICE")"; }
a_user_helps_himself() { in_browser a_user_helps_himself "$(link "$ALICE")"; }
it_works_by_keyboard() { in_browser by_keyboard "$(link)"; }
it_goes_on_by_itself() { in_browser it_goes_on_by_itself "$(link)"; }
other_sites_get_nothing() { in_browser another_site "$(link "$ALICE")"; }
people_log_in_at_the_provider() { in_browser at_the_provider; }
names_run_nothing() { in_browser names_run_nothing "$(link)"; }

a_restart_logs_out() {
  [ "$(enter "$(link)" "$WORK/op.jar")" = 303 ]
  cell_stop
  cell_start --http "$PORT"
  [ "$(page "$WORK/op.jar" /)" = 303 ]
}

it_can_be_left_out() {
  cell_stop
  sed -i '1i console = false' "$CELL/leeward.toml"
  cell_start --http "$PORT"
  lee console >"$WORK/said" 2>&1 && return 1
  grep -F 'there is no console' "$WORK/said"
  [ "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/console/login")" = 401 ]
}

links_from_another_machine() {
  local mine
  mine=$(link "$ALICE")
  [ "$(enter "$mine" "$WORK/alice.jar")" = 303 ]
  [ "$(page "$WORK/alice.jar" /volume?name=mine)" = 200 ]
  # root of another machine is no operator
  (cd "$MNT" && "$LEE" console >"$WORK/said" 2>&1) && return 1
  grep -F 'for operators' "$WORK/said"
  # the session ends when the machine is bounded
  "$LEE" host set machine --read-only --cell "$CELL" >/dev/null
  [ "$(page "$WORK/alice.jar" /volumes)" = 303 ]
  as "$ALICE" "$LEE" console >"$WORK/said" 2>&1 && return 1
  grep -F 'may not use all of the cell' "$WORK/said"
}

lee_binary
prepare
if [ "$CHANNEL" != remote ]; then
  provider_start
  used_on_days_before
fi
cell_start --http "$PORT"
furnish
if [ "$CHANNEL" = remote ]; then
  run links_from_another_machine links_from_another_machine
  suite_end
  exit
fi
run links_log_in links_log_in
run a_user_is_locked_out_at_once a_user_is_locked_out_at_once
run days_are_reported days_are_reported
run pages_are_used_in_a_browser pages_are_used_in_a_browser
run pages_of_a_user_are pages_of_a_user_are
run a_user_restores_by_keyboard a_user_restores_by_keyboard
run a_user_helps_himself a_user_helps_himself
run it_works_by_keyboard it_works_by_keyboard
run it_goes_on_by_itself it_goes_on_by_itself
run other_sites_get_nothing other_sites_get_nothing
run names_run_nothing names_run_nothing
run people_log_in_at_the_provider people_log_in_at_the_provider
if [ -n "${PICTURES:-}" ]; then run pictures in_browser pictures "$(link)"; fi
run a_restart_logs_out a_restart_logs_out
run it_can_be_left_out it_can_be_left_out
suite_end
