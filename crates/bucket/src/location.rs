//! Which bucket, on which store: from the URL, the usual AWS variables, and the profile in
//! `~/.aws`.
//!
//! Variables win over the profile. A profile that the URL names (`s3://bucket/prefix?profile=NAME`)
//! is used alone, so stores of one pool can be at several sites. Of a profile the keys
//! `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token`, `region` and `endpoint_url`
//! count. The client library finds roles of machines and containers.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `s3://bucket/prefix`, or `s3://bucket/prefix?profile=NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BucketUrl {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix in it, without slashes at the ends; may be empty.
    pub prefix: String,
    /// The profile that has endpoint and keys; `None`: the environment has them.
    pub profile: Option<String>,
}

impl BucketUrl {
    /// Whether this is meant to be the URL of a bucket.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("s3://")
    }

    /// Parses it.
    ///
    /// # Errors
    /// Wrong.
    pub fn parse(text: &str) -> Result<BucketUrl> {
        let wrong = |what: &str| {
            Error::Wrong(format!(
                "{text}: {what}: write s3://BUCKET/PREFIX, or s3://BUCKET/PREFIX?profile=NAME"
            ))
        };
        let rest = text.strip_prefix("s3://").ok_or_else(|| wrong("not the URL of a bucket"))?;
        let (rest, profile) = match rest.split_once('?').map(|(rest, query)| (rest, query.split_once('='))) {
            None => (rest, None),
            Some((rest, Some(("profile", name)))) if !name.is_empty() && !name.contains(['&', ']']) => {
                (rest, Some(name.to_string()))
            }
            Some(_) => return Err(wrong("only a profile can be asked for")),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if bucket.is_empty() || !bucket.chars().all(fits) {
            return Err(wrong("no bucket is named so"));
        }
        if !prefix.is_empty()
            && prefix
                .split('/')
                .any(|part| part.is_empty() || part == "." || part == ".." || !part.chars().all(fits))
        {
            return Err(wrong("a prefix is made of letters, digits, `-`, `_`, `.` and single slashes"));
        }
        Ok(BucketUrl { bucket: bucket.into(), prefix: prefix.into(), profile })
    }
}

impl std::fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.prefix.as_str() {
            "" => write!(f, "s3://{}", self.bucket)?,
            prefix => write!(f, "s3://{}/{prefix}", self.bucket)?,
        }
        self.profile.as_ref().map_or(Ok(()), |profile| write!(f, "?profile={profile}"))
    }
}

impl TryFrom<String> for BucketUrl {
    type Error = Error;
    fn try_from(text: String) -> Result<BucketUrl> {
        BucketUrl::parse(&text)
    }
}

impl From<BucketUrl> for String {
    fn from(url: BucketUrl) -> String {
        url.to_string()
    }
}

/// A bucket, a prefix, and the store they are on. Without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The bucket and the prefix.
    pub url: BucketUrl,
    /// URL of the store; none: AWS.
    pub endpoint: Option<String>,
    /// Region; none: us-east-1.
    pub region: Option<String>,
}

impl Location {
    /// The location that the URL, the environment and the profile give.
    ///
    /// # Errors
    /// Wrong, where one of them makes no sense.
    pub fn find(url: &str) -> Result<Location> {
        let url = BucketUrl::parse(url)?;
        let profile = Profile::load(url.profile.as_deref())?;
        let variable = |names: &[&str]| if url.profile.is_some() { None } else { first_variable(names) };
        let endpoint = variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        let region = variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let place = Location {
            endpoint: endpoint.or_else(|| profile.get("endpoint_url")),
            region: region.or_else(|| profile.get("region")),
            url,
        };
        match &place.endpoint {
            Some(e) if !e.starts_with("http://") && !e.starts_with("https://") => {
                let said_by = if place.url.profile.is_some() { "endpoint_url" } else { "AWS_ENDPOINT_URL" };
                Err(Error::Wrong(format!("{said_by}={e}: write http://HOST:PORT or https://HOST")))
            }
            _ => Ok(place),
        }
    }

