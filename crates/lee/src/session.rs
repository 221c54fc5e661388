//! A command's way to the cell: through the process that serves it, or else by opening the cell
//! under its lock.
//!
//! For a moment neither may be possible: a process is just starting or ending, or another command
//! has the cell open. The session tries again for some seconds.

use crate::control::NewToken;
use crate::control::client::{Client, Unreached};
use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::lock::{self, CellLock, Holder, NotTaken};
use crate::{control, groups, place, settings, system, tokens};
use leeward_env::{Ctx, Env};
use leeward_volume::Cell;
use leeward_volume::admin::{Progress, Request, TokenMake};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

const REACH_STEP: Duration = Duration::from_millis(50);
const REACH_TRIES: u32 = 200;

/// Asks one cell any number of requests.
pub struct Session {
    env: Env,
    cell: CellDir,
    command: &'static str,
    /// The user who asks. The process itself may act as the owner of the cell.
    caller: Ctx,
    /// The cell, when no process serves it and it is open here.
    own: Option<Own>,
}

struct Own {
    cell: Arc<Cell>,
    after_a_crash: bool,
    _lock: CellLock,
}

enum Reached {
    Serving(Client),
    Own(Own),
}

/// Runs `work` with a session and closes it. When this returns without an error, all changes are
/// durable.
///
/// # Errors
/// Those of `work`, or that the cell cannot be reached or closed.
pub fn with<T>(
    env: &Env,
    cell: &CellDir,
    command: &'static str,
    work: impl FnOnce(&mut Session) -> Result<T, Fail>,
) -> Result<T, Fail> {
    let caller = Ctx { pid: std::process::id(), ..Ctx::user(system::uid(), system::gid()) };
    let mut session = Session { env: env.clone(), cell: cell.clone(), command, caller, own: None };
    let result = work(&mut session);
    let closed = session.close();
    let value = result?;
    closed?;
    Ok(value)
}

impl Session {
    /// Asks.
    ///
    /// # Errors
    /// What the cell says, or that it cannot be reached.
    pub fn ask<R: Request>(&mut self, request: &R) -> Result<R::Reply, Fail> {
        self.ask_with_progress(request, &mut |_| ())
    }

    /// Asks, and hears how far the request is.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub fn ask_with_progress<R: Request>(
        &mut self,
        request: &R,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<R::Reply, Fail> {
        if let Some(client) = self.serving()? {
            return client.admin(request, progress);
        }
        let cell = self.own()?;
        groups::refuse_unknown(&cell.accounts(), &request.clone().into())?;
        Ok(cell.admin_as(&self.caller, request, progress)?)
    }

    /// Asks for a token.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub fn make_token(&mut self, wanted: &TokenMake) -> Result<NewToken, Fail> {
        if let Some(client) = self.serving()? {
            return client.make_token(wanted);
        }
        let cell = self.own()?;
        let made = tokens::make(wanted, |request| {
            cell.admin_as(&self.caller, wanted, &mut |_| ())?;
            tokens::sign_in(cell, &wanted.user, request, self.env.random())
        });
        Ok(made?)
    }

    /// The process that serves the cell; `None`: nobody does, and it is open here.
    fn serving(&mut self) -> Result<Option<Client>, Fail> {
        if self.own.is_none() {
            match self.reach()? {
                Reached::Serving(client) => return Ok(Some(client)),
                Reached::Own(own) => self.own = Some(own),
            }
        }
        Ok(None)
    }

    fn own(&self) -> Result<&Cell, Fail> {
        let own = self.own.as_ref().ok_or_else(|| Fail::new(format!("{}: not open", self.cell)))?;
        Ok(&own.cell)
    }

    /// Whether the cell is open here, and the process that served it last did not end in order.
    pub fn is_after_a_crash(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.after_a_crash)
    }

    fn reach(&mut self) -> Result<Reached, Fail> {
        let mut held: Option<Holder> = None;
        for _ in 0..REACH_TRIES {
            match Client::connect(&self.cell) {
                Ok(client) => return Ok(Reached::Serving(client)),
                Err(Unreached::Failed(fail)) => return Err(fail),
                Err(Unreached::Silent) if self.cell.remote().is_some() => {
                    return Err(unserved_mount(&self.cell));
                }
                Err(Unreached::Silent) => (),
            }
            match self.open() {
                Ok(own) => return Ok(Reached::Own(own)),
                Err(NotTaken::Failed(fail)) => return Err(fail),
                // A process on another machine has its socket there.
                Err(NotTaken::Held(Some(h))) if !h.is_here() => return Err(lock::held(&self.cell, Some(&h))),
                Err(NotTaken::Held(h)) => held = h,
            }
            self.env.sleep(REACH_STEP);
        }
        Err(lock::held(&self.cell, held.as_ref()))
    }

    /// Opens the cell, which nobody serves.
    fn open(&mut self) -> Result<Own, NotTaken> {
        self.cell.prepare().map_err(NotTaken::Failed)?;
        act_as_owner(&self.cell).map_err(NotTaken::Failed)?;
        system::make_private_files();
        hold(&mut self.cell).map_err(NotTaken::Failed)?;
        let lock = lock::take(&self.env, &self.cell, self.command)?;
        let after_a_crash = control::is_left_behind(&self.cell);
        place::refuse_if_served(&self.env, &self.cell).map_err(|failure| NotTaken::Failed(failure.into()))?;
        let config = settings::load(&self.cell).map_err(NotTaken::Failed)?;
        let cell = place::open(&self.env, &self.cell, &config.engine(), None).map_err(NotTaken::Failed)?;
        Ok(Own { cell, after_a_crash, _lock: lock })
    }

    fn close(self) -> Result<(), Fail> {
        match self.own {
            Some(own) => Ok(own.cell.close()?),
            None => Ok(()),
        }
    }
}

/// The message for a mount from another machine whose process does not listen.
pub fn unserved_mount(cell: &CellDir) -> Fail {
    let at = cell.remote().map(|mount| mount.at.display().to_string()).unwrap_or_default();
    Fail::new(format!(
        "{at}: the process of this mount does not listen: mount it again, or name its state directory \
         (LEE_STATE_DIR) if it has one"
    ))
}

/// Keeps the directory of the cell open, so that its path goes on to mean this directory.
fn hold(cell: &mut CellDir) -> Result<(), Fail> {
    cell.hold().map(drop).map_err(|e| Fail::new(format!("{cell}: {}", text(&e))))
}

/// Makes root act as the owner of the cell. Files that root makes there could not be opened by the
/// user who serves the cell.
fn act_as_owner(cell: &CellDir) -> Result<(), Fail> {
    let failed = |e: std::io::Error| Fail::new(format!("{cell}: cannot act as its owner: {}", text(&e)));
    let owner = std::fs::metadata(cell.lock()).or_else(|_| std::fs::metadata(cell.path())).map_err(failed)?;
    if system::uid() != 0 || owner.uid() == 0 {
        return Ok(());
    }
    system::become_user(owner.uid(), owner.gid()).map_err(failed)
}
