//! Lists directories. Reads the engine without the lock and merges changes that are not committed
//! yet.

use crate::before::Before;
use crate::format::inode::{Dentry, Inode};
use crate::format::keys::{self, Key, tag};
use crate::shard::Shard;
use crate::snapshots::versions::seen_in;
use crate::tx::{Fail, Tx};
use leeward_env::Ctx;
use leeward_fs::leases;
use leeward_fs::{Entry, Error, NodeId, Reply, Result};
use leeward_meta::Value;
use std::collections::BTreeMap;

/// Most records that one read of the engine returns.
pub const PAGE: usize = 1024;

/// Records, and where to continue (`None`: the range is done).
pub(crate) type Page = (Vec<(Key, Value)>, Option<Key>);

impl Shard {
    /// [`Op::List`](leeward_fs::Op::List).
    pub(crate) fn list(
        &self,
        ctx: &Ctx,
        dir: NodeId,
        after: &[u8],
        limit: usize,
        attrs: bool,
    ) -> Result<Reply> {
        // before names are read, so that no change of them is missed
        let leased = |tx: &mut Tx<'_>| {
            tx.lease(dir);
            tx.inode(dir)
        };
        if !self.transact(ctx, leased)?.is_dir() {
            return Err(Error::NotDir);
        }
        if ctx.client > 0
            && let Some(volume) = self.lock().volumes.get(&dir.volume())
        {
            leases::tells_all_names(&volume.properties.snapshot_dir);
        }
        let names = |after: &[u8], limit| self.names(ctx, dir, after, limit, attrs);
        self.listed(ctx, after, limit, attrs, names)
    }

    /// Up to `limit` entries of a directory after a name, fewer only at the end; without
    /// attributes, except for the directory of snapshots.
    fn names(&self, ctx: &Ctx, dir: NodeId, after: &[u8], limit: usize, attrs: bool) -> Result<Vec<Entry>> {
        let (view, shows_snapshots) = {
            let st = self.lock();
            let shows = st.volumes.get(&dir.volume()).is_some_and(|v| v.properties.snapshot_dir_visible);
            (st.snapshots.view(dir.volume()), shows)
        };
        let (mut from, to) = keys::tag_range(dir, tag::DENTRY);
        if !after.is_empty() {
            from = keys::after(&keys::dentry(dir, after));
        }
        let mut entries = Vec::with_capacity(limit.min(PAGE));
        while entries.len() < limit {
            let want = (limit - entries.len()).min(PAGE);
            let (page, next) = self.scan(&from, &to, want)?;
            for (key, value) in page {
                let Some(parsed) = keys::parse(&key) else { continue };
                let Some(Dentry { node, kind }) = seen_in(view, dir, Dentry::decode(&value)?) else {
                    continue;
                };
                entries.push(Entry { name: parsed.rest.into(), node, kind, attr: None });
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        if entries.iter().any(|e| e.node.volume() != dir.volume()) {
            let st = self.lock();
            entries.iter_mut().for_each(|e| e.node = st.shown(dir, e.node));
        }
        if shows_snapshots {
            self.transact(ctx, |tx| tx.list_snapshot_dir(dir, after, limit, attrs, &mut entries))?;
        }
        Ok(entries)
    }

    /// The answer to a listing. `names`: up to so many entries after a name, fewer only at the end.
    pub(crate) fn listed(
        &self,
        ctx: &Ctx,
        after: &[u8],
        limit: usize,
        attrs: bool,
        names: impl Fn(&[u8], usize) -> Result<Vec<Entry>>,
    ) -> Result<Reply> {
        let mut entries = Vec::new();
        match self.add_pages(ctx, &mut entries, after, limit, attrs, names) {
            Ok(()) => Ok(Reply::Entries(entries)),
            Err(e) => {
                self.unshow(ctx, &entries);
                Err(e)
            }
        }
    }

    fn add_pages(
        &self,
        ctx: &Ctx,
        entries: &mut Vec<Entry>,
        after: &[u8],
        limit: usize,
        attrs: bool,
        names: impl Fn(&[u8], usize) -> Result<Vec<Entry>>,
    ) -> Result<()> {
        let mut after = Box::from(after);
        loop {
            entries.append(&mut names(&after, limit - entries.len())?);
            let last = entries.last().filter(|_| entries.len() == limit).map(|e| e.name.clone());
            if attrs {
                self.fill_attrs(ctx, entries)?;
            }
            match last {
                // some went away meanwhile, and whoever gets fewer takes this for the end
                Some(last) if entries.len() < limit => after = last,
                _ => return Ok(()),
            }
        }
    }

    /// Takes back the references to entries that the caller does not get after all.
    fn unshow(&self, ctx: &Ctx, entries: &[Entry]) {
        for entry in entries.iter().filter(|e| ctx.refs && e.attr.is_some()) {
            // fails where the cell can change nothing any more
            let _ = self.transact(ctx, |tx| tx.forget(entry.node, 1));
        }
    }

    /// About `limit` records from `from` on, and where to continue (`None`: the range is done). As
    /// of one moment.
    pub(crate) fn scan(&self, from: &Key, to: &Key, limit: usize) -> Result<Page> {
        if let Some(view) = keys::view_of(from) {
            return self.scan_view(view, from, to, limit);
        }
        loop {
            let seq = self.lock().publish_seq;
            let page = self.kv.scan(from, to, limit, false)?;
            let st = self.lock();
            if st.publish_seq != seq {
                continue;
            }
            // each source is cut where it is full; beyond the first cut nothing is known of that
            // source
            let mut end = (page.len() == limit).then(|| page[limit - 1].0.clone());
            let mut changed: BTreeMap<Key, Option<Value>> = BTreeMap::new();
            for overlay in st.overlays() {
                let mut live = 0;
                overlay.scan(from, to, |key, slot| {
                    if end.as_ref().is_some_and(|end| key > end) {
                        return false;
                    }
                    changed.insert(key.clone(), slot.value.clone());
                    live += usize::from(slot.value.is_some());
                    if live == limit {
                        end = Some(key.clone());
                    }
                    live < limit
                });
            }
            drop(st);
            let mut live = page;
            if !changed.is_empty() {
                live.retain(|(key, _)| !changed.contains_key(key));
                live.extend(changed.into_iter().filter_map(|(k, v)| Some((k, v?))));
                live.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            }
            if let Some(end) = &end {
                live.truncate(live.partition_point(|(key, _)| key <= end));
            }
            let mut next = end;
            if live.len() > limit {
                live.truncate(limit);
                next = live.last().map(|(k, _)| k.clone());
            }
            return Ok((live, next.map(|last| keys::after(&last))));
        }
    }

    /// Entries of which another client knows more, and none that have attributes already.
    fn owned_entries(&self, ctx: &Ctx, entries: &[Entry]) -> Option<Vec<NodeId>> {
        if !self.leases.are_exclusive() {
            return None;
        }
        let missing: Vec<NodeId> = entries.iter().filter(|e| e.attr.is_none()).map(|e| e.node).collect();
        Some(self.leases.owned_by_others(ctx.client, &missing)).filter(|owned| !owned.is_empty())
    }

    /// Adds attributes; entries whose inode went away meanwhile are left out.
    fn fill_attrs(&self, ctx: &Ctx, entries: &mut Vec<Entry>) -> Result<()> {
        loop {
            let mut missing = Vec::new();
            let mut st = self.lock();
            let seq = st.publish_seq;
            if let Some(owned) = self.owned_entries(ctx, entries) {
                drop(st);
                drop(self.recall(ctx, &owned)?);
                continue;
            }
            let before = Before::default();
            let which = st.which;
            let mut tx = Tx::new(&mut st, &self.cache, &*self.kv, (ctx, self.now()), &before);
            for entry in entries.iter_mut().filter(|e| e.attr.is_none() && which.has(e.node)) {
                match tx.get(&keys::inode(entry.node)) {
                    Ok(Some(value)) => {
                        let inode = Inode::decode(&value)?;
                        entry.attr = Some(tx.attr(entry.node, &inode));
                        tx.show(entry.node);
                        tx.lease(entry.node);
                    }
                    Ok(None) | Err(Fail::Error(Error::Stale)) => {}
                    Err(Fail::Miss(key)) => missing.push(key),
                    Err(Fail::Error(e)) => return Err(e),
                    Err(_) => {}
                }
            }
            if !tx.leased().is_empty() {
                self.leases.grant(ctx.client, tx.leased());
            }
            tx.finish();
            drop(st);
            if missing.is_empty() {
                entries.retain(|e| e.attr.is_some() || !which.has(e.node));
                return Ok(());
            }
            self.load_all(missing, seq)?;
        }
    }
}
