//! Projects: budgets that hold exactly whatever becomes of volumes, files and snapshots, projects
//! in one another, and what somebody may do who looks after one.

use crate::rig::{Rig, noise};
use leeward_env::{Ctx, Groups};
use leeward_fs::rights::{ACL, tag};
use leeward_fs::{Error, Make, NodeId, Op, Precondition, SetAttr, XattrMode};
use leeward_volume::admin::{
    self, Budget, Failure, GroupCreate, ProjectCreate, ProjectDetails, ProjectInfo, ProjectMove,
    ProjectRemove, ProjectSet, ProjectShow, PropertyChanges, QuotaSet, SnapCreate, SnapRemove, VolumeCreate,
    VolumeInfo, VolumeRemove, VolumeRename, VolumeSet,
};

const ALICE: u32 = 1000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Rig {
    /// A group that users own; returns its number.
    fn group(&self, name: &str) -> u32 {
        self.admin(&GroupCreate { name: name.into(), owner: None, gid: None, by: None }).gid
    }

    fn project(&self, name: &str, at: &str, owner: &str, budget: Budget) -> ProjectInfo {
        self.admin(&create(name, at, owner, budget))
    }

    fn volume_at(&self, name: &str, at: &str) -> VolumeInfo {
        self.admin(&volume(name, at))
    }

    fn shown(&self, name: &str) -> ProjectDetails {
        self.admin(&ProjectShow { name: name.into() })
    }

    /// Bytes, inodes and volumes that a project counts.
    fn used_by_project(&self, name: &str) -> (u64, u64, u64) {
        let project = self.shown(name).project;
        (project.used_bytes, project.used_files, project.volumes)
    }

    fn put(&self, path: &str, bytes: u64) -> leeward_fs::Result<()> {
        let node = match self.at(path) {
            Ok(node) => node,
            Err(_) => self.make(path, Make::File)?,
        };
        self.write(node, 0, &noise(bytes as usize, bytes))
    }
}

fn create(name: &str, at: &str, owner: &str, budget: Budget) -> ProjectCreate {
    ProjectCreate {
        name: name.into(),
        at: at.into(),
        owner: owner.into(),
        budget,
        pool: None,
        counts_snapshots: None,
    }
}

fn volume(name: &str, at: &str) -> VolumeCreate {
    VolumeCreate { name: name.into(), at: at.into(), uid: ALICE, gid: ALICE, pool: None }
}

fn bytes(bytes: u64) -> Budget {
    Budget { bytes: Some(bytes), ..Budget::default() }
}

fn moved(volume: &str, to: Option<&str>) -> ProjectMove {
    ProjectMove { volume: volume.into(), to: to.map(String::from) }
}

/// Somebody in this group, who is no operator.
fn looks_after(gid: u32) -> Ctx {
    Ctx { delegate: Some(Groups::of(&[gid])), ..Ctx::user(ALICE, ALICE) }
}

fn errno<T: std::fmt::Debug>(refused: Result<T, Failure>) -> i32 {
    refused.expect_err("refused").errno
}

/// A project `lab` of 1 MiB, in it `lab.inner` of 512 KiB, and volumes in both and in none.
fn two_projects() -> (Rig, u32, u32) {
    let rig = Rig::new();
    let (lab, inner) = (rig.group("alice:lab"), rig.group("bob:inner"));
    for dir in ["/p", "/p/inner"] {
        rig.dir(dir);
    }
    rig.project("lab", "/p", "alice:lab", bytes(MIB));
    let nested = rig.project("lab.inner", "/p/inner", "bob:inner", bytes(512 * KIB));
    assert_eq!(nested.parent.as_deref(), Some("lab"));
    for (name, at) in [("lab.a", "/p/a"), ("lab.b", "/p/b"), ("lab.inner.c", "/p/inner/c"), ("out", "/out")] {
        rig.volume_at(name, at);
    }
    (rig, lab, inner)
}

#[test]
fn budgets_hold_for_all_volumes_together() {
    let (mut rig, ..) = two_projects();
    rig.put("/p/a/f", 600 * KIB).expect("fits");
    rig.put("/p/inner/c/f", 400 * KIB).expect("fits");
    rig.put("/out/f", 2 * MIB).expect("in no project");
    assert_eq!(rig.put("/p/b/f", 100 * KIB), Err(Error::Quota), "24 KiB are left");
    assert_eq!(rig.put("/p/inner/c/more", 25 * KIB), Err(Error::Quota), "those of the outer one");
    rig.put("/p/b/f", 24 * KIB).expect("fits exactly");
    assert_eq!(rig.used_by_project("lab"), (MIB, 4, 3));
    assert_eq!(rig.used_by_project("lab.inner"), (400 * KIB, 2, 1));
    for _ in 0..2 {
        rig.reopen();
        assert_eq!(rig.used_by_project("lab"), (MIB, 4, 3));
        assert_eq!(rig.put("/p/a/f", 601 * KIB), Err(Error::Quota));
    }
    rig.idle();
    rig.power_cut(3);
    assert_eq!(
        (rig.used_by_project("lab"), rig.used_by_project("lab.inner")),
        ((MIB, 4, 3), (400 * KIB, 2, 1))
    );
    assert_eq!(rig.findings(), []);
    rig.unlink("/p/inner/c/more");
    rig.unlink("/p/inner/c/f");
    rig.put("/p/b/f", 424 * KIB).expect("fits again");
    assert_eq!(rig.used_by_project("lab.inner"), (0, 0, 1));
    rig.clean();
}

