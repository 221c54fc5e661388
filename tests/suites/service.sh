#!/usr/bin/env bash
# The Debian package on a machine of its own, which has systemd and no compiler: a minimal Debian in a container that
# boots. Units serve, mount and open doors, come back after kill -9, and are there again after the machine was off.
. "$(dirname "$0")/../lib.sh"
suite service
have_cell || { skip all "needs a cell"; exit 0; }
[ "$(id -u)" = 0 ] || die "needs root: it boots a machine"
lee_binary

MACHINE=$WORK/machine
PORT=$((24000 + RANDOM % 500 * 4)) # the machine has the network of this one

# on COMMAND...: on the machine, as root.
on() {
  nsenter -t "$(cat "$WORK/leader")" -m -u -i -p -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root \
    DEBIAN_FRONTEND=noninteractive "$@"
}

# as USER DIR FILE: runs its lines there. Each line is shown before it runs, so the last one is the one that failed.
as() { on su -s /bin/bash - "$1" -c "cd $2 && set -evo pipefail && . /dev/stdin" <"$3"; }

# new_host NAME CELL [OPTION...]: adds a host, and prints its token.
new_host() { on lee host add "$1" --json --cell "$2" "${@:3}" | sed 's/.*"token":"\([^"]*\)".*/\1/'; }

# soon COMMAND...: it succeeds within half a minute.
soon() { wait_for 30 "$@"; }

# A Debian as small as possible, from where this machine gets its packages.
debian_is_there() {
  . /etc/os-release
  mmdebstrap --quiet --variant=apt --include=systemd,systemd-sysv,dbus,libnss-systemd,fuse3,curl,acl,attr "$VERSION_CODENAME" "$MACHINE"
}

is_made() {
  package_made "$WORK/out"
  cp "$WORK"/out/leeward_*.deb "$MACHINE/root/leeward.deb"
}

# image ARGUMENT...: buildah, with nothing outside of this suite's directory and no registry.
image() { BUILDAH_ISOLATION=chroot buildah --storage-driver vfs --root "$WORK/images" --runroot "$WORK/images.run" "$@"; }

# The container file, on this Debian in place of the registry's.
a_container_is_built() {
  local base
  base=$(image from scratch)
  image add -q "$base" "$MACHINE" /
  image commit -q "$base" debian:12-slim
  image rm "$base"
  cp "$ROOT/contrib/package/Containerfile" "$WORK/out"
  image bud --pull-never -q -t leeward "$WORK/out"
  image inspect --type image leeward | grep -F '"/usr/bin/lee"'
}

# Boots it, and waits until systemd has started what it starts.
boots() {
  setsid systemd-nspawn --quiet --boot --directory "$MACHINE" --machine "lee-$$" --register=no --keep-unit --bind=/dev/fuse \
    --capability=CAP_SYS_ADMIN --setenv=SYSTEMD_LOG_COLOR=no >"$WORK/console" 2>&1 </dev/null &
  echo $! >"$WORK/nspawn"
  soon leader_is_there
  soon on systemctl is-system-running --wait
}

leader_is_there() { pgrep -P "$(cat "$WORK/nspawn")" -x systemd >"$WORK/leader"; }

is_off() { ! kill -0 "$(cat "$WORK/nspawn")"; }

is_installed() {
  on apt-get install -qq -y --no-install-recommends /root/leeward.deb
  if on sh -c 'command -v cc || command -v cargo'; then return 1; fi
  on lee doctor /srv
  on useradd -m ann
}

# A mistake is told, and not tried a thousand times.
tells_what_is_missing() {
  on sh -ec "
    mkdir -p /etc/leeward
    echo 'LEE_UP_OPTIONS=--mount /data --http 127.0.0.1:$PORT --listen 127.0.0.1:$((PORT + 1))' >/etc/leeward/srv-cell.env
    if systemctl enable --now leeward@srv-cell; then exit 1; fi
    sleep 3
    journalctl -u leeward@srv-cell | grep -q 'mkdir -p /data'
    [ \$(journalctl -u leeward@srv-cell | grep -c 'mkdir -p /data') -le 3 ]
    mkdir /data"
  soon on mountpoint -q /data
}

