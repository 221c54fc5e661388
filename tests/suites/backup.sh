#!/usr/bin/env bash
# Backups in restic's format: made by the cell, checked and restored by stock restic and by lee, and compared.
. "$(dirname "$0")/../lib.sh"
suite backup
[ "$(id -u)" = 0 ] || { skip all "needs root"; exit 0; }
have_cell || { skip all "needs a cell"; exit 0; }
command -v restic >/dev/null || { skip all "needs restic: apt-get install restic"; exit 0; }
SRC=$MNT/home VAULT=$WORK/vault PASSWORD=$WORK/password OUT=$WORK/out
export RESTIC_REPOSITORY=$VAULT RESTIC_PASSWORD_FILE=$PASSWORD RESTIC_CACHE_DIR=$WORK/cache

# All that a backup keeps of a tree, a line for each name.
listing() {
  python3 - "$1" <<'PYTHON'
import hashlib, os, stat, sys
top = os.fsencode(sys.argv[1])
names, lines = {}, []
for at, dirs, files in os.walk(top):
    for path in [at] + [os.path.join(at, name) for name in files] + [
        os.path.join(at, name) for name in dirs if os.path.islink(os.path.join(at, name))]:
        s = os.lstat(path)
        names.setdefault(s.st_ino, []).append(path[len(top):])
        line = [path[len(top):], s.st_ino, oct(s.st_mode), s.st_uid, s.st_gid, s.st_rdev, s.st_mtime_ns]
        for name in sorted(os.listxattr(path, follow_symlinks=False)):
            line += [name, os.getxattr(path, name, follow_symlinks=False)]
        if stat.S_ISLNK(s.st_mode):
            line.append(os.readlink(path))
        elif not stat.S_ISDIR(s.st_mode):
            line.append(s.st_nlink)
        if stat.S_ISREG(s.st_mode):
            line += [s.st_size, hashlib.sha256(open(path, "rb").read()).hexdigest()]
        lines.append(line)
for line in lines:
    line[1] = min(names[line[1]])  # names of the same inode
    sys.stdout.buffer.write(b" ".join(p if type(p) is bytes else str(p).encode() for p in line).replace(b"\n", b"\\n") + b"\n")
PYTHON
}

# gives_back DIRECTORY: what was restored there is what the last backup's snapshot shows, but names below BUT.
BUT=/nothing
gives_back() {
  local snap
  snap=$(ls "$SRC/.snap" | grep ^backup- | tail -1)
  listing "$SRC/.snap/$snap" | grep -av "^$BUT " | sort >"$WORK/was"
  listing "$1" | grep -av "^$BUT " | sort >"$WORK/is"
  [ "$(wc -l <"$WORK/was")" -gt 100 ]
  cmp "$WORK/was" "$WORK/is" || { diff -a "$WORK/was" "$WORK/is" >"$WORK/differ" || true; sed -n 1,6p "$WORK/differ"; return 1; }
}
by_restic() {
  rm -rf "$OUT"
  restic check --read-data --no-cache >"$WORK/check" 2>&1 || { tail -5 "$WORK/check"; return 1; }
  restic restore latest --target "$OUT" >"$WORK/restored" 2>&1 || { tail -5 "$WORK/restored"; return 1; }
  BUT=/a/soft2 gives_back "$OUT/home" # restic before 0.17 cannot restore targets that are no UTF-8
}
by_lee() { # without the cell, into a directory that gives an ACL to what is made in it
  rm -rf "$OUT"
  mkdir "$OUT"
  setfacl -d -m u:65534:rwx "$OUT"
  "$LEE" backup restore home --from "$VAULT" --password-file "$PASSWORD" --to "$OUT" >/dev/null
  gives_back "$OUT"
}

all_of_a_volume_comes_back() {
  (umask 077 && echo "open sesame" >"$PASSWORD")
  lee volume create home
  mkdir -p "$SRC/a/b/c" "$SRC/$(printf 'not\377utf8')" "$SRC/$(printf 'line\nbreak "quoted" \\')"
  etc_copy
  cp -a "$WORK/etc" "$SRC/a/b/etc"
  ln "$SRC/a/b/etc/passwd" "$SRC/a/hard"
  ln -s nowhere "$SRC/a/soft"
  ln -s "$(printf 'to\377')" "$SRC/a/soft2"
  mkfifo "$SRC/fifo"
  mknod "$SRC/null" c 1 3
  truncate -s 300M "$SRC/sparse"
  dd if=/dev/urandom of="$SRC/sparse" bs=4k seek=50000 count=300 conv=notrunc status=none
  dd if=/dev/urandom of="$SRC/big" bs=1M count=60 status=none
  setfattr -n user.color -v red "$SRC/a"
  setfacl -m u:65534:rwx "$SRC/a/hard"
  chmod 6751 "$SRC/a/b/etc/fstab"
  touch -d '1969-01-01 00:00:01.123456789' "$SRC/a/b/c"
  (cd "$SRC/a" && mkdir many && cd many && seq 3000 | xargs touch)
  lee backup add home --to "$VAULT" --password-file "$PASSWORD"
  lee backup run home
  by_restic
  by_lee
}