#[test]
fn the_inner_budget_holds_too_and_limits_change() {
    let (rig, ..) = two_projects();
    rig.put("/p/inner/c/f", 512 * KIB).expect("fits");
    assert_eq!(rig.put("/p/inner/c/g", 1), Err(Error::Quota));
    let set = |budget| ProjectSet { name: "lab.inner".into(), budget, ..ProjectSet::default() };
    rig.admin(&set(bytes(0)));
    rig.put("/p/inner/c/g", 500 * KIB).expect("no limit but the outer one");
    assert_eq!(rig.put("/p/inner/c/h", 500 * KIB), Err(Error::Quota));
    rig.admin(&set(Budget { files: Some(4), ..Budget::default() }));
    rig.make("/p/inner/c/i", Make::File).expect("the fourth, with the one that found no room");
    assert_eq!(rig.make("/p/inner/c/j", Make::Dir), Err(Error::Quota));
    rig.clean();
}

#[test]
fn volumes_come_and_go_with_what_they_use() {
    let (rig, ..) = two_projects();
    rig.put("/p/a/f", 600 * KIB).expect("fits");
    rig.put("/out/f", 300 * KIB).expect("fits");
    rig.admin(&moved("out", Some("lab.inner")));
    assert_eq!(
        (rig.used_by_project("lab"), rig.used_by_project("lab.inner")),
        ((900 * KIB, 2, 4), (300 * KIB, 1, 2))
    );
    assert_eq!(rig.put("/out/g", 200 * KIB), Err(Error::Quota));
    rig.admin(&moved("out", Some("lab")));
    assert_eq!(rig.used_by_project("lab.inner"), (0, 0, 1));
    rig.admin(&moved("out", None));
    rig.put("/out/g", 2 * MIB).expect("in no project");
    assert_eq!(rig.used_by_project("lab"), (600 * KIB, 1, 3));
    rig.admin(&moved("out", Some("lab"))); // more than fits: what is there stays, nothing comes
    assert_eq!(rig.put("/p/b/f", 1), Err(Error::Quota));
    rig.admin(&VolumeRemove { name: "out".into() });
    rig.put("/p/b/f", 400 * KIB).expect("fits again, at once");
    rig.admin(&VolumeRemove { name: "lab.a".into() });
    assert_eq!(rig.used_by_project("lab"), (400 * KIB, 1, 2));
    rig.clean();
    let busy = |name: &str| errno(rig.ask(&ProjectRemove { name: name.into() }));
    assert_eq!((busy("lab"), busy("lab.inner")), (libc::EBUSY, libc::EBUSY));
    rig.admin(&VolumeRemove { name: "lab.inner.c".into() });
    rig.admin(&ProjectRemove { name: "lab.inner".into() });
    rig.admin(&moved("lab.b", None));
    rig.admin(&ProjectRemove { name: "lab".into() });
    rig.put("/p/b/g", 2 * MIB).expect("no project any more");
    rig.clean();
}

#[test]
fn so_many_volumes_and_no_more() {
    let (rig, ..) = two_projects();
    let most = |name: &str, most| ProjectSet {
        name: name.into(),
        budget: Budget { volumes: Some(most), ..Budget::default() },
        ..ProjectSet::default()
    };
    rig.admin(&most("lab", 4));
    rig.volume_at("lab.inner.d", "/p/inner/d");
    assert_eq!(errno(rig.ask(&volume("lab.e", "/p/e"))), libc::EDQUOT);
    assert_eq!(errno(rig.ask(&volume("lab.inner.e", "/p/inner/e"))), libc::EDQUOT, "those of the outer one");
    assert_eq!(errno(rig.ask(&moved("out", Some("lab")))), libc::EDQUOT);
    rig.admin(&moved("lab.a", Some("lab.inner")));
    rig.admin(&VolumeRemove { name: "lab.b".into() });
    rig.volume_at("lab.e", "/p/e");
    assert_eq!(rig.used_by_project("lab").2, 4);
    rig.clean();
}

