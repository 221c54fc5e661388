//! `lee server`: the servers of a cell that several share.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{place, when};
use leeward_bucket::{Bucket, Location};
use leeward_servers::{Overview, Record, State, order, overview, record_name};
use leeward_volume::Cell;
use serde_json::json;
use std::time::Duration;

/// A server that has not renewed its record for so long, by the clocks of both machines, is shown
/// as silent.
const SILENT_SECS: i64 = 5;
/// How long another server may take to have the cell, and how often that is looked at.
const DRAIN_STEPS: u32 = 240;
const DRAIN_STEP: Duration = Duration::from_millis(250);
/// A server that lives renews its record within this time.
const REMOVE_LOOK: Duration = Duration::from_millis(2000);

/// List the servers of a cell in a bucket, and say which is to serve nothing
///
/// `lee serve s3://BUCKET/PREFIX` on several machines serves one cell: one of them has it, the
/// others stand by, and take it over when that one dies. Clients follow by themselves.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all servers: which has the cell, and which stand by
    List,
    /// Let a server serve nothing, so that it can be ended without anybody noticing; returns when
    /// another has the cell
    Drain {
        /// Its id as in the list, or its machine's name where that has one server
        server: String,
    },
    /// Let a drained server take the cell again when it is its turn
    Undrain {
        /// Its id, or its machine
        server: String,
    },
    /// Forget a server that is dead or has ended
    Remove {
        /// Its id, or its machine
        server: String,
    },
}

/// Runs it.
///
/// # Errors
/// The store's; there is no such server.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell()?;
    let Some(place) = cell.place() else {
        return Err(Fail::new(format!("{cell} is in a directory: it has one server, see lee status")));
    };
    let servers = Servers { invocation, bucket: place::bucket(place)?, place };
    match &args.action {
        Action::List => servers.list(),
        Action::Drain { server } => servers.drain(server),
        Action::Undrain { server } => servers.undrain(server),
        Action::Remove { server } => servers.remove(server),
    }
}

struct Servers<'a> {
    invocation: &'a Invocation,
    bucket: Bucket,
    place: &'a Location,
}

