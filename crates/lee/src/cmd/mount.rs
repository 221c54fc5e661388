//! `lee mount`: mount a cell that another machine serves.

use super::Invocation;
use crate::background::{self, ParentPipe, Role, Start};
use crate::control::SocketPath;
use crate::control::relay::Relay;
use crate::control::server::{FOR_ALL, Server};
use crate::enrol::{self, Enrol};
use crate::fail::{Fail, TAKEN_OVER, text};
use crate::group_names::{GroupNames, ServerGroups};
use crate::host_keys::HostKeys;
use crate::keeper::Kept;
use crate::mount_options::{self, MountWord};
use crate::output::{self, Format};
use crate::serve::{Started, Startup};
use crate::{locate, logging, memory, mounts, notify, size, system, when};
use leeward_env::Env;
use leeward_fuse::{Mount, Unmounted};
use leeward_remote::{CacheOptions, Client};
use serde_json::json;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Mount a cell that another machine serves (lee serve, or lee up --listen)
///
/// The machine needs a token once: `lee host add NAME` on the server prints it. From then on the
/// server knows this machine by its key, which is kept in /var/lib/leeward (LEE_HOST_DIR names
/// another directory). It stays in the foreground until Ctrl-C, SIGTERM or an unmount. While the
/// server does not answer, programs wait. Commands that name a path in the mount, such as lee du
/// and lee snap, are run by the server in the name of the user who asks.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server: its name or address, and its port if that is not 7433; of a cell with several
    /// servers any of them, or several with commas between them
    #[arg(value_name = "HOST[:PORT]", value_parser = enrol::parse_servers)]
    server: String,

    /// Where to mount it: an empty directory
    #[arg(value_name = "PATH")]
    at: PathBuf,

    /// The token that `lee host add` has printed; needed the first time only
    ///
    /// Other users of this machine may see it here until it is used, which it can be once. The
    /// environment variable LEE_MOUNT_TOKEN hides it.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// Let requests fail (EIO) that have waited so long for a server that does not answer, such as
    /// 30s [default: they wait]
    ///
    /// Such a request may have been done, if the server had it before.
    #[arg(long, value_name = "TIME", value_parser = when::parse_duration)]
    timeout: Option<Duration>,

    /// Keep content that programs read on a disk of this machine, over restarts of the mount
    ///
    /// DIR is a directory for this mount alone, on a disk that only root reads: content is not
    /// encrypted there. SIZE is how much it may use, such as 50G [default: 10G]. What is there is
    /// used only when the server says that it is what the file has now.
    #[arg(long, value_name = "DIR[:SIZE]", value_parser = cache)]
    cache: Option<CacheOptions>,

    /// Mount options, as for lee up, with commas between them
    #[arg(short = 'o', long = "options", value_name = "OPTIONS", value_delimiter = ',', value_parser = mount_options::parse)]
    options: Vec<MountWord>,

    /// Return as soon as it is mounted; umount or lee down ends it
    ///
    /// When its process is killed, it is mounted again. What happens is in the file log of a
    /// directory below /run/leeward/mounts, or of LEE_STATE_DIR.
    #[arg(long)]
    background: bool,

    /// With --background: when its process is killed, it stays down
    #[arg(long, requires = "background")]
    no_keeper: bool,
}

impl Args {
    /// The command line of the process in the background, without the token: the environment has
    /// that.
    fn command_line(&self) -> Result<Vec<OsString>, Fail> {
        let at = std::path::absolute(&self.at).map_err(|e| unresolved(&self.at, &e))?;
        let mut line: Vec<OsString> = vec!["mount".into(), (&self.server).into(), at.into()];
        let mut add = |name: &str, value: String| line.extend([name.into(), value.into()]);
        if let Some(time) = self.timeout {
            add("--timeout", format!("{}ms", time.as_millis()));
        }
        if let Some(CacheOptions { dir, bytes }) = &self.cache {
            let dir = std::path::absolute(dir).map_err(|e| unresolved(dir, &e))?;
            add("--cache", format!("{}:{bytes}", dir.display()));
        }
        self.options.iter().for_each(|word| add("--options", word.to_string()));
        line.push("--background".into());
        Ok(line)
    }

    fn role(&self) -> Role {
        if self.no_keeper { Role::Server } else { Role::Keeper }
    }
}

/// Size of a cache that is given without.
const CACHE_BYTES: u64 = 10 << 30;
/// The variable by which a process in the background gets the token.
const TOKEN: &str = "LEE_MOUNT_TOKEN";

fn unresolved(at: &Path, e: &io::Error) -> Fail {
    Fail::new(format!("{}: {}: name an empty directory", at.display(), text(e)))
}

/// A directory, and a size.
fn cache(text: &str) -> Result<CacheOptions, String> {
    let with_size = text.rsplit_once(':').filter(|(_, size)| !size.contains('/'));
    let (dir, bytes) = match with_size {
        Some((dir, size)) => (dir, size::parse_space(size)?),
        None => (text, CACHE_BYTES),
    };
    if dir.is_empty() || dir.contains(',') {
        return Err("name a directory, and a size if it is not 10G: /var/cache/leeward:50G".into());
    }
    Ok(CacheOptions { dir: dir.into(), bytes })
}