#[test]
fn what_snapshots_hold_counts_unless_it_is_said() {
    let (mut rig, ..) = two_projects();
    rig.put("/p/a/f", 600 * KIB).expect("fits");
    let snap = |name: &str| SnapCreate { path: "/p/a".into(), name: name.into() };
    rig.admin(&snap("one"));
    rig.unlink("/p/a/f");
    rig.idle();
    assert_eq!(rig.used_by_project("lab").0, 600 * KIB, "the snapshot holds it");
    assert_eq!(rig.put("/p/b/f", 500 * KIB), Err(Error::Quota));
    rig.reopen();
    assert_eq!(rig.put("/p/b/f", 500 * KIB), Err(Error::Quota));
    let count =
        |counts| ProjectSet { name: "lab".into(), counts_snapshots: Some(counts), ..ProjectSet::default() };
    rig.admin(&count(false));
    assert_eq!(rig.used_by_project("lab").0, 0);
    rig.put("/p/b/f", 500 * KIB).expect("fits without");
    rig.admin(&count(true));
    assert_eq!(rig.used_by_project("lab").0, 1100 * KIB);
    rig.admin(&moved("lab.a", Some("lab.inner")));
    assert_eq!(rig.used_by_project("lab.inner").0, 600 * KIB);
    rig.admin(&moved("lab.a", Some("lab")));
    assert_eq!((rig.used_by_project("lab.inner").0, rig.used_by_project("lab").0), (0, 1100 * KIB));
    rig.admin(&SnapRemove { path: "/p/a".into(), name: "one".into() });
    assert_eq!(rig.used_by_project("lab").0, 500 * KIB, "at once, not when it is trimmed");
    rig.idle();
    assert_eq!(rig.used_by_project("lab").0, 500 * KIB);
    rig.put("/p/b/g", 500 * KIB).expect("fits");
    rig.admin(&snap("two"));
    rig.admin(&VolumeRemove { name: "lab.b".into() });
    rig.clean();
    assert_eq!(rig.used_by_project("lab").0, 0);
}

#[test]
fn recycle_bins_make_room_oldest_first() {
    let (rig, ..) = two_projects();
    for name in ["lab.a", "lab.inner.c"] {
        let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
        rig.admin(&VolumeSet { name: name.into(), set });
    }
    rig.put("/p/inner/c/old", 300 * KIB).expect("fits");
    rig.put("/p/a/new", 300 * KIB).expect("fits");
    rig.unlink("/p/inner/c/old");
    rig.unlink("/p/a/new");
    rig.idle();
    assert_eq!(rig.used_by_project("lab").0, 600 * KIB, "bins count");
    rig.put("/p/b/f", 700 * KIB).expect("the oldest one makes room");
    let left: Vec<String> = rig
        .admin(&admin::BinList { path: None, newest: None })
        .entries
        .into_iter()
        .map(|entry| entry.path)
        .collect();
    assert_eq!(left, ["/p/a/new"]);
    assert_eq!(rig.put("/p/b/g", 400 * KIB), Err(Error::Quota), "all bins are not enough");
    rig.clean();
}

