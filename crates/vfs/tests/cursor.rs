//! The directory cursor against a directory that changes: exactly once for what stays, exact
//! resume, bounded memory.
#![allow(missing_docs)]

use leeward_vfs::{Cursor, ListingPosition};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

type Name = Box<[u8]>;

/// Lists as a door does: replies of at most `room` entries.
fn reply(cursor: &mut Cursor, dir: &BTreeSet<Name>, cookie: u64, room: usize) -> Vec<(u64, Name)> {
    let place = cursor.begin(cookie);
    let mut out: Vec<(u64, Name)> = Vec::new();
    for dot in place.dots.clone() {
        out.push((dot, if dot == 1 { b"."[..].into() } else { b".."[..].into() }));
    }
    let mut rest = dir.range::<[u8], _>((Bound::Excluded(&*place.after), Bound::Unbounded));
    if place.skip > 0 {
        let last = rest.by_ref().take(place.skip as usize).last().cloned().unwrap_or(place.after);
        cursor.skipped_to(&last);
    }
    for name in rest.take(room.saturating_sub(out.len())) {
        out.push((cursor.mark(name), name.clone()));
    }
    out
}

fn name(n: u16) -> Name {
    format!("f{n:05}").into_bytes().into()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A caller that takes only some of each reply, while entries come and go.
    #[test]
    fn what_stays_is_listed_once(
        stay in prop::collection::btree_set(0u16..2000, 0..300),
        churn in prop::collection::vec((any::<bool>(), 0u16..2000), 0..200),
        room in 1usize..40,
        taken in prop::collection::vec(1usize..40, 1..20),
    ) {
        let stay: BTreeSet<Name> = stay.into_iter().map(name).collect();
        let mut dir = stay.clone();
        let (mut cursor, mut cookie, mut seen) = (Cursor::default(), 0, BTreeMap::<Name, usize>::new());
        let (mut churn, mut taken) = (churn.into_iter(), taken.into_iter().cycle());
        loop {
            let got = reply(&mut cursor, &dir, cookie, room);
            if got.is_empty() {
                break;
            }
            for (c, n) in got.into_iter().take(taken.next().unwrap_or(1)) {
                cookie = c;
                *seen.entry(n).or_default() += 1;
            }
            for (add, n) in churn.by_ref().take(3) {
                if add { dir.insert(name(n)); } else if !stay.contains(&name(n)) { dir.remove(&name(n)); }
            }
        }
        for n in stay.iter().chain(&[b"."[..].into(), b".."[..].into()]) {
            prop_assert_eq!(seen.get(n), Some(&1), "{}", n.escape_ascii());
        }
        prop_assert!(seen.values().all(|n| *n == 1));
    }

    /// `seekdir` to any entry that was ever handed out, in a directory that does not change.
    #[test]
    fn every_cookie_stays_good(
        count in 1u16..6000,
        room in 1usize..400,
        seeks in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
    ) {
        let dir: BTreeSet<Name> = (0..count).map(name).collect();
        let (mut cursor, mut cookie, mut all) = (Cursor::default(), 0, Vec::new());
        loop {
            let got = reply(&mut cursor, &dir, cookie, room);
            let Some(last) = got.last() else { break };
            cookie = last.0;
            all.extend(got);
        }
        prop_assert_eq!(all.len(), usize::from(count) + 2);
        for seek in seeks {
            let at = seek.index(all.len());
            let got = reply(&mut cursor, &dir, all[at].0, 3);
            let want: Vec<_> = all[at + 1..].iter().take(3).map(|(_, n)| n.clone()).collect();
            let got: Vec<_> = got.into_iter().map(|(_, n)| n).collect();
            prop_assert_eq!(got, want);
        }
    }
}

