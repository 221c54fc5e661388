//! The command line: what is global, and the help a person sees first. Each command's own arguments
//! are in its file.

use crate::cmd::Command;
use crate::output;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::process::ExitCode;

/// Leeward: a file system that stays calm.
///
/// A cell is a file system in a directory of this machine. `lee up DIR` makes it, serves it and
/// mounts it.
#[derive(Debug, Parser)]
#[command(name = "lee", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// The cell: its directory, or where it is mounted [else: LEE_CELL, else the one the current
    /// directory is in]
    #[arg(long, global = true, value_name = "DIR")]
    pub cell: Option<OsString>,

    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands as help shows them.
const GROUPS: [(&str, &[&str]); 9] = [
    ("Serve", &["up", "serve", "down", "restart", "status", "console"]),
    (
        "Volumes and space",
        &["volume", "project", "pool", "snap", "mirror", "backup", "bin", "quota", "df", "du", "report"],
    ),
    ("Arrive and leave", &["import", "export"]),
    ("Who may and does what", &["acl", "group", "top", "why", "flow", "audit", "watch"]),
    ("Doors", &["bucket", "user", "key", "token"]),
    ("Other machines", &["mount", "gateway", "host", "session", "server", "login", "logout"]),
    ("Care", &["doctor", "fsck", "scrub", "sync", "config", "shard", "upgrade"]),
    ("Measure any file system", &["probe", "lab"]),
    ("This program", &["completions", "man"]),
];

const EXAMPLES: &str = "\
Examples:
  lee up /srv/cell                      make it, serve it, mount it at /srv/cell/mnt
  lee up /srv/cell --mount /home --background
  cd /home && lee volume create alice --owner alice
  lee quota set alice --bytes 100G --files 1M
  lee snap create alice before && lee snap schedule / 1h --keep 24h7d4w12m
  lee import /nfs/home alice            bring a tree, again and again while it is used
  lee export alice --to alice.tar       leave: a snapshot as an archive, with checksums
  lee du . && lee df                    at once, however large the tree
  lee top                               who does what, and who waits behind whom
  lee probe /home /scratch              time small operations, on whatever is mounted there
  lee serve /srv/cell && lee host add node7       on the server; then on node7:
  lee mount SERVER /data --token TOKEN
  lee console                           a link that logs you in to the pages at the HTTP door
  lee down /srv/cell

`lee volume create --help` and the like say more.
Exit codes: 0 done, 1 failed, 2 wrong usage; 3 of `lee status`: nothing runs;
4 of `lee up`: another machine has taken the cell over; of `lee fsck` and `lee scrub`: 1 findings, 2 could not check;
of `lee import`: 3 some files changed while they were read.
";

/// The command line as clap knows it, with its help in groups.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let template = template(&command);
    command.help_template(template).after_help(EXAMPLES)
}

/// The command line without our own layout of the help, for manual pages.
pub fn plain_command() -> clap::Command {
    Cli::command().after_help(EXAMPLES)
}

fn template(command: &clap::Command) -> String {
    let mut text = String::from("{about-section}\nUsage: {usage}\n");
    for (title, names) in GROUPS {
        text.push_str(&format!("\n{title}:\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(|c| c.get_about()).map(ToString::to_string);
            text.push_str(&format!("  {name:<12} {}\n", about.unwrap_or_default()));
        }
    }
    text.push_str("\nOptions:\n{options}\n\n{after-help}");
    text
}

/// Reads the command line. Help and mistakes are printed here; the error is what to end with.
///
/// # Errors
/// The exit code: 0 after help, 2 after a mistake.
pub fn parse() -> Result<Cli, ExitCode> {
    let parsed = command().try_get_matches().and_then(|m| Cli::from_arg_matches(&m));
    parsed.map_err(|e| {
        if !e.use_stderr() {
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
        let text = e.render().to_string();
        output::note(&match text.strip_prefix("error: ") {
            Some(rest) => format!("lee: {}", rest.trim_end()),
            None => text.trim_end().to_string(),
        });
        if let Some(hint) = cell_meant(&e) {
            output::note(&hint);
        }
        ExitCode::from(2)
    })
}

/// Some commands take the cell as an argument, and most by an option: what to say to somebody who
/// gave one of these an argument that may be a cell.
fn cell_meant(e: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = e.get(ContextKind::InvalidArg) else { return None };
    let is_place = argument.starts_with("s3://") || std::path::Path::new(argument).is_dir();
    (e.kind() == ErrorKind::UnknownArgument && is_place)
        .then(|| format!("If that is the cell: --cell {argument}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the arguments of a command say of it is its long help; a line at the command itself
    /// would replace it.
    #[test]
    fn commands_say_more_than_a_line() {
        const OF_ONE_LINE: [&str; 3] = ["df", "fsck", "sync"];
        let command = command();
        let has_more =
            |c: &&clap::Command| c.get_long_about().is_some_and(|long| long.to_string().lines().count() > 1);
        let short: Vec<&str> =
            command.get_subcommands().filter(|c| !has_more(c)).map(clap::Command::get_name).collect();
        assert_eq!(short, OF_ONE_LINE);
        let up =
            command.find_subcommand("up").and_then(clap::Command::get_long_about).map(ToString::to_string);
        assert!(up.is_some_and(|text| text.contains("fusermount3")), "what ordinary users need");
    }

    #[test]
    fn who_gives_a_cell_as_an_argument_is_told_of_the_option() {
        let hint = |args: &[&str]| {
            let parsed = command().try_get_matches_from(args);
            cell_meant(&parsed.expect_err("refused"))
        };
        assert_eq!(hint(&["lee", "fsck", "/tmp"]), Some("If that is the cell: --cell /tmp".into()));
        assert!(hint(&["lee", "fsck", "s3://bucket/cell"]).is_some());
        assert_eq!(hint(&["lee", "fsck", "/no/such/place"]), None);
        assert_eq!(hint(&["lee", "fsck", "--cel", "/tmp"]), None, "the error names the option itself");
    }

    #[test]
    fn every_command_is_in_one_group() {
        command().debug_assert();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|g| g.1.iter().copied()).collect();
        let command = command();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }
}
