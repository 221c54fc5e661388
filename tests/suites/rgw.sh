#!/usr/bin/env bash
# A cell in a bucket of Ceph's RADOS gateway (bench/ceph-up, Debian's packages): posix, pjdfstest, fsx, kill -9 of lee again and again, trees
# compared, a second process that takes the cell over, and the gateway killed and started again under load; backups in a bucket that locks
# its objects.
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

# A bucket that locks its objects: who has its keys, as a cell that was broken into, overwrites and deletes what there is, and all of it
# comes back.
locked_backups() {
  export PYTHONPATH=$CARGO_TARGET_DIR/tools/boto3
  [ -e "$PYTHONPATH/boto3/__init__.py" ] ||
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$PYTHONPATH" 'boto3==1.40.*'
  python3 "$ROOT/tests/tools/locked_bucket.py" make vault
  lee volume create home >/dev/null
  cp -r "$ROOT/docs" "$MNT/home"
  echo secret >"$WORK/password"
  chmod 600 "$WORK/password"
  lee backup add home --to s3://vault/home --password-file "$WORK/password" --keep 1d
  lee backup run home
  rm -r "$MNT/home/docs/decisions"
  lee backup run home --prune
  lee backup check home --read-data
  sleep 1.1 # times of objects are whole seconds
  local before
  before=$(date -u +%FT%TZ)
  sleep 1.1
  python3 "$ROOT/tests/tools/locked_bucket.py" vandalise vault
  if lee backup check home >"$WORK/e" 2>&1; then return 1; fi
  python3 "$ROOT/contrib/leeward-bucket-as-of" vault home "$before" >"$WORK/would"
  python3 "$ROOT/contrib/leeward-bucket-as-of" vault home "$before" --do >"$WORK/did"
  [ "$(wc -l <"$WORK/would")" = "$(wc -l <"$WORK/did")" ] && grep -q '^back ' "$WORK/did" && grep -q '^hidden ' "$WORK/did"
  python3 "$ROOT/contrib/leeward-bucket-as-of" vault home "$before" | grep -q '^0 objects would be back, 0 hidden'
  lee backup check home --read-data
  "$LEE" backup restore home --from s3://vault/home --password-file "$WORK/password" --to "$WORK/out"
  diff -r "$MNT/home" "$WORK/out"
  lee backup remove home >/dev/null
}

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
run locked_backups locked_backups
suite_end
