//! What volumes, users, groups and pools used in a time: as it was on each day, whatever became of
//! them since, and whatever crashes and clocks did.

use crate::rig::{Rig, engine, noise};
use leeward_fs::{Op, SetAttr};
use leeward_meta::{Batch, Kv};
use leeward_volume::admin::{
    self, Day, QuotaSet, Sampled, UsageOf, UsageReport, UsageReported, Used, UsedOnDay,
};
use leeward_volume::format::keys::{self, Table};
use std::time::Duration;

const DAY_SECS: u64 = 86_400;
const ALICE: u32 = 1000;

fn day(text: &str) -> Day {
    Day::parse(text).expect("a day")
}

impl Rig {
    fn today(&self) -> Day {
        Day(u32::try_from(self.now_secs() as u64 / DAY_SECS).expect("a day"))
    }

    /// So many days later, a few hours after the day has begun.
    fn later(&self, days: u64) {
        self.idle();
        let secs = self.now_secs() as u64;
        let then = (secs / DAY_SECS + days) * DAY_SECS + 3 * 3600;
        self.env.advance(Duration::from_secs(then - secs));
        self.idle();
        self.admin(&admin::SyncAll);
    }

    fn go_to(&self, to: &str) {
        self.later(u64::from(day(to).0 - self.today().0));
    }

    fn report(&self, of: Sampled, from: Day, to: Option<Day>) -> UsageReported {
        self.admin(&UsageReport { of, from, to, only: Vec::new(), daily: true })
    }

    fn row(&self, of: Sampled, from: Day, to: Option<Day>, id: u64) -> UsageOf {
        let reported = self.report(of, from, to);
        let found = reported.rows.iter().find(|row| row.id == id).cloned();
        found.unwrap_or_else(|| panic!("{id} is not in {reported:?}"))
    }

    fn volume(&self, name: &str) -> u64 {
        let (name, at) = (name.to_string(), format!("/{name}"));
        u64::from(self.admin(&admin::VolumeCreate { name, at, uid: ALICE, gid: 0, pool: None }).id)
    }

    /// Days of samples that are stored of chunks of this kind.
    fn kept(&self, of: Sampled) -> Vec<Day> {
        let kv = engine(&self.env, &self.disk.kill());
        let (from, to) = keys::table_range(Table::Samples);
        let all = kv.scan(&from, &to, usize::MAX / 2, false).expect("records");
        let of_kind = all.iter().filter(|(key, _)| keys::table_id(key) >> 56 == of as u64);
        of_kind.filter_map(|(key, _)| keys::parse_sampled_day(key).map(Day)).collect()
    }
}

fn bytes(days: &[UsedOnDay]) -> Vec<u64> {
    days.iter().map(|day| day.used.bytes).collect()
}

#[test]
fn each_day_is_told_as_it_was() {
    let rig = Rig::new();
    let first = rig.today();
    rig.idle();
    rig.file("/in-root", &noise(4096, 9));
    let id = rig.volume("a");
    rig.file("/a/f", &noise(8192, 1));
    rig.later(1);
    rig.later(1);
    rig.file("/a/g", &noise(4096, 2));
    rig.later(1);
    rig.unlink("/a/f");
    rig.later(1);
    rig.file("/a/h", &noise(16_384, 3));

    let row = rig.row(Sampled::Volume, first, None, id);
    // on the first day it was sampled before it was there
    assert_eq!(row.days[0].day, first.plus(1));
    assert_eq!(bytes(&row.days), [8192, 8192, 12_288, 4096, 20_480]);
    assert_eq!((row.begin, row.end), (Used::default(), Used { bytes: 20_480, files: 2 }));
    assert_eq!((row.peak_bytes, row.average_bytes), (20_480, (8192 * 2 + 12_288 + 4096) / 5));
    assert_eq!((row.name.as_deref(), row.uid, row.gone), (Some("a"), Some(ALICE), None));
    assert_eq!(row.changed, Some(rig.today()));
    let past = rig.row(Sampled::Volume, first.plus(1), Some(first.plus(3)), id);
    assert_eq!(bytes(&past.days), [8192, 8192, 12_288]);
    assert_eq!((past.average_bytes, past.end.bytes), (8192, 12_288));
    let all = rig.report(Sampled::Volume, first, None);
    assert_eq!((all.kept_from, all.to), (Some(first), rig.today().plus(1)));
    assert!(all.rows.iter().any(|row| row.id == 0), "the root");
    let of_all = || all.rows.iter().flat_map(|row| &row.days);
    let sum = |n: u32| of_all().filter(|on| on.day == first.plus(n)).map(|on| on.used.bytes).sum::<u64>();
    assert_eq!(bytes(&all.days), (0..6).map(sum).collect::<Vec<_>>());
    assert_eq!(rig.findings(), []);
}

