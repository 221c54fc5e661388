//! A request whose sender is known: what it may do at which path, and the files as it sees them.

use crate::error::{HttpError, Result};
use crate::head::ifs::{IfHeader, What};
use crate::locks::Change;
use crate::path::DavPath;
use crate::shared::Shared;
use http::{HeaderMap, Method, StatusCode};
use leeward_auth::{Activity, Grants, Rule, Verdict, Via};
use leeward_door::{Found, Path, PathEntry, Principal, Tree, notes};
use leeward_env::Door;
use leeward_fs::{Attr, Entry, Error, Kind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most other resources whose entity tags an `If` header may ask for.
const IF_RESOURCES_MAX: usize = 16;
/// The attribute of a volume that anybody may read.
const PUBLIC: &[&[u8]] = &[b"leeward.public"];

/// A request whose sender is known.
pub(crate) struct Request {
    pub(crate) dav: Arc<Shared>,
    pub(crate) method: Method,
    pub(crate) path: DavPath,
    pub(crate) headers: HeaderMap,
    pub(crate) host: Option<String>,
    pub(crate) verdict: Verdict,
}

/// A path, and the tree to reach it in.
#[derive(Clone)]
pub(crate) struct Resource {
    pub(crate) tree: Tree,
    pub(crate) path: Path,
    /// The path as it was sent.
    pub(crate) dav: DavPath,
}

impl Request {
    /// Whether the request has no credential.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.verdict.via == Via::Nothing
    }

    /// Whether the credential is a token, of this cell or of an issuer.
    pub(crate) fn is_bearer(&self) -> bool {
        matches!(self.verdict.via, Via::Macaroon(_) | Via::Wlcg { .. })
    }

    /// Whether the credential covers this.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn allow(&self, activity: Activity, at: &DavPath) -> Result<()> {
        Ok(self.verdict.check(activity, &at.cell())?)
    }

    /// The resource of the request, if the credential covers this.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn place(&self, activity: Activity) -> Result<Resource> {
        self.place_at(activity, &self.path)
    }

    /// The resource at another path. Symbolic links are not followed out of what the credential
    /// covers: the tree begins there.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn place_at(&self, activity: Activity, at: &DavPath) -> Result<Resource> {
        self.allow(activity, at)?;
        let cell = at.cell();
        let covers = |rule: &&Rule| rule.path.contains(&cell) && rule.rights.has(activity);
        self.tree(at, self.rules().iter().find(covers))
    }

    fn rules(&self) -> &[Rule] {
        match &self.verdict.grants {
            Grants::All => &[],
            Grants::Rules(rules) => rules,
        }
    }

    /// The files that this right reaches; without a right, the directories that lead to some. A
    /// right is for one name, whatever has it, and for everything below that.
    fn tree(&self, at: &DavPath, rule: Option<&Rule>) -> Result<Resource> {
        let who = &self.verdict.who;
        let user = Principal::of_user(&who.name, who.uid, who.gid(), who.other_gids());
        let names = match (&self.verdict.grants, rule) {
            (Grants::All, _) => 0,
            (Grants::Rules(_), Some(rule)) => rule.path.components().count(),
            (Grants::Rules(_), None) => at.names().len(),
        };
        let base = DavPath::of(&at.names()[..names.saturating_sub(1)]);
        let (files, way) = (&self.dav.files, base.below(0)?);
        let tree = match names {
            0 => files.tree(&user, Door::Http, &way),
            _ => files.tree_of_name(&user, Door::Http, &way, rule.map_or(usize::MAX, |r| r.parents_from)),
        };
        Ok(Resource { tree, path: at.below(base.names().len())?, dav: at.clone() })
    }

    /// A client without a credential reads where a volume allows that to everybody, and does
    /// nothing else.
    ///
    /// # Errors
    /// 401.
    pub(crate) async fn check_anonymous(&self) -> Result<()> {
        let reads = matches!(self.method, Method::GET | Method::HEAD) || self.method.as_str() == "PROPFIND";
        let ask = || HttpError::new(StatusCode::UNAUTHORIZED, "this is for users").with_challenge();
        if !reads {
            return Err(ask());
        }
        let place = self.place(Activity::Stat)?;
        match place.tree.stat(&place.path, PUBLIC).await {
            Ok(found) if found.xattrs[0].as_deref() == Some(b"1") => Ok(()),
            // nor is a client told what does not exist
            _ => Err(ask()),
        }
    }

    /// Checks the header `If` and all locks for the changes that the request is about to make.
    ///
    /// # Errors
    /// 412, 423.
    pub(crate) async fn check_locks(&self, changes: &[(&DavPath, Change)]) -> Result<()> {
        let ifs = IfHeader::of(&self.headers)?;
        let tags = self.tags_asked_for(&ifs).await?;
        let holds = ifs.hold(|of, what| {
            let at = of.unwrap_or(&self.path);
            match what {
                What::Token(token) => self.dav.locks.named(at, token).is_some(),
                What::Tag(tag) => tags.get(at).is_some_and(|is| is.as_ref() == Some(tag)),
            }
        });
        if !holds {
            return Err(HttpError::precondition());
        }
        let tokens: Vec<&str> = ifs.tokens().collect();
        for (path, change) in changes {
            if let Some(at) = self.dav.locks.blocking_lock(path, *change, &self.verdict.who.name, &tokens) {
                return Err(HttpError::locked(at.encoded()));
            }
        }
        Ok(())
    }

    /// The entity tags of the resources in `If`.
    async fn tags_asked_for(&self, ifs: &IfHeader) -> Result<BTreeMap<DavPath, Option<String>>> {
        let mut tags = BTreeMap::new();
        for group in &ifs.0 {
            let asks = group.conditions.iter().any(|condition| matches!(condition.what, What::Tag(_)));
            let at = group.of.as_ref().unwrap_or(&self.path);
            if !asks || tags.contains_key(at) {
                continue;
            }
            if tags.len() == IF_RESOURCES_MAX {
                return Err(HttpError::bad("If asks about too many resources"));
            }
            let place = self.place_at(Activity::Stat, at)?;
            let found = place.tree.stat(&place.path, &[]).await.ok();
            tags.insert(at.clone(), found.map(|found| etag(&found.attr)));
        }
        Ok(tags)
    }
}

