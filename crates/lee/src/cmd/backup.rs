//! `lee backup`: volumes in repositories of restic's format.

mod repositories;

use super::Invocation;
use crate::backup::{BackupCall, BackupState, BackupStatus, Which};
use crate::control::client::{Client, Unreached};
use crate::fail::Fail;
use crate::output::{self, Side, Table, printable};
use crate::progress::Bar;
use crate::{locate, mounts, size, when};
use leeward_restic::sftp::SftpPlace;
use leeward_volume::admin::{self, BackupInfo};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Back volumes up to a cold store: encrypted, deduplicated, in the format of restic
///
/// The process that serves the cell takes a snapshot, stores what differs from the last one, and
/// again after --every. Directories in which nothing has changed are not looked at. Any restic
/// lists, checks and restores the repository, without lee and without the cell: keep its password
/// and its place somewhere else. Only root and the user who serves the cell may use this command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  lee backup add home --to /net/vault/home --password-file /root/vault.password
  lee backup add atlas --to 's3://cold/atlas?profile=cold' --password-file /root/cold.password --keep 7d5w6m
  lee backup list
  lee backup run home
  restic -r /net/vault/home -p /root/vault.password restore latest --target /srv/home
";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Back a volume up; again: change how. Makes the repository where there is none
    Add(AddArgs),
    /// Show how old each backup is, what is at work, and what went wrong
    #[command(visible_alias = "status")]
    List {
        /// The volume [default: all]
        volume: Option<String>,
    },
    /// Back a volume up now, and wait for that
    Run {
        #[command(flatten)]
        which: OneArgs,
        /// Also remove from the repository what nothing refers to any more; else that is done once
        /// a week
        #[arg(long)]
        prune: bool,
        /// Read all, also what has not changed, and store what the repository has lost
        #[arg(long)]
        all: bool,
    },
    /// Read the last backup of a volume back now, and compare it with the snapshot that it was made
    /// of
    ///
    /// This is done by itself, too, see `lee backup add --test-every`. Nothing is written: of a
    /// small volume all is compared, of a large one a random sample of names and some 1 GiB of
    /// content. Exits with 1 when anything differs.
    Test(OneArgs),
    /// Show the backups that a repository has
    Show(RepositoryArgs),
    /// Look whether a repository is whole, and all that its backups need is there
    Check {
        #[command(flatten)]
        repository: RepositoryArgs,
        /// Read all of it, and compare it with checksums
        #[arg(long)]
        read_data: bool,
    },
    /// Restore a backup into a directory
    ///
    /// With --from and --password-file this needs no cell, only the repository. Not run by root,
    /// all will belong to you.
    Restore {
        /// The volume, for its newest backup; or the id of a backup, as `lee backup show` prints it
        #[arg(value_name = "VOLUME|ID")]
        what: String,
        /// A directory that is empty, or not there yet
        #[arg(long, value_name = "PATH")]
        to: PathBuf,
        #[command(flatten)]
        from: FromArgs,
    },
    /// Back a volume up no more; the repository stays
    Remove(OneArgs),
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// The volume: its name, or the path of its root
    volume: String,
    /// Where to: an absolute path, s3://BUCKET/PREFIX[?profile=NAME], or sftp:USER@HOST:/PATH
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// A file with the password of the repository, which the process that serves the cell reads at
    /// each run
    ///
    /// Without the password nobody can restore: keep it somewhere else, too.
    #[arg(long, value_name = "FILE")]
    password_file: String,
    /// How long after a backup the next one is begun, such as 1h or 24h
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = when::parse_interval)]
    every: u32,
    /// Which backups are kept: the newest of so many hours, days, weeks, months and years; all:
    /// none goes, for a place where nothing can be removed
    #[arg(long, value_name = "COUNTS", default_value = "7d5w6m")]
    keep: String,
    /// How long after a test of the last backup the next one is begun, see `lee backup test`;
    /// never: only when asked
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_test_interval)]
    test_every: u32,
}

fn parse_test_interval(text: &str) -> Result<u32, String> {
    if text == "never" { Ok(0) } else { when::parse_interval(text) }
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The volume
    volume: String,
    /// The place, where there are several
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
}

#[derive(Debug, clap::Args)]
struct RepositoryArgs {
    /// The volume [default: all that are backed up]
    volume: Option<String>,
    #[command(flatten)]
    from: FromArgs,
}

#[derive(Debug, clap::Args)]
struct FromArgs {
    /// The repository, where the cell is lost or has several: an absolute path,
    /// s3://BUCKET/PREFIX[?profile=NAME], or sftp:USER@HOST:/PATH
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,
    /// The file with its password [default: the one that the cell knows]
    #[arg(long, value_name = "FILE", requires = "from")]
    password_file: Option<String>,
}