#[test]
fn owners_and_pools_are_told_too() {
    let rig = Rig::new();
    let first = rig.today();
    let file = rig.file("/f", &noise(8192, 1));
    rig.call(Op::SetAttr {
        node: file,
        set: SetAttr { uid: Some(ALICE), gid: Some(70_000), ..SetAttr::default() },
    })
    .expect("set");
    rig.later(1);
    for (of, id) in [(Sampled::User, u64::from(ALICE)), (Sampled::Group, 70_000)] {
        let row = rig.row(of, first, None, id);
        assert_eq!(row.end, Used { bytes: 8192, files: 1 });
        assert_eq!((row.name, row.limit_bytes), (None, 0));
    }
    rig.unlink("/f");
    rig.later(1);
    let row = rig.row(Sampled::User, first.plus(1), None, u64::from(ALICE));
    assert_eq!((row.begin.bytes, row.end.bytes), (8192, 0), "who owns nothing any more is told of");
    let only = UsageReport { of: Sampled::User, from: rig.today(), to: None, only: Vec::new(), daily: false };
    assert!(rig.admin(&only).rows.iter().all(|row| row.id != u64::from(ALICE)), "and later not");
    let pool = rig.row(Sampled::Pool, first.plus(1), None, 0);
    assert_eq!(pool.name.as_deref(), Some("default"));
    assert!(pool.limit_bytes >= pool.end.bytes);
}

#[test]
fn volumes_keep_their_name_when_they_are_gone() {
    let rig = Rig::new();
    let id = rig.volume("old");
    rig.file("/old/f", &noise(4096, 1));
    rig.later(1);
    let first = rig.today();
    rig.admin(&admin::VolumeRename { name: "old".into(), to: "new".into() });
    rig.later(1);
    rig.admin(&admin::VolumeRemove { name: "new".into() });
    assert_eq!(rig.row(Sampled::Volume, first, None, id).end, Used::default());
    rig.later(1);
    let row = rig.row(Sampled::Volume, first, None, id);
    assert_eq!((row.name.as_deref(), row.gone), (Some("new"), Some(rig.today())));
    assert_eq!((row.begin.bytes, row.end.bytes), (4096, 0));
    rig.go_to("2003-01-01");
    let row = rig.row(Sampled::Volume, first, None, id);
    assert_eq!((row.name.as_deref(), row.begin.bytes, row.end.bytes), (Some("new"), 4096, 0));
    assert_eq!(rig.findings(), []);
}

#[test]
fn quotas_and_last_changes_are_those_of_now() {
    let rig = Rig::new();
    let id = rig.volume("a");
    rig.file("/a/f", b"x");
    let changed = rig.today();
    rig.admin(&QuotaSet { path: "/a".into(), bytes: Some(1 << 20), files: None });
    rig.later(40);
    rig.admin(&admin::SnapCreate { path: "/a".into(), name: "s".into() });
    rig.later(1);
    let row = rig.row(Sampled::Volume, changed, None, id);
    assert_eq!((row.limit_bytes, row.changed), (1 << 20, Some(changed)), "a snapshot is no change");
    rig.call(Op::SetAttr {
        node: rig.at("/a/f").expect("a file"),
        set: SetAttr { mode: Some(0o600), ..SetAttr::default() },
    })
    .expect("set");
    assert_eq!(rig.row(Sampled::Volume, changed, None, id).changed, Some(rig.today()));
}

#[test]
fn a_day_on_which_nothing_changes_takes_no_space() {
    let rig = Rig::new();
    rig.volume("a");
    rig.go_to("2001-10-02");
    let before = rig.kept(Sampled::Volume).len();
    for _ in 0..20 {
        rig.later(1);
    }
    assert_eq!(rig.kept(Sampled::Volume).len(), before);
    rig.go_to("2001-11-05");
    assert_eq!(rig.kept(Sampled::Volume).last(), Some(&day("2001-11-05")), "the first of a month is whole");
    assert_eq!(rig.kept(Sampled::Volume).len(), before + 1);
}

