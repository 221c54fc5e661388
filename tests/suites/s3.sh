#!/usr/bin/env bash
# The S3 door with the clients that people use: boto3 (with its default checksums), awscli, rclone, s3cmd, s5cmd, s3fs,
# curl. A tree synced in, checked and compared in the mount; the same files by S3, WebDAV and the mount, compared with a model; a killed server leaves nothing;
# who comes when there are too many connections is told so.
. "$(dirname "$0")/../lib.sh"
suite s3
PORT=$((20000 + $$ % 10000)) # below what the kernel gives to clients
URL=http://127.0.0.1:$PORT
WEB_PORT=$((PORT + 1))
PYTHON=$CARGO_TARGET_DIR/tools/s3-clients # what pip installs

unset AWS_CA_BUNDLE AWS_PROFILE AWS_SESSION_TOKEN # what whoever runs this has set for other servers

have_cell || { skip all "needs a cell"; exit 0; }

clients_install() {
  [ -e "$PYTHON/boto3/__init__.py" ] && [ -e "$PYTHON/awscli/__init__.py" ] ||
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$PYTHON" 'boto3==1.40.*' 'awscli==1.42.*'
  local missing=()
  for tool in rclone s3cmd s3fs openssl; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  [ "${#missing[@]}" -eq 0 ] || apt-get install -qq -y --no-install-recommends "${missing[@]}" >"$WORK/apt.log" 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >>"$WORK/apt.log" 2>&1
  s5cmd_tool >"$WORK/s5cmd.log" 2>&1 || { tail -n 5 "$WORK/s5cmd.log"; return 1; }
}

lee() { "$LEE" "$@" --cell "$CELL"; }

# clients_set_up: a user with a key, a bucket, and every client told of them.
clients_set_up() {
  lee user create ann --uid 1234 --gid 1234 >/dev/null
  lee key create ann --json >"$WORK/key.json"
  lee user create bob --uid 1235 --gid 1235 >/dev/null # for what is nobody else's business
  lee key create bob --json >"$WORK/bob.json"
  mkdir "$MNT/pub" "$MNT/new" && chown 1234:1234 "$MNT/pub" && chmod 1777 "$MNT/new"
  lee bucket create pub --path /pub >/dev/null
  doors_hear
  field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$WORK/key.json" "$1"; }
  {
    echo "export AWS_ACCESS_KEY_ID=$(field access_key_id) AWS_SECRET_ACCESS_KEY=$(field secret_access_key)"
    echo "export AWS_DEFAULT_REGION=us-east-1 AWS_ENDPOINT_URL=$URL PYTHONPATH=$PYTHON AWS_EC2_METADATA_DISABLED=true"
    echo "export RCLONE_CONFIG=$WORK/rclone.conf"
  } >"$WORK/env"
  . "$WORK/env"
  printf '[lee]\ntype = s3\nprovider = Other\nendpoint = %s\naccess_key_id = %s\nsecret_access_key = %s\n' \
    "$URL" "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >"$WORK/rclone.conf"
  printf '[default]\naccess_key = %s\nsecret_key = %s\nhost_base = 127.0.0.1:%s\nhost_bucket = 127.0.0.1:%s\nuse_https = False\n' \
    "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" "$PORT" "$PORT" >"$WORK/s3cfg"
}

aws() { python3 -m awscli "$@"; }

# A tree with what trees have: many small files, a large one, odd names, an empty file.
tree_make() {
  mkdir -p "$WORK/tree/deep/er"
  echo deep >"$WORK/tree/deep/er/est"
  for n in $(seq 200); do
    mkdir -p "$WORK/tree/many/$((n % 7))"
    head -c $((n * 61)) /dev/urandom >"$WORK/tree/many/$((n % 7))/$n"
  done
  head -c 30000000 /dev/urandom >"$WORK/tree/large"
  : >"$WORK/tree/empty"
  for name in 'with space' 'plus+and&more' 'ümläut' "quote'" 'a=b;c' 'per%20cent' 'dash-x' 'dash/in'; do
    mkdir -p "$WORK/tree/odd/$(dirname "$name")"
    echo "$name" >"$WORK/tree/odd/$name"
  done
}

same_in_mount() { diff -r "$WORK/tree" "$MNT/pub/$1"; }

rclone_syncs() {
  . "$WORK/env"
  rclone sync --transfers 8 "$WORK/tree" lee:pub/rclone
  rclone check --one-way "$WORK/tree" lee:pub/rclone
  rclone check --download "$WORK/tree" lee:pub/rclone
  same_in_mount rclone
  rm -r "$WORK/tree/odd" && rclone sync "$WORK/tree" lee:pub/rclone
  same_in_mount rclone
  [ "$(rclone lsf -R --files-only lee:pub/rclone | sort)" = "$(cd "$WORK/tree" && find . -type f | sed 's,^\./,,' | sort)" ]
  tree_make
}

