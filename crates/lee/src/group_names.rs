//! Names of groups that users own, for the programs of this machine: a service that the user
//! database of systemd asks (`libnss-systemd`, interface `io.systemd.UserDatabase` of varlink). So
//! `ls -l`, `chgrp` and `setfacl` know the groups, and users get them at login.
//!
//! A socket below `/run/systemd/userdb` is all that is needed. Only root can make it, and only
//! where that directory is. Logins of the machine wait for the answers, so each comes within
//! seconds: where the server does not answer, what it has said before counts.

use crate::control::SocketPath;
use crate::control::server::{FOR_ALL, Handler, InTime, Server, peer, prepare};
use crate::control::users::Turns;
use crate::control::{Call, last_answer};
use crate::system;
use leeward_env::{Env, Nanos};
use leeward_fs::accounts::wrong_name;
use leeward_fs::groups::{cell_name, wrong_group_name};
use leeward_remote::{Client, CommandLost, User};
use leeward_volume::Cell;
use leeward_volume::admin::{GroupFind, GroupKey, SystemGroup, SystemGroups, find_groups};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Where systemd's clients look for services.
pub const SERVICES: &str = "/run/systemd/userdb";
/// How the names of our services begin.
const PREFIX: &str = "org.leeward.";
/// A socket that nobody listens at may be new for this time, seconds.
const SOCKET_NEW_SECS: i64 = 10;
/// Longest call.
const CALL_BYTES_MAX: u64 = 64 << 10;
/// Answers of another machine are used for this time, nanoseconds.
const GOOD: Nanos = 5_000_000_000;
/// How long an answer of another machine is waited for, and how soon it is asked again that was
/// busy.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);
/// Questions that another machine has not answered in time, above which it is not asked.
const LOST_MAX: usize = 4;
/// Connections of a user at the same time, and calls of one.
const CONNECTIONS_OF_USER_MAX: usize = 8;
const CALLS_MAX: usize = 256;
/// Most answers that are kept.
const KEPT_MAX: usize = 20_000;

/// Knows groups of a cell.
pub trait Groups: Send + Sync + 'static {
    /// Those that are asked for.
    ///
    /// # Errors
    /// Why it cannot be said now.
    fn find(&self, key: &GroupKey) -> Result<SystemGroups, String>;
}

/// The service; it ends when this is dropped.
pub struct GroupNames {
    _server: Server,
}

impl GroupNames {
    /// Answers for the cell at this place, if this machine has what it takes. Where not, groups are
    /// numbers here.
    pub fn start(env: &Env, place: &str, groups: impl Groups) -> Option<GroupNames> {
        if system::uid() != 0 || !Path::new(SERVICES).is_dir() {
            return None;
        }
        remove_dead(env);
        let name = service_name(place);
        let turns = Turns::new(CONNECTIONS_OF_USER_MAX, usize::MAX);
        let groups = Box::new(groups);
        let handler = Arc::new(Service { env: env.clone(), name: name.clone(), groups, turns });
        let path = SocketPath::at(Path::new(SERVICES).join(&name));
        let server = path.and_then(|path| Server::listen(env, path, FOR_ALL, handler));
        let server = server.inspect_err(|e| tracing::warn!("{SERVICES}/{name}: names of groups: {e}"));
        Some(GroupNames { _server: server.ok()? })
    }
}

