//! The bytes of the format: golden, refused when newer, and no wrong data whatever is flipped or
//! cut.

use crate::support::*;
use leeward_data::format::{BLOCK_BYTES, Codec, Index, MAGIC, TRAILER_BYTES, Trailer, Unit, crc};
use leeward_data::{Addr, Chunk, DataLog, Error, Object, Owner};
use leeward_pool::ObjectId;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn sample() -> (ObjectId, Index) {
    let owner = Owner { volume: 7, inode: 0x1122_3344_5566_7788, offset: 4096 };
    let index = Index {
        chunks: vec![Chunk { offset: 100, len: 70_000, owner }],
        units: vec![
            Unit { stored_bytes: 5000, codec: Codec::Lz4 },
            Unit { stored_bytes: 4464, codec: Codec::Raw },
        ],
        block_crcs: vec![0xdead_beef, 1, 2],
    };
    (ObjectId { segment: 42, generation: 3 }, index)
}

#[test]
fn golden_bytes() {
    let (id, index) = sample();
    let mut tail = vec![0xff; index.tail_bytes()];
    index.encode(id, &mut tail);
    assert_eq!(tail.len(), BLOCK_BYTES);
    assert_eq!(
        hex(&tail[..48]),
        concat!(
            "640000007011010007000000887766554433221100100000000000008813008070110000",
            "efbeadde0100000002000000",
        )
    );
    assert!(tail[48..BLOCK_BYTES - TRAILER_BYTES].iter().all(|&b| b == 0));
    assert_eq!(
        hex(&tail[BLOCK_BYTES - TRAILER_BYTES..]),
        concat!(
            "6c65652d7365676d0100100003000000",
            "2a000000000000007011010",
            "0f8240000010000000200000003000000",
            "00400000",
        )
        .to_string()
            + &hex(&crc(&tail[..BLOCK_BYTES - TRAILER_BYTES]).to_le_bytes())
            + "0000000000000000"
            + &hex(&crc(&tail[BLOCK_BYTES - TRAILER_BYTES..BLOCK_BYTES - 4]).to_le_bytes())
    );
    let last = tail[BLOCK_BYTES - TRAILER_BYTES..].try_into().unwrap();
    let trailer = Trailer::decode(id, 4 * BLOCK_BYTES as u64, last).unwrap();
    let decoded = Index::decode(&trailer, &tail[..BLOCK_BYTES - TRAILER_BYTES]).unwrap();
    assert_eq!(decoded, index);
}

#[test]
fn checksum_is_castagnoli() {
    assert_eq!(crc(b"123456789"), 0xe306_9283);
    assert_eq!(&MAGIC, b"lee-segm");
}

#[test]
fn newer_and_foreign_objects_are_refused() {
    let (id, index) = sample();
    let mut tail = vec![0; index.tail_bytes()];
    index.encode(id, &mut tail);
    let mut last: [u8; TRAILER_BYTES] = tail[BLOCK_BYTES - TRAILER_BYTES..].try_into().unwrap();
    let other = ObjectId { segment: 43, ..id };
    assert!(matches!(Trailer::decode(other, 16384, &last), Err(Error::Corrupt { .. })));
    assert!(matches!(Trailer::decode(id, 20480, &last), Err(Error::Corrupt { .. })));
    last[8] = 3;
    let e = Trailer::decode(id, 16384, &last).unwrap_err();
    assert!(matches!(e, Error::Newer { format: 3, .. }));
    assert!(e.to_string().contains("newer than this program understands (2)"), "{e}");
}

/// Version 2 differs in the order of the chunks only.
#[test]
fn chunks_in_any_order_make_version_2() {
    let (id, mut index) = sample();
    let Owner { offset, .. } = index.chunks[0].owner;
    index.chunks[0].len -= 50;
    index.chunks.push(Chunk {
        offset: 50,
        len: 50,
        owner: Owner { offset: offset + 70_000, ..index.chunks[0].owner },
    });
    let mut tail = vec![0; index.tail_bytes()];
    index.encode(id, &mut tail);
    let (region, last) = tail.split_last_chunk::<TRAILER_BYTES>().unwrap();
    assert_eq!(last[8..10], [2, 0]);
    assert_eq!(
        hex(&region[..56]),
        concat!(
            "640000003e11010007000000887766554433221100100000000000003200000032000000",
            "0700000088776655443322117021010000000000",
        )
    );
    let trailer = Trailer::decode(id, 16384, last).unwrap();
    assert_eq!(Index::decode(&trailer, region).unwrap(), index);
    let sorted = Trailer { format: 1, ..trailer };
    assert!(matches!(Index::decode(&sorted, region), Err(Error::Corrupt { .. })));
}

