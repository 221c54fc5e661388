//! Notes in the cell what goes through doors, and between the server and mounts of other machines:
//! once a minute, and at the end.
//!
//! What was counted since the last note is lost with a process that is killed. If the answer to a
//! note is lost, what it told may be noted twice.

use super::DoorCell;
use leeward_door::listen::{Family, Figures};
use leeward_env::{Door, Env};
use leeward_volume::admin::{TransferDoor, TransferNote, Transferred};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(60);
/// How long the end waits for the last note: a server that does not answer holds up nobody.
const END_WAIT: Duration = Duration::from_secs(2);

/// See the module's head.
pub struct Tally {
    env: Env,
    cell: Arc<dyn DoorCell>,
    counted: Box<dyn Fn() -> Vec<Transferred> + Send + Sync>,
    /// What is noted, in the order in which it is counted.
    noted: Mutex<Vec<Transferred>>,
}

impl Tally {
    /// Begins to note what this counts, which began with this process: the same doors and families
    /// at each call, in the same order.
    pub fn begin(
        env: &Env,
        cell: &Arc<dyn DoorCell>,
        counted: impl Fn() -> Vec<Transferred> + Send + Sync + 'static,
    ) -> Arc<Tally> {
        let nothing = |of: &Transferred| Transferred { requests: 0, received_bytes: 0, sent_bytes: 0, ..*of };
        let noted = Mutex::new(counted().iter().map(nothing).collect());
        let (clock, cell, counted) = (env.clone(), cell.clone(), Box::new(counted));
        let tally = Arc::new(Tally { env: clock, cell, counted, noted });
        let (weak, env) = (Arc::downgrade(&tally), env.clone());
        env.clone().spawn("door-tally", move || {
            loop {
                env.sleep(STEP);
                let Some(tally) = weak.upgrade() else { return };
                tally.note();
            }
        });
        tally
    }

    /// Notes what is new, if that does not take long.
    pub fn end(self: &Arc<Self>) {
        let (tally, (noted, heard)) = (self.clone(), channel());
        self.env.spawn("door-tally-end", move || {
            tally.note();
            let _ = noted.send(());
        });
        let _ = heard.recv_timeout(END_WAIT);
    }

    /// Notes what is new.
    fn note(&self) {
        let mut noted = self.noted.lock();
        let counted = (self.counted)();
        let new = |(is, was): (&Transferred, &Transferred)| Transferred {
            requests: is.requests - was.requests,
            received_bytes: is.received_bytes - was.received_bytes,
            sent_bytes: is.sent_bytes - was.sent_bytes,
            ..*is
        };
        let is_any = |of: &Transferred| of.requests + of.received_bytes + of.sent_bytes > 0;
        let transfers: Vec<Transferred> = counted.iter().zip(&*noted).map(new).filter(is_any).collect();
        if transfers.is_empty() {
            return;
        }
        match self.cell.note_transfers(&TransferNote { transfers }) {
            Ok(()) => *noted = counted,
            // with the next ones
            Err(failure) => tracing::debug!("what went through doors is not noted yet: {}", failure.message),
        }
    }
}

/// What doors have counted.
pub fn of_doors(figures: &[Arc<Figures>]) -> Vec<Transferred> {
    let of = |figures: &Arc<Figures>, family: Family| {
        let (received_bytes, sent_bytes) = figures.bytes(family);
        let door = match figures.door() {
            Door::S3 => TransferDoor::S3,
            _ => TransferDoor::Http,
        };
        let requests = figures.requests(family).iter().sum();
        Transferred { door, ipv6: family == Family::V6, requests, received_bytes, sent_bytes }
    };
    figures.iter().flat_map(|figures| Family::ALL.map(|family| of(figures, family))).collect()
}
