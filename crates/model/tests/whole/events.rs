//! Whether the event log says all that has happened to names: who follows it from the beginning has
//! the tree.

use leeward_env::Ctx;
use leeward_fs::{Fs, Kind, NodeId, Op};
use leeward_volume::Cell;
use leeward_volume::admin::{EventFilter, EventInfo, EventKind, EventList, PathText, VolumeList};
use std::collections::BTreeMap;

/// Inodes by path.
type Names = BTreeMap<Vec<u8>, u64>;

/// Compares the tree of each volume with what its log says. Copies show a snapshot, and their log
/// says what has come since.
pub fn compare(cell: &Cell) -> Result<(), String> {
    let all = cell.admin(&VolumeList, &mut |_| {}).map_err(|e| format!("volumes: {e:?}"))?;
    let roots = all.volumes.iter().filter(|volume| !volume.removing);
    let roots: Names = roots.map(|volume| (volume.at.clone().into(), NodeId::new(volume.id, 1).0)).collect();
    for volume in all.volumes.iter().filter(|volume| volume.copy.is_none() && !volume.removing) {
        compare_volume(cell, &volume.at, &roots).map_err(|why| format!("volume {}: {why}", volume.name))?;
    }
    Ok(())
}

fn compare_volume(cell: &Cell, at: &str, roots: &Names) -> Result<(), String> {
    let (told, there) = (told(cell, at)?, there(cell, at, roots)?);
    let only_in = |a: &Names, b: &Names| {
        let differs = |(path, inode): &(&Vec<u8>, &u64)| b.get(*path) != Some(*inode);
        a.iter().find(differs).map(|(path, inode)| (shown(path), *inode))
    };
    match (only_in(&told, &there), only_in(&there, &told)) {
        (None, None) => Ok(()),
        (told, there) => Err(format!("the event log says {told:?}, but there is {there:?}")),
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn told(cell: &Cell, at: &str) -> Result<Names, String> {
    let (mut names, mut cursor) = (Names::new(), None);
    loop {
        let (path, filter) = (Some(at.into()), EventFilter::default());
        let request = EventList { path, cursor, newest_first: false, until_now: false, filter, limit: 100 };
        let page = cell.admin(&request, &mut |_| {}).map_err(|e| format!("events: {e:?}"))?;
        if page.lost > 0 {
            return Err(format!("{} events are lost", page.lost));
        }
        for event in &page.events {
            follow(&mut names, event).map_err(|why| format!("{event:?}: {why}"))?;
        }
        if !page.more {
            return Ok(names);
        }
        cursor = Some(page.cursor);
    }
}

fn follow(names: &mut Names, event: &EventInfo) -> Result<(), String> {
    let bytes = |path: &Option<PathText>| path.as_ref().map(|path| path.as_bytes().to_vec()).ok_or("no path");
    let is_dir = event.kind.as_deref() == Some("dir");
    match event.what {
        EventKind::Created | EventKind::Linked => match names.insert(bytes(&event.path)?, event.inode) {
            None => Ok(()),
            Some(other) => Err(format!("{other} has that name")),
        },
        EventKind::Removed => match names.remove(&bytes(&event.path)?) {
            Some(inode) if inode == event.inode => Ok(()),
            other => Err(format!("{other:?} has that name")),
        },
        EventKind::Renamed => {
            let taken = take(names, &bytes(&event.from)?, event.inode)?;
            put(names, &bytes(&event.path)?, taken)
        }
        EventKind::Exchanged => {
            let (from, to) = (bytes(&event.from)?, bytes(&event.path)?);
            let other = event.other_inode.ok_or("no other inode")?;
            let (one, two) = (take(names, &from, event.inode)?, take(names, &to, other)?);
            put(names, &to, one)?;
            put(names, &from, two)
        }
        // a directory has one name; a file with several may have lost the one that is said
        EventKind::Rights | EventKind::Attributes | EventKind::Xattr if is_dir => {
            let path = bytes(&event.path)?;
            let is_root = NodeId(event.inode).inode() == NodeId::ROOT.inode();
            match is_root || names.get(&path) == Some(&event.inode) {
                true => Ok(()),
                false => Err(format!("{:?} has that name", names.get(&path))),
            }
        }
        _ => Ok(()),
    }
}

/// Takes out a name and all below it, with their paths from there on.
fn take(names: &mut Names, path: &[u8], inode: u64) -> Result<Names, String> {
    let is_below =
        |other: &[u8]| other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    let (taken, left): (Names, Names) =
        std::mem::take(names).into_iter().partition(|(other, _)| is_below(other));
    *names = left;
    match taken.get(path) == Some(&inode) {
        true => Ok(taken.into_iter().map(|(other, inode)| (other[path.len()..].to_vec(), inode)).collect()),
        false => Err(format!("{:?} has that name", taken.get(path))),
    }
}

fn put(names: &mut Names, path: &[u8], taken: Names) -> Result<(), String> {
    for (rest, inode) in taken {
        if let Some(other) = names.insert([path, &rest].concat(), inode) {
            return Err(format!("{other} has that name"));
        }
    }
    Ok(())
}

fn there(cell: &Cell, at: &str, roots: &Names) -> Result<Names, String> {
    let mut top = NodeId::ROOT;
    for name in at.split('/').filter(|name| !name.is_empty()) {
        let attr = cell.call(&Ctx::user(0, 0), Op::Lookup { dir: top, name: name.as_bytes() });
        top = attr.and_then(|reply| reply.attr()).map_err(|e| format!("{at}: {e}"))?.node;
    }
    let (mut names, mut dirs) = (Names::new(), vec![(at.trim_end_matches('/').as_bytes().to_vec(), top)]);
    while let Some((path, dir)) = dirs.pop() {
        let mut after: Box<[u8]> = Box::default();
        loop {
            let list = Op::List { dir, after: &after, limit: 100, attrs: false };
            let entries = cell.call(&Ctx::user(0, 0), list).and_then(|reply| reply.entries());
            let entries = entries.map_err(|e| format!("{}: {e}", shown(&path)))?;
            for entry in &entries {
                let below = [&path[..], b"/", &entry.name].concat();
                let root = roots.get(&below);
                names.insert(below.clone(), root.copied().unwrap_or(entry.node.0));
                // a volume below has a log of its own
                if entry.kind == Kind::Dir && root.is_none() {
                    dirs.push((below, entry.node));
                }
            }
            match entries.last() {
                Some(last) if entries.len() == 100 => after = last.name.clone(),
                _ => break,
            }
        }
    }
    Ok(names)
}
