//! The journal's format and how damage to it shows.

use leeward_env::Env;
use leeward_env::disk::sim::SimDisk;
use leeward_env::disk::{Caching, Disk};
use leeward_meta::contract::{Model, puts};
use leeward_meta::mem::MemKv;
use leeward_meta::{Batch, Error, Kv, Result, Ride};
use std::sync::Arc;

const FIRST: &str = "meta/journal-1";
const BLOCK: u64 = 4096;

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
    let ride = Ride { segment: 0x0102, offset: 0x0304, owner: (5, 6, 7), bytes: Arc::from(&b"ride"[..]) };
    let mut batch = puts(&[(b"key", b"value")]);
    batch.writes.push((Arc::from(&b"gone"[..]), None));
    batch.rides.push(ride);
    kv.commit(&puts(&[(b"a", b"")])).expect("commit");
    kv.commit(&batch).expect("commit");
    let expected = [
        &b"LwJ1"[..],
        &[0x6f, 0x04, 0xbc, 0x7f],  // crc32c
        &[1, 0, 0, 0, 0, 0, 0, 0],  // file
        &[2, 0, 0, 0, 0, 0, 0, 0],  // sequence number
        &[1, 0, 0, 0, 0, 0, 0, 0],  // the one before
        &[72, 0, 0, 0, 0, 0, 0, 0], // length
        &[2, 0, 0, 0, 1, 0, 0, 0],  // writes, rides
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
    assert_eq!(bytes(&disk, FIRST, BLOCK, expected.len()), expected);
}

#[test]
fn a_torn_tail_is_the_end() {
    for torn in [0, 8, 40, 60] {
        let disk = journal_of(5);
        disk.flip_bit(FIRST, 4 * BLOCK + torn).expect("flip");
        let kv = open(&disk).expect("open");
        assert_eq!(Model::of(&kv).len(), 4);
        // what is written after it is found, and the tail stays the end of its file
        kv.commit(&puts(&[(b"later", b"v")])).expect("commit");
        drop(kv);
        assert_eq!(Model::of(&open(&disk).expect("open again")).len(), 5);
    }
}

#[test]
fn damage_in_the_middle_is_corrupt() {
    for record in 0..4 {
        let disk = journal_of(5);
        disk.flip_bit(FIRST, record * BLOCK + 50).expect("flip");
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

/// A user may keep a copy of the journal in the file system: a record in a torn record is not a later one.
#[test]
fn a_journal_inside_a_ride() {
    let disk = journal_of(3);
    let mut copy = vec![0; BLOCK as usize - 84]; // so that the copy's records are at multiples of a block
    copy.extend(bytes(&disk, FIRST, 0, 3 * BLOCK as usize));
    let ride = Ride { segment: 1, offset: 0, owner: (1, 1, 0), bytes: copy.into() };
    let batch = Batch { writes: Vec::new(), rides: vec![ride] };
    let disk = journal_then(3, &batch);
    assert_eq!(bytes(&disk, FIRST, 4 * BLOCK, 100), bytes(&disk, FIRST, 0, 100), "a record in a record");
    disk.flip_bit(FIRST, 3 * BLOCK + 100).expect("flip");
    let kv = open(&disk).expect("a torn tail");
    assert_eq!(Model::of(&kv).len(), 3);
    assert!(kv.take_rides().is_empty());
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
