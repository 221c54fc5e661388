//! A real cell on a simulated disk at its limits: quotas, a full disk, damage on the medium.

use crate::sim::{SimCell, noise};
use leeward_env::disk::Disk;
use leeward_env::disk::sim::SimDisk;
use leeward_fs::{Error, Make, NodeId, Op, Precondition};
use leeward_volume::admin;

const MIB: usize = 1 << 20;

#[test]
fn a_quota_is_exact_and_never_refuses_what_was_accepted() {
    let cell = SimCell::new();
    let dir = cell.make("q", Make::Dir);
    let (bytes, files) = (Some(10_000), Some(2));
    cell.quota(&admin::QuotaSet { path: "/q".into(), bytes, files });
    let file = cell.make_in(dir, "f", Make::File).expect("the first inode");
    cell.write(file, 0, &noise(8000, 1)).expect("within the quota");
    assert_eq!(cell.write(file, 8000, &noise(2001, 2)), Err(Error::Quota), "one byte too many");
    cell.write(file, 8000, &noise(2000, 3)).expect("to the last byte");
    cell.write(file, 0, &noise(10_000, 4)).expect("overwriting takes nothing");
    assert_eq!(cell.write(file, 10_000, &[0]), Err(Error::Quota));
    cell.make_in(dir, "g", Make::Fifo).expect("the second inode");
    assert_eq!(cell.make_in(dir, "h", Make::Dir), Err(Error::Quota), "one inode too many");
    cell.call(Op::SyncAll).expect("what was accepted becomes durable");
    let cell = cell.reopened();
    let info = cell.quota(&admin::QuotaShow { path: "/q".into() });
    assert_eq!((info.used_bytes, info.used_files), (10_000, 2));
    assert_eq!(cell.read(file, 10_000), Ok(noise(10_000, 4)));
    assert_eq!(cell.write(file, 10_000, &[0]), Err(Error::Quota));
    assert_eq!(cell.fsck().findings, []);
}

#[test]
fn a_full_disk_refuses_at_once_keeps_what_it_accepted_and_frees_by_removal() {
    let cell = SimCell::new();
    cell.disk.set_capacity(40 * MIB as u64);
    let mut files: Vec<NodeId> = Vec::new();
    let refused = (0..100u64).find_map(|n| {
        let file = cell.make_in(NodeId::ROOT, &format!("f{n}"), Make::File);
        let wrote = file.and_then(|file| cell.write(file, 0, &noise(MIB, n)).map(|()| file));
        wrote.map(|file| files.push(file)).err()
    });
    assert_eq!(refused, Some(Error::NoSpace));
    assert!(files.len() > 20, "only {} MiB of 40 were taken", files.len());
    cell.call(Op::SyncAll).expect("what was accepted becomes durable");
    let cell = cell.reopened();
    for (n, file) in files.iter().enumerate() {
        assert!(cell.read(*file, MIB) == Ok(noise(MIB, n as u64)), "file {n}");
    }
    assert_eq!(cell.write(files[0], MIB as u64, &noise(MIB, 0)), Err(Error::NoSpace));
    assert_eq!(cell.fsck().findings, []);
    for n in 0..files.len() {
        cell.call(Op::Unlink {
            dir: NodeId::ROOT,
            name: format!("f{n}").as_bytes(),
            over: Precondition::Any,
        })
        .expect("removal");
    }
    while cell.cell.step().expect("background work") {}
    let again = cell.make("again", Make::File);
    (0..20).for_each(|n| cell.write(again, n * MIB as u64, &noise(MIB, n)).expect("there is room again"));
    cell.call(Op::SyncAll).expect("durable");
    assert_eq!(cell.fsck().findings, []);
}

#[test]
fn damage_is_an_error_exactly_where_it_is_and_fsck_names_the_file() {
    let cell = SimCell::new();
    let nodes = ["a", "b", "c"].map(|name| cell.make(name, Make::File));
    for (seed, node) in nodes.iter().enumerate() {
        cell.write(*node, 0, &noise(64 << 10, seed as u64)).expect("written");
    }
    cell.call(Op::SyncAll).expect("durable");
    let cell = cell.reopened();
    flip_in_only_object(&cell.disk, 80 << 10);
    assert_eq!(cell.read(nodes[0], 64 << 10), Ok(noise(64 << 10, 0)));
    assert!(
        matches!(cell.read(nodes[1], 64 << 10), Err(Error::Corrupt(_))),
        "half of /b lies behind the damage"
    );
    assert_eq!(cell.read(nodes[1], 4096), Ok(noise(64 << 10, 1)[..4096].to_vec()));
    assert_eq!(cell.read(nodes[2], 64 << 10), Ok(noise(64 << 10, 2)));
    let found = cell.fsck().findings;
    let paths: Vec<_> = found.iter().filter_map(|f| f.path.as_deref()).collect();
    assert_eq!(paths, ["/b"], "{found:?}");
}

fn flip_in_only_object(disk: &SimDisk, offset: u64) {
    let dirs = disk.list_dirs("data").expect("listed");
    let [dir] = &dirs[..] else { panic!("one object's directory: {dirs:?}") };
    let files = disk.list(&format!("data/{dir}")).expect("listed");
    let [(file, _)] = &files[..] else { panic!("one object: {files:?}") };
    disk.flip_bit(&format!("data/{dir}/{file}"), offset).expect("flipped");
}

/// What nobody refers to any more is cleaned to nothing, without an object, until the next commit
/// takes it off the table.
#[test]
fn fsck_beside_cleaning_finds_nothing() {
    let s = SimCell::new();
    let file = s.make("f", Make::File);
    // beyond the first window: freed in a step of its own
    s.call(Op::Write { node: file, offset: 4 << 20, data: &[1; MIB] }).expect("written");
    s.call(Op::SyncAll).expect("synced");
    s.call(Op::Unlink { dir: NodeId::ROOT, name: b"f", over: Precondition::Any }).expect("removed");
    let mut steps = 0;
    let report = s.cell.admin(&admin::Fsck, &mut |p| {
        if p.phase == "segments" {
            s.cell.step().expect("freed and cleaned");
            steps += 1;
        }
    });
    assert_eq!((steps, report.expect("checked").findings), (1, Vec::new()));
}
