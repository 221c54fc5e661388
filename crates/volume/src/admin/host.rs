//! Requests about hosts: other machines that may mount the cell over the network.
//!
//! A host begins as an invitation, whose secret is in a token that is shown once. It enrols with
//! that secret and a key of its own, which it is known by from then on.

use crate::admin::key::{KeyInfo, keys_made_on};
use crate::admin::volume::no_volume;
use crate::admin::{Caller, Failure, Refresh, Reply, Request};
use crate::format::accounts::{HOST_UID_RANGES_MAX, HOST_VOLUMES_MAX, HOSTS_MAX};
use crate::shard::Shard;
use leeward_fs::accounts::{
    AccountChange, Accounts, HostRecord, Identity, Invitation, Trust, UidRange, wrong_name,
};
use leeward_fs::invitation::InvitationToken;
use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A host, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Name.
    pub name: String,
    /// When it enrolled last, seconds since 1970; `None`: not yet.
    pub enrolled_secs: Option<i64>,
    /// The public key that it enrolled with, in hex.
    pub key: Option<String>,
    /// Until when it can enrol with the newest token, seconds since 1970; `None`: that was used.
    pub invited_until_secs: Option<i64>,
    /// Names of the volumes that it may use, or the number of one that was removed; empty: all.
    pub volumes: Vec<String>,
    /// Whether it may change nothing.
    pub read_only: bool,
    /// The user ids that it may act as; empty: all.
    pub uids: Vec<UidRange>,
    /// Whether its root acts as nobody.
    pub root_squash: bool,
    /// Whom the cell believes who a request is from.
    pub trust: Trust,
    /// Whether it may run doors of the cell.
    #[serde(default)]
    pub gateway: bool,
    /// Whether it sends snapshots to copies of volumes, and does nothing else.
    #[serde(default)]
    pub mirror: bool,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
}

impl Reply for HostInfo {
    const KIND: &'static str = "host";
}

/// A host that was invited, with its token. No other reply has the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewHost {
    /// The host.
    #[serde(flatten)]
    pub host: HostInfo,
    /// What it enrols with, once, see [`InvitationToken`].
    pub token: String,
}

impl fmt::Debug for NewHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewHost").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Reply for NewHost {
    const KIND: &'static str = "host-invited";
}

/// Makes a host, and invites it. With the first host the cell gets a key pair of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostAdd {
    /// Name, see [`wrong_name`].
    pub name: String,
    /// Names of the volumes that it may use; empty: all.
    pub volumes: Vec<String>,
    /// Whether it may change nothing.
    pub read_only: bool,
    /// The user ids that it may act as, in any order; empty: all.
    pub uids: Vec<UidRange>,
    /// Whether its root acts as nobody.
    pub root_squash: bool,
    /// Whether it may run doors of the cell.
    #[serde(default)]
    pub gateway: bool,
    /// Whether it is to send snapshots to copies of volumes, and to do nothing else.
    #[serde(default)]
    pub mirror: bool,
    /// Whom the cell believes who its requests are from.
    #[serde(default)]
    pub trust: Trust,
    /// How long the token is valid, seconds, not 0.
    pub valid_secs: u32,
}

impl Request for HostAdd {
    type Reply = NewHost;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<NewHost, Failure> {
        let name = &self.name;
        if let Some(wrong) = wrong_name(name) {
            let message = format!("{name:?} {wrong}: give the host another name");
            return Err(Failure::new(libc::EINVAL, message));
        }
        let (volumes, uids) = (shard.volumes_named(&self.volumes)?, merged(&self.uids)?);
        if self.gateway {
            shard.prepare_tokens()?;
        }
        shard.invite(name, self.valid_secs, |accounts, now| {
            check_new(accounts, name)?;
            check_kind(HostRecord {
                key: None,
                invitation: None,
                volumes: volumes.clone(),
                read_only: self.read_only,
                uids: uids.clone(),
                root_squash: self.root_squash,
                trust: self.trust,
                gateway: self.gateway,
                mirror: self.mirror,
                created_secs: now,
                enrolled_secs: None,
            })
        })
    }
}

