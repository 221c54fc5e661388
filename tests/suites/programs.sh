#!/usr/bin/env bash
# Real programs on the mount, each result compared with the local disk's or checked by the program itself. Without an
# argument all cases run; with names only those.
. "$(dirname "$0")/../lib.sh"
suite programs

# A part of the kernel's tree goes in by tar and comes out by tar: every byte and all metadata must be the same.
tar_in_and_out() {
  mkdir "$MNT/linux"
  tar -C "$MNT/linux" -xf "$LINUX_TAR"
  tree_same "$LINUX_TREE" "$MNT/linux"
  tree_tar "$MNT/linux" "$WORK/out.tar"
  cmp "$LINUX_TAR" "$WORK/out.tar"
  rm "$WORK/out.tar"
  say "NOTE $(find "$MNT/linux" | wc -l) entries, $(stat -c %s "$LINUX_TAR") bytes"
}

# The same tree after a restart: now all of it comes from the store.
tree_after_restart() {
  cell_restart
  tree_same "$LINUX_TREE" "$MNT/linux"
  tar -C "$MNT/linux" --compare -f "$LINUX_TAR"
}

cp_a() {
  cp -a --reflink=auto "$MNT/linux/arch" "$MNT/copied"
  tree_same "$MNT/linux/arch" "$MNT/copied"
}

# copy_file_range shares what it copies: a copy of 64 MiB makes the cell hardly larger.
copies_share_space() {
  local before after
  head -c 64M /dev/urandom >"$MNT/big"
  before=$(data_bytes)
  cp --reflink=auto "$MNT/big" "$MNT/big-copy"
  after=$(data_bytes)
  cmp "$MNT/big" "$MNT/big-copy"
  say "NOTE 64 MiB copied, the data in the store grew by $((after - before)) bytes"
  [ $((after - before)) -lt $((1 << 20)) ]
  printf changed | dd of="$MNT/big-copy" bs=1 seek=30000000 conv=notrunc status=none
  rm "$MNT/big"
  [ "$(dd if="$MNT/big-copy" bs=1 skip=30000000 count=7 status=none)" = changed ]
  rm "$MNT/big-copy"
}

# data_bytes: what the file data takes in the store, when all of it is there.
data_bytes() { lee sync >/dev/null && lee df --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["segment_bytes"])'; }

rm_rf() {
  rm -rf "$MNT/linux" "$MNT/copied"
  [ ! -e "$MNT/linux" ]
}

# The second rsync finds nothing to do; after changes it transfers just those.
rsync_twice() {
  local from=$WORK/rsync-from
  mkdir "$from"
  cp -a "$LINUX_TREE"/arch/x86 "$from/"
  ln "$from/x86/Makefile" "$from/hard-link"
  mkfifo "$from/fifo"
  setfattr -n user.colour -v green "$from/x86/Kconfig"
  rsync -aHAX --delete "$from/" "$MNT/rsynced/"
  local again
  again=$(rsync -aHAXi --delete "$from/" "$MNT/rsynced/")
  [ -z "$again" ] || { say "the second rsync did:"; head -n 20 <<<"$again"; return 1; }
  again=$(rsync -aHAXci --delete "$from/" "$MNT/rsynced/")
  [ -z "$again" ] || { say "rsync --checksum did:"; head -n 20 <<<"$again"; return 1; }
  echo more >>"$from/x86/Kconfig"
  rm "$from/x86/Kbuild"
  again=$(rsync -aHAXi --delete "$from/" "$MNT/rsynced/" | grep -vc '^\.d')
  [ "$again" = 2 ]
  rm "$from/fifo" "$MNT/rsynced/fifo"
  level_directory_times "$from" # rsync leaves a directory's time alone where it removed something
  level_directory_times "$MNT/rsynced"
  tree_same "$from" "$MNT/rsynced"
  rm -rf "$from"
}

git_quiet() { git -c user.name=test -c user.email=test@test -c commit.gpgsign=false -c gc.auto=0 "$@"; }

