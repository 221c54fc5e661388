//! Commands that users of other machines give: which the cell runs for them, and what it tells
//! them.
//!
//! Only what is in [`ALLOWED`] is run, and only so far as the same user could find it out or do it
//! through the mount. A host is no operator of the cell, and neither is its root. A command names
//! paths, so the server checks the rights on every directory itself, also for hosts whose kernels
//! it believes. Lists leave out what the user may not read.
//!
//! The checks and the request are no transaction: somebody may rename a directory in between, as
//! after a check of a kernel.

mod projects;
#[cfg(test)]
pub mod stand_in;
#[cfg(test)]
mod table;

use crate::console::sessions::Who;
use crate::control::server::{Service, UserCommands, failure, last_line, line_of, now_and_then};
use crate::control::{Call, ConsoleLink, Flows, Line, Running, not_understood};
use crate::doors::{CellHere, DoorCell};
use crate::groups::{in_name_of, name_of};
use crate::mirror::receiver::Mirroring;
use crate::people::Machine;
use crate::settings::SrrConfig;
use crate::system;
use leeward_auth::UserDatabase;
use leeward_env::{Ctx, Env};
use leeward_fs::accounts::HostRecord;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::groups::cell_name;
use leeward_fs::rights::{self, R, X};
use leeward_fs::{Attr, Error, Fs, NodeId, Op};
use leeward_remote::{Asker, Given, Grant};
use leeward_volume::Cell;
use leeward_volume::admin::{
    self, AnyReply, AnyRequest, BinRestore, Change, ChangeKind, Df, Diff, EventList, Failure, OwnerInfo,
    Progress, Refresh, Sampled, SnapDiff, TokenMake, UsageReport,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};

/// What users of other machines may ask of the cell, by [`AnyRequest::name`].
const ALLOWED: [&str; 58] = [
    "AclSet",
    "AclShow",
    "BinEmpty",
    "BinList",
    "BinRestore",
    "BucketCreate",
    "BucketList",
    "BucketRemove",
    "DfShow",
    "EventList",
    "FileCensus",
    "GroupAdd",
    "GroupCreate",
    "GroupDrop",
    "GroupFind",
    "GroupLimit",
    "GroupList",
    "GroupRemove",
    "GroupSet",
    "GroupShow",
    "KeyCreate",
    "KeyList",
    "KeyRevoke",
    "OwnerLimit",
    "OwnerUsage",
    "ProjectCreate",
    "ProjectList",
    "ProjectMove",
    "ProjectRemove",
    "ProjectSet",
    "ProjectShow",
    "QuotaList",
    "QuotaSet",
    "QuotaShow",
    "ScheduleList",
    "ScheduleRemove",
    "ScheduleSet",
    "SnapCreate",
    "SnapDiff",
    "SnapList",
    "SnapRemove",
    "SnapRename",
    "SnapRestore",
    "SnapUsageList",
    "TokenMake",
    "TokenRevoke",
    "UsageReport",
    "UsageShow",
    "UserCreate",
    "UserList",
    "UserShow",
    "VolumeAllow",
    "VolumeCreate",
    "VolumeList",
    "VolumeRemove",
    "VolumeRename",
    "VolumeSet",
    "VolumeShow",
];

/// What gateways may ask besides: their doors have checked what the user may do.
const OF_GATEWAYS: [&str; 4] = ["BucketCreate", "BucketRemove", "BucketSet", "TransferNote"];

/// Changes that a user may ask the cell for in an hour.
const CHANGES_IN_AN_HOUR_MAX: u32 = 1000;
const HOUR: u64 = 3_600_000_000_000;
/// Longest name of a member of a group: of a group that has the longest name of a user in it.
const MEMBER_BYTES_MAX: usize = 97;

/// Longest validity of a token that a user makes: a week, and what two clocks may differ by.
const TOKEN_SECS_MAX: i64 = 7 * 86_400 + 300;

type Checked<T> = Result<T, Failure>;

/// How many changes users have asked for; root by its machine.
type Changes = BTreeMap<(u32, String), u32>;

/// Runs the commands.
pub struct HostCommands {
    env: Env,
    cell: Arc<Cell>,
    srr: SrrConfig,
    /// Such changes, and in which hour.
    changes: Mutex<(u64, Changes)>,
    /// What answers the commands of this machine, too.
    service: OnceLock<Weak<dyn Service>>,
}

impl HostCommands {
    /// For this cell, with the settings of its report.
    pub fn new(env: &Env, cell: &Arc<Cell>, srr: &SrrConfig) -> HostCommands {
        let (env, cell, srr) = (env.clone(), cell.clone(), srr.clone());
        HostCommands { env, cell, srr, changes: Mutex::default(), service: OnceLock::new() }
    }

    /// Counts a request that the cell keeps, so that nobody fills its log, which gives up what is
    /// oldest. Numbers of groups, volumes and projects are not given twice, either.
    fn count_change(&self, asker: &Asker, request: &AnyRequest) -> Checked<()> {
        if !request.is_noted() {
            return Ok(());
        }
        let uid = asker.ctx.uid;
        let machine = if uid == 0 { asker.host.clone() } else { String::new() };
        let hour = self.env.awake() / HOUR;
        let mut changes = self.changes.lock();
        if changes.0 != hour {
            *changes = (hour, BTreeMap::new());
        }
        let count = changes.1.entry((uid, machine)).or_default();
        *count += 1;
        match *count > CHANGES_IN_AN_HOUR_MAX {
            true => Err(refused(
                libc::EAGAIN,
                "you have asked for too many changes within this hour: try again in the next",
            )),
            false => Ok(()),
        }
    }