impl Resource {
    /// What exists there; `None`: nothing.
    ///
    /// # Errors
    /// It cannot be looked up.
    pub(crate) async fn found(&self, xattrs: &'static [&'static [u8]]) -> Result<Option<Found>> {
        match self.tree.stat(&self.path, xattrs).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(self.error(&e)),
        }
    }

    /// What exists there, which must be something.
    ///
    /// # Errors
    /// 404; it cannot be looked up.
    pub(crate) async fn must(&self, xattrs: &'static [&'static [u8]]) -> Result<Found> {
        match self.tree.stat(&self.path, xattrs).await {
            Ok(found) => Ok(found),
            Err(e) => Err(self.missing(&e)),
        }
    }

    /// Attributes of what has the name, and of what GET would show: these differ where it is a
    /// symbolic link that leads somewhere.
    ///
    /// # Errors
    /// It cannot be looked up.
    pub(crate) async fn named(&self) -> Result<(Option<Attr>, Option<Attr>)> {
        match self.spot().await?.and_then(|spot| spot.attr) {
            Some(link) if link.kind == Kind::Symlink => {
                let found = self.found(&[]).await.ok().flatten();
                Ok((Some(link), Some(found.map_or(link, |found| found.attr))))
            }
            attr => Ok((attr, attr)),
        }
    }

    /// As [`Resource::named`], of something that must exist.
    ///
    /// # Errors
    /// As [`Resource::must`].
    pub(crate) async fn must_be_named(&self) -> Result<(Attr, Attr)> {
        let (entry, shown) = self.named().await?;
        let (Some(entry), Some(shown)) = (entry, shown) else { return Err(self.error(&Error::NotFound)) };
        if self.path.wants_dir() && shown.kind != Kind::Dir {
            return Err(self.error(&Error::NotFound));
        }
        Ok((entry, shown))
    }

    /// Its directory, and what has its name there, whether or not it is a directory; `None`: the
    /// directory does not exist.
    ///
    /// # Errors
    /// It cannot be looked up.
    pub(crate) async fn spot(&self) -> Result<Option<PathEntry>> {
        let path = Path::parse(self.path.as_bytes()).expect("it was one with the slash");
        match self.tree.spot(&path, false).await {
            Ok(spot) => Ok(Some(spot)),
            Err(Error::NotFound | Error::NotDir) => Ok(None),
            Err(e) => Err(self.error(&e)),
        }
    }

    /// A file on the way, or a slash after a file's name, means 404.
    pub(crate) fn missing(&self, e: &Error) -> HttpError {
        self.error(if *e == Error::NotDir { &Error::NotFound } else { e })
    }

    /// Checks that the directory above exists.
    ///
    /// # Errors
    /// 409.
    pub(crate) async fn check_parent(&self) -> Result<()> {
        let Some((above, _)) = self.path.split() else { return Ok(()) };
        match self.tree.access(&above, 0).await {
            Ok(attr) if attr.kind == Kind::Dir => Ok(()),
            Ok(_) | Err(Error::NotFound | Error::NotDir) => {
                let parent = self.dav.parent().unwrap_or_default().shown();
                Err(HttpError::conflict(format!("there is no directory {parent}: make it first (MKCOL)")))
            }
            Err(e) => Err(self.error(&e)),
        }
    }

    /// The same resource, relative to its directory.
    pub(crate) fn by(&self, spot: &PathEntry) -> Resource {
        let dav = self.dav.clone().with_slash(false);
        Resource { tree: spot.tree.clone(), path: spot.name.clone(), dav }
    }

    /// The resource of an entry of this directory.
    pub(crate) fn entry(&self, entry: &Entry) -> Resource {
        let dav = self.dav.join(&entry.name).with_slash(entry.kind == Kind::Dir);
        Resource { tree: self.tree.within(entry.node), path: Path::default(), dav }
    }

    /// An error about this resource.
    pub(crate) fn error(&self, e: &Error) -> HttpError {
        HttpError::at(&self.dav.shown(), e)
    }
}

/// The entity tag for these attributes, with quotes. The same wherever it is shown, so it depends
/// on attributes alone.
pub(crate) fn etag(attr: &Attr) -> String {
    format!("\"{}\"", notes::etag_of(&notes::Sums::default(), attr))
}
