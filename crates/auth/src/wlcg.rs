//! Tokens of the WLCG Common JWT profile, 1.x: RS256 or ES256, by an issuer that the site trusts,
//! for this site, now.
//!
//! Order of the checks: form, issuer, signature, then the claims. Before its signature is checked,
//! a token's claims only choose the issuer whose keys are used. Where there is any capability scope
//! groups do not count; without one the token must be of a group that the settings name.

use crate::fetch::Fetch;
use crate::issuers::Issuer;
use crate::jws::Signed;
use crate::refusal::Refusal;
use crate::rights::{Grants, Rights, Rule};
use crate::scope::Scopes;
use leeward_env::{Env, Wait};
use serde::{Deserialize, Deserializer};

/// Every recipient.
const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// Clocks may differ by this time, seconds.
const SKEW_SECS: i64 = 60;

/// The claim that is read before the signature, to find the key for it.
#[derive(Deserialize)]
struct UnverifiedClaims {
    iss: String,
}

/// Claims of the profile. Others are left out.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: OneOrMore,
    #[serde(deserialize_with = "date")]
    exp: i64,
    #[serde(deserialize_with = "date")]
    iat: i64,
    #[serde(default, deserialize_with = "maybe_date")]
    nbf: Option<i64>,
    jti: String,
    #[serde(rename = "wlcg.ver")]
    version: String,
    #[serde(default)]
    scope: Option<String>,
    #[serde(rename = "wlcg.groups", default)]
    groups: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Seconds since 1970, whole or not.
fn date<'d, D: Deserializer<'d>>(from: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    // a number that no i64 can hold becomes the nearest one
    Ok(number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64))
}

fn maybe_date<'d, D: Deserializer<'d>>(from: D) -> Result<Option<i64>, D::Error> {
    date(from).map(Some)
}

/// A verified token, and the user as whom it acts.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedToken {
    pub(crate) user: String,
    pub(crate) grants: Grants,
    /// End of validity, with the allowed difference of clocks.
    pub(crate) until_secs: i64,
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) id: String,
}

/// Checks a token.
///
/// # Errors
/// Why it is not valid; [`Refusal::WouldBlock`] when keys must be fetched.
pub(crate) fn read(
    env: &Env,
    issuers: &[Issuer],
    fetch: &dyn Fetch,
    token: &str,
    wait: Wait,
) -> Result<VerifiedToken, Refusal> {
    let signed = Signed::parse(token)?;
    let peek: UnverifiedClaims = signed.claims()?;
    let issuer = issuers.iter().find(|issuer| issuer.config.url == peek.iss);
    let issuer = issuer.ok_or_else(|| Refusal::Invalid("its issuer is not trusted here".into()))?;
    let named = (signed.key_id.as_deref(), signed.algorithm);
    if !issuer.with_key(env, fetch, named, wait, |key| signed.is_signed_by(key))? {
        return Err(Refusal::Invalid("its signature is wrong".into()));
    }
    judge(issuer, signed.claims()?, (env.wall() / 1_000_000_000) as i64)
}

/// Judges claims whose signature is valid.
fn judge(issuer: &Issuer, claims: Claims, now: i64) -> Result<VerifiedToken, Refusal> {
    let config = &issuer.config;
    let invalid = |why: &str| Err(Refusal::Invalid(why.into()));
    if claims.iss != config.url {
        return invalid("its issuer is not trusted here");
    }
    if claims.version.split('.').next() != Some("1") {
        return invalid("it is not of version 1 of the profile");
    }
    let is_for_us = |audience: &String| {
        config.audiences.contains(audience) || (config.any_audience && audience == ANY_AUDIENCE)
    };
    let for_us = match &claims.aud {
        OneOrMore::One(audience) => is_for_us(audience),
        OneOrMore::More(audiences) => audiences.iter().any(is_for_us),
    };
    if !for_us {
        return invalid("it is for another audience");
    }
    let until_secs = claims.exp.saturating_add(SKEW_SECS);
    if now >= until_secs {
        return Err(Refusal::Expired);
    }
    let from = claims.nbf.unwrap_or(claims.iat).max(claims.iat);
    if now.saturating_add(SKEW_SECS) < from {
        return Err(Refusal::TooEarly);
    }
    if claims.sub.is_empty() || claims.jti.is_empty() {
        return invalid("it names no subject, or has no number");
    }
    let scopes = Scopes::parse(claims.scope.as_deref().unwrap_or_default()).map_err(Refusal::Malformed)?;
    let (user, grants) = if scopes.is_capability {
        (config.subjects.get(&claims.sub).or(config.user.as_ref()), scopes.grants(&issuer.bases))
    } else {
        let groups = claims.groups.as_deref().unwrap_or_default();
        let group = groups.iter().find_map(|group| config.groups.get(group));
        let user = group.map(|user| config.subjects.get(&claims.sub).unwrap_or(user));
        let all =
            issuer.bases.iter().map(|base| Rule::new(base.clone().with_dir(false), Rights::ALL)).collect();
        (user, Grants::Rules(all))
    };
    let user = user.ok_or_else(|| {
        Refusal::OutOfScope("it has neither a storage scope nor a group that anybody here acts for".into())
    })?;
    let (user, issuer) = (user.clone(), claims.iss);
    Ok(VerifiedToken { user, grants, until_secs, issuer, subject: claims.sub, id: claims.jti })
}
