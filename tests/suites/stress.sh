#!/usr/bin/env bash
# Programs that are made to find faults of file systems, and a database that is killed: stress-ng, fio, PostgreSQL. Each verifies what it reads.
. "$(dirname "$0")/../lib.sh"
suite stress

# What is missing is installed by name. PostgreSQL must not make a cluster of its own.
programs_install() {
  local pair missing=()
  for pair in /usr/bin/stress-ng:stress-ng /usr/bin/fio:fio /usr/lib/postgresql/15/bin/initdb:postgresql-15; do
    [ -e "${pair%:*}" ] || missing+=("${pair#*:}")
  done
  [ "${#missing[@]}" -eq 0 ] || {
    mkdir -p /etc/postgresql-common/createcluster.d && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/none.conf
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -qq -y --no-install-recommends "${missing[@]}" ||
      { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; }
  } >"$WORK/apt.log" 2>&1
}

STRESSORS=(chmod copy-file dentry dirdeep fallocate filename flock fpunch getdent hdd iomix lease link locka lockofd mmapmany msync
  rename revio seek sendfile utime xattr)

# What a kind of stress finds wrong is its exit status, with --verify.
stress_ng() {
  local name dir=$MNT/stress
  mkdir "$dir"
  for name in "${STRESSORS[@]}"; do
    stress-ng --quiet "--$name" 2 --timeout 1s --verify --temp-path "$dir" || { say "$name: exit status $?"; return 1; }
  done
  rm -r "$dir"
}

# Some systems forbid it.
io_uring_if_allowed() { (cd "$WORK" && fio --name=can --ioengine=io_uring --rw=write --size=4k --directory="$WORK") >/dev/null 2>&1 && echo io_uring; }

# Writes at random places, reads each block again, by every way that Linux has for that.
fio_verifies() {
  local dir=$MNT/fio engine
  mkdir "$dir"
  # where it runs it leaves notes of what it has verified
  job() { (cd "$WORK" && fio --output-format=terse --directory="$dir" --size=16M --verify=crc32c --verify_fatal=1 --iodepth=8 "$@") >"$WORK/fio.log" || { say "$*"; return 1; }; }
  for engine in sync mmap libaio $(io_uring_if_allowed); do
    job --name="$engine" --ioengine="$engine" --rw=randrw --bsrange=4k-64k
    job --name="$engine-direct" --ioengine="${engine/mmap/psync}" --rw=randwrite --bs=4k --direct=1 --numjobs=2
  done
  job --name=fsync --ioengine=psync --rw=randwrite --bs=8k --size=2M --fsync=16
  rm -r "$dir"
}

# Its own programs, as its own user.
as_postgres() {
  local program=$1
  shift
  (cd / && setpriv --reuid postgres --regid postgres --init-groups "/usr/lib/postgresql/15/bin/$program" "$@")
}
postgres_start() {
  as_postgres pg_ctl -D "$MNT/pg/data" -w -t 60 -o "-k $WORK/socket -c listen_addresses=" -l "$MNT/pg/log" start >/dev/null &&
    head -n 1 "$MNT/pg/data/postmaster.pid" >"$WORK/postmaster"
}

# Its children notice that it has gone, and go.
postgres_kill9() {
  local pid=$1 child children
  children=$(pgrep -P "$pid" || true)
  kill -9 "$pid"
  for child in $pid $children; do wait_gone "$child" 30; done
  rm -f "$WORK/postmaster"
}
ask_postgres() { as_postgres psql -h "$WORK/socket" -At -c "$1" postgres; }

# What was committed before PostgreSQL is killed, and before Leeward is, is there when both are back.
postgres_survives() {
  local writer
  mkdir "$MNT/pg" "$WORK/socket" && chown postgres "$MNT/pg" "$WORK/socket"
  as_postgres initdb -D "$MNT/pg/data" --data-checksums >/dev/null 2>&1
  postgres_start
  as_postgres pgbench -h "$WORK/socket" -i -q postgres
  as_postgres pgbench -h "$WORK/socket" -n -c 4 -T 60 postgres >"$WORK/pgbench.log" 2>&1 &
  writer=$!
  sleep 3
  postgres_kill9 "$(cat "$WORK/postmaster")"
  wait "$writer" || true
  wait_for 60 postgres_start
  postgres_is_whole
  if have_cell; then
    ask_postgres 'CREATE TABLE kept AS SELECT count(*) FROM pgbench_history' >/dev/null
    cell_kill9
    postgres_kill9 "$(cat "$WORK/postmaster")"
    cell_start
    wait_for 60 postgres_start
    [ "$(ask_postgres 'SELECT (SELECT count FROM kept) = count(*) FROM pgbench_history')" = t ]
    postgres_is_whole
  fi
  as_postgres pg_ctl -D "$MNT/pg/data" -m fast stop >/dev/null
  rm "$WORK/postmaster"
  as_postgres pg_checksums -D "$MNT/pg/data" | grep -q '^Bad checksums: *0$'
}

# Every transaction changed three tables by the same amount and wrote it down.
postgres_is_whole() {
  local same='SELECT (SELECT sum(abalance) FROM pgbench_accounts) = sum(delta) AND (SELECT sum(bbalance) FROM pgbench_branches) = sum(delta) FROM pgbench_history'
  [ "$(ask_postgres "$same")" = t ]
  ask_postgres 'CREATE EXTENSION IF NOT EXISTS amcheck' >/dev/null
  ask_postgres "SELECT count(bt_index_check(oid)) FROM pg_class WHERE relkind = 'i' AND relam = 403" >/dev/null
}

on_exit 'kill -9 $(cat "$WORK/postmaster")' # when a case ended early
programs_install
cell_start
run stress_ng stress_ng
run fio fio_verifies
run postgres postgres_survives
suite_end
