//! `mount.leeward`: what mount(8) runs for the type `leeward`, and so for lines of /etc/fstab and
//! mount units of systemd; and `mount.fuse.leeward`, which it runs to change a mount that it only
//! knows from the table of mounts. It is this program under these names (symbolic links), and does
//! what `lee mount --background` does, or for a cell in a directory of this machine
//! `lee up --background`, with the command line and the exit codes that mount(8) wants.

use crate::args::Cli;
use crate::background;
use crate::cmd::{Command, mount, up};
use crate::fail::{Fail, text};
use crate::mount_options::{self, MountWord};
use crate::output;
use clap::Parser;
use leeward_env::Env;
use leeward_volume::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The names under which this program is the helper.
const NAMES: [&str; 2] = ["mount.leeward", "mount.fuse.leeward"];
/// mount(8): a wrong command line, and a mount that failed.
const USAGE: u8 = 1;
const FAILED: u8 = 32;

/// Options that are mount(8)'s or systemd's own, or say what is so anyway. Also all that begin with
/// [`IGNORED_PREFIXES`].
const IGNORED: [&str; 31] = [
    "defaults",
    "auto",
    "noauto",
    "_netdev",
    "nofail",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "_rnetdev",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "nomand",
    "uhelper=leeward",
];
const IGNORED_PREFIXES: [&str; 4] = ["x-", "X-", "comment=", "user="];
/// With `remount` also what the table of mounts has from the kernel.
const OF_KERNEL: [&str; 6] =
    ["user_id=", "group_id=", "max_read=", "default_permissions", "seclabel", "blksize="];

/// Mounts, if this program runs under the helper's name.
pub fn if_helper() -> Option<ExitCode> {
    let mut line = std::env::args_os();
    let name = line.next()?;
    let name = Path::new(&name).file_name().and_then(OsStr::to_str)?;
    // the process in the background may have been started by a copy of that name
    if !NAMES.contains(&name) || background::is_child() {
        return None;
    }
    let arguments: Vec<OsString> = line.collect();
    Some(run(&arguments).map_or_else(
        |fail| {
            output::note(&format!("{name}: {fail}"));
            ExitCode::from(if fail.code() == 2 { USAGE } else { FAILED })
        },
        |()| ExitCode::SUCCESS,
    ))
}

fn run(arguments: &[OsString]) -> Result<(), Fail> {
    let asked = Asked::read(arguments)?;
    if asked.is_fake {
        return Ok(());
    }
    if asked.is_remount {
        let restrictions = mount_options::options(Path::new(&asked.source), &asked.options).restrictions;
        return leeward_fuse::remount(&asked.at, restrictions).map_err(|e| Fail::new(e.to_string()));
    }
    let token = asked.token_file.as_deref().map_or(Ok(None), read_token)?;
    match command(&asked.command_line()?)? {
        Command::Mount(args) => mount::in_background(&Env::real(), args, token),
        Command::Up(args) => up::in_background(&Env::real(), args),
        _ => Err(usage("this is no mount")),
    }
}

/// What a command line of `lee` says.
fn command(line: &[OsString]) -> Result<Command, Fail> {
    let parsed = Cli::try_parse_from(line).map_err(|e| {
        let text = e.to_string();
        let first = text.lines().next().unwrap_or_default();
        usage(first.strip_prefix("error: ").unwrap_or(first))
    });
    Ok(parsed?.command)
}

/// The token in a file. When the machine has enrolled, the file may be removed.
fn read_token(file: &Path) -> Result<Option<String>, Fail> {
    match std::fs::read_to_string(file) {
        Ok(token) => Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Fail::new(format!("{}: {}", file.display(), text(&e)))),
    }
}

/// What mount(8) asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    source: OsString,
    at: PathBuf,
    /// Nothing is to be mounted.
    is_fake: bool,
    /// The options of what is mounted there are to change.
    is_remount: bool,
    token_file: Option<PathBuf>,
    timeout: Option<String>,
    /// Directory and size.
    cache: Option<String>,
    options: Vec<MountWord>,
}

