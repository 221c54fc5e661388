#!/usr/bin/env bash
# The pages of docs/disasters: each disaster is made, the page's own commands are run, and what users had is there.
. "$(dirname "$0")/../lib.sh"
suite disasters
[ "$(id -u)" = 0 ] || { skip all "needs root"; exit 0; }
have_cell || { skip all "needs a cell"; exit 0; }
command -v restic >/dev/null || { skip all "needs restic: apt-get install restic"; exit 0; }
lee_binary

CELL=$WORK/cell THERE=$WORK/there VAULT=$WORK/vault HOME_HERE=$WORK/cell/mnt/home
export RESTIC_CACHE_DIR=$WORK/restic
mkdir "$WORK/bin"
ln -s "$LEE" "$WORK/bin/lee"
export PATH=$WORK/bin:$PATH
PORT=$((32000 + $$ % 380 * 2)) # below what the kernel gives to clients: servers come back at it

pid_of() { sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$1/lock"; }
down() { [ ! -e "$1" ] || lee down "$1" || umount -l "$1/mnt"; }
on_exit 'down "$CELL"; down "$THERE"; down "$WORK/new"'

# page NAME NUMBER...: runs these of the page's blocks of commands, with the places and names of this test.
page() {
  local name=$1 number
  shift
  for number in "$@"; do
    python3 - "$ROOT/docs/disasters/$name.md" "$number" >"$WORK/block" <<'PYTHON'
import re, sys
print(re.findall(r"^```sh\n(.*?)^```$", open(sys.argv[1]).read(), re.M | re.S)[int(sys.argv[2]) - 1], end="")
PYTHON
    sed -i -e "s#/srv/cell#$CELL#g; s#/srv/standby#$THERE#g; s#/srv/new#$WORK/new#g; s#/net/vault2/home#$WORK/vault2#g" \
      -e "s#/net/vault/home#$VAULT#g; s#/root/#$WORK/#g; s#/disk7#$WORK/disk7 --force#g" \
      -e "s#old.example.org#127.0.0.1:$PORT#g; s#TOKEN#${TOKEN:-}#g" "$WORK/block"
    (cd / && bash -euo pipefail "$WORK/block") >"$WORK/said" 2>&1 || { cat "$WORK/block" "$WORK/said"; return 1; }
    sed 's/^/  /' "$WORK/said"
  done
}
every_block_is_run() { # of each page, as many as the cases name
  local name blocks run
  for name in "$ROOT"/docs/disasters/*.md; do
    blocks=$(grep -c '^```sh$' "$name")
    name=$(basename "$name" .md)
    run=$(sed -n "s/^ *page $name \([0-9 ]*\).*/\1/p" "${BASH_SOURCE[0]}" | tr ' ' '\n' | grep -v '^$' | sort -u | wc -l)
    [ "$run" = "$blocks" ] || { say "$name has $blocks blocks, and $run are run"; return 1; }
  done
}

# What users had, by its sums.
is_as_before() { (cd "$1" && sha256sum --quiet --strict -c "$WORK/sums"); }
note_sums() { (cd "$HOME_HERE" && find . -path ./.snap -prune -o -type f -print0 | xargs -0 sha256sum >"$WORK/sums"); }

set_up() {
  lee up "$CELL" --background --listen "127.0.0.1:$PORT"
  lee volume create home --cell "$CELL"
  (umask 077 && echo secret >"$WORK/vault.password" && echo other >"$WORK/vault2.password" && echo third >"$WORK/new.password")
  page README 1
  mkdir -p "$HOME_HERE/alice/data" "$HOME_HERE/alice/results"
  etc_copy
  cp -a "$WORK/etc/." "$HOME_HERE/alice/data"
  seq 100000 >"$HOME_HERE/alice/results/numbers"
  echo chapter >"$HOME_HERE/alice/thesis"
  note_sums
  lee snap create /home before --cell "$CELL"
  lee backup run home --cell "$CELL"
}

kill_with_keeper() {
  local keeper
  keeper=$(lee status "$CELL" --json | sed -n 's/.*"kept_by":\([0-9]*\).*/\1/p')
  kill -9 "$keeper" "$(pid_of "$CELL")"
}

server() {
  kill_with_keeper
  page server 1
  is_as_before "$HOME_HERE"
  page server 2
  lee down "$CELL"
  lee up "$CELL" --background --listen "127.0.0.1:$PORT"
}

disk() {
  mkdir "$WORK/disk"{1,2,3,7}
  lee pool create wide --layout 'erasure(2+1)' --store "$WORK/disk1" --store "$WORK/disk2" --store "$WORK/disk3" --force --cell "$CELL"
  lee volume create results --pool wide --cell "$CELL"
  cp -a "$HOME_HERE/alice" "$CELL/mnt/results/"
  lee sync --cell "$CELL"
  rm -r "$WORK/disk3" # number 2
  if lee pool store replace wide 1 --by "$WORK/disk7" --force --lose-data --cell "$CELL" 2>"$WORK/said"; then return 1; fi
  grep -q 'store 1 is there, and store 2 is not' "$WORK/said"
  page disk 1
  is_as_before "$CELL/mnt/results"
  lee pool show wide --cell "$CELL" --json >"$WORK/pool.json"
  python3 -c 'import json, sys; h = json.load(open(sys.argv[1]))["health"]; assert h["may_lose"] == 1 and not h["degraded_objects"], h' "$WORK/pool.json"
}

removed() {
  rm -r "$HOME_HERE/alice/thesis" "$HOME_HERE/alice/data" "$HOME_HERE/alice/results"
  page removed 1 2 3
  is_as_before "$HOME_HERE"
}

ransomware() {
  local file
  (cd "$HOME_HERE/alice" && find . -type f) >"$WORK/files"
  while read -r file; do
    openssl rand 300 >"$HOME_HERE/alice/$file"
    mv "$HOME_HERE/alice/$file" "$HOME_HERE/alice/$file.locked"
  done <"$WORK/files"
  echo good >"$HOME_HERE/alice/later"
  page ransomware 1 2
  [ "$(grep -c '\.locked' "$WORK/said")" -ge "$(wc -l <"$WORK/files")" ]
  page ransomware 3
  is_as_before "$HOME_HERE"
  [ -z "$(find "$HOME_HERE" -name '*.locked')" ]
  [ "$(cat "$HOME_HERE/.snap/evidence/alice/later")" = good ]
  if rmdir "$HOME_HERE/.snap/before" 2>/dev/null; then return 1; fi
}

site() {
  local TOKEN
  lee up "$THERE" --background
  lee mirror add home --to "$THERE" --cell "$CELL"
  lee mirror run home --cell "$CELL"
  echo unsent >"$HOME_HERE/unsent"
  lee sync --cell "$CELL"
  kill_with_keeper
  page site 1
  is_as_before "$THERE/mnt/home"
  echo meanwhile >"$THERE/mnt/home/meanwhile"
  lee up "$CELL" --background --listen "127.0.0.1:$PORT"
  page site 2
  TOKEN=$(lee host invite standby --cell "$CELL" --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
  page site 3
  [ "$(cat "$HOME_HERE"/.snap/set-aside-*/unsent)" = unsent ]
  page site 4
  [ "$(cat "$HOME_HERE/meanwhile")" = meanwhile ]
  echo here >"$HOME_HERE/here"
  if touch "$THERE/mnt/home/no" 2>/dev/null; then return 1; fi
  lee mirror run home --cell "$CELL"
  [ "$(cat "$THERE/mnt/home/here")" = here ]
  page site 5
  is_as_before "$WORK/new/mnt/home"
}

password() {
  lee backup remove home --cell "$THERE" || true
  rm -rf "$WORK/vault2"
  page password 2
  page password 1
  [ -e "$VAULT/config" ]
  lee user create alice --uid 4711 --cell "$CELL"
  lee key create alice --cell "$CELL" --json >"$WORK/key.json"
  page password 3
  lee key list --cell "$CELL" >"$WORK/keys"
  if grep "$(sed -n 's/.*"access_key_id":"\([^"]*\)".*/\1/p' "$WORK/key.json")" "$WORK/keys" | grep -v revoked >&2; then return 1; fi
  lee host add node01 --cell "$CELL"
  page password 4
}

run set_up set_up
for case in server disk removed ransomware site password every_block_is_run; do
  run "$case" "$case"
done
both_end() { lee fsck --cell "$CELL" && lee fsck --cell "$THERE" && lee down "$CELL" && lee down "$THERE" && lee down "$WORK/new"; }
run end both_end
suite_end
