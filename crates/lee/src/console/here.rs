//! The cell in this process, for the console.

use super::{ConsoleCell, Look, Seat, Timed};
use crate::control::server::{answer_operator, failure, line_of};
use crate::control::{Call, Line};
use crate::host_commands::HostCommands;
use crate::system;
use leeward_env::Ctx;
use leeward_env::histogram::Histogram;
use leeward_vfs::Gate;
use leeward_volume::admin::DfShow;
use leeward_volume::{Cell, StoreFigures};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// See the module's head. Keeps neither the cell nor its commands alive.
pub struct CellHere {
    commands: Weak<HostCommands>,
    gate: Gate,
    cell: Weak<Cell>,
}

impl CellHere {
    /// This cell, behind this gate.
    pub fn new(commands: &Arc<HostCommands>, gate: &Gate, cell: &Arc<Cell>) -> CellHere {
        CellHere { commands: Arc::downgrade(commands), gate: gate.clone(), cell: Arc::downgrade(cell) }
    }
}

impl ConsoleCell for CellHere {
    fn run(&self, seat: &Seat, call: &Call) -> Vec<u8> {
        let ending =
            || line_of(&Line::<()>::Failed(failure(libc::EAGAIN, "the server is just starting or ending")));
        let Some(commands) = self.commands.upgrade() else { return ending() };
        match seat {
            Seat::User { ctx, host } => {
                let mut lines = Vec::new();
                commands.run_for(host.as_deref(), ctx, call, &mut |line| {
                    lines = line.to_vec();
                    true
                });
                lines
            }
            Seat::Operator => {
                let Some(service) = commands.service() else { return ending() };
                let caller = Ctx::user(system::uid(), system::gid());
                let answer = answer_operator(&*service, &caller, call, &mut |_| ());
                answer.unwrap_or_else(|failure| line_of(&Line::<()>::Failed(failure)))
            }
        }
    }

    fn look(&self) -> Option<Look> {
        let cell = self.cell.upgrade()?;
        let totals = self.gate.totals();
        let mut times: BTreeMap<Timed, Histogram> = BTreeMap::new();
        for volume in &totals.volumes {
            times.entry(Timed::Volume(volume.volume)).or_default().add_all(&volume.latency);
        }
        let mut add = |name: &str, figures: &StoreFigures| {
            for (call, took) in [("get", &figures.get.took), ("put", &figures.put.took)] {
                times.entry(Timed::Store(format!("{name}: {call}"))).or_default().add_all(took);
            }
        };
        add("all stores", &cell.figures().store);
        for pool in cell.admin(&DfShow, &mut |_| ()).ok()?.pools {
            for store in pool.health.iter().flat_map(|health| &health.stores) {
                add(&format!("{}, {}", pool.name, store.url), &store.figures);
            }
        }
        let names = cell.volume_names(totals.volumes.iter().map(|of| of.volume));
        Some(Look { report: self.gate.report(), operations: totals.latency, times, names })
    }

    fn lets_in(&self, host: &str) -> bool {
        self.commands.upgrade().is_some_and(|commands| commands.lets_in(host))
    }
}