/// The record, if a gateway is believed in everything: its door users are all users of the cell.
/// What sends to copies mounts nothing, and nothing is to be said of how.
fn check_kind(host: HostRecord) -> Result<HostRecord, Failure> {
    let mounts = host.read_only || host.root_squash || !host.uids.is_empty() || host.gateway;
    if host.mirror && (mounts || host.trust == Trust::User) {
        let message = "a host with --mirror sends snapshots to copies and does nothing else: of all limits it can have \
                       --volumes";
        return Err(Failure::new(libc::EINVAL, message));
    }
    let is_limited = host.root_squash || !host.uids.is_empty() || !host.volumes.is_empty();
    if host.gateway && (is_limited || host.trust == Trust::User) {
        let message = "a gateway acts for all users in all volumes and knows their secrets: take --uids, --root-squash, \
                       --volumes and --trust user away, or --gateway";
        return Err(Failure::new(libc::EINVAL, message));
    }
    Ok(host)
}

fn check_new(accounts: &Accounts, name: &str) -> Result<(), Failure> {
    if accounts.host(name).is_some() {
        let message =
            format!("there is a host {name} already: `lee host invite {name}` gives it a new token");
        return Err(Failure::new(libc::EEXIST, message));
    }
    if accounts.hosts().len() >= HOSTS_MAX {
        let message = format!("there are {HOSTS_MAX} hosts, which is the most: remove some");
        return Err(Failure::new(libc::ENOSPC, message));
    }
    Ok(())
}

/// Gives a host a new token; the one before is void. The host stays enrolled as it is until it
/// enrols with the token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostInvite {
    /// Name.
    pub name: String,
    /// How long the token is valid, seconds, not 0.
    pub valid_secs: u32,
}

impl Request for HostInvite {
    type Reply = NewHost;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<NewHost, Failure> {
        shard.invite(&self.name, self.valid_secs, |accounts, _| host_named(accounts, &self.name).cloned())
    }
}

/// Changes what a host may do, from its next request on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostSet {
    /// Name.
    pub name: String,
    /// Names of the volumes that it may use; empty: all; `None`: as they were.
    #[serde(default)]
    pub volumes: Option<Vec<String>>,
    /// Whether it may change nothing; `None`: as it was.
    #[serde(default)]
    pub read_only: Option<bool>,
    /// The user ids that it may act as, in any order; empty: all; `None`: as they were.
    #[serde(default)]
    pub uids: Option<Vec<UidRange>>,
    /// Whether its root acts as nobody; `None`: as it was.
    #[serde(default)]
    pub root_squash: Option<bool>,
    /// Whether it may run doors of the cell; `None`: as it was.
    #[serde(default)]
    pub gateway: Option<bool>,
    /// Whom the cell believes who its requests are from; `None`: as it was.
    #[serde(default)]
    pub trust: Option<Trust>,
}

impl Request for HostSet {
    type Reply = HostInfo;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<HostInfo, Failure> {
        let volumes = self.volumes.as_ref().map(|names| shard.volumes_named(names)).transpose()?;
        let uids = self.uids.as_ref().map(|uids| merged(uids)).transpose()?;
        if self.gateway == Some(true) {
            shard.prepare_tokens()?;
        }
        shard.change_accounts(|accounts, _| {
            let old = host_named(accounts, &self.name)?.clone();
            let record = check_kind(HostRecord {
                volumes: volumes.clone().unwrap_or(old.volumes),
                read_only: self.read_only.unwrap_or(old.read_only),
                uids: uids.clone().unwrap_or(old.uids),
                root_squash: self.root_squash.unwrap_or(old.root_squash),
                gateway: self.gateway.unwrap_or(old.gateway),
                trust: self.trust.unwrap_or(old.trust),
                ..old
            })?;
            Ok(vec![AccountChange::Host(self.name.clone(), Some(record))])
        })?;
        shard.host_info(&self.name)
    }
}

/// Lists all hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostList;

/// All hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfos {
    /// By name.
    pub hosts: Vec<HostInfo>,
}

impl Reply for HostInfos {
    const KIND: &'static str = "hosts";
}

impl Request for HostList {
    type Reply = HostInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<HostInfos, Failure> {
        let accounts = shard.accounts();
        let named: Vec<u32> =
            accounts.hosts().flat_map(|(_, record)| record.volumes.iter().copied()).collect();
        let volumes = shard.names_in_cell(&named);
        let hosts = accounts.hosts().map(|(name, record)| info(name, record, &volumes)).collect();
        Ok(HostInfos { hosts })
    }
}

/// Shows one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostShow {
    /// Name.
    pub name: String,
}

impl Request for HostShow {
    type Reply = HostInfo;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<HostInfo, Failure> {
        shard.host_info(&self.name)
    }
}

