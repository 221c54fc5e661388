#!/usr/bin/env bash
# The HTTP door as clients see it: curl, litmus, cadaver, rclone, davix, gfal2 and Rucio's class for WebDAV, against two cells that copy files
# to each other.
. "$(dirname "$0")/../lib.sh"
suite dav
have_cell || { skip all "needs a cell"; exit 0; }

PORT=$((20000 + $$ % 1000 * 2)) # all four below what the kernel gives to clients
URL=http://127.0.0.1:$PORT
OTHER=$WORK/other
OTHER_PORT=$((PORT + 4000))
OTHER_URL=https://127.0.0.1:$OTHER_PORT # the other cell speaks TLS
ISSUER_PORT=$((PORT + 8000))
METRICS_PORT=$((PORT + 4001))

PYTHON=$CARGO_TARGET_DIR/tools/rucio # what pip installs
export GFAL_PYTHONBIN=/usr/bin/python3 # whose modules its package brings
export CURL_CA_BUNDLE=$WORK/ca.crt

have() { command -v "$1" >/dev/null; }

# What is missing is installed by name; what cannot be had is skipped, each client by itself.
clients() {
  local pair missing=()
  [ -e "$PYTHON/rucio/__init__.py" ] ||
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$PYTHON" rucio-clients
  for pair in litmus:litmus cadaver:cadaver davix-put:davix rclone:rclone gfal-copy:gfal2-util-scripts openssl:openssl xxd:xxd; do
    have "${pair%:*}" || missing+=("${pair#*:}")
  done
  [[ " ${missing[*]} " != *gfal2* ]] || missing+=(gfal2-plugin-http python3-gfal2)
  [ "${#missing[@]}" -eq 0 ] || apt-get install -qq -y --no-install-recommends "${missing[@]}" ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; }
}