#[test]
fn who_looks_after_a_project_does_so_within_it() {
    let (rig, lab, inner) = two_projects();
    let (lab, inner) = (looks_after(lab), looks_after(inner));
    let refused = |ctx: &Ctx, name: &str, at: &str| errno(rig.ask_as(ctx, &volume(name, at)));
    rig.ask_as(&lab, &volume("lab.x", "/p/x")).expect("in the place");
    rig.ask_as(&lab, &volume("lab.inner.x", "/p/inner/x")).expect("in the inner one, too");
    rig.ask_as(&lab, &volume("lab.y", "/p/x/y")).expect("in a volume of it");
    rig.ask_as(&inner, &volume("lab.inner.y", "/p/inner/y")).expect("in the place");
    assert_eq!(refused(&lab, "lab.z", "/z"), libc::EPERM, "elsewhere");
    assert_eq!(refused(&inner, "lab.z", "/p/z"), libc::EPERM, "in the outer one");
    assert_eq!(refused(&lab, "home.z", "/p/z"), libc::EPERM, "a name that others will want");
    assert_eq!(refused(&lab, "lab.", "/p/z"), libc::EPERM);
    let with_pool = VolumeCreate { pool: Some("default".into()), ..volume("lab.z", "/p/z") };
    assert_eq!(errno(rig.ask_as(&lab, &with_pool)), libc::EPERM);
    let rename = |ctx: &Ctx, name: &str, to: &str| {
        rig.ask_as(ctx, &VolumeRename { name: name.into(), to: to.into() }).map(|volume| volume.name)
    };
    assert_eq!(rename(&lab, "lab.x", "lab.z"), Ok("lab.z".into()));
    assert_eq!(errno(rename(&lab, "lab.z", "root2")), libc::EPERM);

    let dir = |path: &str| rig.dir(path);
    let (_, _) = (dir("/p/sub"), dir("/q"));
    rig.ask_as(&lab, &create("lab.sub", "/p/sub", "alice:lab", bytes(KIB))).expect("in its own");
    let refused = |ctx: &Ctx, name: &str, at: &str| {
        errno(rig.ask_as(ctx, &create(name, at, "alice:lab", Budget::default())))
    };
    assert_eq!(refused(&lab, "lab.q", "/q"), libc::EPERM, "elsewhere");
    assert_eq!(refused(&lab, "lab.p", "/p"), libc::EEXIST);
    dir("/p/other");
    assert_eq!(refused(&inner, "lab.inner.p", "/p/other"), libc::EPERM);
    assert_eq!(refused(&lab, "other", "/p/other"), libc::EPERM);

    let set = |ctx: &Ctx, name: &str| {
        let request = ProjectSet { name: name.into(), budget: bytes(2 * MIB), ..ProjectSet::default() };
        rig.ask_as(ctx, &request).map(|project| project.bytes)
    };
    assert_eq!(set(&lab, "lab.inner"), Ok(2 * MIB));
    assert_eq!(errno(set(&lab, "lab")), libc::EPERM, "nobody gives himself more");
    assert_eq!(errno(set(&inner, "lab.inner")), libc::EPERM);
    let place = ProjectSet { name: "lab.inner".into(), at: Some("/q".into()), ..ProjectSet::default() };
    assert_eq!(errno(rig.ask_as(&lab, &place)), libc::EPERM);

    rig.ask_as(&lab, &moved("lab.a", Some("lab.inner"))).expect("between his own");
    assert_eq!(errno(rig.ask_as(&lab, &moved("out", Some("lab")))), libc::EPERM);
    assert_eq!(errno(rig.ask_as(&lab, &moved("lab.b", None))), libc::EPERM);
    assert_eq!(errno(rig.ask_as(&inner, &moved("lab.a", Some("lab")))), libc::EPERM);
    let seen = |ctx: &Ctx| -> Vec<String> {
        let list = rig.ask_as(ctx, &admin::ProjectList).expect("listed");
        list.projects.into_iter().map(|project| project.name).collect()
    };
    assert_eq!((seen(&lab).len(), seen(&inner)), (3, vec!["lab.inner".to_string()]));
    assert_eq!(errno(rig.ask_as(&inner, &ProjectShow { name: "lab".into() })), libc::EPERM);
    rig.ask_as(&lab, &ProjectRemove { name: "lab.sub".into() }).expect("an empty one of his own");
    assert_eq!(errno(rig.ask_as(&lab, &ProjectRemove { name: "lab".into() })), libc::EPERM);
    rig.clean();
}

#[test]
fn its_group_takes_snapshots_of_its_volumes() {
    let (rig, lab, inner) = two_projects();
    let take = |ctx: &Ctx, path: &str| {
        let name = format!("of-{}", ctx.gids.all()[0]);
        rig.ask_as(ctx, &SnapCreate { path: path.into(), name }).map(drop)
    };
    let other = Ctx::user(7, 7);
    let as_other = |gid| Ctx { gids: Groups::of(&[gid]), ..other };
    take(&as_other(lab), "/p/b").expect("its volume");
    take(&as_other(lab), "/p/inner/c").expect("one of the inner project");
    take(&as_other(inner), "/p/inner/c").expect("its volume");
    assert_eq!(errno(take(&as_other(inner), "/p/b")), libc::EPERM);
    assert_eq!(errno(take(&as_other(lab), "/out")), libc::EPERM);
    rig.clean();
}

#[test]
fn delegates_set_so_many_quotas_and_no_more() {
    let (rig, lab, _) = two_projects();
    let lab = looks_after(lab);
    let set = |n: u32| {
        let path = format!("/p/a/d{n}");
        rig.dir(&path);
        rig.ask_as(&lab, &QuotaSet { path, bytes: Some(KIB), files: None })
    };
    for n in 0..1000 {
        set(n).expect("set");
    }
    assert_eq!(errno(set(1000)), libc::EDQUOT);
    let again = QuotaSet { path: "/p/a/d7".into(), bytes: Some(2 * KIB), files: None };
    rig.ask_as(&lab, &again).expect("that one exists");
    rig.admin(&QuotaSet { path: "/p/a/d1000".into(), bytes: Some(KIB), files: None });
}

