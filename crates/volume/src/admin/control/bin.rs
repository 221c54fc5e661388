//! What operators ask about recycle bins.

use super::{Answer, no, refuse};
use crate::admin::{BinEntry, Progress, Reply as AdminReply};
use crate::shard::Shard;
use crate::space::recycle::RestoreBin;
use leeward_env::Ctx;
use leeward_fs::{Error, Kind};

impl Shard {
    pub(super) fn bin_list(&self, ctx: &Ctx, path: Option<&str>) -> Answer {
        let top = path.unwrap_or_default().trim_end_matches('/');
        let is_below =
            |path: &str| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let volumes: Vec<u32> = self.lock().bins.volumes().collect();
        let mut entries = Vec::new();
        for volume in volumes {
            let tree = self.bin_tree(volume).map_err(|e| refuse(&e, "the recycle bin"))?;
            let name = self.volume_name(volume);
            let shown = self.bin_paths(&tree, ctx.uid).into_iter().filter(|(path, _)| is_below(path));
            entries.extend(shown.map(|(path, e)| BinEntry {
                path,
                volume: name.clone(),
                is_dir: e.kind == Kind::Dir,
                bytes: e.bytes,
                removed_secs: e.removed_secs(),
                removed_by: e.record.uid,
                uid: e.owner,
            }));
        }
        entries.sort_by(|a, b| (&a.path, a.removed_secs).cmp(&(&b.path, b.removed_secs)));
        Ok(AdminReply::Bin { entries })
    }

    pub(super) fn bin_restore(&self, ctx: &Ctx, path: &str, at: Option<i64>, to: Option<&str>) -> Answer {
        let target = to.unwrap_or(path).trim_end_matches('/');
        let (above, leaf) = target.rsplit_once('/').unwrap_or(("", target));
        let dir = match to {
            Some(_) => Some(self.resolve(above).map_err(|e| refuse(&e, above))?),
            None => None,
        };
        let restore = RestoreBin { path, at, to: dir.map(|dir| (dir, leaf.as_bytes())) };
        let done = self.restore_bin(ctx, &restore).map_err(|e| match e {
            Error::NotFound => {
                no(libc::ENOENT, format!("{path} is not in the recycle bin: see lee bin list"))
            }
            Error::Exists => no(
                libc::EEXIST,
                format!("the name of {target} is taken: move what has it away, or restore with --to PATH"),
            ),
            e => refuse(&e, target),
        });
        // also what was restored before a failure
        self.settle()?;
        let (restored, left) = done?;
        Ok(AdminReply::BinRestored { restored, left })
    }

    pub(super) fn bin_empty(
        &self,
        ctx: &Ctx,
        volume: Option<&str>,
        progress: &mut dyn FnMut(Progress),
    ) -> Answer {
        let volumes = match volume {
            Some(name) => vec![self.volume_named(name)?],
            None => self.lock().bins.volumes().collect(),
        };
        let mut purged = 0;
        for volume in volumes {
            let owner = self.lock().volumes.get(&volume).map(|v| v.uid);
            if ctx.uid != 0 && Some(ctx.uid) != owner {
                let message = format!(
                    "only root and its owner may empty the recycle bin of volume {}",
                    self.volume_name(volume)
                );
                return Err(no(libc::EPERM, message));
            }
            let each =
                |done| progress(Progress { phase: "recycle bin".into(), done: purged + done, total: 0 });
            purged += self.empty_bin(volume, each).map_err(|e| refuse(&e, "the recycle bin"))?;
        }
        self.settle()?;
        self.maintenance.wake();
        Ok(AdminReply::BinEmptied { purged })
    }
}
