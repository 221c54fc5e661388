//! A hot pool in front of a cold one: what is where, what a crash or a dead pool leaves, how it
//! begins and ends.

use crate::rig;
use crate::rig::noise;
use crate::rig::shelf::Rig;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_fs::{Error, Make, NodeId, Op, Precondition, Reply, XattrMode};
use leeward_volume::TierHealth;
use leeward_volume::admin::{self, PoolInfo};
use std::time::Duration;

const HOT: [&str; 2] = ["h0", "h1"];
/// What the hot pool of most tests has room for.
const ROOM: u64 = 4 << 20;

fn tier(flush_percent: u8, evict_percent: u8) -> admin::PoolTier {
    admin::PoolTier { name: "cold".into(), hot: "hot".into(), flush_percent, evict_percent }
}

fn untier(wait: bool) -> admin::PoolUntier {
    admin::PoolUntier { name: "cold".into(), wait }
}

/// With a small hot pool of two copies in front of a cold one, where the volume `v` is; its root.
fn tiered() -> (Rig, NodeId) {
    let rig = Rig::new();
    rig.make_pool_of("hot", "replica(2)", &HOT);
    rig.make_pool("cold");
    rig.pool(&tier(40, 80));
    HOT.iter().for_each(|url| rig.shelf.disk(url).set_capacity(ROOM));
    let root = rig.new_volume("v", "cold");
    (rig, root)
}

impl Rig {
    fn tier(&self) -> TierHealth {
        *self.show("cold").health.expect("there").tier.expect("a tier")
    }

    /// Time for what is done in the background.
    fn pass(&self) {
        self.env.advance(Duration::from_secs(10));
        self.rest();
    }

    /// Files of half a MiB, each an object of its own.
    fn fill(&self, root: NodeId, from: u64, to: u64) -> Vec<(NodeId, Vec<u8>)> {
        let file = |n: u64| {
            let data = noise(500_000, n);
            let node = self.file(root, &format!("f{n}"), &data);
            self.sync();
            (node, data)
        };
        (from..to).map(file).collect()
    }

    #[track_caller]
    fn holds(&self, files: &[(NodeId, Vec<u8>)]) {
        for (node, data) in files {
            assert!(self.read(*node, data.len()).as_ref() == Ok(data), "{node:?}");
        }
    }
}

#[test]
fn what_is_written_goes_through_the_hot_pool() {
    let (mut rig, root) = tiered();
    let mut files = rig.fill(root, 0, 2);
    rig.pass();
    assert_eq!((rig.objects("h0"), rig.objects("h1"), rig.objects("cold")), (2, 2, 0), "below 40 %");
    assert_eq!((rig.tier().unflushed_objects, rig.tier().pressure_percent), (2, 0));
    files.extend(rig.fill(root, 2, 5));
    rig.pass();
    assert_eq!((rig.objects("h0"), rig.objects("cold")), (5, 5), "nothing is evicted below 80 %");
    assert_eq!(rig.tier().unflushed_objects, 0);
    files.extend(rig.fill(root, 5, 30));
    rig.pass();
    assert!(rig.tier().hot_used_percent <= 80, "{:?}", rig.tier());
    assert_eq!(rig.objects("cold"), 30);
    rig.holds(&files);
    rig.clean();
    // with what the hot pool still has, in another process
    rig.reopen();
    rig.holds(&files);
    rig.pass();
    rig.clean();
    rig.holds(&files);
    let pools: Vec<PoolInfo> = rig.ask(&admin::PoolList).expect("answered").pools;
    let (hot, cold) = (&pools[1], &pools[2]);
    assert_eq!((hot.hot_of.as_deref(), hot.total_bytes, hot.objects), (Some("cold"), ROOM, 0));
    assert_eq!((cold.objects, cold.away.as_deref()), (30, None));
    let info = cold.tier.as_ref().expect("a tier");
    assert_eq!(
        (info.hot.as_str(), info.flush_percent, info.evict_percent, info.ending),
        ("hot", 40, 80, false)
    );
    // the cold one's scrub is of both
    rig.ask(&admin::ScrubEvery { pool: None, every_secs: 3600 }).expect("set");
    rig.refused(&admin::ScrubEvery { pool: Some("hot".into()), every_secs: 3600 }, &["hot", "name cold"]);
    let hot_bytes: u64 = rig.all_in("h0").len() as u64 * 500_000;
    (0..4).for_each(|_| {
        rig.env.advance(Duration::from_secs(3600));
        rig.rest();
    });
    let read = rig.show("cold").scrub.last.expect("scrubbed").found.bytes;
    assert!(read > 30 * 500_000 + hot_bytes / 2, "{read}");
    assert_eq!(rig.show("hot").scrub, Default::default());
    // what is removed is gone from both
    for n in 0..30 {
        rig.call(Op::Unlink { dir: root, name: format!("f{n}").as_bytes(), over: Precondition::Any })
            .expect("removed");
    }
    rig.pass();
    rig.clean();
    assert_eq!((rig.objects("h0"), rig.objects("h1"), rig.objects("cold")), (0, 0, 0));
}

