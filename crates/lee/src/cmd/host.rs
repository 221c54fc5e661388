//! `lee host`: other machines that may mount the cell over the network.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{size, when};
use leeward_fs::accounts::{Trust, UidRange};
use leeward_volume::admin::{self, HostInfo, NewHost};

/// Add, invite, list, show, change and remove hosts
///
/// A host is another machine that may mount the cell over the network. `add` prints a token. With
/// that the machine enrols, once, and makes a key of its own; by this key the cell knows it from
/// then on. Machines that have not enrolled are not let in.
///
/// The cell believes what a host says about its users, as NFS does: add machines that you
/// administer, and say with --uids, --root-squash, --volumes and --read-only what they may do at
/// most. A host with --gateway runs doors of the cell for all users (lee gateway).
///
/// Only root and the user who serves the cell may use this command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  lee host add node01.example.org
  lee host add batch17 --volumes atlas,home --uids 1000-59999 --root-squash
  lee host add viewer --read-only --valid 2h
  lee host add laptop7 --trust user     each user logs in: lee login, on that machine
  lee host add door1 --gateway
  lee host add site-a --mirror
  lee host invite batch17               after it was installed anew
  lee host set viewer --all-volumes --read-write
  lee host remove node01.example.org
";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Add a host, and print the token that it enrols with
    Add(NewArgs),
    /// Print another token for a host that has not enrolled, or that must enrol again
    ///
    /// The token printed before is void. A host that has enrolled stays in with its key until a
    /// machine enrols with the new token; that machine is the host then.
    Invite {
        /// Name
        name: String,
        /// How long the token is valid, such as 30m, 12h or 7d
        #[arg(long, value_name = "TIME", default_value = "1d", value_parser = parse_valid)]
        valid: u32,
    },
    /// List all hosts
    List,
    /// Show one host
    Show {
        /// Name
        name: String,
    },
    /// Change what a host may do, from its next request on; what is not named stays
    Set(SetArgs),
    /// Remove a host: it is out at once
    ///
    /// S3 keys that users made on it (lee key create) go on without it. Where there are any, say
    /// what is to become of them.
    Remove {
        /// Name
        name: String,
        /// Revoke the S3 keys that were made on it
        #[arg(long, conflicts_with = "keep_keys")]
        revoke_keys: bool,
        /// Leave the S3 keys that were made on it
        #[arg(long)]
        keep_keys: bool,
    },
}

#[derive(Debug, clap::Args)]
struct NewArgs {
    /// Its name, such as that in the DNS
    name: String,
    /// The volumes that it may use [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    volumes: Vec<String>,
    /// Let it change nothing
    #[arg(long)]
    read_only: bool,
    /// The user ids that it may act as, such as 1000-1999,2500 [default: all]
    #[arg(long, value_name = "RANGES", value_delimiter = ',', value_parser = parse_uids)]
    uids: Vec<UidRange>,
    /// Let its root act as nobody
    #[arg(long)]
    root_squash: bool,
    /// Let it run doors of the cell (lee gateway): it is told the secrets of all users
    #[arg(long, conflicts_with_all = ["volumes", "uids", "root_squash"])]
    gateway: bool,
    /// Another cell, which sends snapshots to copies of volumes here (lee mirror), and does nothing
    /// else
    ///
    /// With --volumes to these copies only: lee volume create NAME --copy makes one.
    #[arg(long, conflicts_with_all = ["gateway", "read_only", "uids", "root_squash"])]
    mirror: bool,
    /// Whom to believe who its users are: the machine itself, or only users who log in with a token
    /// (lee login)
    #[arg(long, value_name = "WHOM", value_parser = parse_trust, default_value = "host")]
    trust: Trust,
    /// How long the token is valid, such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = parse_valid)]
    valid: u32,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Changes {
    /// The volumes that it may use
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with = "all_volumes")]
    volumes: Option<Vec<String>>,
    /// Let it use all volumes
    #[arg(long)]
    all_volumes: bool,
    /// Let it change nothing
    #[arg(long, conflicts_with = "read_write")]
    read_only: bool,
    /// Let it read and write
    #[arg(long)]
    read_write: bool,
    /// The user ids that it may act as, such as 1000-1999,2500
    #[arg(long, value_name = "RANGES", value_delimiter = ',', value_parser = parse_uids,
        conflicts_with = "all_uids")]
    uids: Option<Vec<UidRange>>,
    /// Let it act as all users
    #[arg(long)]
    all_uids: bool,
    /// Let its root act as nobody
    #[arg(long, conflicts_with = "no_root_squash")]
    root_squash: bool,
    /// Let its root act as root, if the user ids that it may act as have 0
    #[arg(long)]
    no_root_squash: bool,
    /// Let it run doors of the cell (lee gateway): it is told the secrets of all users
    #[arg(long, conflicts_with = "no_gateway")]
    gateway: bool,
    /// Let it run no doors
    #[arg(long)]
    no_gateway: bool,
    /// Whom to believe who its users are: host or user; its mounts are to be made anew then
    #[arg(long, value_name = "WHOM", value_parser = parse_trust)]
    trust: Option<Trust>,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    /// Name
    name: String,
    #[command(flatten)]
    changes: Changes,
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Add(args) => add(invocation, args),
        Action::Invite { name, valid } => {
            let request = admin::HostInvite { name, valid_secs: valid };
            let new = invocation.ask("host invite", &request)?;
            output::reply(invocation.format, &new, || next_step("invited", &new))
        }
        Action::List => list(invocation),
        Action::Show { name } => {
            let host = invocation.ask("host show", &admin::HostShow { name })?;
            output::reply(invocation.format, &host, || details(&host, now_secs(invocation)))
        }
        Action::Set(args) => {
            let host = invocation.ask("host set", &set_request(args))?;
            output::reply(invocation.format, &host, || details(&host, now_secs(invocation)))
        }
        Action::Remove { name, revoke_keys, keep_keys } => {
            let revoke_keys = (revoke_keys || keep_keys).then_some(revoke_keys);
            remove(invocation, admin::HostRemove { name, revoke_keys })
        }
    }
}

