//! Other machines: who may mount the cell, who is connected, and the end of a session.

use crate::console::html::{Side, button, table, text};
use crate::console::visit::{Made, Visit, page};
use crate::control::MachineSession;
use crate::{size, when};
use leeward_fs::accounts::Trust;
use leeward_volume::admin::{HostInfo, HostList};
use maud::{Markup, html};

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    let session = visit.session()?;
    let connected = visit.machines()?;
    let hosts = visit.ask(&HostList)?.hosts;
    let columns = [
        ("Machine", Side::Left),
        ("Address", Side::Left),
        ("For", Side::Right),
        ("Silent", Side::Right),
        ("Inodes", Side::Right),
        ("Leases", Side::Right),
        ("Locks", Side::Right),
        ("Unflushed", Side::Right),
        ("Requests", Side::Right),
        ("Users", Side::Left),
        ("Action", Side::Left),
    ];
    let row = |of: &MachineSession| {
        let number = of.session.to_string();
        vec![
            text(&of.host),
            text(of.address.as_deref().unwrap_or("not connected")),
            text(when::ago(of.age_secs as i64)),
            text(format!("{:.1} s", of.silent_ms as f64 / 1e3)),
            text(size::count(of.inodes)),
            text(size::count(of.leases)),
            text(size::count(of.locks)),
            text(of.unflushed_in_short()),
            text(size::count(of.requests)),
            text(of.users.join(", ")),
            button(
                session,
                "/machines/end",
                &[("session", &number), ("host", &of.host)],
                "End",
                &format!("session of {}", of.host),
            ),
        ]
    };
    let rows: Vec<Vec<Markup>> = connected.iter().map(row).collect();
    let body = html! {
        h2 { "Sessions" }
        (table("Machines that have mounted the cell", &columns, &rows, "No machine is connected."))
        h2 { "Machines that are let in" }
        (hosts_table(&hosts))
    };
    page("Machines", "/machines", body)
}

fn hosts_table(hosts: &[HostInfo]) -> Markup {
    let columns =
        [("Machine", Side::Left), ("Since", Side::Left), ("May use", Side::Left), ("Bounds", Side::Left)];
    let row = |host: &HostInfo| {
        let volumes = if host.volumes.is_empty() { "all volumes".into() } else { host.volumes.join(", ") };
        vec![
            text(&host.name),
            text(host.enrolled_secs.map_or_else(|| "has not come yet".into(), when::utc)),
            text(volumes),
            text(bounds(host)),
        ]
    };
    let rows: Vec<Vec<Markup>> = hosts.iter().map(row).collect();
    table("Machines", &columns, &rows, "None: `lee host add NAME` lets one in.")
}

fn bounds(host: &HostInfo) -> String {
    let is = |is: bool, what: &'static str| is.then_some(what);
    let all = [
        is(host.read_only, "reads only"),
        is(host.root_squash, "root is nobody"),
        is(!host.uids.is_empty(), "some user ids"),
        is(host.trust == Trust::User, "users log in"),
        is(host.gateway, "is a gateway"),
        is(host.mirror, "sends copies"),
    ];
    let told: Vec<&str> = all.into_iter().flatten().collect();
    if told.is_empty() { "none".into() } else { told.join(", ") }
}

/// Ends a session.
pub fn end(visit: &Visit<'_>) -> Made {
    let host = visit.form().get("host").to_owned();
    let number = visit.form().number("session").unwrap_or(0);
    let done = visit.end_machine(number).map(|was| match was {
        true => format!("The session of {host} is ended: it begins anew, and is told what it has lost."),
        false => "That session had ended already.".into(),
    });
    visit.after(done, "/machines", &[])
}
