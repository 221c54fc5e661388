//! The journal's format and how damage to it shows.

use leeward_env::Env;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::disk::{Caching, Disk};
use leeward_meta::contract::{Model, all_inline_data, puts};
use leeward_meta::mem::MemKv;
use leeward_meta::{Batch, EngineOptions, Error, InlineData, Kv, Result};
use std::sync::Arc;

const FIRST: &str = "meta/journal-1";
const BLOCK: u64 = 4096;

/// Where the record with this index is, in a file of records of one block each: behind the head.
fn at(record: u64) -> u64 {
    (1 + record) * BLOCK
}

fn open(disk: &SimDisk) -> Result<MemKv> {
    MemKv::open(Env::sim(1), Arc::new(disk.clone()))
}

fn bytes(disk: &SimDisk, path: &str, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    disk.open(path, Caching::Buffered).expect("open").read_at(at, &mut bytes).expect("read");
    bytes
}

/// A disk whose journal holds this many records of one block each.
fn journal_of(records: u64) -> SimDisk {
    journal_then(records, &Batch::default())
}

/// ... and then this batch.
fn journal_then(records: u64, last: &Batch) -> SimDisk {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    for i in 0..records {
        kv.commit(&puts(&[(&i.to_be_bytes(), b"v")])).expect("commit");
    }
    kv.commit(last).expect("commit");
    disk
}

#[test]
fn golden_bytes() {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    let inline =
        InlineData { segment: 0x0102, offset: 0x0304, owner: (5, 6, 7), bytes: Arc::from(&b"ride"[..]) };
    let mut batch = puts(&[(b"key", b"value")]);
    batch.writes.push((Arc::from(&b"gone"[..]), None));
    batch.inline_data.push(inline);
    kv.commit(&puts(&[(b"a", b"")])).expect("commit");
    kv.commit(&batch).expect("commit");
    let key = bytes(&disk, FIRST, 16, 16);
    let expected = [
        &b"LwJ2"[..],
        &[0xcf, 0x0c, 0x7b, 0xac], // crc32c
        &key,
        &[2, 0, 0, 0, 0, 0, 0, 0],  // sequence number
        &[1, 0, 0, 0, 0, 0, 0, 0],  // the one before
        &[1, 0, 0, 0, 0, 0, 0, 0],  // the one before that wrote to the tables
        &[72, 0, 0, 0, 0, 0, 0, 0], // length
        &[2, 0, 0, 0, 1, 0, 0, 0],  // writes, pieces of inline data
        &[3, 0, 5, 0, 0, 0],
        b"keyvalue",
        &[4, 0, 255, 255, 255, 255],
        b"gone",
        &[2, 1, 0, 0, 0, 0, 0, 0], // segment
        &[4, 3, 0, 0],             // offset
        &[5, 0, 0, 0],
        &[6, 0, 0, 0, 0, 0, 0, 0],
        &[7, 0, 0, 0, 0, 0, 0, 0],
        &[4, 0, 0, 0],
        b"ride",
        &[0; 16],
    ]
    .concat();
    assert_eq!(bytes(&disk, FIRST, at(1), expected.len()), expected);
    let head = [
        &b"LwJH"[..],
        &[0x2a, 0xac, 0xb7, 0xc1], // crc32c
        &[1, 0, 0, 0, 0, 0, 0, 0], // number
        &key,
        &[0; 64], // no file before it
    ]
    .concat();
    assert_eq!(bytes(&disk, FIRST, 0, head.len()), head);
}

#[test]
fn a_torn_tail_is_the_end() {
    for torn in [0, 8, 40, 60] {
        let disk = journal_of(5);
        disk.flip_bit(FIRST, at(4) + torn).expect("flip");
        let kv = open(&disk).expect("open");
        assert_eq!(Model::of(&kv).len(), 4);
        // what is written after it is found, and the tail stays the end of its file
        kv.commit(&puts(&[(b"later", b"v")])).expect("commit");
        drop(kv);
        assert_eq!(Model::of(&open(&disk).expect("open again")).len(), 5);
    }
}

