//! Names that are to be gone in the end, with all that is below them: a copy on its way, which is made beside what it will replace, and then
//! what it has replaced. They are removed also when the client goes away meanwhile.
//!
//! A copy has a name that nobody guesses, which is noted at the cell's root before it is begun: what a crash leaves is found by its note when
//! the door is opened again ([`sweep`]), and removed as the user whose copy it was.

use super::remove::{Failures, remove_tree};
use super::walk::path_of;
use crate::asked::{Asked, Place};
use crate::oops::{Oops, Result};
use crate::path::DavPath;
use crate::shared::Shared;
use http::StatusCode;
use leeward_door::{Files, Path, Tree, Who};
use leeward_env::Door;
use leeward_fs::{Error, NodeId};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Where notes are kept: an extended attribute of the cell's root.
const NOTES: &[&[u8]] = &[b"trusted.leeward.copies"];
/// Bytes of one.
const NOTE_BYTES: usize = 24;
/// Most notes at a time: they are to fit into the attribute.
const NOTES_MAX: usize = 2048;

/// How often it is tried to remove what nobody waits for any more.
const TRIES: usize = 5;
/// And how soon again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// See the module's head.
pub(crate) struct Aside {
    dav: Arc<Shared>,
    place: Option<Place>,
    note: Option<Note>,
}

/// Where a copy is, and whose.
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

impl Aside {
    /// A name beside this place, which is in this directory.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(crate) async fn beside(asked: &Asked, to: &Place, dir: NodeId) -> Result<Aside> {
        let who = &asked.verdict.who;
        let note = Note { dir, random: asked.dav.env.random(), uid: who.uid, gid: who.gid() };
        let name = note.name();
        let above = to.dav.parent().unwrap_or_default();
        let place = Place { tree: to.tree.clone(), path: path_of(&name), dav: above.join(&name) };
        let dav = asked.dav.clone();
        // in a task of its own: who is noted is removed, also when nobody waits for this any more
        let noted = tokio::spawn(async move {
            dav.change_notes(note, true).await?;
            Ok(Aside { dav, place: Some(place), note: Some(note) })
        });
        let noted = noted.await.unwrap_or_else(|e| Err(Error::Io(e.to_string())));
        noted.map_err(|e| match e {
            Error::AttrTooBig => Oops::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "as many directories as this server replaces at a time are being replaced: come back later",
            ),
            e => to.oops(&e),
        })
    }

    pub(crate) fn place(&self) -> &Place {
        self.place.as_ref().expect("it is there until it is removed")
    }

    /// Removes what is there; what cannot be removed stays.
    ///
    /// # Errors
    /// As [`remove_tree`] gives them; that nothing is there is none.
    pub(crate) async fn remove(mut self) -> Result<Failures> {
        let removed = self.dav.remove(self.place(), self.note).await;
        self.place = None;
        removed
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let (Some(place), Ok(runtime)) = (self.place.take(), Handle::try_current()) {
            let (dav, note) = (self.dav.clone(), self.note);
            runtime.spawn(async move { dav.remove_in_the_end(&place, note).await });
        }
    }
}

impl Shared {
    async fn remove(&self, place: &Place, note: Option<Note>) -> Result<Failures> {
        let removed = match remove_tree(place).await {
            Err(oops) if oops.status == StatusCode::NOT_FOUND => Ok(Failures::default()),
            removed => removed,
        };
        self.forget(note).await;
        removed
    }

    /// The same of what nobody waits for any more: of that, something may still be on its way there.
    async fn remove_in_the_end(&self, place: &Place, note: Option<Note>) {
        for _ in 0..TRIES {
            if remove_tree(place).await.is_ok_and(|failures| failures.count() == 0) {
                break;
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
        self.top().change_xattr(&Path::default(), NOTES[0], change).await
    }
}

fn top(files: &Files, uid: u32, gid: u32) -> Tree {
    files.tree(&Who::new("", uid, gid, &[]), Door::Http, &Path::default())
}

/// Begins to remove what a crash has left of copies. To be called before anybody is answered.
///
/// # Errors
/// The notes cannot be read.
pub(crate) async fn sweep(dav: &Arc<Shared>) -> leeward_fs::Result<()> {
    let found = dav.top().stat(&Path::default(), NOTES).await?;
    let notes = found.xattrs[0].clone().unwrap_or_default();
    let left = notes.as_chunks::<NOTE_BYTES>().0.iter().map(|bytes| {
        let note = Note::of(bytes);
        let tree = top(&dav.files, note.uid, note.gid).within(note.dir);
        let (path, dav_path) = (path_of(&note.name()), DavPath::of(&[note.name().into()]));
        (Place { tree, path, dav: dav_path }, note)
    });
    let (left, dav) = (left.collect::<Vec<_>>(), dav.clone());
    tokio::spawn(async move {
        for (place, note) in left {
            drop(dav.remove(&place, Some(note)).await);
        }
    });
    Ok(())
}
