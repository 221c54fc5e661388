//! Round trips against a model: random writes, dead ranges, compressibility, cleaning.
#![allow(clippy::single_range_in_vec_init)]

use crate::support::*;
use leeward_data::{Addr, Chunk, Compression, Error, Object, Options, Owner};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What was appended to one segment.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    chunks: Vec<(Range<u32>, Owner)>,
    live: Vec<bool>,
}

fn fill(rig: &Rig, random: &mut Random, appends: usize) -> BTreeMap<u64, Model> {
    let mut models: BTreeMap<u64, Model> = BTreeMap::new();
    for n in 0..appends {
        let len = match random.below(4) {
            0 => 1 + random.below(200),
            1 => 1 + random.below(5_000),
            2 => 4096 * (1 + random.below(20)),
            _ => 1 + random.below(300_000),
        } as usize;
        let bytes = if random.below(2) == 0 { random.noise(len) } else { random.text(len) };
        let own = owner(n as u64 + 1, random.below(1 << 40));
        let addr = rig.log.write(&ctx(1), own, &bytes).unwrap();
        let model = models.entry(addr.segment).or_default();
        assert_eq!(model.bytes.len(), addr.offset as usize, "appends are contiguous");
        model.bytes.extend_from_slice(&bytes);
        model.live.resize(model.bytes.len(), true);
        model.chunks.push((addr.offset..addr.offset + len as u32, own));
        if random.below(3) == 0 {
            let offset = random.below(model.bytes.len() as u64) as u32;
            let len = 1 + random.below((model.bytes.len() as u64 - u64::from(offset)).min(60_000)) as u32;
            rig.log.dead(Addr { segment: addr.segment, offset }, len);
            model.live[offset as usize..(offset + len) as usize].fill(false);
        }
    }
    models
}

impl Model {
    fn all_live(&self, r: &Range<u32>) -> bool {
        self.live[r.start as usize..r.end as usize].iter().all(|&l| l)
    }

    /// Live ranges with owners, pieces as small as the appends.
    fn live_chunks(&self) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for (range, own) in &self.chunks {
            let mut at = range.start;
            while at < range.end {
                let live = self.live[at as usize];
                let end = (at..range.end).find(|&o| self.live[o as usize] != live).unwrap_or(range.end);
                if live {
                    let offset = own.offset + u64::from(at - range.start);
                    chunks.push(Chunk { offset: at, len: end - at, owner: Owner { offset, ..*own } });
                }
                at = end;
            }
        }
        chunks
    }

    fn check_reads(&self, rig: &Rig, segment: u64, random: &mut Random, reads: usize) {
        for _ in 0..reads {
            let start = random.below(self.bytes.len() as u64) as u32;
            let longest = if random.below(2) == 0 { 9_000 } else { 400_000 };
            let left = self.bytes.len() as u64 - u64::from(start);
            let len = (1 + random.below(longest)).min(left) as u32;
            let range = start..start + len;
            // room before it, so that the memory is aligned in some reads and not in others
            let mut memory = vec![0xaa; len as usize + 64];
            let buf = &mut memory[random.below(64) as usize..][..len as usize];
            let read = rig.log.read(&ctx(1), Addr { segment, offset: start }, buf);
            if self.all_live(&range) {
                read.unwrap();
                assert!(
                    buf == &self.bytes[start as usize..range.end as usize],
                    "segment {segment} {range:?}"
                );
            } else {
                assert!(matches!(read, Err(Error::Absent { .. })), "{read:?}");
            }
        }
    }
}

fn round_trip(options: Options, seed: u64) {
    let rig = Rig::new(options);
    let mut random = Random(seed);
    let mut models = fill(&rig, &mut random, 60);
    rig.log.close().unwrap();
    assert_eq!(rig.log.dirty_bytes(), 0);
    for (&segment, model) in &mut models {
        let live = model.live_chunks();
        let data_bytes: u64 = live.iter().map(|c| u64::from(c.len)).sum();
        let info = rig.catalog.sealed.lock().unwrap()[&segment];
        assert_eq!((info.data_bytes, info.object.generation), (data_bytes, 0));
        if data_bytes == 0 {
            assert_eq!(info.object_bytes, 0);
            continue;
        }
        let id = rig.id(segment);
        assert_eq!(info.object_bytes, rig.store.bytes(id).len() as u64);
        assert_eq!(rig.log.index(&ctx(0), id).unwrap(), live);
        assert!(rig.log.verify(&ctx(0), id).unwrap().damaged.is_empty());
        model.check_reads(&rig, segment, &mut random, 40);
        clean(&rig, id, model, &mut random);
        model.check_reads(&rig, segment, &mut random, 40);
    }
}

