//! `lee flow`: the part that users get when several want more than there is, and what they get at
//! most.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::size::{self, Limit};
use crate::{names, system};
use leeward_fs::flows::{EffectiveLimits, FlowRecord, FlowSettings, UserOrGroup, WEIGHT_MAX, WEIGHT_USUAL};
use leeward_volume::admin::{self, FlowInfo};
use serde::Serialize;
use serde_json::json;

/// Set shares and ceilings of users
///
/// Without settings, users who compete get equal shares, and a user who is alone gets everything.
/// Settings take effect at once and last.
///
/// A weight is a share relative to other users: while both want more than they get, a user of
/// weight 200 gets twice as much as one of weight 100, the usual one. While nobody competes, a
/// weight has no effect.
///
/// A ceiling limits a user in each second, even when nobody else is active: operations, bytes read
/// and written, or both. After an idle second, one second's worth passes at once. Requests over the
/// ceiling wait.
///
/// A setting of a group applies to each of its members, by the user database of this machine. A
/// setting of the user overrides it. Of several groups, the largest weight and the lowest ceiling
/// apply.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set the weight of a user, or of each member of a group
    Weight {
        /// A user, or a group with @ before it, by name or number
        #[arg(value_name = "USER|@GROUP")]
        who: String,
        /// Share relative to other users; the usual one is 100
        #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(WEIGHT_MAX)))]
        weight: u32,
    },
    /// Set a ceiling for a user, or for each member of a group; a limit that is not named stays
    Limit {
        /// A user, or a group with @ before it, by name or number
        #[arg(value_name = "USER|@GROUP")]
        who: String,
        /// Most operations in a second, such as 500 or 10k, or `none`, also if a group has a
        /// ceiling
        #[arg(long, value_name = "N/s", value_parser = ops, required_unless_present = "bytes")]
        ops: Option<Limit>,
        /// Most bytes read and written in a second, such as 100M (powers of 1024), or `none`, also
        /// if a group has a ceiling
        #[arg(long, value_name = "N/s", value_parser = bytes)]
        bytes: Option<Limit>,
    },
    /// Remove all settings of a user or a group
    Reset {
        /// A user, or a group with @ before it, by name or number
        #[arg(value_name = "USER|@GROUP")]
        who: String,
    },
    /// List all settings
    List,
    /// Show what applies to a user, with the settings of the user's groups
    Show {
        /// By name or number
        user: String,
    },
}

fn ops(text: &str) -> Result<Limit, String> {
    size::parse_count(text.strip_suffix("/s").unwrap_or(text))
}

fn bytes(text: &str) -> Result<Limit, String> {
    size::parse_bytes(text.strip_suffix("/s").unwrap_or(text))
}

/// What applies to a user.
#[derive(Debug, Serialize)]
struct Shown {
    user: String,
    uid: u32,
    groups: Vec<u32>,
    weight: u32,
    /// 0: no ceiling.
    ops_per_sec: u64,
    /// 0: no ceiling.
    bytes_per_sec: u64,
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that there is no such user or group.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Weight { who, weight } => {
            set(invocation, "flow weight", &who, FlowRecord { weight: Some(weight), ..FlowRecord::default() })
        }
        Action::Limit { who, ops, bytes } => {
            let (ops_per_sec, bytes_per_sec) = (ops.map(|l| l.0), bytes.map(|l| l.0));
            set(invocation, "flow limit", &who, FlowRecord { weight: None, ops_per_sec, bytes_per_sec })
        }
        Action::Reset { who } => {
            let who = parse(&who)?;
            invocation.ask("flow reset", &admin::FlowReset { who })?;
            output::show(invocation.format, &json!({"reply": "done", "who": who}), || {
                format!("{}: nothing is set any more", name(who))
            })
        }
        Action::List => list(invocation),
        Action::Show { user } => show(invocation, &user),
    }
}

/// A user, or a group with @ before it.
fn parse(who: &str) -> Result<UserOrGroup, Fail> {
    match who.strip_prefix('@') {
        Some(group) => system::group(group).map(UserOrGroup::Group),
        None => system::owner(who).map(|owner| UserOrGroup::User(owner.uid)),
    }
}

fn name(who: UserOrGroup) -> String {
    match who {
        UserOrGroup::User(uid) => names::user_name(uid),
        UserOrGroup::Group(gid) => format!("@{}", names::group_name(gid)),
    }
}

fn set(invocation: &Invocation, command: &'static str, who: &str, said: FlowRecord) -> Result<(), Fail> {
    let FlowRecord { weight, ops_per_sec, bytes_per_sec } = said;
    let who = parse(who)?;
    let request = admin::FlowSet { who, weight, ops_per_sec, bytes_per_sec };
    let reply = invocation.ask(command, &request)?;
    let flow = reply.flows.first().ok_or_else(|| Fail::new(format!("{}: nothing was set", name(who))))?;
    output::show(invocation.format, flow, || {
        let [who, weight, ops, bytes] = cells(flow);
        format!(
            "{who}: weight: {weight}; most operations in a second: {ops}; most bytes in a second: {bytes}"
        )
    })
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("flow list", &admin::FlowList)?;
    output::reply(invocation.format, &reply, || {
        if reply.flows.is_empty() {
            return "nothing is set: all users get equal parts".into();
        }
        Table::new(&[
            ("USER|@GROUP", Side::Left),
            ("WEIGHT", Side::Right),
            ("OPS/S", Side::Right),
            ("BYTES/S", Side::Right),
        ])
        .rows(&reply.flows, cells)
        .to_string()
    })
}

/// Name, weight and ceilings; `-` where nothing is set.
fn cells(flow: &FlowInfo) -> [String; 4] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    [
        name(flow.who),
        or_dash(flow.weight.map(|w| w.to_string())),
        or_dash(flow.ops_per_sec.map(size::count_limit)),
        or_dash(flow.bytes_per_sec.map(size::bytes_limit)),
    ]
}

fn show(invocation: &Invocation, user: &str) -> Result<(), Fail> {
    let uid = system::owner(user)?.uid;
    let mut settings = FlowSettings::default();
    for flow in invocation.ask("flow show", &admin::FlowList)?.flows {
        let FlowInfo { who, weight, ops_per_sec, bytes_per_sec } = flow;
        settings.set(who, FlowRecord { weight, ops_per_sec, bytes_per_sec });
    }
    let groups = system::groups_of(uid);
    let EffectiveLimits { weight, ops_per_sec, bytes_per_sec } = settings.in_force(uid, &groups);
    let shown = Shown { user: names::user_name(uid), uid, groups, weight, ops_per_sec, bytes_per_sec };
    output::show(invocation.format, &shown, || {
        let groups: Vec<String> = shown.groups.iter().map(|gid| names::group_name(*gid)).collect();
        let usual = if weight == WEIGHT_USUAL { " (the usual one)" } else { "" };
        [
            ("user", format!("{} ({uid})", shown.user)),
            ("groups", if groups.is_empty() { "none known".into() } else { groups.join(", ") }),
            ("weight", format!("{weight}{usual}")),
            ("most operations in a second", size::count_limit(ops_per_sec)),
            ("most bytes in a second", size::bytes_limit(bytes_per_sec)),
        ]
        .map(|(name, value)| format!("{name:<28} {value}\n"))
        .concat()
    })
}