impl Asked {
    /// `SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`
    fn read(arguments: &[OsString]) -> Result<Asked, Fail> {
        let (mut asked, mut is_sloppy, mut options, mut places) =
            (Asked::default(), false, Vec::new(), Vec::new());
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(flags) = argument.as_bytes().strip_prefix(b"-").filter(|flags| !flags.is_empty()) else {
                places.push(argument);
                continue;
            };
            match flags {
                b"o" | b"t" => {
                    let value =
                        rest.next().ok_or_else(|| usage(format!("-{} needs a value", flags[0] as char)))?;
                    if flags == b"o" {
                        options.push(value.to_string_lossy().into_owned());
                    }
                }
                _ if flags.iter().all(|flag| b"sfnv".contains(flag)) => {
                    is_sloppy |= flags.contains(&b's');
                    asked.is_fake |= flags.contains(&b'f');
                }
                _ => return Err(usage(format!("{}: no such option", argument.to_string_lossy()))),
            }
        }
        let [source, at] = places[..] else { return Err(usage("name a server and a directory")) };
        (asked.source, asked.at) = (source.clone(), at.into());
        let options = options.iter().flat_map(|all| all.split(',')).filter(|option| !option.is_empty());
        let options: Vec<&str> = options.collect();
        asked.is_remount = options.contains(&"remount");
        for option in options {
            let is_of_kernel = OF_KERNEL.iter().any(|known| option.starts_with(known));
            asked.take(option, is_sloppy || asked.is_remount && is_of_kernel)?;
        }
        Ok(asked)
    }

    fn take(&mut self, option: &str, is_sloppy: bool) -> Result<(), Fail> {
        if IGNORED.contains(&option) || IGNORED_PREFIXES.iter().any(|prefix| option.starts_with(prefix)) {
            return Ok(());
        }
        match option.split_once('=') {
            Some(("token-file", file)) => self.token_file = Some(file.into()),
            Some(("timeout", time)) => self.timeout = Some(time.to_owned()),
            Some(("cache", cache)) => self.cache = Some(cache.to_owned()),
            _ if option == "remount" => (),
            _ => match mount_options::parse(option) {
                Ok(word) => self.options.push(word),
                Err(_) if is_sloppy => (),
                Err(why) => {
                    return Err(usage(format!(
                        "{option}: {why}, token-file=FILE, timeout=TIME, cache=DIR[:SIZE]"
                    )));
                }
            },
        }
        Ok(())
    }

    /// The command line of `lee` that does it: for a cell in a directory, or one that another
    /// machine serves.
    fn command_line(&self) -> Result<Vec<OsString>, Fail> {
        let dir = Path::new(&self.source);
        if !dir.is_absolute() {
            return Ok(self.line_of("mount", &[self.source.clone(), self.at.clone().into()]));
        }
        if self.token_file.is_some() || self.timeout.is_some() || self.cache.is_some() {
            let why = "token-file, timeout and cache are for a cell that another machine serves";
            return Err(usage(format!("{}: {why}", dir.display())));
        }
        if !Cell::exists(dir) {
            let dir = dir.display();
            return Err(Fail::new(format!("{dir} holds no cell; lee up {dir} makes one")));
        }
        let mut line = self.line_of("up", std::slice::from_ref(&self.source));
        line.splice(3..3, ["--mount".into(), self.at.clone().into()]);
        Ok(line)
    }

    fn line_of(&self, command: &str, what: &[OsString]) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["lee".into(), command.into(), "--background".into()];
        self.timeout.iter().for_each(|time| line.extend(["--timeout".into(), time.into()]));
        self.cache.iter().for_each(|cache| line.extend(["--cache".into(), cache.into()]));
        self.options.iter().for_each(|word| line.extend(["--options".into(), word.to_string().into()]));
        line.push("--".into());
        line.extend_from_slice(what);
        line
    }
}

fn usage(why: impl Into<String>) -> Fail {
    Fail::usage(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, Fail> {
        Asked::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_of_mount_are_read_as_it_gives_them() {
        let line = "node1:7433 /data -sn -v -o rw,_netdev,nofail,x-systemd.automount,noexec -t leeward \
            -o timeout=30s,token-file=/etc/t,user=joe,cache=/var/c:1G";
        let asked = read(line).expect("options");
        assert_eq!(
            (asked.source.as_os_str(), asked.at.as_path()),
            (OsStr::new("node1:7433"), Path::new("/data"))
        );
        assert_eq!(asked.options, [MountWord::ReadOnly(false), MountWord::NoExec(true)]);
        assert_eq!((asked.timeout.as_deref(), asked.token_file), (Some("30s"), Some("/etc/t".into())));
        assert_eq!(asked.cache.as_deref(), Some("/var/c:1G"));
        let asked = read("[::1] /data").expect("no options");
        let line = ["lee", "mount", "--background", "--", "[::1]", "/data"];
        assert_eq!(asked.command_line().expect("a server"), line.map(OsString::from));
        assert!(read("s /d -f").expect("options").is_fake);
        for wrong in ["s", "s /d x", "s /d -o", "s /d -o nonsense", "s /d -N 7", "s /d -x"] {
            assert_eq!(read(wrong).expect_err(wrong).code(), 2, "{wrong}");
        }
        assert_eq!(read("s /d -s -o nonsense").expect("sloppy").options, []);
        let again = read("s /d -o rw,relatime,user_id=0,allow_other,remount,ro").expect("remount");
        assert!(again.is_remount);
        assert_eq!(read("s /d -o remount,r0").expect_err("no option").code(), 2);
        assert_eq!(again.options.last(), Some(&MountWord::ReadOnly(true)));
    }

    #[test]
    fn a_directory_is_served_and_mounted_where_it_holds_a_cell() {
        let dir = tempfile::tempdir().expect("a directory");
        let line = |options: &str| {
            read(&format!("{} /data -o {options}", dir.path().display())).expect("options").command_line()
        };
        let none = line("ro").expect_err("there is no cell").to_string();
        assert!(none.contains("holds no cell; lee up"), "{none}");
        assert_eq!(line("timeout=3s").expect_err("nothing to wait for").code(), 2);
        Cell::create(&Env::real(), dir.path(), &leeward_volume::Config::default()).expect("a cell");
        let line = line("ro").expect("a cell");
        let Command::Up(_) = command(&line).expect("a command line") else { panic!("{line:?}") };
        let words = ["lee", "up", "--background", "--mount", "/data", "--options", "ro", "--"];
        assert_eq!(line[..8], words.map(OsString::from));
    }
}