/// Drops more, rewrites, removes the old object.
fn clean(rig: &Rig, id: Object, model: &mut Model, random: &mut Random) {
    for _ in 0..3 {
        let start = random.below(model.live.len() as u64) as usize;
        let end = (start + random.below(100_000) as usize).min(model.live.len());
        model.live[start..end].fill(false);
    }
    let live = model.live_chunks();
    let ranges: Vec<_> = live.iter().map(|c| c.offset..c.end()).collect();
    let info = rig.log.rewrite(&ctx(0), id, &ranges, (0, id.generation + 1)).unwrap();
    assert_eq!(info.object.generation, id.generation + 1);
    rig.catalog.sealed.lock().unwrap().insert(id.segment, info);
    rig.log.delete(&ctx(0), id).unwrap();
    if live.is_empty() {
        assert_eq!(info.object_bytes, 0);
        return;
    }
    assert_eq!(rig.log.index(&ctx(0), rig.id(id.segment)).unwrap(), live);
}

#[test]
fn round_trips_compressed() {
    for seed in 1..12 {
        round_trip(options(), seed * 7919);
    }
}

#[test]
fn round_trips_raw() {
    for seed in 1..6 {
        round_trip(Options { compression: Compression::None, ..options() }, seed * 104_729);
    }
}

#[test]
fn round_trips_with_a_tiny_cache() {
    round_trip(Options { cache_bytes: 100_000, ..options() }, 99);
}

#[test]
fn round_trips_without_a_cache() {
    round_trip(Options { cache_bytes: 0, ..options() }, 31);
}

/// More segments than the usual test: `cargo test --release -- --ignored`.
#[test]
#[ignore = "long"]
fn round_trips_many() {
    for seed in 1..300 {
        let compression = if seed % 3 == 0 { Compression::None } else { Compression::Lz4 };
        let segment_bytes = [300_000, 1 << 20, 5 << 20][seed as usize % 3];
        round_trip(
            Options { compression, segment_bytes, dirty_bytes: 64 << 20, ..options() },
            seed * 6_700_417,
        );
    }
}

/// Small files in one segment: thousands of chunks, holes everywhere, an index longer than the
/// guess.
#[test]
fn many_small_chunks() {
    let rig = Rig::new(Options { segment_bytes: 8 << 20, ..options() });
    let mut random = Random(71);
    let mut written = Vec::new();
    for n in 0..6000u64 {
        let len = 1 + random.below(900) as usize;
        let bytes = random.text(len);
        written.push((rig.log.write(&ctx(1), owner(n, 0), &bytes).unwrap(), bytes));
    }
    for (addr, bytes) in written.iter().step_by(2) {
        rig.log.dead(*addr, bytes.len() as u32);
    }
    rig.log.close().unwrap();
    let id = rig.id(written[0].0.segment);
    assert_eq!(rig.log.index(&ctx(0), id).unwrap().len(), 3000);
    let fresh = rig.reopened(options());
    let live: Vec<_> = written.iter().skip(1).step_by(2).cloned().collect();
    for (addr, bytes) in &live {
        let mut buf = vec![0; bytes.len()];
        fresh.log.read(&ctx(1), *addr, &mut buf).unwrap();
        assert!(&buf == bytes);
    }
    // the index and each unit were fetched about once: files written together are read together
    let gets = rig.store.gets.load(std::sync::atomic::Ordering::Relaxed);
    assert!(gets < 40, "{gets} requests to the store");
}

#[test]
fn neighbours_merge_and_text_shrinks() {
    let rig = Rig::new(options());
    let text = Random(3).text(600_000);
    let mut first = None;
    for (n, part) in text.chunks(10_000).enumerate() {
        let addr = rig.log.write(&ctx(1), owner(9, n as u64 * 10_000), part).unwrap();
        first.get_or_insert(addr);
    }
    rig.log.close().unwrap();
    let addr = first.unwrap();
    let id = rig.id(addr.segment);
    let chunks = rig.log.index(&ctx(0), id).unwrap();
    assert_eq!(chunks, [Chunk { offset: 0, len: 600_000, owner: owner(9, 0) }]);
    assert!(rig.store.bytes(id).len() < 450_000, "{} bytes", rig.store.bytes(id).len());
    let mut buf = vec![0; 600_000];
    rig.log.read(&ctx(1), addr, &mut buf).unwrap();
    assert!(buf == text);
}

