//! Checks of uploads in parts: each part is a file without a name that its upload names, or that is
//! being freed.

use super::Census;
use crate::format::stored::Stored;
use leeward_fs::uploads::{PartRecord, UploadRecord};
use leeward_fs::{Kind, NodeId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Parts and uploads that were found.
#[derive(Default)]
pub(super) struct Kept {
    parts: Vec<(NodeId, PartRecord)>,
    uploads: FxHashMap<NodeId, UploadRecord>,
}

impl Kept {
    /// Volumes that are being removed; their parts are not checked.
    pub(super) fn leave_out(&mut self, volumes: &[u32]) {
        let is_left = |node: NodeId| !volumes.contains(&node.volume());
        self.parts.retain(|(node, part)| is_left(*node) && is_left(part.upload));
        self.uploads.retain(|upload, _| is_left(*upload));
    }
}

impl Census {
    pub(super) fn orphan(&mut self, node: NodeId, value: &[u8]) {
        match Option::<PartRecord>::decode(value) {
            Ok(part) => self.kept.parts.extend(part.map(|part| (node, part))),
            Err(e) => self.say("damaged-record", Some(node), e.to_string()),
        }
    }

    pub(super) fn upload(&mut self, upload: NodeId, value: &[u8]) {
        match UploadRecord::decode(value) {
            Ok(record) => drop(self.kept.uploads.insert(upload, record)),
            Err(e) => self.say("damaged-record", None, format!("upload {:016x}: {e}", upload.0)),
        }
    }

    /// `known`: files that memory knows as parts, or as being freed.
    pub(super) fn check_uploads(&mut self, known: &FxHashSet<NodeId>) {
        let kept = std::mem::take(&mut self.kept);
        let mut taken = FxHashSet::default();
        for (node, part) in kept.parts {
            let what = format!("part {} of upload {:016x}", part.number, part.upload.0);
            let file =
                self.inodes.get(&node).filter(|seen| seen.kind == Some(Kind::File)).map(|seen| seen.size);
            match file {
                None => self.say("upload", Some(node), format!("{what} is no file")),
                Some(size) if size != part.size => {
                    self.say(
                        "upload",
                        Some(node),
                        format!("{what}: {} bytes recorded, {size} in the file", part.size),
                    );
                }
                Some(_) => {}
            }
            let is_open = kept.uploads.get(&part.upload).is_some_and(|upload| !upload.complete);
            if is_open && !taken.insert((part.upload, part.number)) {
                self.say("upload", Some(node), format!("{what} is there twice"));
            }
            if !known.contains(&node) {
                self.say(
                    "upload",
                    Some(node),
                    format!("{what} is neither known as that nor about to be freed"),
                );
            }
        }
    }
}
