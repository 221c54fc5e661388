//! Other machines that mount the cell: the server for them, and what it asks about hosts.

use crate::control::MachineSession;
use crate::fail::{Fail, text};
use crate::gateway::access::{Access, DoorSettings};
use crate::host_commands::HostCommands;
use crate::servers::Member;
use crate::settings::CellSettings;
use leeward_auth::Authority;
use leeward_door::listen;
use leeward_env::{Ctx, Env, Term, Wait};
use leeward_fs::accounts::{Accounts, HostRecord, Trust};
use leeward_fs::sessions::Sessions;
use leeward_fs::{NodeId, Op};
use leeward_remote::message::LoginAnswer;
use leeward_remote::{
    Asker, CellUser, Elsewhere, Given, Grant, HostFigures, Hosts, Keys, Loss, PublicKey, Server, ServerList,
    SessionInfo, Transfers,
};
use leeward_vfs::Gate;
use leeward_volume::Cell;
use leeward_volume::admin::{self, TransferDoor, Transferred};
use leeward_volume::format::buckets::Buckets;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// The port of a server, where none is named.
pub const PORT: u16 = 7433;

/// Addresses that are bound.
pub struct Bound(Vec<TcpListener>);

/// Binds the addresses.
///
/// # Errors
/// When one cannot be bound.
pub fn bind(addresses: &[String]) -> Result<Bound, Fail> {
    let failed = |e: listen::AddressError| Fail::new(format!("--listen: {e}"));
    let mut all = Vec::new();
    for address in addresses {
        all.extend(listen::parse(address).map_err(failed)?);
    }
    listen::listen_at(&all).map(Bound).map_err(failed)
}

/// The server for other machines.
pub struct Machines {
    server: Server,
}

impl Bound {
    /// The addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Tells clients which other servers there are, until the result is dropped.
    ///
    /// # Errors
    /// What the system says.
    pub fn stand_by(
        self,
        env: &Env,
        keys: &Keys,
        servers: impl Fn() -> ServerList + Send + Sync + 'static,
    ) -> Result<Elsewhere, Fail> {
        let started = Elsewhere::start(env, keys, self.0, servers);
        started.map_err(|e| Fail::new(format!("clients cannot be told who has the cell: {}", text(&e))))
    }

    /// Prepares the gate for locks between machines, if there are addresses. Before the cell is
    /// mounted.
    pub fn share_locks(&self, cell: &Cell, gate: &Gate) {
        if !self.0.is_empty() {
            gate.share_locks(|| has_hosts(cell));
        }
    }

    /// Serves the cell to other machines, if there are addresses. `member`: of several servers of
    /// the cell this one, and the number of its turn.
    ///
    /// # Errors
    /// What the system says, or the cell of its key.
    pub fn serve(
        self,
        env: &Env,
        (cell, gate): (&Arc<Cell>, &Gate),
        (authority, commands): (&Arc<Authority>, &Arc<HostCommands>),
        (config, member): (&CellSettings, Option<(Arc<Member>, u64)>),
    ) -> Result<Option<Arc<Machines>>, Fail> {
        if self.0.is_empty() {
            forget_sessions(cell)?;
            return Ok(None);
        }
        cell.prepare_identity()?;
        let accounts = cell.accounts();
        let identity = accounts.identity().ok_or_else(|| Fail::new("the cell has no key of its own"))?;
        let refused = |e: &dyn std::fmt::Display| Fail::new(format!("other machines cannot be served: {e}"));
        let keys = Keys::from_seed(&identity.seed).map_err(|e| refused(&e))?;
        if let Some((member, _)) = &member {
            member.leave_key(&identity.seed)?;
        }
        let hosts = Arc::new(CellHosts {
            env: env.clone(),
            cell: cell.clone(),
            commands: commands.clone(),
            settings: DoorSettings::of(config),
            authority: authority.clone(),
            told: Mutex::default(),
            member: member.clone(),
        });
        let parts = (gate, cell.leases(), cell.clone() as Arc<dyn Sessions>);
        let server = Server::start(env, parts, &keys, hosts, self.0).map_err(|e| refused(&text(&e)))?;
        if !server.wait_recovered() {
            let why = "clients of the process before cannot go on; the log says why";
            if let Some((member, _)) = &member {
                // what is known of them is for the next server
                member.quit(why);
            }
            return Err(refused(&why));
        }
        Ok(Some(Arc::new(Machines { server })))
    }
}

