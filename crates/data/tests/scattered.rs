//! Files whose blocks were written in random order: how they are laid out, and what reading them
//! costs the store.

use crate::support::*;
use leeward_data::format::{Index, TRAILER_BYTES, Trailer, UNIT_BYTES};
use leeward_data::{Addr, Compression, Error, Options};
use leeward_env::{Ctx, Env, Wait};
use std::sync::atomic::Ordering;
use std::time::Duration;

const BLOCK: usize = 4096;
/// Of the file: 4 MiB.
const BLOCKS: usize = 1024;
/// Read at a time, as the kernel would.
const REQUEST: usize = 128 << 10;

fn raw() -> Options {
    Options { compression: Compression::None, ..options() }
}

/// A file of random blocks, written in random order over several segments and stored.
struct Scattered {
    rig: Rig,
    content: Vec<u8>,
    /// Of each block.
    at: Vec<Addr>,
}

impl Scattered {
    fn new(options: Options, seed: u64) -> Scattered {
        let rig = Rig::new(options);
        let mut random = Random(seed);
        let content = random.noise(BLOCKS * BLOCK);
        let mut order: Vec<usize> = (0..BLOCKS).collect();
        (1..BLOCKS).for_each(|n| order.swap(n, random.below(n as u64 + 1) as usize));
        let mut at = vec![Addr { segment: 0, offset: 0 }; BLOCKS];
        for n in order {
            let bytes = &content[n * BLOCK..][..BLOCK];
            at[n] = rig.log.write(&ctx(1), owner(7, (n * BLOCK) as u64), bytes).unwrap();
        }
        rig.log.close().unwrap();
        Scattered { rig, content, at }
    }

    /// One request of a sequential reader.
    fn read(&self, rig: &Rig, ctx: &Ctx, offset: usize) -> leeward_data::Result<Vec<u8>> {
        let mut buf = vec![0; REQUEST];
        let blocks = self.at[offset / BLOCK..].iter().copied();
        rig.log.read_all(ctx, blocks.zip(buf.chunks_mut(BLOCK)).collect())?;
        Ok(buf)
    }

    fn read_to_the_end(&self, rig: &Rig) {
        for offset in (0..self.content.len()).step_by(REQUEST) {
            let buf = self.read(rig, &ctx(1), offset).unwrap();
            assert!(buf == self.content[offset..][..REQUEST], "wrong data at {offset}");
        }
    }

    fn segments(&self) -> Vec<u64> {
        self.rig.catalog.sealed.lock().unwrap().keys().copied().collect()
    }
}

fn stored_index(bytes: &[u8], id: leeward_pool::ObjectId) -> (Trailer, Index) {
    let (rest, last) = bytes.split_last_chunk::<TRAILER_BYTES>().unwrap();
    let trailer = Trailer::decode(id, bytes.len() as u64, last).unwrap();
    let index = Index::decode(&trailer, &rest[trailer.region_at() as usize..]).unwrap();
    (trailer, index)
}

#[test]
fn stored_in_file_order() {
    let file = Scattered::new(raw(), 5);
    assert!(file.segments().len() >= 4);
    for segment in file.segments() {
        let id = file.rig.id(segment);
        let (trailer, index) = stored_index(&file.rig.store.bytes(id), id.id());
        assert_eq!(trailer.format, 2);
        assert!(index.chunks.is_sorted_by_key(|c| c.owner.offset));
        let told = file.rig.log.index(&ctx(0), id).unwrap();
        assert!(told.is_sorted_by_key(|c| c.offset) && told.len() == index.chunks.len());
    }
}

/// Files stay in the order in which they were written, so that what was written together lies
/// together; an object of files written one after another is one of version 1.
#[test]
fn files_in_order_of_writing() {
    let rig = Rig::new(raw());
    for (inode, offset) in [(9, 0), (9, 100), (4, 0), (6, 0)] {
        rig.log.write(&ctx(1), owner(inode, offset), &[1; 100]).unwrap();
    }
    let first = rig.log.write(&ctx(1), owner(5, 0), &[1; 100]).unwrap().segment;
    rig.log.seal(first);
    for (inode, offset) in [(9, 100), (4, 0), (9, 0)] {
        rig.log.write(&ctx(1), owner(inode, offset), &[1; 100]).unwrap();
    }
    let second = rig.log.write(&ctx(1), owner(4, 100), &[1; 100]).unwrap().segment;
    rig.log.close().unwrap();
    let order = |segment| {
        let id = rig.id(segment);
        let (trailer, index) = stored_index(&rig.store.bytes(id), id.id());
        let chunks = index.chunks.iter().map(|c| (c.owner.inode, c.owner.offset, c.len)).collect();
        (trailer.format, chunks)
    };
    let expected: Vec<(u64, u64, u32)> = vec![(9, 0, 200), (4, 0, 100), (6, 0, 100), (5, 0, 100)];
    assert_eq!(order(first), (1, expected));
    let expected = vec![(9, 0, 100), (9, 100, 100), (4, 0, 100), (4, 100, 100)];
    assert_eq!(order(second), (2, expected));
}

/// A scan fetches everything about once, in requests of several units.
#[test]
fn a_scan_takes_few_requests() {
    for options in [raw(), options()] {
        let file = Scattered::new(options, 6);
        let cold = file.rig.reopened(options);
        file.rig.store.gets.store(0, Ordering::Relaxed);
        file.read_to_the_end(&cold);
        let gets = file.rig.store.gets.load(Ordering::Relaxed);
        // 64 units and 5 indexes, of which some take two requests
        assert!(gets < 40, "{gets} requests");
    }
}