    /// Runs a command of a user of this machine, or of one who is said to be that on another
    /// machine that is bounded in nothing.
    pub fn run_for(
        &self,
        host: Option<&str>,
        caller: &Ctx,
        call: &Call,
        tell: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        // no host has an empty name
        let host = host.unwrap_or_default().to_owned();
        let asker = Asker { host, grant: Grant::default(), ctx: *caller };
        self.run_call(&asker, Ok(call.clone()), &Arc::default(), tell);
    }

    /// What answers the commands of this machine, too.
    pub fn service(&self) -> Option<Arc<dyn Service>> {
        self.service.get().and_then(Weak::upgrade)
    }

    /// Whether users of another machine may have sessions in the console that began there: it is
    /// believed in who they are, and bounded in nothing.
    pub fn lets_in(&self, host: &str) -> bool {
        self.cell.accounts().host(host).is_some_and(HostRecord::is_unbounded)
    }

    /// From now on this answers.
    pub fn answer_by(&self, service: Weak<dyn Service>) {
        let _ = self.service.set(service);
    }

    /// Runs a command, and tells its answer as the control socket does.
    pub fn run(&self, asker: &Asker, call: &[u8], given: &Arc<Given>, tell: &mut dyn FnMut(&[u8]) -> bool) {
        let call = serde_json::from_slice(call).map_err(|e| not_understood(&e.into()));
        self.run_call(asker, call, given, tell);
    }

    fn run_call(
        &self,
        asker: &Asker,
        call: Checked<Call>,
        given: &Arc<Given>,
        tell: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        let answer = call.and_then(|call| self.answer(asker, &call, given, &mut |line| tell(line)));
        let line = match answer {
            Ok(line) => line,
            Err(failure) => line_of(&Line::<()>::Failed(failure)),
        };
        if !tell(&line) {
            let text = "the answer is too long for another machine: ask about less, or on the server";
            tell(&line_of(&Line::<()>::Failed(failure(libc::EMSGSIZE, text))));
        }
    }

