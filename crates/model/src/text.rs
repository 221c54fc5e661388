//! Steps as text: one line each, a verb and its arguments, for failure reports and regression
//! files.
//!
//! Names are bytes: everything but letters, digits and `._-+` is written `%xx`. A line that starts
//! with `u1000` is user 1000's. Empty lines and lines that start with `;` are skipped.
//! `parse(print(x)) == x`.

use crate::node::Name;
use crate::step::{Act, Fill, New, Path, Step, Where};
use leeward_fs::{Allocate, InodeFlags, Precondition, RenameMode, Seek, Time, XattrMode};
use std::fmt;
use std::str::FromStr;

/// A name in printable form.
pub fn escape(name: &[u8]) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
    name.iter().map(|&b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02x}") }).collect()
}

fn unescape(text: &str) -> Result<Name, String> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'%' => {
                let digits = [bytes.next().unwrap_or(b'?'), bytes.next().unwrap_or(b'?')];
                let hex = std::str::from_utf8(&digits).unwrap_or("?");
                u8::from_str_radix(hex, 16).map_err(|e| format!("{text}: {e}"))?
            }
            b => b,
        });
    }
    Ok(out.into())
}

/// The letters of flags, as `chattr` has them.
const FLAGS: [(char, InodeFlags); 3] =
    [('i', InodeFlags::IMMUTABLE), ('a', InodeFlags::APPEND_ONLY), ('d', InodeFlags::NO_DUMP)];

fn flag_letters(flags: InodeFlags) -> String {
    let letters: String = FLAGS.iter().filter(|(_, f)| flags.has(*f)).map(|(letter, _)| *letter).collect();
    if letters.is_empty() { "-".into() } else { letters }
}

/// A whole run as text.
pub fn print(steps: &[Step]) -> String {
    steps.iter().map(|s| format!("{s}\n")).collect()
}

/// The steps of a text; the error names the line.
pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    text.lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with(';'))
        .map(|(n, line)| line.parse().map_err(|e| format!("line {}: {e}", n + 1)))
        .collect()
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Path(path) => write!(f, "{path}"),
            Where::Slot(slot) => write!(f, "@{slot}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.uid != 0 {
            write!(f, "u{} ", self.uid)?;
        }
        write!(f, "{}", self.act)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Make { path, new, mode, umask } => {
                let new = match new {
                    New::File => "file".into(),
                    New::Dir => "dir".into(),
                    New::Fifo => "fifo".into(),
                    New::Socket => "socket".into(),
                    New::CharDev(rdev) => format!("chardev:{rdev}"),
                    New::Symlink(target) => format!("symlink:{}", escape(target)),
                };
                write!(f, "make {path} {new} {mode:o} {umask:o}")
            }
            Act::Link { from, to } => write!(f, "link {from} {to}"),
            Act::Unlink(path) => write!(f, "unlink {path}"),
            Act::RmDir(path) => write!(f, "rmdir {path}"),
            Act::Rename { from, to, mode } => {
                let mode = match mode {
                    RenameMode::Replace => "replace",
                    RenameMode::NoReplace => "noreplace",
                    RenameMode::Exchange => "exchange",
                };
                write!(f, "rename {from} {to} {mode}")
            }
            Act::Write { file, offset, fill } => {
                write!(f, "write {file} {offset} {} {}", fill.pattern, fill.len)
            }
            Act::Append { file, fill } => write!(f, "append {file} {} {}", fill.pattern, fill.len),
            Act::Read { file, offset, len } => write!(f, "read {file} {offset} {len}"),
            Act::Truncate { file, size } => write!(f, "truncate {file} {size}"),
            Act::Chmod { file, mode } => write!(f, "chmod {file} {mode:o}"),
            Act::Chown { file, uid, gid } => write!(f, "chown {file} {uid} {gid}"),
            Act::Flags { file, flags } => write!(f, "flags {file} {}", flag_letters(*flags)),
            Act::Utimes { file, to: None } => write!(f, "utimes {file} now"),
            Act::Utimes { file, to: Some(t) } => write!(f, "utimes {file} {} {}", t.secs, t.nanos),
            Act::Allocate { file, offset, len, mode } => {
                let mode = match mode {
                    Allocate::Reserve { keep_size: false } => "reserve",
                    Allocate::Reserve { keep_size: true } => "reserve-keep",
                    Allocate::PunchHole => "punch",
                    Allocate::ZeroRange { keep_size: false } => "zero",
                    Allocate::ZeroRange { keep_size: true } => "zero-keep",
                };
                write!(f, "allocate {file} {offset} {len} {mode}")
            }
            Act::Seek { file, offset, what } => {
                let what = if *what == Seek::Data { "data" } else { "hole" };
                write!(f, "seek {file} {offset} {what}")
            }
            Act::Copy { from, from_offset, to, to_offset, len } => {
                write!(f, "copy {from} {from_offset} {to} {to_offset} {len}")
            }
            Act::ReadLink(file) => write!(f, "readlink {file}"),
            Act::List { dir, after, limit } => write!(f, "list {dir} {limit} {}", escape(after)),
            Act::GetXattr { file, name } => write!(f, "getxattr {file} {}", escape(name)),
            Act::ListXattr(file) => write!(f, "listxattr {file}"),
            Act::SetXattr { file, name, fill, mode } => {
                let mode = match mode {
                    XattrMode::Set => "set",
                    XattrMode::Create => "create",
                    XattrMode::Replace => "replace",
                };
                write!(f, "setxattr {file} {} {} {} {mode}", escape(name), fill.pattern, fill.len)
            }
            Act::RemoveXattr { file, name } => write!(f, "removexattr {file} {}", escape(name)),
            Act::Stat(file) => write!(f, "stat {file}"),
            Act::StatFs => write!(f, "statfs"),
            Act::Fsync(file) => write!(f, "fsync {file}"),
            Act::SyncAll => write!(f, "syncall"),
            Act::Hold { slot, path } => write!(f, "hold {slot} {path}"),
            Act::Release(slot) => write!(f, "release {slot}"),
            Act::MakeUnnamed { slot, dir, mode, umask } => {
                write!(f, "unnamed {slot} {dir} {mode:o} {umask:o}")
            }
            Act::Place { file, to, over } => {
                let over = if *over == Precondition::Nothing { "nothing" } else { "any" };
                write!(f, "place {file} {to} {over}")
            }
            Act::Quota { dir, on } => write!(f, "quota {dir} {}", if *on { "on" } else { "off" }),
            Act::Advance { ms } => write!(f, "advance {ms}"),
            Act::MoveData { pool } => write!(f, "move {pool}"),
            Act::Reopen => write!(f, "reopen"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Step, String> {
        let mut words = Words(line.split_whitespace());
        let first = words.next()?;
        let (uid, verb) = match first.strip_prefix('u').and_then(|n| n.parse().ok()) {
            Some(uid) => (uid, words.next()?),
            None => (0, first),
        };
        let act = words.act(verb)?;
        match words.0.next() {
            None => Ok(Step { uid, act }),
            Some(more) => Err(format!("{more}: too many words")),
        }
    }
}