/// Two who scan at the same time, as the kernel's read-ahead does, share what they fetch.
#[test]
fn scans_share_what_they_fetch() {
    let file = Scattered::new(raw(), 7);
    let requests = || {
        let cold = file.rig.reopened(raw());
        file.rig.store.gets.store(0, Ordering::Relaxed);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| file.read_to_the_end(&cold));
            }
        });
        file.rig.store.gets.load(Ordering::Relaxed)
    };
    // on a busy machine some are far behind others, and fetch again what the cache has dropped
    let tried: Vec<usize> = (0..5).map(|_| requests()).collect();
    assert!(tried.iter().any(|gets| *gets < 60), "{tried:?} requests");
}

/// Who reads on and on finds at hand what comes next, without waiting for anything after the first
/// few units.
#[test]
fn fetched_ahead_of_who_reads_on_and_on() {
    const UNITS: usize = 32;
    let options = Options { segment_bytes: UNITS * UNIT_BYTES, cache_bytes: 64 << 20, ..raw() };
    let rig = Rig::new(options);
    let bytes = Random(12).noise(UNIT_BYTES);
    let at: Vec<Addr> = (0..UNITS)
        .map(|n| rig.log.write(&ctx(1), owner(7, (n * UNIT_BYTES) as u64), &bytes).unwrap())
        .collect();
    rig.log.close().unwrap();
    let cold = rig.reopened(Options { put_threads: 1, ..options });
    let read = |wait, n: usize| cold.log.read(&ctx(1).with_wait(wait), at[n], &mut [0; 100]);
    (0..4).for_each(|n| read(Wait::Allowed, n).unwrap());
    for n in 4..UNITS {
        let soon = (0..10_000).any(|tries| {
            Env::real().sleep(Duration::from_millis(u64::from(tries > 0)));
            read(Wait::Never, n).is_ok()
        });
        assert!(soon, "unit {n} is not fetched");
    }
}

/// What is in memory, cached and stored comes in one read; who may not wait is told before anything
/// is fetched.
#[test]
fn memory_cache_and_store_together() {
    let mut file = Scattered::new(raw(), 8);
    let rig = file.rig.reopened(raw());
    let never = ctx(1).with_wait(Wait::Never);
    assert!(matches!(file.read(&rig, &never, 0), Err(Error::WouldBlock)));
    let bytes = Random(9).noise(BLOCK);
    file.at[3] = rig.log.write(&ctx(1), owner(7, 3 * BLOCK as u64), &bytes).unwrap();
    file.content[3 * BLOCK..][..BLOCK].copy_from_slice(&bytes);
    let buf = file.read(&rig, &ctx(1), 0).unwrap();
    assert!(buf == file.content[..REQUEST]);
    assert!(file.read(&rig, &never, 0).unwrap() == buf, "all of it is at hand now");
}

/// Units fetched ahead or around do not make a read fail when they are damaged, unreadable or lost.
#[test]
fn damage_nearby_costs_nothing() {
    let file = Scattered::new(raw(), 10);
    let segment = file.segments()[1];
    let id = file.rig.id(segment);
    let (_, index) = stored_index(&file.rig.store.bytes(id), id.id());
    let lost = index.chunks[40].owner.offset as usize / BLOCK;
    let harms: [&dyn Fn(); 3] = [
        &|| {
            let mut bytes = file.rig.store.bytes(id);
            bytes[40 * BLOCK] ^= 1;
            file.rig.store.replace(id, bytes);
        },
        &|| *file.rig.store.unreadable.lock().unwrap() = 40 * BLOCK as u64..41 * BLOCK as u64,
        &|| file.rig.store.lost.store(true, Ordering::Relaxed),
    ];
    for harm in harms {
        let good = file.rig.store.bytes(id);
        harm();
        let cold = file.rig.reopened(raw());
        for n in (0..BLOCKS).filter(|&n| file.at[n].segment == segment) {
            let mut buf = vec![0; BLOCK];
            let read = cold.log.read(&ctx(1), file.at[n], &mut buf);
            assert_eq!(read.is_ok(), n != lost, "block {n}: {read:?}");
            assert!(n == lost || buf == file.content[n * BLOCK..][..BLOCK]);
        }
        file.rig.store.replace(id, good);
    }
}

/// Cleaning keeps the order and loses nothing.
#[test]
fn cleaned_in_file_order() {
    let mut file = Scattered::new(raw(), 11);
    for segment in file.segments() {
        let id = file.rig.id(segment);
        let mut live: Vec<_> = file
            .at
            .iter()
            .filter(|a| a.segment == segment)
            .map(|a| a.offset..a.offset + BLOCK as u32)
            .collect();
        live.sort_by_key(|r| r.start);
        let live: Vec<_> = live.into_iter().step_by(2).collect();
        let info = file.rig.log.rewrite(&ctx(0), id, &live, (0, id.generation + 1)).unwrap();
        file.rig.catalog.sealed.lock().unwrap().insert(segment, info);
        let (_, index) = stored_index(&file.rig.store.bytes(file.rig.id(segment)), file.rig.id(segment).id());
        assert!(index.chunks.is_sorted_by_key(|c| c.owner.offset));
        for n in (0..BLOCKS).filter(|&n| file.at[n].segment == segment) {
            let mut buf = vec![0; BLOCK];
            let read = file.rig.log.read(&ctx(1), file.at[n], &mut buf);
            let kept = live.iter().any(|r| r.start == file.at[n].offset);
            assert_eq!(read.is_ok(), kept);
            assert!(!kept || buf == file.content[n * BLOCK..][..BLOCK]);
        }
    }
    file.at.clear();
}
