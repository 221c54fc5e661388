//! Rules for browsers: which pages of other sites may use a bucket. Pure.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use s3s::dto::{CORSConfiguration, CORSRule};
use serde_json::{Value, json};

/// Most rules, and most bytes of them: as S3.
const RULES_MAX: usize = 100;
const BYTES_MAX: usize = 64 << 10;

/// One rule.
#[derive(Debug, Default)]
struct Rule {
    origins: Vec<String>,
    methods: Vec<String>,
    headers: Vec<String>,
    exposed: Vec<String>,
    max_age_secs: Option<i64>,
}

/// The stored form of a configuration; `None`: it is too large.
pub(crate) fn to_text(configuration: &CORSConfiguration) -> Option<String> {
    let rule = |r: &CORSRule| {
        json!({
            "origins": r.allowed_origins,
            "methods": r.allowed_methods,
            "headers": r.allowed_headers,
            "exposed": r.expose_headers,
            "max_age_secs": r.max_age_seconds,
            "id": r.id,
        })
    };
    let rules: Vec<Value> = configuration.cors_rules.iter().map(rule).collect();
    let text = Value::from(rules).to_string();
    (configuration.cors_rules.len() <= RULES_MAX && text.len() <= BYTES_MAX).then_some(text)
}

/// Reads the stored form of a configuration.
pub(crate) fn from_text(text: &str) -> Vec<CORSRule> {
    let Ok(Value::Array(rules)) = serde_json::from_str(text) else { return Vec::new() };
    let rule = |value: &Value| CORSRule {
        allowed_origins: strings(&value["origins"]),
        allowed_methods: strings(&value["methods"]),
        allowed_headers: some(strings(&value["headers"])),
        expose_headers: some(strings(&value["exposed"])),
        max_age_seconds: value["max_age_secs"].as_i64().and_then(|n| i32::try_from(n).ok()),
        id: value["id"].as_str().map(str::to_owned),
    };
    rules.iter().map(rule).collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

fn some(list: Vec<String>) -> Option<Vec<String>> {
    (!list.is_empty()).then_some(list)
}

fn rules(text: &str) -> Vec<Rule> {
    let rule = |r: CORSRule| Rule {
        origins: r.allowed_origins,
        methods: r.allowed_methods,
        headers: r.allowed_headers.unwrap_or_default(),
        exposed: r.expose_headers.unwrap_or_default(),
        max_age_secs: r.max_age_seconds.map(i64::from),
    };
    from_text(text).into_iter().map(rule).collect()
}

/// The headers for an answer to a request of this method; none when no rule applies to it.
pub(crate) fn headers_for(text: &str, method: &str, request: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    let Some(origin) = request.get(ORIGIN).and_then(|o| o.to_str().ok()) else { return out };
    if text.is_empty() {
        return out;
    }
    let rule = rules(text).into_iter().find(|r| r.allows(origin, method));
    let Some(rule) = rule else { return out };
    let any = rule.origins.iter().any(|o| o == "*");
    insert(&mut out, ACCESS_CONTROL_ALLOW_ORIGIN, if any { "*" } else { origin });
    insert(&mut out, VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
    insert(&mut out, ACCESS_CONTROL_EXPOSE_HEADERS, &rule.exposed.join(", "));
    out
}

/// The headers for a browser that asks whether a request is allowed; `None`: it is not.
pub(crate) fn preflight(text: &str, request: &HeaderMap) -> Option<HeaderMap> {
    let header = |name: HeaderName| request.get(name).and_then(|v| v.to_str().ok());
    let (origin, method) = (header(ORIGIN)?, header(ACCESS_CONTROL_REQUEST_METHOD)?);
    let wanted: Vec<&str> = header(ACCESS_CONTROL_REQUEST_HEADERS)
        .map(|names| names.split(',').map(str::trim).filter(|n| !n.is_empty()).collect())
        .unwrap_or_default();
    let is_right = |r: &Rule| r.allows(origin, method) && wanted.iter().all(|name| r.allows_header(name));
    let rule = rules(text).into_iter().find(is_right)?;
    let mut out = headers_for(text, method, request);
    insert(&mut out, ACCESS_CONTROL_ALLOW_METHODS, &rule.methods.join(", "));
    insert(&mut out, ACCESS_CONTROL_ALLOW_HEADERS, &wanted.join(", "));
    if let Some(secs) = rule.max_age_secs {
        insert(&mut out, ACCESS_CONTROL_MAX_AGE, &secs.to_string());
    }
    Some(out)
}

impl Rule {
    fn allows(&self, origin: &str, method: &str) -> bool {
        self.origins.iter().any(|o| matches(o, origin)) && self.methods.iter().any(|m| m == method)
    }

    fn allows_header(&self, name: &str) -> bool {
        self.headers.iter().any(|h| matches(&h.to_ascii_lowercase(), &name.to_ascii_lowercase()))
    }
}

/// Whether a text matches a pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            text.len() >= before.len() + after.len() && text.starts_with(before) && text.ends_with(after)
        }
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value)
        && !value.is_empty()
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let rule = CORSRule {
            allowed_origins: vec!["https://*.example.org".into()],
            allowed_methods: vec!["GET".into(), "PUT".into()],
            allowed_headers: Some(vec!["x-amz-*".into()]),
            expose_headers: Some(vec!["ETag".into()]),
            max_age_seconds: Some(60),
            id: Some("one".into()),
        };
        to_text(&CORSConfiguration { cors_rules: vec![rule] }).expect("small")
    }

    fn request(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn rules_come_back() {
        let rules = from_text(&text());
        assert_eq!(
            (rules.len(), rules[0].id.as_deref(), rules[0].max_age_seconds),
            (1, Some("one"), Some(60))
        );
        assert!(from_text("").is_empty() && from_text("nonsense").is_empty());
    }

    #[test]
    fn who_may_is_told_so_and_others_are_told_nothing() {
        let ours = request(&[("origin", "https://a.example.org")]);
        let headers = headers_for(&text(), "GET", &ours);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "https://a.example.org");
        assert_eq!(headers[ACCESS_CONTROL_EXPOSE_HEADERS], "ETag");
        assert!(headers_for(&text(), "DELETE", &ours).is_empty());
        assert!(headers_for(&text(), "GET", &request(&[("origin", "https://evil.org")])).is_empty());
        assert!(headers_for("", "GET", &ours).is_empty());
        let asks = |headers: &'static str| {
            preflight(
                &text(),
                &request(&[
                    ("origin", "https://a.example.org"),
                    ("access-control-request-method", "PUT"),
                    ("access-control-request-headers", headers),
                ]),
            )
        };
        assert!(asks("X-Amz-Date, x-amz-content-sha256").is_some_and(|h| h[ACCESS_CONTROL_MAX_AGE] == "60"));
        assert!(asks("authorization").is_none());
    }
}