#[test]
fn old_days_go_and_months_stay() {
    let rig = Rig::new();
    let id = rig.volume("a");
    let first = rig.today();
    for n in 0..40u64 {
        rig.file(&format!("/a/f{n}"), &noise(4096, n));
        rig.later(1);
    }
    let early = rig.kept(Sampled::Volume).len();
    assert!(early >= 40, "each day is kept: {early}");
    let then = rig.row(Sampled::Volume, first, Some(first.plus(40)), id);
    rig.later(810);
    for date in ["2004-06-20", "2004-06-27", "2004-07-01"] {
        rig.go_to(date);
    }
    let kept = rig.kept(Sampled::Volume);
    let is_early = |on: &&Day| on.0 < first.0 + 45;
    assert!(kept.iter().filter(is_early).count() <= 3, "the first of each month is left: {kept:?}");
    let now = rig.row(Sampled::Volume, day("2001-10-01"), Some(day("2001-10-02")), id);
    let on_first = then.days.iter().find(|on| on.day == day("2001-10-01")).expect("that day");
    assert_eq!(now.begin, on_first.used);
    for date in ["2020-01-20", "2020-01-27", "2020-02-01"] {
        rig.go_to(date);
    }
    assert!(rig.kept(Sampled::Volume).iter().all(|on| on.0 > first.0 + 45), "after ten years they go, too");
    assert_eq!(rig.findings(), []);
}

#[test]
fn days_that_are_kept_are_what_they_were_when_older_ones_go() {
    let rig = Rig::new();
    let id = rig.volume("a");
    rig.go_to("2002-03-01");
    for (date, n) in [("2002-03-10", 1), ("2002-03-20", 2)] {
        rig.file(&format!("/a/f{n}"), &noise(4096 * n, n as u64));
        rig.go_to(date);
    }
    rig.go_to("2002-04-02");
    let on = |date: &str| {
        let reported = rig.report(Sampled::Volume, day(date), Some(day(date).plus(1)));
        reported.rows.iter().find(|row| row.id == id).map_or(0, |row| row.begin.bytes)
    };
    let dates = ["2002-03-05", "2002-03-15", "2002-03-25", "2002-03-31"];
    let before = dates.map(on);
    assert_eq!(before, [0, 4096, 12_288, 12_288]);
    // 800 days after the 23rd of March, and some days each month
    for date in ["2004-05-25", "2004-05-31", "2004-06-01", "2004-06-02"] {
        rig.go_to(date);
    }
    assert_eq!(dates.map(on), before);
    for date in ["2004-06-08", "2004-06-15", "2004-06-22", "2004-06-29", "2004-07-01"] {
        rig.go_to(date);
    }
    assert_eq!(on("2002-04-10"), 12_288);
    assert_eq!(rig.kept(Sampled::Volume).iter().filter(|on| on.month() == (2002, 3)).count(), 1);
}

#[test]
fn a_past_time_is_told_as_it_was() {
    let rig = Rig::new();
    let (old, new) = (rig.volume("old"), rig.volume("new"));
    rig.file("/old/f", &noise(4096, 1));
    rig.file("/new/f", &noise(4096, 1));
    rig.later(1);
    let (from, to) = (rig.today(), rig.today().plus(2));
    rig.later(5);
    rig.admin(&admin::VolumeRemove { name: "old".into() });
    let now = rig.row(Sampled::Volume, from, None, old);
    assert_eq!(now.gone, Some(rig.today()), "at once");
    rig.later(1);
    assert_eq!(rig.row(Sampled::Volume, from, Some(to), old).gone, None, "it was there then");
    // nobody serves the cell for some months
    let begun = rig.today().0 as u64;
    rig.env.advance(Duration::from_secs(100 * DAY_SECS));
    let row = rig.row(Sampled::Volume, Day(begun as u32 + 95), None, new);
    assert_eq!((row.begin.bytes, row.average_bytes), (4096, 4096));
}

#[test]
fn a_clock_that_goes_back_and_on_changes_no_other_day() {
    let rig = Rig::new();
    let id = rig.volume("a");
    rig.go_to("2002-03-01");
    for n in 1..=10u64 {
        rig.file(&format!("/a/f{n}"), &noise(4096, n));
        rig.later(1);
    }
    let days = || bytes(&rig.row(Sampled::Volume, day("2002-03-01"), Some(day("2002-03-11")), id).days);
    let before = days();
    rig.env.set_wall_by(-7 * DAY_SECS as i64);
    rig.file("/a/more", &noise(1 << 20, 99));
    rig.idle();
    rig.unlink("/a/more");
    rig.env.set_wall_by(7 * DAY_SECS as i64);
    let mut wanted = before.clone();
    wanted[3] = 10 * 4096 + (1 << 20);
    assert_eq!(days(), wanted, "only the 4th is what it is now");
    assert_eq!(rig.findings(), []);
}

