#!/usr/bin/env bash
# The Debian package on a machine that has neither this source nor a compiler: the root of this machine with what is
# written to it elsewhere (an overlay in a mount namespace), where the package is installed, used, installed again while a
# cell runs, and removed.
. "$(dirname "$0")/../lib.sh"
suite package
have_cell || { skip all "needs a cell"; exit 0; }
[ "$(id -u)" = 0 ] || die "needs root: it installs a package"
lee_binary

MACHINE=$WORK/machine
mkdir -p "$MACHINE/written" "$MACHINE/work"

# on_machine COMMAND...: there, as root. Nothing that it starts or mounts outlives it; what it writes does.
on_machine() {
  unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    cd /
    mkdir -p "$0"/root
    mount -t overlay overlay -o "lowerdir=/,upperdir=$0/written,workdir=$0/work" "$0/root"
    for dir in dev sys; do mount --rbind "/$dir" "$0/root/$dir"; done
    mount -t proc proc "$0/root/proc"
    mkdir -p "$0/srv" "$0/root/srv"
    mount --bind "$0/srv" "$0/root/srv"
    for dir in "$1" "$2" /root /run /tmp; do mkdir -p "$0/root$dir"; mount -t tmpfs tmpfs "$0/root$dir"; done
    root=$0
    shift 2
    exec chroot "$root/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive \
      sh -ec '"'"'"$@"'"'"' sh "$@"
  ' "$MACHINE" "$ROOT" "$CARGO_TARGET_DIR" "$@"
}

is_built() {
  package_made "$WORK/out" | grep -x "$WORK/out/leeward_.*\.deb"
  cp "$WORK"/out/leeward_*.deb "$MACHINE/written/leeward.deb"
  dpkg-deb --info "$MACHINE/written/leeward.deb" >"$WORK/info"
  grep -qE '^ Depends: libc6 \(>= 2\.[0-9]+\)' "$WORK/info"
}

is_installed() {
  on_machine sh -ec '
    ! command -v cargo
    dpkg --path-include="/usr/share/*" -i /leeward.deb
    lee --version
    dpkg -V leeward
    for helper in mount.leeward mount.fuse.leeward; do
      [ "$(readlink -f "/usr/sbin/$helper")" = /usr/bin/lee ]
    done
    grep -q "^#LEE_UP_OPTIONS=" /etc/leeward/leeward.env
    cd /usr/share/doc/leeward
    for picture in $(grep -oh "](.*\.\(png\|svg\))" ./*.md | tr -d "]()"); do [ -e "$picture" ]; done'
}

# What a manual page says must be readable by man, what completions are by bash; no unit has a mistake.
comes_with_it() {
  on_machine bash -ec '
    for page in /usr/share/man/man1/lee*.1.gz; do
      # a synopsis of many options has no blank where its line could be broken
      said=$(man --warnings --encoding=utf8 --local-file "$page" 2>&1 >/dev/null | grep -v "t break line" || true)
      [ -z "$said" ] || { echo "$page: $said"; exit 1; }
    done
    . /usr/share/bash-completion/completions/lee
    complete -p lee
    COMP_WORDS=(lee snap sch) COMP_CWORD=2
    _lee lee sch snap
    [ "${COMPREPLY[*]}" = schedule ]
    ! grep -r /usr/local /usr/lib/systemd/system/leeward*
    units=(leeward@srv-cell.service leeward-mount@data.service leeward-gateway@atlas.service)
    touch /etc/leeward/data.mount /etc/leeward/atlas.gateway
    if command -v systemd-analyze; then systemd-analyze verify --man=no "${units[@]}"; fi
    if mount -t leeward 127.0.0.1:1 /mnt; then exit 1; fi 2>/run/said
    grep -q "127.0.0.1:1" /run/said'
}

# A new operator's first minutes, and a new package while the cell runs.
serves_a_cell() {
  on_machine sh -ec '
    lee doctor /srv
    mkdir /data
    lee up /srv/cell --mount /data --background
    cd /data
    lee volume create alice
    echo hello >alice/file
    lee snap create alice before
    rm alice/file
    echo LEE_LOG=debug >>/etc/leeward/leeward.env
    dpkg --path-include="/usr/share/*" -i /leeward.deb
    grep -qx LEE_LOG=debug /etc/leeward/leeward.env
    cat alice/.snap/before/file
    lee audit alice
    cd /
    lee restart /srv/cell
    cat /data/alice/.snap/before/file
    lee down /srv/cell
    lee fsck --cell /srv/cell' >"$WORK/served" || { cat "$WORK/served"; return 1; }
  [ "$(grep -cx hello "$WORK/served")" = 2 ]
  grep -q 'removed /alice/file' "$WORK/served"
}

# The cell stays, and so does what the operator has written.
is_removed() {
  on_machine sh -ec '
    echo LEE_UP_OPTIONS= >/etc/leeward/srv-cell.env
    dpkg -P leeward
    ! command -v lee
    [ -e /etc/leeward/srv-cell.env ] && [ -d /srv/cell/data ]
    rm -r /etc/leeward
    left=$(find /usr /etc /var/lib/dpkg/info -xdev -name "*leeward*" -not -path "/usr/src/*")
    [ -z "$left" ] || { echo "left: $left"; exit 1; }'
}

if ! on_machine true >/dev/null 2>&1; then
  skip all "no overlay in a mount namespace"
  exit 0
fi
run is_built is_built
run is_installed is_installed
run comes_with_it comes_with_it
run serves_a_cell serves_a_cell
run is_removed is_removed
suite_end