/// A well-summed index that makes no sense must be refused, not believed.
#[test]
fn senseless_indexes_are_refused() {
    let (id, good) = sample();
    type Harm = fn(&mut Index);
    let harms: [Harm; 6] = [
        |i| i.chunks.push(i.chunks[0]),
        |i| i.chunks.push(Chunk { offset: 50, len: 51, ..i.chunks[0] }),
        |i| i.chunks[0].offset = u32::MAX - 5,
        |i| i.units[1].stored_bytes += 1,
        |i| {
            i.units[0] = Unit { stored_bytes: 5000, codec: Codec::Raw };
        },
        |i| i.units.push(Unit { stored_bytes: 0, codec: Codec::Raw }),
    ];
    for (n, harm) in harms.iter().enumerate() {
        let mut index = good.clone();
        harm(&mut index);
        let mut tail = vec![0; index.tail_bytes()];
        index.encode(id, &mut tail);
        let (region, last) = tail.split_at(tail.len() - TRAILER_BYTES);
        let object_bytes = (index.block_crcs.len() * BLOCK_BYTES + tail.len()) as u64;
        let read = Trailer::decode(id, object_bytes, last.try_into().unwrap())
            .and_then(|t| Index::decode(&t, region));
        assert!(matches!(read, Err(Error::Corrupt { .. })), "harm {n}: {read:?}");
    }
}

type Written = Vec<(Addr, Vec<u8>)>;

/// A small object with raw and compressed units, what was written where, and its bytes.
fn small_object() -> (Rig, Object, Written, Vec<u8>) {
    let rig = Rig::new(options());
    let mut random = Random(5);
    let mut written = Vec::new();
    for n in 0..6 {
        let bytes = if n % 2 == 0 { random.noise(1500) } else { random.text(3000) };
        let addr = rig.log.write(&ctx(1), owner(n, 0), &bytes).unwrap();
        written.push((addr, bytes));
    }
    rig.log.seal_flow(flow(1));
    assert!(rig.log.step());
    let id = rig.id(written[0].0.segment);
    let bytes = rig.store.bytes(id);
    (rig, id, written, bytes)
}

fn read_all(log: &DataLog, written: &[(Addr, Vec<u8>)]) -> usize {
    let mut failed = 0;
    for (addr, bytes) in written {
        let mut buf = vec![0; bytes.len()];
        match log.read(&ctx(1), *addr, &mut buf) {
            Ok(()) => assert_eq!(&buf, bytes, "wrong data"),
            Err(Error::Corrupt { segment, .. }) => {
                assert_eq!(segment, addr.segment);
                failed += 1;
            }
            Err(Error::Newer { .. }) => failed += 1,
            Err(e) => panic!("{e}"),
        }
    }
    failed
}

#[test]
fn every_flipped_byte_is_noticed() {
    let (rig, id, written, good) = small_object();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        rig.store.replace(id, bad);
        let fresh = rig.reopened(options());
        assert!(read_all(&fresh.log, &written) > 0, "byte {at} is under no checksum");
        match fresh.log.verify(&ctx(0), id) {
            Ok(v) => assert!(!v.damaged.is_empty(), "byte {at}"),
            Err(Error::Corrupt { .. } | Error::Newer { .. }) => {}
            Err(e) => panic!("byte {at}: {e}"),
        }
    }
}

#[test]
fn truncated_objects_are_noticed() {
    let (rig, id, written, good) = small_object();
    for len in (0..good.len()).step_by(512) {
        rig.store.replace(id, good[..len].to_vec());
        let fresh = rig.reopened(options());
        assert_eq!(read_all(&fresh.log, &written), written.len(), "cut to {len}");
    }
}
