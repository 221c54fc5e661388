# The pages of docs/OPERATE.md on the machine of the suite `service`, which has the package and no compiler: an operator's lines and users' lines, in the
# order in which what they need is there. $WHO runs them in the directory $WHERE.

OPERATE=$ROOT/docs/OPERATE.md

# page SECTION NUMBER [EXPRESSION]: runs a block of the page, with what sed makes of it: names of other machines and ports; lines that need other machines, or
# that go on until they are stopped, are left out.
page() {
  python3 "$ROOT/tests/tools/blocks.py" "$OPERATE" "$1" "$2" >"$WORK/block"
  sed -i -E -e "${3:-}" -e 's#/cell/projects#/data/projects#g' "$WORK/block"
  grep -q '^[^#]' "$WORK/block" || { say "nothing is left of $1, block $2"; return 1; }
  as "$WHO" "$WHERE" "$WORK/block" || { say "$1, block $2, as $WHO"; return 1; }
}

# elsewhere SECTION NUMBER WHY: a block that is no command, or that another test runs.
elsewhere() { :; }

every_block_is_run() { # or is said to be elsewhere
  local named all
  all=$(python3 "$ROOT/tests/tools/blocks.py" "$OPERATE" | sort)
  named=$(sed -nE "s/^ *(page|elsewhere) '([^']*)' ([0-9]).*/\2\t\3/p" "$ROOT/tests/operate.sh" | sort -u)
  diff <(echo "$all") <(echo "$named")
}

users_are_there() {
  on sh -ec 'for user in alice bob carol mallory backup; do id $user >/dev/null 2>&1 || useradd -m $user; done'
}

# A cell of its own, which `lee up --background` serves.
in_the_background() {
  WHO=root WHERE=/root
  local own="s#/srv/cell#/root/own#g; s#7433#$((PORT + 5))#g"
  on sh -ec 'mkdir /root/own-mount; lee up /root/own --mount /root/own-mount --background'
  page 'How requests reach Leeward' 1 "$own"
  page 'A newer version, and new settings' 1 "$own"
  page 'A newer version, and new settings' 3 "$own"
  page 'When the server crashes' 1 "$own"
  on mkdir -p /far
  page 'A newer version, and new settings' 2 "$own; s#/data --background#/far --background --token $(new_host far /root/own)#"
  page 'More shards' 1 "$own"
  on sh -ec 'lee down /far; lee down /root/own; lee fsck --cell /root/own'
}

# Of the cell that a unit serves.
pools_and_disks() {
  WHO=root WHERE=/data
  page 'When the server crashes' 2 '/^install|^echo/d' # the suite has written that file
  on sh -ec 'mkdir -p /disk1 /disk2 /disk3 /disk4 /disk5 /disk6 /disk7 /disk8 /nvme1 /nvme2 /data/scratch/some'
  page 'Choose a layout' 1 's#--store /disk6#& --force#'
  on sh -ec 'seq 300000 >/data/data/numbers; lee sync --cell /data'
  page 'Move data to another pool' 1
  page 'Move data to another pool' 2 's#-v fast#-v wide#; s#/srv/data/#/data/#; 1atouch /data/scratch/some/file'
  page 'A disk fails' 1 's#/disk7#& --force#'
  # what is on it may still be on its way
  page 'A disk gets old, or small' 1 's#file:///disk3#file:///disk7#; s#--to /disk7#--to /disk8 --force#; s#^(lee pool store remove [^ ]+ [^ ]+).*#timeout 60 sh -c "until \1; do sleep 1; done"#'
  page 'Find damage before it matters' 1
  page 'Fill a tier' 1 's#--store /nvme2#& --force#'
  on rm -r /data/scratch
  page 'Take a pool out' 1
  on sh -ec 'seq 300000 | cmp - /data/data/numbers'
}