impl OneArgs {
    fn which(self) -> Which {
        Which { volume: Some(self.volume), to: self.to }
    }
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that it is not served.
pub fn run(invocation: &Invocation, args: Args) -> Result<ExitCode, Fail> {
    let shown = match args.action {
        Action::Check { repository, read_data } => {
            return repositories::check(invocation, repository, read_data);
        }
        Action::Restore { what, to, from } => return repositories::restore(invocation, &what, &to, from),
        Action::Show(args) => repositories::show(invocation, args),
        Action::Add(args) => add(invocation, args),
        Action::List { volume } => {
            let all = ask(invocation, BackupCall::List { which: Which { volume, to: None } })?;
            show(invocation, &all, || list(&all))
        }
        Action::Run { which, prune, all } => {
            let all = ask(invocation, BackupCall::Run { which: which.which(), prune, all })?;
            show(invocation, &all, || lines(&all, made))
        }
        Action::Test(args) => {
            let all = ask(invocation, BackupCall::Test { which: args.which() })?;
            show(invocation, &all, || lines(&all, tested))?;
            let is_good =
                all.iter().filter_map(|b| b.backup.tested.as_ref()).all(|t| t.difference_count == 0);
            return Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Action::Remove(args) => {
            let all = ask(invocation, BackupCall::Remove { which: args.which() })?;
            show(invocation, &all, || {
                lines(&all, |b| {
                    format!("{} is not backed up any more; what was backed up stays", place_of(b))
                })
            })
        }
    };
    shown.map(|()| ExitCode::SUCCESS)
}

fn add(invocation: &Invocation, args: AddArgs) -> Result<(), Fail> {
    let volume = volume_named(invocation, &args.volume)?;
    let backup = BackupInfo {
        to: place(invocation, &args.to)?,
        password_file: absolute(&args.password_file)?,
        every_secs: args.every,
        keep: args.keep,
        since_secs: 0,
        pruned_secs: 0,
        last: None,
        test_every_secs: args.test_every,
        tested: None,
        volume_number: 0,
        is_copy: false,
        volume,
    };
    let all = ask(invocation, BackupCall::Add { backup: Box::new(backup) })?;
    show(invocation, &all, || {
        lines(&all, |b| {
            format!(
                "{} is backed up, every {}: see lee backup list. Keep the password somewhere else, too",
                place_of(b),
                when::interval(b.backup.every_secs)
            )
        })
    })
}

/// A place as it is stored.
fn place(invocation: &Invocation, text: &str) -> Result<String, Fail> {
    if locate::is_bucket(text.as_ref()) {
        return Ok(text.into());
    }
    if SftpPlace::is_meant(text) {
        return SftpPlace::parse(text).map(|_| text.into()).map_err(|e| Fail::usage(format!("--to {e}")));
    }
    if text.contains("://") {
        return Err(Fail::usage(format!(
            "--to {text}: a place is an absolute path, s3://BUCKET/PREFIX, or sftp:USER@HOST:/PATH; mount another kind of \
             store, and name the directory"
        )));
    }
    let path = absolute(text)?;
    let cell = invocation.cell()?;
    let there = Path::new(&path).canonicalize().ok().or_else(|| mounts::resolve(Path::new(&path)));
    let resolved = there.unwrap_or_else(|| path.clone().into());
    let is_mounted = mounts::containing(&resolved).is_some_and(|mount| mount.cell == cell.path());
    if is_mounted || resolved.starts_with(cell.path()) {
        return Err(Fail::usage(format!("--to {text}: that is in the cell, which a backup is to outlast")));
    }
    Ok(path)
}

fn absolute(text: &str) -> Result<String, Fail> {
    let path = std::path::absolute(text).map_err(|e| Fail::new(format!("{text}: {e}")))?;
    path.into_os_string().into_string().map_err(|_| Fail::new(format!("{text}: is not UTF-8")))
}

/// A volume by its name, or by the path of its root.
fn volume_named(invocation: &Invocation, text: &str) -> Result<String, Fail> {
    if !text.contains('/') {
        return Ok(text.into());
    }
    invocation.session("backup add", |cell, session| {
        let at = mounts::path_in_cell(cell.path(), Path::new(text))?;
        let all = session.ask(&admin::VolumeList)?.volumes;
        let found = all.into_iter().find(|volume| volume.at == at);
        found.map(|volume| volume.name).ok_or_else(|| {
            Fail::new(format!(
                "{text} is not the root of a volume: volumes are backed up as a whole, see lee volume list, and make one \
                 with lee volume create"
            ))
        })
    })
}

fn ask(invocation: &Invocation, call: BackupCall) -> Result<Vec<BackupStatus>, Fail> {
    let cell = invocation.cell()?;
    let client = Client::connect(&cell).map_err(|e| match e {
        Unreached::Failed(fail) => fail,
        Unreached::Silent => Fail::new(format!(
            "{cell} is not served, and nothing is backed up then: start it with `lee up {cell}`, or `lee serve {cell}`"
        )),
    })?;
    let bar = Bar::new(invocation.format);
    let answer = client.backup(call, &mut |at| bar.show(&at));
    bar.clear();
    answer
}

fn show(invocation: &Invocation, all: &[BackupStatus], text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::show(invocation.format, &json!({ "backups": all }), text)
}

fn lines(all: &[BackupStatus], line: impl Fn(&BackupStatus) -> String) -> String {
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn place_of(b: &BackupStatus) -> String {
    format!("volume {} to {}", printable(&b.backup.volume), printable(&b.backup.to))
}

fn made(b: &BackupStatus) -> String {
    let Some(last) = &b.backup.last else { return format!("{}: nothing yet", place_of(b)) };
    let text = format!(
        "backed up {}: snapshot {} in {} ms; read {} of {}, stored {}",
        place_of(b),
        &last.id[..8],
        size::count(last.took_ms),
        size::bytes(last.bytes_read),
        size::counted(last.files_read, "file", "files"),
        size::bytes(last.sent_bytes),
    );
    b.note.as_ref().map_or(text.clone(), |note| format!("{text}\n{}", printable(note)))
}

fn tested(b: &BackupStatus) -> String {
    let Some(t) = &b.backup.tested else { return format!("{}: not tested", place_of(b)) };
    let much = if t.is_whole { "all of it" } else { "a random sample" };
    let compared =
        format!("{}, {} read back, {much}", size::counted(t.names, "name", "names"), size::bytes(t.bytes));
    if t.difference_count == 0 {
        return format!("{}: backup {} gives back what it was made of: {compared}", place_of(b), &t.id[..8]);
    }
    let count = size::counted(t.difference_count, "difference", "differences");
    let mut text = format!("{}: backup {} has {count}: {compared}", place_of(b), &t.id[..8]);
    t.differences.iter().for_each(|how| text.push_str(&format!("\n  {}", printable(how))));
    text + "\nwhat to do: docs/runbooks/LeewardBackupBad.md"
}

fn list(all: &[BackupStatus]) -> String {
    if all.is_empty() {
        return "no volumes are backed up: see lee backup --help".into();
    }
    let columns = [
        ("VOLUME", Side::Left),
        ("TO", Side::Left),
        ("EVERY", Side::Right),
        ("KEEP", Side::Left),
        ("STATE", Side::Left),
        ("LAST", Side::Right),
        ("TOOK", Side::Right),
        ("FILES", Side::Right),
        ("STORED", Side::Right),
        ("TESTED", Side::Right),
        ("AT WORK", Side::Left),
    ];
    let mut text = Table::new(&columns).rows(all, row).to_string();
    for b in all.iter().filter(|b| b.is_bad()) {
        let why = b.why_bad();
        let (volume, to) = (printable(&b.backup.volume), printable(&b.backup.to));
        text.push_str(&format!("ALARM the backup of {volume} to {to}: {}\n", printable(&why)));
    }
    for note in all.iter().filter_map(|b| b.note.as_ref()) {
        text.push_str(&format!("{}\n", printable(note)));
    }
    text
}

fn row(b: &BackupStatus) -> [String; 11] {
    let last = b.backup.last.as_ref();
    let of_last = |show: &dyn Fn(&admin::BackupMade) -> String| last.map_or_else(|| "-".into(), show);
    [
        printable(&b.backup.volume),
        printable(&b.backup.to),
        when::interval(b.backup.every_secs),
        b.backup.keep.clone(),
        state(b).into(),
        b.age_secs.map_or_else(|| "never".into(), when::ago),
        of_last(&|last| format!("{} s", size::count(last.took_ms.div_ceil(1000)))),
        of_last(&|last| size::count(last.files_read)),
        of_last(&|last| size::bytes(last.sent_bytes)),
        b.test_age_secs.map_or_else(|| "never".into(), when::ago),
        at_work(b),
    ]
}

fn state(b: &BackupStatus) -> &'static str {
    match b.state {
        BackupState::New => "not begun",
        BackupState::Good if b.late => "late",
        BackupState::Good => "good",
        BackupState::Running if b.error.is_some() => "trying again",
        BackupState::Running => "running",
        BackupState::Failing => "failing",
        BackupState::Copy => "is a copy",
    }
}

fn at_work(b: &BackupStatus) -> String {
    let Some(at) = &b.progress else { return "-".into() };
    let total = if at.total > 0 { format!(" of {}", size::count(at.total)) } else { String::new() };
    format!("{} {}{total}", printable(&at.phase), size::count(at.done))
}
