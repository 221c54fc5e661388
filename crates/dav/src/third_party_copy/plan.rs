//! What a COPY with another server asks for: the other server, the direction, the headers.

use super::remote::Remote;
use crate::head::{self, BadHeader, Destination};
use http::{HeaderMap, HeaderName, Uri};

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From there to here.
    Pull,
    /// From here to there.
    Push,
}

/// A third-party copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Direction of the copy.
    pub direction: Direction,
    /// The file on the other server.
    pub there: Uri,
    /// Headers that the client wants that server to get. Has credentials in it.
    pub headers: HeaderMap,
    /// Whether checksums are compared.
    pub verify: Verify,
}

/// Whether checksums are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// No.
    Never,
    /// Where the other server gives a checksum. The default.
    WherePossible,
    /// A copy without a checksum fails.
    Always,
}

/// Why a COPY is no third-party copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// It is between paths of this server.
    Here,
    /// A header is wrong: 400.
    Bad(BadHeader),
    /// The scheme is not supported: 501.
    Scheme(String),
}

impl From<BadHeader> for NoPlan {
    fn from(bad: BadHeader) -> NoPlan {
        NoPlan::Bad(bad)
    }
}

impl Plan {
    /// Reads the headers of a COPY. `host`: this server's name in the request.
    ///
    /// # Errors
    /// See [`NoPlan`].
    pub fn of(headers: &HeaderMap, host: Option<&str>) -> Result<Plan, NoPlan> {
        let bad = |text: &str| NoPlan::Bad(BadHeader(text.into()));
        let source = head::once(headers, "source")?;
        let destination = head::once(headers, "destination")?;
        let (direction, there) = match (source, destination) {
            (Some(_), Some(_)) => return Err(bad("Source and Destination are both there: say one of them")),
            (Some(source), None) => {
                (Direction::Pull, source.parse::<Uri>().map_err(|_| bad("Source is no URL"))?)
            }
            (None, _) => match head::destination(headers, host)? {
                Some(Destination::There(there)) => (Direction::Push, there),
                Some(Destination::Here(_)) => return Err(NoPlan::Here),
                None => return Err(bad("COPY has a Destination or a Source")),
            },
        };
        if !Remote::speaks(&there) {
            return Err(NoPlan::Scheme(format!(
                "{} cannot be copied from or to: only https",
                there.scheme_str().unwrap_or("a URL without a scheme")
            )));
        }
        if there.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(bad(
                "the URL has a user name in it: send credentials in TransferHeaderAuthorization",
            ));
        }
        match head::once(headers, "credential")? {
            Some(how) if !how.eq_ignore_ascii_case("none") => {
                return Err(bad("Credential is none: nothing is delegated to this server"));
            }
            _ => {}
        }
        let verify = match head::once(headers, "requirechecksumverification")? {
            None => Verify::WherePossible,
            Some(text) if text.eq_ignore_ascii_case("true") => Verify::Always,
            Some(text) if text.eq_ignore_ascii_case("false") => Verify::Never,
            Some(_) => return Err(bad("RequireChecksumVerification is true or false")),
        };
        Ok(Plan { direction, there, headers: passed_on(headers), verify })
    }
}

/// Headers that concern only the client and us, or us and the other server: never passed on.
const OURS: [&str; 16] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "want-digest",
];

/// `TransferHeaderX: v` is `X: v` for the other server.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("transferheader") else { continue };
        if let Ok(name) = HeaderName::try_from(name)
            && !OURS.contains(&name.as_str())
        {
            let mut value = value.clone();
            value.set_sensitive(true);
            out.append(name, value);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(list: &[(&'static str, &str)]) -> Result<Plan, NoPlan> {
        let headers =
            list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        Plan::of(&headers, Some("here:1"))
    }

    #[test]
    fn a_source_is_pulled_and_a_destination_elsewhere_is_pushed() {
        let pull = plan(&[("source", "https://there/a")]).unwrap();
        assert_eq!((pull.direction, pull.verify), (Direction::Pull, Verify::WherePossible));
        let push =
            plan(&[("destination", "davs://there/a"), ("requirechecksumverification", "false")]).unwrap();
        assert_eq!((push.direction, push.verify), (Direction::Push, Verify::Never));
        assert_eq!(plan(&[("destination", "https://here:1/a")]), Err(NoPlan::Here));
        assert_eq!(plan(&[("destination", "/a")]), Err(NoPlan::Here));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for list in [
            &[("source", "https://t/a"), ("destination", "https://t/b")][..],
            &[],
            &[("source", "https://t/a"), ("credential", "gridsite")],
            &[("source", "https://me:pw@t/a")],
            &[("source", "https://t/a"), ("source", "https://t/b")],
            &[("source", "https://t/a"), ("requirechecksumverification", "perhaps")],
        ] {
            assert!(matches!(plan(list), Err(NoPlan::Bad(_))), "{list:?}");
        }
        for source in ["gsiftp://t/a", "root://t//a", "file:///etc/passwd", "/a", "https://:8080/a"] {
            assert!(
                matches!(plan(&[("source", source)]), Err(NoPlan::Scheme(_) | NoPlan::Bad(_))),
                "{source}"
            );
        }
        assert!(plan(&[("source", "https://t/a"), ("credential", "none")]).is_ok());
    }

    #[test]
    fn transfer_headers_are_passed_on_but_for_those_that_frame() {
        let plan = plan(&[
            ("source", "https://t/a"),
            ("authorization", "Bearer ours"),
            ("transferheaderauthorization", "Bearer theirs"),
            ("transferheadercontent-length", "5"),
            ("transferheaderhost", "evil"),
            ("transferheaderx-a", "1"),
            ("transferheader", "nothing"),
        ])
        .unwrap();
        let names: Vec<_> = plan.headers.keys().map(|name| name.as_str().to_string()).collect();
        assert_eq!((names.len(), plan.headers["x-a"].as_bytes()), (2, &b"1"[..]));
        assert_eq!(plan.headers["authorization"], "Bearer theirs");
        assert!(!format!("{plan:?}").contains("theirs"), "credentials are not shown");
    }
}
