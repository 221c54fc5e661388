//! PROPFIND: properties of files and directories.

use super::dead::{self, Dead};
use super::pages::{Page, pages};
use super::walk::path_of;
use crate::body::{self, Answer};
use crate::error::{HttpError, Result};
use crate::head::{self, Depth};
use crate::locks::{Lock, Locks};
use crate::path::DavPath;
use crate::request::{Request, Resource, etag};
use crate::shared::Shared;
use crate::xml::answer::{self, Property, escaped};
use crate::xml::request::Find;
use crate::xml::{DAV, Name};
use crate::{date, kind};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{StatusCode, header};
use leeward_auth::Activity;
use leeward_env::dates::second;
use leeward_fs::{Attr, Entry, Kind};
use std::fmt::Write as _;
use std::sync::Arc;

/// Live properties of all resources, in the order of the answer. Those of quotas are given where a
/// single directory is asked for all properties, as clients of the grid do, or where they are
/// named: RFC 4331 allows only the latter.
const LIVE: [&str; 9] = [
    "creationdate",
    "displayname",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "resourcetype",
    "supportedlock",
];
const QUOTA_USED: &str = "quota-used-bytes";
const QUOTA_AVAILABLE: &str = "quota-available-bytes";
/// The attribute with the free space under quotas.
const LEFT: &[&[u8]] = &[b"leeward.left"];
/// Known namespaces without further properties: they are not looked for among dead properties.
const NOT_DEAD: [&str; 4] = [DAV, "http://owncloud.org/ns", "http://apache.org/dav/props/", "LCGDM:"];

const SUPPORTED_LOCK: &str = "<D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
                              <D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// Entries that are described at a time.
const AT_ONCE: usize = 16;

/// PROPFIND.
pub(crate) async fn propfind(request: &Request, content: Bytes) -> Result<Answer> {
    let find = Arc::new(Find::parse(&content)?);
    // without a depth (RFC 4918: infinity) a client wants a file, or the entries of a directory
    let depth = head::depth(&request.headers, Depth::One)?;
    let place = request.place(Activity::Stat)?;
    let found = place.must(&[]).await?;
    let is_dir = found.attr.kind == Kind::Dir;
    if depth == Depth::Infinity && is_dir {
        let why = "a whole tree is not described at once: send Depth 0 or 1";
        return Err(HttpError::new(StatusCode::FORBIDDEN, why).with("propfind-finite-depth", None));
    }
    let teller = PropertyWriter { dav: request.dav.clone(), find, with_quotas: depth == Depth::Zero };
    let mut text = answer::BEGIN.to_string();
    let at = Resource { dav: place.dav.clone().with_slash(is_dir), ..place };
    teller.tell(&at, &found.attr, &mut text).await;
    let mut answer = body::empty(StatusCode::MULTI_STATUS);
    *answer.body_mut() = if depth == Depth::One && is_dir {
        let dir = request.place(Activity::List)?;
        pages(Resource { dav: at.dav, ..dir }, text, teller, answer::END).await?
    } else {
        body::full(text + answer::END)
    };
    Ok(body::headers(answer, [(header::CONTENT_TYPE, answer::CONTENT_TYPE)]))
}

/// Writes properties of entries.
struct PropertyWriter {
    dav: Arc<Shared>,
    find: Arc<Find>,
    /// Whether `allprop` includes quotas.
    with_quotas: bool,
}

impl Page for PropertyWriter {
    async fn write(&mut self, dir: &Resource, entries: &[Entry], out: &mut String) {
        let texts: Vec<_> = entries.iter().map(|entry| self.entry(dir, entry)).collect();
        let texts: Vec<String> = stream::iter(texts).buffered(AT_ONCE).collect().await;
        out.extend(texts);
    }
}

impl PropertyWriter {
    /// The properties of an entry of a directory. For a symbolic link they are those of its target,
    /// as for GET, if that can be reached.
    async fn entry(&self, dir: &Resource, entry: &Entry) -> String {
        let mut text = String::new();
        let followed = match entry.kind {
            Kind::Symlink => dir.tree.stat(&dir.path.join(&path_of(&entry.name)), &[]).await.ok(),
            _ => None,
        };
        let attr = followed.map(|found| found.attr).or(entry.attr);
        if let Some(attr) = attr {
            let shown = Entry { node: attr.node, kind: attr.kind, ..entry.clone() };
            self.tell(&dir.entry(&shown), &attr, &mut text).await;
        }
        text
    }