    /// The last line of the answer.
    fn answer(
        &self,
        asker: &Asker,
        call: &Call,
        given: &Arc<Given>,
        tell: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Checked<Vec<u8>> {
        let service =
            self.service().ok_or_else(|| failure(libc::EAGAIN, "the server is just starting or ending"))?;
        let now_secs = (self.env.wall() / 1_000_000_000) as i64;
        let eyes = Eyes { cell: &self.cell, asker, ctx: projects::context(&self.cell, asker), now_secs };
        let is_gateway = asker.grant.gateway && asker.ctx.uid == 0;
        if is_gateway && let Some(answer) = self.answer_gateway(&eyes, call, &*service) {
            return answer;
        }
        if asker.grant.mirror {
            let Call::Admin { request } = call else { return Err(for_operators()) };
            let mut progress = now_and_then(&self.env, |at| _ = tell(&line_of(&Line::<()>::Progress(at))));
            let asked = Mirroring { env: &self.env, asker, service: &*service };
            return asked.answer(request, given, &mut progress).map(|reply| last_line("admin", reply));
        }
        match call {
            Call::Admin { request } => {
                let progress = |progress| _ = tell(&line_of(&Line::<()>::Progress(progress)));
                let mut progress = now_and_then(&self.env, progress);
                self.count_change(asker, request)?;
                admin(&eyes, &*service, request, &mut progress).map(|reply| last_line("admin", reply))
            }
            Call::Status => {
                let running = service.running()?;
                Ok(last_line("running", shown_of_status(running, asker)))
            }
            Call::Flows => Ok(last_line("flows", eyes.flows(service.flows()))),
            Call::ConsoleLink => {
                eyes.console_link(&*service, self).map(|link| last_line("console-link", link))
            }
            Call::MakeToken { wanted } => {
                let wanted = TokenMake { host: eyes.host().map(str::to_owned), ..wanted.clone() };
                let request = AnyRequest::from(wanted.clone());
                self.count_change(asker, &request)?;
                check(&eyes, &request)?;
                service.make_token(&eyes.ctx, &wanted).map(|made| last_line("token", made))
            }
            Call::Sessions
            | Call::EndSession { .. }
            | Call::Mirror { .. }
            | Call::Backup { .. }
            | Call::Down
            | Call::Mount
            | Call::Login { .. }
            | Call::Logout
            | Call::DoorReport { .. }
            | Call::FindUser { .. }
            | Call::FindGroups { .. } => Err(for_operators()),
        }
    }
}

impl HostCommands {
    /// The last line of the answer to a gateway's process; `None`: to what users ask, too.
    fn answer_gateway(
        &self,
        eyes: &Eyes<'_>,
        call: &Call,
        service: &dyn Service,
    ) -> Option<Checked<Vec<u8>>> {
        let told = |why: String| failure(libc::EIO, &why);
        Some(match call {
            Call::Admin { request } if OF_GATEWAYS.contains(&request.name()) => {
                let may = match request {
                    AnyRequest::TransferNote(_) => Ok(()),
                    _ => eyes.may_change(),
                };
                let asked = may.and_then(|()| service.admin(&Ctx::system(), request, &mut |_| ()));
                asked.map(|reply| last_line("admin", reply))
            }
            Call::DoorReport { paths } => {
                let report = CellHere::new(&self.env, &self.cell, &self.srr).report(paths.clone());
                report.map(|text| last_line("report", text)).map_err(told)
            }
            Call::FindUser { name } => {
                let accounts = self.cell.accounts();
                let found = Machine::default().find(name).map(|found| {
                    // the cell tells by itself which of its groups they are in
                    let is_other = |gid: &u32| !accounts.groups().is_number(*gid);
                    found.map(|(uid, gids)| (uid, gids.into_iter().filter(is_other).collect::<Vec<u32>>()))
                });
                found.map(|user| last_line("user", user)).map_err(told)
            }
            Call::FindGroups { name } => {
                Ok(last_line("groups", self.cell.accounts().groups().of_user(name).to_vec()))
            }
            _ => return None,
        })
    }
}

/// A user of this machine is one of a machine that may use all of the cell.
impl UserCommands for HostCommands {
    fn run_here(&self, caller: &Ctx, call: &Call, tell: &mut dyn FnMut(&[u8]) -> bool) {
        self.run_for(None, caller, call, tell);
    }
}

fn for_operators() -> Failure {
    let host = system::host();
    let text =
        format!("this is for operators of the cell: run it as root on the machine that serves it, {host}");
    failure(libc::EPERM, &text)
}

fn refused(errno: i32, text: impl Into<String>) -> Failure {
    failure(errno, &text.into())
}

/// How the server does, without its doors, its machines and what operators are told. Its mount is
/// that of its own users.
fn shown_of_status(running: Running, asker: &Asker) -> Running {
    let is_bounded = !asker.grant.volumes.is_empty();
    let (mount, channel) = match asker.host.is_empty() {
        true => (running.mount.clone(), running.channel.clone()),
        false => (None, String::new()),
    };
    Running {
        mount,
        channel,
        metrics: Vec::new(),
        doors: Vec::new(),
        listen: Vec::new(),
        sessions: 0,
        door_connections: Vec::new(),
        volumes: if is_bounded { asker.grant.volumes.len() as u64 } else { running.volumes },
        dirty_bytes: if is_bounded { 0 } else { running.dirty_bytes },
        snapshots: if is_bounded { 0 } else { running.snapshots },
        late_schedules: 0,
        late_scrubs: 0,
        troubles: Vec::new(),
        journal_bytes: (0, 0),
        clock_ahead_secs: 0,
        service: false,
        server: None,
        ..running
    }
}

/// Runs a request, if the user may ask for it; leaves out of the reply what the user may not see.
fn admin(
    eyes: &Eyes<'_>,
    service: &dyn Service,
    request: &AnyRequest,
    progress: &mut dyn FnMut(Progress),
) -> Checked<AnyReply> {
    let narrowed = narrowed(eyes, request)?;
    let reply = service.admin(&eyes.ctx, &narrowed, progress)?;
    Ok(shown(eyes, request, reply))
}

/// As much of a request as the user may ask.
fn narrowed(eyes: &Eyes<'_>, request: &AnyRequest) -> Checked<AnyRequest> {
    if !ALLOWED.contains(&request.name()) {
        return Err(for_operators());
    }
    check(eyes, request)?;
    Ok(match request {
        AnyRequest::UsageReport(r) => AnyRequest::from(eyes.own_usage(r)?),
        AnyRequest::GroupList(_) => in_name_of(&eyes.name()?, request),
        AnyRequest::KeyCreate(r) => {
            AnyRequest::from(admin::KeyCreate { host: eyes.host().map(str::to_owned), ..r.clone() })
        }
        AnyRequest::TokenMake(r) => {
            AnyRequest::from(TokenMake { host: eyes.host().map(str::to_owned), ..r.clone() })
        }
        _ if request.refresh() == Refresh::Groups => in_name_of(&eyes.name()?, request),
        _ => request.clone(),
    })
}

fn check(eyes: &Eyes<'_>, request: &AnyRequest) -> Checked<()> {
    use AnyRequest as A;
    let as_delegate = eyes.may_as_delegate(request);
    if as_delegate.is_ok() {
        return Ok(());
    }
    match request {
        A::UsageShow(r) => eyes.may(&r.path, R).map(drop),
        A::QuotaShow(r) => eyes.may(&r.path, R).map(drop),
        A::DfShow(_) | A::QuotaList(_) | A::OwnerUsage(_) | A::BinList(_) | A::UsageReport(_) => Ok(()),
        A::AclShow(r) => eyes.may(&r.path, 0).map(drop),
        // the cell checks whose files they are
        A::AclSet(r) => eyes.may_change().and_then(|()| eyes.may(&r.path, 0)).map(drop),
        A::EventList(r) => eyes.may_read_events(r),
        A::FileCensus(r) => {
            let dir = eyes.may(&r.path, R | X)?;
            eyes.owns_volume(dir.node, "what files there are")
        }
        A::SnapList(r) => match (&r.path, &r.volume) {
            (_, Some(_)) => Err(refused(libc::EPERM, "name a directory of the volume, not the volume")),
            (Some(path), None) => eyes.may(path, X).map(drop),
            (None, None) => Ok(()),
        },
        A::SnapDiff(r) => {
            let dir = eyes.may(&r.path, R | X)?;
            eyes.owns(&dir, &r.path)
        }
        // the cell checks who may take, remove and rename snapshots
        A::SnapCreate(r) => eyes.may_change().and_then(|()| eyes.may(&r.path, X)).map(drop),
        A::SnapRemove(r) => eyes.may_change().and_then(|()| eyes.may(&r.path, X)).map(drop),
        A::SnapRename(r) => eyes.may_change().and_then(|()| eyes.may(&r.path, X)).map(drop),
        A::SnapRestore(r) => {
            eyes.may_change()?;
            if eyes.ctx.uid != 0 {
                // it brings back files of all owners
                let text = format!("only root may: copy it, with cp -a, from {}/.snap/{}", r.path, r.name);
                return Err(refused(libc::EPERM, text));
            }
            eyes.may(&r.path, X)?;
            r.to.as_ref().map_or(Ok(()), |to| eyes.may(above(to), X).map(drop))
        }
        A::BinRestore(r) => check_bin_restore(eyes, r),
        A::BinEmpty(r) => {
            eyes.may_change()?;
            let name = r.volume.as_ref();
            let name =
                name.ok_or_else(|| refused(libc::EINVAL, "name the volume whose bin is to be emptied"))?;
            let is_its_own = eyes.volumes().is_none_or(|names| names.contains(name));
            if is_its_own { Ok(()) } else { Err(refused(libc::ENOENT, format!("no volume {name}"))) }
        }
        A::KeyCreate(r) => eyes.may_open_doors(&r.user),
        A::KeyRevoke(r) => eyes.may_open_doors(&r.user),
        A::TokenMake(r) => eyes.may_open_doors(&r.user).and_then(|()| eyes.ends_soon(r.until_secs)),
        A::TokenRevoke(r) => {
            r.user.as_deref().map_or_else(|| Err(for_operators()), |user| eyes.may_open_doors(user))
        }
        A::KeyList(r) => {
            r.user.as_deref().map_or_else(|| Err(for_operators()), |user| eyes.may_open_doors(user))
        }
        A::UserShow(r) => eyes.may_open_doors(&r.name),
        A::UserList(_) if eyes.ctx.uid != 0 => eyes.name().and_then(|own| eyes.may_open_doors(&own)),
        A::UserCreate(r) if r.uid.is_none() && r.gids.is_empty() => eyes.may_open_doors(&r.name),
        _ => eyes.check_groups(request).unwrap_or(as_delegate),
    }
}

/// The cell checks whose files they are.
fn check_bin_restore(eyes: &Eyes<'_>, r: &BinRestore) -> Checked<()> {
    eyes.may_change()?;
    // what is above it may be in the bin, too
    let last = match eyes.walk(&r.path) {
        Ok(attr) => attr.node,
        Err((last, Error::NotFound)) => last,
        Err((_, e)) => return Err(about(&r.path, &e)),
    };
    if !eyes.asker.grant.has(last) {
        return Err(about(&r.path, &Error::Access));
    }
    r.to.as_ref().map_or(Ok(()), |to| eyes.may(above(to), X).map(drop))
}

fn above(path: &str) -> &str {
    path.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above)
}