#[test]
fn names_places_and_groups_are_there_once() {
    let (rig, ..) = two_projects();
    let refused =
        |name: &str, at: &str, owner: &str| errno(rig.ask(&create(name, at, owner, Budget::default())));
    rig.dir("/q");
    rig.file("/file", b"x");
    assert_eq!(refused("lab", "/q", "alice:lab"), libc::EEXIST);
    assert_eq!(refused("q", "/p", "alice:lab"), libc::EEXIST);
    assert_eq!(refused("q", "/none/none", "alice:lab"), libc::ENOENT);
    assert_eq!(refused("q", "/file", "alice:lab"), libc::ENOTDIR);
    assert_eq!(refused("q", "/file/none", "alice:lab"), libc::ENOENT);
    assert_eq!(refused("q", "/q", "alice:none"), libc::ENOENT);
    for wrong in ["", ".q", "-q", "a b", "a/b", "ä", &"x".repeat(101)] {
        assert_eq!(refused(wrong, "/q", "alice:lab"), libc::EINVAL, "{wrong:?}");
    }
    let mut at = "/q".to_string();
    for n in 0..8 {
        rig.project(&format!("deep{n}"), &at, "alice:lab", Budget::default());
        at.push_str("/q");
        rig.dir(&at);
    }
    assert_eq!(refused("deep8", &at, "alice:lab"), libc::ENOSPC);
    let place = |to: &str| ProjectSet { name: "deep7".into(), at: Some(to.into()), ..ProjectSet::default() };
    rig.admin(&place(&at));
    assert_eq!(errno(rig.ask(&place("/out"))), libc::EINVAL, "in another project");
    let outer = ProjectSet { name: "lab".into(), at: Some("/q".into()), ..ProjectSet::default() };
    assert_eq!(errno(rig.ask(&outer)), libc::EINVAL, "the inner one is below the place that it has");
    rig.clean();
}

#[test]
fn a_place_that_is_not_there_is_made_for_the_group() {
    let (rig, lab, inner) = two_projects();
    let place = |at: &str| {
        let attr = rig.attr(rig.at(at).expect("there"));
        (attr.uid, attr.gid, attr.mode & 0o7777)
    };
    rig.project("q", "/q", "alice:lab", Budget::default());
    assert_eq!(place("/q"), (0, lab, 0o2775));
    // by one who looks after the outer project, who may not write there
    let part = create("lab.new", "/p/inner2", "bob:inner", bytes(KIB));
    rig.ask_as(&looks_after(lab), &part).expect("made");
    assert_eq!(place("/p/inner2"), (ALICE, inner, 0o2775));
    assert_eq!(rig.shown("lab.new").project.parent.as_deref(), Some("lab"));
    // nothing is made where there is no project
    let none = |ctx: &Ctx, name: &str, at: &str| {
        let refused = errno(rig.ask_as(ctx, &create(name, at, "bob:inner", Budget::default())));
        assert!(rig.at(at).is_err(), "{at}");
        refused
    };
    assert_eq!(none(&looks_after(lab), "lab.x", "/elsewhere"), libc::EPERM);
    assert_eq!(none(&looks_after(inner), "lab.x", "/p/other"), libc::EPERM);
    assert_eq!(none(&looks_after(lab), "x", "/p/other"), libc::EPERM);
    assert_eq!(none(&Ctx::system(), "lab.inner", "/p/other"), libc::EEXIST);
    let hidden = create("lab.x", "/p/.snap", "bob:inner", Budget::default());
    rig.ask(&hidden).expect_err("not in snapshots");
    rig.clean();
}

