//! `lee up`: make a cell where there is none, serve it, mount it.

use super::Invocation;
use crate::background::{self, ParentPipe};
use crate::doors::Wanted;
use crate::fail::Fail;
use crate::locate::CellDir;
use crate::logging;
use crate::metrics::http;
use crate::mount_options::{self, MountWord};
use crate::output::{self, Format};
use crate::serve::{self, ServeOptions, Started, Startup};
use crate::size;
use leeward_door::listen;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serve a cell and mount it; make it where there is none
///
/// It stays in the foreground until Ctrl-C, SIGTERM, `lee down` or an unmount, and then makes
/// everything durable. Ordinary users can run it, too, where fusermount3 is installed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cell: a directory (of a cell, an empty one, or one to be made), or s3://BUCKET/PREFIX
    ///
    /// For a bucket, AWS_ENDPOINT_URL names the object store. Region and keys come from the usual
    /// AWS variables and profiles. A cell in a bucket that another machine serves is taken over.
    #[arg(value_name = "CELL")]
    dir: Option<PathBuf>,

    /// Where to mount it: an empty directory [default: DIR/mnt, or for a bucket one below /run,
    /// which is made]
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,

    /// Mount options, as for mount(8), with commas between them: ro, nosuid, nodev, noexec,
    /// subdir=PATH, allow_other, io_uring, no_io_uring
    ///
    /// subdir=PATH shows only that directory of the cell (root only); allow_other lets all users of
    /// the machine use the mount, which is so anyway where it can be, and fails where it cannot.
    /// They hold for the mount, not for the doors. Requests come by io_uring where the kernel has
    /// it, which root turns on for the machine; no_io_uring takes them from /dev/fuse, and with
    /// io_uring lee up fails where that cannot be had.
    #[arg(short = 'o', long = "options", value_name = "OPTIONS", value_delimiter = ',', value_parser = mount_options::parse)]
    options: Vec<MountWord>,

    /// Answer Prometheus there: a port of this machine only (9547), or 127.0.0.1:9547, or
    /// [::1]:9547; may be given several times [else: `metrics` in the settings]
    ///
    /// The page has names of volumes and numbers of users, and is open to all who reach the
    /// address.
    #[arg(long, value_name = "ADDRESS", value_parser = http::parse)]
    metrics: Vec<SocketAddr>,

    /// Answer S3 there: a port of this machine only (9000), an address with a port, or *:PORT; may
    /// be given several times [else: `s3` in the settings]
    ///
    /// What is published: lee bucket; who gets in: lee key. Without a certificate only on addresses
    /// of this machine.
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    s3: Vec<String>,

    /// Answer HTTP and WebDAV there: written as for --s3; may be given several times [else: `http`
    /// in the settings]
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    http: Vec<String>,

    /// The certificate that doors show, in PEM format, with those that sign it; read again when it
    /// changes [else: `tls-certificate` in the settings]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// Its key, in PEM format [else: `tls-key` in the settings]
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Keep what is read from object stores in this directory of a local disk; it may be deleted at
    /// any time [else: `disk-cache` in the settings]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,

    /// Its size, such as 50G [else: `disk-cache-mib` in the settings, 10 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_space)]
    cache_size: Option<u64>,

    /// Return as soon as it is mounted; the log is DIR/log, `lee status` of a cell in a bucket
    /// tells where
    #[arg(long)]
    background: bool,
}

/// Runs it.
///
/// # Errors
/// Why the cell could not be served, or not be ended cleanly.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    // the server has another directory later on
    let absolute = |file: Option<PathBuf>| file.map(std::path::absolute).transpose();
    let absolute = |file| absolute(file).map_err(|e| Fail::new(format!("where is this process? {e}")));
    let (certificate, key) = (absolute(args.tls_certificate)?, absolute(args.tls_key)?);
    let doors = Wanted { s3: args.s3, http: args.http, certificate, key, clients: None };
    let options = ServeOptions {
        dir: invocation.directory(args.dir)?,
        mount: args.mount,
        mount_options: args.options,
        metrics: args.metrics,
        doors,
        cache: args.cache,
        cache_bytes: args.cache_size,
    };
    if let Some(mut parent) = ParentPipe::if_child()? {
        return serve::serve(&invocation.env, &options, &mut parent).inspect_err(|fail| parent.failed(fail));
    }
    if args.background {
        let started = background::start(&options.dir)?;
        return announce(
            invocation.format,
            &started,
            &format!("ends it: lee down {}", started.cell.display()),
        );
    }
    logging::start();
    serve::serve(&invocation.env, &options, &mut Terminal { format: invocation.format })
}

/// An address of a door, as it was written.
fn door_address(text: &str) -> Result<String, String> {
    listen::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// Somebody watches.
struct Terminal {
    format: Format,
}

impl Startup for Terminal {
    fn locked(&mut self, _cell: &CellDir) -> Result<(), Fail> {
        Ok(())
    }

    fn started(&mut self, started: &Started) -> Result<(), Fail> {
        // Output that cannot be written is no reason to end what is mounted and works.
        let told = announce(self.format, started, "Ctrl-C ends it; so does lee down");
        told.or_else(|fail| {
            output::note(&format!("lee: {fail}"));
            Ok(())
        })
    }
}

fn announce(format: Format, started: &Started, end: &str) -> Result<(), Fail> {
    output::show(format, started, || {
        let mut text = String::new();
        for at in &started.stale {
            text.push_str(&format!("took away the dead mount {} that a killed process left\n", at.display()));
        }
        if let Some(holder) = &started.took_over {
            text.push_str(&format!("took the cell over from {holder}\n"));
        }
        let (cell, at) = (started.cell.display(), started.mount.display());
        let made = if started.created { "made the cell" } else { "opened the cell" };
        text.push_str(&format!("{made} {cell}; it is mounted at {at}\n"));
        for url in &started.metrics {
            text.push_str(&format!("metrics are at {url}\n"));
        }
        for (door, url) in &started.doors {
            text.push_str(&format!("the {door} door is at {url}\n"));
        }
        text.push_str("what to try next:\n");
        text.push_str(&format!("  cd {at}\n"));
        text.push_str(&format!("  lee volume create home --cell {cell}\n"));
        text.push_str(&format!("  lee df --cell {cell}\n"));
        text.push_str(&format!("{end}\n"));
        text
    })
}
