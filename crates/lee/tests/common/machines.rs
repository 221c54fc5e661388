//! A served cell, and machines that mount it. Each machine is a directory with keys of its own.

use super::{Place, Said, as_user, lee, run, say, until};
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports of this process, below those that the kernel gives to clients.
static PORTS: AtomicU32 = AtomicU32::new(0);

/// A port that nobody listens at: a server that is started again has it again.
pub fn free_port() -> u16 {
    loop {
        let nth = std::process::id().wrapping_mul(50).wrapping_add(PORTS.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (nth % 10_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A served cell that other machines reach at `port`.
pub struct Served {
    pub place: Place,
    pub port: u16,
}

impl Served {
    pub fn new() -> Served {
        Served::with(&[])
    }

    /// One that is mounted on its own machine, too.
    pub fn mounted() -> Served {
        let (place, port) = (Place::new(), free_port());
        say(&["up", place.arg(), "--listen", &format!("127.0.0.1:{port}"), "--background"]).good();
        Served { place, port }
    }

    /// With more options.
    pub fn with(more: &[&str]) -> Served {
        let place = Place::new();
        let port = free_port();
        let at = format!("127.0.0.1:{port}");
        let line = ["serve", place.arg(), "--listen", &at, "--background", "--json"];
        let out = say(&[&line, more].concat());
        assert_eq!(out.json()["listen"][0], at.as_str());
        Served { place, port }
    }

    pub fn server(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Serves it again, at the same port.
    pub fn serve_again(&self) {
        let at = self.server();
        say(&["serve", self.place.arg(), "--listen", &at, "--background", "--no-keeper"]).good();
    }

    pub fn ask(&self, line: &[&str]) -> Said {
        self.place.ask(line)
    }

    pub fn token(&self, host: &str, more: &[&str]) -> String {
        let line = [&["host", "add", host, "--json"], more].concat();
        self.ask(&line).json()["token"].as_str().expect("a token").to_owned()
    }

    /// A machine that has mounted the cell.
    pub fn machine(&self, name: &str, grant: &[&str], options: &[&str]) -> Machine {
        let token = self.token(name, grant);
        let machine = Machine::new(self, name);
        machine.mount(&[&["--token", &token], options].concat()).good();
        machine
    }
}

pub struct Machine {
    pub keys: PathBuf,
    pub at: PathBuf,
    pub server: String,
}

impl Machine {
    pub fn new(served: &Served, name: &str) -> Machine {
        let machine = Machine::again(served, name);
        fs::create_dir(&machine.at).expect("a mount point");
        machine
    }

    /// One that was there before.
    pub fn again(served: &Served, name: &str) -> Machine {
        let (keys, at) = (served.place.beside(&format!("keys-{name}")), served.place.beside(name));
        Machine { keys, at, server: served.server() }
    }

    pub fn mount(&self, options: &[&str]) -> Said {
        let at = self.at.to_str().expect("UTF-8");
        let line = [&["mount", &self.server, at, "--background", "--json"], options].concat();
        run(self.here(&mut lee(&line)))
    }

    /// Unmounts it. A process that another thread is just starting may have it open for a moment.
    #[track_caller]
    pub fn umount(&self) {
        until("umount", || run(Command::new("umount").arg(&self.at)).code == 0);
    }

    /// Where the machine keeps what it knows of its mounts.
    pub fn state(&self) -> PathBuf {
        self.keys.with_extension("state")
    }

    /// The same command on this machine.
    pub fn here<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LEE_HOST_DIR", &self.keys).env("LEE_STATE_DIR", self.state())
    }

    /// Asks about the cell, in the mount.
    pub fn ask(&self, line: &[&str]) -> Said {
        run(self.here(lee(line).current_dir(&self.at)))
    }

    /// The same as another user.
    pub fn ask_as(&self, uid: u32, line: &[&str]) -> Said {
        run(as_user(self.here(lee(line).current_dir(&self.at)), uid))
    }

    /// The process of the mount, if it answers.
    pub fn pid(&self) -> Option<i32> {
        let said = run(self.here(&mut lee(&["status", self.at.to_str().expect("UTF-8"), "--json"])));
        let said: serde_json::Value = serde_json::from_str(&said.out).ok()?;
        i32::try_from(said["pid"].as_i64()?).ok()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // its keeper ends with it
        let at = self.at.to_str().unwrap_or_default();
        let _ = run(self.here(&mut lee(&["down", at])));
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}
