//! Golden bytes of keys and records: old cells must open for ever. A test that fails here means a
//! new format.

use leeward_data::Addr;
use leeward_env::{Door, Machine, Told};
use leeward_fs::accounts::{
    HostRecord, Identity, Invitation, KeyRecord, Numbers, Secret, SigningRecord, Trust, UidRange, UserRecord,
};
use leeward_fs::flows::{FlowRecord, UserOrGroup};
use leeward_fs::groups::{GidRange, GroupRecord, Member};
use leeward_fs::sessions::{Outcome, SessionRecord};
use leeward_fs::uploads::{PartRecord, UploadRecord};
use leeward_fs::{InodeFlags, Kind, NodeId, Time};
use leeward_pool::{ObjectId, StoreState, TierOptions};
use leeward_volume::admin::{ScrubInfo, ScrubPass};
use leeward_volume::format::backups::{BackupRecord, BackupsRecord, LastBackup, LastTest};
use leeward_volume::format::events::{Actor, Event, LogHead, Named, OpenBlock, Rights, What};
use leeward_volume::format::extents::{Extents, Source};
use leeward_volume::format::groups::{GidRanges, GroupLimit};
use leeward_volume::format::inode::{
    BinRecord, Body, Compared, Counters, Dentry, Inode, MirrorRecord, Openings, Pair, PoolRecord, Properties,
    Reserved, SegmentRecord, SnapshotRecord, Stats, StoreRecord, StoredDentry, TierRecord, VolumeRecord,
    encode_xattr,
};
use leeward_volume::format::keys::{self, Dead, EpochPair};
use leeward_volume::format::projects::{ProjectNumber, ProjectRecord};
use leeward_volume::format::samples::{
    Amounts, Chunk, SampleRecord, Sampled, SampledName, SampledNames, Sampling,
};
use leeward_volume::format::schedule::ScheduleRecord;
use leeward_volume::format::scrub::{Every, Reached, ScrubRecord};
use leeward_volume::format::transfers::TransferRecord;
use leeward_volume::{FORMAT, Stored};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn file() -> Inode {
    let mut inline = Extents::default();
    inline.replace(0..4096, Some(Source::Data(Addr { segment: 0x0102, offset: 0x0304 })), 1, |_| {});
    inline.replace(8192..8200, Some(Source::Unwritten), 1, |_| {});
    let time = |secs| Time { secs, nanos: 5 };
    Inode {
        kind: Kind::File,
        mode: 0o4755,
        nlink: 2,
        uid: 3,
        gid: 4,
        rdev: 0,
        size: 9000,
        allocated: 4104,
        times: [time(1), time(-2), time(3), time(4)],
        parent: 7,
        name: None,
        linked: true,
        binned: false,
        xattrs: 6,
        pool: 0,
        flags: InodeFlags::default(),
        content_lsn: 0,
        birth: 8,
        body: Body::File { inline, spilled: false, windows: true },
    }
}

#[test]
fn keys_are_as_they_were() {
    let node = NodeId::new(0x0a, 0x0b);
    let cases = [
        (keys::inode(node), "0000000a000000000000000b10"),
        (keys::stats(node), "0000000a000000000000000b20"),
        (keys::dentry(node, b"ab"), "0000000a000000000000000b306162"),
        (keys::extents(node, 3), "0000000a000000000000000b4000000003"),
        (keys::xattr(node, b"user.x"), "0000000a000000000000000b51757365722e78"),
        (keys::link(node, NodeId::new(0x0a, 1)), "0000000a000000000000000b600000000000000001"),
        (keys::cell(), "ffffff00000000000000000000"),
        (keys::volume(2), "ffffff01000000000000000200"),
        (keys::quota(node), "ffffff0200000a000000000b00"),
        (keys::orphan(node), "ffffff0300000a000000000b00"),
        (keys::segment(9), "ffffff04000000000000000900"),
        (keys::backref(9, 5, node, 3), "ffffff050000000000000009000000000500000a000000000b00000003"),
    ];
    for (key, golden) in cases {
        assert_eq!(hex(&key), golden);
    }
}

#[test]
fn an_inode_is_as_it_was() {
    let golden = concat!(
        "01010600",                                         // version, kind, flags, 0
        "000009ed0000000200000003000000040000000000000006", // mode nlink uid gid rdev xattrs
        "00000008",                                         // birth
        "000000000000232800000000000010080000000000000007", // size allocated parent
        "000000000000000100000005fffffffffffffffe00000005", // atime mtime
        "000000000000000300000005000000000000000400000005", // ctime btime
        "00000002",                                         // extents
        "0000000000001000000000000000010200000304",         // offset len segment offset
        "0000200000000008000000000000000000000000",         // unwritten
    );
    let bytes = file().encode();
    assert_eq!(hex(&bytes), golden);
    assert_eq!(Inode::decode(&bytes), Ok(file()));
    let named = Inode { name: Some((*b"ab").into()), ..file() };
    let bytes = named.encode();
    // version, flag and length in front, the name before the extents
    let golden = format!("02011602{}6162{}", &golden[8..208], &golden[208..]);
    assert_eq!(hex(&bytes), golden);
    assert_eq!(Inode::decode(&bytes), Ok(named));
}

