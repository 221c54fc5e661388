//! Connects this machine to the server of a cell on another one: with the key by which that knows
//! it, or the first time with a token.

use crate::fail::Fail;
use crate::host_keys::HostKeys;
use crate::machines::PORT;
use leeward_env::Env;
use leeward_fs::invitation::InvitationToken;
use leeward_remote::{CacheOptions, Client, ClientOptions, Unreachable};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Which server, and how.
pub struct Enrol<'a> {
    /// Host and port; of several servers of the cell with commas between them.
    pub server: &'a str,
    /// The token of the command line; else that of the environment.
    pub token: Option<&'a str>,
    /// The variable of the environment that may have the token.
    pub variable: &'static str,
    /// How long requests wait for a server that does not answer; `None`: for ever.
    pub timeout: Option<Duration>,
    /// Where it keeps content on a disk of its own.
    pub cache: Option<CacheOptions>,
    /// Where it mounts, if it follows a process there that has died.
    pub follows_at: Option<&'a Path>,
}

/// Several servers of one cell, with commas between them: see [`parse_server`].
///
/// # Errors
/// A sentence.
pub fn parse_servers(text: &str) -> Result<String, String> {
    let all: Result<Vec<String>, String> = text.split(',').map(parse_server).collect();
    all.map(|all| all.join(","))
}

/// Host and port, with the usual port where none is named.
///
/// # Errors
/// A sentence.
pub fn parse_server(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.to_string());
    }
    if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT).to_string());
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok()),
        None => (text, Some(PORT)),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match port {
        Some(port) if !host.is_empty() && host.chars().all(is_name) && !host.starts_with(['-', '.']) => {
            Ok(format!("{host}:{port}"))
        }
        _ => {
            Err("name a host, or an address, and a port if it is not 7433: node1, node1:7433, [::1]:7433"
                .into())
        }
    }
}

/// Connects; enrols this machine where it has a token.
///
/// # Errors
/// The server cannot be reached, or does not let this machine in.
pub fn connect(env: &Env, args: &Enrol<'_>) -> Result<Client, Fail> {
    let server = args.server;
    let passed = std::env::var(args.variable).ok();
    let token = args.token.or(passed.as_deref()).map(InvitationToken::parse);
    let token = token.transpose().map_err(|e| Fail::new(format!("--token: {e}")))?;
    let keys = HostKeys::open()?;
    let known = server.split(',').filter_map(|server| keys.server(server).transpose()).next().transpose()?;
    let key = token.as_ref().map(|token| token.cell_key).or(known).ok_or_else(|| {
        Fail::new(format!(
            "{server}: this machine has not mounted from there yet: make a token there with `lee host add NAME`, and give \
             it with --token",
        ))
    })?;
    let options = ClientOptions {
        server: server.to_owned(),
        key,
        invitation: token.as_ref().map(|token| token.secret),
        timeout: args.timeout,
        cache: args.cache.clone(),
        died: args.follows_at.and_then(|at| keys.session(at)),
    };
    let client = Client::connect(env, &keys.own(env)?, &options).map_err(|e| match e {
        Unreachable::Refused(why) => {
            Fail::new(format!("{server} does not let this machine in: {why}"))
        }
        Unreachable::Silent(why) => Fail::new(format!(
            "{server} cannot be reached ({why}): is the cell served there, with `lee serve` or `lee up --listen`?",
        )),
    })?;
    // by any of its servers the cell is known again
    for server in client.servers() {
        // another cell's server is not taken for this one's because a server says so
        let is_given = args.server.split(',').any(|given| given == server);
        let before = keys.server(&server).ok().flatten();
        if before != Some(key) && (is_given || before.is_none()) {
            keys.remember(&server, &key).inspect_err(|_| client.close())?;
        }
    }
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_names_or_addresses_with_a_port_or_without() {
        for (text, full) in [
            ("node1", "node1:7433"),
            ("node1.example.org:1", "node1.example.org:1"),
            ("127.0.0.1", "127.0.0.1:7433"),
            ("[::1]", "[::1]:7433"),
            ("::1", "[::1]:7433"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(parse_server(text).as_deref(), Ok(full), "{text}");
        }
        for wrong in ["", ":1", "a:b", "a/b", "../x", "a:99999", "-a"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_servers("a,b:1,[::1]").as_deref(), Ok("a:7433,b:1,[::1]:7433"));
        assert!(parse_servers("a,").is_err());
    }
}
