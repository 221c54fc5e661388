#!/usr/bin/env bash
# `lee probe` and `lee lab` on a real mount: what hangs is said, two users, snapshots, nothing left; and their pages in a browser. `lee lab s3` on
# a server that checks every signature.
. "$(dirname "$0")/../lib.sh"
suite lab
STORM_USER=61001 PROBE_USER=61002

nothing_left() { [ -z "$(find "$MNT" -mindepth 1 -maxdepth 1 -name '.lee-*')" ] || { ls -lA "$MNT"; return 1; }; }

# json FILE EXPRESSION: must hold; `it` is what the file has, `lines` each of its lines.
json() {
  python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
it = lines[0]
if not eval(sys.argv[2]):
    sys.exit(f"does not hold: {sys.argv[2]}\n{json.dumps(it)[:2000]}")' "$@"
}

probe_rounds() {
  "$LEE" probe "$MNT" --count 5 --every 50ms --json --history "$WORK/history" >"$WORK/rounds"
  json "$WORK/rounds" 'len(lines) == 5 and all(len(l["us"]) == 5 and "errors" not in l for l in lines)'
  nothing_left
}

# A server that does not answer: the probe says so while it lasts, ends when told, and goes on when it is over.
probe_says_what_hangs() {
  local server probe
  server=$(cell_pid)
  "$LEE" probe "$MNT" --every 50ms --deadline 1s --json --history "$WORK/history" >"$WORK/hung" &
  probe=$!
  wait_for 10 grep -q '"write"' "$WORK/hung"
  stop_process "$server"
  wait_for 20 grep -q '"stuck"' "$WORK/hung" || { kill -CONT "$server"; return 1; }
  sleep 1.2
  kill -CONT "$server"
  local before
  before=$(wc -l <"$WORK/hung")
  wait_for 20 eval "[ \$(wc -l <'$WORK/hung') -gt $((before + 3)) ]"
  kill -INT "$probe"
  wait "$probe"
  json "$WORK/hung" 'len({l["stuck"]["since_ms"] for l in lines if "stuck" in l}) == 1'
  json "$WORK/hung" 'max(l["stuck"]["for_s"] for l in lines if "stuck" in l) >= 2'
  json "$WORK/hung" 'max(max(l.get("us", {"": 0}).values()) for l in lines) >= 2e6 and "stuck" not in lines[-1]'
  nothing_left
}

two_users() {
  "$LEE" lab neighbours "$MNT" --each 1s --threads 4 --space 64M --storm-user "$STORM_USER" --probe-user "$PROBE_USER" \
    --storms create,write,rm --idle-baseline "$WORK" --report "$WORK/neighbours.html" --json >"$WORK/neighbours"
  json "$WORK/neighbours" 'it["users"] == [61001, 61002] and len(it["storms"]) == 3 and "left" not in it'
  json "$WORK/neighbours" 'all(s["did"]["ops"] > 0 and s["did"]["errors"] == 0 for s in it["storms"])'
  json "$WORK/neighbours" 'all(s["verdict"]["is"] in ("calm", "disturbed") for s in it["storms"])'
  json "$WORK/neighbours" 'all(len(s["here"]["ops"]) == 5 and len(s["elsewhere"]["ops"]) == 5 for s in it["storms"])'
  nothing_left
}

a_storm_of_snapshots() {
  "$LEE" lab neighbours "$MNT" --each 1s --threads 2 --space 16M --storms snap --json >"$WORK/snapshots"
  json "$WORK/snapshots" 'it["storms"][0]["did"]["ops"] > 0 and it["storms"][0]["did"]["errors"] == 0'
  nothing_left
  [ "$(lee snap list --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["snapshots"]))')" = 0 ]
}

phases_with_snapshots() {
  local suite
  for suite in md io; do
    "$LEE" lab "$suite" "$MNT" --seconds 1 --space 64M --threads 2 --snapshots --json >"$WORK/$suite"
    json "$WORK/$suite" 'it["mean"] > 0 and all(p["errors"] == 0 for p in it["phases"])'
    json "$WORK/$suite" 'all(p["snapshot_us"] > 0 for p in it["phases"][1:])'
  done
  nothing_left
}

ctrl_c_leaves_nothing() {
  local pid
  "$LEE" lab neighbours "$MNT" --each 60s --threads 4 --space 64M --storms create >"$WORK/stopped" 2>&1 &
  pid=$!
  sleep 1.5
  kill -INT "$pid"
  wait "$pid"
  grep -q 'stopped before its end' "$WORK/stopped"
  nothing_left
}

# s3_server OPTION...: starts one with its files in $WORK/s3, whose pid is in SERVER and port in PORT.
s3_server() {
  rm -rf "$WORK/s3"
  mkdir "$WORK/s3"
  python3 "$ROOT/tests/tools/s3_server.py" "$WORK/s3/port" --names "$WORK/s3/names" "$@" &
  SERVER=$!
  wait_for 20 test -s "$WORK/s3/port"
  PORT=$(cat "$WORK/s3/port")
  export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1
}

