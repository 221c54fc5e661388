//! COPY and MOVE between paths of this server. A copy shares the data of what it copies, where both are in one volume.
//!
//! Both ends are looked for once; what is done then is done in the directories that were found. What is replaced stays as it is until what
//! replaces it is whole.

use super::aside::Aside;
use super::moved::Moved;
use super::put::Target;
use super::remove::{Failures, remove_moved};
use super::walk::{Step, Walk, path_of};
use crate::asked::{Asked, Place};
use crate::body::{self, Answer};
use crate::head::condition::{self, Current, Verdict};
use crate::head::{self, Depth, Destination};
use crate::locks::Change;
use crate::oops::{Oops, Result};
use crate::path::DavPath;
use futures_util::stream::{self, StreamExt};
use http::{StatusCode, header};
use leeward_auth::Activity;
use leeward_door::{Finish, Path, Tree, notes};
use leeward_fs::{Attr, Entry, Error, Kind, NodeId, Over, RenameMode};

/// Files that are copied at a time.
const AT_ONCE: usize = 16;

/// What both have in common.
struct Errand {
    /// By the directory that it is in, and that directory.
    from: Place,
    from_dir: NodeId,
    /// The same.
    to: Place,
    dir: NodeId,
    /// What is there: for COPY what a symbolic link leads to.
    attr: Attr,
    /// What is replaced.
    old: Option<Attr>,
    how: How,
}

#[derive(Clone, Copy)]
struct How {
    /// With all that is below.
    deep: bool,
    /// Whether the original goes: so all of it must have been copied, and the group is kept where it can be.
    moves: bool,
}

impl Errand {
    /// Whether both are one file, under two names.
    fn is_link(&self) -> bool {
        self.how.moves && self.old.is_some_and(|old| old.node == self.attr.node)
    }

    /// Whether it can only come beside what it replaces, and then change places with it: all but a file that takes the place of one.
    fn exchanges(&self) -> bool {
        self.old.is_some_and(|old| old.kind == Kind::Dir || self.attr.kind != Kind::File)
    }
}

/// COPY.
pub(crate) async fn copy(asked: &Asked) -> Result<Answer> {
    let depth = head::depth(&asked.headers, Depth::Infinity)?;
    if depth == Depth::One {
        return Err(Oops::bad("COPY has Depth 0 or infinity"));
    }
    let to = destination(asked)?;
    let how = How { deep: depth == Depth::Infinity, moves: false };
    let errand = errand(asked, Activity::Read, &to, how).await?;
    let failures = copy_all(asked, &errand, None).await?;
    Ok(failures.answer().unwrap_or_else(|| done(&errand)))
}

/// MOVE.
pub(crate) async fn rename(asked: &Asked) -> Result<Answer> {
    if head::depth(&asked.headers, Depth::Infinity)? != Depth::Infinity {
        return Err(Oops::bad("MOVE moves everything below: Depth is infinity"));
    }
    let to = destination(asked)?;
    let errand = errand(asked, Activity::Rename, &to, How { deep: true, moves: true }).await?;
    let (from, to) = (&errand.from, &errand.to);
    let mode = match &errand.old {
        None => RenameMode::NoReplace,
        Some(_) if errand.exchanges() => RenameMode::Exchange,
        Some(_) => RenameMode::Replace,
    };
    // noted before anything is done
    let replaced = match mode {
        RenameMode::Exchange => Some(Aside::beside(asked, from, errand.from_dir).await?),
        _ => None,
    };
    let done_by = match errand.is_link() {
        // one name fewer: renaming would leave both
        true => from.tree.remove_if(&from.path, Over::This(errand.attr.node, errand.attr.ctime), false).await,
        false => from.tree.rename(&from.path, &to.tree, &to.path, mode).await,
    };
    let failures = match done_by {
        Ok(()) => match replaced {
            Some(aside) => remove_replaced(&errand, aside).await?,
            None => Failures::default(),
        },
        Err(Error::CrossVolume) => {
            if let Some(aside) = replaced {
                aside.remove().await?;
            }
            match move_tree(asked, &errand).await? {
                (failures, false) => return Ok(failures.answer().expect("there are some")),
                (failures, true) => failures,
            }
        }
        Err(Error::Exists | Error::Changed) => return Err(Oops::precondition()),
        Err(e) => return Err(from.oops(&e)),
    };
    asked.dav.locks.forget_tree(&from.dav);
    if errand.exchanges() {
        asked.dav.locks.forget_tree(&to.dav);
    }
    Ok(failures.answer().unwrap_or_else(|| done(&errand)))
}