#[test]
fn what_cannot_be_a_tier_is_refused() {
    let rig = Rig::new();
    for name in ["hot", "cold", "third"] {
        rig.make_pool(name);
    }
    let of = |name: &str, hot: &str| admin::PoolTier {
        name: name.into(),
        hot: hot.into(),
        flush_percent: 40,
        evict_percent: 80,
    };
    rig.refused(&of("cold", "default"), &["default", "lee pool create"]);
    rig.refused(&of("default", "hot"), &["default", "lee pool create"]);
    rig.refused(&of("cold", "cold"), &["in front of itself"]);
    rig.refused(&of("cold", "none"), &["none", "lee pool list"]);
    rig.refused(&tier(81, 80), &["--flush 81"]);
    rig.refused(&tier(40, 95), &["--evict 95", "95 percent"]);
    rig.refused(&untier(true), &["cold", "no hot pool"]);
    rig.shelf.disk("hot").set_capacity(100 << 20);
    rig.refused(&of("cold", "hot"), &["hot", "100 MiB", "256 MiB"]);
    rig.refused(&of("hot", "cold"), &["hot", "swap"]);
    rig.shelf.disk("hot").set_capacity(1 << 30);
    // a pool that volumes use
    let root = rig.new_volume("v", "hot");
    rig.refused(&of("cold", "hot"), &["volume v", "move-data"]);
    rig.file(root, "a", &noise(100_000, 1));
    rig.sync();
    rig.move_data("v", "default", false);
    rig.refused(&of("cold", "hot"), &["holds 1 object"]);
    rig.clean();
    rig.pool(&of("cold", "hot"));
    // and what is a part of one
    rig.refused(&of("third", "hot"), &["hot", "--none"]);
    rig.refused(&of("third", "cold"), &["cold", "--none"]);
    rig.refused(&of("cold", "third"), &["cold", "--none"]);
    rig.refused(&of("hot", "third"), &["hot", "lee pool tier cold --none"]);
    rig.refused(&admin::PoolRemove { name: "hot".into() }, &["lee pool tier cold --none"]);
    rig.refused(&admin::PoolRemove { name: "cold".into() }, &["lee pool tier cold --none"]);
    let into = admin::VolumeMoveData { name: "v".into(), to: "hot".into(), wait: false };
    rig.refused(&into, &["hot", "name cold"]);
    let new =
        admin::VolumeCreate { name: "w".into(), at: "/w".into(), uid: 0, gid: 0, pool: Some("hot".into()) };
    rig.refused(&new, &["hot", "name cold"]);
    let set = Op::SetXattr { node: root, name: b"leeward.pool", value: b"hot", mode: XattrMode::Set };
    assert_eq!(rig.call(set), Err(Error::Invalid));
    // other shares are fine, and stay
    let mut rig = rig;
    rig.pool(&tier(0, 50));
    rig.reopen();
    let info = rig.show("cold").tier.expect("a tier");
    assert_eq!((info.flush_percent, info.evict_percent), (0, 50));
}

#[test]
fn a_tier_ends_when_its_hot_pool_is_empty() {
    let (mut rig, root) = tiered();
    let mut files = rig.fill(root, 0, 6);
    rig.cell.step().expect("a step"); // from here on it is known what is where
    rig.pool(&untier(false));
    assert!(rig.show("cold").tier.expect("not yet").ending);
    files.extend(rig.fill(root, 6, 8));
    assert!(rig.objects("h0") <= 6, "nothing goes there any more");
    // it goes on after a crash
    rig.crash_all(Some(1));
    rig.holds(&files);
    rig.pass();
    assert_eq!(rig.show("cold").tier, None);
    assert_eq!((rig.objects("h0"), rig.objects("h1"), rig.objects("cold")), (0, 0, 8));
    rig.holds(&files);
    rig.clean();
    // the hot pool is one by itself
    let other = rig.new_volume("w", "hot");
    rig.file(other, "a", &noise(100_000, 1));
    rig.clean();
    assert_eq!(rig.objects("h0"), 1);
    rig.reopen();
    rig.clean();
    assert_eq!(rig.objects("h0"), 1);
    rig.ask(&admin::VolumeRemove { name: "w".into() }).expect("removed");
    rig.clean();
    // and again, waiting for the end, and changing one's mind in between
    HOT.iter().for_each(|url| rig.shelf.disk(url).set_capacity(1 << 30));
    rig.pool(&tier(40, 80));
    files.extend(rig.fill(root, 8, 10));
    rig.pool(&untier(false));
    assert!(!rig.pool(&tier(40, 80)).tier.expect("a tier").ending);
    files.extend(rig.fill(root, 10, 12));
    assert!(rig.objects("h0") > 0);
    assert_eq!(rig.pool(&untier(true)).tier, None);
    rig.holds(&files);
    rig.clean();
    rig.ask(&admin::PoolRemove { name: "hot".into() }).expect("empty");
}