users_and_groups() {
  WHO=root WHERE=/data
  on sh -ec 'mkdir -p /data/projects/raw /data/alice/raw /data/alice/results; chown -R alice /data/alice'
  page 'Users, keys and tokens' 1 's#LEEW\.\.\.#--all#; /^lee key create +#|^lee token create --path/d'
  WHO=alice WHERE=/data/alice
  page 'Users, keys and tokens' 1 '/^lee key create +#|^lee token create --path/!d'
  on sh -ec 'cd /data; lee group create carol:students; lee group create carol:muon'
  page 'Groups that users own' 1 '/^chgrp|^setfacl/d'
  WHO=root
  page 'Groups that users own' 1 '/^chgrp/!d'
  WHO=alice
  page 'Groups that users own' 2
  WHO=root WHERE=/data
  page 'Groups that users own' 3 's#ssh standby lee group import - --cell /srv/cell#lee group import - --cell /root/own#'
  page 'Projects: let others help themselves' 1
  WHO=bob
  page 'Projects: let others help themselves' 2 '/^lee snap restore/i mkdir projects/atlas/raw/run7 projects/atlas/raw/june; lee snap create ./projects/atlas/raw before; rm -r projects/atlas/raw/run7'
  on test -d /data/projects/atlas/raw/run7
}

what_is_told() {
  WHO=root WHERE=/data
  on mkdir -p /elsewhere
  page 'Somebody takes too much' 1
  page 'Who did it' 1 's#volume set atlas #volume set atlas.raw #'
  page 'Who uses what, and since when' 1 "s#usage atlas #usage atlas.raw #; s#2026-11#$(date +%Y-%m)#; s#>november#>/root/november#"
  page 'Who uses what, and since when' 2
  python3 "$ROOT/tests/tools/blocks.py" "$OPERATE" 'Report to the WLCG' 2 | sed 's#/atlas/datadisk#/projects/atlas#' >>"$MACHINE/srv/cell/leeward.toml"
  on sh -ec 'mkdir -p /var/www/html/static; systemctl restart leeward@srv-cell'
  soon on mountpoint -q /data
  page 'Report to the WLCG' 1
  on grep -q SITE-SE /var/www/html/static/srr.json
}

doors_and_machines() {
  WHO=root WHERE=/data
  page 'S3' 1 '/^lee up|^aws/d'
  page 'Other machines' 1 '/^lee (serve|up|mount|session end)/d'
  page 'Gateways' 1 "s#door1#door2#; s#SERVER#127.0.0.1:$((PORT + 1))#; /--token|--tls|--stop/d"
  page 'Hosts' 1 's#atlas,home#atlas.raw,data#'
  page 'Hosts' 2 '/^lee (login|logout|session)/d'
  on lee volume create pub --cell /data
  page 'HTTP and WebDAV' 3 '/^rclone|^gfal/d'
  page 'The console' 1 '/^lee up/d'
}

in_and_out() {
  WHO=root WHERE=/data
  on sh -ec 'mkdir -p /net/home/alice /net/vault /backup; seq 1000 >/net/home/alice/numbers; (umask 077; echo secret >/root/vault.password)'
  page 'Arrive and leave' 1 '/^mount/d'
  on lee snap create /home monday --cell /data
  page 'Arrive and leave' 2 '/ssh other/d; s#^mkdir restored.*#rm -rf /root/restored; mkdir /root/restored; cd /root/restored#'
  on cmp /net/home/alice/numbers /root/restored/alice/numbers
  page 'A cold store' 1 '/s3:/d'
}

elsewhere 'A cell on S3 or Ceph' 1 "the suites rgw and versitygw"
elsewhere 'A copy in another cell' 1 "the suites copies and disasters"
elsewhere 'A copy in another cell' 2 "the suites copies and disasters"
elsewhere 'A copy in another cell' 3 "the suite copies"
elsewhere 'A copy in another cell' 4 "the suites copies and disasters"
elsewhere 'A copy in another cell' 5 "the suites copies and disasters"
elsewhere 'A copy in another cell' 6 "the suite copies"
elsewhere 'Buckets as stores, and sites' 1 "the tests of pools"
elsewhere 'HTTP and WebDAV' 1 "a start that this machine's unit has made"
elsewhere 'HTTP and WebDAV' 2 "settings: read by the tests of lee"
elsewhere 'HTTP and WebDAV' 4 "settings: read by the tests of lee"
elsewhere 'Other machines' 2 "what a command prints"
elsewhere 'Other machines' 3 "a line of fstab: other_machines_mount"
elsewhere 'S3' 2 "settings: read by the tests of lee"
elsewhere 'Several servers' 1 "the suite servers"
elsewhere 'The console' 2 "settings: read by the tests of lee"
elsewhere 'Users, keys and tokens' 2 "settings: read by the tests of lee"
elsewhere 'Users, keys and tokens' 3 "settings: read by the tests of lee"
elsewhere 'Report to the WLCG' 2 "settings, which what_is_told takes"