aws_syncs() {
  . "$WORK/env"
  aws s3 sync --only-show-errors "$WORK/tree" s3://pub/aws
  same_in_mount aws
  aws s3 sync --only-show-errors s3://pub/aws "$WORK/back"
  diff -r "$WORK/tree" "$WORK/back"
  [ -z "$(aws s3 sync --dryrun --size-only "$WORK/tree" s3://pub/aws)" ]
  aws s3 rm --recursive --only-show-errors s3://pub/aws
  [ ! -e "$MNT/pub/aws" ]
}

s3cmd_syncs() {
  . "$WORK/env"
  s3cmd -q -c "$WORK/s3cfg" sync "$WORK/tree/" s3://pub/s3cmd/
  same_in_mount s3cmd
  s3cmd -q -c "$WORK/s3cfg" get s3://pub/s3cmd/large "$WORK/large.back"
  cmp "$WORK/tree/large" "$WORK/large.back"
  s3cmd -q -c "$WORK/s3cfg" del -r s3://pub/s3cmd/
  [ ! -e "$MNT/pub/s3cmd" ]
}

s5cmd_syncs() {
  . "$WORK/env"
  s5cmd() { "$TOOLS/s5cmd" --endpoint-url "$URL" "$@"; }
  s5cmd cp "$WORK/tree/" s3://pub/s5cmd/
  same_in_mount s5cmd
  s5cmd cp 's3://pub/s5cmd/*' "$WORK/s5back/"
  diff -r "$WORK/tree" "$WORK/s5back"
  rm -r "$WORK/s5back/many" && echo new >"$WORK/s5back/deep/er/est"
  s5cmd sync --delete --size-only "$WORK/s5back/" s3://pub/s5cmd/
  diff -r "$WORK/s5back" "$MNT/pub/s5cmd"
  [ "$(s5cmd ls 's3://pub/s5cmd/*' | sed 's/^.\{19\} *[0-9]* *//' | sort)" = "$(cd "$WORK/s5back" && find . -type f | sed 's,^\./,,' | sort)" ]
  s5cmd rm 's3://pub/s5cmd/*'
  [ ! -e "$MNT/pub/s5cmd" ]
}

# A mount of the bucket: an archive unpacked in it, as programs do that know nothing of objects.
s3fs_takes_a_tar() {
  . "$WORK/env"
  local at=$WORK/s3fs
  mkdir "$at" "$MNT/pub/s3fs" && chown 1234:1234 "$MNT/pub/s3fs"
  (umask 077 && echo "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" >"$WORK/s3fs.key")
  s3fs pub:/s3fs "$at" -o url="$URL",use_path_request_style,passwd_file="$WORK/s3fs.key"
  # not the mount point itself, whose mode s3fs never changes
  (cd "$WORK/tree" && tar -cf - -- *) | tar -C "$at" -xf - --no-same-owner
  diff -r "$WORK/tree" "$at"
  mv "$at/deep" "$at/deeper" && rm -r "$at/many"
  umount "$at"
  diff -r "$WORK/tree/odd" "$MNT/pub/s3fs/odd"
  diff -r "$WORK/tree/deep" "$MNT/pub/s3fs/deeper"
  cmp "$WORK/tree/large" "$MNT/pub/s3fs/large"
  [ ! -e "$MNT/pub/s3fs/deep" ] && [ ! -e "$MNT/pub/s3fs/many" ]
}

boto3_does_all() {
  . "$WORK/env"
  python3 "$ROOT/tests/tools/s3_client.py" "$MNT"
}

# Requests as no client makes them.
raw_requests() {
  . "$WORK/env"
  python3 "$ROOT/tests/tools/s3_raw.py" "$MNT" "$WORK/bob.json"
}

curl_is_refused() {
  [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/pub/x")" = 403 ]
  [ "$(curl -s -o /dev/null -w '%{http_code}' --path-as-is "$URL/pub/../../etc/passwd")" = 403 ]
  [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/")" = 403 ]
  # the log says why
  local tries
  for tries in $(seq 100); do
    grep -q '"operation":"GetObject".*"error":"AccessDenied"' "$(access_log)" && return 0
    sleep 0.1
  done
  return 1
}

# A writer by each way, and readers that must never see a mixture.
both_ways_at_once() {
  . "$WORK/env"
  python3 "$ROOT/tests/tools/s3_both_ways.py" "$MNT/pub" pub
}

