//! Tokens of the cell: macaroons whose caveats say what they are limited to.
//!
//! The identifier names the key of the cell that signed it, the user, and the generation of that
//! user's tokens: `leeward:1:KEY:GENERATION:ID:USER`. Caveats are those that grid clients know:
//! `activity:A,B`, `path:/p`, `before:2026-11-21T13:00:00Z`. Each one takes away, none gives. A
//! caveat that is not understood makes the token refused. `host:NAME` is understood where users of
//! that machine log in, and nowhere else: such a token opens no door.

use crate::jws;
use crate::macaroon::{Macaroon, Version};
use crate::path::CellPath;
use crate::refusal::Refusal;
use crate::rights::{Activity, Grants, Rights, Rule};
use crate::times;
use crate::verdict::Verdict;
use leeward_env::dates::second;
use leeward_fs::accounts::Accounts;
use serde::{Deserialize, Serialize};

/// Validity of a token if none is given, seconds.
const VALIDITY_USUAL: i64 = 86_400;
/// Longest validity of a token that was requested at a door, seconds.
const VALIDITY_MAX: i64 = 7 * 86_400;
/// Longest request for a token, bytes.
const REQUEST_BYTES_MAX: usize = 8192;
/// Characters of the name of a machine that a refusal shows.
const NAME_SHOWN_MAX: usize = 100;
/// Most caveats in a request for a token.
const REQUEST_CAVEATS_MAX: usize = 32;

/// Activities as macaroons name them, and what each allows.
const NAMES: [(&str, &[Activity]); 7] = {
    use Activity::*;
    [
        ("READ_METADATA", &[Stat]),
        ("UPDATE_METADATA", &[Stat, UpdateMetadata]),
        ("LIST", &[Stat, List]),
        ("DOWNLOAD", &[Stat, Read]),
        ("UPLOAD", &[Stat, Create, MakeDir]),
        ("MANAGE", &[Stat, MakeDir, Rename]),
        ("DELETE", &[Stat, Delete]),
    ]
};
/// Activities as macaroons name them.
pub const ACTIVITIES: [&str; 7] =
    [NAMES[0].0, NAMES[1].0, NAMES[2].0, NAMES[3].0, NAMES[4].0, NAMES[5].0, NAMES[6].0];
/// Those of who may list and read.
const TO_READ: [&str; 3] = ["READ_METADATA", "LIST", "DOWNLOAD"];
/// Those of who may make, replace, change, rename and remove, not read.
const TO_WRITE: [&str; 5] = ["READ_METADATA", "UPDATE_METADATA", "UPLOAD", "MANAGE", "DELETE"];

/// Activities, as macaroons name them, of who may list and read, or change what is there, or both.
pub fn activities(reads: bool, writes: bool) -> Vec<String> {
    let given = |name: &&str| reads && TO_READ.contains(name) || writes && TO_WRITE.contains(name);
    ACTIVITIES.iter().filter(|name| given(name)).map(ToString::to_string).collect()
}

const UPLOAD: u8 = 1 << 4;
const DELETE: u8 = 1 << 6;

/// A set of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Names(u8);

impl Names {
    const ALL: Names = Names(0x7f);

    /// Parses a list of names. Unknown names allow nothing.
    fn parse(list: &str) -> Names {
        let known = |name: &str| NAMES.iter().position(|(known, _)| *known == name).map_or(0, |n| 1 << n);
        Names(list.split(',').fold(0, |all, name| all | known(name.trim_matches(' '))))
    }

    fn rights(self) -> Rights {
        let named = NAMES.iter().enumerate().filter(|(n, _)| self.0 & 1 << n != 0);
        let rights = named.fold(Rights::NONE, |all, (_, (_, activities))| all.and(Rights::of(activities)));
        // replacing a file is removing it and uploading another
        let replaces = self.0 & (UPLOAD | DELETE) == UPLOAD | DELETE;
        if replaces { rights.and(Rights::of(&[Activity::Modify])) } else { rights }
    }

    /// Those of them that allow nothing beyond `rights`, alone and together.
    fn within(self, rights: Rights) -> Names {
        let fits = |names: u8| rights.has_all(Names(names).rights());
        let fitting = (0..NAMES.len()).map(|n| 1 << n).filter(|name| self.0 & name != 0 && fits(*name));
        let all = fitting.fold(0, |all, name| all | name);
        Names(if fits(all) { all } else { all & !DELETE })
    }

    fn caveat(self) -> String {
        let names =
            NAMES.iter().enumerate().filter(|(n, _)| self.0 & 1 << n != 0).map(|(_, (name, _))| *name);
        format!("activity:{}", names.collect::<Vec<_>>().join(","))
    }
}

/// What the caveats of a token leave.
#[derive(Clone, Debug)]
struct Limits<'a> {
    /// The host whose user logs in by it.
    host: Option<&'a str>,
    names: Names,
    /// Only at this path and below; `None`: everywhere.
    path: Option<CellPath>,
    /// Whether two caveats name paths neither of which is in the other: nothing is left.
    nowhere: bool,
    until_secs: Option<i64>,
}

