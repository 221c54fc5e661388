//! Whether the event log says all that has happened to names: who follows it from the beginning has the tree.

use leeward_env::Ctx;
use leeward_fs::{Fs, Kind, NodeId, Op};
use leeward_volume::Cell;
use leeward_volume::admin::{EventFilter, EventInfo, EventKind, EventList, PathText};
use std::collections::BTreeMap;

/// Inodes by path.
type Names = BTreeMap<Vec<u8>, u64>;

/// Compares the tree with what its log says.
pub fn compare(cell: &Cell) -> Result<(), String> {
    let (told, there) = (told(cell)?, there(cell)?);
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

fn told(cell: &Cell) -> Result<Names, String> {
    let (mut names, mut cursor) = (Names::new(), None);
    loop {
        let (path, filter) = (Some("/".into()), EventFilter::default());
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
            match names.get(&path) == Some(&event.inode) || path == b"/" {
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

fn there(cell: &Cell) -> Result<Names, String> {
    let (mut names, mut dirs) = (Names::new(), vec![(Vec::new(), NodeId::ROOT)]);
    while let Some((path, dir)) = dirs.pop() {
        let mut after: Box<[u8]> = Box::default();
        loop {
            let list = Op::List { dir, after: &after, limit: 100, attrs: false };
            let entries = cell.call(&Ctx::user(0, 0), list).and_then(|reply| reply.entries());
            let entries = entries.map_err(|e| format!("{}: {e}", shown(&path)))?;
            for entry in &entries {
                let below = [&path[..], b"/", &entry.name].concat();
                names.insert(below.clone(), entry.node.0);
                if entry.kind == Kind::Dir {
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