fn about(path: &str, e: &Error) -> Failure {
    refused(e.errno(), format!("{path}: {e}"))
}

fn shown(eyes: &Eyes<'_>, request: &AnyRequest, reply: AnyReply) -> AnyReply {
    match (request, reply) {
        (_, AnyReply::QuotaList(mut list)) => {
            list.quotas
                .retain(|quota| eyes.looks_after_path(&quota.path) || eyes.may(&quota.path, R).is_ok());
            AnyReply::QuotaList(list)
        }
        (_, AnyReply::OwnerUsage(mut list)) => {
            let (names, his) = (eyes.volumes(), eyes.names_looked_after());
            let is_in_his = |owner: &OwnerInfo| owner.volume.as_ref().is_some_and(|name| his.contains(name));
            list.owners.retain(|owner| is_in_his(owner) || eyes.is_own(owner, names.as_ref()));
            list.counting.retain(|volume| names.as_ref().is_none_or(|names| names.contains(volume)));
            AnyReply::OwnerUsage(list)
        }
        (AnyRequest::SnapList(r), AnyReply::SnapList(mut list)) => {
            if r.path.is_none() && r.volume.is_none() {
                list.snapshots
                    .retain(|snap| eyes.looks_after_path(&snap.path) || eyes.may(&snap.path, X).is_ok());
            }
            if !eyes.sees_all() && r.volume.is_none() {
                list.usage.clear();
            }
            AnyReply::SnapList(list)
        }
        (_, AnyReply::BinList(mut bin)) => {
            if let Some(names) = eyes.volumes() {
                bin.entries.retain(|entry| names.contains(&entry.volume));
                bin.all = bin.entries.len() as u64;
            }
            AnyReply::BinList(bin)
        }
        (AnyRequest::SnapDiff(r), AnyReply::SnapDiff(diff)) => {
            AnyReply::SnapDiff(Box::new(eyes.diff(r, *diff)))
        }
        (_, AnyReply::VolumeList(mut list)) => {
            list.volumes.retain(|volume| !volume.removing && eyes.is_his(volume.id));
            AnyReply::VolumeList(list)
        }
        (_, AnyReply::UserList(mut list)) => {
            let own = eyes.name().ok();
            list.users.retain(|user| own.as_ref() == Some(&user.name));
            AnyReply::UserList(list)
        }
        (_, AnyReply::ScheduleList(mut list)) => {
            list.schedules.retain(|schedule| eyes.looks_after_path(&schedule.path));
            AnyReply::ScheduleList(list)
        }
        (_, AnyReply::BucketList(mut list)) => {
            list.buckets.retain(|bucket| eyes.looks_after_path(&bucket.path));
            AnyReply::BucketList(list)
        }
        (_, AnyReply::DfShow(df)) => AnyReply::DfShow(Box::new(Df { pools: Vec::new(), ..*df })),
        (_, reply) => reply,
    }
}

