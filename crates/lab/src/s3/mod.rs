//! Load on an S3 endpoint: how many connections it bears, what each request takes, and which errors come.
//!
//! Nothing here knows whose endpoint it is. From small to large:
//!
//! * [`sign`], [`content`], [`answer`]: requests signed in a microsecond, bodies without memory, answers read as they come.
//! * [`stream`], [`exchange`]: a connection, and one request on it; every failure has a [`Class`].
//! * [`load`], [`worker`]: the connections of one process, and what it does when it is told.
//! * [`crew`], [`search`], [`run`]: all processes, which number of connections comes next, and the report; [`page`] draws it.
//!
//! The generator must cost less than what it measures: one thread a process, a task of a few hundred bytes and no buffer for
//! a connection that waits, three system calls a request. Its processor time is in the report. Sockets and timers are
//! `tokio`'s, all else is [`leeward_env::Env`]'s. A process is full when its file descriptors are: then there are more.

pub mod answer;
pub mod content;
pub mod crew;
pub mod exchange;
pub mod load;
pub mod page;
pub mod run;
pub mod search;
pub mod sign;
pub mod stream;
pub mod target;
pub mod watch;
pub mod worker;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// What is asked of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Stores an object.
    Put,
    /// Reads one, and compares it.
    Get,
    /// Asks for its attributes.
    Head,
    /// Lists up to 1,000 names from anywhere.
    List,
    /// Removes an object; only the end of a run does.
    Delete,
}

impl Op {
    /// What a mix may have.
    pub const MIX: [Op; 4] = [Op::Put, Op::Get, Op::Head, Op::List];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Put => "put",
            Op::Get => "get",
            Op::Head => "head",
            Op::List => "list",
            Op::Delete => "delete",
        }
    }

    /// The one with that name, of [`Op::MIX`].
    pub fn named(name: &str) -> Option<Op> {
        Op::MIX.into_iter().find(|op| op.name() == name)
    }

    fn method(self) -> &'static str {
        match self {
            Op::Put => "PUT",
            Op::Get | Op::List => "GET",
            Op::Head => "HEAD",
            Op::Delete => "DELETE",
        }
    }
}

/// Why a request failed, as far as classes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Nobody listens, or what listens is full.
    Refused,
    /// The connection was reset.
    Reset,
    /// It was closed before the whole answer was there.
    Closed,
    /// There was no connection, or no whole answer, in time.
    TimeOut,
    /// No secure connection.
    Tls,
    /// No way to the host.
    Unreachable,
    /// The system here had no port, no file descriptor, no memory.
    Here,
    /// An answer with this status, which is not the one for success.
    Status(u16),
    /// A body that is not what was stored.
    WrongBytes,
    /// An answer that makes no sense.
    BadAnswer,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Class::Refused => "refused",
            Class::Reset => "reset",
            Class::Closed => "closed",
            Class::TimeOut => "time-out",
            Class::Tls => "TLS",
            Class::Unreachable => "unreachable",
            Class::Here => "this machine",
            Class::Status(status) => return write!(f, "{status}"),
            Class::WrongBytes => "wrong bytes",
            Class::BadAnswer => "bad answer",
        };
        f.write_str(name)
    }
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In which way.
    pub class: Class,
    /// What was said.
    pub text: String,
    /// How long the server wants to be left alone.
    pub wait: Option<Duration>,
}

impl Failure {
    /// One that says nothing about when to come back.
    pub fn new(class: Class, text: impl Into<String>) -> Failure {
        Failure { class, text: text.into(), wait: None }
    }

    /// From an error of a socket.
    pub fn of(error: &io::Error) -> Failure {
        let class = match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Class::Refused,
            Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Class::Reset,
            Some(libc::ETIMEDOUT) => Class::TimeOut,
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN) => {
                Class::Unreachable
            }
            Some(_) => Class::Here,
            // of the library for TLS
            None if error.kind() == io::ErrorKind::UnexpectedEof => Class::Closed,
            None => Class::Tls,
        };
        Failure::new(class, crate::text::cause(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_sockets_have_classes() {
        for (errno, name) in [
            (libc::ECONNREFUSED, "refused"),
            (libc::ECONNRESET, "reset"),
            (libc::EPIPE, "reset"),
            (libc::ETIMEDOUT, "time-out"),
            (libc::ENETUNREACH, "unreachable"),
            (libc::EADDRNOTAVAIL, "this machine"),
            (libc::EMFILE, "this machine"),
        ] {
            assert_eq!(Failure::of(&io::Error::from_raw_os_error(errno)).class.to_string(), name);
        }
        assert_eq!(Failure::of(&io::ErrorKind::UnexpectedEof.into()).class, Class::Closed);
        assert_eq!(Class::Status(503).to_string(), "503");
    }

    #[test]
    fn operations_have_names() {
        assert!(Op::MIX.into_iter().all(|op| Op::named(op.name()) == Some(op)));
        assert_eq!(Op::named("delete"), None);
    }
}