# A repository with history is made, cloned and worked in, all on the mount.
git_clone_fsck_status() {
  local repository=$MNT/repository clone=$MNT/clone i
  git_quiet init -q -b main "$repository"
  cp -a "$LINUX_TREE"/arch/x86 "$repository/src"
  git_quiet -C "$repository" add -A
  git_quiet -C "$repository" commit -qm "all of it"
  for i in $(seq 60); do
    echo "change $i" >>"$repository/src/Kconfig"
    echo "$i" >"$repository/file$i"
    git_quiet -C "$repository" add -A
    git_quiet -C "$repository" commit -qm "change $i"
  done
  git_quiet -C "$repository" checkout -qb side HEAD~30
  git_quiet -C "$repository" mv src/kernel src/moved
  git_quiet -C "$repository" commit -qm "a directory moves"
  git_quiet -C "$repository" checkout -q main
  git_quiet -C "$repository" merge -q -m merged side
  git_quiet clone -q --no-hardlinks "$repository" "$clone"
  git_quiet clone -q --local "$repository" "$clone-linked"
  git_quiet -C "$clone" fsck --full --strict
  [ -z "$(git_quiet -C "$clone" status --porcelain)" ]
  [ -z "$(git_quiet -C "$clone-linked" status --porcelain)" ]
  git_quiet -C "$clone" gc -q --prune=now
  git_quiet -C "$clone" repack -qadf
  git_quiet -C "$clone" fsck --full
  diff -r --no-dereference --exclude=.git "$repository" "$clone"
  [ "$(git_quiet -C "$clone" rev-list --count HEAD)" -ge 62 ]
}

# Several processes write one SQLite database in WAL mode (shared memory by mmap, fcntl locks): nothing may be lost.
sqlite_wal_writers() {
  local db=$MNT/wal.db writers=4 rounds=150 w pids=()
  sqlite3 "$db" 'PRAGMA journal_mode=WAL; CREATE TABLE t (writer INT, round INT, filler BLOB, UNIQUE (writer, round));
    CREATE TABLE total (n INT); INSERT INTO total VALUES (0);'
  for w in $(seq "$writers"); do
    {
      echo '.timeout 60000'
      for r in $(seq "$rounds"); do
        echo "BEGIN IMMEDIATE; INSERT INTO t VALUES ($w, $r, randomblob(2000)); UPDATE total SET n = n + 1; COMMIT;"
      done
    } | sqlite3 "$db" &
    pids+=($!)
  done
  for w in "${pids[@]}"; do wait "$w"; done
  sqlite_count "$db" $((writers * rounds))
  sqlite3 "$db" 'DELETE FROM t WHERE round % 2; PRAGMA wal_checkpoint(TRUNCATE); VACUUM;'
  [ "$(sqlite3 "$db" 'PRAGMA integrity_check')" = ok ]
}

sqlite_count() {
  local found
  found=$(sqlite3 "$1" 'PRAGMA integrity_check; SELECT count(*) FROM t; SELECT n FROM total;' | tr '\n' ' ')
  say "NOTE integrity, rows, counted: $found"
  [ "$found" = "ok $2 $2 " ]
}

# The same with the rollback journal, whose commit is the removal of a file.
sqlite_rollback_journal() {
  local db=$MNT/rollback.db
  {
    echo 'PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; CREATE TABLE t (round INT, filler BLOB);'
    for r in $(seq 60); do echo "INSERT INTO t VALUES ($r, randomblob(5000));"; done
  } | sqlite3 "$db"
  [ "$(sqlite3 "$db" 'PRAGMA integrity_check; SELECT count(*) FROM t;' | tr '\n' ' ')" = "ok 60 " ]
}

# 200 C files that include each other's headers, a library, a program; the second make has nothing to do.
c_build() {
  local dir=$MNT/c i n=200
  mkdir -p "$dir"
  for i in $(seq "$n"); do
    echo "int f$i(int);" >"$dir/f$i.h"
    printf '#include "f%d.h"\n#include <stdio.h>\n#include <string.h>\nint f%d(int x) { return x + %d; }\n' "$i" "$i" "$i" >"$dir/f$i.c"
    echo "#include \"f$i.h\""
  done >"$dir/all.h"
  {
    echo '#include <stdio.h>'
    echo '#include "all.h"'
    echo 'int main(void) { int x = 0;'
    for i in $(seq "$n"); do echo "x = f$i(x);"; done
    echo 'printf("%d\n", x); return 0; }'
  } >"$dir/main.c"
  cat >"$dir/Makefile" <<'MAKE'
OBJECTS = $(patsubst %.c,%.o,$(filter-out main.c,$(wildcard f*.c)))
program: main.o libf.a
	$(CC) -o $@ $^
libf.a: $(OBJECTS)
	ar rcs $@ $^
%.o: %.c
	$(CC) -O1 -MMD -c -o $@ $<
-include $(wildcard *.d)
MAKE
  make -s -C "$dir" -j 2
  [ "$("$dir/program")" = $((n * (n + 1) / 2)) ]
  make -C "$dir" -q program
  touch "$dir/f7.h"
  make -C "$dir" >"$WORK/third-make"
  [ "$(grep -c MMD "$WORK/third-make")" = 2 ] || { cat "$WORK/third-make"; return 1; } # f7.c and main.c
}