/// Nobody serves the cell: clients of a process before cannot come back, and others need not wait.
fn forget_sessions(cell: &Cell) -> Result<(), Fail> {
    let failed = |e: leeward_fs::Error| Fail::new(format!("sessions of other machines cannot be ended: {e}"));
    for session in cell.sessions() {
        cell.end_session(session.number).map_err(failed)?;
    }
    cell.keep_all_inodes(false);
    cell.go_on().map_err(failed)
}

impl Machines {
    /// Where it listens.
    pub fn addresses(&self) -> Vec<String> {
        self.server.addresses().iter().map(ToString::to_string).collect()
    }

    /// Hosts were changed.
    pub fn hosts_changed(&self) {
        self.server.hosts_changed();
    }

    /// Members of groups were changed.
    pub fn groups_changed(&self) {
        self.server.groups_changed();
    }

    /// Machines that are connected.
    pub fn sessions(&self) -> Vec<MachineSession> {
        self.server.sessions().into_iter().map(shown).collect()
    }

    /// What each machine has asked for.
    pub fn figures(&self) -> Vec<HostFigures> {
        self.server.host_figures()
    }

    /// What went between the server and machines.
    pub fn transferred(&self) -> Vec<Transferred> {
        let of = |(transfers, ipv6): (Transfers, bool)| Transferred {
            door: TransferDoor::Mount,
            ipv6,
            requests: transfers.requests,
            received_bytes: transfers.received_bytes,
            sent_bytes: transfers.sent_bytes,
        };
        self.server.transfers().into_iter().zip([false, true]).map(of).collect()
    }

    /// What machines have told their programs and is lost.
    pub fn losses(&self) -> Vec<Loss> {
        self.server.losses()
    }

    /// Ends a session; false: there is none of that number.
    pub fn end_session(&self, number: u64) -> bool {
        self.server.end_session(number)
    }

    /// Takes no more requests.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Tells all machines how the cell was closed.
    pub fn hang_up(&self, durable: bool) {
        self.server.hang_up(durable);
    }
}

fn shown(info: SessionInfo) -> MachineSession {
    MachineSession {
        session: info.number,
        host: info.host,
        address: info.address.map(|address| address.to_string()),
        age_secs: info.age / 1_000_000_000,
        silent_ms: info.silent / 1_000_000,
        inodes: info.inodes,
        leases: info.leases,
        requests: info.calls,
        locks: info.locks,
        unflushed: info.unflushed,
        users: info.users,
    }
}

/// Directories, and names in them.
type Ways = BTreeMap<NodeId, BTreeSet<Box<[u8]>>>;

/// The hosts of a cell.
struct CellHosts {
    env: Env,
    cell: Arc<Cell>,
    commands: Arc<HostCommands>,
    settings: DoorSettings,
    /// Judges the tokens of users who log in.
    authority: Arc<Authority>,
    /// What gateways were told last.
    told: Mutex<Option<Told>>,
    /// Of several servers of the cell this one, and the number of its turn.
    member: Option<(Arc<Member>, u64)>,
}

/// What gateways are told, and what it was made of.
struct Told {
    accounts: Arc<Accounts>,
    buckets: Arc<Buckets>,
    version: u64,
    bytes: Arc<[u8]>,
}

impl Hosts for CellHosts {
    fn host_of(&self, key: &PublicKey) -> Option<(String, Grant)> {
        let accounts = self.cell.accounts();
        let (name, record) = accounts.host_of_key(key)?;
        Some((name.to_owned(), self.grant(record)))
    }