only_changes_are_stored() {
  mv "$SRC/a/b" "$SRC/moved"
  mv "$SRC/a/many" "$SRC/renamed"
  rm -r "$SRC/moved/etc/default"
  echo more >>"$SRC/moved/etc/passwd"
  dd if=/dev/urandom of="$SRC/sparse" bs=4k seek=25000 count=1 conv=notrunc status=none # no record was there
  dd if=/dev/urandom of="$SRC/big" bs=1k seek=33333 count=1 conv=notrunc status=none
  chmod 600 "$SRC/renamed/17"
  setfattr -x user.color "$SRC/a"
  rm "$SRC/a/soft"
  mkdir "$SRC/a/soft"
  lee backup run home --json >"$WORK/run.json"
  local files
  files=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["backups"][0]["last"]["files_read"])' "$WORK/run.json")
  say "NOTE $files files were read"
  [ "$files" -le 4 ]
  by_restic
  by_lee
}

without_the_older_snapshot() {
  lee snap remove /home "$(ls "$SRC/.snap" | grep ^backup-)"
  echo again >>"$SRC/moved/etc/passwd"
  lee backup run home
  by_restic
  lee backup check home --read-data
  lee backup test home
}

what_others_change_or_lose() {
  restic tag --add changed latest >/dev/null # as what restic repairs and rewrites, it is not what the cell's snapshot shows
  echo once more >>"$SRC/moved/etc/passwd"
  lee backup run home
  by_restic
  # packs of content and of directories
  find "$VAULT/data" -type f -printf '%s %p\n' | sort -n | awk 'NR == 1 || NR % 2' | cut -d' ' -f2 | xargs rm
  if lee backup check home >"$WORK/e"; then return 1; fi
  rm -rf "$OUT"
  if lee backup restore home --from "$VAULT" --password-file "$PASSWORD" --to "$OUT" >"$WORK/e" 2>&1; then return 1; fi
  grep -q 'has no blob' "$WORK/e"
  lee backup run home >"$WORK/e"
  grep -q 'stored again' "$WORK/e" || { cat "$WORK/e"; return 1; }
  by_lee
  restic forget --keep-last 1 >/dev/null
  lee backup run home --all --prune
  by_restic
  lee backup check home --read-data
}

killed_at_any_time() {
  local n
  for n in 1 2 3; do
    dd if=/dev/urandom of="$SRC/new$n" bs=1M count=60 status=none
    lee sync
    lee backup run home >/dev/null 2>&1 &
    sleep "0.$n"
    kill -9 "$(cell_pid)"
    wait $! || true
    cell_start
    lee backup run home --prune
    by_restic
  done
  [ "$(restic list locks 2>/dev/null | wc -l)" = 0 ]
}

# lists alarm|calm SECONDS: within that time the list has an alarm of a backup that does not give back, or none.
lists() {
  local n
  for ((n = 0; n < $2 * 5; n++)); do
    lee backup list >"$WORK/e"
    case $1 in alarm) grep -q 'ALARM.*does not give back' "$WORK/e" && return ;; calm) grep -q ALARM "$WORK/e" || return 0 ;; esac
    sleep 0.2
  done
  cat "$WORK/e"
  return 1
}

tested_by_itself() {
  if lee backup add home --to "$VAULT" --password-file "$PASSWORD" --test-every 1s 2>"$WORK/e"; then return 1; fi
  grep -q 'is no interval' "$WORK/e"
  lee backup add home --to "$VAULT" --password-file "$PASSWORD" --test-every 1m
  find "$VAULT/data" -type f -size +1M -print -quit >"$WORK/pack"
  xargs rm <"$WORK/pack"
  lists alarm 90
  kill -9 "$(cell_pid)"
  cell_start
  lists alarm 1
  lee backup run home >"$WORK/e" # all of it is read, and what was made is tested at once
  grep -q 'stored again' "$WORK/e" || { cat "$WORK/e"; return 1; }
  lists calm 120
  lee backup list --json >"$WORK/list.json"
  python3 -c 'import json,sys; b = json.load(open(sys.argv[1]))["backups"][0]; assert b["tested"]["id"] == b["last"]["id"] and not b["test_late"], b' "$WORK/list.json"
}