# cargo, with its lock file, hard links and fingerprints by nanosecond time.
rust_build() {
  local dir=$MNT/rust
  cargo new -q --vcs none --name hello "$dir"
  (
    cd "$dir"
    export CARGO_TARGET_DIR=$dir/target
    cargo build -q --offline
    [ "$(target/debug/hello)" = 'Hello, world!' ]
    cargo build --offline 2>&1 | tee "$WORK/second-build" | { ! grep -q Compiling; }
    sed -i 's/world/cell/' src/main.rs
    cargo test -q --offline
    [ "$(cargo run -q --offline)" = 'Hello, cell!' ]
  )
}

# A Debian package with links, modes and owners, unpacked here and on the local disk.
dpkg_unpack() {
  local deb
  deb=$(find "$DATA" -name '*.deb' | head -n 1)
  if [ -z "$deb" ]; then
    (cd "$DATA" && apt-get download -qq git 2>/dev/null)
    deb=$(find "$DATA" -name '*.deb' | head -n 1)
  fi
  dpkg-deb -x "$deb" "$MNT/deb"
  dpkg-deb -x "$deb" "$WORK/deb"
  level_directory_times "$WORK/deb"
  level_directory_times "$MNT/deb"
  tree_same "$WORK/deb" "$MNT/deb"
  dpkg-deb -e "$deb" "$MNT/deb/DEBIAN"
  dpkg-deb -Zgzip -z1 -b --root-owner-group "$MNT/deb" "$MNT/again.deb" >/dev/null
  [ "$(dpkg-deb -c "$MNT/again.deb" | wc -l)" = "$(dpkg-deb -c "$deb" | wc -l)" ]
  rm -rf "$WORK/deb"
}

# An editor's way to save, a log that is rotated, files that are followed: small habits of shells.
shell_habits() {
  local dir=$MNT/habits
  mkdir "$dir"
  seq 1000 >"$dir/file"
  sed -i 's/^500$/five hundred/' "$dir/file"
  [ "$(sed -n 500p "$dir/file")" = 'five hundred' ]
  sort -r -n -S 64k -T "$dir" "$dir/file" >"$dir/sorted"
  split -l 10 "$dir/file" "$dir/part."
  cat "$dir"/part.* | cmp - "$dir/file"
  cp --preserve=all "$dir/file" "$dir/preserved"
  install -D -m 640 "$dir/file" "$dir/a/b/c/installed"
  truncate -s 1G "$dir/sparse"
  cp --sparse=always "$dir/sparse" "$dir/sparse-copy"
  [ "$(du -k "$dir/sparse-copy" | cut -f 1)" -lt 100 ]
  tar -C "$dir" -cSf "$dir/../sparse.tar" sparse
  [ "$(stat -c %s "$dir/../sparse.tar")" -lt 100000 ]
  flock "$dir/lock" true
  find "$dir" -name 'part.*' -newer "$dir/file" -delete
  (cd "$dir" && exec 9>log && echo one >&9 && mv log log.1 && echo two >&9 && [ "$(wc -l <log.1)" = 2 ])
}

CASES=(tar_in_and_out tree_after_restart cp_a copies_share_space rm_rf rsync_twice git_clone_fsck_status
  sqlite_wal_writers sqlite_rollback_journal c_build rust_build dpkg_unpack shell_habits)

mkdir -p "$DATA"
linux_tree
cell_start
for name in "${@:-${CASES[@]}}"; do
  case $name in
    tree_after_restart | copies_share_space) run_in_cell "$name" "$name" ;;
    *) run "$name" "$name" ;;
  esac
done
suite_end