/// What was replaced has the old name now. It is removed under one that nobody guesses: what others make under the old name stays.
async fn remove_replaced(errand: &Errand, aside: Aside) -> Result<Failures> {
    let (from, at) = (&errand.from, &aside.place().path);
    let old = errand.old.as_ref().map(|old| old.node);
    match from.tree.rename(&from.path, &from.tree, at, RenameMode::NoReplace).await {
        Ok(()) => {}
        // somebody else has taken it
        Err(Error::NotFound) => return aside.remove().await,
        Err(e) => {
            aside.remove().await?;
            return Err(from.oops(&e));
        }
    }
    let there = from.tree.spot(at, false).await.map_err(|e| from.oops(&e))?.attr;
    if there.is_some_and(|there| Some(there.node) != old) {
        // something else has come to the old name already
        let back = from.tree.rename(at, &from.tree, &from.path, RenameMode::NoReplace).await;
        back.map_err(|e| from.oops(&e))?;
    }
    aside.remove().await
}

/// MOVE to another volume: all is copied, then what was copied is removed, to the end also when the client goes away. What came there or was
/// changed meanwhile stays, and is told. `false`: it could not all be copied, and nothing was removed.
async fn move_tree(asked: &Asked, errand: &Errand) -> Result<(Failures, bool)> {
    let dav = &asked.dav;
    let mut moved = Moved::new(&dav.env, &dav.moved, asked.verdict.who.uid);
    let copied = copy_all(asked, errand, Some(&mut moved)).await?;
    if copied.count() > 0 {
        return Ok((copied, false));
    }
    let (from, dir, was) = (errand.from.clone(), errand.from_dir, errand.attr);
    let removed = tokio::spawn(async move { remove_moved(&from, dir, &was, &moved).await }).await;
    let removed = removed.unwrap_or_else(|e| Err(Error::Io(e.to_string())));
    removed.map(|failures| (failures, true)).map_err(|e| errand.from.oops(&e))
}

fn done(errand: &Errand) -> Answer {
    if errand.old.is_some() {
        return body::empty(StatusCode::NO_CONTENT);
    }
    let there = errand.to.dav.encoded();
    body::headers(body::empty(StatusCode::CREATED), [(header::LOCATION, there.as_str())])
}

fn destination(asked: &Asked) -> Result<DavPath> {
    match head::destination(&asked.headers, asked.host.as_deref())? {
        Some(Destination::Here(path)) => Ok(path),
        Some(Destination::There(_)) => Err(Oops::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is on another server, where nothing can be moved",
        )),
        None => Err(Oops::bad("a Destination is missing")),
    }
}

/// Checks everything that can be checked, and finds both ends.
async fn errand(asked: &Asked, activity: Activity, to: &DavPath, how: How) -> Result<Errand> {
    let place = asked.place_at(Activity::Stat, &asked.path)?;
    let (entry, shown) = place.must_be_named().await?;
    let is_dir = (if how.moves { entry } else { shown }).kind == Kind::Dir;
    let (at, to) = (asked.path.clone().with_slash(is_dir), to.clone().with_slash(is_dir));
    if at.is_within(&to) || to.is_within(&at) {
        return Err(within(&at, &to));
    }
    let etag = crate::asked::etag(&shown);
    let current = Current { etag: &etag, modified: shown.mtime.secs };
    if condition::check(&asked.headers, false, Some(current))? != Verdict::Go {
        return Err(Oops::precondition());
    }
    let (old, _) = asked.place_at(Activity::Stat, &to)?.named().await?;
    if old.is_some() && !head::overwrite(&asked.headers)? {
        let why = format!("{} is there already, and Overwrite is F", to.shown());
        return Err(Oops::new(StatusCode::PRECONDITION_FAILED, why));
    }
    let from = asked.place_at(activity, &at)?;
    let place = asked.place_at(allowed(asked, (&at, is_dir), (&to, old), how)?, &to)?;
    let change = if old.is_some() { Change::Tree } else { Change::NewName };
    let plain = to.clone().with_slash(false);
    let mut changes = vec![(&plain, change)];
    changes.extend(how.moves.then_some((&asked.path, Change::Tree)));
    asked.check_locks(&changes).await?;
    place.check_parent().await?;
    let source = from.tree.spot(&from.path, !how.moves).await.map_err(|e| from.missing(&e))?;
    let spot = place.spot().await?.ok_or_else(|| place.oops(&Error::NotFound))?;
    let attr = source.attr.ok_or_else(|| from.oops(&Error::NotFound))?;
    if (attr.kind == Kind::Dir) != is_dir || spot.attr.is_some() != old.is_some() {
        return Err(Oops::precondition());
    }
    let is_above = spot.attr.is_some_and(|old| source.above.contains(&old.node));
    // two names of one file are two things
    let is_one = spot.above.last() == source.above.last() && spot.name == source.name;
    if is_one || is_above || spot.above.contains(&attr.node) {
        return Err(within(&at, &to));
    }
    let dir = *spot.above.last().ok_or_else(|| place.oops(&Error::NotFound))?;
    let from_dir = *source.above.last().ok_or_else(|| from.oops(&Error::NotFound))?;
    Ok(Errand { from: from.by(&source), from_dir, to: place.by(&spot), dir, attr, old: spot.attr, how })
}

