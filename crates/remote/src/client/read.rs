//! Reads: from what is kept in memory, from what is under way, from the cache on disk, or from the
//! server; and calls that read ahead.

use super::Client;
use super::content::{Ahead, Found, Reading};
use super::copies::{Asked, OnDisk};
use super::disk::{Block, DiskContent};
use super::slots::Answer;
use crate::message::Leased;
use leeward_env::Ctx;
use leeward_env::limits::VERSION_BLOCK_BYTES;
use leeward_fs::{NodeId, Op, Reply, Result};
use std::ops::Range;
use std::sync::Arc;

/// What is to be read from elsewhere.
pub(super) struct Fetch {
    ctx: Ctx,
    pub(super) node: NodeId,
    pub(super) range: Range<u64>,
    /// `None`: a program waits for it.
    pub(super) ahead: Option<Ahead>,
    /// The server was asked for versions.
    has_asked: bool,
    answer: Answer,
}

/// Blocks on disk that are to be read. When it is dropped before, the server is asked.
struct DiskRead {
    client: Client,
    disk: Arc<DiskContent>,
    blocks: Vec<Block>,
    work: Option<(Fetch, Asked)>,
}

impl Client {
    /// [`Op::Read`].
    pub(super) fn read(&self, ctx: Ctx, (node, offset, len): (NodeId, u64, u32), answer: Answer) {
        let range = offset..offset.saturating_add(u64::from(len));
        let (found, ahead) = self.0.copies.read(Reading { ctx, node, range, answer });
        self.answer_read(found);
        ahead.into_iter().for_each(|call| self.read_ahead(ctx, call));
    }

    fn answer_read(&self, found: Found) {
        match found {
            Found::Bytes(reading, pieces) => (reading.answer)(Ok(Reply::Data(pieces.bytes()))),
            Found::Waits => (),
            Found::Nothing(Reading { ctx, node, range, answer }) => {
                self.fetch(Fetch { ctx, node, range, ahead: None, has_asked: false, answer });
            }
        }
    }

    fn read_ahead(&self, ctx: Ctx, call: Ahead) {
        let (client, node, range, ahead) = (self.clone(), call.node, call.range.clone(), Some(call.clone()));
        let answer = move |result: Result<Reply>| {
            for reading in client.0.copies.ahead_ended(&call) {
                client.answer_read(client.0.copies.read_again(reading, result.is_ok()));
            }
        };
        self.fetch(Fetch { ctx, node, range, ahead, has_asked: false, answer: Box::new(answer) });
    }

    fn fetch(&self, fetch: Fetch) {
        let Some(disk) = self.0.disk.get() else { return self.fetch_from_server(fetch) };
        match self.0.copies.on_disk(&fetch) {
            OnDisk::Blocks(blocks, asked) if disk.has(fetch.node, &blocks) => {
                let (client, disk) = (self.clone(), disk.clone());
                let work = DiskRead { client, disk, blocks, work: Some((fetch, asked)) };
                self.0.disk_readers.run(move || work.run());
            }
            OnDisk::Unknown(blocks) if !fetch.has_asked => {
                let (client, ctx, node) = (self.clone(), fetch.ctx, fetch.node);
                if disk.has_any(node, blocks.clone()) {
                    let fetch = Fetch { has_asked: true, ..fetch };
                    self.ask_versions(&ctx, node, blocks.start, move || client.fetch(fetch));
                } else {
                    // they are there when the content comes, which is kept with them
                    self.ask_versions(&ctx, node, blocks.start, || ());
                    self.fetch_from_server(fetch);
                }
            }
            _ => self.fetch_from_server(fetch),
        }
    }

    fn ask_versions(&self, ctx: &Ctx, node: NodeId, block: u64, then: impl FnOnce() + Send + 'static) {
        let op = Op::ContentVersions { node, block };
        self.ask_read(ctx, op, Box::new(move |_| then()), |copies| copies.asked_versions(node, block));
    }

    fn fetch_from_server(&self, fetch: Fetch) {
        let Fetch { ctx, node, range, ahead, answer, .. } = fetch;
        let op = Op::Read { node, offset: range.start, len: (range.end - range.start) as u32 };
        let disk = self.0.disk.get().cloned();
        self.ask_read(&ctx, op, answer, |copies| {
            let asked = match &ahead {
                Some(call) => copies.asked_ahead(call),
                None => copies.asked(&ctx, &op),
            };
            asked.kept_on(disk)
        });
    }
}

impl DiskRead {
    fn run(mut self) {
        let Some((fetch, asked)) = self.work.take() else { return };
        let Some(bytes) = self.disk.read(fetch.node, &self.blocks) else {
            return self.client.fetch_from_server(fetch);
        };
        let first = self.blocks.first().map_or(0, |block| block.number * VERSION_BLOCK_BYTES);
        let end = ((fetch.range.end - first) as usize).min(bytes.len());
        let start = ((fetch.range.start - first) as usize).min(end);
        let mut result = Ok(Reply::Data(bytes[start..end].to_vec()));
        // the version was that of a lease
        let leased = Leased::all();
        let not_kept = asked.answered(&mut result, &leased).pages;
        (fetch.answer)(result);
        self.client.0.drop_pages(not_kept.into_iter().collect());
    }
}

impl Drop for DiskRead {
    /// Also where there is no thread to read.
    fn drop(&mut self) {
        if let Some((fetch, _)) = self.work.take() {
            self.client.fetch_from_server(fetch);
        }
    }
}
