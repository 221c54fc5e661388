//! The cell in this process, for its doors.

use super::DoorCell;
use crate::settings::SrrConfig;
use crate::{srr, system};
use leeward_env::Env;
use leeward_volume::Cell;
use leeward_volume::admin::{AnyRequest, Failure, TransferNote};
use leeward_volume::format::buckets::Buckets;
use std::sync::{Arc, Weak};

/// See the module's head.
pub struct CellHere {
    env: Env,
    /// Doors do not keep the cell open.
    cell: Weak<Cell>,
    srr: SrrConfig,
}

impl CellHere {
    /// This cell, with the settings of its report.
    pub fn new(env: &Env, cell: &Arc<Cell>, srr: &SrrConfig) -> CellHere {
        CellHere { env: env.clone(), cell: Arc::downgrade(cell), srr: srr.clone() }
    }
}

impl DoorCell for CellHere {
    fn buckets(&self) -> Arc<Buckets> {
        self.cell.upgrade().map(|cell| cell.buckets()).unwrap_or_default()
    }

    fn change_buckets(&self, request: &AnyRequest) -> Result<(), Failure> {
        let ending = || Failure { message: "the cell is ending".into(), errno: libc::EAGAIN };
        let cell = self.cell.upgrade().ok_or_else(ending)?;
        cell.admin_any(&leeward_env::Ctx::system(), request, &mut |_| ()).map(drop)
    }

    fn note_transfers(&self, note: &TransferNote) -> Result<(), Failure> {
        self.change_buckets(&note.clone().into())
    }

    fn report(&self, paths: Option<Vec<String>>) -> Result<String, String> {
        let cell = self.cell.upgrade().ok_or("the cell is ending")?;
        let now = (self.env.wall() / 1_000_000_000) as i64;
        let report = srr::report(&self.srr, system::host(), now, paths.as_deref(), &mut &*cell)
            .map_err(|fail| fail.to_string())?;
        serde_json::to_string_pretty(&report).map_err(|e| e.to_string())
    }
}
