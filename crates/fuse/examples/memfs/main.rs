//! `memfs MOUNTPOINT [no_io_uring]`: a file system in memory behind the very same door as a cell.
//! What it reaches is the ceiling: the cost of the kernel, the door and nothing else. Ends on
//! SIGTERM, SIGINT or when it is unmounted from outside.
#![allow(clippy::disallowed_methods)]

mod fs;

use leeward_env::Env;
use leeward_fuse::{IoUring, Options};
use leeward_vfs::{Gate, GateOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() -> ExitCode {
    let Some(at) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: memfs MOUNTPOINT [no_io_uring]");
        return ExitCode::from(2);
    };
    match run(&at) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("memfs: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(at: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let env = Env::real();
    let io_uring = match std::env::args().nth(2).as_deref() {
        Some("no_io_uring") => IoUring::Never,
        _ => IoUring::Auto,
    };
    let options = Options { io_uring, ..Options::new(Path::new("memfs")) };
    let open = GateOptions { fair: false, ..GateOptions::usual() };
    let gate = Gate::new(Arc::new(fs::MemFs::new(&env)), &env, open);
    let mount = leeward_fuse::mount(gate, &env, at, options)?;
    println!("mounted at {} ({})", mount.at().display(), mount.channel());
    while !stop.load(Ordering::Relaxed) && !mount.wait_for(Duration::from_millis(100)) {}
    mount.unmount()?;
    Ok(())
}