three_doors() {
  . "$WORK/env"
  mkdir "$MNT/pub/three" && chown 1234:1234 "$MNT/pub/three"
  lee bucket create three --path /pub/three >/dev/null
  doors_hear
  for seed in ${DOOR_SEEDS:-1 2}; do
    python3 "$ROOT/tests/tools/three_doors.py" "$MNT/pub/three" three "http://127.0.0.1:$WEB_PORT/pub/three/" "$seed" 300
  done
}

# noted COUNT: so many acknowledgements, and more.
noted() { [ "$(cat "$WORK/acknowledged" 2>/dev/null | wc -l)" -gt "$1" ]; }

# killed_while PROGRAM COUNT: kill -9 while the program writes to the bucket, which it does until the server is gone; then the next server.
killed_while() {
  . "$WORK/env"
  rm -f "$WORK/acknowledged"
  python3 "$ROOT/tests/tools/$1" pub "$WORK/acknowledged" &
  local writer=$!
  wait_for 60 noted "$2"
  cell_kill9
  wait "$writer" || true
  cell_start --s3 "$PORT"
  python3 "$ROOT/tests/tools/$1" --after pub "$WORK/acknowledged" "$MNT/pub"
}

# Of uploads that a kill -9 ends nothing is there, and all that was acknowledged is.
killed_in_a_put() { killed_while s3_until_killed.py 400; }

# An upload in parts goes on at the next server and is completed.
killed_in_an_upload_in_parts() {
  killed_while s3_parts_until_killed.py 15
  lee fsck
}

# certificate NAME SUBJECT [OPTION...]: signed by itself, or as openssl is told.
certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "$2" -keyout "$WORK/$1.key" -out "$WORK/$1.crt" "${@:3}"
}

# user_certificate NAME: of a user, from those who sign them.
user_certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/O=Example/CN=$1" -keyout "$WORK/$1.key" -out "$WORK/$1.csr"
  openssl x509 -req -in "$WORK/$1.csr" -CA "$WORK/users.crt" -CAkey "$WORK/users.key" -CAcreateserial -days 2 \
    -extfile <(echo basicConstraints=CA:FALSE) -out "$WORK/$1.crt"
}

# A certificate instead of a key, at both doors.
certificates_open() {
  local at=https://localhost:$PORT/pub/certified web=https://localhost:$WEB_PORT/pub/certified
  certificate door /CN=localhost -addext subjectAltName=DNS:localhost
  certificate users /CN=users
  user_certificate ann
  user_certificate mallory
  cell_stop
  printf 'tls-clients = "%s"\n[tls-users]\n"CN=ann,O=Example" = "ann"\n' "$WORK/users.crt" >>"$CELL/leeward.toml"
  cell_start --s3 "$PORT" --http "$WEB_PORT" --tls-certificate "$WORK/door.crt" --tls-key "$WORK/door.key"
  asked() { curl -s -o "$WORK/answer" -w '%{http_code}' --cacert "$WORK/door.crt" "$@"; }
  as() { asked --cert "$WORK/$1.crt" --key "$WORK/$1.key" "${@:2}"; }
  [ "$(as ann -T "$WORK/tree/deep/er/est" "$at")" = 200 ]
  cmp "$WORK/tree/deep/er/est" "$MNT/pub/certified"
  [ "$(stat -c %u "$MNT/pub/certified")" = 1234 ]
  [ "$(as ann "$web")" = 200 ] && cmp "$WORK/tree/deep/er/est" "$WORK/answer"
  [ "$(as mallory "$at")" = 403 ] && [ "$(as mallory "$web")" = 403 ]
  [ "$(asked "$at")" = 403 ] && [ "$(asked "$web")" = 401 ]
  lee user disable ann
  doors_hear
  [ "$(as ann "$at")" = 403 ] && [ "$(as ann "$web")" = 403 ]
  lee user enable ann
}

# More connections than open files allow: 256 are kept for the rest.
crowded_by_tls() {
  cell_stop
  ulimit -n 340
  cell_start --s3 "$PORT" --tls-certificate "$WORK/door.crt" --tls-key "$WORK/door.key"
  python3 "$ROOT/tests/tools/s3_crowd.py" "$PORT" $((340 - 256))
}

clients_install
mkdir -p "$CELL"
echo 's3-new-buckets = "/new"' >"$CELL/leeward.toml"
cell_start --s3 "$PORT" --http "$WEB_PORT"
tree_make
clients_set_up
run boto3 boto3_does_all
run raw raw_requests
run rclone rclone_syncs
run aws aws_syncs
run s3cmd s3cmd_syncs
run s5cmd s5cmd_syncs
run s3fs s3fs_takes_a_tar
run curl curl_is_refused
run both_ways both_ways_at_once
run three_doors three_doors
run killed killed_in_a_put
run killed_in_parts killed_in_an_upload_in_parts
run certificates certificates_open
run crowded crowded_by_tls
suite_end