/// What a user of a host may see.
struct Eyes<'a> {
    cell: &'a Arc<Cell>,
    asker: &'a Asker,
    /// The user.
    ctx: Ctx,
    /// Seconds since 1970.
    now_secs: i64,
}

impl Eyes<'_> {
    /// Whether it is root of a host that is bounded in nothing.
    fn sees_all(&self) -> bool {
        let grant = &self.asker.grant;
        self.asker.ctx.uid == 0 && !grant.is_restricted() && grant.volumes.is_empty()
    }

    fn may_change(&self) -> Checked<()> {
        match self.asker.grant.read_only {
            true => Err(refused(libc::EROFS, format!("the host {} may only read", self.asker.host))),
            false => Ok(()),
        }
    }

    /// Whether it tells of the user, or of a group of the user, in a volume that the host may use:
    /// a host that may not use all of them does not learn what there is in all together.
    fn is_own(&self, owner: &OwnerInfo, names: Option<&BTreeSet<String>>) -> bool {
        let is_its_volume =
            names.is_none_or(|names| owner.volume.as_ref().is_some_and(|v| names.contains(v)));
        let ctx = &self.ctx;
        let is_the_user = match owner.who {
            UserOrGroup::User(uid) => uid == ctx.uid,
            UserOrGroup::Group(gid) => gid == ctx.gid || ctx.gids.contains(gid),
        };
        is_its_volume && (is_the_user || self.sees_all())
    }

    /// The name of the user who asks.
    fn name(&self) -> Checked<String> {
        let uid = self.asker.ctx.uid;
        let name = name_of(&self.cell.accounts(), uid).filter(|_| uid != 0);
        name.ok_or_else(|| {
            let text = match uid {
                0 => "groups belong to users: root of another machine has none".into(),
                uid => format!("the machine that serves the cell knows no user with the number {uid}"),
            };
            refused(libc::EPERM, text)
        })
    }

    /// Keys and tokens open doors for all that their user may, wherever they are used. So they are
    /// made, seen and revoked where the machine's word says who is the user, and is good for all of
    /// the cell.
    fn may_open_doors(&self, user: &str) -> Checked<()> {
        if self.ctx.uid == 0 || self.name()? != user {
            return Err(for_operators());
        }
        // one of the machine may have the name of another one of the cell
        let record = self.cell.accounts().user(user).and_then(|user| user.numbers.clone());
        if record.is_some_and(|numbers| numbers.uid != self.ctx.uid) {
            return Err(for_operators());
        }
        let host = self.host();
        if host.is_none_or(|host| self.cell.accounts().host(host).is_some_and(HostRecord::is_unbounded)) {
            return Ok(());
        }
        let text = format!(
            "this machine may not use all of the cell, and keys and tokens are good for all of it: use the console, or \
             the machine that serves the cell, {}",
            system::host()
        );
        Err(refused(libc::EPERM, text))
    }

    /// Who has taken a machine, or a session of the console, does not keep tokens for ever.
    fn ends_soon(&self, until_secs: i64) -> Checked<()> {
        match until_secs <= self.now_secs + TOKEN_SECS_MAX {
            true => Ok(()),
            false => Err(refused(libc::EPERM, "users make tokens for a week at most: operators, for longer")),
        }
    }

    /// The machine of the user; `None`: this one.
    fn host(&self) -> Option<&str> {
        Some(&*self.asker.host).filter(|host| !host.is_empty())
    }

    /// Requests about groups; `None`: it is about something else.
    fn check_groups(&self, request: &AnyRequest) -> Option<Checked<()>> {
        use AnyRequest as A;
        Some(match request {
            A::GroupShow(_) => Ok(()),
            A::GroupList(r) => match (&r.of, self.name()) {
                (Some(of), Ok(own)) if *of != own => Err(for_operators()),
                (Some(_), Err(unknown)) => Err(unknown),
                _ => Ok(()),
            },
            // as of /etc/group; who is not believed has the groups of the users who log in
            A::GroupFind(_) if !self.asker.grant.by_tokens => Ok(()),
            A::GroupLimit(r) if r.groups.is_none() => match self.name() {
                Ok(own) if own == r.user => Ok(()),
                Ok(_) => Err(for_operators()),
                Err(unknown) => Err(unknown),
            },
            A::GroupCreate(_) => self.may_change_groups(),
            A::GroupSet(r) => self.may_change_group(&r.name, &[]),
            A::GroupRemove(r) => self.may_change_group(&r.name, &[]),
            A::GroupAdd(r) => self.may_change_group(&r.name, &r.members),
            A::GroupDrop(r) => match self.name() {
                Ok(own) if r.members.iter().all(|member| *member == own) => self.may_change_groups(),
                Ok(_) => self.may_change_group(&r.name, &r.members),
                Err(unknown) => Err(unknown),
            },
            _ => return None,
        })
    }

    /// Groups have rights in all volumes.
    fn may_change_groups(&self) -> Checked<()> {
        self.may_change()?;
        match self.asker.grant.volumes.is_empty() {
            true => Ok(()),
            false => {
                let text = format!(
                    "the host {} may not use all volumes, and groups have rights in all: ask on another machine",
                    self.asker.host
                );
                Err(refused(libc::EPERM, text))
            }
        }
    }

    /// Looked at here as well, since the cell keeps who has asked for what: what is refused anyway
    /// would fill that.
    fn may_change_group(&self, name: &str, members: &[String]) -> Checked<()> {
        self.may_change_groups()?;
        let accounts = self.cell.accounts();
        let groups = accounts.groups();
        let group = cell_name(name);
        let Some(gid) = groups.number(&group) else {
            return Err(refused(libc::ENOENT, format!("there is no group {group}: see lee group list")));
        };
        if !groups.is_owner(&self.name()?, gid) {
            return Err(refused(libc::EPERM, groups.belongs_to_another(gid)));
        }
        match members.iter().find(|name| name.len() > MEMBER_BYTES_MAX) {
            Some(_) => {
                Err(refused(libc::EINVAL, format!("a member's name has at most {MEMBER_BYTES_MAX} bytes")))
            }
            None => Ok(()),
        }
    }

    /// A link that logs the user in to the console.
    fn console_link(&self, service: &dyn Service, commands: &HostCommands) -> Checked<ConsoleLink> {
        if self.asker.ctx.uid == 0 {
            return Err(for_operators());
        }
        let host = self.host();
        if host.is_some_and(|host| !commands.lets_in(host)) {
            let text = "this machine may not use all of the cell, and the console shows all of it: log in to the \
                console with a key, or ask for a link on the server";
            return Err(failure(libc::EPERM, text));
        }
        service.console_link(Who::User(self.name()?.into()), host)
    }

    /// Names of the volumes in projects that the user looks after.
    fn names_looked_after(&self) -> BTreeSet<String> {
        let his = self.cell.volumes_looked_after(&self.ctx);
        self.cell.volume_names(his).into_values().collect()
    }

    /// Names of the volumes that the host may use; `None`: all.
    fn volumes(&self) -> Option<BTreeSet<String>> {
        let own = &self.asker.grant.volumes;
        if own.is_empty() {
            return None;
        }
        Some(self.cell.volume_names(own.iter().copied()).into_values().collect())
    }

    fn ask(&self, op: Op<'_>) -> leeward_fs::Result<leeward_fs::Reply> {
        (**self.cell).call(&self.ctx, op)
    }

    fn permit(&self, attr: &Attr, want: u32) -> leeward_fs::Result<()> {
        let ctx = &self.ctx;
        let acl = match rights::asks_acl(ctx, attr) {
            true => match self.ask(Op::GetXattr { node: attr.node, name: rights::ACL }) {
                Ok(reply) => Some(reply.data()?),
                Err(Error::NoData) => None,
                Err(e) => return Err(e),
            },
            false => None,
        };
        rights::permit(ctx, attr, acl.as_deref(), want)
    }

    /// What has a name in a directory that the user may search. What is in snapshots has no path.
    fn step(&self, dir: &Attr, name: &[u8]) -> leeward_fs::Result<Attr> {
        self.permit(dir, X)?;
        let grant = &self.asker.grant;
        if !dir.node.is_view() && !grant.has(dir.node) && !grant.leads_on(dir.node, name) {
            return Err(Error::Access);
        }
        self.ask(Op::Lookup { dir: dir.node, name })?.attr()
    }

    /// What is at a path, or else the last that is there and why there is no more.
    fn walk(&self, path: &str) -> Result<Attr, (NodeId, Error)> {
        let root = self.ask(Op::GetAttr { node: NodeId::ROOT }).and_then(|reply| reply.attr());
        let mut at = root.map_err(|e| (NodeId::ROOT, e))?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = match self.step(&at, name.as_bytes()) {
                Ok(next) if !next.node.is_view() => next,
                Ok(_) => return Err((at.node, Error::NotFound)),
                Err(e) => return Err((at.node, e)),
            };
        }
        Ok(at)
    }

    /// What is at a path where the user may do `want`.
    fn may(&self, path: &str, want: u32) -> Checked<Attr> {
        let found = self.walk(path).map_err(|(_, e)| e).and_then(|attr| {
            // a directory that only leads to volumes of the host is none of its own
            let is_its_own = self.asker.grant.has(attr.node);
            if is_its_own { self.permit(&attr, want).map(|()| attr) } else { Err(Error::Access) }
        });
        found.map_err(|e| about(path, &e))
    }

    /// Of a volume its owner sees what happened, also in directories that are closed to him: who
    /// has it answers for it.
    fn owns_volume(&self, node: NodeId, what: &str) -> Checked<()> {
        let owner = self.cell.volume_owner(node.volume());
        let is_its_own = self.asker.grant.has(node) && owner == Some(self.asker.ctx.uid);
        match is_its_own || self.sees_all() || self.looks_after(node.volume()) {
            true => Ok(()),
            false => {
                Err(refused(libc::EPERM, format!("only root and the owner of the volume may see {what}")))
            }
        }
    }

    /// What is asked about need not be there any more: then the last directory above it that is
    /// there says which volume it was in.
    fn may_read_events(&self, request: &EventList) -> Checked<()> {
        let Some(path) = &request.path else { return Err(for_operators()) };
        let volume = self.cell.volume_of_events(path);
        if !volume.is_some_and(|volume| self.looks_after(volume))
            && let Err((_, e)) = self.walk(path)
            && !matches!(e, Error::NotFound | Error::NotDir)
        {
            return Err(about(path, &e));
        }
        // of a copy it is the copy's own volume, whose snapshot it shows
        let volume = volume.ok_or_else(|| about(path, &Error::NotFound))?;
        self.owns_volume(NodeId::new(volume, NodeId::ROOT.inode()), "what happened in it")?;
        match request.volume_of_cursor() {
            Some(of_cursor) if of_cursor != volume => {
                Err(refused(libc::EINVAL, format!("this cursor is not of the volume of {path}")))
            }
            _ => Ok(()),
        }
    }

    /// The same of what is the user's own: the volumes, the user, the groups.
    fn own_usage(&self, request: &UsageReport) -> Checked<UsageReport> {
        if self.sees_all() {
            return Ok(request.clone());
        }
        let (ctx, grant) = (&self.ctx, &self.asker.grant);
        let in_all_volumes = |ids: Vec<u64>| match grant.volumes.is_empty() {
            true => Ok(ids),
            false => Err(refused(
                libc::EPERM,
                format!("the host {} may not use all volumes: ask by volume", self.asker.host),
            )),
        };
        let own: Vec<u64> = match request.of {
            Sampled::Volume => {
                let may_use = |id: &u32| grant.has(NodeId::new(*id, NodeId::ROOT.inode()));
                let mut own = self.cell.volumes_of(ctx.uid);
                own.extend(
                    self.cell.volumes_looked_after(ctx).into_iter().filter(|id| self.looks_after(*id)),
                );
                own.sort_unstable();
                own.dedup();
                own.into_iter().filter(may_use).map(u64::from).collect()
            }
            Sampled::User => in_all_volumes(vec![ctx.uid.into()])?,
            Sampled::Group => {
                let gids = ctx.gids.all();
                let gids = std::iter::once(ctx.gid).chain(gids.iter().copied());
                in_all_volumes(gids.map(u64::from).collect())?
            }
            Sampled::Project => {
                in_all_volumes(self.cell.projects_looked_after(ctx).into_iter().map(u64::from).collect())?
            }
            Sampled::Pool => return Err(for_operators()),
        };
        let only: Vec<u64> =
            own.into_iter().filter(|id| request.only.is_empty() || request.only.contains(id)).collect();
        match only.is_empty() {
            true => Err(refused(
                libc::ENOENT,
                "nothing of this is yours in this cell, or this host may not use it",
            )),
            false => Ok(UsageReport { only, ..request.clone() }),
        }
    }

    fn owns(&self, attr: &Attr, path: &str) -> Checked<()> {
        match [0, attr.uid].contains(&self.asker.ctx.uid) {
            true => Ok(()),
            false => Err(refused(
                libc::EPERM,
                format!("only root and the owner of {path} may compare its snapshots"),
            )),
        }
    }

    /// The differences in directories that the user may read.
    fn diff(&self, request: &SnapDiff, diff: Diff) -> Diff {
        if self.sees_all() {
            return diff;
        }
        let Ok(dir) = self.walk(&request.path) else { return Diff { changes: Vec::new() } };
        let older = Tree::new(self, self.snapshot(&dir, &request.from));
        let newer = match &request.to {
            Some(name) => Tree::new(self, self.snapshot(&dir, name)),
            None => Tree::new(self, Some(dir)),
        };
        let (mut older, mut newer) = (older, newer);
        let is_seen = |change: &Change| {
            let path = change.path.as_bytes();
            let is_seen =
                if change.kind == ChangeKind::Removed { older.shows(path) } else { newer.shows(path) };
            is_seen && change.from_path.as_ref().is_none_or(|from| older.shows(from.as_bytes()))
        };
        Diff { changes: diff.changes.into_iter().filter(is_seen).collect() }
    }

    /// A directory as a snapshot of it shows it.
    fn snapshot(&self, dir: &Attr, name: &str) -> Option<Attr> {
        let of = self.cell.volume_names([dir.node.volume()]).into_values().next()?;
        let volume = self.cell.admin(&admin::VolumeShow { name: of }, &mut |_| ()).ok()?;
        let all =
            self.ask(Op::Lookup { dir: dir.node, name: volume.snapshot_dir.as_bytes() }).ok()?.attr().ok()?;
        self.ask(Op::Lookup { dir: all.node, name: name.as_bytes() }).ok()?.attr().ok()
    }

    /// What users did: of most users, what they did themselves.
    fn flows(&self, mut flows: Flows) -> Flows {
        if self.sees_all() {
            return flows;
        }
        let (uid, grant) = (self.asker.ctx.uid, &self.asker.grant);
        let is_its_own = |volume: u32| grant.volumes.is_empty() || grant.volumes.contains(&volume);
        let is_shown = |of: u32, volume: Option<u32>| {
            let is_in_project = volume.is_some_and(|volume| self.looks_after(volume));
            is_in_project || of == uid && volume.is_none_or(is_its_own)
        };
        flows.report.flows.retain(|flow| is_shown(flow.uid, Some(flow.volume)));
        flows.report.slow.retain(|slow| is_shown(slow.uid, slow.node.map(|node| NodeId(node).volume())));
        flows.report.for_machine_nanos.retain(|host, _| *host == self.asker.host);
        let host = &self.asker.host;
        flows.losses.retain(|loss| loss.uid.map_or(loss.host == *host, |of| of == uid));
        for loss in &mut flows.losses {
            loss.nodes.retain(|node| is_its_own(NodeId(*node).volume()));
        }
        let of_losses = flows.losses.iter().flat_map(|loss| loss.nodes.iter().copied());
        let nodes: BTreeSet<u64> =
            flows.report.slow.iter().filter_map(|slow| slow.node).chain(of_losses).collect();
        flows.paths.retain(|node, _| nodes.contains(node));
        let volumes: BTreeSet<u32> = flows.report.flows.iter().map(|flow| flow.volume).collect();
        flows.volumes.retain(|volume, _| volumes.contains(volume));
        flows.dirty_bytes.retain(|(of, _)| *of == uid);
        flows.machines.retain(|machine| machine.host == self.asker.host);
        flows
    }
}