/// Removes sockets that killed processes have left: programs would try each of them. One that was
/// made just now may be about to listen.
fn remove_dead(env: &Env) {
    let now = (env.wall() / 1_000_000_000) as i64;
    let is_old = |meta: &Metadata| now - meta.ctime() > SOCKET_NEW_SECS;
    let sockets = std::fs::read_dir(SERVICES).into_iter().flatten().flatten();
    let ours = sockets.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in ours.map(|entry| entry.path()) {
        let is_refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
        let is_dead = UnixStream::connect(&path).is_err_and(is_refused);
        if is_dead && std::fs::symlink_metadata(&path).is_ok_and(|meta| is_old(&meta)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn service_name(place: &str) -> String {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(place);
    format!("{PREFIX}{hash:016x}")
}

/// Groups of a cell of this process.
pub struct CellGroups(Weak<Cell>);

impl CellGroups {
    /// Of this cell.
    pub fn new(cell: &Arc<Cell>) -> CellGroups {
        CellGroups(Arc::downgrade(cell))
    }
}

impl Groups for CellGroups {
    fn find(&self, key: &GroupKey) -> Result<SystemGroups, String> {
        let accounts = self.0.upgrade().map(|cell| cell.accounts()).ok_or("the cell is closed")?;
        Ok(find_groups(accounts.groups(), key))
    }
}

/// Groups of a cell that another machine serves. What it has said last counts while it is away.
pub struct ServerGroups {
    env: Env,
    client: Client,
    kept: Mutex<HashMap<GroupKey, (Nanos, SystemGroups)>>,
    /// Held while the server is asked: of many processes that want the same one asks.
    asking: Mutex<()>,
    /// Questions that were not answered in time, and are not yet.
    lost: Arc<AtomicUsize>,
}

impl ServerGroups {
    /// Of the cell behind this connection.
    pub fn new(env: &Env, client: &Client) -> ServerGroups {
        let (env, client) = (env.clone(), client.clone());
        ServerGroups { env, client, kept: Mutex::default(), asking: Mutex::default(), lost: Arc::default() }
    }

    fn kept(&self, key: &GroupKey, now: Nanos) -> Option<SystemGroups> {
        let kept = self.kept.lock();
        kept.get(key).filter(|(until, _)| now < *until).map(|(_, groups)| groups.clone())
    }

    /// Asks, and waits for [`ANSWER_MAX`].
    fn ask(&self, key: &GroupKey) -> Result<SystemGroups, String> {
        if let Some((_, why)) = self.client.away() {
            return Err(why);
        }
        if self.lost.load(Ordering::Relaxed) >= LOST_MAX {
            return Err("the server does not answer".into());
        }
        let request = GroupFind { key: key.clone() }.into();
        let call = serde_json::to_vec(&Call::Admin { request }).map_err(|e| e.to_string())?;
        let (told, hears) = sync_channel(1);
        let (env, client, lost) = (self.env.clone(), self.client.clone(), self.lost.clone());
        lost.fetch_add(1, Ordering::Relaxed);
        let asked = self.env.try_spawn("group-names", move || {
            let _ = told.send(answer_of(&env, &client, &call));
            lost.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(e) = asked {
            self.lost.fetch_sub(1, Ordering::Relaxed);
            return Err(e.to_string());
        }
        hears.recv_timeout(ANSWER_MAX).unwrap_or_else(|_| Err("the server does not answer".into()))
    }
}

fn answer_of(env: &Env, client: &Client, call: &[u8]) -> Result<SystemGroups, String> {
    let root = User { uid: 0, gid: 0, gids: Vec::new() };
    let until = env.now() + ANSWER_MAX.as_nanos() as u64;
    loop {
        let mut answer = Vec::new();
        let told = client.command(&root, call, &mut |piece| {
            answer.extend_from_slice(piece);
            true
        });
        match told {
            Ok(()) => (),
            Err(CommandLost::Busy) if env.now() < until => {
                env.sleep(AGAIN);
                continue;
            }
            // a machine that is not told
            Err(CommandLost::NotPermitted | CommandLost::NotLoggedIn) => return Ok(none()),
            Err(lost) => return Err(format!("{lost:?}")),
        }
        return match last_answer(&answer) {
            Some(Ok(found)) => Ok(found),
            Some(Err(_)) => Ok(none()),
            None => Err("the server's answer is not understood".into()),
        };
    }
}

fn none() -> SystemGroups {
    SystemGroups { groups: Vec::new() }
}

impl Groups for ServerGroups {
    fn find(&self, key: &GroupKey) -> Result<SystemGroups, String> {
        if let Some(groups) = self.kept(key, self.env.now()) {
            return Ok(groups);
        }
        let asking = self.asking.try_lock_for(ANSWER_MAX);
        if let Some(groups) = self.kept(key, self.env.now()) {
            return Ok(groups);
        }
        let told = match asking {
            Some(_) => self.ask(key),
            None => Err("the server does not answer".into()),
        };
        let until = self.env.now() + GOOD;
        let groups = told.or_else(|why| self.kept(key, 0).ok_or(why))?;
        let mut all = self.kept.lock();
        if all.len() >= KEPT_MAX {
            all.clear();
        }
        all.insert(key.clone(), (until, groups.clone()));
        Ok(groups)
    }
}

struct Service {
    env: Env,
    name: String,
    groups: Box<dyn Groups>,
    /// Of users' connections. Root's programs log users in, and need none.
    turns: Turns,
}

/// A call of varlink. What else it may say does not matter here.
#[derive(Deserialize)]
struct Asked {
    method: String,
    #[serde(default)]
    parameters: Parameters,
    /// The client takes several answers.
    #[serde(default)]
    more: bool,
    #[serde(default)]
    oneway: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Parameters {
    service: Option<String>,
    gid: Option<u32>,
    group_name: Option<String>,
    user_name: Option<String>,
}

const NO_RECORD: &str = "io.systemd.UserDatabase.NoRecordFound";
const AWAY: &str = "io.systemd.UserDatabase.ServiceNotAvailable";

/// The parameters of each answer, or the name of an error.
type Said = Result<Vec<Value>, &'static str>;

impl Handler for Service {
    fn serve(&self, stream: &UnixStream, is_busy: bool) -> io::Result<()> {
        prepare(stream)?;
        let caller = peer(stream)?;
        let turn = self.turns.take(caller.uid);
        let mut from = BufReader::new(InTime::new(&self.env, stream));
        if caller.uid != 0 && (is_busy || turn.is_none()) {
            return match read_call(&mut from)? {
                Some(asked) => answer(stream, Err(AWAY), asked.more),
                None => Ok(()),
            };
        }
        for _ in 0..CALLS_MAX {
            let Some(asked) = read_call(&mut from)? else { return Ok(()) };
            let said = self.answer(&asked);
            if !asked.oneway {
                answer(stream, said, asked.more)?;
            }
        }
        Ok(())
    }
}

/// The next call; `None`: the client has gone.
fn read_call(from: &mut impl BufRead) -> io::Result<Option<Asked>> {
    let mut text = Vec::new();
    from.take(CALL_BYTES_MAX).read_until(0, &mut text)?;
    match text.pop() {
        Some(0) => Ok(Some(serde_json::from_slice(&text)?)),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
        None => Ok(None),
    }
}

fn answer(mut to: &UnixStream, said: Said, more: bool) -> io::Result<()> {
    let mut text = Vec::new();
    let mut put = |answer: &Value| {
        text.extend_from_slice(answer.to_string().as_bytes());
        text.push(0);
    };
    match said {
        Ok(mut all) => {
            // who does not take several gets one
            all.truncate(if more { usize::MAX } else { 1 });
            let last = all.len().saturating_sub(1);
            all.iter().enumerate().for_each(|(n, parameters)| match n == last {
                true => put(&json!({ "parameters": parameters })),
                false => put(&json!({ "parameters": parameters, "continues": true })),
            });
        }
        Err(error) => put(&json!({ "error": error, "parameters": {} })),
    }
    to.write_all(&text)
}

impl Service {
    fn answer(&self, asked: &Asked) -> Said {
        let of = &asked.parameters;
        match asked.method.as_str() {
            "io.systemd.UserDatabase.GetUserRecord"
            | "io.systemd.UserDatabase.GetGroupRecord"
            | "io.systemd.UserDatabase.GetMemberships"
                if of.service.as_deref() != Some(&*self.name) =>
            {
                Err("io.systemd.UserDatabase.BadService")
            }
            // users are those of the site
            "io.systemd.UserDatabase.GetUserRecord" => Err(NO_RECORD),
            "io.systemd.UserDatabase.GetGroupRecord" => self.group(of),
            "io.systemd.UserDatabase.GetMemberships" => self.memberships(of),
            _ => Err("org.varlink.service.MethodNotFound"),
        }
    }

    fn find(&self, key: GroupKey) -> Result<Vec<SystemGroup>, &'static str> {
        // what is no name of the cell's is nobody's question there
        let is_asked = match &key {
            GroupKey::Gid(_) => true,
            GroupKey::SystemName(name) => !name.contains(':') && wrong_group_name(&cell_name(name)).is_none(),
            GroupKey::User(name) => wrong_name(name).is_none(),
        };
        if !is_asked {
            return Err(NO_RECORD);
        }
        self.groups.find(&key).map(|found| found.groups).map_err(|why| {
            tracing::debug!("names of groups: {why}");
            AWAY
        })
    }

    fn group(&self, of: &Parameters) -> Said {
        let key = match (of.gid, &of.group_name) {
            (Some(gid), _) => GroupKey::Gid(gid),
            (None, Some(name)) => GroupKey::SystemName(name.clone()),
            (None, None) => return Err("io.systemd.UserDatabase.EnumerationNotSupported"),
        };
        let found = self.find(key)?.into_iter().next().ok_or(NO_RECORD)?;
        if of.group_name.as_ref().is_some_and(|name| *name != found.name) {
            return Err("io.systemd.UserDatabase.ConflictingRecordFound");
        }
        let record = json!({
            "groupName": found.name,
            "gid": found.gid,
            "members": found.users,
            "disposition": "regular",
            "service": self.name,
        });
        Ok(vec![json!({ "record": record, "incomplete": false })])
    }

    fn memberships(&self, of: &Parameters) -> Said {
        let membership = |user: &str, group: &str| json!({ "userName": user, "groupName": group });
        let is_asked = |group: &SystemGroup| of.group_name.as_ref().is_none_or(|name| *name == group.name);
        let found: Vec<Value> = match (&of.user_name, &of.group_name) {
            (Some(user), _) => {
                let groups = self.find(GroupKey::User(user.clone()))?;
                groups
                    .iter()
                    .filter(|group| is_asked(group))
                    .map(|group| membership(user, &group.name))
                    .collect()
            }
            (None, Some(name)) => {
                let groups = self.find(GroupKey::SystemName(name.clone()))?;
                groups.iter().flat_map(|g| g.users.iter().map(|user| membership(user, &g.name))).collect()
            }
            (None, None) => return Err("io.systemd.UserDatabase.EnumerationNotSupported"),
        };
        if found.is_empty() { Err(NO_RECORD) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows two groups of bob.
    struct Two;

    impl Groups for Two {
        fn find(&self, key: &GroupKey) -> Result<SystemGroups, String> {
            let group = |name: &str, gid, users: &[&str]| SystemGroup {
                name: name.into(),
                gid,
                users: users.iter().map(ToString::to_string).collect(),
            };
            let groups = match key {
                GroupKey::Gid(7) => vec![group("a+x", 7, &["bob", "eve"])],
                GroupKey::SystemName(name) if name == "a+x" => vec![group("a+x", 7, &["bob", "eve"])],
                GroupKey::User(name) if name == "bob" => vec![group("a+x", 7, &[]), group("a+y", 8, &[])],
                GroupKey::User(name) if name == "late" => return Err("away".into()),
                _ => Vec::new(),
            };
            Ok(SystemGroups { groups })
        }
    }

    /// All that is answered to a call with these parameters.
    fn ask(method: &str, parameters: Value, more: bool) -> Vec<Value> {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let (env, turns) = (Env::real(), Turns::new(1, 1));
        let service = Service { env, name: "org.leeward.x".into(), groups: Box::new(Two), turns };
        let method = format!("io.systemd.UserDatabase.{method}");
        let call = json!({ "method": method, "parameters": parameters, "more": more }).to_string();
        (&ours).write_all(&[call.as_bytes(), &[0]].concat()).expect("sent");
        ours.shutdown(std::net::Shutdown::Write).expect("all of it");
        service.serve(&theirs, false).expect("answered");
        drop(theirs);
        let mut text = String::new();
        (&ours).read_to_string(&mut text).expect("read");
        text.split_terminator('\0').map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn a_group_is_found_by_number_and_by_name() {
        for by in [json!({"gid": 7}), json!({"groupName": "a+x"}), json!({"gid": 7, "groupName": "a+x"})] {
            let mut parameters = by;
            parameters["service"] = "org.leeward.x".into();
            let said = ask("GetGroupRecord", parameters, false);
            let record = &said[0]["parameters"]["record"];
            assert_eq!((&record["groupName"], &record["gid"]), (&json!("a+x"), &json!(7)));
            assert_eq!(record["members"], json!(["bob", "eve"]));
        }
    }

    #[test]
    fn memberships_are_of_a_user_or_of_a_group() {
        let of = |parameters| ask("GetMemberships", parameters, true);
        let said = of(json!({"userName": "bob", "service": "org.leeward.x"}));
        assert_eq!((said.len(), &said[0]["continues"]), (2, &json!(true)));
        assert_eq!(said[1], json!({"parameters": {"userName": "bob", "groupName": "a+y"}}));
        assert_eq!(of(json!({"groupName": "a+x", "service": "org.leeward.x"})).len(), 2);
        let both = of(json!({"userName": "bob", "groupName": "a+x", "service": "org.leeward.x"}));
        assert_eq!(both, [json!({"parameters": {"userName": "bob", "groupName": "a+x"}})]);
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let error = |method, parameters| {
            let said = ask(method, parameters, true);
            said[0]["error"].as_str().expect("an error").rsplit('.').next().expect("a name").to_string()
        };
        let ours = |mut parameters: Value| {
            parameters["service"] = "org.leeward.x".into();
            parameters
        };
        for (method, parameters, wrong) in [
            ("GetUserRecord", ours(json!({"userName": "bob"})), "NoRecordFound"),
            ("GetGroupRecord", ours(json!({"gid": 8})), "NoRecordFound"),
            ("GetGroupRecord", ours(json!({"gid": 7, "groupName": "a+y"})), "ConflictingRecordFound"),
            ("GetGroupRecord", ours(json!({})), "EnumerationNotSupported"),
            ("GetMemberships", ours(json!({"userName": "eve"})), "NoRecordFound"),
            ("GetMemberships", ours(json!({"userName": "late"})), "ServiceNotAvailable"),
            ("GetGroupRecord", json!({"gid": 7, "service": "other"}), "BadService"),
            ("Paint", ours(json!({})), "MethodNotFound"),
        ] {
            assert_eq!(error(method, parameters.clone()), wrong, "{method} {parameters}");
        }
    }
}
