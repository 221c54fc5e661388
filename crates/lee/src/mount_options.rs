//! Mount options of `lee up`, as mount(8) writes them.

use leeward_fuse::{Access, IoUring, Options};
use std::path::{Path, PathBuf};

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountWord {
    /// `ro` and `rw`.
    ReadOnly(bool),
    /// `nosuid` and `suid`.
    NoSuid(bool),
    /// `nodev` and `dev`.
    NoDev(bool),
    /// `noexec` and `exec`.
    NoExec(bool),
    /// `subdir=PATH`.
    Subdir(PathBuf),
    /// `allow_other`.
    AllowOther,
    /// `io_uring` and `no_io_uring`.
    IoUring(IoUring),
}

impl std::fmt::Display for MountWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MountWord::ReadOnly(no) => ["rw", "ro"][usize::from(*no)],
            MountWord::NoSuid(no) => ["suid", "nosuid"][usize::from(*no)],
            MountWord::NoDev(no) => ["dev", "nodev"][usize::from(*no)],
            MountWord::NoExec(no) => ["exec", "noexec"][usize::from(*no)],
            MountWord::Subdir(path) => return write!(f, "subdir={}", path.display()),
            MountWord::AllowOther => "allow_other",
            MountWord::IoUring(IoUring::Never) => "no_io_uring",
            MountWord::IoUring(_) => "io_uring",
        })
    }
}

/// Reads one option.
///
/// # Errors
/// The text lists the options.
pub fn parse(text: &str) -> Result<MountWord, String> {
    Ok(match text {
        "ro" | "rw" => MountWord::ReadOnly(text == "ro"),
        "nosuid" | "suid" => MountWord::NoSuid(text == "nosuid"),
        "nodev" | "dev" => MountWord::NoDev(text == "nodev"),
        "noexec" | "exec" => MountWord::NoExec(text == "noexec"),
        "allow_other" | "allow-other" => MountWord::AllowOther,
        "io_uring" => MountWord::IoUring(IoUring::Always),
        "no_io_uring" => MountWord::IoUring(IoUring::Never),
        _ => match text.strip_prefix("subdir=") {
            Some(path) if path.starts_with('/') => MountWord::Subdir(path.into()),
            Some(_) => return Err("subdir= takes a path in the cell that begins with /".into()),
            None => {
                let all = "ro, nosuid, nodev, noexec, subdir=PATH, allow_other, io_uring, no_io_uring";
                return Err(format!("no such option; there are {all}"));
            }
        },
    })
}

/// The settings of a mount of this source with these options; a later option wins over an earlier
/// one.
pub fn options(source: &Path, words: &[MountWord]) -> Options {
    let mut options = Options::new(source);
    for word in words {
        match word {
            MountWord::ReadOnly(no) => options.restrictions.read_only = *no,
            MountWord::NoSuid(no) => options.restrictions.no_suid = *no,
            MountWord::NoDev(no) => options.restrictions.no_dev = *no,
            MountWord::NoExec(no) => options.restrictions.no_exec = *no,
            MountWord::Subdir(path) => options.subdir = Some(path.clone()),
            MountWord::AllowOther => options.access = Access::Everybody,
            MountWord::IoUring(io_uring) => options.io_uring = *io_uring,
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_mount_does() {
        for word in [
            "ro",
            "rw",
            "nosuid",
            "suid",
            "nodev",
            "dev",
            "noexec",
            "exec",
            "allow_other",
            "io_uring",
            "no_io_uring",
        ] {
            assert_eq!(parse(word).map(|parsed| parsed.to_string()), Ok(word.to_string()));
        }
        for wrong in ["", "rx", "subdir=a", "subdir"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let words: Vec<_> = ["ro", "noexec", "rw", "subdir=/x"].iter().map(|w| parse(w).unwrap()).collect();
        let options = options(Path::new("/cell"), &words);
        assert!(options.restrictions.no_exec && !options.restrictions.read_only);
        assert_eq!(options.subdir.as_deref(), Some(Path::new("/x")));
    }
}