#[test]
fn restore_from_inline_data() {
    let rig = Rig::new(options());
    let mut random = Random(17);
    let (a, b) = (random.text(70_000), random.noise(5_000));
    let longer: Arc<[u8]> = a.clone().into();
    let pieces: Vec<(u32, Owner, Arc<[u8]>)> = vec![
        (200_000, owner(2, 64), b.clone().into()),
        (1_000, owner(1, 0), a[..30_000].to_vec().into()),
        (1_000, owner(1, 0), longer),
        (5_000, owner(1, 4_000), a[4_000..6_000].to_vec().into()),
    ];
    let info = rig.log.restore(&ctx(0), 0, 77, &pieces).unwrap();
    assert_eq!((info.object.segment, info.object.generation, info.data_bytes), (77, 0, 75_000));
    rig.catalog.sealed.lock().unwrap().insert(77, info);
    let chunks = rig.log.index(&ctx(0), rig.id(77)).unwrap();
    assert_eq!(
        chunks,
        [
            Chunk { offset: 1_000, len: 70_000, owner: owner(1, 0) },
            Chunk { offset: 200_000, len: 5_000, owner: owner(2, 64) },
        ]
    );
    let mut buf = vec![0; 70_000];
    rig.log.read(&ctx(0), Addr { segment: 77, offset: 1_000 }, &mut buf).unwrap();
    assert!(buf == a);
    let mut buf = vec![0; 5_000];
    rig.log.read(&ctx(0), Addr { segment: 77, offset: 200_000 }, &mut buf).unwrap();
    assert!(buf == b);
    let absent = rig.log.read(&ctx(0), Addr { segment: 77, offset: 100_000 }, &mut buf);
    assert!(matches!(absent, Err(Error::Absent { segment: 77, offset: 100_000 })));
}

/// Damage in the middle is reported as the ranges that it costs, with their owners, and the rest
/// stays readable.
#[test]
fn damage_costs_only_what_it_hits() {
    let rig = Rig::new(options());
    let mut random = Random(23);
    let noise = random.noise(300_000);
    let addr = rig.log.write(&ctx(1), owner(4, 1_000_000), &noise).unwrap();
    rig.log.close().unwrap();
    let id = rig.id(addr.segment);
    let mut bytes = rig.store.bytes(id);
    for at in [10 * 4096 + 5, 30 * 4096] {
        bytes[at] ^= 0x10;
    }
    rig.store.replace(id, bytes);
    let found = rig.log.verify(&ctx(0), id).unwrap().damaged;
    let lost = |block: u32| Chunk {
        offset: block * 4096,
        len: 4096,
        owner: owner(4, 1_000_000 + u64::from(block) * 4096),
    };
    assert_eq!(found, [lost(10), lost(30)]);
    let keep = [0..40_960, 45_056..122_880, 126_976..300_000];
    assert!(matches!(
        rig.log.rewrite(&ctx(0), id, &[0..300_000], (0, id.generation + 1)),
        Err(Error::Corrupt { .. })
    ));
    let mut large = vec![0; 170_000];
    rig.log.read(&ctx(0), Addr { segment: id.segment, offset: 130_000 }, &mut large).unwrap();
    assert!(large == noise[130_000..]);
    let info = rig.log.rewrite(&ctx(0), id, &keep[..1], (0, id.generation + 1)).unwrap();
    assert_eq!(info.data_bytes, 40_960);
}

/// A damaged compressed unit is lost whole; blocks that the device cannot read count as damaged,
/// one by one.
#[test]
fn damage_in_compressed_and_unreadable_blocks() {
    let rig = Rig::new(options());
    let mut random = Random(29);
    let text = random.text(200_000);
    let noise = random.noise(200_000);
    let a = rig.log.write(&ctx(1), owner(1, 0), &text).unwrap();
    let b = rig.log.write(&ctx(2), owner(2, 0), &noise).unwrap();
    rig.log.close().unwrap();
    let mut bytes = rig.store.bytes(rig.id(a.segment));
    bytes[100] ^= 1;
    rig.store.replace(rig.id(a.segment), bytes);
    let found = rig.log.verify(&ctx(0), rig.id(a.segment)).unwrap().damaged;
    assert_eq!(found, [Chunk { offset: 0, len: 65_536, owner: owner(1, 0) }]);
    *rig.store.unreadable.lock().unwrap() = 8192..8193;
    let found = rig.log.verify(&ctx(0), rig.id(b.segment)).unwrap().damaged;
    assert_eq!(found, [Chunk { offset: 8192, len: 4096, owner: owner(2, 8192) }]);
    let mut buf = vec![0; 150_000];
    let read = rig.log.read(&ctx(1), Addr { offset: 20_000, ..b }, &mut buf);
    read.unwrap();
    assert!(buf == noise[20_000..170_000]);
    let read = rig.log.read(&ctx(1), b, &mut buf);
    assert!(matches!(read, Err(Error::Store(leeward_pool::Error::Io(_)))));
}