# s3_server_end: it ends, and had nothing left.
s3_server_end() {
  kill "$SERVER"
  wait "$SERVER" || return 1
  [ ! -s "$WORK/s3/names" ] || { head -3 "$WORK/s3/names"; return 1; }
}

s3_load() {
  s3_server
  "$LEE" lab s3 "http://127.0.0.1:$PORT/bucket/below" --connections 1,20 --requests 400 --each 60s --mix put=2,get=2,head=1,list=1 --size 4K=3,70K=1 \
    --processes 2 --idle 5 --server-pid "$SERVER" --json >"$WORK/s3-load"
  json "$WORK/s3-load" 'all(s["succeeded"] == 400 and s["failed"] == 0 and len(s["ops"]) == 4 for s in it["steps"])'
  json "$WORK/s3-load" 'it["holds"] == 20 and it["idle"]["open_in_the_end"] == 5 and "left" not in it'
  s3_server_end
}

# A profile in the URL says where and with which keys, whatever the environment has.
s3_load_by_profile() {
  s3_server
  printf '[north]\naws_access_key_id = test\naws_secret_access_key = secret\nendpoint_url = http://127.0.0.1:%s\nregion = us-east-1\n' "$PORT" >"$WORK/profiles"
  AWS_ACCESS_KEY_ID=wrong AWS_SECRET_ACCESS_KEY=wrong AWS_REGION=elsewhere AWS_SHARED_CREDENTIALS_FILE=$WORK/profiles \
    "$LEE" lab s3 's3://bucket/below?profile=north' --connections 2 --requests 20 --each 60s --json >"$WORK/s3-profile"
  json "$WORK/s3-profile" 'it["steps"][0]["succeeded"] == 20 and it["steps"][0]["failed"] == 0'
  s3_server_end
}

s3_load_finds_the_limit() {
  s3_server --connections-max 12
  "$LEE" lab s3 "http://127.0.0.1:$PORT/bucket" --from 2 --to 40 --requests 100 --each 60s --mix put --report "$WORK/s3.html" --json >"$WORK/s3-limit"
  # the server's thread of a connection that was closed ends a little later: of 12 some may be refused
  json "$WORK/s3-limit" '8 <= it["holds"] <= 12 and it["fails"] <= 16 and any("503" in s["errors"] for s in it["steps"])'
  s3_server_end
}

s3_load_by_tls() {
  local url
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
    -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
  s3_server --tls "$WORK/cert.pem" "$WORK/key.pem"
  url=https://localhost:$PORT/bucket
  "$LEE" lab s3 "$url" --ca "$WORK/cert.pem" --connections 4 --requests 100 --each 60s --size 1M --json >"$WORK/s3-tls"
  json "$WORK/s3-tls" 'it["steps"][0]["succeeded"] == 100 and it["steps"][0]["failed"] == 0'
  if "$LEE" lab s3 "$url" --connections 1 --requests 1 2>"$WORK/s3-untrusted"; then return 1; fi
  grep -q 'TLS.*--ca' "$WORK/s3-untrusted"
  AWS_SECRET_ACCESS_KEY=wrong "$LEE" lab s3 "$url" --ca "$WORK/cert.pem" 2>"$WORK/s3-refused" && return 1
  grep -q '403 (SignatureDoesNotMatch): check the keys' "$WORK/s3-refused"
  s3_server_end
}

s3_load_stops() {
  local pid
  s3_server
  "$LEE" lab s3 "http://127.0.0.1:$PORT/bucket" --connections 8 --each 60s --processes 2 >"$WORK/s3-stopped" 2>&1 &
  pid=$!
  sleep 2
  kill -INT "$pid"
  wait "$pid"
  grep -q 'stopped before its end' "$WORK/s3-stopped"
  s3_server_end
}

# In a browser: all that is drawn is within its chart, no text lies on another one, no script of ours or anybody's failed.
pages_render() {
  "$LEE" probe report --history "$WORK/history" --html "$WORK/probe.html" >/dev/null
  mkdir "$WORK/browser"
  python3 "$ROOT/tests/tools/pages.py" "$WORK/browser" "$WORK/neighbours.html:20" "$WORK/probe.html:10" "$WORK/s3.html:5"
}

if command -v chromium >/dev/null; then browser=1; else browser=; fi
lee_binary
cell_start
chmod 755 "$WORK"
run_in_cell probe_rounds probe_rounds
run_in_cell probe_says_what_hangs probe_says_what_hangs
run_in_cell two_users two_users
run_in_cell a_storm_of_snapshots a_storm_of_snapshots
run_in_cell phases_with_snapshots phases_with_snapshots
run_in_cell ctrl_c_leaves_nothing ctrl_c_leaves_nothing
run s3_load s3_load
run s3_load_by_profile s3_load_by_profile
run s3_load_finds_the_limit s3_load_finds_the_limit
run s3_load_by_tls s3_load_by_tls
run s3_load_stops s3_load_stops
if [ -n "$browser" ]; then run_in_cell pages_render pages_render; else skip pages_render "no chromium: apt-get install chromium"; fi
suite_end
