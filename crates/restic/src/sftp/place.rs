//! Names of places behind sftp, as restic writes them.

use crate::{Error, ErrorKind, Result};
use std::process::Command;

/// A directory of another machine: `sftp:[USER@]HOST:PATH`, or
/// `sftp://[USER@]HOST[:PORT]/PATH`. A path that does not begin with `/` is below the user's home
/// directory; in the second form such a path is what follows the first `/`, and an absolute one
/// begins with two.
#[derive(Debug, PartialEq, Eq)]
pub struct SftpPlace {
    /// User and host as `ssh` takes them.
    host: String,
    port: Option<u16>,
    /// Never empty, without `/` at its end.
    pub(super) path: String,
}

impl SftpPlace {
    /// Whether a text names such a place.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("sftp:")
    }

    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong with it, and what it has to look like.
    pub fn parse(text: &str) -> Result<SftpPlace> {
        let wrong = || {
            let how = "write sftp:USER@HOST:/PATH, or sftp://USER@HOST:PORT//PATH";
            Error::new(ErrorKind::Failed, format!("{text}: names no host and directory: {how}"))
        };
        let rest = text.strip_prefix("sftp:").ok_or_else(wrong)?;
        let (host, port, path) = match rest.strip_prefix("//") {
            Some(url) => {
                let (at, path) = url.split_once('/').ok_or_else(wrong)?;
                let (host, port) = split_port(at).ok_or_else(wrong)?;
                (host, port, path)
            }
            None => {
                let end = if rest.contains('[') { rest.find("]:").map(|at| at + 1) } else { rest.find(':') };
                let (host, path) = rest.split_at(end.ok_or_else(wrong)?);
                (host, None, &path[1..])
            }
        };
        // of an address in brackets ssh wants what is in them
        let host = host.replace(['[', ']'], "");
        let name = host.rsplit_once('@').map_or(&*host, |(_, name)| name);
        // what begins with a hyphen would be an option
        let is_host = !name.is_empty() && !host.starts_with('-') && !name.starts_with('-');
        let trimmed = path.trim_end_matches('/');
        let path = if trimmed.is_empty() && path.starts_with('/') { "/" } else { trimmed };
        let is_plain = !host.contains(|c: char| c.is_whitespace() || c.is_control());
        if !is_host || !is_plain || path.is_empty() || path.contains('\0') {
            return Err(wrong());
        }
        Ok(SftpPlace { host, port, path: path.into() })
    }

    /// What makes the connection: `ssh`, with the configuration, keys and known hosts of the user
    /// whose process this is. It asks nobody anything, and notices that the other end is gone.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("ssh");
        for option in
            ["BatchMode=yes", "ConnectTimeout=30", "ServerAliveInterval=15", "ServerAliveCountMax=3"]
        {
            command.args(["-o", option]);
        }
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["-s", "--", &self.host, "sftp"]);
        command
    }
}

/// A host, and its port if it has one.
fn split_port(at: &str) -> Option<(&str, Option<u16>)> {
    let after_address = at.rfind(']').map_or(0, |end| end + 1);
    match at[after_address..].rfind(':') {
        Some(colon) => {
            let (host, port) = at.split_at(after_address + colon);
            Some((host, Some(port[1..].parse().ok()?)))
        }
        None => Some((at, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_restic_reads_them() {
        for (text, host, port, path) in [
            ("sftp:vault:/srv/restic", "vault", None, "/srv/restic"),
            ("sftp:joe@vault:backup/", "joe@vault", None, "backup"),
            ("sftp:joe@[fd00::1]:/b", "joe@fd00::1", None, "/b"),
            ("sftp://vault/backup", "vault", None, "backup"),
            ("sftp://joe@vault:2222//srv/restic", "joe@vault", Some(2222), "/srv/restic"),
            ("sftp://joe@[fd00::1]:2222//", "joe@fd00::1", Some(2222), "/"),
        ] {
            let place = SftpPlace::parse(text).expect(text);
            assert_eq!((&*place.host, place.port, &*place.path), (host, port, path), "{text}");
        }
        for wrong in [
            "sftp:vault",
            "sftp::/path",
            "sftp:vault:",
            "sftp://vault",
            "sftp://vault/",
            "sftp://vault:none//path",
            "sftp:-oProxyCommand=x:/path",
            "sftp:joe@-oProxyCommand=x:/path",
            "sftp:a b:/path",
            "/srv/restic",
        ] {
            let refused = SftpPlace::parse(wrong).expect_err(wrong);
            assert_eq!(refused.kind, ErrorKind::Failed, "{wrong}");
        }
    }
}