impl Limits<'_> {
    const NONE: Limits<'static> =
        Limits { host: None, names: Names::ALL, path: None, nowhere: false, until_secs: None };

    /// Applies a caveat.
    fn take(&mut self, caveat: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(caveat).map_err(|_| "a caveat is no text".to_string())?;
        match text.split_once(':') {
            Some(("activity", list)) => self.names.0 &= Names::parse(list).0,
            Some(("path", path)) => {
                let path = CellPath::parse(path).map_err(|e| format!("path of a caveat: {e}"))?;
                self.narrow_to(path);
            }
            Some(("before", date)) => {
                let until = times::parse_utc(date)
                    .ok_or("the date of a caveat is not written as 2026-11-21T13:00:00Z")?;
                self.until_secs = Some(self.until_secs.map_or(until, |known| known.min(until)));
            }
            Some(("host", name)) if self.host == Some(name) => (),
            Some(("host", name)) => {
                let name: String = name.chars().take(NAME_SHOWN_MAX).collect();
                return Err(format!("it is for logins of the machine {} only", name.escape_debug()));
            }
            _ => return Err("a caveat is not understood".into()),
        }
        Ok(())
    }

    fn narrow_to(&mut self, path: CellPath) {
        match &self.path {
            None => self.path = Some(path),
            Some(known) if known.as_bytes() == path.as_bytes() => {
                let dir = known.is_dir() || path.is_dir();
                self.path = Some(path.with_dir(dir));
            }
            Some(known) if known.contains(&path) => self.path = Some(path),
            Some(known) => self.nowhere |= !path.contains(known),
        }
    }

    fn grants(&self) -> Grants {
        if self.nowhere {
            return Grants::Rules(Vec::new());
        }
        let path = self.path.clone().unwrap_or(CellPath::root());
        if path.is_root() && self.names == Names::ALL {
            return Grants::All;
        }
        Grants::Rules(vec![Rule::new(path, self.names.rights())])
    }
}

/// The key to sign a user's tokens with.
#[derive(Clone, Copy, Debug)]
pub struct Signer<'a> {
    /// Number of the cell's key.
    pub number: u32,
    /// The key.
    pub secret: &'a [u8; 32],
    /// Generation of the user's tokens.
    pub generation: u32,
    /// The user.
    pub user: &'a str,
}

/// The limits of a token to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// At this path and below; `None`: everywhere.
    pub path: Option<CellPath>,
    /// Activities, as macaroons name them (`DOWNLOAD`, `LIST`, ...); `None`: all.
    pub activities: Option<Vec<String>>,
    /// End of validity, seconds since 1970.
    pub until_secs: i64,
}

/// Why a token cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// No macaroon has such an activity.
    #[error(
        "`{0}` is no activity: there are READ_METADATA, UPDATE_METADATA, LIST, DOWNLOAD, UPLOAD, MANAGE and DELETE"
    )]
    Activity(String),
    /// The path is no UTF-8.
    #[error("the path cannot be in a token: it is no UTF-8")]
    Path,
}

/// A token as [`crate::Authority::macaroon`] answers it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Minted {
    /// The token.
    pub macaroon: String,
    /// Validity, seconds.
    pub expires_in: i64,
}

impl<'a> Signer<'a> {
    /// Signs for this user with the newest of the keys that a cell signs tokens with, if it has
    /// any.
    pub fn of(accounts: &'a Accounts, user: &'a str) -> Option<Signer<'a>> {
        let (number, key) = accounts.newest_signing_key()?;
        Some(Signer { number, secret: &key.secret, generation: accounts.generation(user), user })
    }

    /// Makes a token; `id` tells it from others in logs.
    ///
    /// # Errors
    /// What is impossible in the request.
    pub fn mint(&self, id: u64, location: &str, wish: &TokenRequest) -> Result<String, MintError> {
        let mut macaroon = self.plain(id, location);
        if let Some(activities) = &wish.activities {
            let unknown = activities.iter().find(|a| !NAMES.iter().any(|(name, _)| name == a));
            if let Some(unknown) = unknown {
                return Err(MintError::Activity(unknown.clone()));
            }
            macaroon = macaroon.with(format!("activity:{}", activities.join(",")));
        }
        if let Some(path) = &wish.path {
            macaroon = macaroon.with(path_caveat(path)?);
        }
        let macaroon = macaroon.with(format!("before:{}", second(wish.until_secs)));
        Ok(macaroon.to_text(Version::V1))
    }

    fn plain(&self, id: u64, location: &str) -> Macaroon {
        let Signer { number, secret, generation, user } = self;
        Macaroon::new(location, &format!("leeward:1:{number}:{generation}:{id:016x}:{user}"), *secret)
    }
}

fn path_caveat(path: &CellPath) -> Result<String, MintError> {
    std::str::from_utf8(path.as_bytes()).map_err(|_| MintError::Path)?;
    Ok(format!("path:{path}"))
}

/// A token that the cell signed, whose user may or may not use doors.
#[derive(Clone, Debug)]
pub(crate) struct ParsedToken {
    pub(crate) user: String,
    pub(crate) id: String,
    pub(crate) grants: Grants,
    pub(crate) until_secs: Option<i64>,
}

