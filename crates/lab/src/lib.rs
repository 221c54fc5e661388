//! The lab: the measurements of `lee probe` and `lee lab`, on any mounted path of any file system,
//! and on any S3 endpoint.
//!
//! Nothing here knows Leeward: there are only plain system calls on a path, and plain requests, so
//! that another file system or endpoint can be measured in the same way. From small to large:
//!
//! * [`sys`], [`scratch`], [`stop`], [`stats`], [`text`]: system calls, a directory of our own, the
//!   end of a run, quantiles.
//! * [`probe`]: small operations at intervals, each with a deadline; [`history`] and [`metrics`]
//!   keep the results.
//! * [`storm`]: the load that one user makes; [`neighbours`]: probes in quiet and under each storm,
//!   and the verdict.
//! * [`phases`]: the phases of IO500, limited in time and space.
//! * [`s3`]: load on an S3 endpoint.
//! * [`plot`], [`page`], [`report`]: drawings and self-contained pages.
//!
//! Time, threads and randomness are those of [`leeward_env::Env`]; it is the real one, as this is a
//! measuring tool.

pub mod history;
pub mod metrics;
pub mod neighbours;
pub mod page;
pub mod phases;
pub mod plot;
pub mod probe;
pub mod report;
pub mod s3;
pub mod scratch;
pub mod stats;
pub mod stop;
pub mod storm;
pub mod sys;
pub mod text;

use std::fmt;
use std::io;
use std::path::Path;

/// Why nothing could be measured: a sentence that names the thing, the cause and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl Refused {
    /// About a path and an error of the system.
    pub fn at(path: &Path, what: &str, error: &io::Error) -> Refused {
        Refused(format!("{}: {what}: {}", path.display(), text::cause(error)))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}