/// A record that was refused, and could not be erased, does not stay in front of later ones.
#[test]
fn a_refused_record_is_erased_before_the_next_file_begins() {
    let disk = SimDisk::new(1);
    disk.copy_on_write();
    let kv = open_small(&disk).expect("open");
    for key in [b"a", b"b"] {
        kv.commit(&puts(&[(key, b"v")])).expect("commit");
    }
    let refused = puts(&[(b"refused", b"v")]);
    let write = disk.mutations();
    disk.fail_at(write + 1, Fault::Enospc); // the sync, and then erasing
    disk.fail_at(write + 2, Fault::Enospc);
    assert!(matches!(kv.commit(&refused), Err(Error::Full)));
    assert_eq!(Model::of(&open_small(&disk.kill()).expect("open")).len(), 3, "it was not erased");
    // a larger one needs another file
    kv.commit(&puts(&[(b"large", &[1u8; 5000])])).expect("commit");
    assert_eq!(files(&disk).len(), 2);
    let found = Model::of(&open_small(&disk.kill()).expect("open"));
    assert_eq!(found, Model::of(&kv));
    assert_eq!(found.len(), 3);
}

#[test]
fn damage_in_the_middle_is_corrupt() {
    for record in 0..4 {
        let disk = journal_of(5);
        disk.flip_bit(FIRST, at(record) + 58).expect("flip");
        assert!(matches!(open(&disk), Err(Error::Corrupt(_))), "record {record}");
    }
}

#[test]
fn a_missing_file_is_corrupt() {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    let value = vec![1; 100 << 10];
    for i in 0..12u8 {
        kv.commit(&puts(&[(&[i], &value)])).expect("commit");
    }
    drop(kv);
    let files = disk.list("meta").expect("list");
    assert!(files.len() > 4, "{files:?}");
    disk.remove("meta/journal-3").expect("remove");
    assert!(matches!(open(&disk), Err(Error::Corrupt(_))));
}

#[test]
fn a_batch_larger_than_a_file() {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    let value = vec![1; 900 << 10];
    kv.commit(&puts(&[(b"a", b"1")])).expect("commit");
    kv.commit(&puts(&[(b"b", &value)])).expect("commit");
    kv.commit(&puts(&[(b"c", b"3")])).expect("commit");
    drop(kv);
    let kv = open(&disk).expect("open");
    assert_eq!(kv.get(b"b").expect("get").as_deref(), Some(&value[..]));
    assert_eq!(Model::of(&kv).len(), 3);
}

/// A file that was finished and is used again still has old records behind the new ones.
#[test]
fn records_of_an_earlier_life_are_not_read() {
    let disk = SimDisk::new(1);
    let kv = open(&disk).expect("open");
    let mut used_again = false;
    for i in 0..4000u64 {
        kv.commit(&puts(&[(&(i % 50).to_be_bytes(), &i.to_be_bytes())])).expect("commit");
        if i % 200 == 0 {
            leeward_meta::contract::settle(&kv);
        }
        used_again |= disk.recent().iter().any(|call| call.contains("rename meta/spare-"));
    }
    assert!(used_again);
    let before = Model::of(&kv);
    drop(kv);
    assert_eq!(Model::of(&open(&disk).expect("open")), before);
}

/// A user may keep a copy of the journal in the file system: a record in a torn record is not a
/// later one.
#[test]
fn a_journal_inside_inline_data() {
    let disk = journal_of(3);
    let mut copy = vec![0; BLOCK as usize - 100]; // so that the copy's records are at multiples of a block
    copy.extend(bytes(&disk, FIRST, at(0), 3 * BLOCK as usize));
    let inline = InlineData { segment: 1, offset: 0, owner: (1, 1, 0), bytes: copy.into() };
    let batch = Batch { writes: Vec::new(), inline_data: vec![inline] };
    let disk = journal_then(3, &batch);
    assert_eq!(bytes(&disk, FIRST, at(4), 100), bytes(&disk, FIRST, at(0), 100), "a record in a record");
    disk.flip_bit(FIRST, at(3) + 100).expect("flip");
    let kv = open(&disk).expect("a torn tail");
    assert_eq!(Model::of(&kv).len(), 3);
    assert!(all_inline_data(&kv).is_empty());
}

