//! The error of a command: a text for a person and the exit code of the process.

use leeward_volume::admin::Failure;
use std::fmt;
use std::process::ExitCode;

/// Exit code of a server whose cell another process has taken over.
pub const TAKEN_OVER: u8 = 4;

/// Exit code of a server of several that has lost the cell, or could not take it: another process
/// may begin anew.
pub const BEGIN_ANEW: u8 = 5;

/// Why a command failed. The text names the thing, the cause and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fail {
    message: String,
    code: u8,
}

impl Fail {
    /// A failure (exit code 1).
    pub fn new(message: impl Into<String>) -> Fail {
        Fail { message: message.into(), code: 1 }
    }

    /// A wrong command line (exit code 2).
    pub fn usage(message: impl Into<String>) -> Fail {
        Fail { message: message.into(), code: 2 }
    }

    /// The same failure with another exit code.
    pub fn with_code(self, code: u8) -> Fail {
        Fail { code, ..self }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// The exit code as a number.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Failure> for Fail {
    fn from(failure: Failure) -> Fail {
        if failure.message.is_empty() {
            return Fail::new(errno_text(failure.errno));
        }
        Fail::new(failure.message)
    }
}

impl From<leeward_lab::Refused> for Fail {
    fn from(refused: leeward_lab::Refused) -> Fail {
        Fail::new(refused.0)
    }
}

/// The system's text for an errno, without the number.
fn errno_text(errno: i32) -> String {
    text(&std::io::Error::from_raw_os_error(errno))
}

/// The system's text for an error, without "(os error N)", beginning in lower case.
pub fn text(error: &std::io::Error) -> String {
    let full = error.to_string();
    let short = full.split(" (os error").next().unwrap_or_default();
    let mut chars = short.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => full,
    }
}
