//! Answers as the serving process does, of which it has only the cell: for tests.

use super::HostCommands;
use crate::backup::{BackupCall, BackupStatus};
use crate::console::sessions::Who;
use crate::control::server::Service;
use crate::control::{ConsoleLink, Flows, MachineSession, NewToken, Running};
use crate::mirror::{MirrorCall, MirrorStatus};
use crate::settings::SrrConfig;
use crate::tokens;
use leeward_auth::Authority;
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, NodeId, Op};
use leeward_vfs::ledger::{FlowReport, Report, Usage};
use leeward_volume::Cell;
use leeward_volume::admin::{AnyReply, AnyRequest, Failure, Progress, Request, TokenMake};
use std::sync::{Arc, Weak};

/// What runs the commands of other machines' users, on this cell, and what answers for them.
pub fn commands(
    env: &Env,
    cell: &Arc<Cell>,
    authority: Option<&Arc<Authority>>,
) -> (Arc<HostCommands>, Arc<StandIn>) {
    let commands = Arc::new(HostCommands::new(env, cell, &SrrConfig::default()));
    let service = Arc::new(StandIn { cell: cell.clone(), authority: authority.cloned() });
    let weak: Weak<StandIn> = Arc::downgrade(&service);
    commands.answer_by(weak);
    (commands, service)
}

/// The reply to a request that an operator makes.
pub fn ask<R: Request>(cell: &Cell, request: R) -> R::Reply {
    let text = format!("{request:?}");
    cell.admin(&request, &mut |_| ()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What is at a path.
pub fn node(cell: &Cell, path: &str) -> NodeId {
    path.split('/').filter(|name| !name.is_empty()).fold(NodeId::ROOT, |dir, name| {
        let op = Op::Lookup { dir, name: name.as_bytes() };
        cell.call(&Ctx::user(0, 0), op).and_then(|reply| reply.attr()).expect("there").node
    })
}

/// See the module's head.
pub struct StandIn {
    cell: Arc<Cell>,
    /// Hears of changes of the cell's accounts, where there is one.
    authority: Option<Arc<Authority>>,
}

impl Service for StandIn {
    fn admin(
        &self,
        caller: &Ctx,
        request: &AnyRequest,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<AnyReply, Failure> {
        let reply = self.cell.admin_any(caller, request, progress);
        if let Some(authority) = &self.authority {
            authority.set_accounts(self.cell.accounts());
        }
        reply
    }

    fn running(&self) -> Result<Running, Failure> {
        Ok(Running { late_scrubs: 1, ..Running::default() })
    }

    /// Of the owners of volumes, in these.
    fn flows(&self) -> Flows {
        let volumes = self.cell.volume_names(0..1000);
        let owner = |volume: &u32| self.cell.volume_owner(*volume).filter(|uid| *uid != 0);
        let flow = |volume: &u32| {
            let usage = Usage { operations: 1_000_000, service_nanos: 7, ..Usage::default() };
            Some(FlowReport { uid: owner(volume)?, job: None, door: "mount".into(), volume: *volume, usage })
        };
        let flows = volumes.keys().filter_map(flow).collect();
        let report = Report { at_nanos: u64::MAX / 2, flows, ..Report::default() };
        Flows { report, volumes, ..Flows::default() }
    }

    fn sessions(&self) -> Vec<MachineSession> {
        Vec::new()
    }

    fn end_session(&self, _: u64) -> bool {
        true
    }

    fn console_link(&self, who: Who, _: Option<&str>) -> Result<ConsoleLink, Failure> {
        Ok(ConsoleLink { urls: Vec::new(), user: format!("{who:?}"), valid_secs: 1 })
    }

    fn make_token(&self, caller: &Ctx, wanted: &TokenMake) -> Result<NewToken, Failure> {
        tokens::make(wanted, |request| {
            self.admin(caller, &wanted.clone().into(), &mut |_| ())?;
            tokens::sign_in(&self.cell, &wanted.user, request, 1)
        })
    }

    fn mirrors(&self, _: &MirrorCall, _: &mut dyn FnMut(Progress)) -> Result<Vec<MirrorStatus>, Failure> {
        Ok(Vec::new())
    }

    fn backups(&self, _: &BackupCall, _: &mut dyn FnMut(Progress)) -> Result<Vec<BackupStatus>, Failure> {
        Ok(Vec::new())
    }

    fn down(&self) {}

    fn next_stage(&self, _: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    fn hears_of_end(&self, _: bool) {}
}