    /// Name of the server it is on: two stores on one server fail together.
    pub fn host(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("s3.{}.amazonaws.com", self.region.as_deref().unwrap_or("us-east-1")),
        }
    }

    #[cfg(test)]
    pub(crate) fn bare(url: &str) -> Result<Location> {
        Ok(Location { url: BucketUrl::parse(url)?, endpoint: None, region: None })
    }

    /// Some hex digits that differ from those of every other location.
    pub fn fingerprint(&self) -> String {
        let text =
            format!("{}\0{}", self.endpoint.as_deref().unwrap_or_default().trim_end_matches('/'), self.url);
        // FNV-1a; it names a directory, and need not resist an attacker
        let mix = |seed: u64| {
            text.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
        };
        format!("{:016x}", mix(0xcbf2_9ce4_8422_2325))
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.url.fmt(f)
    }
}

pub(crate) fn first_variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
}

/// One profile of `~/.aws/credentials` and `~/.aws/config`.
pub(crate) struct Profile(BTreeMap<String, String>);

impl Profile {
    /// The profile of this name, else that of `AWS_PROFILE`, else `default`, which may be missing.
    pub(crate) fn load(name: Option<&str>) -> Result<Profile> {
        let said_by = if name.is_some() { "profile" } else { "AWS_PROFILE" };
        let by_environment = || first_variable(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
        let wanted = name.map(str::to_string).or_else(by_environment);
        let name = wanted.clone().unwrap_or_else(|| "default".into());
        let mut keys = BTreeMap::new();
        let mut found = false;
        for (variable, file, section) in [
            ("AWS_CONFIG_FILE", "config", format!("profile {name}")),
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name.clone()),
        ] {
            let path = match (first_variable(&[variable]), first_variable(&["HOME"])) {
                (Some(path), _) => PathBuf::from(path),
                (None, Some(home)) => PathBuf::from(home).join(".aws").join(file),
                (None, None) => continue,
            };
            if let Ok(text) = std::fs::read_to_string(&path) {
                let sections = [section.as_str(), name.as_str()];
                found |= read_sections(&text, &sections, &mut keys);
            }
        }
        match wanted {
            Some(name) if !found => Err(Error::Wrong(format!(
                "{said_by}={name}: no such profile in ~/.aws/config or ~/.aws/credentials: correct the name"
            ))),
            _ => Ok(Profile(keys)),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }
}

/// Adds the keys of these sections; returns whether one was there.
fn read_sections(text: &str, sections: &[&str], keys: &mut BTreeMap<String, String>) -> bool {
    let (mut inside, mut found) = (false, false);
    for line in text.lines() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            inside = sections.contains(&section.trim());
            found |= inside;
        } else if let (true, Some((key, value))) =
            (inside && !line.starts_with(['#', ';']), line.split_once('='))
        {
            keys.insert(key.trim().to_ascii_lowercase(), value.trim().to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let url = |text: &str| BucketUrl::parse(text).map(|u| u.to_string());
        assert_eq!(url("s3://b"), Ok("s3://b".into()));
        assert_eq!(url("s3://b//x/y.z/"), Ok("s3://b/x/y.z".into()));
        assert_eq!(url("s3://b/x/?profile=site b"), Ok("s3://b/x?profile=site b".into()));
        for wrong in [
            "s3://",
            "s3:///x",
            "http://b/x",
            "s3://b/../x",
            "s3://b/a//b",
            "s3://b/a b",
            "s3://b c",
            "s3://b?profile=",
            "s3://b?x=y",
        ] {
            assert!(matches!(url(wrong), Err(Error::Wrong(_))), "{wrong}");
        }
        let place = |endpoint: &str| Location {
            url: BucketUrl::parse("s3://b/p").expect("a URL"),
            endpoint: Some(endpoint.into()),
            region: None,
        };
        assert_eq!(place("http://h").fingerprint(), place("http://h/").fingerprint());
        assert_ne!(place("http://h").fingerprint(), place("http://i").fingerprint());
    }

    #[test]
    fn profiles_are_read() {
        let mut keys = BTreeMap::new();
        let text = "[default]\nregion = a\n[profile x]\n# region=c\nregion=b\n endpoint_url = http://h:1 \n[y]\nregion=d\n";
        assert!(read_sections(text, &["profile x", "x"], &mut keys));
        assert_eq!(keys.get("region").map(String::as_str), Some("b"));
        assert_eq!(keys.get("endpoint_url").map(String::as_str), Some("http://h:1"));
        assert!(!read_sections(text, &["z"], &mut keys));
    }
}