impl Servers<'_> {
    fn all(&self) -> Result<Overview, Fail> {
        overview(&self.bucket).map_err(Fail::new)
    }

    fn now(&self) -> i64 {
        (self.invocation.env.wall() / 1_000_000_000) as i64
    }

    fn list(&self) -> Result<(), Fail> {
        let (all, format) = (self.all()?, Cell::format_in(&self.bucket)?);
        let now = self.now();
        let shown: Vec<_> = all
            .servers
            .iter()
            .map(|record| {
                json!({
                    "id": record.id,
                    "host": record.host,
                    "pid": record.pid,
                    "state": state(record, (&all, format), now),
                    "has_cell": all.map.owner.as_ref() == Some(&record.id),
                    "draining": record.draining,
                    "addresses": record.addresses,
                    "version": record.version,
                    "newest_format": record.newest_format,
                    "since": record.since_secs,
                    "renewed": record.renewed_secs,
                })
            })
            .collect();
        let value =
            json!({"servers": shown, "owner": all.map.owner, "turn": all.map.epoch, "damaged": all.damaged});
        output::show(self.invocation.format, &value, || {
            let mut text = if all.servers.is_empty() {
                format!("no server of {} has joined: start one with `lee serve {}`\n", self.place, self.place)
            } else {
                let columns = [
                    ("SERVER", Side::Left),
                    ("HOST", Side::Left),
                    ("STATE", Side::Left),
                    ("SINCE", Side::Right),
                    ("VERSION", Side::Left),
                    ("FORMAT", Side::Right),
                    ("ADDRESSES", Side::Left),
                ];
                Table::new(&columns).rows(&all.servers, |record| row(record, (&all, format), now)).to_string()
            };
            all.damaged.iter().for_each(|what| text.push_str(&format!("ALARM {what}\n")));
            text
        })
    }

    /// The server of this id, or the one on this machine that has not ended.
    fn find(&self, all: &Overview, server: &str) -> Result<Record, Fail> {
        if let Some(record) = all.servers.iter().find(|record| record.id == server) {
            return Ok(record.clone());
        }
        let of_host = |record: &&Record| record.host == server;
        let alive = |record: &&Record| of_host(record) && record.state == State::Alive;
        let mut found: Vec<&Record> = all.servers.iter().filter(alive).collect();
        if found.is_empty() {
            found = all.servers.iter().filter(of_host).collect();
        }
        match found[..] {
            [one] => Ok(one.clone()),
            [] => Err(Fail::new(format!("there is no server {server}: see lee server list"))),
            _ => Err(Fail::new(format!(
                "{server} has {} servers: name one by its id, see lee server list",
                found.len()
            ))),
        }
    }

    fn order(&self, record: &Record, change: impl Fn(&mut Record)) -> Result<(), Fail> {
        match order(&self.bucket, &record.id, change).map_err(Fail::new)? {
            Some(now) if now.state == State::Alive => Ok(()),
            _ => Err(Fail::new(format!("the server {} has ended: see lee server list", record.id))),
        }
    }

    fn drain(&self, server: &str) -> Result<(), Fail> {
        let env = &self.invocation.env;
        let before = self.all()?;
        let record = self.find(&before, server)?;
        let begun = env.now();
        let has_cell = |all: &Overview| all.map.owner.as_ref() == Some(&record.id);
        let format = Cell::format_in(&self.bucket)?;
        let may_take = |other: &&Record| {
            other.id != record.id && !other.draining && other.state == State::Alive && other.knows(format)
        };
        if has_cell(&before) && !before.servers.iter().any(|other| may_take(&other)) {
            return Err(Fail::new(format!(
                "no other server stands by to take the cell from {}: start one with `lee serve {}`",
                record.host, self.place
            )));
        }
        self.order(&record, |record| record.draining = true)?;
        for _ in 0..DRAIN_STEPS {
            let all = self.all()?;
            let owner = all.servers.iter().find(|other| all.map.owner.as_ref() == Some(&other.id));
            if let Some(owner) = owner.filter(|_| !has_cell(&all)) {
                let millis = (env.now() - begun) / 1_000_000;
                let value =
                    json!({"server": record.id, "drained": true, "owner": owner.id, "milliseconds": millis});
                return output::show(self.invocation.format, &value, || {
                    format!(
                        "drained {} on {} in {millis} ms; {} has the cell",
                        record.id, record.host, owner.host
                    )
                });
            }
            env.sleep(DRAIN_STEP);
        }
        Err(Fail::new(format!(
            "the server {} was told to serve nothing, and no other has the cell by now: see their logs, and lee server \
             list; lee server undrain takes the order back",
            record.id
        )))
    }

    fn undrain(&self, server: &str) -> Result<(), Fail> {
        let record = self.find(&self.all()?, server)?;
        self.order(&record, |record| record.draining = false)?;
        let value = json!({"server": record.id, "drained": false});
        output::show(self.invocation.format, &value, || {
            format!("{} on {} may have the cell again", record.id, record.host)
        })
    }

    fn remove(&self, server: &str) -> Result<(), Fail> {
        let all = self.all()?;
        let record = self.find(&all, server)?;
        self.invocation.env.sleep(REMOVE_LOOK);
        let later = self.all()?;
        let renewed = later.servers.iter().find(|now| now.id == record.id).map(|now| now.renewals);
        if record.state == State::Alive && renewed.is_some_and(|renewals| renewals > record.renewals) {
            return Err(Fail::new(format!(
                "{} on {} is alive: end it there first, with lee down {}",
                record.id, record.host, self.place
            )));
        }
        let name = format!("servers/{}", record_name(&record.id));
        self.bucket.delete(&name).map_err(|e| Fail::new(e.to_string()))?;
        let value = json!({"server": record.id, "removed": true});
        output::show(self.invocation.format, &value, || format!("removed {} on {}", record.id, record.host))
    }
}

/// How a server is, in a few words.
fn state(record: &Record, (all, format): (&Overview, u32), now: i64) -> &'static str {
    let owns = all.map.owner.as_ref() == Some(&record.id);
    match record.state {
        State::Dead => "dead",
        State::Ended => "ended",
        State::Alive if now - record.renewed_secs >= SILENT_SECS => "silent",
        State::Alive if owns => "has the cell",
        State::Alive if !record.knows(format) => "too old",
        State::Alive if record.draining => "drained",
        State::Alive => "stands by",
    }
}

fn row(record: &Record, all: (&Overview, u32), now: i64) -> [String; 7] {
    [
        record.id.clone(),
        record.host.clone(),
        state(record, all, now).to_owned(),
        when::ago(now - record.since_secs),
        record.version.clone(),
        match record.newest_format {
            0 => "-".into(),
            newest => newest.to_string(),
        },
        record.addresses.join(" "),
    ]
}