/// Binds a token of a cell to a machine: it is good for logins there, and for nothing else. Any
/// other token stays as it is, as only its issuer can narrow it.
pub fn bound_to_host(token: &str, host: &str) -> String {
    let Ok(macaroon) = Macaroon::from_text(token) else { return token.into() };
    let caveat = format!("host:{host}");
    match macaroon.caveats.contains(&caveat.clone().into_bytes()) {
        true => token.into(),
        false => macaroon.with(caveat).to_text(Version::V1),
    }
}

/// Reads a token and checks everything except its user. `host`: that of a user who logs in by it.
///
/// # Errors
/// Why it is not valid.
pub(crate) fn read(
    accounts: &Accounts,
    text: &str,
    host: Option<&str>,
    now_secs: i64,
) -> Result<ParsedToken, Refusal> {
    let macaroon = Macaroon::from_text(text).map_err(|why| Refusal::Malformed(why.into()))?;
    let foreign = || Refusal::Invalid("this cell did not make it".into());
    let parts = Identifier::parse(&macaroon.identifier).ok_or_else(foreign)?;
    let key = accounts.signing_key(parts.number);
    // a forged token, and one revoked with its key, look the same from outside
    if !key.is_some_and(|key| macaroon.is_signed_by(&key.secret)) {
        return Err(foreign());
    }
    if accounts.generation(parts.user) != parts.generation {
        return Err(Refusal::Invalid("it was revoked".into()));
    }
    let mut limits = Limits { host, ..Limits::NONE };
    for caveat in &macaroon.caveats {
        limits.take(caveat).map_err(Refusal::Invalid)?;
    }
    if limits.until_secs.is_some_and(|until| until <= now_secs) {
        return Err(Refusal::Expired);
    }
    let (user, id) = (parts.user.to_string(), parts.id.to_string());
    Ok(ParsedToken { user, id, grants: limits.grants(), until_secs: limits.until_secs })
}

struct Identifier<'a> {
    number: u32,
    generation: u32,
    id: &'a str,
    user: &'a str,
}

impl Identifier<'_> {
    fn parse(bytes: &[u8]) -> Option<Identifier<'_>> {
        let rest = std::str::from_utf8(bytes).ok()?.strip_prefix("leeward:1:")?;
        let mut parts = rest.splitn(4, ':');
        let mut next = || parts.next();
        let (number, generation) = (next()?.parse().ok()?, next()?.parse().ok()?);
        Some(Identifier { number, generation, id: next()?, user: next()? })
    }
}

/// The body of `POST` with `application/macaroon-request`.
#[derive(Debug, Default, Deserialize)]
struct Request {
    #[serde(default)]
    caveats: Vec<String>,
    #[serde(default)]
    validity: Option<String>,
}

/// Answers a request for a token at this path, by a client with this verdict: the token grants no
/// more than the verdict does there.
///
/// # Errors
/// [`Refusal::BadRequest`], or [`Refusal::OutOfScope`] when nothing would be left.
pub(crate) fn answer(
    signer: &Signer<'_>,
    verdict: &Verdict,
    at: &CellPath,
    body: &[u8],
    (id, location, now_secs): (u64, &str, i64),
) -> Result<Minted, Refusal> {
    let bad = |why: String| Refusal::BadRequest(why);
    if body.len() > REQUEST_BYTES_MAX {
        return Err(bad(format!("more than {REQUEST_BYTES_MAX} bytes")));
    }
    let request: Request = match body.trim_ascii() {
        [] => Request::default(),
        json => jws::object(json).map_err(bad)?,
    };
    if request.caveats.len() > REQUEST_CAVEATS_MAX {
        return Err(bad(format!("more than {REQUEST_CAVEATS_MAX} caveats")));
    }
    let asked = request.validity.as_deref().map_or(Some(VALIDITY_USUAL), times::parse_span);
    let span = asked.ok_or_else(|| bad("`validity` is written as PT30M or P1D".into()))?.min(VALIDITY_MAX);
    let mut limits = Limits::NONE;
    for caveat in &request.caveats {
        limits.take(caveat.as_bytes()).map_err(bad)?;
    }
    let until = [limits.until_secs, verdict.until_secs].into_iter().flatten().fold(now_secs + span, i64::min);
    let names = limits.names.within(verdict.grants.rights_below(at));
    let nothing = || Refusal::OutOfScope(format!("nothing of what was asked for is allowed at {at}"));
    if names.rights().is_empty() {
        return Err(nothing());
    }
    limits.narrow_to(at.clone());
    if limits.nowhere || until <= now_secs {
        return Err(nothing());
    }
    let path = limits.path.unwrap_or(CellPath::root());
    let macaroon = signer
        .plain(id, location)
        .with(names.caveat())
        .with(path_caveat(&path).map_err(|e| bad(e.to_string()))?)
        .with(format!("before:{}", second(until)));
    Ok(Minted { macaroon: macaroon.to_text(Version::V1), expires_in: until - now_secs })
}