fn add(invocation: &Invocation, args: NewArgs) -> Result<(), Fail> {
    let NewArgs { name, volumes, read_only, uids, root_squash, gateway, mirror, trust, valid } = args;
    let valid_secs = valid;
    let request =
        admin::HostAdd { name, volumes, read_only, uids, root_squash, gateway, mirror, trust, valid_secs };
    let new = invocation.ask("host add", &request)?;
    output::reply(invocation.format, &new, || next_step("added", &new))
}

fn next_step(done: &str, new: &NewHost) -> String {
    let name = &new.host.name;
    let command = match (new.host.gateway, new.host.mirror) {
        (true, _) => "gateway HOST[:PORT]",
        (_, true) => "mirror add VOLUME --to HOST[:PORT]",
        _ => "mount HOST[:PORT] PATH",
    };
    let until = new.host.invited_until_secs.map_or_else(|| "it is used".into(), when::utc);
    format!(
        "{done} host {name}; the token is valid once, until {until}, and not shown again\n\
         on {name}: lee {command} --token {}\n",
        new.token
    )
}

fn set_request(args: SetArgs) -> admin::HostSet {
    let SetArgs { name, changes } = args;
    admin::HostSet {
        name,
        volumes: changes.volumes.or(changes.all_volumes.then(Vec::new)),
        read_only: one_of(changes.read_only, changes.read_write),
        uids: changes.uids.or(changes.all_uids.then(Vec::new)),
        root_squash: one_of(changes.root_squash, changes.no_root_squash),
        gateway: one_of(changes.gateway, changes.no_gateway),
        trust: changes.trust,
    }
}

/// What two options say that are each other's opposite; `None`: neither is there.
fn one_of(yes: bool, no: bool) -> Option<bool> {
    (yes || no).then_some(yes)
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("host list", &admin::HostList)?;
    output::reply(invocation.format, &reply, || {
        if reply.hosts.is_empty() {
            return "no other machine may mount the cell: add one with `lee host add NAME`".into();
        }
        Table::new(&[
            ("HOST", Side::Left),
            ("ENROLLED", Side::Left),
            ("VOLUMES", Side::Left),
            ("ACCESS", Side::Left),
            ("USERS", Side::Left),
            ("ROOT", Side::Left),
            ("DOORS", Side::Left),
        ])
        .rows(&reply.hosts, |host| {
            [
                host.name.clone(),
                enrolled(host),
                volumes(host),
                access(host).into(),
                uids(host),
                root(host).into(),
                doors(host).into(),
            ]
        })
        .to_string()
    })
}

fn details(host: &HostInfo, now_secs: i64) -> String {
    [
        ("host", host.name.clone()),
        ("enrolled", enrolled(host)),
        ("key", host.key.clone().unwrap_or_else(|| "none".into())),
        ("token", token(host, now_secs)),
        ("volumes", volumes(host)),
        ("access", access(host).into()),
        ("users", uids(host)),
        ("root", root(host).into()),
        ("trust", trust(host).into()),
        ("doors", doors(host).into()),
        ("created", when::utc(host.created_secs)),
    ]
    .map(|(name, value)| format!("{name:<8} {value}\n"))
    .concat()
}