#[test]
fn an_inode_with_flags_is_as_it_was() {
    let flags = InodeFlags::IMMUTABLE.or(InodeFlags::NO_DUMP);
    let flagged = Inode { flags, ..file() };
    let plain = hex(&file().encode());
    // version and mark in front, the flags behind the times
    let golden = format!("04014600{}00000050{}", &plain[8..208], &plain[208..]);
    assert_eq!(hex(&flagged.encode()), golden);
    let all = Inode { pool: 7, name: Some((*b"ab").into()), ..flagged.clone() };
    let golden = format!("04017602{}07000000506162{}", &plain[8..208], &plain[208..]);
    assert_eq!(hex(&all.encode()), golden);
    for inode in [flagged, all] {
        let bytes = inode.encode();
        assert_eq!(Inode::flags_encoded(&bytes), Ok(flags));
        assert_eq!(Inode::decode(&bytes), Ok(inode));
        // the version and the mark belong together
        assert!(Inode::decode(&[&[3], &bytes[1..]].concat()).is_err());
        assert!(Inode::decode(&[&bytes[..2], &[bytes[2] & !0x40], &bytes[3..]].concat()).is_err());
    }
    assert_eq!(Inode::flags_encoded(&file().encode()), Ok(InodeFlags::default()));
}

#[test]
fn an_inode_with_the_number_of_a_change_is_as_it_was() {
    let numbered = Inode { content_lsn: 0x0102, ..file() };
    let plain = hex(&file().encode());
    let golden = format!("05018600{}0000000000000102{}", &plain[8..208], &plain[208..]);
    assert_eq!(hex(&numbered.encode()), golden);
    let flags = InodeFlags::IMMUTABLE;
    let all = Inode { pool: 7, name: Some((*b"ab").into()), flags, ..numbered.clone() };
    let golden = format!("0501f602{}070000001000000000000001026162{}", &plain[8..208], &plain[208..]);
    assert_eq!(hex(&all.encode()), golden);
    for inode in [numbered, all] {
        let bytes = inode.encode();
        assert_eq!(Inode::decode(&bytes), Ok(inode));
        // the version and the mark belong together
        assert!(Inode::decode(&[&[4], &bytes[1..]].concat()).is_err());
        assert!(Inode::decode(&[&bytes[..2], &[bytes[2] & !0x80], &bytes[3..]].concat()).is_err());
    }
}