#[test]
fn a_dead_cold_pool_is_ridden_out_until_the_hot_one_is_full() {
    let (mut rig, root) = tiered();
    let mut files = rig.fill(root, 0, 4);
    rig.pass();
    // it cannot be opened, even: the process is another one
    rig.plug("cold", false);
    rig.reopen();
    assert_eq!(rig.show("cold").away, None);
    rig.holds(&files);
    rig.pass();
    files.extend(rig.fill(root, 4, 7));
    rig.pass();
    let shows = rig.tier();
    assert!(!shows.last_error.is_empty() && shows.pressure_percent == 0, "{shows:?}");
    rig.call(Op::Unlink { dir: root, name: b"f6", over: Precondition::Any }).expect("removed");
    files.pop();
    rig.pass();
    rig.holds(&files);
    let mut full = None;
    for n in 20..40 {
        let node = rig.make(root, &format!("f{n}"), Make::File);
        let data = noise(500_000, n);
        let wrote = rig.write(node, &data).and_then(|_| rig.call(Op::Fsync { node }));
        match wrote {
            Ok(Reply::Done) => files.push((node, data)),
            other => {
                full = Some(other);
                break;
            }
        }
    }
    assert_eq!(full, Some(Err(Error::NoSpace)));
    rig.holds(&files);
    rig.plug("cold", true);
    rig.pass();
    rig.pass();
    rig.clean();
    rig.holds(&files);
    assert_eq!(rig.tier().last_error, "");
    assert!(rig.tier().hot_used_percent <= 80);
}

/// What is only on the hot pool is deleted, whatever is not: also when that comes first.
#[test]
fn what_a_dead_cold_pool_keeps_holds_up_no_other_deletion() {
    let (mut rig, root) = tiered();
    rig.fill(root, 0, 4);
    rig.pass();
    rig.fill(root, 4, 5); // 40 % are full: all is flushed
    rig.pass();
    assert_eq!(rig.objects("cold"), 5);
    rig.plug("cold", false);
    rig.reopen();
    rig.pass();
    let kept = rig.fill(root, 5, 7);
    for name in ["f0", "f5"] {
        rig.call(Op::Unlink { dir: root, name: name.as_bytes(), over: Precondition::Any }).expect("removed");
    }
    for _ in 0..10 {
        let _ = rig.cell.step(); // what goes wrong is tried again
    }
    assert_eq!(rig.objects("h0"), 4 + 1, "f1 to f4 and f6: f0 and f5 are gone from the hot pool");
    rig.holds(&kept[1..]);
    rig.plug("cold", true);
    rig.pass();
    rig.clean();
    assert_eq!(rig.objects("cold"), 4 + 1);
    rig.holds(&kept[1..]);
}

#[test]
fn a_dead_hot_pool_takes_only_what_was_there_alone() {
    let (mut rig, root) = tiered();
    let files = rig.fill(root, 0, 20);
    rig.pass();
    rig.plug("h1", false);
    rig.reopen();
    rig.holds(&files);
    let young = rig.fill(root, 30, 31);
    rig.plug("h0", false);
    rig.reopen();
    assert_eq!(rig.show("cold").away, None);
    rig.holds(&files[..10]);
    assert_eq!(rig.read(young[0].0, 1).map_err(|e| e.errno()), Err(5));
    let found: Vec<_> = rig.fsck().findings.into_iter().filter_map(|f| f.path).collect();
    assert!(found.contains(&"/v/f30".to_string()) && !found.contains(&"/v/f1".to_string()), "{found:?}");
    HOT.iter().for_each(|url| rig.plug(url, true));
    rig.pass();
    rig.holds(&files);
    rig.holds(&young);
    rig.clean();
}

#[test]
fn data_moves_into_a_tier_and_out_of_it() {
    let (rig, _) = tiered();
    let root = rig.new_volume("w", "default");
    let files = rig.fill(root, 0, 20);
    assert_eq!(rig.own_objects(), 20);
    assert_eq!(rig.move_data("w", "cold", true).misplaced_bytes, 0);
    rig.pass();
    rig.clean();
    assert_eq!(rig.own_objects(), 0);
    rig.holds(&files);
    assert!(rig.objects("h0") > 0 && rig.objects("cold") > 0);
    assert_eq!(rig.move_data("w", "default", true).misplaced_bytes, 0);
    rig.pass();
    rig.clean();
    rig.holds(&files);
    assert_eq!((rig.own_objects(), rig.objects("h0"), rig.objects("cold")), (20, 0, 0));
}