#[test]
fn a_record_that_is_damaged_takes_no_more_than_its_month() {
    let mut rig = Rig::new();
    let id = rig.volume("a");
    rig.file("/a/f", &noise(4096, 1));
    rig.go_to("2002-03-02");
    rig.file("/a/g", &noise(4096, 2));
    rig.later(1);
    rig.cell.close().expect("closed");
    let writes = [keys::samples(0, day("2002-03-02").0), keys::sampled_names(0)]
        .map(|key| (key, Some([9][..].into())));
    let kv = engine(&rig.env, &rig.disk);
    kv.commit(&Batch { writes: writes.into(), inline_data: Vec::new() }).expect("committed");
    kv.close().expect("closed");
    rig.start();
    rig.later(1);
    rig.go_to("2002-04-02");
    let row = rig.row(Sampled::Volume, day("2002-04-02"), None, id);
    assert_eq!((row.begin.bytes, row.name.as_deref()), (8192, Some("a")));
}

#[test]
fn a_sampling_that_is_cut_off_goes_on() {
    let mut rig = Rig::new();
    for n in 0..300 {
        rig.volume(&format!("v{n}"));
    }
    rig.file("/v290/f", &noise(4096, 1));
    rig.idle();
    rig.admin(&admin::SyncAll);
    rig.env.advance(Duration::from_secs(DAY_SECS));
    // volumes have several chunks, owners and pools one each
    for steps in 0..40 {
        rig.cell.step_one(14).expect("a step");
        if steps % 2 == 1 {
            rig.admin(&admin::SyncAll);
            rig.power_cut(steps);
        }
    }
    let row = rig.row(Sampled::Volume, rig.today(), None, 291);
    assert_eq!(row.begin, Used { bytes: 4096, files: 1 });
    assert!(rig.row(Sampled::User, rig.today(), None, 0).begin.files > 0);
    assert_eq!(rig.findings(), []);
}

#[test]
fn days_of_a_wrong_clock_do_no_harm() {
    let rig = Rig::new();
    let id = rig.volume("a");
    let first = rig.today();
    rig.file("/a/f", &noise(4096, 1));
    rig.later(1);
    // a battery is empty, and somebody sets the clock by hand
    let set_clock = |secs: i64| rig.env.set_wall_by(secs - rig.now_secs());
    set_clock(3600);
    rig.idle();
    set_clock((i64::from(first.0) + 400) * DAY_SECS as i64);
    rig.idle();
    set_clock((i64::from(first.0) + 2) * DAY_SECS as i64 + 60);
    rig.idle();
    rig.file("/a/g", &noise(4096, 2));
    rig.later(1);
    let row = rig.row(Sampled::Volume, first.plus(1), None, id);
    assert_eq!(bytes(&row.days), [4096, 4096, 8192, 8192]);
    rig.later(399);
    let row = rig.row(Sampled::Volume, first.plus(1), None, id);
    assert_eq!(row.end.bytes, 8192, "what was said of that day before does not last");
    assert_eq!(rig.findings(), []);
}

#[test]
fn nobody_asks_for_a_time_that_is_none() {
    let rig = Rig::new();
    let today = rig.today();
    for (from, to) in [(today.plus(1), None), (today, Some(today)), (today, Some(today.plus(2)))] {
        let request = UsageReport { of: Sampled::Pool, from, to, only: Vec::new(), daily: false };
        let failure = rig.ask(&request).expect_err("no time");
        assert!(failure.message.contains(&format!("today is {today}")), "{failure:?}");
    }
    let ever = rig.report(Sampled::Volume, Day(0), None);
    assert_eq!(ever.days.len() as u32, today.0 + 2);
}

#[test]
fn nobody_gets_more_days_than_memory_has() {
    let rig = Rig::new();
    for n in 0..300 {
        rig.file(&format!("/f{n}"), b"x");
        let uid = Some(1000 + n);
        let node = rig.at(&format!("/f{n}")).expect("a file");
        rig.call(Op::SetAttr { node, set: SetAttr { uid, ..SetAttr::default() } }).expect("set");
    }
    rig.later(1);
    let from = rig.today();
    rig.later(3600);
    let ask = |only: Vec<u64>| rig.ask(&UsageReport { of: Sampled::User, from, to: None, only, daily: true });
    let failure = ask(Vec::new()).expect_err("a million days");
    assert!(failure.message.contains("name some, or a shorter time"), "{failure:?}");
    assert_eq!(ask(vec![1001]).expect("one").rows[0].days.len(), 3602);
}