/// The arguments of one line.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "too few words".to_string())
    }

    fn number<T: FromStr<Err: fmt::Display>>(&mut self) -> Result<T, String> {
        let word = self.next()?;
        word.parse().map_err(|e| format!("{word}: {e}"))
    }

    fn octal(&mut self) -> Result<u32, String> {
        let word = self.next()?;
        u32::from_str_radix(word, 8).map_err(|e| format!("{word}: {e}"))
    }

    fn name(&mut self) -> Result<Name, String> {
        unescape(self.next()?)
    }

    fn path(&mut self) -> Result<Path, String> {
        let word = self.next()?;
        let rest = word.strip_prefix('/').ok_or_else(|| format!("{word}: a path starts with /"))?;
        rest.split('/').filter(|s| !s.is_empty()).map(unescape).collect::<Result<_, _>>().map(Path)
    }

    fn place(&mut self) -> Result<Where, String> {
        let ahead = self.0.clone().next().unwrap_or("");
        match ahead.strip_prefix('@') {
            None => self.path().map(Where::Path),
            Some(slot) => {
                self.0.next();
                slot.parse().map(Where::Slot).map_err(|e| format!("{ahead}: {e}"))
            }
        }
    }

    fn fill(&mut self) -> Result<Fill, String> {
        Ok(Fill { pattern: self.number()?, len: self.number()? })
    }

    /// One of several words.
    fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, String> {
        let word = self.next()?;
        let found = choices.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| *value).ok_or_else(|| format!("{word}: unknown"))
    }

    fn new_inode(&mut self) -> Result<New, String> {
        let word = self.next()?;
        Ok(match word.split_once(':') {
            Some(("symlink", target)) => New::Symlink(unescape(target)?),
            Some(("chardev", n)) => New::CharDev(n.parse().map_err(|e| format!("{word}: {e}"))?),
            None if word == "file" => New::File,
            None if word == "dir" => New::Dir,
            None if word == "fifo" => New::Fifo,
            None if word == "socket" => New::Socket,
            _ => return Err(format!("{word}: unknown")),
        })
    }

    fn time(&mut self) -> Result<Option<Time>, String> {
        match self.0.clone().next() {
            Some("now") => {
                self.0.next();
                Ok(None)
            }
            _ => Ok(Some(Time { secs: self.number()?, nanos: self.number()? })),
        }
    }

    fn flags(&mut self) -> Result<InodeFlags, String> {
        let word = self.next()?;
        let flag = |letter| FLAGS.iter().find(|(known, _)| *known == letter).map(|(_, flag)| *flag);
        word.chars().filter(|letter| *letter != '-').try_fold(InodeFlags::default(), |sum, letter| {
            flag(letter).map(|flag| sum.or(flag)).ok_or_else(|| format!("{word}: unknown"))
        })
    }

    fn rename_mode(&mut self) -> Result<RenameMode, String> {
        self.choice(&[
            ("replace", RenameMode::Replace),
            ("noreplace", RenameMode::NoReplace),
            ("exchange", RenameMode::Exchange),
        ])
    }

    fn allocate_mode(&mut self) -> Result<Allocate, String> {
        self.choice(&[
            ("reserve", Allocate::Reserve { keep_size: false }),
            ("reserve-keep", Allocate::Reserve { keep_size: true }),
            ("punch", Allocate::PunchHole),
            ("zero", Allocate::ZeroRange { keep_size: false }),
            ("zero-keep", Allocate::ZeroRange { keep_size: true }),
        ])
    }

    fn xattr_mode(&mut self) -> Result<XattrMode, String> {
        self.choice(&[
            ("set", XattrMode::Set),
            ("create", XattrMode::Create),
            ("replace", XattrMode::Replace),
        ])
    }

    fn act(&mut self, verb: &str) -> Result<Act, String> {
        Ok(match verb {
            "make" => Act::Make {
                path: self.path()?,
                new: self.new_inode()?,
                mode: self.octal()?,
                umask: self.octal()?,
            },
            "link" => Act::Link { from: self.place()?, to: self.path()? },
            "unlink" => Act::Unlink(self.path()?),
            "rmdir" => Act::RmDir(self.path()?),
            "rename" => Act::Rename { from: self.path()?, to: self.path()?, mode: self.rename_mode()? },
            "chmod" => Act::Chmod { file: self.place()?, mode: self.octal()? },
            "chown" => Act::Chown { file: self.place()?, uid: self.number()?, gid: self.number()? },
            "flags" => Act::Flags { file: self.place()?, flags: self.flags()? },
            "utimes" => Act::Utimes { file: self.place()?, to: self.time()? },
            "readlink" => Act::ReadLink(self.place()?),
            "list" => Act::List {
                dir: self.place()?,
                limit: self.number()?,
                after: self.0.next().map_or(Ok(Name::default()), unescape)?,
            },
            "stat" => Act::Stat(self.place()?),
            "statfs" => Act::StatFs,
            "fsync" => Act::Fsync(self.place()?),
            "syncall" => Act::SyncAll,
            "hold" => Act::Hold { slot: self.number()?, path: self.path()? },
            "release" => Act::Release(self.number()?),
            "unnamed" => Act::MakeUnnamed {
                slot: self.number()?,
                dir: self.path()?,
                mode: self.octal()?,
                umask: self.octal()?,
            },
            "place" => Act::Place {
                file: self.place()?,
                to: self.path()?,
                over: self.choice(&[("any", Precondition::Any), ("nothing", Precondition::Nothing)])?,
            },
            "quota" => Act::Quota { dir: self.path()?, on: self.choice(&[("on", true), ("off", false)])? },
            "move" => Act::MoveData { pool: self.number()? },
            "advance" => Act::Advance { ms: self.number()? },
            "reopen" => Act::Reopen,
            _ => return self.content_act(verb),
        })
    }

    fn content_act(&mut self, verb: &str) -> Result<Act, String> {
        Ok(match verb {
            "write" => Act::Write { file: self.place()?, offset: self.number()?, fill: self.fill()? },
            "append" => Act::Append { file: self.place()?, fill: self.fill()? },
            "read" => Act::Read { file: self.place()?, offset: self.number()?, len: self.number()? },
            "truncate" => Act::Truncate { file: self.place()?, size: self.number()? },
            "allocate" => Act::Allocate {
                file: self.place()?,
                offset: self.number()?,
                len: self.number()?,
                mode: self.allocate_mode()?,
            },
            "seek" => Act::Seek {
                file: self.place()?,
                offset: self.number()?,
                what: self.choice(&[("data", Seek::Data), ("hole", Seek::Hole)])?,
            },
            "copy" => Act::Copy {
                from: self.place()?,
                from_offset: self.number()?,
                to: self.place()?,
                to_offset: self.number()?,
                len: self.number()?,
            },
            "getxattr" => Act::GetXattr { file: self.place()?, name: self.name()? },
            "listxattr" => Act::ListXattr(self.place()?),
            "setxattr" => Act::SetXattr {
                file: self.place()?,
                name: self.name()?,
                fill: self.fill()?,
                mode: self.xattr_mode()?,
            },
            "removexattr" => Act::RemoveXattr { file: self.place()?, name: self.name()? },
            _ => return Err(format!("{verb}: unknown")),
        })
    }
}