    async fn tell(&self, place: &Resource, attr: &Attr, out: &mut String) {
        let told = PropertySource { place, attr, locks: &self.dav.locks };
        let mut found = Vec::new();
        let mut missing = Vec::new();
        let (names, all): (&[Name], bool) = match &*self.find {
            Find::These(names) => (names, false),
            Find::All(more) => (more, true),
            Find::Names => (&[], true),
        };
        let dead = if all || names.iter().any(may_be_dead) { dead_of(place).await } else { Dead::default() };
        if all {
            found.extend(LIVE.iter().filter_map(|local| told.live(local)));
            found.extend(dead.all());
            if self.with_quotas {
                found.extend(quota(place, attr, QUOTA_USED).await);
                found.extend(quota(place, attr, QUOTA_AVAILABLE).await);
            }
        }
        for name in names
            .iter()
            .filter(|name| !found.iter().any(|p: &Property| p.name == **name))
            .cloned()
            .collect::<Vec<_>>()
        {
            match self.one(&told, &dead, &name).await {
                Some(property) => found.push(property),
                None => missing.push(Property { name, value: None }),
            }
        }
        if *self.find == Find::Names {
            found.iter_mut().for_each(|property| property.value = None);
        }
        answer::response(
            out,
            &place.dav.encoded(),
            &[(StatusCode::OK, found), (StatusCode::NOT_FOUND, missing)],
        );
    }

    async fn one(&self, told: &PropertySource<'_>, dead: &Dead, name: &Name) -> Option<Property> {
        if name.space != DAV {
            return dead.get(name);
        }
        if [QUOTA_USED, QUOTA_AVAILABLE].contains(&&*name.local) {
            return quota(told.place, told.attr, &name.local).await;
        }
        told.live(&name.local)
    }
}

fn may_be_dead(name: &Name) -> bool {
    !NOT_DEAD.contains(&&*name.space)
}

async fn dead_of(place: &Resource) -> Dead {
    let found = place.tree.stat(&place.path, &[dead::ATTRIBUTE]).await;
    Dead::of(found.ok().and_then(|found| found.xattrs.into_iter().next().flatten()).as_deref())
}

/// Space used below a directory, and space that is left there (RFC 4331).
async fn quota(place: &Resource, attr: &Attr, local: &str) -> Option<Property> {
    if attr.kind != Kind::Dir {
        return None;
    }
    let (used, figures) = place.tree.space(&place.path).await.ok()?;
    let bytes = if local == QUOTA_USED {
        used
    } else {
        let left = place.tree.stat(&place.path, LEFT).await.ok()?.xattrs.into_iter().next().flatten();
        let left = left.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        left.unwrap_or(u64::MAX).min(figures.free_bytes)
    };
    Some(Property::dav(local, bytes.to_string()))
}

/// The sources of a resource's properties.
struct PropertySource<'a> {
    place: &'a Resource,
    attr: &'a Attr,
    locks: &'a Locks,
}

impl PropertySource<'_> {
    fn live(&self, local: &str) -> Option<Property> {
        let (attr, path) = (self.attr, &self.place.dav);
        let is_dir = attr.kind == Kind::Dir;
        let value = match local {
            "creationdate" => second(attr.btime.secs),
            "displayname" => escaped(&String::from_utf8_lossy(path.name().unwrap_or(b"/"))).into_owned(),
            "getcontentlength" if !is_dir => attr.size.to_string(),
            "getcontenttype" if !is_dir => kind::of(path.name().unwrap_or_default()).into(),
            "getetag" => escaped(&etag(attr)).into_owned(),
            "getlastmodified" => date::http(attr.mtime.secs),
            "lockdiscovery" => locks_as_xml(self.locks, &self.locks.of(path)),
            "resourcetype" if is_dir => "<D:collection/>".into(),
            "resourcetype" => String::new(),
            "supportedlock" => SUPPORTED_LOCK.into(),
            _ => return None,
        };
        Some(Property::dav(local, value))
    }
}

/// The value of `lockdiscovery`.
pub(crate) fn locks_as_xml(locks: &Locks, list: &[Lock]) -> String {
    let mut out = String::new();
    for lock in list {
        let scope = if lock.shared { "shared" } else { "exclusive" };
        let depth = if lock.deep { "infinity" } else { "0" };
        let owner =
            lock.owner.as_deref().map(|owner| format!("<D:owner>{owner}</D:owner>")).unwrap_or_default();
        let (seconds, root): (u64, &DavPath) = (locks.seconds_left(lock), &lock.path);
        let _ = write!(
            out,
            "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
             <D:depth>{depth}</D:depth>{owner}<D:timeout>Second-{seconds}</D:timeout>\
             <D:locktoken><D:href>{}</D:href></D:locktoken><D:lockroot><D:href>{}</D:href></D:lockroot></D:activelock>",
            escaped(&lock.token),
            escaped(&root.encoded())
        );
    }
    out
}