#[test]
fn space_is_that_of_the_cold_pool() {
    let (rig, root) = tiered();
    rig.shelf.disk("cold").set_capacity(8 << 20);
    let before = rig.show("cold");
    assert_eq!(before.total_bytes, 8 << 20);
    rig.fill(root, 0, 4);
    let after = rig.show("cold");
    assert!(after.available_bytes <= before.available_bytes - 4 * 500_000, "{after:?}");
    let mut last = Ok(Reply::Done);
    for n in 4..40 {
        let node = rig.make(root, &format!("f{n}"), Make::File);
        last = rig.write(node, &noise(500_000, n));
        if last.is_err() {
            break;
        }
        rig.sync();
        rig.pass();
    }
    assert_eq!(last, Err(Error::NoSpace));
    rig.clean();
}

#[test]
fn scrubbing_reads_both_pools_and_the_hot_one_is_repaired() {
    let (rig, root) = tiered();
    let files = rig.fill(root, 0, 5);
    rig.pass();
    let disk = rig.shelf.disk("h1");
    rig::flip_in_largest(&disk, 100_000);
    let found = &rig.ask(&admin::Scrub { pool: Some("cold".into()) }).expect("scrubbed").pools[0];
    assert_eq!((found.bad_pieces, found.repaired_objects, found.lost_objects), (1, 1, 0), "{found:?}");
    assert!(found.bytes > 3 * 5 * 400_000, "{found:?}");
    rig.holds(&files);
}

/// Writes, fsyncs and removes files while the tier flushes and evicts; what was acknowledged and
/// not touched since.
fn script(rig: &Rig, root: NodeId) -> Vec<(String, Vec<u8>)> {
    let mut kept = Vec::new();
    for n in 0..18u64 {
        let (name, data) = (format!("f{n}"), noise(if n % 4 == 3 { 60_000 } else { 400_000 }, n));
        let make = Op::Make { dir: root, name: name.as_bytes(), make: Make::File, mode: 0o644, umask: 0 };
        let Ok(Reply::Attr(attr)) = rig.call(make) else { break };
        let wrote = rig.write(attr.node, &data).and_then(|_| rig.call(Op::Fsync { node: attr.node }));
        if wrote.is_ok() {
            kept.push((name, data));
        }
        if n % 5 == 4 {
            let gone = kept.remove(0);
            let _ = rig.call(Op::Unlink { dir: root, name: gone.0.as_bytes(), over: Precondition::Any });
        }
        if n % 3 == 2 {
            rig.env.advance(Duration::from_secs(10));
            (0..6).for_each(|_| drop(rig.cell.step()));
        }
    }
    kept
}

/// A crash of the machine, or of the process, at many a mutation of each disk: in the middle of
/// puts, flushes and evictions.
#[test]
fn nothing_acknowledged_is_lost_in_a_crash() {
    let disks = |rig: &Rig| -> Vec<SimDisk> {
        let stores = ["h0", "h1", "cold"].map(|url| rig.shelf.disk(url));
        std::iter::once(rig.disk.clone()).chain(stores).collect()
    };
    let (rig, root) = tiered();
    let begun: Vec<u64> = disks(&rig).iter().map(|disk| disk.mutations()).collect();
    assert_eq!(script(&rig, root).len(), 15);
    let tier = rig.tier();
    assert!(tier.flushed_bytes > 3_000_000 && rig.objects("h0") < rig.objects("cold"), "{tier:?}");
    let ends: Vec<u64> = disks(&rig).iter().map(|disk| disk.mutations()).collect();
    let mut crashes = 0;
    for (which, (begin, end)) in begun.iter().zip(&ends).enumerate() {
        // every one is too much for each run of the tests: another part of them for each disk
        for at in (*begin..*end).skip(which).step_by(7) {
            let (mut rig, root) = tiered();
            let fault = if at % 2 == 0 { Fault::CrashBefore } else { Fault::CrashAfter };
            disks(&rig)[which].fail_at(at, fault);
            let kept = script(&rig, root);
            rig.crash_all((at % 3 > 0).then_some(at));
            let check = |rig: &Rig| {
                for (name, data) in &kept {
                    let node = rig.look_up(root, name);
                    assert!(
                        rig.read(node, data.len()).as_ref() == Ok(data),
                        "{name}: disk {which}, {at}, {fault:?}"
                    );
                }
            };
            check(&rig);
            rig.pass();
            rig.clean();
            // what was flushed since, and again, is on the cold pool indeed
            rig.crash_all(Some(at + 1));
            check(&rig);
            rig.pass();
            rig.clean();
            check(&rig);
            crashes += 1;
        }
    }
    assert!(crashes > 30, "{crashes}");
}