#[test]
fn a_flipped_bit_in_the_checkpoint_is_corrupt() {
    let disk = journal_of(5);
    let kv = open(&disk).expect("open");
    let value = vec![7; 300 << 10];
    kv.commit(&puts(&[(b"large", &value)])).expect("commit");
    kv.commit(&puts(&[(b"seals", b"")])).expect("commit");
    leeward_meta::contract::settle(&kv);
    drop(kv);
    disk.flip_bit("meta/tables", 1000).expect("flip");
    assert!(matches!(open(&disk), Err(Error::Corrupt(_))));
}

/// Options of small files, so that there are many.
fn small() -> EngineOptions {
    let mut options =
        EngineOptions { memtable_bytes: 8 << 10, journal_bytes: 64 << 10, ..Default::default() };
    options.journal.file_bytes = 16 << 10;
    options
}

fn open_small(disk: &SimDisk) -> Result<MemKv> {
    MemKv::open_with(Env::sim(1), Arc::new(disk.clone()), small())
}

/// The journal's files by number, oldest first.
fn files(disk: &SimDisk) -> Vec<u64> {
    let names = disk.list("meta").expect("list").into_iter();
    let mut numbers: Vec<u64> =
        names.filter_map(|(name, _)| name.strip_prefix("journal-")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn path(number: u64) -> String {
    format!("meta/journal-{number}")
}

fn len(disk: &SimDisk, path: &str) -> u64 {
    disk.open(path, Caching::Buffered).expect("open").len().expect("length")
}

/// A disk after a kill, whose journal has several files that are needed, some with a single record,
/// and one without.
fn several_files() -> (SimDisk, Model) {
    let disk = SimDisk::new(1);
    let kv = open_small(&disk).expect("open");
    let mut model = Model::default();
    for i in 0..40u8 {
        let batch = puts(&[(&[i % 16], &vec![i; if i % 3 == 0 { 11 << 10 } else { 100 }])]);
        kv.commit(&batch).expect("commit");
        model.apply(&batch);
        if i == 20 {
            leeward_meta::contract::settle(&kv);
        }
    }
    kv.maintain().expect("maintain"); // the next file is ready
    (disk.kill(), model)
}

/// All is there, or the journal is refused and a file is named.
fn is_refused(disk: &SimDisk, model: &Model, what: &str) -> bool {
    match open_small(disk) {
        Ok(kv) => {
            assert_eq!(&Model::of(&kv), model, "{what}");
            false
        }
        Err(Error::Corrupt(why)) => {
            assert!(why.contains("meta/journal-"), "{what}: no file is named: {why}");
            true
        }
        Err(e) => panic!("{what}: {e}"),
    }
}

type Damage<'a> = &'a dyn Fn(&SimDisk);

#[test]
fn each_file_that_is_lost_or_swapped_is_noticed() {
    let (disk, model) = several_files();
    let numbers = files(&disk);
    assert!(numbers.len() > 4, "{numbers:?}");
    let mut refused = 0;
    for (i, &number) in numbers.iter().enumerate() {
        let path = path(number);
        let len = len(&disk, &path);
        let content = |number: u64| bytes(&disk, &format!("meta/journal-{number}"), 0, len as usize);
        let neighbour = content(numbers[if i == 0 { 1 } else { i - 1 }]);
        let damages: [(&str, Damage<'_>); 5] = [
            ("removed", &|d| d.remove(&path).expect("remove")),
            ("emptied", &|d| d.open(&path, Caching::Buffered).expect("open").truncate(0).expect("cut")),
            ("zeroed", &|d| {
                let file = d.open(&path, Caching::Buffered).expect("open");
                file.write_at(0, &vec![0; len as usize]).expect("zeros");
            }),
            ("with a damaged head", &|d| d.flip_bit(&path, 20).expect("flip")),
            ("overwritten by its neighbour", &|d| {
                let file = d.open(&path, Caching::Buffered).expect("open");
                file.write_at(0, &neighbour).expect("write");
            }),
        ];
        for (what, damage) in damages {
            let damaged = disk.kill();
            damage(&damaged);
            refused += u64::from(is_refused(&damaged, &model, &format!("{path} {what}")));
        }
    }
    assert!(refused > 20, "only {refused} were needed");
}

#[test]
fn each_damaged_record_but_the_last_is_noticed() {
    let (disk, model) = several_files();
    let blocks = |number| (1..len(&disk, &path(number)) / BLOCK).map(move |block| (number, block));
    let is_record = |(number, block): &(u64, u64)| bytes(&disk, &path(*number), block * BLOCK, 4) == b"LwJ2";
    let mut records: Vec<(u64, u64)> = files(&disk).into_iter().flat_map(blocks).filter(is_record).collect();
    records.pop();
    let mut refused = 0;
    for (number, block) in records {
        let damaged = disk.kill();
        damaged.flip_bit(&path(number), block * BLOCK + 60).expect("flip");
        refused += u64::from(is_refused(&damaged, &model, &format!("block {block} of {}", path(number))));
    }
    assert!(refused > 8, "only {refused} were needed");
}

/// When nothing is committed for a while, the last commit is not the last record.
#[test]
fn damage_to_the_last_commit_shows_once_it_is_old() {
    let disk = SimDisk::new(1);
    let kv = open_small(&disk).expect("open");
    for i in 0..2u64 {
        kv.commit(&puts(&[(&i.to_be_bytes(), b"v")])).expect("commit");
    }
    kv.idle();
    let mutations = disk.mutations();
    kv.idle();
    assert_eq!(disk.mutations(), mutations, "once is enough");
    let model = Model::of(&kv);
    assert!(!is_refused(&disk.kill(), &model, "undamaged"));
    let damaged = disk.kill();
    damaged.flip_bit(FIRST, at(1) + 60).expect("flip");
    assert!(is_refused(&damaged, &model, "the last commit"));
    let damaged = disk.kill();
    damaged.flip_bit(FIRST, at(2) + 30).expect("flip");
    assert!(!is_refused(&damaged, &model, "what comes after it"));
}

/// After an orderly end nothing depends on the journal.
#[test]
fn an_orderly_end_leaves_no_journal() {
    let disk = SimDisk::new(1);
    let kv = open_small(&disk).expect("open");
    for i in 0..30u8 {
        kv.commit(&puts(&[(&[i], &[i; 5000])])).expect("commit");
    }
    kv.close().expect("close");
    let model = Model::of(&kv);
    drop(kv);
    assert!(files(&disk).is_empty(), "{:?}", files(&disk));
    for (name, _) in disk.list("meta").expect("list").into_iter().filter(|(n, _)| n.starts_with("spare")) {
        disk.remove(&format!("meta/{name}")).expect("remove");
    }
    let kv = open_small(&disk).expect("open again");
    assert_eq!(Model::of(&kv), model);
    kv.commit(&puts(&[(b"on", b"and on")])).expect("commit");
    drop(kv);
    assert_eq!(Model::of(&open_small(&disk.kill()).expect("open after a kill")).len(), model.len() + 1);
}

/// Rides that have to stay for long do not keep all that came after them.
#[test]
fn a_long_journal_is_not_pinned_by_old_inline_data() {
    let disk = SimDisk::new(1);
    let kv = open_small(&disk).expect("open");
    let inline = |segment: u64, offset: u32| InlineData {
        segment,
        offset,
        owner: (1, 1, u64::from(offset)),
        bytes: vec![segment as u8; 3000].into(),
    };
    let mut most = 0;
    for i in 0..400u64 {
        let mut batch = puts(&[(&(i % 7).to_be_bytes(), &[i as u8; 900])]);
        let segment = if i == 3 { 1 } else { 10 + i };
        batch.inline_data.push(inline(segment, i as u32));
        kv.commit(&batch).expect("commit");
        if i >= 5 {
            kv.release_inline(10 + i - 5);
        }
        leeward_meta::contract::settle(&kv);
        most = most.max(kv.stats().journal_bytes);
    }
    assert!(most <= 3 * (64 << 10), "{most} bytes of journal");
    let before = Model::of(&kv);
    let kv = open_small(&disk.power_cut(1)).expect("open");
    assert_eq!(Model::of(&kv), before);
    assert_eq!(kv.inline_data(&[1].into()).expect("rides"), [inline(1, 3)]);
}

/// Who can write into the journal (fsynced data is inline there) cannot make records.
#[test]
fn bytes_of_a_user_are_no_records() {
    for version in [1, 2] {
        let mut forged = vec![0; BLOCK as usize - 100]; // what follows is at multiples of a block
        (2..40).for_each(|seq| forged.extend(forged_record(version, seq)));
        let inline = InlineData { segment: 1, offset: 0, owner: (1, 1, 0), bytes: forged.into() };
        let disk = journal_then(3, &Batch { writes: Vec::new(), inline_data: vec![inline] });
        assert_eq!(Model::of(&open(&disk.kill()).expect("whole")).len(), 3);
        disk.flip_bit(FIRST, at(3) + 100).expect("flip");
        assert_eq!(Model::of(&open(&disk.kill()).expect("torn")).len(), 3);
    }
    // files that are used again have them behind their records
    let disk = SimDisk::new(1);
    let kv = open_small(&disk).expect("open");
    for i in 0..60u64 {
        let mut forged = vec![0; BLOCK as usize - 100 - 15];
        (0..2).for_each(|n| forged.extend(forged_record(1 + i % 2, 100 + i + n)));
        let mut batch = puts(&[(&(i % 5).to_be_bytes(), b"v")]);
        batch.inline_data.push(InlineData { segment: i, offset: 0, owner: (1, 1, 0), bytes: forged.into() });
        kv.commit(&batch).expect("commit");
        kv.release_inline(i);
        leeward_meta::contract::settle(&kv);
        assert_eq!(Model::of(&open_small(&disk.kill()).expect("open")).len(), 5.min(i as usize + 1));
    }
}

/// A record of one block that is right but for what a user cannot know.
fn forged_record(version: u64, seq: u64) -> Vec<u8> {
    record(version, seq, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], &[6, 0, 6, 0, 0, 0], b"forgedforged"].concat())
}

fn record(version: u64, seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = format!("LwJ{version}\0\0\0\0").into_bytes();
    out.extend(1u64.to_le_bytes()); // number of the file, or a half of its key
    out.extend(if version == 1 { &[][..] } else { &[0; 8] });
    out.extend(seq.to_le_bytes());
    out.extend((seq - 1).to_le_bytes());
    out.extend(if version == 1 { &[][..] } else { &[0; 8] });
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    out.extend(payload);
    let crc = crc_fast::crc32_iscsi(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out.resize(BLOCK as usize, 0);
    out
}

/// Cells of format 7 have journals without heads, whose next file may be there without any record.
#[test]
fn a_journal_of_version_1_is_read() {
    let disk = SimDisk::new(1);
    let file = disk.create(FIRST, Caching::Buffered).expect("create");
    for seq in 1..4u64 {
        let payload = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[1, 0, 1, 0, 0, 0, seq as u8, b'v']].concat();
        file.write_at((seq - 1) * BLOCK, &record(1, seq, &payload)).expect("write");
    }
    disk.create("meta/journal-2", Caching::Buffered).expect("create").allocate(8 * BLOCK).expect("allocate");
    assert!(matches!(open(&disk.kill()), Err(Error::Corrupt(_))), "an empty file of a newer journal");
    let mut options = small();
    options.journal.may_be_old = true;
    let kv = MemKv::open_with(Env::sim(1), Arc::new(disk.clone()), options).expect("open");
    assert_eq!(Model::of(&kv).len(), 3);
    kv.commit(&puts(&[(b"new", b"v")])).expect("commit");
    drop(kv);
    let kv = open(&disk.kill()).expect("open again");
    assert_eq!(Model::of(&kv).len(), 4);
}