# A user of both cells with a home, and keys.
people() {
  local cell key
  for cell in "$CELL" "$OTHER"; do
    "$LEE" user create worker --uid 1234 --gid 1234 --cell "$cell" >/dev/null
    "$LEE" volume create home --at /home --owner 1234 --cell "$cell" >/dev/null
    key=$("$LEE" key create worker --json --cell "$cell")
    name_of "$key" >>"$WORK/keys"
  done
}
name_of() { python3 -c 'import json, sys; k = json.loads(sys.argv[1]); k = k.get("key", k); print(k["access_key_id"], k["secret_access_key"])' "$1"; }
token() { "$LEE" token create worker --path / --read --write --for 1h --json --cell "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])'; }

other_start() {
  mkdir -p "$OTHER" && : >"$WORK/other.started"
  "$LEE" up "$OTHER" --http "$OTHER_PORT" --tls-certificate "$WORK/other.crt" --tls-key "$WORK/other.key" >"$WORK/other.started" 2>>"$WORK/other.log" </dev/null &
  local pid=$! tries=1500
  echo "$pid" >"$WORK/other.pid"
  disown "$pid"
  on_exit 'kill $(cat "$WORK/other.pid"); wait_gone $(cat "$WORK/other.pid") 30 || kill -9 $(cat "$WORK/other.pid"); umount -l "$OTHER/mnt"'
  until grep -q 'is mounted at' "$WORK/other.started"; do
    alive "$pid" || { tail "$WORK/other.log"; return 1; }
    tries=$((tries - 1)) && [ "$tries" -gt 0 ] || return 1
    sleep 0.02
  done
}

# A certificate for the other cell by somebody whom the first one trusts.
certificate() {
  local sign=(openssl req -x509 -newkey rsa:2048 -nodes -days 2)
  "${sign[@]}" -keyout "$WORK/ca.key" -out "$WORK/ca.crt" -subj /CN=ca
  "${sign[@]}" -keyout "$WORK/other.key" -out "$WORK/other.crt" -CA "$WORK/ca.crt" -CAkey "$WORK/ca.key" -subj /CN=other \
    -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=CA:FALSE
} 2>/dev/null

issuer_start() {
  python3 "$ROOT/tests/tools/issuer.py" serve "$WORK" "$ISSUER_PORT" >"$WORK/issuer.log" 2>&1 </dev/null &
  local pid=$!
  echo "$pid" >"$WORK/issuer.pid"
  disown "$pid"
  on_exit 'kill $(cat "$WORK/issuer.pid")'
  local cell
  for cell in "$CELL" "$OTHER"; do
    mkdir -p "$cell"
    printf 'transfers-local = true\ntls-trusted = "%s"\n[[issuer]]\nurl = "http://127.0.0.1:%s/"\nbase-paths = ["/"]\nuser = "worker"\n' "$WORK/ca.crt" "$ISSUER_PORT" >"$cell/leeward.toml"
  done
}

# Every scope by whole names, and every token that must not be believed.
scopes() {
  local status
  ask() { curl -s -o "$WORK/out" -w '%{http_code}' -H "Authorization: Bearer $(issuer_token "$1")" "${@:2}"; }
  curl -sSf -u "$KEY" -X MKCOL "$URL/home/foo"
  curl -sSf -u "$KEY" -X MKCOL "$URL/home/foobar"
  curl -sSf -u "$KEY" -T "$WORK/data" "$URL/home/foo/f"
  curl -sSf -u "$KEY" -T "$WORK/data" "$URL/home/foobar/f"
  [ "$(ask '{"scope": "storage.read:/home/foo"}' "$URL/home/foo/f")" = 200 ]
  [ "$(ask '{"scope": "storage.read:/home/foo"}' "$URL/home/foobar/f")" = 403 ]
  [ "$(ask '{"scope": "storage.read:/home/foo"}' -T "$WORK/data" "$URL/home/foo/g")" = 403 ]
  [ "$(ask '{"scope": "storage.create:/home/foo"}' -T "$WORK/data" "$URL/home/foo/g")" = 201 ]
  [ "$(ask '{"scope": "storage.create:/home/foo"}' -T "$WORK/data" "$URL/home/foo/g")" = 403 ]
  [ "$(ask '{"scope": "storage.modify:/home/foo"}' -T "$WORK/data" "$URL/home/foo/g")" = 204 ]
  [ "$(ask '{"scope": "storage.read:/home/foo"}' --path-as-is "$URL/home/foo/../foobar/f")" = 400 ]
  for bad in '{"aud": "https://elsewhere"}' '{"exp": 1000000000}' '{"nbf": 9000000000}' '{"iss": "https://unknown/"}' \
    '{"scope": "storage.read"}' '{"wlcg.ver": "2.0"}'; do
    status=$(ask "$bad" "$URL/home/foo/f")
    [ "$status" = 401 ] || { echo "$bad: $status"; return 1; }
  done
}

curl_basics() {
  head -c 3000000 /dev/urandom >"$WORK/data"
  curl -sSf -u "$KEY" -T "$WORK/data" "$URL/home/data"
  cmp "$WORK/data" "$MNT/home/data"
  curl -sSf -u "$KEY" "$URL/home/data" | cmp - "$WORK/data"
  curl -sSf -u "$KEY" -r 1000-1999 "$URL/home/data" | cmp - <(tail -c +1001 "$WORK/data" | head -c 1000)
  echo hello >"$MNT/home/by-mount"
  chown 1234:1234 "$MNT/home/by-mount"
  [ "$(curl -sSf -u "$KEY" "$URL/home/by-mount")" = hello ]
  curl -sSf -u "$KEY" "$URL/home/" | grep by-mount >/dev/null
  [ "$(curl -s -o "$WORK/out" -w '%{http_code}' "$URL/home/data")" = 401 ]
  [ "$(curl -s -o "$WORK/out" -w '%{http_code}' --path-as-is -u "$KEY" "$URL/home/../../etc/passwd")" = 400 ]
}

curl_digests() {
  local adler md5
  adler=$(python3 -c 'import sys, zlib; print("%08x" % zlib.adler32(open(sys.argv[1], "rb").read()))' "$WORK/data")
  md5=$(md5sum "$WORK/data" | cut -d' ' -f1 | xxd -r -p | base64)
  curl -sSf -I -u "$KEY" -H 'Want-Digest: adler32,md5' "$URL/home/data" | tr -d '\r' | grep -ix "digest: adler32=$adler,md5=$md5"
  printf more >>"$MNT/home/data"
  printf more >>"$WORK/data"
  adler=$(python3 -c 'import sys, zlib; print("%08x" % zlib.adler32(open(sys.argv[1], "rb").read()))' "$WORK/data")
  curl -sSf -I -u "$KEY" -H 'Want-Digest: adler32' "$URL/home/data" | tr -d '\r' | grep -ix "digest: adler32=$adler"
}

# An upload that is cut off by either end leaves nothing.
killed_client() {
  head -c 50000000 /dev/zero | curl -sS -u "$KEY" --limit-rate 1M -T - "$URL/home/half" &
  local pid=$!
  sleep 2
  kill -9 "$pid"
  sleep 1
  [ ! -e "$MNT/home/half" ]
}

# A server that is killed while it has a PUT, a pull from another server and a COPY in place of a directory on its way leaves nothing of them,
# and what it has stored of them is freed.
killed_server() {
  local source
  mkdir -p "$MNT/home/many" "$MNT/home/target"
  (cd "$MNT/home/many" && seq 1500 | xargs touch)
  echo old >"$MNT/home/target/old"
  chown -R 1234:1234 "$MNT/home/many" "$MNT/home/target"
  mkfifo "$WORK/half"
  exec 7<>"$WORK/half"
  curl -sS -u "$KEY" -T - "$URL/home/half" <"$WORK/half" 7>&- &
  head -c 20000000 /dev/zero >&7
  half_a_file "$WORK/source" 7>&- &
  wait_for 20 test -s "$WORK/source"
  source=http://127.0.0.1:$(cat "$WORK/source")/f
  curl -sS -u "$KEY" -X COPY -H "Source: $source" "$URL/home/half-pulled" 7>&- &
  wait_for 60 enough_came
  curl -sS -u "$KEY" -X COPY -H "Destination: /home/target" "$URL/home/many/" 7>&- &
  wait_for 60 aside
  cell_kill9
  exec 7>&-
  wait
  cell_start "${UP[@]}"
  [ ! -e "$MNT/home/half" ]
  [ ! -e "$MNT/home/half-pulled" ]
  [ "$(ls "$MNT/home/target" | wc -l)" = 1500 ] || [ "$(ls "$MNT/home/target")" = old ]
  wait_for 120 all_is_freed
  rm -r "$MNT/home/many" "$MNT/home/target"
}
metric() { curl -sSf "http://127.0.0.1:$METRICS_PORT/metrics" | awk -v name="^$1" '$0 ~ name { sum += $NF } END { printf "%d\n", sum }'; }
enough_came() { [ "$(metric 'leeward_written_bytes_total.door="(http|remote)"')" -gt 30000000 ]; }
aside() { ls -A "$MNT/home" | grep -q '^[.]leeward-copy-'; }
all_is_freed() { [ -z "$(ls -A "$MNT/home" | grep '^[.]leeward-copy-')" ] && [ "$(metric 'leeward_orphans')" = 0 ]; }

# half_a_file FILE: a server that sends half of what it says, and holds the line. Its port is in FILE.
half_a_file() {
  python3 -c '
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1], "w").write(str(listener.getsockname()[1]))
client, _ = listener.accept()
client.recv(65536)
client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40000000\r\n\r\n" + bytes(20000000))
client.recv(1)' "$1"
}

