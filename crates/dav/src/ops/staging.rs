//! Temporary trees, removed when the copy ends or the client goes away: a copy in progress, which
//! is made beside what it will replace, and then what it has replaced.
//!
//! A copy has a name that nobody can guess. The name is noted at the cell's root before the copy
//! begins. After a crash the notes show which copies are left when the door is opened again
//! ([`sweep`]). They are removed as the user who made them.

use super::remove::{Failures, remove_tree};
use super::walk::path_of;
use crate::error::{HttpError, Result};
use crate::path::DavPath;
use crate::request::{Request, Resource};
use crate::shared::Shared;
use http::StatusCode;
use leeward_door::{Files, Path, Principal, Tree};
use leeward_env::Door;
use leeward_fs::{Error, NodeId};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The attribute of the cell's root that has the notes; for another machine than the server, with
/// its name after a dot.
const NOTES: &str = "trusted.leeward.copies";
/// Bytes of a note.
const NOTE_BYTES: usize = 24;
/// Most notes at a time: they must fit into the attribute.
const NOTES_MAX: usize = 2048;

/// How often a removal is tried when no client waits for it any more.
const TRIES: usize = 5;
/// Pause between the tries.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A temporary tree.
pub(crate) struct StagedTree {
    dav: Arc<Shared>,
    place: Option<Resource>,
    note: Option<Note>,
}

/// Directory and owner of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    dir: NodeId,
    random: u64,
    uid: u32,
    gid: u32,
}

impl Note {
    fn to_bytes(self) -> [u8; NOTE_BYTES] {
        let mut out = [0; NOTE_BYTES];
        out[..8].copy_from_slice(&self.dir.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.random.to_le_bytes());
        out[16..20].copy_from_slice(&self.uid.to_le_bytes());
        out[20..].copy_from_slice(&self.gid.to_le_bytes());
        out
    }

    fn of(bytes: &[u8; NOTE_BYTES]) -> Note {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        Note { dir: NodeId(word(0)), random: word(8), uid: half(16), gid: half(20) }
    }

    fn name(self) -> Vec<u8> {
        format!(".leeward-copy-{:016x}", self.random).into_bytes()
    }
}

impl StagedTree {
    /// A name beside `to`, which is in the directory `dir`.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(crate) async fn beside(request: &Request, to: &Resource, dir: NodeId) -> Result<StagedTree> {
        let who = &request.verdict.who;
        let note = Note { dir, random: request.dav.env.random(), uid: who.uid, gid: who.gid() };
        let name = note.name();
        let above = to.dav.parent().unwrap_or_default();
        let place = Resource { tree: to.tree.clone(), path: path_of(&name), dav: above.join(&name) };
        let dav = request.dav.clone();
        // in a task of its own: a noted tree is removed even if nobody waits for this any more
        let noted = tokio::spawn(async move {
            dav.change_notes(note, true).await?;
            Ok(StagedTree { dav, place: Some(place), note: Some(note) })
        });
        let noted = noted.await.unwrap_or_else(|e| Err(Error::Io(e.to_string())));
        noted.map_err(|e| match e {
            Error::AttrTooBig => HttpError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "as many directories as this server replaces at a time are being replaced: come back later",
            ),
            e => to.error(&e),
        })
    }

    pub(crate) fn place(&self) -> &Resource {
        self.place.as_ref().expect("it is there until it is removed")
    }

    /// Removes the tree; what cannot be removed stays. While the server is away that is tried again
    /// later.
    ///
    /// # Errors
    /// As for [`remove_tree`]; a missing tree is no error.
    pub(crate) async fn remove(mut self) -> Result<Failures> {
        let removed = self.dav.remove(self.place(), self.note).await;
        let is_away = removed.as_ref().is_err_and(|error| error.status == StatusCode::SERVICE_UNAVAILABLE);
        if !is_away {
            self.place = None;
        }
        removed
    }
}

impl Drop for StagedTree {
    fn drop(&mut self) {
        if let (Some(place), Ok(runtime)) = (self.place.take(), Handle::try_current()) {
            let (dav, note) = (self.dav.clone(), self.note);
            runtime.spawn(async move { dav.remove_in_the_end(&place, note).await });
        }
    }
}

impl Shared {
    async fn remove(&self, place: &Resource, note: Option<Note>) -> Result<Failures> {
        let removed = match remove_tree(place).await {
            Err(error) if error.status == StatusCode::NOT_FOUND => Ok(Failures::default()),
            removed => removed,
        };
        self.forget(note).await;
        removed
    }

    /// Removes a tree that no client waits for any more: operations may still be adding to it.
    async fn remove_in_the_end(&self, place: &Resource, note: Option<Note>) {
        let mut left = TRIES;
        while left > 0 {
            match remove_tree(place).await {
                Ok(failures) if failures.count() == 0 => break,
                // at a gateway the server may be away for long, and comes back
                Err(error) if error.status == StatusCode::SERVICE_UNAVAILABLE => {}
                Err(error) if error.status == StatusCode::NOT_FOUND => break,
                Ok(_) | Err(_) => left -= 1,
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
        self.forget(note).await;
    }

    async fn forget(&self, note: Option<Note>) {
        if let Some(note) = note
            && let Err(e) = self.change_notes(note, false).await
        {
            tracing::warn!("a note of a copy stays until the door is opened again: {e}");
        }
    }

    /// The cell's root, as root.
    fn top(&self) -> Tree {
        top(&self.files, 0, 0)
    }

    async fn change_notes(&self, note: Note, is_there: bool) -> leeward_fs::Result<()> {
        let note = note.to_bytes();
        let change = move |old: Option<&[u8]>| {
            let (old, _) = old.unwrap_or_default().as_chunks::<NOTE_BYTES>();
            let mut notes: Vec<_> = old.iter().copied().filter(|other| *other != note).collect();
            notes.extend(is_there.then_some(note));
            match notes.len() {
                0 => Ok(None),
                1..=NOTES_MAX => Ok(Some(notes.concat())),
                _ => Err(Error::AttrTooBig),
            }
        };
        self.top().change_xattr(&Path::default(), self.notes[0], change).await
    }
}

/// The attribute with the notes of a machine. One lives as long as the process.
pub(crate) fn notes_of(host: &str) -> &'static [&'static [u8]] {
    let name = if host.is_empty() { NOTES.into() } else { format!("{NOTES}.{host}") };
    let name: &'static [u8] = name.into_bytes().leak();
    vec![name].leak()
}

fn top(files: &Files, uid: u32, gid: u32) -> Tree {
    files.tree(&Principal::new("", uid, gid, &[]), Door::Http, &Path::default())
}

/// Begins to remove the copies that a crash has left. To be called before the first request is
/// answered.
///
/// # Errors
/// The notes cannot be read.
pub(crate) async fn sweep(dav: &Arc<Shared>) -> leeward_fs::Result<()> {
    let found = dav.top().stat(&Path::default(), dav.notes).await?;
    let notes = found.xattrs[0].clone().unwrap_or_default();
    let left = notes.as_chunks::<NOTE_BYTES>().0.iter().map(|bytes| {
        let note = Note::of(bytes);
        let tree = top(&dav.files, note.uid, note.gid).within(note.dir);
        let (path, dav_path) = (path_of(&note.name()), DavPath::of(&[note.name().into()]));
        (Resource { tree, path, dav: dav_path }, note)
    });
    let (left, dav) = (left.collect::<Vec<_>>(), dav.clone());
    tokio::spawn(async move {
        for (place, note) in left {
            drop(dav.remove(&place, Some(note)).await);
        }
    });
    Ok(())
}
