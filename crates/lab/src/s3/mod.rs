//! Load on an S3 endpoint: how many connections it bears, how long requests take, and which errors
//! come.
//!
//! Nothing here knows whose endpoint it is. The modules, from small to large:
//!
//! * [`sign`], [`content`], [`answer`]: they sign a request in a microsecond, make bodies without
//!   memory, and read answers as they come.
//! * [`stream`], [`exchange`]: a connection, and one request on it; every failure has a [`Class`].
//! * [`load`], [`worker`]: the connections of one process, and the commands that it obeys.
//! * [`crew`], [`search`], [`run`]: all processes, the choice of the next number of connections,
//!   and the report; [`page`] draws it.
//!
//! The generator must cost less than what it measures. It has one thread per process. A connection
//! that waits is a task of a few hundred bytes without a buffer. A request takes three system
//! calls. The report has the generator's processor time. Sockets and timers are `tokio`'s, all else
//! is [`leeward_env::Env`]'s. When the file descriptors of a process run out, there are more
//! processes.

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

/// The operations of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Stores an object.
    Put,
    /// Reads an object and compares it.
    Get,
    /// Asks for the attributes of an object.
    Head,
    /// Lists up to 1,000 names from a random one on.
    List,
    /// Removes an object. No step of a run does this, only its end and a first attempt that failed.
    Delete,
}

impl Op {
    /// The operations that a mix may have.
    pub const MIX: [Op; 4] = [Op::Put, Op::Get, Op::Head, Op::List];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Op::Put => "put",
            Op::Get => "get",
            Op::Head => "head",
            Op::List => "list",
            Op::Delete => "delete",
        }
    }

    /// The operation of [`Op::MIX`] with this name.
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

/// The class of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Nothing listens there, or the listener's queue is full.
    Refused,
    /// The connection was reset.
    Reset,
    /// The connection was closed before the whole answer came.
    Closed,
    /// The connection or the whole answer did not come in time.
    TimeOut,
    /// The TLS handshake failed.
    Tls,
    /// The host cannot be reached.
    Unreachable,
    /// This machine ran out of ports, file descriptors or memory.
    Here,
    /// An answer with this status, which is not that of a success.
    Status(u16),
    /// A body that is not what was stored.
    WrongBytes,
    /// An answer that cannot be understood.
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

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Class of the failure.
    pub class: Class,
    /// Text of the error.
    pub text: String,
    /// Time after which the server wants the next request.
    pub wait: Option<Duration>,
}

impl Failure {
    /// A failure without a time to wait.
    pub fn new(class: Class, text: impl Into<String>) -> Failure {
        Failure { class, text: text.into(), wait: None }
    }

    /// Makes a failure of an error of a socket.
    pub fn of(error: &io::Error) -> Failure {
        let class = match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Class::Refused,
            Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Class::Reset,
            Some(libc::ETIMEDOUT) => Class::TimeOut,
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN) => {
                Class::Unreachable
            }
            Some(_) => Class::Here,
            // from the library for TLS
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
