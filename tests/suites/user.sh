#!/usr/bin/env bash
# An ordinary user serves and mounts a cell of their own by fusermount3; and on a cell that root serves, what users may
# do follows from their user and groups.
. "$(dirname "$0")/../lib.sh"
suite user
[ "$(id -u)" = 0 ] || die "needs root: it becomes other users"
have_cell || { skip all "needs a cell"; exit 0; }
user_account tests # fusermount3 wants a name for who mounts
USER_ID=$(id -u tests) OTHER_ID=61002 PROJECT=61100

# as USER-ID COMMAND...: with that user's group and the project's.
as() {
  local uid=$1
  shift
  setpriv --reuid "$uid" --regid "$uid" --groups "$uid,$PROJECT" --inh-caps=-all --bounding-set=-all -- "$@"
}

# as_mounter COMMAND...: the ordinary user with a home; fusermount3 is set-uid root, so the bounding set stays.
as_mounter() { setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups --inh-caps=-all -- env HOME="$WORK/home" "$@"; }

refused() {
  if "$@" 2>"$WORK/refused"; then say "was allowed: $*"; return 1; fi
  grep -qE 'Permission denied|Operation not permitted' "$WORK/refused" || { cat "$WORK/refused"; return 1; }
}

ownership_decides() {
  install -d -o "$USER_ID" -g "$USER_ID" -m 700 "$MNT/private"
  as "$USER_ID" sh -c "echo secret >'$MNT/private/file'"
  [ "$(stat -c %u:%g "$MNT/private/file")" = "$USER_ID:$USER_ID" ]
  refused as "$OTHER_ID" cat "$MNT/private/file"
  refused as "$OTHER_ID" ls "$MNT/private"
  refused as "$OTHER_ID" touch "$MNT/private/mine"
  refused as "$USER_ID" chown "$OTHER_ID" "$MNT/private/file"
  refused as "$OTHER_ID" chmod 777 "$MNT/private"
  refused as "$USER_ID" mknod "$MNT/private/device" c 1 3
  refused as "$USER_ID" touch "$MNT/in-the-root"
}

groups_decide() {
  install -d -g "$PROJECT" -m 2770 "$MNT/project"
  as "$USER_ID" sh -c "umask 002; echo ours >'$MNT/project/file'; mkdir '$MNT/project/dir'"
  as "$OTHER_ID" sh -c "echo more >>'$MNT/project/file'; touch '$MNT/project/dir/file'"
  [ "$(stat -c %g "$MNT/project/file" "$MNT/project/dir" "$MNT/project/dir/file" | sort -u)" = "$PROJECT" ]
  refused setpriv --reuid 61009 --regid 61009 --clear-groups ls "$MNT/project"
}

volume_of_a_user() {
  lee volume create alice --owner "$USER_ID"
  as "$USER_ID" mkdir "$MNT/alice/work"
  refused as "$OTHER_ID" touch "$MNT/alice/theirs"
}

snapshots_by_right() {
  lee volume create team --owner "$USER_ID"
  as "$USER_ID" mkdir "$MNT/team/.snap/mine"
  refused as "$OTHER_ID" mkdir "$MNT/team/.snap/theirs"
  lee volume allow team snapshot "@$PROJECT"
  as "$OTHER_ID" mkdir "$MNT/team/.snap/theirs"
  lee volume deny team snapshot "@$PROJECT"
  refused as "$OTHER_ID" rmdir "$MNT/team/.snap/theirs"
  lee snap lock /team theirs --until +1d
  refused as "$USER_ID" rmdir "$MNT/team/.snap/theirs"
  as "$USER_ID" rmdir "$MNT/team/.snap/mine"
}

# A copy of the binary where everybody may run it, and a directory of the user's own.
prepare_mounter() {
  install -m 755 "$LEE" "$WORK/lee"
  install -d -o "$USER_ID" -g "$USER_ID" "$WORK/home"
  local mode
  mode=$(stat -c %a /dev/fuse)
  [ "$mode" = 666 ] || { chmod 666 /dev/fuse && on_exit "chmod $mode /dev/fuse"; } # as udev leaves it
}

mounter_serves() {
  local home=$WORK/home
  as_mounter "$WORK/lee" up "$home/cell" --mount "$home/mnt" --background
  as_mounter sh -c "echo mine >'$home/mnt/file' && cat '$home/mnt/file' && mkdir '$home/mnt/dir' && ln '$home/mnt/file' '$home/mnt/dir/link'"
  [ "$(as_mounter stat -c %u:%g:%h "$home/mnt/file")" = "$USER_ID:$USER_ID:2" ]
  as_mounter "$WORK/lee" status "$home/cell"
  as_mounter "$WORK/lee" volume create more --cell "$home/cell"
  as_mounter "$WORK/lee" snap create / served --cell "$home/cell"
  as_mounter "$WORK/lee" down "$home/cell"
  if mountpoint -q "$home/mnt"; then say "still mounted"; return 1; fi
  as_mounter "$WORK/lee" snap rename / served kept --cell "$home/cell"
  as_mounter "$WORK/lee" fsck --cell "$home/cell"
  as_mounter "$WORK/lee" up "$home/cell" --mount "$home/mnt" --background
  as_mounter grep -q mine "$home/mnt/dir/link"
  as_mounter "$WORK/lee" down "$home/cell"
}

# A machine without the package: its programs are hidden from one process and its children.
without_fusermount() {
  local home=$WORK/home hidden=$WORK/hidden
  mkdir "$hidden"
  mknod "$hidden/fusermount3" c 0 0
  mknod "$hidden/fusermount" c 0 0
  export -f as_mounter
  export USER_ID WORK
  unshare -m bash -ec "
    mount -t overlay -o lowerdir='$hidden':/usr/bin overlay /usr/bin
    ! command -v fusermount3
    as_mounter '$WORK/lee' up '$home/cell2' --mount '$home/mnt2'" >"$WORK/said" 2>&1 && return 1
  grep -q fuse3 "$WORK/said" || { say "it did not say what to install:"; cat "$WORK/said"; return 1; }
}

lee_binary
cell_start
run ownership_decides ownership_decides
run groups_decide groups_decide
run volume_of_a_user volume_of_a_user
run snapshots_by_right snapshots_by_right
prepare_mounter
as_mounter mkdir "$WORK/home/mnt" "$WORK/home/mnt2"
run mounter_serves mounter_serves
run without_fusermount without_fusermount
as_mounter "$WORK/lee" down "$WORK/home/cell" >/dev/null 2>&1 || true
suite_end