/// A tree of which paths are asked for one after the other.
struct Tree<'a> {
    eyes: &'a Eyes<'a>,
    /// Directories by path, if the user may read them.
    dirs: BTreeMap<Vec<u8>, Option<Attr>>,
}

impl<'a> Tree<'a> {
    fn new(eyes: &'a Eyes<'a>, top: Option<Attr>) -> Tree<'a> {
        let top = top.filter(|top| eyes.permit(top, R).is_ok());
        Tree { eyes, dirs: BTreeMap::from([(Vec::new(), top)]) }
    }

    /// Whether the user may see that there is something of this path.
    fn shows(&mut self, path: &[u8]) -> bool {
        let above = path.iter().rposition(|b| *b == b'/').map_or(&[][..], |at| &path[..at]);
        path.is_empty() || self.dir(above).is_some()
    }

    fn dir(&mut self, path: &[u8]) -> Option<Attr> {
        if let Some(known) = self.dirs.get(path) {
            return *known;
        }
        let (above, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        let found = self.dir(above).and_then(|dir| self.eyes.step(&dir, name).ok());
        let found = found.filter(|dir| self.eyes.permit(dir, R).is_ok());
        self.dirs.insert(path.to_vec(), found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request that is for operators only. A new request is put here, or into [`ALLOWED`]
    /// with its check.
    const FOR_OPERATORS: [&str; 53] = [
        "ShardAdd",
        "ShardList",
        "VolumeCreateIn",
        "TransferNote",
        "TransferReport",
        "GroupRange",
        "EventVerify",
        "VolumeMoveData",
        "VolumePromote",
        "VolumeDemote",
        "CopyCreate",
        "CopyList",
        "CopyDetach",
        "CopyLimits",
        "LimitList",
        "MirrorSet",
        "MirrorUnset",
        "MirrorList",
        "MirrorNote",
        "MirrorProven",
        "BackupSet",
        "BackupNote",
        "BackupUnset",
        "BackupList",
        "SnapSend",
        "SnapReceive",
        "SnapDigest",
        "PoolCreate",
        "PoolList",
        "PoolShow",
        "PoolStore",
        "PoolTier",
        "PoolUntier",
        "PoolRemove",
        "Scrub",
        "ScrubEvery",
        "SnapLock",
        "SnapUnlock",
        "FlowSet",
        "FlowReset",
        "FlowList",
        "BucketSet",
        "UserSet",
        "HostAdd",
        "HostInvite",
        "HostList",
        "HostShow",
        "HostSet",
        "HostRemove",
        "StatsShow",
        "FormatRaise",
        "Fsck",
        "SyncAll",
    ];

    #[test]
    fn every_request_is_allowed_to_other_machines_or_for_operators() {
        for name in AnyRequest::NAMES {
            let is_allowed = ALLOWED.contains(name);
            assert_ne!(is_allowed, FOR_OPERATORS.contains(name), "{name}: on none of the lists, or on both");
        }
        assert_eq!(
            AnyRequest::NAMES.len(),
            ALLOWED.len() + FOR_OPERATORS.len(),
            "a list names what is not there"
        );
    }

    #[test]
    fn a_request_is_refused_by_its_name() {
        let root = AnyRequest::from(admin::SyncAll);
        assert_eq!(root.name(), "SyncAll");
        assert!(!ALLOWED.contains(&root.name()));
    }
}
