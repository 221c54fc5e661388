#!/usr/bin/env bash
# A cell in a bucket of Ceph's RADOS gateway (bench/ceph-up, Debian's packages): posix, pjdfstest, fsx, kill -9 of lee again and again, trees
# compared, a second process that takes the cell over, and the gateway killed and started again under load.
. "$(dirname "$0")/../lib.sh"
suite rgw
CEPH=$WORK/ceph
PORT=$((20000 + $$ % 10000))
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$PORT

have_cell || { skip all "needs a cell"; exit 0; }

ceph_up() { FS=0 ROOT=$CEPH OSDS=1 SIZE=1 OSD_GB=6 OBJECTSTORE=bluestore RGW_PORT=$PORT RGW_THREADS=32 "$ROOT/bench/ceph-up"; }
server_start() {
  radosgw --conf "$CEPH/ceph.conf" -n client.rgw.a
  python3 "$ROOT/tests/tools/bucket.py" make bucket
}
server_kill() {
  local pid
  pid=$(cat "$CEPH/run/client.rgw.a.pid")
  kill -9 "$pid"
  wait_gone "$pid" 20
}

. "$ROOT/tests/bucket.sh"

on_exit 'ROOT=$CEPH "$ROOT/bench/ceph-down" --wipe'
# a machine that cannot have Ceph says nothing about us; the server in crates/bucket stands in for it in the unit tests
if ! ceph_up >"$WORK/ceph-up.log" 2>&1 </dev/null; then
  tail -n 5 "$WORK/ceph-up.log"
  skip all "Ceph does not start here"
  exit 0
fi
python3 "$ROOT/tests/tools/bucket.py" make bucket
lee_binary
suites_in_bucket
cell_cases
suite_end