fn enrolled(host: &HostInfo) -> String {
    host.enrolled_secs.map_or_else(|| "not yet".into(), when::utc)
}

/// Whether the host can enrol.
fn token(host: &HostInfo, now_secs: i64) -> String {
    match host.invited_until_secs {
        None => "none is valid".into(),
        Some(until) if until > now_secs => format!("valid until {}", when::utc(until)),
        Some(until) => format!("expired {}: lee host invite {}", when::utc(until), host.name),
    }
}

fn volumes(host: &HostInfo) -> String {
    if host.volumes.is_empty() { "all".into() } else { host.volumes.join(",") }
}

fn access(host: &HostInfo) -> &'static str {
    if host.mirror {
        "fill copies"
    } else if host.read_only {
        "read"
    } else {
        "read and write"
    }
}

fn uids(host: &HostInfo) -> String {
    let ranges: Vec<String> = host.uids.iter().map(ToString::to_string).collect();
    if ranges.is_empty() { "all".into() } else { ranges.join(",") }
}

fn root(host: &HostInfo) -> &'static str {
    let may_be_root = host.uids.first().is_none_or(|range| range.first == 0);
    match host.root_squash {
        true => "acts as nobody",
        false if may_be_root => "acts as root",
        false => "is refused",
    }
}

fn doors(host: &HostInfo) -> &'static str {
    if host.gateway { "gateway" } else { "none" }
}

fn trust(host: &HostInfo) -> &'static str {
    match host.trust {
        Trust::Host => "the host says who its users are",
        Trust::User => "each user shows a token (lee login)",
    }
}

fn remove(invocation: &Invocation, request: admin::HostRemove) -> Result<(), Fail> {
    let removed = invocation.ask("host remove", &request)?;
    output::reply(invocation.format, &removed, || {
        let keys = size::counted(removed.keys.len() as u64, "S3 key", "S3 keys");
        let of_keys = match (removed.keys.is_empty(), removed.keys_revoked) {
            (true, _) => String::new(),
            (false, true) => format!("; revoked {keys} that users made on it"),
            (false, false) => format!("; {keys} that users made on it go on"),
        };
        format!(
            "removed host {}: it is out, and its key and its token let nobody in{of_keys}; tokens that users made on \
             it end within a week, or now by lee token revoke",
            removed.name
        )
    })
}

fn now_secs(invocation: &Invocation) -> i64 {
    (invocation.env.wall() / 1_000_000_000) as i64
}

fn parse_trust(text: &str) -> Result<Trust, String> {
    match text {
        "host" => Ok(Trust::Host),
        "user" => Ok(Trust::User),
        _ => Err("write host (the machine says who its users are) or user (each user shows a token)".into()),
    }
}

/// Seconds, of a duration such as `30m`, rounded up.
fn parse_valid(text: &str) -> Result<u32, String> {
    let secs = when::parse_duration(text)?.as_millis().div_ceil(1000);
    u32::try_from(secs).map_err(|_| format!("`{text}` is too long: write a time such as 30m, 12h or 7d"))
}

/// `1000-1999` or `2500`.
fn parse_uids(text: &str) -> Result<UidRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let is_number = |text: &&str| text.bytes().all(|b| b.is_ascii_digit());
    let number = |text| Some(text).filter(is_number)?.parse().ok().filter(|uid| *uid < u32::MAX);
    number(first)
        .zip(number(last))
        .filter(|(first, last)| first <= last)
        .map(|(first, last)| UidRange { first, last })
        .ok_or_else(|| format!("`{text}` is no range of user ids: write 1000-1999 or 2500"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_user_ids_are_read() {
        assert_eq!(parse_uids("1000-1999"), Ok(UidRange { first: 1000, last: 1999 }));
        assert_eq!(parse_uids("0"), Ok(UidRange { first: 0, last: 0 }));
        for text in ["", "-", "5-", "-5", "5-4", "5-6-7", "a", "0-4294967295", "4294967296", " 5", "+5"] {
            assert!(parse_uids(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_whole_seconds() {
        assert_eq!((parse_valid("1d"), parse_valid("1ms")), (Ok(86_400), Ok(1)));
        assert!(parse_valid("50000d").is_err() && parse_valid("0s").is_err());
    }
}