fn within(at: &DavPath, to: &DavPath) -> Oops {
    let why = format!("{} and {} are one within the other, or the same", at.shown(), to.shown());
    Oops::new(StatusCode::FORBIDDEN, why)
}

/// The right that the destination needs, when the credential has all others.
fn allowed(
    asked: &Asked,
    (at, is_dir): (&DavPath, bool),
    (to, old): (&DavPath, Option<Attr>),
    how: How,
) -> Result<Activity> {
    if is_dir && how.deep && !how.moves {
        asked.allow(Activity::List, at)?;
        asked.allow(Activity::Create, to)?;
    }
    Ok(match old {
        None if is_dir => Activity::MakeDir,
        None => Activity::Create,
        Some(old) => {
            if is_dir || old.kind == Kind::Dir {
                asked.allow(Activity::Delete, to)?;
            }
            Activity::Modify
        }
    })
}

/// Copies what is asked for to where it is to be, in one step where something is replaced.
async fn copy_all(asked: &Asked, errand: &Errand, moved: Option<&mut Moved>) -> Result<Failures> {
    let to = &errand.to;
    if !errand.exchanges() {
        let over = if errand.old.is_some() { Over::Any } else { Over::Nothing };
        return copy_tree(errand, to, over, moved).await;
    }
    let beside = Aside::beside(asked, to, errand.dir).await?;
    let copied = copy_tree(errand, beside.place(), Over::Nothing, moved).await;
    if copied.as_ref().map_or(true, |failures| failures.count() > 0) {
        let _ = beside.remove().await;
        return copied;
    }
    let (name, exchange) = (&beside.place().path, RenameMode::Exchange);
    if let Err(e) = to.tree.rename(name, &to.tree, &to.path, exchange).await {
        let _ = beside.remove().await;
        return Err(to.oops(&e));
    }
    asked.dav.locks.forget_tree(&to.dav);
    beside.remove().await
}

/// Copies what there is to a place where nothing is, or (`over`) a file that may be replaced.
async fn copy_tree(errand: &Errand, to: &Place, over: Over, moved: Option<&mut Moved>) -> Result<Failures> {
    let (from, how) = (&errand.from, errand.how);
    if errand.attr.kind != Kind::Dir {
        let copied = copy_entry(errand.attr.kind, (&from.tree, &from.path), (&to.tree, &to.path), over, how);
        let was = copied.await.map_err(|e| errand.to.oops(&e))?;
        if let (Some(moved), Some(name)) = (moved, errand.from.dav.name()) {
            moved.add(errand.from_dir, name, &was).map_err(|e| errand.from.oops(&e))?;
        }
        return Ok(Failures::default());
    }
    let made = to.tree.make_private_dir(&to.path).await.map_err(|e| match e {
        Error::Exists => Oops::precondition(),
        e => errand.to.oops(&e),
    })?;
    let into = to.tree.within(made.node);
    if how.deep {
        return Ok(fill(&from.tree, into, made.node, errand, moved).await);
    }
    into.make_like(&from.tree.within(errand.attr.node), how.moves).await.map_err(|e| errand.to.oops(&e))?;
    Ok(Failures::default())
}