#[test]
fn memory_does_not_grow_with_entries() {
    let dir: BTreeSet<Name> = (0..60_000).map(name).collect();
    let (mut cursor, mut cookie) = (Cursor::default(), 0);
    while let Some(last) = reply(&mut cursor, &dir, cookie, 200).last() {
        cookie = last.0;
    }
    assert!(cursor.remembered() < 5_500, "{}", cursor.remembered());
}

#[test]
fn rewinding_starts_over() {
    let dir: BTreeSet<Name> = (0..10).map(name).collect();
    let mut cursor = Cursor::default();
    let first = reply(&mut cursor, &dir, 0, 100);
    let again = reply(&mut cursor, &dir, 0, 100);
    let names = |r: &[(u64, Name)]| r.iter().map(|e| e.1.clone()).collect::<Vec<_>>();
    assert_eq!(names(&first), names(&again));
    assert_eq!(cursor.begin(0), ListingPosition { dots: 1..3, after: Box::default(), skip: 0 });
}

#[test]
fn an_entry_that_did_not_fit_is_not_skipped() {
    let mut cursor = Cursor::default();
    cursor.begin(2);
    let a = cursor.mark(b"a");
    cursor.mark(b"b");
    cursor.unmark();
    assert_eq!(cursor.begin(a).after, b"a"[..].into());
    assert_eq!(cursor.mark(b"b"), a + 1);
}

#[test]
fn a_saved_position_is_good_after_a_look_at_the_start() {
    let dir: BTreeSet<Name> = (0..500).map(name).collect();
    let mut cursor = Cursor::default();
    for _ in 0..3 {
        let (mut cookie, mut all) = (0, Vec::new());
        while let Some(last) = reply(&mut cursor, &dir, cookie, 40).last().map(|last| last.0) {
            all.extend(reply(&mut cursor, &dir, cookie, 40));
            cookie = last;
        }
        let saved = all[300].clone();
        reply(&mut cursor, &dir, 0, 40);
        let got = reply(&mut cursor, &dir, saved.0, 1);
        assert_eq!(got[0].1, all[301].1, "after {}", saved.1.escape_ascii());
    }
}

/// Who seeks and reads on and on, in a directory that he changes each time.
#[test]
fn memory_does_not_grow_with_requests() {
    let mut dir: BTreeSet<Name> = (0..2000).map(name).collect();
    let mut cursor = Cursor::default();
    let first = reply(&mut cursor, &dir, 0, 2000);
    let cookies: Vec<u64> = first.iter().map(|e| e.0).collect();
    for n in 0..40_000usize {
        reply(&mut cursor, &dir, cookies[n * 7 % cookies.len()], 3);
        assert!(cursor.remembered() < 20_000, "{} after {n}", cursor.remembered());
    }
    let same = cursor.remembered();
    assert!(same < 5_000, "{same} names of 2000 entries");
    for n in 0..40_000usize {
        let changed = name((n % 2000) as u16);
        if !dir.remove(&changed) {
            dir.insert(changed);
        }
        reply(&mut cursor, &dir, cookies[n * 7 % cookies.len()], 3);
        assert!(cursor.remembered() < 20_000, "{} after {n}", cursor.remembered());
    }
}

#[test]
fn what_did_not_fit_leaves_nothing() {
    let mut cursor = Cursor::default();
    cursor.begin(0);
    let a = cursor.mark(b"a");
    let c = cursor.mark(b"c");
    // b is new: c has its number
    cursor.begin(a);
    let before = cursor.remembered();
    let b = cursor.mark(b"b");
    assert!(b > c, "a number that nobody had");
    cursor.unmark();
    assert_eq!(cursor.remembered(), before);
    assert_eq!(cursor.begin(c).after, b"c"[..].into());
    cursor.begin(a);
    let again = cursor.mark(b"b");
    let next = cursor.mark(b"c");
    assert_eq!((again, next), (b, b + 1));
    assert_eq!(cursor.begin(again).after, b"b"[..].into());
    assert_eq!(cursor.begin(c).after, b"c"[..].into());
}
