#!/usr/bin/env bash
# A cell in a bucket of an S3 server that is neither Ceph nor ours: a gateway written in Go over a directory. The contract suites of stores and pools, and
# what `rgw` does, with the suites of the file system: posix, pjdfstest, fsx, kill -9.
. "$(dirname "$0")/../lib.sh"
suite versitygw
PORT=$((20000 + $$ % 10000))
: "${FSX_SECONDS:=10}" "${KILL9_SECONDS:=15}" # short: bench/buckets --suites takes longer
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$PORT

SERVER=$TOOLS/versitygw

have_cell || { skip all "needs a cell"; exit 0; }

server_start() {
  "$SERVER" --access "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" \
    --port "127.0.0.1:$PORT" --region us-east-1 --quiet posix "$WORK/objects" >>"$WORK/server.log" 2>&1 </dev/null &
  echo $! >"$WORK/server.pid"
  disown $!
  python3 "$ROOT/tests/tools/bucket.py" make bucket
}
server_kill() {
  local pid
  pid=$(cat "$WORK/server.pid")
  kill -9 "$pid"
  wait_gone "$pid" 20
}

. "$ROOT/tests/bucket.sh"

contracts() {
  (cd "$ROOT" && LEE_TEST_BUCKET=s3://bucket/contract cargo test --locked --workspace --test all -- --ignored real_server) >"$WORK/contracts.log" 2>&1 ||
    { tail -n 40 "$WORK/contracts.log"; return 1; }
  grep -q '^test result: ok. 1 passed' "$WORK/contracts.log"
}

if ! versitygw_tool >"$WORK/install.log" 2>&1; then
  tail -n 5 "$WORK/install.log"
  skip all "the server cannot be built here: Go $GO_MIN, or pip to get it, and the network"
  exit 0
fi
mkdir "$WORK/objects"
on_exit 'kill -9 "$(cat "$WORK/server.pid")"'
server_start
lee_binary
run contracts contracts
suites_in_bucket
cell_cases
suite_end