/// Copies all that is in a directory to an empty one, which then becomes like it.
async fn fill(
    from: &Tree,
    into: Tree,
    top: NodeId,
    errand: &Errand,
    mut moved: Option<&mut Moved>,
) -> Failures {
    let (how, mut failures) = (errand.how, Failures::default());
    let mut walk = Walk::new(from, errand.attr.node, &errand.to.dav, into);
    while let Some(step) = walk.next().await {
        let failed = match step {
            Step::Entries(entries) => {
                let copies =
                    entries.into_iter().map(|e| copy_one(walk.tree().clone(), walk.with().clone(), e, how));
                let mut copies = stream::iter(copies).buffer_unordered(AT_ONCE);
                while let Some((name, copied)) = copies.next().await {
                    let noted = copied.and_then(|was| match moved.as_deref_mut() {
                        Some(moved) => moved.add(walk.node(), &name, &was),
                        None => Ok(()),
                    });
                    if let Err(e) = noted {
                        failures.add(&walk.at(&name), &e);
                    }
                }
                continue;
            }
            // somebody has just moved the copy to where it is copied from
            Step::Dir(dir) if dir.node == top => Some((dir.name, Error::Invalid)),
            Step::Dir(dir) => {
                let made = walk.with().make_private_dir(&path_of(&dir.name)).await;
                let entered = match made {
                    Ok(made) => {
                        let into = walk.with().within(made.node);
                        let note = |above: NodeId, there: &Attr| match moved.as_deref_mut() {
                            Some(moved) => moved.add(above, &dir.name, there),
                            None => Ok(()),
                        };
                        walk.enter(&dir, into, note).await
                    }
                    Err(e) => Err(e),
                };
                entered.err().map(|e| (dir.name, e))
            }
            Step::Failed(e) => Some((Box::default(), e)),
            Step::Done(name, from, into) => {
                let alike = into.make_like(&from, how.moves).await;
                if let Err(e) = alike {
                    let at = if name.is_empty() { errand.to.dav.clone() } else { walk.at(&name) };
                    failures.add(&at, &e);
                }
                continue;
            }
        };
        if let Some((name, e)) = failed {
            failures.add(&walk.at(&name), &e);
        }
    }
    failures
}

async fn copy_one(from: Tree, into: Tree, entry: Entry, how: How) -> (Box<[u8]>, leeward_fs::Result<Attr>) {
    let name = path_of(&entry.name);
    let copied = copy_entry(entry.kind, (&from, &name), (&into, &name), Over::Nothing, how).await;
    (entry.name, copied)
}

/// Returns what was copied, as it was before it was read.
async fn copy_entry(
    kind: Kind,
    from: (&Tree, &Path),
    to: (&Tree, &Path),
    over: Over,
    how: How,
) -> leeward_fs::Result<Attr> {
    match kind {
        Kind::File => copy_file(from, to, over, how).await,
        Kind::Symlink => copy_link(from, to).await,
        // directories are walked through; what talks to programs is not copied
        _ => Err(Error::NotSupported),
    }
}

/// Content and what is beside it: checksums, properties, permissions. It keeps its time of modification.
async fn copy_file(
    (from, name): (&Tree, &Path),
    (to, new): (&Tree, &Path),
    over: Over,
    how: How,
) -> leeward_fs::Result<Attr> {
    let file = from.open(name, &[]).await?;
    let mut upload = to.create(new, Some(file.attr.size)).await?;
    upload.copy(&file, 0..file.attr.size).await?;
    upload.like(&file, how.moves);
    let mut xattrs = file.notes().await?;
    let is_same = file.is_same().await?;
    if how.moves && !is_same {
        return Err(Error::Changed);
    }
    // of what was changed meanwhile nobody knows the checksums
    xattrs.retain(|(name, _)| is_same || name != notes::SUMS);
    let modified = is_same.then_some(file.attr.mtime);
    upload.finish(Finish { over, xattrs, modified, ..Finish::default() }).await?;
    Ok(file.attr)
}

/// A link, as it is.
async fn copy_link((from, name): (&Tree, &Path), (to, new): (&Tree, &Path)) -> leeward_fs::Result<Attr> {
    let was = from.spot(name, false).await?.attr.ok_or(Error::NotFound)?;
    to.make_link(new, &from.read_link(name).await?).await?;
    Ok(was)
}

/// Where a third-party copy, or a copy of a single file, may write: as PUT, and `Overwrite` counts.
///
/// # Errors
/// As [`Target::of`]; 412.
pub(crate) async fn target(asked: &Asked) -> Result<Target> {
    let target = Target::of(asked).await?;
    if head::overwrite(&asked.headers)? { Ok(target) } else { target.only_new() }
}