#[test]
fn fsck_finds_samples_that_no_version_wrote() {
    for (key, what) in [
        (keys::samples(0, 11_000), &[9u8, 0][..]),
        (keys::samples(9 << 56, 11_000), &[1, 1]),
        (keys::sampled_names(0), &[1, 7]),
    ] {
        let mut rig = Rig::new();
        rig.later(1);
        rig.cell.close().expect("closed");
        let writes = vec![(key.clone(), Some(what.into()))];
        engine(&rig.env, &rig.disk).commit(&Batch { writes, inline_data: Vec::new() }).expect("committed");
        rig.start();
        assert!(!rig.findings().is_empty(), "{key:?}");
    }
}

#[test]
fn projects_are_told_with_those_in_them_and_summed_once() {
    let rig = Rig::new();
    let first = rig.today();
    rig.admin(&admin::GroupCreate { name: "a:lab".into(), owner: None, gid: None, by: None });
    let project = |name: &str, at: &str| {
        rig.dir(at);
        let budget = admin::Budget { bytes: Some(1 << 20), ..admin::Budget::default() };
        let (name, at, owner) = (name.into(), at.into(), "a:lab".into());
        let create = admin::ProjectCreate { name, at, owner, budget, pool: None, counts_snapshots: None };
        u64::from(rig.admin(&create).id)
    };
    let (outer, inner) = (project("lab", "/p"), project("lab.in", "/p/in"));
    for (name, at) in [("lab.v", "/p/v"), ("lab.in.w", "/p/in/w")] {
        rig.admin(&admin::VolumeCreate { name: name.into(), at: at.into(), uid: ALICE, gid: 0, pool: None });
        rig.file(&format!("{at}/f"), &noise(8192, 1));
    }
    rig.later(1);
    rig.unlink("/p/in/w/f");
    rig.later(1);
    let days = |id| bytes(&rig.row(Sampled::Project, first.plus(1), None, id).days);
    assert_eq!((days(outer), days(inner)), (vec![16_384, 8192, 8192], vec![8192, 0, 0]));
    assert_eq!(bytes(&rig.report(Sampled::Project, first.plus(1), None).days), [16_384, 8192, 8192]);
    let row = rig.row(Sampled::Project, first, None, inner);
    assert_eq!((row.name.as_deref(), row.limit_bytes), (Some("lab.in"), 1 << 20));
    rig.admin(&admin::VolumeRemove { name: "lab.in.w".into() });
    rig.admin(&admin::ProjectRemove { name: "lab.in".into() });
    rig.later(1);
    let gone = rig.row(Sampled::Project, first, None, inner);
    assert_eq!((gone.name.as_deref(), gone.gone, gone.end.bytes), (Some("lab.in"), Some(rig.today()), 0));
    assert_eq!(rig.findings(), []);
}

#[test]
fn what_went_through_doors_is_told_by_day() {
    let mut rig = Rig::new();
    let first = rig.today();
    let of = |door, ipv6, requests| admin::Transferred {
        door,
        ipv6,
        requests,
        received_bytes: requests * 10,
        sent_bytes: requests * 100,
    };
    let (s3, http) = (admin::TransferDoor::S3, admin::TransferDoor::Http);
    let note = |rig: &Rig, transfers| _ = rig.admin(&admin::TransferNote { transfers });
    note(&rig, vec![of(s3, false, 3), of(http, true, 1)]);
    note(&rig, vec![of(s3, false, 4)]);
    rig.later(2);
    note(&rig, vec![of(s3, true, 5), of(s3, false, 1)]);
    let ask = |rig: &Rig, from, to| rig.admin(&admin::TransferReport { from, to });
    let all = ask(&rig, first, None);
    assert_eq!(all.kept_from, Some(first));
    assert_eq!(all.rows, [of(s3, false, 8), of(s3, true, 5), of(http, true, 1)]);
    let days: Vec<_> = all.days.iter().map(|on| (on.day.0 - first.0, on.transferred.requests)).collect();
    assert_eq!(days, [(0, 7), (0, 1), (2, 1), (2, 5)]);
    assert_eq!(ask(&rig, first.plus(1), Some(first.plus(2))).rows, []);
    rig.admin(&admin::SyncAll);
    rig.power_cut(1);
    assert_eq!(ask(&rig, first, None), all);
    rig.later(3700);
    note(&rig, vec![of(http, false, 1)]);
    assert_eq!(ask(&rig, first, None).rows.len(), 4, "a clock that has jumped removes nothing");
    (0..10).for_each(|_| rig.later(1));
    note(&rig, Vec::new());
    assert_eq!(ask(&rig, first, None).rows, [of(http, false, 1)], "ten years are kept");
    assert_eq!(rig.findings(), []);
}