/// Runs it.
///
/// # Errors
/// Why it could not be mounted, or not be unmounted.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    let env = &invocation.env;
    if let Some(mut parent) = ParentPipe::if_child()? {
        return run_in_background(env, &args, &mut parent).inspect_err(|fail| parent.failed(fail));
    }
    if !args.background {
        logging::start();
        let mounted = Mounted::start(env, &args)?;
        notify::ready();
        let told = announce(invocation.format, &args.server, &mounted.started()?, &mounted.client.host());
        told.unwrap_or_else(|fail| output::note(&format!("lee: {fail}")));
        return mounted.wait(env);
    }
    let started = start_in_background(env, &args)?;
    announce(invocation.format, &args.server, &started, &started.cell.to_string_lossy())
}

/// Mounts in the background, with this token if there is one.
///
/// # Errors
/// Why it could not be mounted.
pub fn in_background(env: &Env, args: Args, token: Option<String>) -> Result<(), Fail> {
    let args = Args { token: token.or(args.token), ..args };
    start_in_background(env, &args).map(drop)
}

fn start_in_background(env: &Env, args: &Args) -> Result<Started, Fail> {
    locate::make_state_absolute();
    let at = resolved(&args.at)?;
    let is_there = mounts::all().iter().any(|m| m.at == at && m.server().is_some());
    if is_there && mounts::is_alive(env, &at) {
        return Err(Fail::new(format!("{} is mounted already", at.display())));
    }
    let state = locate::mount_state(&at)?;
    // one that tries in vain stands aside
    if let Some(kept) = Kept::find(env, &state).filter(|kept| kept.record.waiting.is_some()) {
        kept.end(&state)?;
    }
    if let Some(token) = &args.token {
        // SAFETY: this process has one thread yet.
        unsafe { std::env::set_var(TOKEN, token) };
    }
    background::start_with_log(&state.log(), &args.command_line()?, args.role())
}

fn run_in_background(env: &Env, args: &Args, parent: &mut ParentPipe) -> Result<(), Fail> {
    let mounted = Mounted::start(env, args)?;
    parent.log_to(&locate::mount_state(mounted.mount.at())?.log())?;
    let started = Started { cell: mounted.client.host().into(), ..mounted.started()? };
    if let Err(fail) = parent.started(&started) {
        mounted.end()?;
        return Err(fail);
    }
    mounted.wait(env)
}

/// Where it is to be mounted. A dead mount there cannot be asked.
fn resolved(at: &Path) -> Result<PathBuf, Fail> {
    mounts::without_links(at).map_err(|e| unresolved(at, &e))
}

/// The mount of this server at this place.
fn mount_at(at: &Path, server: &str) -> Option<mounts::CellMount> {
    mounts::all().into_iter().rev().find(|m| m.at == at && m.cell == Path::new(server))
}

/// A mount that is gone when it is to be made again was unmounted.
fn refuse_if_unmounted(args: &Args) -> Result<(), Fail> {
    match mount_at(&args.at, &args.server) {
        Some(_) => Ok(()),
        None => Err(Fail::new(format!("{} was unmounted", args.at.display())).with_code(TAKEN_OVER)),
    }
}

/// Takes away the mount that the process before has left; it is not asked, as calls on it may hang.
fn detach_dead(args: &Args) -> Result<(), Fail> {
    refuse_if_unmounted(args)?;
    let failed = |e| Fail::new(format!("{}: the dead mount stays: {}", args.at.display(), text(&e)));
    mounts::detach(&args.at).map_err(failed)
}

/// A mount, and the connection behind it.
struct Mounted {
    /// Hears commands, and stops first.
    _control: Option<Server>,
    _names: Option<GroupNames>,
    mount: Arc<Mount>,
    client: Client,
    server: String,
    end: Sender<()>,
    ended: Receiver<()>,
}

impl Mounted {
    fn start(env: &Env, args: &Args) -> Result<Mounted, Fail> {
        let is_again = background::kept_by().is_some_and(|kept| kept.start != Start::First);
        if is_again {
            refuse_if_unmounted(args)?;
        }
        let client = connect(env, args, is_again)?;
        let (end, ended) = channel();
        // before there is a mount that a signal would leave behind
        let signalled = end.clone();
        system::on_signals(env, move |_| _ = signalled.send(())).inspect_err(|_| client.close())?;
        let mounted = if is_again { detach_dead(args) } else { Ok(()) }.and_then(|()| {
            let options = mount_options::options(Path::new(&args.server), &args.options);
            let options = leeward_fuse::Options { may_hide: is_again, ..options };
            leeward_fuse::mount(client.clone(), env, &args.at, options).map_err(|e| Fail::new(e.to_string()))
        });
        let mount = Arc::new(mounted.inspect_err(|_| client.close())?);
        let control = listen(env, &mount, (&client, &args.server), &end);
        let control = control.inspect_err(|fail| tracing::warn!("no commands by this mount: {fail}")).ok();
        let place = format!("{}:{}", args.server, mount.at().display());
        let names = GroupNames::start(env, &place, ServerGroups::new(env, &client));
        Ok(Mounted {
            _control: control,
            _names: names,
            mount,
            client,
            server: args.server.clone(),
            end,
            ended,
        })
    }