/// Removes a host: neither its key nor its token lets it in from now on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostRemove {
    /// Name.
    pub name: String,
    /// Whether S3 keys that users made on it are revoked, too. `None`: only a host on which there
    /// were none made is removed.
    #[serde(default)]
    pub revoke_keys: Option<bool>,
}

/// A host was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRemoved {
    /// Its name.
    pub name: String,
    /// S3 keys that were made on it: they are revoked, or kept, as was asked.
    pub keys: Vec<KeyInfo>,
    /// Whether they are revoked.
    pub keys_revoked: bool,
}

impl Reply for HostRemoved {
    const KIND: &'static str = "host-removed";
}

impl Request for HostRemove {
    type Reply = HostRemoved;
    const REFRESH: Refresh = Refresh::Accounts;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<HostRemoved, Failure> {
        let (name, keys_revoked) = (self.name.clone(), self.revoke_keys == Some(true));
        let mut keys = Vec::new();
        shard.change_accounts(|accounts, _| {
            host_named(accounts, &name)?;
            keys = keys_made_on(accounts, &name);
            if self.revoke_keys.is_none() && !keys.is_empty() {
                return Err(has_keys(&name, &keys));
            }
            let revoked = keys.iter().filter(|_| keys_revoked);
            let revoked = revoked.map(|key| AccountChange::Key(key.access_key_id.clone(), None));
            Ok(std::iter::once(AccountChange::Host(name.clone(), None)).chain(revoked).collect())
        })?;
        Ok(HostRemoved { name, keys, keys_revoked })
    }
}

/// Who may have been on the host may have made keys, and they go on without it.
fn has_keys(name: &str, keys: &[KeyInfo]) -> Failure {
    let users: BTreeSet<&str> = keys.iter().map(|key| key.user.as_str()).collect();
    let message = format!(
        "{} S3 keys of {} users were made on {name} and go on without it (lee key list says which): \
         --revoke-keys revokes them, too, --keep-keys leaves them",
        keys.len(),
        users.len()
    );
    Failure::new(libc::EBUSY, message)
}

impl Shard {
    /// Enrols a host, see [`crate::Cell::enrol_host`].
    pub(crate) fn enrol_host(&self, secret: &[u8; 16], key: [u8; 32]) -> Result<String, Failure> {
        let secret_hash = sha256(secret);
        let mut enrolled = String::new();
        self.change_accounts(|accounts, now| {
            let (name, record) = invited(accounts, &secret_hash, now).ok_or_else(not_invited)?;
            if let Some((other, _)) = accounts.host_of_key(&key).filter(|(other, _)| *other != name) {
                let message = format!("host {other} has this key: enrol {name} with a key of its own");
                return Err(Failure::new(libc::EEXIST, message));
            }
            enrolled = name.into();
            let (key, enrolled_secs) = (Some(key), Some(now));
            let record = HostRecord { key, enrolled_secs, invitation: None, ..record.clone() };
            Ok(vec![AccountChange::Host(name.into(), Some(record))])
        })?;
        Ok(enrolled)
    }

    /// Invites the host whose record `record` makes of the accounts and the time in seconds since
    /// 1970.
    fn invite(
        &self,
        name: &str,
        valid_secs: u32,
        record: impl Fn(&Accounts, i64) -> Result<HostRecord, Failure>,
    ) -> Result<NewHost, Failure> {
        if valid_secs == 0 {
            return Err(Failure::new(
                libc::EINVAL,
                "a token is valid for a second at least: name a longer time",
            ));
        }
        let secret: [u8; 16] = self.env.secret();
        let secret_hash = sha256(&secret);
        self.change_accounts(|accounts, now| {
            let mut record = record(accounts, now)?;
            record.invitation = Some(Invitation { secret_hash, expires_secs: now + i64::from(valid_secs) });
            let mut changes = vec![AccountChange::Host(name.into(), Some(record))];
            if accounts.identity().is_none() {
                changes.push(AccountChange::Identity(self.new_identity()?));
            }
            Ok(changes)
        })?;
        let accounts = self.accounts();
        let identity = accounts.identity().ok_or_else(no_key_pair)?;
        let token = InvitationToken { secret, cell_key: identity.public }.to_text();
        Ok(NewHost { host: self.host_info(name)?, token })
    }