#[test]
fn sessions_are_as_they_were() {
    assert_eq!(hex(&keys::told()), "ffffff00000000000000000300");
    assert_eq!(hex(&keys::session(0x0102)), "ffffff16000000000000010200");
    assert_eq!(hex(&keys::outcome(0x0102, 3)), "ffffff170000000000000102000003");
    assert_eq!(keys::parse_outcome(&keys::outcome(0x0102, 3)), Some(3));
    let (secret, key) = ([0xab; 16], [0xcd; 32]);
    let all = [(false, false, "00"), (true, false, "01"), (false, true, "02"), (true, true, "03")];
    for (away, expelled, flags) in all {
        let record = SessionRecord { number: 0x0102, secret, key, away, expelled };
        let bytes = record.encode();
        assert_eq!(hex(&bytes), format!("01{flags}0000000000000102{}{}", "ab".repeat(16), "cd".repeat(32)));
        assert_eq!(SessionRecord::decode(&bytes), Ok(record));
        for wrong in [&[2, bytes[1]][..], &[1, 4]] {
            assert!(SessionRecord::decode(&[wrong, &bytes[2..]].concat()).is_err());
        }
        (0..bytes.len()).for_each(|cut| assert!(SessionRecord::decode(&bytes[..cut]).is_err()));
        assert!(SessionRecord::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
    let outcome = Outcome { call: 5, told: Told { lsn: 6, at: 7, node: 8, number: 9 } };
    let bytes = outcome.encode();
    let golden = "01000000050000000000000006000000000000000700000000000000080000000000000009";
    assert_eq!(hex(&bytes), golden);
    assert_eq!(Outcome::decode(&bytes), Ok(outcome));
    (0..bytes.len()).for_each(|cut| assert!(Outcome::decode(&bytes[..cut]).is_err()));
    assert!(Outcome::decode(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn small_records_are_as_they_were() {
    let dentry = Dentry { node: NodeId::new(1, 2), kind: Kind::Dir };
    for (birth, noted, golden) in [
        (1, false, "01020000010000000002"),
        (0x0304, false, "0202000001000000000200000304"),
        (5, true, "0282000001000000000200000005"),
    ] {
        let stored = StoredDentry { dentry, birth, noted };
        assert_eq!(hex(&stored.encode()), golden);
        assert_eq!(StoredDentry::decode(&stored.encode()), Ok(stored));
    }

    let stats = Stats { bytes: 1, files: -2, dirs: 3 };
    assert_eq!(hex(&stats.encode()), "010000000000000001fffffffffffffffe0000000000000003");
    assert_eq!(Stats::decode(&stats.encode()), Ok(stats));

    let segment = SegmentRecord {
        live_bytes: 1,
        data_bytes: 2,
        object_bytes: 4096,
        generation: 3,
        sealed: true,
        pool: 0,
        volume: None,
    };
    assert_eq!(hex(&segment.encode()), "010100000003000000000000000100000000000000020000000000001000");
    assert_eq!(SegmentRecord::decode(&segment.encode()), Ok(segment));

    let counters = Counters { next_volume: 3, reserved: Reserved { segments: 2, generations: 1 } };
    assert_eq!(hex(&counters.encode()), "0100000001000000030000000000000002");
    assert_eq!(Counters::decode(&counters.encode()), Ok(counters));
    let before = Counters { next_volume: 1, reserved: Reserved { segments: 2, generations: 0 } };
    assert_eq!(Counters::decode(&Pair(1, 2).encode()), Ok(before), "of a cell of before there were any");

    let pair = Pair(1, 2);
    assert_eq!(hex(&pair.encode()), "0100000000000000010000000000000002");
    assert_eq!(Pair::decode(&pair.encode()), Ok(pair));

    let volume = VolumeRecord {
        name: "home".into(),
        uid: 7,
        next_inode: 2,
        epoch: 1,
        created_secs: 3,
        attached_dir: NodeId::ROOT,
        attached_name: (*b"h").into(),
        removing: false,
        properties: Properties::default(),
    };
    let golden = "0100000000070000000100000000000000020000000000000003000000000000000100016\
                  8686f6d65";
    assert_eq!(hex(&volume.encode(FORMAT)), golden.replace(' ', ""));
    assert_eq!(VolumeRecord::decode(&volume.encode(FORMAT)), Ok(volume.clone()));

    let volume = VolumeRecord {
        properties: Properties {
            snapshot_dir: (*b".s").into(),
            snapshot_dir_visible: true,
            snapshots_max: 9,
            quota_counts_snapshots: true,
            snapshot_rights: vec![UserOrGroup::User(10), UserOrGroup::Group(11)],
            ..Properties::default()
        },
        ..volume
    };
    let golden = concat!(
        "020000000007000000010000000000000002000000000000000300000000000000010001",
        "68",                       // attached as
        "0300000009022e73",         // flags, most snapshots, name of the directory
        "0002000000000a010000000b", // rights
        "686f6d65",                 // name
    );
    assert_eq!(hex(&volume.encode(FORMAT)), golden);
    assert_eq!(VolumeRecord::decode(&volume.encode(FORMAT)), Ok(volume.clone()));

    let properties = Properties { bin_days: 0x0102, ..Properties::default() };
    let volume = VolumeRecord { properties, ..volume };
    let golden = concat!(
        "020000000007000000010000000000000002000000000000000300000000000000010001",
        "68",
        "0400004e20052e736e6170", // flags, most snapshots, name of the directory
        "00000102",               // no rights, days of the recycle bin
        "686f6d65",
    );
    assert_eq!(hex(&volume.encode(FORMAT)), golden);
    assert_eq!(VolumeRecord::decode(&volume.encode(FORMAT)), Ok(volume.clone()));

    let properties = Properties { audit_days: 0x0304, ..Properties::default() };
    let volume = VolumeRecord { properties, ..volume };
    let golden = concat!(
        "030000000007000000010000000000000002000000000000000300000000000000010001",
        "68",
        "0000004e20052e736e6170", // flags, most snapshots, name of the directory
        "0000",                   // no rights
        "0304",                   // days for which it is kept what changes
        "686f6d65",
    );
    assert_eq!(hex(&volume.encode(FORMAT)), golden);
    assert_eq!(VolumeRecord::decode(&volume.encode(FORMAT)), Ok(volume.clone()));

    let mirror = MirrorRecord {
        to: "t:1".into(),
        key: None,
        copy: "c".into(),
        every_secs: 0x0a,
        bytes_per_sec: 0x0b,
        keep: "2h".into(),
        since_secs: 0x0c,
        compared: None,
    };
    let compared = Some(Compared { at_secs: 0x0d, differs: "no".into() });
    let with_key = MirrorRecord { key: Some([0xee; 32]), compared, ..mirror.clone() };
    let properties = Properties { mirrors: vec![mirror, with_key], ..Properties::default() };
    let volume = VolumeRecord { properties, ..volume };
    let of_both = "0003743a310001630002326800";
    let (key, rest) = ("00".repeat(32), "0000000a000000000000000b000000000000000c");
    let golden = [
        "020000000007000000010000000000000002000000000000000300000000000000010001",
        "68",
        "8000004e20052e736e6170000002", // flags, most snapshots, name of the directory, no rights, two
        of_both,
        &key,
        rest,
        &of_both[..of_both.len() - 2],
        "03", // there is a key, it was compared
        &"ee".repeat(32),
        rest,
        "000000000000000d00026e6f",
        "686f6d65",
    ]
    .concat();
    assert_eq!(hex(&volume.encode(FORMAT)), golden);
    assert_eq!(VolumeRecord::decode(&volume.encode(FORMAT)), Ok(volume));
}

#[test]
fn usage_samples_are_as_they_were() {
    let amounts = Amounts { bytes: 4096, inodes: 3, more: 200 };
    let was = [(7, amounts)].into();
    let whole = SampleRecord::between(None, &was);
    assert_eq!(hex(&whole.encode()), "0101078120 03c801".replace(' ', ""));
    let is = [(8, Amounts { bytes: 0, inodes: 1, more: 0 })].into();
    assert_eq!(hex(&SampleRecord::between(Some(&was), &is).encode()), "01000700 08010100".replace(' ', ""));
    let name = |name: &str, gone| SampledName { name: name.into(), uid: 300, gone };
    let names = SampledNames([(7, name("ab", Some(8))), (8, name("c", None))].into());
    assert_eq!(hex(&names.encode()), "01 07ac0209026162 08ac02000163".replace(' ', ""));
    assert_eq!(
        hex(&Sampling::default().go_on(5, None).stored().encode()),
        "010000000500000005ffffffffffffffff"
    );
}

#[test]
fn event_logs_are_as_they_were() {
    let by = Actor { uid: 0x85, door: Door::Remote, work: None, machine: Some(Machine::named("m")) };
    let at = |name: &[u8]| Named { dir: 1, name: name.into() };
    let event = |at, node, what| Event { at, by, node, kind: Kind::Dir, what };
    let mut open = OpenBlock::default();
    let renamed = What::Renamed { from: at(b"a"), to: at(b"bc") };
    open.add(&event(3, NodeId::new(7, 0x102), renamed), 7);
    let (was, is) = (Rights { mode: 0o755, uid: 1, gid: 2 }, Rights { mode: 0o700, uid: 1, gid: 2 });
    open.add(&event(2, NodeId::new(7, 5), What::Rights { at: at(b"d"), was, is }), 7);
    let record = open.encode(&[0xee; 32]);
    let golden = format!(
        "01{}{}{}{}",
        "ee".repeat(32),
        "0185010300016d",               // one actor: user, door, no work, machine
        "0200068202020401016101026263", // two events: actor, time, node, type, renamed, names
        "00010502060101 64ed030102c0030102".replace(' ', ""),
    );
    assert_eq!(hex(&record), golden);
    let head = LogHead { first: 1, next: 3, bytes: 4, changed_at: 5, digest: [0xdd; 32] };
    let golden = format!(
        "01{}{}",
        "0000000000000001000000000000000300000000000000040000000000000005",
        "dd".repeat(32)
    );
    assert_eq!(hex(&head.encode()), golden);
    assert_eq!(hex(&at(b"ab").encode()), "0100000000000000016162");
    assert_eq!(hex(&keys::events(7, 0x0102)), "ffffff1c0000000000000007000000000000000102");
    assert_eq!(hex(&keys::log_head(keys::CELL_LOG)), "ffffff1d00000000ffffffff00");
    assert_eq!(hex(&keys::was_at(NodeId::new(7, 8), 9)), "ffffff1e0000070000000008000000000000000009");
}

#[test]
fn records_of_the_recycle_bin_are_as_they_were() {
    let node = NodeId::new(0x0a, 0x0b);
    let key = keys::binned(node, 0x0102_0304_0506_0708);
    assert_eq!(hex(&key), "ffffff09000000000000000a000102030405060708000000000000000b");
    assert_eq!(keys::parse_binned(&key), Some((0x0102_0304_0506_0708, node)));
    let record = BinRecord { uid: 3, name: (*b"ab").into() };
    assert_eq!(hex(&record.encode()), "01000000036162");
    assert_eq!(BinRecord::decode(&record.encode()), Ok(record));
    let inode = Inode { nlink: 0, binned: true, ..file() };
    assert_eq!(inode.encode()[2], 0x0e);
    assert_eq!(Inode::decode(&inode.encode()), Ok(inode));
}

#[test]
fn records_of_flows_are_as_they_were() {
    for (who, golden) in [
        (UserOrGroup::User(0x0102), "ffffff0c000000000000010200"),
        (UserOrGroup::Group(u32::MAX), "ffffff0c00000001ffffffff00"),
    ] {
        assert_eq!(hex(&keys::flow(who)), golden);
        assert_eq!(keys::parse_flow(&keys::flow(who)), Some(who));
    }
    let all = FlowRecord { weight: Some(0x0304), ops_per_sec: Some(5), bytes_per_sec: Some(1 << 40) };
    let none = FlowRecord { weight: None, ops_per_sec: Some(0), bytes_per_sec: None };
    for (record, golden) in [
        (all, "01070000030400000000000000050000010000000000"),
        (none, "01020000000000000000000000000000000000000000"),
    ] {
        assert_eq!(hex(&record.encode()), golden);
        assert_eq!(FlowRecord::decode(&record.encode()), Ok(record));
        assert!(FlowRecord::decode(&record.encode()[..21]).is_err());
    }
}

#[test]
fn records_of_users_and_keys_are_as_they_were() {
    assert_eq!(hex(&keys::user("bob")), "ffffff0d000000000000000000626f62");
    assert_eq!(hex(&keys::s3_key("LEEW2")), "ffffff0e0000000000000000004c45455732");
    assert_eq!(hex(&keys::signing_key(3)), "ffffff0f000000000000000300");
    assert_eq!(keys::parse_named(&keys::user("bob")), Some("bob"));
    let numbers = Some(Numbers { uid: 0x0102, gids: vec![3, 4] });
    let user = UserRecord { numbers, disabled: true, generation: 5, created_secs: 6 };
    let host = UserRecord { numbers: None, disabled: false, ..user.clone() };
    for (record, golden) in [
        (user, "01030000000500000000000000060000010200020000000300000004"),
        (host, "0100000000050000000000000006"),
    ] {
        assert_eq!(hex(&record.encode()), golden);
        assert_eq!(UserRecord::decode(&record.encode()), Ok(record.clone()));
        assert!(UserRecord::decode(&record.encode()[..golden.len() / 2 - 1]).is_err());
    }
    let key = KeyRecord {
        user: "bob".into(),
        secret: Secret::new("xyz"),
        label: "l".into(),
        host: None,
        created_secs: 7,
    };
    let of_host = KeyRecord { host: Some("n7".into()), ..key.clone() };
    for (record, golden, cut) in [
        (key, "0100000000000000000703626f620378797a6c", 16),
        (of_host, "0101000000000000000703626f620378797a026e376c", 20),
    ] {
        assert_eq!(hex(&record.encode()), golden);
        assert_eq!(KeyRecord::decode(&record.encode()), Ok(record.clone()));
        assert!(KeyRecord::decode(&record.encode()[..cut]).is_err());
    }
    let signing = SigningRecord { secret: [0xab; 32], created_secs: 8 };
    assert_eq!(hex(&signing.encode()), format!("01000000000000000008{}", "ab".repeat(32)));
    assert_eq!(SigningRecord::decode(&signing.encode()), Ok(signing.clone()));
    assert!(SigningRecord::decode(&signing.encode()[..41]).is_err());
}

#[test]
fn records_of_groups_are_as_they_were() {
    let (user, group) = (Member::User("bob".into()), Member::Group(0x0102));
    assert_eq!(hex(&keys::group(0x0a0b)), "ffffff200000000000000a0b00");
    for (member, golden) in
        [(&user, "ffffff210000000000000a0b0000626f62"), (&group, "ffffff210000000000000a0b000100000102")]
    {
        let key = keys::member(0x0a0b, member);
        assert_eq!(hex(&key), golden);
        assert_eq!(keys::parse_member(&key), Some((0x0a0b, member.clone())));
    }
    assert_eq!(hex(&keys::group_limit("bob")), "ffffff22000000000000000000626f62");
    assert_eq!(hex(&keys::group_ranges()), "ffffff00000000000000000800");
    for (owner, golden) in
        [(user, "0100000000000000000703626f62623a6c"), (group, "0101000000000000000700000102623a6c")]
    {
        let record = GroupRecord { name: "b:l".into(), owner, created_secs: 7 };
        assert_eq!(hex(&record.encode()), golden);
        assert_eq!(GroupRecord::decode(&record.encode()), Ok(record.clone()));
        assert!(GroupRecord::decode(&record.encode()[..11]).is_err());
    }
    let limit = GroupLimit(9);
    assert_eq!(hex(&limit.encode()), "010000000009");
    assert_eq!(GroupLimit::decode(&limit.encode()), Ok(limit));
    let ranges =
        GidRanges(vec![GidRange { first: 5, last: 9, next: 10 }, GidRange { first: 20, last: 29, next: 20 }]);
    assert_eq!(hex(&ranges.encode()), "010000000005000000090000000a000000140000001d00000014");
    assert_eq!(GidRanges::decode(&ranges.encode()), Ok(ranges.clone()));
    assert!(GidRanges::decode(&ranges.encode()[..25]).is_err());
}

#[test]
fn records_of_projects_and_transfers_are_as_they_were() {
    assert_eq!(hex(&keys::project(0x0a0b)), "ffffff230000000000000a0b00");
    assert_eq!(hex(&keys::project_of(0x0a0b)), "ffffff240000000000000a0b00");
    assert_eq!(hex(&keys::next_project()), "ffffff00000000000000000900");
    let record = ProjectRecord {
        name: "lab".into(),
        owner: 0x0102,
        place: NodeId::new(3, 4),
        parent: 5,
        limit: Pair(6, 7),
        volumes_max: 8,
        pool: 9,
        counts_snapshots: true,
        created_secs: 10,
    };
    let golden = "0101000001020000030000000004000000050000000000000006000000000000000700000008000000\
                  09000000000000000a6c6162";
    assert_eq!(hex(&record.encode()), golden);
    assert_eq!(ProjectRecord::decode(&record.encode()), Ok(record.clone()));
    assert!(ProjectRecord::decode(&record.encode()[..49]).is_err());
    for (ipv6, golden) in
        [(false, "ffffff250000000000000007000104"), (true, "ffffff250000000000000007000106")]
    {
        let key = keys::transfers(7, 1, ipv6);
        assert_eq!((hex(&key), keys::parse_transfers(&key)), (golden.into(), Some((1, ipv6))));
    }
    let record = TransferRecord { requests: 1, received: 2, sent: 3 };
    assert_eq!(hex(&record.encode()), "0100000000000000000100000000000000020000000000000003");
    assert_eq!(TransferRecord::decode(&record.encode()), Ok(record));
    let number = ProjectNumber(9);
    assert_eq!(hex(&number.encode()), "010000000009");
    assert_eq!(ProjectNumber::decode(&number.encode()), Ok(number));
}

#[test]
fn records_of_hosts_are_as_they_were() {
    assert_eq!(hex(&keys::host("n.a")), "ffffff140000000000000000006e2e61");
    assert_eq!(keys::parse_named(&keys::host("n.a")), Some("n.a"));
    assert_eq!(hex(&keys::identity()), "ffffff15000000000000000000");
    let full = HostRecord {
        key: Some([0xab; 32]),
        invitation: Some(Invitation { secret_hash: [0xcd; 32], expires_secs: 3 }),
        volumes: vec![4, 5],
        read_only: true,
        uids: vec![UidRange { first: 6, last: 7 }, UidRange { first: 9, last: 9 }],
        root_squash: true,
        trust: Trust::User,
        gateway: true,
        mirror: true,
        created_secs: 1,
        enrolled_secs: Some(2),
    };
    let new = HostRecord {
        key: None,
        volumes: Vec::new(),
        read_only: false,
        uids: Vec::new(),
        root_squash: false,
        trust: Trust::Host,
        gateway: false,
        mirror: false,
        enrolled_secs: None,
        ..full.clone()
    };
    let (key, hash) = ("ab".repeat(32), "cd".repeat(32));
    let of_full = format!(
        "017f0000000000000001{key}0000000000000002{hash}0000000000000003{}{}",
        "00020000000400000005", "000200000006000000070000000900000009"
    );
    let of_new = format!("01020000000000000001{hash}000000000000000300000000");
    let enrolled = HostRecord { key: full.key, enrolled_secs: Some(2), invitation: None, ..new.clone() };
    let of_enrolled = format!("01010000000000000001{key}000000000000000200000000");
    for (record, golden) in [(full, of_full), (new, of_new), (enrolled, of_enrolled)] {
        let bytes = record.encode();
        assert_eq!(hex(&bytes), golden);
        assert_eq!(HostRecord::decode(&bytes), Ok(record));
        (0..bytes.len()).for_each(|len| assert!(HostRecord::decode(&bytes[..len]).is_err(), "{len} bytes"));
        assert!(HostRecord::decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte more");
    }
}

/// The public key is that of RFC 8032, 7.1, test 1.
#[test]
fn the_key_pair_of_a_cell_is_as_it_was() {
    let golden = concat!(
        "0100",
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    );
    let bytes: Vec<u8> = (0..golden.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&golden[at..at + 2], 16).expect("hex"))
        .collect();
    let identity = Identity::decode(&bytes).expect("a key pair");
    assert_eq!(hex(&identity.encode()), golden);
    assert_eq!((identity.seed[0], identity.public[31]), (0x9d, 0x1a));
    (0..bytes.len()).for_each(|len| assert!(Identity::decode(&bytes[..len]).is_err(), "{len} bytes"));
    let mut other = bytes.clone();
    other[2] ^= 1;
    assert!(Identity::decode(&other).is_err(), "a public key of another seed");
}

#[test]
fn records_of_snapshots_are_as_they_were() {
    let snapshot = SnapshotRecord {
        dir: 3,
        name: (*b"x").into(),
        uid: 4,
        time: Time { secs: 5, nanos: 6 },
        locked_until_secs: 7,
    };
    assert_eq!(
        hex(&snapshot.encode()),
        "010000000000000003000000040000000000000005000000060000000000000007".to_string() + "78"
    );
    assert_eq!(SnapshotRecord::decode(&snapshot.encode()), Ok(snapshot));

    let schedule =
        ScheduleRecord { interval_secs: 3600, since_secs: 8, keep: "24h7d4w12m1y".parse().expect("good") };
    assert_eq!(hex(&schedule.encode()), "0100000e100000000000000008001800070004000c0001");
    assert_eq!(ScheduleRecord::decode(&schedule.encode()), Ok(schedule));

    let backup = BackupRecord {
        to: "/v".into(),
        password_file: "/p".into(),
        every_secs: 3600,
        keep: "7d5w6m".parse().expect("good"),
        since_secs: 8,
        pruned_secs: 9,
        last: Some(LastBackup {
            snapshot: "s".into(),
            id: [0xab; 32],
            begun_secs: 1,
            took_ms: 2,
            sent_bytes: 3,
            files_read: 4,
            bytes_read: 5,
        }),
        test_every_secs: 30 * 86_400,
        tested: None,
    };
    let tested = LastTest {
        id: [0xcd; 32],
        at_secs: 1,
        names: 2,
        files: 3,
        bytes: 4,
        is_whole: true,
        difference_count: 5,
        differences: vec!["d".into()],
    };
    let untested = BackupRecord { last: None, ..backup.clone() };
    let with_test = BackupRecord { test_every_secs: 60, tested: Some(tested), ..backup.clone() };
    let backups = BackupsRecord(vec![untested.clone(), with_test]);
    let place = concat!(
        "00022f76",
        "00022f70",
        "00063764357736",
        "6d",
        "00000e10",
        "0000000000000008",
        "0000000000000009"
    );
    let last = "01000173".to_string()
        + &"ab".repeat(32)
        + "00000000000000010000000000000002000000000000000300000000000000040000000000000005";
    let test = "0000003c01".to_string()
        + &"cd".repeat(32)
        + "0000000000000001000000000000000200000000000000030000000000000004"
        + "01"
        + "0000000000000005"
        + "01000164";
    assert_eq!(hex(&backups.encode()), format!("0202{place}0000278d0000{place}{last}{test}"));
    let before_tests = leeward_env::hex::decode(&format!("0102{place}00{place}{last}")).expect("hex");
    assert_eq!(BackupsRecord::decode(&before_tests), Ok(BackupsRecord(vec![untested, backup])));
    assert_eq!(BackupsRecord::decode(&backups.encode()), Ok(backups.clone()));
    let bytes = backups.encode();
    assert!((0..bytes.len()).all(|len| BackupsRecord::decode(&bytes[..len]).is_err()));

    let mut list = Extents::default();
    list.replace(0..4096, Some(Source::Data(Addr { segment: 2, offset: 3 })), 7, |_| {});
    let mut bytes = Vec::new();
    list.encode(8, &mut bytes);
    assert_eq!(
        hex(&bytes),
        concat!("80000001", "00000008", "00000000000010000000000000000002", "00000003", "00000007")
    );
    assert_eq!(Extents::decode(&bytes), Some(list));
    assert_eq!(Extents::birth_encoded(&bytes), Some(8));
    assert_eq!(hex(&encode_xattr(2, b"v")), "0000000276");

    let node = NodeId::new(0x0a, 0x0b);
    let pair = EpochPair { death: 4, birth: 3 };
    let record = keys::dentry(node, b"ab");
    let cases = [
        (keys::xattr_plain(node, b"user.x"), "0000000a000000000000000b50757365722e78"),
        (keys::snapshot(10, 3), "ffffff060000000a0000000300"),
        (keys::clock(), "ffffff00000000000000000100"),
        (keys::backups(7), "ffffff18000000000000000700"),
        (keys::mirrors(7), "ffffff26000000000000000700"),
        (keys::owned(7, UserOrGroup::User(8)), "ffffff190000000000000007000000000000000008"),
        (keys::owner_limit(Some(7), UserOrGroup::Group(9)), "ffffff1a0000000000000007000000000100000009"),
        (keys::owner_limit(None, UserOrGroup::User(8)), "ffffff1a00000000ffffffff000000000000000008"),
        (keys::uncounted(7), "ffffff1b000000000000000700"),
        (keys::owners_counted(), "ffffff00000000000000000600"),
        (keys::sampling(), "ffffff00000000000000000700"),
        (
            keys::samples(Chunk::with(Sampled::Group, 0x0001_0203).id(), 9),
            "ffffff1f02000000000001020000000009",
        ),
        (keys::sampled_names(Chunk::with(Sampled::Volume, 7).id()), "ffffff1f000000000000000001"),
        (keys::schedule(node), "ffffff0800000a000000000b00"),
        (keys::tally(10, pair), "ffffff070000000a000000040000000003"),
        (keys::version(&record, 4), "4000000a000000000000000b3061620000000004"),
        (keys::dead_record(&record, pair), "8000000a000000040000000301000000000000000b306162"),
        (keys::dead_data(node, 5, pair), "8000000a000000040000000302000000000000000b0000000000000005"),
    ];
    for (key, golden) in cases {
        assert_eq!(hex(&key), golden);
    }
    assert_eq!(keys::parse_version(&keys::version(&record, 4)), Some((record.clone(), 4)));
    assert_eq!(keys::parse_tally(&keys::tally(10, pair)), Some((10, pair)));

    let entry = keys::dead_record(&record, pair);
    let alone = Dead::Records(vec![record.clone()]);
    assert_eq!(keys::parse_dead(&entry, b""), Some((pair, alone)));
    let inode = keys::inode(node);
    let with = keys::dead_with([&inode]);
    assert_eq!(hex(&with), "0009000000000000000b10");
    assert_eq!(keys::parse_dead(&entry, &with), Some((pair, Dead::Records(vec![inode, record]))));
    assert_eq!(keys::parse_dead(&entry, &with[..10]), None);
    let addr = Addr { segment: 1, offset: 2 };
    let value = keys::dead_data_value(addr, 3);
    assert_eq!(hex(&value), "00000000000000010000000200000003");
    let data = Dead::Data(node, 5, addr, 3);
    assert_eq!(keys::parse_dead(&keys::dead_data(node, 5, pair), &value), Some((pair, data)));
    assert_eq!(keys::parse_dead(&keys::dead_data(node, 5, pair), b""), None);
}

#[test]
fn what_is_cut_short_is_refused() {
    let bytes = file().encode();
    for len in 0..bytes.len() {
        assert!(Inode::decode(&bytes[..len]).is_err(), "an inode of {len} bytes");
    }
    let mut newer = bytes.to_vec();
    newer[0] = 2;
    assert!(Inode::decode(&newer).is_err(), "a newer version");
}

#[test]
fn records_of_pools_are_as_they_were() {
    let segment = SegmentRecord {
        live_bytes: 1,
        data_bytes: 2,
        object_bytes: 4096,
        generation: 3,
        sealed: true,
        pool: 4,
        volume: Some(5),
    };
    let golden = "0201000000030000000000000001000000000000000200000000000010000000000400000005";
    assert_eq!(hex(&segment.encode()), golden);
    assert_eq!(SegmentRecord::decode(&segment.encode()), Ok(segment));
    let unknown = SegmentRecord { volume: None, ..segment };
    assert!(hex(&unknown.encode()).ends_with("00000004ffffffff"));
    assert_eq!(SegmentRecord::decode(&unknown.encode()), Ok(unknown));

    let store = |slot, url: &str, state| StoreRecord { slot, id: 0x0a0b, url: url.into(), state };
    let pool = PoolRecord {
        name: "fast".into(),
        layout: "single".into(),
        stores: vec![store(0, "a", StoreState::Active), store(2, "b", StoreState::Draining)],
        tier: None,
    };
    let golden = concat!(
        "0100",           // version, flags
        "0673696e676c65", // layout
        "0002",           // stores
        "0000",           // slot
        "00000000000000000000000000000a0b",
        "01000161", // state, URL
        "0002",     // slot
        "00000000000000000000000000000a0b",
        "02000162", // state, URL
        "66617374", // name
    );
    assert_eq!(hex(&pool.encode()), golden);
    assert_eq!(PoolRecord::decode(&pool.encode()), Ok(pool.clone()));
    let options = TierOptions { flush_percent: 40, evict_percent: 80, ending: true };
    let stores = pool.stores[..1].to_vec();
    let tiered = PoolRecord { stores, tier: Some(TierRecord { hot: 7, options }), ..pool };
    let golden = concat!(
        "0200",           // version, flags
        "0673696e676c65", // layout
        "0001",           // stores
        "0000",           // slot
        "00000000000000000000000000000a0b",
        "01000161", // state, URL
        "00000007", // hot pool
        "285001",   // flush, evict, ending
        "66617374", // name
    );
    assert_eq!(hex(&tiered.encode()), golden);
    assert_eq!(PoolRecord::decode(&tiered.encode()), Ok(tiered));
    let found = ScrubInfo {
        bytes: 3,
        bad_pieces: 4,
        repaired_objects: 5,
        degraded_objects: 6,
        lost_objects: 7,
        ..ScrubInfo::default()
    };
    let scrub = ScrubRecord {
        every: Some(Every { secs: 3600, since_secs: 8 }),
        last: Some(ScrubPass { begun_secs: 1, ended_secs: 2, found }),
    };
    let golden = concat!(
        "0103",                             // version, flags
        "00000e10",                         // how often
        "0000000000000008",                 // since when
        "00000000000000010000000000000002", // begun, ended
        "00000000000000030000000000000004", // bytes, bad pieces
        "00000000000000050000000000000006", // repaired, degraded
        "0000000000000007",                 // lost
    );
    assert_eq!(hex(&scrub.encode()), golden);
    assert_eq!(ScrubRecord::decode(&scrub.encode()), Ok(scrub));
    assert_eq!(ScrubRecord::decode(&ScrubRecord::default().encode()), Ok(ScrubRecord::default()));
    assert_eq!(hex(&keys::scrub(3)), "ffffff11000000000000000300");
    let reached = Reached {
        begun_secs: 1,
        stage: 2,
        after: ObjectId { segment: 3, generation: 4 },
        bytes: 5,
        bad_pieces: 6,
        repaired_objects: 7,
    };
    let golden = concat!(
        "01",                               // version
        "0000000200000004",                 // stage, generation
        "00000000000000030000000000000001", // segment, begun
        "0000000000000005",                 // bytes
        "00000000000000060000000000000007", // bad pieces, repaired
    );
    assert_eq!(hex(&reached.encode()), golden);
    assert_eq!(Reached::decode(&reached.encode()), Ok(reached));
    assert_eq!(hex(&keys::scrub_place(3)), "ffffff12000000000000000300");
    assert_eq!(hex(&keys::pool(3)), "ffffff0b000000000000000300");
    assert_eq!(hex(&keys::pools()), "ffffff00000000000000000200");
    assert_eq!(hex(&keys::openings()), "ffffff00000000000000000400");
    assert_eq!(hex(&keys::ownership()), "ffffff00000000000000000500");
    let openings = Openings(vec![(1, 0xab), (4096, 7)]);
    let golden = "01000000000000000100000000000000ab00000000000010000000000000000007";
    assert_eq!(hex(&openings.encode()), golden);
    assert_eq!(Openings::decode(&openings.encode()).ok(), Some(openings.clone()));
    assert!(Openings::decode(&openings.encode()[..20]).is_err());
    assert_eq!([0, 1, 4095, 4096, 9999].map(|segment| openings.of(segment)), [0xab, 0xab, 0xab, 7, 7]);

    let placed = Inode { pool: 7, ..file() };
    let bytes = placed.encode();
    assert_eq!((hex(&bytes[..4]).as_str(), bytes[104]), ("03012600", 7));
    assert_eq!(Inode::decode(&bytes), Ok(placed.clone()));
    let named = Inode { name: Some((*b"ab").into()), ..placed };
    let bytes = named.encode();
    assert_eq!((hex(&bytes[..4]), hex(&bytes[104..107])), ("03013602".into(), "076162".into()));
    assert_eq!(Inode::decode(&bytes), Ok(named));

    let volume = VolumeRecord {
        name: "home".into(),
        uid: 7,
        next_inode: 2,
        epoch: 1,
        created_secs: 3,
        attached_dir: NodeId::ROOT,
        attached_name: (*b"h").into(),
        removing: false,
        properties: Properties { pool: 3, dir_pools: vec![4, 5], ..Properties::default() },
    };
    let golden = concat!(
        "020000000007000000010000000000000002000000000000000300000000000000010001",
        "68",
        "1800004e20052e736e6170", // flags, most snapshots, name of the directory
        "000000000003020405",     // no rights, pool, pools of directories
        "686f6d65",
    );
    assert_eq!(hex(&volume.encode(FORMAT)), golden);
    assert_eq!(VolumeRecord::decode(&volume.encode(FORMAT)), Ok(volume));
}

#[test]
fn uploads_in_parts_are_as_they_were() {
    let upload = UploadRecord {
        uid: 7,
        at: Time { secs: 1, nanos: 2 },
        complete: false,
        key: "b/k".into(),
        note: (*b"{}")[..].into(),
    };
    let golden = concat!("0100", "00000007", "000000000000000100000002", "0003622f6b", "7b7d");
    assert_eq!(hex(&upload.encode()), golden);
    assert_eq!(UploadRecord::decode(&upload.encode()), Ok(upload.clone()));
    let complete = UploadRecord { complete: true, ..upload };
    assert_eq!(hex(&complete.encode()), golden.replacen("0100", "0101", 1));
    assert_eq!(UploadRecord::decode(&complete.encode()), Ok(complete));
    let part = Some(PartRecord {
        upload: NodeId::new(3, 4),
        number: 5,
        at: Time { secs: 6, nanos: 7 },
        size: 8,
        note: (*b"md5:00")[..].into(),
    });
    let golden = concat!(
        "0200000005",               // version, number
        "0000030000000004",         // upload
        "000000000000000600000007", // time
        "0000000000000008",         // bytes
        "6d64353a3030",             // note
    );
    assert_eq!(hex(&part.encode()), golden);
    assert_eq!(Option::<PartRecord>::decode(&part.encode()), Ok(part));
    assert_eq!(Option::<PartRecord>::decode(&[1]), Ok(None), "an orphan that is no part");
    assert!(Option::<PartRecord>::decode(&[3]).is_err() && Option::<PartRecord>::decode(&[]).is_err());
    assert_eq!(hex(&keys::upload(NodeId::new(3, 4))), "ffffff13000003000000000400");
}
