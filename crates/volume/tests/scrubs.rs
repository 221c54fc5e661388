//! Scrubs that are cut short, and go on after the next start.

use crate::rig;
use crate::rig::noise;
use crate::rig::shelf::{Rig, start};
use leeward_volume::admin::{self, ScrubInfo};
use std::time::Duration;

const FILES: u64 = 8;
const BYTES: usize = 300_000;
const DAY: Duration = Duration::from_secs(86_400);

/// A pool with some segments, whose scrub is due.
fn filled(layout: &str, stores: &[&str]) -> Rig {
    let rig = Rig::new();
    rig.make_pool_of("p", layout, stores);
    let root = rig.new_volume("v", "p");
    for n in 0..FILES {
        rig.file(root, &format!("f{n}"), &noise(BYTES, n));
        rig.sync();
    }
    rig.rest();
    rig.ask(&admin::ScrubEvery { pool: Some("p".into()), every_secs: DAY.as_secs() as u32 }).expect("set");
    rig.env.advance(DAY);
    rig
}

/// Begins a scrub, and ends the process when so many steps were told of: a minute passes with each.
fn cut(rig: &mut Rig, told: u32, end: impl Fn(&Rig)) {
    let mut n = 0;
    let scrub = admin::Scrub { pool: Some("p".into()) };
    let scrubbed = rig.cell.admin(&scrub, &mut |_| {
        n += 1;
        rig.env.advance(Duration::from_secs(61));
        if n == told {
            end(rig);
        }
    });
    assert!(n >= told, "it was over before: {scrubbed:?}");
}

fn read_bytes(rig: &Rig) -> u64 {
    let health = rig.show("p").health.expect("it is there");
    health.stores.iter().map(|store| store.figures.get.bytes).sum()
}

/// What the scrub found that is due, when it began, and how much was read for it.
fn due(rig: &Rig) -> (ScrubInfo, i64, u64) {
    let before = read_bytes(rig);
    rig.rest();
    let last = rig.show("p").scrub.last.expect("scrubbed");
    (last.found, last.begun_secs, read_bytes(rig) - before)
}

#[test]
fn a_scrub_goes_on_after_the_end_of_the_process() {
    let whole = FILES * BYTES as u64;
    for (layout, stores) in [("replica(2)", &["s0", "s1"][..]), ("single", &["s0"][..])] {
        for crash in [false, true] {
            let mut rig = filled(layout, stores);
            let begun = (rig.env.wall() / 1_000_000_000) as i64;
            let left = std::cell::RefCell::new(None);
            cut(&mut rig, 6, |rig| match crash {
                false => rig.cell.close().expect("a clean close"),
                true => {
                    rig.sync();
                    *left.borrow_mut() = Some(rig.disk.kill());
                }
            });
            rig.disk = left.into_inner().unwrap_or(rig.disk);
            rig.cell = start(&rig.env, &rig.disk, &rig.shelf);
            let raw = whole * stores.len() as u64;
            assert_eq!(rig.show("p").scrub.last, None, "{layout}: it was not whole");
            let (found, begun_secs, read) = due(&rig);
            assert!(read < raw / 2, "{layout}, {crash}: {read} of {raw} bytes were read again");
            assert!(found.bytes >= raw && found.lost_objects == 0, "{layout}: {found:?}");
            assert_eq!(begun_secs, begun, "{layout}");
            // the next one begins anew
            rig.env.advance(DAY);
            let (_, begun_secs, read) = due(&rig);
            assert!(begun_secs > begun && read >= raw, "{layout}: {read} of {raw}");
            rig.clean();
        }
    }
}

#[test]
fn a_scrub_that_found_damage_finds_it_again() {
    for (layout, stores) in [("replica(2)", &["s0", "s1"][..]), ("single", &["s0"][..])] {
        let mut rig = filled(layout, stores);
        rig::flip_in_largest(&rig.shelf.disk("s0"), 100_000);
        cut(&mut rig, FILES as u32, |rig| rig.cell.close().expect("a clean close"));
        rig.cell = start(&rig.env, &rig.disk, &rig.shelf);
        let (found, ..) = due(&rig);
        assert_eq!(found.bad_pieces + found.lost_objects, 1, "{layout}: {found:?}");
        assert_eq!(found.repaired_objects, found.bad_pieces, "{layout}: {found:?}");
    }
}

#[test]
fn one_that_is_asked_for_reads_all() {
    let mut rig = filled("replica(2)", &["s0", "s1"]);
    cut(&mut rig, 6, |rig| rig.cell.close().expect("a clean close"));
    rig.cell = start(&rig.env, &rig.disk, &rig.shelf);
    let before = read_bytes(&rig);
    rig.ask(&admin::Scrub { pool: Some("p".into()) }).expect("scrubbed");
    assert!(read_bytes(&rig) - before >= 2 * FILES * BYTES as u64);
    // and then nothing is left to go on with
    assert_eq!(due(&rig).2, 0);
    rig.clean();
}