    fn started(&self) -> Result<Started, Fail> {
        Ok(Started {
            cell: self.server.clone().into(),
            mount: Some(self.mount.at().to_path_buf()),
            listen: Vec::new(),
            metrics: Vec::new(),
            doors: Vec::new(),
            pid: std::process::id(),
            created: false,
            stale: Vec::new(),
            took_over: None,
            served_by: None,
        })
    }

    /// Serves the mount until a signal, `lee down` or an unmount ends it.
    fn wait(self, env: &Env) -> Result<(), Fail> {
        memory::of_process(env);
        let (mount, unmounted) = (self.mount.clone(), self.end.clone());
        env.spawn("mount-watch", move || {
            mount.wait();
            let _ = unmounted.send(());
        });
        while self.ended.recv().is_ok() {
            match self.end() {
                Ok(()) => return Ok(()),
                Err(fail) => output::note(&format!("lee: {fail}; still mounted")),
            }
        }
        Ok(())
    }

    fn log_cache(&self) {
        if let Some(figures) = self.client.cache_figures() {
            tracing::info!(
                "the cache on disk: {} blocks were found in it, {} damaged; {} calls of the disk failed; {} bytes",
                figures.hits,
                figures.bad,
                figures.errors,
                figures.bytes
            );
        }
    }

    fn end(&self) -> Result<(), Fail> {
        match self.mount.unmount() {
            Ok(how) => {
                if how == Unmounted::Detached {
                    let at = self.mount.at().display();
                    output::note(&format!("lee: {at} was still in use: its users get errors from now on"));
                }
                self.log_cache();
                self.client.close();
                Ok(())
            }
            Err(e) => Err(Fail::new(e.to_string())),
        }
    }
}

/// Listens for commands.
fn listen(
    env: &Env,
    mount: &Mount,
    (client, server): (&Client, &str),
    end: &Sender<()>,
) -> Result<Server, Fail> {
    let found = mount_at(mount.at(), server);
    let found = found.ok_or_else(|| Fail::new("the mount is not in the table of mounts"))?;
    locate::prepare_mounts()?;
    let end = end.clone();
    let relay = Relay {
        env: env.clone(),
        client: client.clone(),
        server: server.to_owned(),
        for_all: found.for_all,
        end: Box::new(move || _ = end.send(())),
    };
    let path = locate::mount_socket(&found);
    let failed = |e: io::Error| Fail::new(format!("{}: {}", path.display(), text(&e)));
    let socket = SocketPath::at(path.clone()).map_err(failed)?;
    Server::listen(env, socket, FOR_ALL, Arc::new(relay)).map_err(failed)
}

fn connect(env: &Env, args: &Args, is_again: bool) -> Result<Client, Fail> {
    let token = args.token.as_deref();
    let (server, cache) = (&args.server, args.cache.clone());
    let follows_at = is_again.then_some(&*args.at);
    let client = enrol::connect(
        env,
        &Enrol { server, token, variable: TOKEN, timeout: args.timeout, cache, follows_at },
    )?;
    // without that it is waited for when this process is killed
    let noted = client.session().map_or(Ok(()), |session| HostKeys::open()?.note_session(&args.at, &session));
    noted.unwrap_or_else(|fail| tracing::warn!("{fail}"));
    Ok(client)
}

fn announce(format: Format, server: &str, started: &Started, host: &str) -> Result<(), Fail> {
    let Started { mount, pid, .. } = started;
    let value = json!({"server": server, "host": host, "mount": mount, "pid": pid});
    output::show(format, &value, || {
        let at = mount.as_deref().unwrap_or(Path::new("")).display();
        format!("mounted {server} at {at}, as the host {host}\numount {at}, or lee down {at}, ends it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::cmd::Command;
    use clap::Parser;

    #[test]
    fn a_cache_is_a_directory_with_a_size_or_without() {
        for (text, dir, bytes) in [
            ("/c", "/c", 10 << 30),
            ("/c:1G", "/c", 1 << 30),
            ("/a:b/c", "/a:b/c", 10 << 30),
            ("c:5", "c", 5),
        ] {
            assert_eq!(cache(text), Ok(CacheOptions { dir: dir.into(), bytes }), "{text}");
        }
        for wrong in ["", ":1G", "/c:none", "/c:x", "/a,b"] {
            assert!(cache(wrong).is_err(), "{wrong}");
        }
        let line = ["lee", "mount", "s", "/mnt", "--cache", "/c:1G", "--background"];
        let Command::Mount(args) = Cli::parse_from(line).command else { panic!("a mount") };
        let line = args.command_line().expect("a line");
        assert!(line.windows(2).any(|pair| pair == ["--cache", "/c:1073741824"]), "{line:?}");
    }
}