users_help_themselves() {
  on sh -ec '
    if lee volume create ann --owner ann 2>/run/said; then exit 1; fi
    grep -q -e "--cell /data" /run/said
    lee volume create ann --owner ann --cell /data'
  on su - ann -c 'set -e; cd /data/ann
    echo hello >file; mkdir .snap/before; rm file; cp .snap/before/file .
    lee group create ann:lab; lee group add ann:lab ann
    lee console'
  soon on sh -c 'id ann | grep -q ann+lab'
}

# back PATH UNIT: after kill -9 of the unit's process the path answers again.
back() {
  local old since
  old=$(on systemctl show --property MainPID --value "$2")
  on sh -c "kill -9 $old"
  since=$(now_ms)
  until [ "$(on systemctl show --property MainPID --value "$2")" != "$old" ] && on timeout 1 cat "$1" >/dev/null 2>&1; do
    [ $(($(now_ms) - since)) -lt 30000 ] || { on systemctl status --no-pager "$2"; return 1; }
  done
  echo "NOTE $2: answers after $(($(now_ms) - since)) ms"
}

comes_back() { back /data/ann/file leeward@srv-cell; }

other_machines_mount() {
  local token
  token=$(new_host node1 /data)
  printf 'LEE_SERVER=127.0.0.1:%s\nLEE_MOUNT_TOKEN=%s\n' $((PORT + 1)) "$token" >"$MACHINE/etc/leeward/remote.mount"
  on systemctl enable --now leeward-mount@remote
  on cat /remote/ann/file
  back /remote/ann/file leeward-mount@remote
  # the machine is known by now
  echo "127.0.0.1:$((PORT + 1)) /table leeward defaults,_netdev 0 0" >>"$MACHINE/etc/fstab"
  on sh -ec 'mkdir /table; mount /table; cat /table/ann/file; umount /table'
  # else the machine would wait at its next start for what it serves itself
  sed -i '/leeward/d' "$MACHINE/etc/fstab"
}

# As a user who may read the key of TLS and nothing else, at a port of the system's.
a_gateway_has_no_rights() {
  local token server=127.0.0.1:$((PORT + 1)) port
  port=$(free_port 100 900)
  token=$(new_host door1 /data --gateway)
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$MACHINE/etc/leeward/door.key" -out "$MACHINE/etc/leeward/door.crt"
  on sh -c 'chgrp leeward /etc/leeward/door.key; chmod 640 /etc/leeward/door.key'
  printf 'LEE_SERVER=%s\nLEE_GATEWAY_TOKEN=%s\nLEE_GATEWAY_OPTIONS=--s3 127.0.0.1:%s --tls-certificate %s --tls-key %s\n' \
    "$server" "$token" "$port" /etc/leeward/door.crt /etc/leeward/door.key >"$MACHINE/etc/leeward/atlas.gateway"
  on systemctl enable --now leeward-gateway@atlas
  on sh -c 'stat -c %U /proc/$(systemctl show --property MainPID --value leeward-gateway@atlas)' | grep -x leeward
  on lee gateway "$server" --status | grep door1
  on systemd-analyze security --no-pager --threshold=25 leeward-gateway@atlas >"$WORK/security" || { cat "$WORK/security"; return 1; }
  echo "NOTE leeward-gateway@: $(tail -n 1 "$WORK/security" | cut -c 5-)"
  on curl -s --cacert /etc/leeward/door.crt "https://127.0.0.1:$port/" | grep AccessDenied
  on sh -c 'kill -9 $(systemctl show --property MainPID --value leeward-gateway@atlas)'
  soon on sh -c "curl -s --cacert /etc/leeward/door.crt https://127.0.0.1:$port/ | grep AccessDenied"
}

the_container_is_a_gateway() {
  local container token port id secret
  port=$(free_port) token=$(new_host in-container /data --gateway) container=$(image from --pull-never leeward)
  image run --env "LEE_GATEWAY_TOKEN=$token" "$container" -- lee gateway --s3 "127.0.0.1:$port" "127.0.0.1:$((PORT + 1))" \
    >"$WORK/container.log" 2>&1 </dev/null &
  echo $! >"$WORK/container"
  echo "$port" >"$WORK/container.port"
  read -r id secret < <(on su - ann -c 'lee key create ann --json --cell /data' | sed 's/.*"access_key_id":"\([^"]*\)".*"secret_access_key":"\([^"]*\)".*/\1 \2/')
  soon curl -sf -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --user "$id:$secret" --aws-sigv4 aws:amz:us-east-1:s3 -o "$WORK/file" \
    "http://127.0.0.1:$port/ann/file" || { cat "$WORK/container.log"; return 1; }
  on cmp - /data/ann/file <"$WORK/file"
  on lee session list --cell /data | grep in-container
  end_container TERM
}