/// Whatever is done, what is counted is what is there.
#[test]
fn counts_are_right_whatever_is_done() {
    for seed in 0..12 {
        let (mut rig, ..) = two_projects();
        let mut random = seed * 2 + 1;
        let mut next = |below: u64| {
            random =
                u64::wrapping_mul(random, 6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let places = ["/p/a", "/p/b", "/p/inner/c", "/out"];
        let names = ["lab.a", "lab.b", "lab.inner.c", "out"];
        for step in 0..60 {
            let place = next(4) as usize;
            let path = format!("{}/f{}", places[place], next(3));
            let (dir, node) = (rig.at(places[place]).expect("there"), rig.at(&path));
            let name = path.rsplit_once('/').expect("a slash").1.as_bytes();
            // what is over a budget, or not there, is refused
            let _ = match next(10) {
                0..4 => rig.put(&path, next(300) * KIB),
                4 => rig.call(Op::Unlink { dir, name, over: Precondition::Any }).map(drop),
                5 => node.and_then(|node| {
                    let set = SetAttr { size: Some(next(200) * KIB), ..SetAttr::default() };
                    rig.call(Op::SetAttr { node, set }).map(drop)
                }),
                6 => {
                    // a full project gets none
                    let snap = SnapCreate { path: places[place].into(), name: format!("s{step}") };
                    let _ = rig.ask(&snap);
                    Ok(())
                }
                7 => {
                    let shown = rig.admin(&admin::SnapList { path: None, volume: None }).snapshots;
                    if let Some(snap) = shown.first() {
                        rig.admin(&SnapRemove { path: snap.path.clone(), name: snap.name.clone() });
                    }
                    Ok(())
                }
                8 => {
                    let to = [Some("lab"), Some("lab.inner"), None][next(3) as usize];
                    rig.admin(&moved(names[place], to));
                    Ok(())
                }
                _ => {
                    match next(3) {
                        0 => rig.reopen(),
                        1 => rig.idle(),
                        _ => {
                            rig.admin(&admin::SyncAll);
                            rig.power_cut(seed);
                        }
                    }
                    Ok(())
                }
            };
        }
        let held = |names: &[&str]| -> u64 {
            let usage = rig.admin(&admin::SnapUsageList { volume: None }).usage;
            usage.iter().filter(|u| names.contains(&&*u.volume)).map(|u| u.held_bytes).sum()
        };
        rig.admin(&admin::SyncAll);
        for project in ["lab", "lab.inner"] {
            let shown = rig.shown(project);
            let inner = shown.projects.iter().flat_map(|inner| rig.shown(inner).volume_list);
            let volumes: Vec<_> = shown.volume_list.iter().cloned().chain(inner).collect();
            let live: u64 = volumes.iter().map(|volume| volume.used_bytes).sum();
            let names: Vec<&str> = volumes.iter().map(|volume| &*volume.name).collect();
            assert_eq!(shown.project.used_bytes, live + held(&names), "seed {seed}, {project}");
        }
        rig.clean();
        let root = NodeId::ROOT;
        rig.call(Op::GetAttr { node: root }).expect("there");
    }
}

#[test]
fn restores_are_counted() {
    let (rig, ..) = two_projects();
    let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
    rig.admin(&VolumeSet { name: "lab.a".into(), set });
    rig.dir("/p/a/d");
    rig.file("/p/a/d/text", b"first\n");
    rig.admin(&SnapCreate { path: "/p/a".into(), name: "before".into() });
    rig.file("/p/a/d/text", b"second\n");
    let check = |step: &str| {
        rig.idle();
        let used = rig.used_by_project("lab");
        assert_eq!(rig.findings(), [], "{step}");
        let reopened = {
            let held = rig.admin(&admin::SnapUsageList { volume: None }).usage;
            held.iter().map(|u| u.held_bytes).sum::<u64>()
        };
        let live: u64 = rig.shown("lab").volume_list.iter().map(|v| v.used_bytes).sum();
        assert_eq!(used.0, live + reopened, "{step}");
    };
    check("overwritten");
    let restore = admin::SnapRestore {
        path: "/p/a".into(),
        name: "before".into(),
        what: "d/text".into(),
        to: None,
        in_place: true,
    };
    rig.admin(&restore);
    check("restored");
    rig.unlink("/p/a/d/text");
    check("removed");
    rig.admin(&admin::BinRestore { path: "/p/a/d/text".into(), to: None, at_secs: None });
    check("restored from the bin");
}

#[test]
fn a_full_project_gets_no_snapshots() {
    let (rig, ..) = two_projects();
    let snap = |name: &str| SnapCreate { path: "/p/a".into(), name: name.into() };
    rig.put("/p/a/f", 600 * KIB).expect("fits");
    rig.admin(&snap("one"));
    rig.put("/p/a/f", 600 * KIB).expect("overwriting takes nothing of a quota");
    rig.idle();
    assert_eq!(rig.used_by_project("lab").0, 1200 * KIB, "and is held");
    assert_eq!(errno(rig.ask(&snap("two"))), libc::EDQUOT);
    rig.admin(&SnapRemove { path: "/p/a".into(), name: "one".into() });
    rig.admin(&snap("two"));
    rig.clean();
}

/// `/p/a` is alice's, who looks after it; in it is `secret`, which is bob's and closed to others.
fn secret() -> (Rig, Ctx) {
    let (rig, lab, _) = two_projects();
    let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
    rig.admin(&VolumeSet { name: "lab.a".into(), set });
    let secret = rig.dir("/p/a/secret");
    let file = rig.file("/p/a/secret/text", b"secret");
    for (node, mode) in [(secret, 0o700), (file, 0o644)] {
        let set = SetAttr { uid: Some(1001), mode: Some(mode), ..SetAttr::default() };
        rig.call(Op::SetAttr { node, set }).expect("set");
    }
    rig.admin(&SnapCreate { path: "/p/a".into(), name: "s".into() });
    (rig, looks_after(lab))
}

#[test]
fn restores_show_nobody_what_he_could_not_read() {
    let (rig, alice) = secret();
    let restore = |to: Option<&str>, in_place| admin::SnapRestore {
        path: "/p/a".into(),
        name: "s".into(),
        what: "secret/text".into(),
        to: to.map(String::from),
        in_place,
    };
    rig.ask_as(&alice, &restore(None, true)).expect("where it was");
    assert_eq!(errno(rig.ask_as(&alice, &restore(Some("/p/a/mine"), false))), libc::EPERM);
    rig.rename("/p/a/secret", "/p/a/away").expect("renamed");
    rig.dir("/p/a/secret");
    assert_eq!(
        errno(rig.ask_as(&alice, &restore(None, false))),
        libc::EPERM,
        "another directory of the name"
    );
    rig.admin(&restore(None, false));
    rig.clean();
}

#[test]
fn what_is_in_a_bin_comes_back_where_it_was() {
    let (rig, alice) = secret();
    let restore = |to: Option<&str>| admin::BinRestore {
        path: "/p/a/secret/text".into(),
        to: to.map(String::from),
        at_secs: None,
    };
    rig.unlink("/p/a/secret/text");
    assert_eq!(errno(rig.ask_as(&alice, &restore(Some("/p/a/mine")))), libc::EPERM);
    rig.ask_as(&alice, &restore(None)).expect("where it was");
    rig.unlink("/p/a/secret/text");
    let dir = rig.at("/p/a").expect("there");
    rig.call(Op::RmDir { dir, name: b"secret" }).expect("removed");
    rig.dir("/p/a/secret");
    assert_eq!(errno(rig.ask_as(&alice, &restore(None))), libc::EEXIST, "another directory of the name");
    rig.admin(&restore(None));
    rig.clean();
}

fn mode(rig: &Rig, path: &str) -> u32 {
    rig.attr(rig.at(path).expect(path)).mode & 0o7777
}

#[test]
fn restores_show_nothing_where_a_directory_was_opened_since() {
    let (rig, alice) = secret();
    let chmod = |mode| {
        let node = rig.at("/p/a/secret").expect("there");
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        rig.call(Op::SetAttr { node, set }).expect("set");
    };
    let restore = |path: &str, name: &str, what: &str| {
        let (path, name, what) = (path.into(), name.into(), what.into());
        rig.ask_as(&alice, &admin::SnapRestore { path, name, what, to: None, in_place: true })
    };
    rig.unlink("/p/a/secret/text");
    let from_above = format!("_s_{}", rig.at("/p/a").expect("there").0);
    for opened in [0o701, 0o755] {
        chmod(opened);
        assert_eq!(errno(restore("/p/a", "s", "secret/text")), libc::EPERM, "{opened:o}");
        assert_eq!(errno(restore("/p/a/secret", &from_above, "")), libc::EPERM, "{opened:o}");
    }
    chmod(0o500);
    restore("/p/a/secret", &from_above, "").expect("all of it, no more open than it was");
    chmod(0o700);
    rig.unlink("/p/a/secret/text");
    restore("/p/a", "s", "secret/text").expect("as open as it was");
    // moved where others come
    rig.unlink("/p/a/secret/text");
    rig.dir("/p/a/open");
    rig.rename("/p/a/secret", "/p/a/open/secret").expect("renamed");
    assert_eq!(errno(restore("/p/a/open/secret", &from_above, "text")), libc::EPERM);
    rig.rename("/p/a/open/secret", "/p/a/secret").expect("renamed");
    // the whole comes back as closed as it was
    chmod(0o755);
    restore("/p/a", "s", "").expect("in a directory of her own");
    assert_eq!((mode(&rig, "/p/a/secret"), mode(&rig, "/p/a/secret/text")), (0o700, 0o644));
    rig.clean();
}

#[test]
fn what_others_get_back_from_a_bin_is_for_its_owner() {
    let (rig, alice) = secret();
    let restore = |ctx: &Ctx, path: &str| {
        let request = admin::BinRestore { path: path.into(), to: None, at_secs: None };
        rig.ask_as(ctx, &request).expect("restored");
    };
    let set = |path: &str, mode| {
        let node = rig.at(path).expect("there");
        rig.call(Op::SetAttr { node, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }).expect("set");
    };
    // an ACL lets 1002 read
    let entries: [(u16, u16, u32); 5] = [
        (tag::USER_OBJ, 6, u32::MAX),
        (tag::USER, 4, 1002),
        (tag::GROUP_OBJ, 4, u32::MAX),
        (tag::MASK, 4, u32::MAX),
        (tag::OTHER, 4, u32::MAX),
    ];
    let mut acl = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        acl.extend([&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    let node = rig.at("/p/a/secret/text").expect("there");
    let has_acl = || rig.call(Op::GetXattr { node, name: ACL }).is_ok();
    rig.call(Op::SetXattr { node, name: ACL, value: &acl, mode: XattrMode::Set }).expect("set");
    let root = Ctx::user(0, 0);
    rig.unlink("/p/a/secret/text");
    set("/p/a/secret", 0o755);
    restore(&root, "/p/a/secret/text");
    assert_eq!((mode(&rig, "/p/a/secret/text"), has_acl()), (0o644, true));
    rig.unlink("/p/a/secret/text");
    restore(&alice, "/p/a/secret/text");
    assert_eq!((mode(&rig, "/p/a/secret/text"), has_acl()), (0o600, false));
    assert_eq!(rig.read("/p/a/secret/text").expect("read"), b"secret");
    rig.clean();
    // a tree: its top is closed, and so is what is below
    set("/p/a/secret/text", 0o644);
    rig.unlink("/p/a/secret/text");
    let dir = rig.at("/p/a").expect("there");
    rig.call(Op::RmDir { dir, name: b"secret" }).expect("removed");
    restore(&alice, "/p/a/secret");
    assert_eq!((mode(&rig, "/p/a/secret"), mode(&rig, "/p/a/secret/text")), (0o700, 0o644));
    // her own
    let mine = rig.file("/p/a/mine", b"mine");
    let own = SetAttr { uid: Some(ALICE), mode: Some(0o644), ..SetAttr::default() };
    rig.call(Op::SetAttr { node: mine, set: own }).expect("set");
    rig.unlink("/p/a/mine");
    restore(&alice, "/p/a/mine");
    assert_eq!(mode(&rig, "/p/a/mine"), 0o644);
    rig.clean();
}

#[test]
fn moves_of_volumes_by_those_who_look_after_them_must_fit() {
    let (rig, lab, inner) = two_projects();
    let both = Ctx { delegate: Some(Groups::of(&[lab, inner])), ..Ctx::user(ALICE, ALICE) };
    rig.put("/p/a/f", 600 * KIB).expect("fits");
    let to_inner = moved("lab.a", Some("lab.inner"));
    assert_eq!(errno(rig.ask_as(&both, &to_inner)), libc::EDQUOT);
    rig.put("/p/b/f", 300 * KIB).expect("fits");
    rig.ask_as(&both, &moved("lab.b", Some("lab.inner"))).expect("fits");
    rig.ask_as(&both, &moved("lab.b", Some("lab"))).expect("fits: it was in it before");
    rig.admin(&to_inner);
    rig.clean();
}

#[test]
fn volumes_of_others_below_a_place_stay_theirs() {
    let (rig, lab, _) = two_projects();
    let lab = looks_after(lab);
    rig.admin(&moved("lab.b", None));
    rig.dir("/p/b/d");
    assert_eq!(errno(rig.ask_as(&lab, &volume("lab.x", "/p/b/x"))), libc::EPERM);
    assert_eq!(errno(rig.ask_as(&lab, &create("lab.d", "/p/b/d", "alice:lab", bytes(1)))), libc::EPERM);
    // a schedule of the project covers what is in it
    let schedule =
        |path: &str| admin::ScheduleSet { path: path.into(), interval_secs: 3600, keep: "3h".into() };
    rig.volume_at("lab.in", "/p/a/in");
    rig.volume_at("lab.not", "/p/a/not");
    rig.admin(&moved("lab.not", None));
    rig.ask_as(&lab, &schedule("/p/a")).expect("set");
    rig.env.advance(std::time::Duration::from_secs(4000));
    rig.idle();
    let snaps = rig.admin(&admin::SnapList { path: None, volume: None }).snapshots;
    let taken: Vec<String> = snaps.into_iter().map(|snap| snap.path).collect();
    assert_eq!(taken, ["/p/a", "/p/a/in"]);
    rig.clean();
}

#[test]
fn places_are_not_removed() {
    let (rig, ..) = two_projects();
    rig.admin(&VolumeRemove { name: "lab.inner.c".into() });
    let dir = rig.at("/p").expect("there");
    assert_eq!(rig.call(Op::RmDir { dir, name: b"inner" }).map(drop), Err(Error::Busy));
    rig.dir("/p/a/deep");
    rig.project("lab.deep", "/p/a/deep", "alice:lab", bytes(KIB));
    assert_eq!(errno(rig.ask(&VolumeRemove { name: "lab.a".into() })), libc::EBUSY);
    rig.admin(&ProjectRemove { name: "lab.inner".into() });
    rig.call(Op::RmDir { dir, name: b"inner" }).expect("no place any more");
    // a group that is removed looks after nothing
    rig.admin(&admin::GroupRemove { name: "alice:lab".into(), by: None });
    assert_eq!(rig.shown("lab").project.owner, "1880000000");
    rig.clean();
}

#[test]
fn who_looks_after_nothing_learns_nothing() {
    let (rig, ..) = two_projects();
    let eve = looks_after(77);
    rig.dir("/out/closed");
    let said = |failure: Failure, path: &str| (failure.errno, failure.message.replace(path, "PATH"));
    let at = |path: &str| said(rig.ask_as(&eve, &volume("lab.a", path)).expect_err("refused"), path);
    let all = ["/out/closed/x", "/out/none/x", "/out/none", "/p/x", "/p/a"].map(at);
    assert!(all.iter().all(|other| *other == all[0]), "{all:?}");
    let show =
        |name: &str| said(rig.ask_as(&eve, &ProjectShow { name: name.into() }).expect_err("refused"), name);
    assert_eq!(show("lab"), show("none"));
    let set = |name: &str| {
        let set = ProjectSet { name: name.into(), budget: bytes(1), ..ProjectSet::default() };
        said(rig.ask_as(&eve, &set).expect_err("refused"), name)
    };
    assert_eq!(set("lab"), set("none"));
    let move_of = |name: &str| said(rig.ask_as(&eve, &moved(name, None)).expect_err("refused"), name);
    assert_eq!(move_of("out"), move_of("none"));
}