litmus_all() {
  mkdir -p "$WORK/litmus" && cd "$WORK/litmus"
  litmus -k "$URL/home/" "${KEY%%:*}" "${KEY#*:}" >"$WORK/litmus.out" 2>&1 || true
  grep -E 'FAIL|summary|WARNING' "$WORK/litmus.out" | sed 's/^/NOTE /'
  grep -q 'summary for `locks' "$WORK/litmus.out"
  ! grep -q FAIL "$WORK/litmus.out"
}

cadaver_session() {
  printf 'machine 127.0.0.1\nlogin %s\npassword %s\n' "${KEY%%:*}" "${KEY#*:}" >"$WORK/.netrc"
  chmod 600 "$WORK/.netrc"
  HOME=$WORK cadaver "$URL/home/" >"$WORK/cadaver.out" <<COMMANDS
mkcol cad
put $WORK/data cad/data
ls cad
propset cad/data colour blue
propget cad/data colour
copy cad/data cad/again
move cad/again cad/moved
get cad/moved $WORK/cadaver.back
delete cad/moved
quit
COMMANDS
  cmp "$WORK/cadaver.back" "$WORK/data"
  grep -q blue "$WORK/cadaver.out"
  [ "$(ls "$MNT/home/cad")" = data ]
}

rclone_tree() {
  local remote=":webdav,url='$URL/home',vendor=other,user='${KEY%%:*}',pass='$(rclone obscure "${KEY#*:}")':"
  cp -r /usr/share/doc/bash /usr/share/doc/coreutils "$WORK/tree/" 2>/dev/null || cp -r /usr/share/doc/[a-c]* "$WORK/tree/"
  find "$WORK/tree" -type l -delete
  rclone --config /dev/null sync "$WORK/tree" "${remote}tree"
  rclone --config /dev/null check --download "$WORK/tree" "${remote}tree"
  diff -r "$WORK/tree" "$MNT/home/tree"
  rclone --config /dev/null purge "${remote}tree"
  [ ! -e "$MNT/home/tree" ]
}

# By token: davix 0.8.4 never answers when it is asked for a password.
davix_tools() {
  local who="Authorization: Bearer $(token "$CELL")"
  davix-put -H "$who" "$WORK/data" "$URL/home/davix"
  davix-get -H "$who" "$URL/home/davix" "$WORK/davix.back"
  cmp "$WORK/davix.back" "$WORK/data"
  davix-ls -H "$who" -l "$URL/home/" | grep davix >/dev/null
  davix-mkdir -H "$who" "$URL/home/davixdir"
  davix-mv -H "$who" "$URL/home/davix" "$URL/home/davixdir/moved" || [ $? = 255 ] # its status after 201 Created, too
  [ -e "$MNT/home/davixdir/moved" ]
  davix-rm -H "$who" "$URL/home/davixdir/moved"
  davix-rm -H "$who" "$URL/home/davixdir"
  [ ! -e "$MNT/home/davixdir" ]
}

# Third-party copies as the grid makes them: by curl, to see every byte, and by gfal2.
curl_third() {
  local here there
  here="Authorization: Bearer $(token "$CELL")"
  there="TransferHeaderAuthorization: Bearer $(token "$OTHER")"
  curl -sSf -u "$OTHER_KEY" -T "$WORK/data" "$OTHER_URL/home/source"
  curl -sSf -X COPY -H "$here" -H "$there" -H 'Credential: none' -H "Source: $OTHER_URL/home/source" "$URL/home/pulled" | tee "$WORK/pull.out"
  grep -qx 'success: Created' "$WORK/pull.out"
  cmp "$WORK/data" "$MNT/home/pulled"
  curl -sSf -X COPY -H "$here" -H "$there" -H "Destination: $OTHER_URL/home/pushed" "$URL/home/pulled" | tee "$WORK/push.out"
  grep -qx 'success: Created' "$WORK/push.out"
  cmp "$WORK/data" "$OTHER/mnt/home/pushed"
  ! grep -r -e "${OTHER_KEY#*:}" -e 'Bearer' "$(access_log)" "$OTHER/access.log" "$WORK/lee.log" "$WORK/other.log"
}

# One issuer whose tokens both cells believe: how the grid does it.
issuer_token() { python3 "$ROOT/tests/tools/issuer.py" mint "$WORK" "$ISSUER_PORT" "$1"; }

gfal_third() {
  local mode
  for mode in pull push; do
    BEARER_TOKEN=$(issuer_token '{}') gfal-copy -f -D 'HTTP PLUGIN:INSECURE=true' --copy-mode "$mode" -K ADLER32 "davs://127.0.0.1:$OTHER_PORT/home/source" "dav://127.0.0.1:$PORT/home/gfal-$mode"
    cmp "$WORK/data" "$MNT/home/gfal-$mode"
  done
}

metadata() {
  BEARER_TOKEN=$(issuer_token '{}') gfal-ls -l "dav://127.0.0.1:$PORT/home/" | grep pulled >/dev/null
  BEARER_TOKEN=$(issuer_token '{}') gfal-sum "dav://127.0.0.1:$PORT/home/pulled" ADLER32
}

# Rucio's class takes only URLs with https for whole ones.
rucio_protocol() {
  mkdir -p "$WORK/rucio/etc"
  printf '[client]\nrucio_host = %s\nauth_host = %s\n' "$URL" "$URL" >"$WORK/rucio/etc/rucio.cfg"
  RUCIO_HOME=$WORK/rucio PYTHONWARNINGS=ignore PYTHONPATH=$PYTHON python3 "$ROOT/tests/tools/rucio_webdav.py" "$OTHER_URL/home" "$(issuer_token '{}')"
}

mkdir -p "$WORK/tree"
clients >"$WORK/clients.log" 2>&1 </dev/null || tail -n 3 "$WORK/clients.log"
lee_binary
certificate
issuer_start
UP=(--http "$PORT" --metrics "$METRICS_PORT")
cell_start "${UP[@]}"
other_start || die "the other cell did not start"
people
doors_hear
KEY=$(sed -n '1s/ /:/p' "$WORK/keys")
OTHER_KEY=$(sed -n '2s/ /:/p' "$WORK/keys")
run curl curl_basics
run digests curl_digests
run scopes scopes
run killed_client killed_client
run killed_server killed_server
if have litmus; then run litmus litmus_all; else skip litmus "is not installed"; fi
if have cadaver; then run cadaver cadaver_session; else skip cadaver "is not installed"; fi
if have rclone; then run rclone rclone_tree; else skip rclone "is not installed"; fi
if have davix-put; then run davix davix_tools; else skip davix "is not installed"; fi
run third curl_third
if have gfal-copy; then
  run gfal gfal_third
  run gfal_metadata metadata
else skip gfal "is not installed"; fi
if [ -e "$PYTHON/rucio/__init__.py" ]; then run rucio rucio_protocol; else skip rucio "is not installed"; fi
suite_end