    /// Makes the cell's own key pair where there is none, see [`crate::Cell::prepare_identity`].
    pub(crate) fn prepare_identity(&self) -> Result<(), Failure> {
        if self.accounts().identity().is_some() {
            return Ok(());
        }
        self.change_accounts(|accounts, _| match accounts.identity() {
            Some(_) => Ok(Vec::new()),
            None => Ok(vec![AccountChange::Identity(self.new_identity()?)]),
        })
    }

    fn new_identity(&self) -> Result<Identity, Failure> {
        let seed: [u8; 32] = self.env.secret();
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| no_key_pair())?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| no_key_pair())?;
        Ok(Identity { seed, public })
    }

    fn host_info(&self, name: &str) -> Result<HostInfo, Failure> {
        let accounts = self.accounts();
        let record = host_named(&accounts, name)?;
        Ok(info(name, record, &self.names_in_cell(&record.volumes)))
    }

    /// Numbers of volumes, sorted, each once.
    fn volumes_named(&self, names: &[String]) -> Result<Vec<u32>, Failure> {
        let mut numbers: Vec<u32> = names
            .iter()
            .map(|name| self.named_in_cell(name).ok_or_else(|| no_volume(name)))
            .collect::<Result<_, _>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() > HOST_VOLUMES_MAX {
            let message = format!("a host has at most {HOST_VOLUMES_MAX} volumes by name: allow it all");
            return Err(Failure::new(libc::E2BIG, message));
        }
        Ok(numbers)
    }
}

fn sha256(secret: &[u8; 16]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, secret).as_ref());
    out
}

/// The host whose invitation is valid and has a secret with this hash.
///
/// How long a comparison takes may tell how many bytes of a hash are right. That leads to no
/// secret: nobody finds one from its hash.
fn invited<'a>(
    accounts: &'a Accounts,
    secret_hash: &[u8; 32],
    now_secs: i64,
) -> Option<(&'a str, &'a HostRecord)> {
    accounts.hosts().find(|(_, host)| {
        let is_valid = |i: &Invitation| i.secret_hash == *secret_hash && now_secs < i.expires_secs;
        host.invitation.as_ref().is_some_and(is_valid)
    })
}

/// The same whatever is wrong: a stranger learns nothing.
fn not_invited() -> Failure {
    let message = "the token is not valid: it was used, has expired, or is not of this cell; ask for a new one, \
                   `lee host invite NAME`";
    Failure::new(libc::EACCES, message)
}

fn no_key_pair() -> Failure {
    Failure::new(libc::EIO, "the cell has no key pair and cannot make one: try again")
}

fn host_named<'a>(accounts: &'a Accounts, name: &str) -> Result<&'a HostRecord, Failure> {
    accounts
        .host(name)
        .ok_or_else(|| Failure::new(libc::ENOENT, format!("there is no host {name}: see lee host list")))
}

fn info(name: &str, record: &HostRecord, volumes: &BTreeMap<u32, String>) -> HostInfo {
    let volume_name = |number: &u32| volumes.get(number).map_or_else(|| number.to_string(), String::clone);
    HostInfo {
        name: name.into(),
        enrolled_secs: record.enrolled_secs,
        key: record.key.map(|key| key.iter().map(|byte| format!("{byte:02x}")).collect()),
        invited_until_secs: record.invitation.as_ref().map(|invitation| invitation.expires_secs),
        volumes: record.volumes.iter().map(volume_name).collect(),
        read_only: record.read_only,
        uids: record.uids.clone(),
        root_squash: record.root_squash,
        trust: record.trust,
        gateway: record.gateway,
        mirror: record.mirror,
        created_secs: record.created_secs,
    }
}

/// The ranges sorted, with those that meet as one.
fn merged(ranges: &[UidRange]) -> Result<Vec<UidRange>, Failure> {
    if let Some(wrong) = ranges.iter().find(|range| range.first > range.last || range.last == u32::MAX) {
        let message =
            format!("{wrong} is no range of user ids: write the lower one first, none is {}", u32::MAX);
        return Err(Failure::new(libc::EINVAL, message));
    }
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.first);
    let mut merged: Vec<UidRange> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(before) if range.first <= before.last + 1 => before.last = before.last.max(range.last),
            _ => merged.push(range),
        }
    }
    if merged.len() > HOST_UID_RANGES_MAX {
        let message = format!("a host has at most {HOST_UID_RANGES_MAX} ranges of user ids: join some");
        return Err(Failure::new(libc::E2BIG, message));
    }
    Ok(merged)
}