    fn enrol(&self, secret: &[u8; 16], key: PublicKey) -> Result<(), String> {
        match self.cell.enrol_host(secret, key) {
            Ok(name) => {
                tracing::info!("the host {name} has enrolled");
                Ok(())
            }
            Err(failure) => Err(failure.message),
        }
    }

    fn access(&self) -> (u64, Arc<[u8]>) {
        let (accounts, buckets) = (self.cell.accounts(), self.cell.buckets());
        let mut told = self.told.lock();
        let is_same =
            |told: &&Told| told.accounts.has_users_of(&accounts) && Arc::ptr_eq(&told.buckets, &buckets);
        if let Some(told) = told.as_ref().filter(is_same) {
            return (told.version, told.bytes.clone());
        }
        let bytes: Arc<[u8]> = Access::of(&accounts, &buckets, &self.settings).to_bytes().into();
        // another process may have told other things under a number that it counted
        let version = u64::from_le_bytes(self.env.secret()).max(1);
        *told = Some(Told { accounts, buckets, version, bytes: bytes.clone() });
        (version, bytes)
    }

    fn are_any(&self) -> bool {
        has_hosts(&self.cell)
    }

    fn login(&self, host: &str, token: &str, wait: Wait) -> LoginAnswer {
        match self.authority.login(token, host, wait) {
            Ok((who, until_secs)) => {
                let (gid, gids) = (who.gid(), who.other_gids().to_vec());
                LoginAnswer::In(CellUser { name: (*who.name).into(), uid: who.uid, gid, gids, until_secs })
            }
            Err(refusal) if refusal.is_passing() => LoginAnswer::Later(refusal.to_string()),
            Err(refusal) => LoginAnswer::Refused(refusal.to_string()),
        }
    }

    fn term(&self) -> Term {
        self.member.as_ref().map_or_else(Term::endless, |(member, _)| member.term().clone())
    }

    fn is_lost(&self) -> bool {
        self.member.as_ref().is_some_and(|(member, _)| member.term().is_over() || self.cell.lost().is_some())
    }

    fn servers(&self) -> Option<ServerList> {
        self.member.as_ref().map(|(member, turn)| member.list(Some(*turn)))
    }

    fn command(&self, asker: &Asker, call: &[u8], given: &Arc<Given>, tell: &mut dyn FnMut(&[u8]) -> bool) {
        self.commands.run(asker, call, given, tell);
    }
}

/// Whether a machine may have locks that a server before has given it.
fn has_hosts(cell: &Cell) -> bool {
    cell.accounts().hosts().any(|(_, host)| host.key.is_some())
}

impl CellHosts {
    fn grant(&self, record: &HostRecord) -> Grant {
        Grant {
            read_only: record.read_only,
            root_squash: record.root_squash,
            by_tokens: record.trust == Trust::User,
            gateway: record.gateway,
            mirror: record.mirror,
            uids: record.uids.iter().map(|range| (range.first, range.last)).collect(),
            volumes: record.volumes.clone(),
            ways: if record.volumes.is_empty() { Ways::new() } else { self.ways(&record.volumes) },
        }
    }

    /// The directories that lead from the root of the cell to volumes, with the names in them.
    fn ways(&self, volumes: &[u32]) -> Ways {
        let mut ways = Ways::from([(NodeId::ROOT, BTreeSet::new())]);
        for name in self.cell.volume_names(volumes.iter().copied()).into_values() {
            let shown = self.cell.admin(&admin::VolumeShow { name }, &mut |_| ());
            // a volume may have got the name of one that is being removed
            let Some(volume) = shown.ok().filter(|volume| volumes.contains(&volume.id)) else { continue };
            let mut dir = NodeId::ROOT;
            for name in volume.at.split('/').filter(|name| !name.is_empty()) {
                let op = Op::Lookup { dir, name: name.as_bytes() };
                let Ok(found) = leeward_fs::Fs::call(&*self.cell, &Ctx::system(), op).and_then(|r| r.attr())
                else {
                    break;
                };
                ways.entry(dir).or_default().insert(name.as_bytes().into());
                dir = found.node;
            }
        }
        ways
    }
}
