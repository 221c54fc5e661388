//! The settings for an issuer of tokens: `[[issuer]]` in the settings of a cell.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An issuer of tokens of the WLCG profile, and as whom its tokens act: `[[issuer]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IssuerConfig {
    /// Its URL, exactly as its tokens have it in `iss`.
    pub url: String,
    /// What its tokens may have in `aud`, exactly.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// Whether tokens for every audience are for this one, too.
    #[serde(default = "yes")]
    pub any_audience: bool,
    /// The paths in the cell that paths of its scopes are relative to.
    pub base_paths: Vec<String>,
    /// The user as whom tokens with storage scopes act, unless their subject has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Users by `sub`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub subjects: BTreeMap<String, String>,
    /// Users by `wlcg.groups`, for tokens without any capability scope.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

impl IssuerConfig {
    /// Checks the settings of the issuer.
    ///
    /// # Errors
    /// What is wrong, beginning with `issuer: `.
    pub fn check(&self) -> Result<(), String> {
        check_issuer_url(&self.url).map_err(|why| format!("issuer: url = {}: {why}", self.url))?;
        if self.base_paths.is_empty() {
            return Err(format!("issuer: {}: base-paths: name at least one", self.url));
        }
        let bad = self.base_paths.iter().find(|p| !p.starts_with('/') || p.split('/').any(|c| c == ".."));
        if let Some(path) = bad {
            return Err(format!("issuer: {}: base-paths: {path} is no absolute path", self.url));
        }
        if self.user.is_none() && self.subjects.is_empty() && self.groups.is_empty() {
            return Err(format!(
                "issuer: {}: name whom its tokens act for: user, subjects or groups",
                self.url
            ));
        }
        Ok(())
    }
}

/// Keys of issuers come by HTTPS; by plain HTTP from this machine only.
///
/// # Errors
/// What is wrong with the URL.
pub(crate) fn check_issuer_url(url: &str) -> Result<(), String> {
    if url.contains(char::is_whitespace) || url.contains(char::is_control) {
        return Err("a URL has no blanks".into());
    }
    let host = |rest: &str| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        match authority.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default().to_string(),
            None => authority.split(':').next().unwrap_or_default().to_string(),
        }
    };
    if let Some(rest) = url.strip_prefix("https://") {
        return if host(rest).is_empty() { Err("no host in it".into()) } else { Ok(()) };
    }
    let here = |host: &str| host == "localhost" || host == "127.0.0.1" || host == "::1";
    match url.strip_prefix("http://") {
        // a name before an @ would not be the host
        Some(rest) if here(&host(rest)) && !rest.contains('@') => Ok(()),
        _ => Err("write https://".into()),
    }
}
