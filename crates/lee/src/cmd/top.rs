//! `lee top`: what flows do now, what they wait for, and behind whom. Rates are differences of two
//! reports of the gate.

use super::{Invocation, flows};
use crate::fail::Fail;
use crate::output::{self, Format, Side, Table};
use crate::size;
use crate::summary::rates::{MachineRow, Order, Shown, behind, door, rates};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Show what users do now, what they wait for, and behind whom
///
/// DOOR names the machine that most operations of a row came from, and how many others there are.
/// Who waits FOR leases waits BEHIND a machine that keeps copies of what is to be changed; the
/// second table says how long operations, of whomever, waited for each machine. Ends with Ctrl-C.
/// With --json one object a line.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show the last interval once and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    every: f64,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Order::Share)]
    sort: Order,
}

fn interval(text: &str) -> Result<f64, String> {
    let secs = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=3600.0).contains(&secs) { Ok(secs) } else { Err("not between 0.1 and 3600".into()) }
}

/// Runs it.
///
/// # Errors
/// When nothing serves the cell.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell_anywhere()?;
    let mut before = flows(&cell)?;
    loop {
        invocation.env.sleep(Duration::from_secs_f64(args.every));
        let now = flows(&cell)?;
        let shown = rates(&before, &now, args.sort);
        if !args.once && invocation.format == Format::Text && io::stdout().is_terminal() {
            output::print_bytes(b"\x1b[H\x1b[J")?;
        }
        output::show(invocation.format, &shown, || text(&shown))?;
        if args.once {
            return Ok(());
        }
        before = now;
    }
}

fn text(shown: &Shown) -> String {
    let columns = [
        ("USER", Side::Left),
        ("JOB", Side::Left),
        ("DOOR", Side::Left),
        ("VOLUME", Side::Left),
        ("OPS/S", Side::Right),
        ("READ/S", Side::Right),
        ("WRITE/S", Side::Right),
        ("SHARE", Side::Right),
        ("MS/OP", Side::Right),
        ("WAIT", Side::Right),
        ("FOR", Side::Left),
        ("BEHIND", Side::Left),
        ("UNSTORED", Side::Right),
    ];
    let table = Table::new(&columns).rows(&shown.flows, |r| {
        let waited = r.waited_milliseconds_per_operation / r.milliseconds_per_operation.max(1e-9);
        [
            r.user.clone(),
            r.job.clone().unwrap_or_else(|| "-".into()),
            door(r),
            r.volume.clone(),
            format!("{:.0}", r.operations_per_second),
            size::bytes(r.read_bytes_per_second as u64),
            size::bytes(r.written_bytes_per_second as u64),
            format!("{:.0} %", r.share * 100.0),
            format!("{:.2}", r.milliseconds_per_operation),
            format!("{:.0} %", waited.min(1.0) * 100.0),
            r.waited_for.clone().unwrap_or_else(|| "-".into()),
            behind(r),
            size::bytes(r.dirty_bytes),
        ]
    });
    let machines = machine_table(&shown.machines);
    format!(
        "{:.0} operations/s; {} waiting for their turn, {} for their ceiling, {} for a thread; {} not yet stored\n\n{table}{machines}",
        shown.operations_per_second,
        size::count(shown.waiting_for_turn),
        size::count(shown.waiting_for_ceiling),
        size::count(shown.waiting_for_thread),
        size::bytes(shown.dirty_bytes),
    )
}

/// The machines, where there are any.
fn machine_table(machines: &[MachineRow]) -> String {
    if machines.is_empty() {
        return String::new();
    }
    let columns = [
        ("MACHINE", Side::Left),
        ("SESSIONS", Side::Right),
        ("OPS/S", Side::Right),
        ("READ/S", Side::Right),
        ("WRITE/S", Side::Right),
        ("MS/OP", Side::Right),
        ("WAITED FOR", Side::Right),
    ];
    let table = Table::new(&columns).rows(machines, |m| {
        [
            output::printable(&m.host),
            size::count(m.sessions),
            format!("{:.0}", m.operations_per_second),
            size::bytes(m.read_bytes_per_second as u64),
            size::bytes(m.written_bytes_per_second as u64),
            format!("{:.2}", m.milliseconds_per_operation),
            format!("{:.0} ms", m.waited_for_milliseconds),
        ]
    });
    format!("\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_a_table_where_there_are_any() {
        assert_eq!(machine_table(&[]), "");
        let row = MachineRow {
            host: "node17".into(),
            sessions: 1,
            operations_per_second: 3.0,
            read_bytes_per_second: 0.0,
            written_bytes_per_second: 0.0,
            milliseconds_per_operation: 1.5,
            waited_for_milliseconds: 2100.0,
        };
        let table = machine_table(&[row]);
        assert!(
            table.contains("MACHINE") && table.contains("node17") && table.contains("2100 ms"),
            "{table}"
        );
    }
}