# An sshd of its own at loopback, and an ssh that knows it and nothing of this machine's.
sshd_start() {
  mkdir -p "$WORK/bin" /run/sshd
  SSH_PORT=$(free_port)
  for key in host user; do [ -e "$WORK/$key" ] || ssh-keygen -q -N '' -t ed25519 -f "$WORK/$key"; done
  printf '%s\n' "Port $SSH_PORT" 'ListenAddress 127.0.0.1' "HostKey $WORK/host" "PidFile $WORK/sshd.pid" "AuthorizedKeysFile $WORK/user.pub" \
    'StrictModes no' 'PermitRootLogin yes' 'Subsystem sftp internal-sftp' >"$WORK/sshd_config"
  printf '%s\n' "IdentityFile $WORK/user" "UserKnownHostsFile $WORK/known" 'IdentitiesOnly yes' >"$WORK/ssh_config"
  printf '#!/bin/sh\nexec /usr/bin/ssh -F %s "$@"\n' "$WORK/ssh_config" >"$WORK/bin/ssh"
  chmod +x "$WORK/bin/ssh"
  /usr/sbin/sshd -D -f "$WORK/sshd_config" -E "$WORK/sshd.log" </dev/null &
  SSHD=$!
  until (: </dev/tcp/127.0.0.1/"$SSH_PORT") 2>/dev/null; do kill -0 "$SSHD" && sleep 0.1 || return 1; done
}

behind_sftp() {
  [ -x /usr/sbin/sshd ] || { say "NOTE no sshd: apt-get install openssh-server"; return 1; }
  sshd_start
  lee backup remove home --to "$VAULT" >/dev/null # one at a time: then the last snapshot of a backup is that of this one
  local path=$PATH there="sftp://root@127.0.0.1:$SSH_PORT/$WORK/behind"
  cell_stop
  PATH=$WORK/bin:$PATH # of the server, which runs ssh, and of restic
  cell_start
  if lee backup add home --to "$there" --password-file "$PASSWORD" 2>"$WORK/e"; then return 1; fi
  grep -q 'Host key verification failed' "$WORK/e"
  printf '[127.0.0.1]:%s %s\n' "$SSH_PORT" "$(cat "$WORK/host.pub")" >"$WORK/known"
  lee backup add home --to "$there" --password-file "$PASSWORD"
  lee backup run home --to "$there"
  RESTIC_REPOSITORY=$there by_restic
  VAULT=$there by_lee
  # a connection ends while files are stored
  dd if=/dev/urandom of="$SRC/behind" bs=1M count=200 status=none
  touch "$WORK/before"
  lee backup run home --to "$there" --prune &
  until [ -n "$(find "$WORK/behind/data" -type f -newer "$WORK/before" -print -quit)" ]; do kill -0 $! && sleep 0.01; done
  pkill -KILL -P "$SSHD"
  wait $!
  RESTIC_REPOSITORY=$there by_restic
  lee backup check home --from "$there" --password-file "$PASSWORD" --read-data
  pkill -KILL -P "$SSHD" || true
  kill "$SSHD"
  wait "$SSHD" || true
  if lee backup run home --to "$there" 2>"$WORK/e"; then return 1; fi
  grep -q 'Connection refused' "$WORK/e" || { cat "$WORK/e"; return 1; }
  lee backup remove home --to "$there" >/dev/null
  PATH=$path
  cell_stop
  cell_start
  lee backup add home --to "$VAULT" --password-file "$PASSWORD"
  lee backup run home >/dev/null
}

errors_say_what_to_do() {
  local place
  ln -s "$MNT" "$WORK/link"
  for place in "$CELL/vault" "$MNT/vault" "$MNT" "$WORK/link" "$WORK/link/not/yet"; do
    if lee backup add home --to "$place" --password-file "$PASSWORD" 2>"$WORK/e"; then return 1; fi
    grep -q 'in the cell' "$WORK/e"
  done
  mv "$VAULT" "$VAULT.away"
  if lee backup run home 2>"$WORK/e"; then return 1; fi
  grep -q 'is it mounted' "$WORK/e"
  lee backup list >"$WORK/e"
  grep -q ALARM "$WORK/e"
  mv "$VAULT.away" "$VAULT"
  (umask 077 && echo wrong >"$PASSWORD.wrong")
  if lee backup check --from "$VAULT" --password-file "$PASSWORD.wrong" 2>"$WORK/e"; then return 1; fi
  grep -q 'opens no key' "$WORK/e"
  rm "$(find "$VAULT/data" -type f -print -quit)"
  if lee backup test home >"$WORK/e" 2>&1; then cat "$WORK/e"; return 1; fi
  grep 'has no blob' "$WORK/e" >/dev/null || { cat "$WORK/e"; return 1; }
  lee backup list >"$WORK/e"
  grep -q 'ALARM.*does not give back' "$WORK/e"
  if lee backup check home >"$WORK/e"; then return 1; fi
  grep -q 'missing' "$WORK/e"
  lee backup remove home >"$WORK/e"
  grep -q 'what was backed up stays' "$WORK/e"
  [ -z "$(ls "$SRC/.snap")" ]
  [ -e "$VAULT/config" ]
}

on_exit '[ ! -e "$WORK/sshd.pid" ] || kill -KILL "$(cat "$WORK/sshd.pid")"'
cell_start
for case in all_of_a_volume_comes_back only_changes_are_stored without_the_older_snapshot what_others_change_or_lose killed_at_any_time tested_by_itself behind_sftp errors_say_what_to_do; do
  run "$case" "$case"
done
suite_end
