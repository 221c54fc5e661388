//! Measures groups that users own: `user_groups DIR`.
//!
//! A check of rights of a user in 1,000 nested groups, the first look for them after a change, and
//! a change of a group of 10,000 members beside 200,000 other memberships, durable.
#![allow(clippy::disallowed_methods)]

use leeward_env::{Ctx, Env, Groups};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::groups::{GroupChange, GroupRecord, GroupTable, Member};
use leeward_fs::{Attr, Fs, Make, NodeId, Op, SetAttr, rights};
use leeward_volume::admin::{AclGrant, AclSet, GroupAdd, GroupCreate, GroupDrop, Right, SyncAll};
use leeward_volume::{Cell, Config};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("usage: user_groups DIR"));
    let (env, config) = (Env::real(), Config::default());
    std::fs::create_dir_all(&dir).expect("a directory");
    Cell::create(&env, &dir, &config).expect("a cell");
    let cell = Cell::open(&env, &dir, &config).expect("opened");
    let set = SetAttr { gid: Some(1000), mode: Some(0o770), ..SetAttr::default() };
    let attr = cell.call(&Ctx::user(0, 0), Op::SetAttr { node: NodeId::ROOT, set }).and_then(|r| r.attr());
    checks(&attr.expect("an inode"));
    changes(&cell);
    trees(&cell);
    cell.close().expect("closed");
}

/// Groups 1 to 1,000: the user is in the first, and each is in the next.
fn checks(attr: &Attr) {
    let mut table = GroupTable::default();
    for gid in 1..=1000 {
        let (name, owner) = (format!("a:g{gid}").into(), Member::User("a".into()));
        table.apply(GroupChange::Group(gid, Some(GroupRecord { name, owner, created_secs: 0 })));
        let member = if gid == 1 { Member::User("bob".into()) } else { Member::Group(gid - 1) };
        table.apply(GroupChange::Member(gid, member, true));
    }
    let begun = Instant::now();
    black_box(table.of_user("bob"));
    println!("the first look for 1,000 nested groups: {:.1?}", begun.elapsed());
    let rounds = 1_000_000;
    let begun = Instant::now();
    for _ in 0..rounds {
        let gids = Groups::of_user("bob", &table.of_user("bob"));
        let ctx = Ctx { gids, ..Ctx::user(1, 1) };
        rights::permit(black_box(&ctx), attr, None, 7).expect("the last group may");
    }
    println!(
        "a check of rights by the last of them, with the look for them: {:.2?}",
        begun.elapsed() / rounds
    );
}

fn changes(cell: &Cell) {
    let ask_add = |name: &str, members: Vec<String>| {
        cell.admin(&GroupAdd { name: name.into(), members, by: None }, &mut |_| ()).expect("added");
    };
    let fill = |group: &str, count: u32| {
        let create = GroupCreate { name: group.into(), owner: None, gid: None, by: None };
        cell.admin(&create, &mut |_| ()).expect("made");
        for first in (0..count).step_by(500) {
            ask_add(group, (first..first + 500).map(|n| format!("user{n}")).collect());
        }
    };
    (0..20).for_each(|n| fill(&format!("a:g{n}"), 10_000));
    fill("a:big", 10_000);
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..200 {
        let members = vec!["somebody".to_string()];
        let begun = Instant::now();
        ask_add("a:big", members.clone());
        took.push(begun.elapsed());
        cell.admin(&GroupDrop { name: "a:big".into(), members, by: None }, &mut |_| ()).expect("dropped");
    }
    took.sort();
    println!("a change of a group of 10,000: median {:.1?}, worst {:.1?}", took[100], took[199]);
}

const DIRS: u32 = 200;
const FILES: u32 = 1000;

fn trees(cell: &Cell) {
    let ctx = Ctx::user(0, 0);
    let put = |dir: NodeId, name: &str, make: Make<'_>| {
        let op = Op::Make { dir, name: name.as_bytes(), make, mode: 0o755, umask: 0 };
        cell.call(&ctx, op).and_then(|reply| reply.attr()).expect("made").node
    };
    let top = put(NodeId::ROOT, "tree", Make::Dir);
    for d in 0..DIRS {
        let dir = put(top, &format!("d{d}"), Make::Dir);
        (0..FILES).for_each(|f| _ = put(dir, &format!("f{f}"), Make::File));
    }
    cell.admin(&SyncAll, &mut |_| ()).expect("durable");
    for rights in [Some(Right::Read), Some(Right::Write), None] {
        let grants = vec![AclGrant { who: UserOrGroup::Group(77), rights: rights.into_iter().collect() }];
        let request = AclSet { path: "/tree".into(), grants, recursive: true };
        let begun = Instant::now();
        let done = cell.admin(&request, &mut |_| ()).expect("changed");
        let rate = done.changed as f64 / begun.elapsed().as_secs_f64();
        println!(
            "rights of a tree {rights:?}: {} changed in {:.1?}, {rate:.0} a second",
            done.changed,
            begun.elapsed()
        );
    }
}
