//! Extents against a plain map of bytes.

use leeward_data::Addr;
use leeward_volume::format::extents::{Extents, Source};

fn next(seed: &mut u64) -> u32 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 32) as u32
}

#[test]
fn replacing_is_what_it_says() {
    const BYTES: u32 = 300;
    for seed in 1..40u64 {
        let mut seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut list = Extents::default();
        let mut bytes: Vec<Option<Source>> = vec![None; BYTES as usize];
        for step in 0..200 {
            let from = next(&mut seed) % BYTES;
            let to = (from + 1 + next(&mut seed) % 40).min(BYTES);
            let source = match next(&mut seed) % 4 {
                0 => None,
                1 => Some(Source::Unwritten),
                _ => Some(Source::Data(Addr {
                    segment: 1 + u64::from(next(&mut seed) % 3),
                    offset: from * 7 + step,
                })),
            };
            let mut dropped = 0;
            list.replace(from..to, source, 1 + step % 3, |e| dropped += e.len);
            let was = bytes[from as usize..to as usize].iter().filter(|b| b.is_some()).count();
            assert_eq!(dropped as usize, was, "dropped");
            for at in from..to {
                bytes[at as usize] = source.map(|s| match s {
                    Source::Data(a) => {
                        Source::Data(Addr { segment: a.segment, offset: a.offset + at - from })
                    }
                    Source::Unwritten => Source::Unwritten,
                });
            }
            check(&list, &bytes, &mut seed);
        }
    }
}

fn check(list: &Extents, bytes: &[Option<Source>], seed: &mut u64) {
    let mut encoded = Vec::new();
    list.encode(4, &mut encoded);
    assert_eq!(Extents::decode(&encoded).as_ref(), Some(list), "round trip");
    let from = next(seed) % bytes.len() as u32;
    let to = from + next(seed) % (bytes.len() as u32 - from + 1);
    let mut found: Vec<Option<Source>> = vec![None; bytes.len()];
    for e in list.within(from..to) {
        for n in 0..e.len {
            found[(e.offset + n) as usize] = Some(match e.source {
                Source::Data(a) => Source::Data(Addr { segment: a.segment, offset: a.offset + n }),
                Source::Unwritten => Source::Unwritten,
            });
        }
    }
    let range = from as usize..to as usize;
    assert_eq!(found[range.clone()], bytes[range.clone()]);
    let allocated = bytes[range].iter().filter(|b| b.is_some()).count() as u64;
    assert_eq!(Extents::allocated_encoded(&encoded, from..to), allocated);
}