# end_container SIGNAL: the gateway in it, and what waits for that.
end_container() {
  local pid
  pid=$(pgrep -f "^/usr/bin/lee gateway --s3 127.0.0.1:$(cat "$WORK/container.port") ")
  kill "-$1" "$pid"
  wait_gone "$(cat "$WORK/container")" 20
  rm "$WORK/container.port"
}
on_exit '[ ! -e "$WORK/container.port" ] || end_container KILL'

# What README shows in ten minutes, but what needs other machines, `lee watch`, which goes on, and what the suite lab tries.
the_tour_works() {
  awk '/^## /{on = /^## Ten minutes/} on && /^    [^ #]/' "$ROOT/README.md" |
    grep -vE 'alias lee|HOST|example\.org|s3://|/net/|lee watch|lee lab|TOKEN' | sed "/lee down/q; s/9547/$((PORT + 3))/; s/8080/$((PORT + 4))/" >"$WORK/tour"
  [ "$(grep -c lee "$WORK/tour")" -ge 40 ] || { say "the tour is not where it was"; return 1; }
  on sh -c 'useradd alice; useradd bob; mkdir -p /root/tour'
  as root /root/tour "$WORK/tour"
  on sh -ec 'cd /; lee fsck --cell /root/tour/cell; rm -r /root/tour /var/tmp/pool'
}

. "$ROOT/tests/operate.sh" # cases `operate_...`

# A newer package leaves the cell running until its service is restarted.
a_newer_package_waits() {
  local before
  before=$(on systemctl show --property MainPID --value leeward@srv-cell)
  on apt-get install -qq -y --reinstall /root/leeward.deb
  [ "$(on systemctl show --property MainPID --value leeward@srv-cell)" = "$before" ]
  on systemctl restart leeward@srv-cell
  soon on cat /data/ann/file
  soon on cat /remote/ann/file
}

is_there_after_the_machine_was_off() {
  on su - ann -c 'echo last >/data/ann/last'
  on systemctl poweroff --no-block
  wait_for 120 is_off
  boots
  on systemctl is-active leeward@srv-cell
  on grep -x last /data/ann/last
  soon on grep -x last /remote/ann/last
  on sh -c 'journalctl -b -1 -u leeward@srv-cell | grep "is closed; everything is durable"'
}

is_removed() {
  on sh -ec '
    systemctl disable --now leeward-mount@remote leeward-gateway@atlas leeward@srv-cell
    lee fsck --cell /srv/cell
    apt-get purge -qq -y leeward
    [ -d /srv/cell/data ] && [ -e /etc/leeward/srv-cell.env ]'
}

# The machine's first process takes all others with it.
ends() {
  kill -KILL "$(cat "$WORK/leader")"
  wait_for 120 is_off
}

on_exit 'kill -KILL "$(cat "$WORK/leader")" "$(cat "$WORK/nspawn")"; sleep 0.5'
# Nothing of ours is in it until here: a machine may have no packages, or run in a container that starts no others.
for step in debian_is_there boots; do
  (set -e; "$step") >"$WORK/$step.log" 2>&1 </dev/null && continue
  skip all "no machine can be started here ($step): $(tail -n 1 "$WORK/$step.log")"
  exit 0
done
run is_made is_made
if command -v buildah >/dev/null || apt-get install -qq -y --no-install-recommends buildah >"$WORK/apt.log" 2>&1; then
  run a_container_is_built a_container_is_built
else
  skip a_container_is_built "needs buildah: apt-get install buildah"
fi
run is_installed is_installed
run tells_what_is_missing tells_what_is_missing
run users_help_themselves users_help_themselves
run comes_back comes_back
run other_machines_mount other_machines_mount
run a_gateway_has_no_rights a_gateway_has_no_rights
if [ -d "$WORK/images" ]; then run the_container_is_a_gateway the_container_is_a_gateway; fi
run the_tour_works the_tour_works
for case in every_block_is_run users_are_there in_the_background pools_and_disks users_and_groups what_is_told doors_and_machines in_and_out; do
  run "operate_$case" "$case"
done
run a_newer_package_waits a_newer_package_waits
run is_there_after_the_machine_was_off is_there_after_the_machine_was_off
run is_removed is_removed
run ends ends
suite_end
