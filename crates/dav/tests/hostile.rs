//! Fuzz targets: what strangers send to the HTTP door, in all shapes. `docs/TESTING.md` says how
//! they are run for longer.
#![allow(missing_docs)]

mod rig;
#[path = "../../door/tests/soup/mod.rs"]
mod soup;

use bolero::{check, produce};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use leeward_dav::head::condition::{self, Current, Verdict};
use leeward_dav::head::ifs::{Condition, Group, IfHeader, What};
use leeward_dav::head::{self, Depth, Destination, digest, range};
use leeward_dav::path::DavPath;
use leeward_dav::sums::{self, Algorithm, Running};
use leeward_dav::third_party_copy::plan::Plan;
use leeward_dav::xml::answer::{self, Property};
use leeward_dav::xml::request::{Find, LockInfo, Patch};
use leeward_dav::xml::tree::{Element, Node};
use leeward_dav::{date, marker};
use leeward_fs::{Fs, Make, Op, Reply};
use rig::{BOB, Rig};
use soup::{one, soup, text, unescaped};
use std::time::Duration;

const PATHS: &str = "\
    /|//|.|..|/..|/../|%2e|%2E%2e|%2f|%2F..|%00|%|%2|%zz|%25|%252e|a|b|home|/home/|atlas|%61tlas|\
    %C3%A9|%ff|é|+|%20| |?|#|&|;|\\|~|\"|<|\
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn a_path_is_what_its_escapes_say_or_none() {
    check!().with_iterations(20_000).with_generator(text(PATHS)).for_each(|raw| {
        let raw = format!("/{raw}");
        let Ok(path) = DavPath::parse(&raw) else { return };
        let said: Vec<Vec<u8>> = raw.split('/').filter(|part| !part.is_empty()).map(unescaped).collect();
        assert_eq!(path.names().iter().map(|name| name.to_vec()).collect::<Vec<_>>(), said);
        for name in path.names() {
            assert!(!matches!(&**name, b"" | b"." | b"..") && name.len() <= 255);
            assert!(!name.contains(&b'/') && !name.contains(&0));
        }
        let encoded = path.encoded();
        assert!(
            encoded.is_ascii() && !encoded.contains(['"', '<', '>', '&', '\'', ' ', '?', '#']),
            "{encoded}"
        );
        let again = DavPath::parse(&encoded).expect("its own");
        assert!(again.is_same(&path) && again.encoded() == encoded);
        // whoever judges a credential and whoever opens the file mean the same
        let judged: Vec<Vec<u8>> = path.cell().components().map(<[u8]>::to_vec).collect();
        assert_eq!(judged, said);
        if let Ok(opened) = path.below(0) {
            assert_eq!(opened.names().map(<[u8]>::to_vec).collect::<Vec<_>>(), said);
        }
    });
}

/// Headers of these values, where the listener would let them pass.
fn headers(list: &[(&str, &[u8])]) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(HeaderName::try_from(*name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(map)
}

const URLS: &str = "\
    http://|https://|davs://|dav:|HTTP://|host|HOST|:80|:443|:8080|:|other|@|user:pw@|[::1]|\
    127.0.0.1|/|//|a|..|%2e%2e|%2f|%|?|#| |\\|\t|é";

#[test]
fn a_destination_is_here_only_with_the_name_that_was_asked() {
    check!().with_iterations(20_000).with_generator(soup(URLS)).for_each(|value| {
        let Some(headers) = headers(&[("destination", value)]) else { return };
        match head::destination(&headers, Some("host:8080")) {
            Ok(Some(Destination::Here(path))) => {
                let text = String::from_utf8_lossy(value).trim().to_ascii_lowercase();
                let by_path = text.starts_with('/');
                assert!(by_path || text.contains("://host:8080"), "{text}");
                assert!(path.names().iter().all(|name| &**name != b".." && !name.contains(&b'/')));
            }
            Ok(Some(Destination::There(uri))) => {
                let authority = uri.authority().expect("a host").as_str();
                assert!(!authority.contains('@') && !authority.eq_ignore_ascii_case("host:8080"), "{uri}");
            }
            Ok(None) => panic!("it is there"),
            Err(_) => {}
        }
    });
}

const TRANSFERS: &str = "\
    source|destination|credential|requirechecksumverification|transferheaderauthorization|\
    transferheaderhost|transferheadercontent-length|transferheadertransfer-encoding|transferheader|\
    transferheadertransferheaderhost|authorization|transferheaderx|transferheaderexpect|overwrite";

#[test]
fn what_is_passed_on_to_another_server_frames_nothing() {
    let header = || (one(TRANSFERS), soup(URLS));
    check!().with_iterations(10_000).with_generator((header(), header(), header())).for_each(|(a, b, c)| {
        let Some(map) = headers(&[(a.0, &a.1), (b.0, &b.1), (c.0, &c.1)]) else { return };
        let Ok(plan) = Plan::of(&map, Some("host")) else { return };
        assert!(["https", "davs", "http", "dav"].contains(&plan.there.scheme_str().unwrap_or_default()));
        assert!(!plan.there.host().unwrap_or_default().is_empty(), "{}", plan.there);
        for name in ["host", "content-length", "transfer-encoding", "connection", "expect", "te", "upgrade"] {
            assert!(!plan.headers.contains_key(name), "{name}");
        }
        let said = [a, b, c].into_iter().filter(|header| header.0.starts_with("transferheader")).count();
        assert!(plan.headers.len() <= said);
    });
}

const IFS: &str = "\
    (|)|<|>|[|]|Not |not|NOT<|<urn:uuid:a>|(<urn:a>)|([\"x\"])|</a>|<http://host/b/>|<DAV:no-lock>|\
    \"|W/\"x\"| |é|..|%2f";

fn written(ifs: &IfHeader) -> String {
    let condition = |c: &Condition| {
        let not = if c.not { "Not " } else { "" };
        match &c.what {
            What::Token(token) => format!("{not}<{token}>"),
            What::Tag(tag) => format!("{not}[{tag}]"),
        }
    };
    let group = |g: &Group| {
        let of = g.of.as_ref().map_or(String::new(), |path| format!("<{}>", path.encoded()));
        format!("{of}({})", g.conditions.iter().map(condition).collect::<Vec<_>>().join(" "))
    };
    ifs.0.iter().map(group).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_if_means_what_it_says() {
    check!().with_iterations(20_000).with_generator(text(IFS)).for_each(|text| {
        let Ok(ifs) = IfHeader::parse(text) else { return };
        assert!(ifs.0.iter().all(|group| !group.conditions.is_empty()));
        assert!(
            ifs.tokens().all(|token| text.contains(&format!("<{token}>"))),
            "nobody knows a token that he does not say"
        );
        assert_eq!(IfHeader::parse(&written(&ifs)).as_ref(), Ok(&ifs));
        let plain = ifs.0.iter().any(|group| group.conditions.iter().all(|condition| condition.not));
        assert_eq!(ifs.hold(|_, _| false), plain);
    });
}

const RANGES: &str = "\
    bytes|=|bytes=|0|1|9|-|,|0-0|-1|5-|99|18446744073709551615|18446744073709551616| |Bytes|lines|+";

#[test]
fn pieces_are_in_the_file_and_not_more_than_twice() {
    check!().with_iterations(20_000).with_generator((text(RANGES), produce::<u64>())).for_each(
        |(text, size)| {
            for size in [*size, size % 100] {
                let range::Wanted::Pieces(pieces) = range::wanted(text, size) else { continue };
                assert!(!pieces.is_empty() && pieces.iter().all(|p| p.start < p.end && p.end <= size));
                assert!(
                    pieces.iter().map(|p| u128::from(p.end - p.start)).sum::<u128>() <= 2 * u128::from(size)
                );
                let said = range::content_range(&pieces[0], size);
                let first = said.trim_start_matches("bytes ").split('/').next().unwrap_or_default();
                assert_eq!(
                    range::wanted(&format!("bytes={first}"), size),
                    range::Wanted::Pieces(vec![pieces[0].clone()])
                );
            }
        },
    );
}

const DIGESTS: &str = "\
    adler32|md5|sha-256|sha256|ADLER|crc32c|=|:|,|;q=|0|0.5|-1|nan|inf|11e60398|\
    nGdyhoZqrTj46bZg9UEYFA==|:EeYDmA==:|398| |é|x";

#[test]
fn a_checksum_holds_only_when_it_is_right() {
    let content = produce::<Vec<u8>>();
    check!().with_iterations(10_000).with_generator((soup(DIGESTS), content)).for_each(|(value, content)| {
        let mut running = Running::default();
        running.add(content);
        let known = running.end();
        let names = [
            "digest",
            "repr-digest",
            "content-digest",
            "content-md5",
            "oc-checksum",
            "want-digest",
            "want-repr-digest",
        ];
        let Some(map) = headers(&names.map(|name| (name, &value[..]))) else { return };
        for claim in digest::claims(&map) {
            let is = sums::value(&known, claim.algorithm).expect("all are known");
            assert_eq!(claim.holds(&known), is == claim.value);
        }
        let Some(wanted) = digest::Wanted::of(&map) else { return };
        assert!(wanted.algorithms().len() <= Algorithm::ALL.len(), "each once");
        let (name, said) = wanted.answer(&known).expect("all are known");
        let claims = digest::claims(&headers(&[(name, said.as_bytes())]).expect("a header"));
        assert!(claims.len() == wanted.algorithms().len() && claims.iter().all(|claim| claim.holds(&known)));
    });
}

const VALUES: &str = "\
    0|1|infinity|Infinity|T|F|Second-|Infinite|, |4100000000|99999999999999999999|<|>|urn:uuid:a|*|\
    \"a-1\"|W/\"a-1\"|,|Sun, 06 Nov 1994 08:49:37 GMT|Sunday, 06-Nov-94 08:49:37 GMT|\
    Sun Nov  6 08:49:37 1994|Nov|9999|31 Feb| |é|-";

#[test]
fn heads_are_read_or_refused() {
    let names = [
        "depth",
        "overwrite",
        "timeout",
        "lock-token",
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
        "if-range",
    ];
    check!().with_iterations(10_000).with_generator((soup(VALUES), produce::<u16>())).for_each(
        |(value, which)| {
            let list: Vec<(&str, &[u8])> = names
                .iter()
                .enumerate()
                .filter(|(n, _)| which & 1 << n != 0)
                .map(|(_, name)| (*name, &value[..]))
                .collect();
            let Some(map) = headers(&list) else { return };
            let said = String::from_utf8_lossy(value).trim().to_ascii_lowercase();
            if head::depth(&map, Depth::Zero) == Ok(Depth::Infinity) {
                assert_eq!(said, "infinity", "whole trees only for who says so");
            }
            if map.contains_key("overwrite") && head::overwrite(&map) == Ok(true) {
                assert_eq!(said, "t");
            }
            let most = Duration::from_secs(600);
            assert!((Duration::from_secs(1)..=most).contains(&head::timeout(&map, most)));
            if let Ok(Some(token)) = head::lock_token(&map) {
                let token = token.to_ascii_lowercase();
                assert!(said == token || said == format!("<{token}>"), "{said}");
            }
            if let Some(secs) = date::parse(&said) {
                assert_eq!(date::parse(&date::http(secs)), Some(secs));
            }
            let current = Current { etag: "\"a-1\"", modified: 784_111_777 };
            for reads in [true, false] {
                for there in [None, Some(current)] {
                    let verdict = condition::check(&map, reads, there);
                    let asks_for_it =
                        map.contains_key("if-match") && !said.contains("\"a-1\"") && !said.contains('*');
                    assert!(!asks_for_it || verdict == Ok(Verdict::Failed), "{verdict:?}");
                    assert!(reads || verdict != Ok(Verdict::NotModified));
                }
            }
            if map.contains_key("if-range") && condition::range_counts(&map, current) == Ok(true) {
                assert!(
                    said == "\"a-1\""
                        || date::parse(String::from_utf8_lossy(value).trim()) == Some(current.modified),
                    "{said}"
                );
            }
        },
    );
}

const XML: &str = "\
    <propfind xmlns=\"DAV:\">|</propfind>|<prop>|</prop>|<propname/>|<allprop/>|<include>|\
    </include>|<D:prop xmlns:D=\"DAV:\">|</D:prop>|<propertyupdate xmlns=\"DAV:\">|\
    </propertyupdate>|<set>|</set>|<remove>|</remove>|<lockinfo xmlns=\"DAV:\">|</lockinfo>|\
    <lockscope><exclusive/></lockscope>|<locktype><write/></locktype>|<owner>|</owner>|<href>|\
    </href>|<getetag/>|<x:y xmlns:x=\"u:v\" x:a=\"1\">|</x:y>|<a xmlns=\"\">|</a>|<b a='&lt;'/>| xmlns:q=\"|\
    \"|'|>|/>|<|</|&amp;|&#65;|&#0;|&#xD;|&e;|<![CDATA[|]]>|<!--|-->|<?x y?>|\
    <?xml version=\"1.0\"?>|<!DOCTYPE a>|é|a| |\r\n|\t|=|:";

fn bounded(element: &Element, depth: usize) -> usize {
    assert!(depth < 64 && element.attributes.len() <= 64 && element.name.local.len() <= 255);
    let inner = element.content.iter().map(|node| match node {
        Node::Element(element) => bounded(element, depth + 1),
        Node::Text(text) => {
            assert!(text.chars().all(|c| c >= ' ' || matches!(c, '\t' | '\n' | '\r')), "{text:?}");
            0
        }
    });
    1 + inner.sum::<usize>()
}

#[test]
fn xml_that_is_taken_stands_for_itself() {
    check!().with_iterations(20_000).with_generator(soup(XML)).for_each(|body| {
        if let Ok(root) = Element::parse(body) {
            assert!(bounded(&root, 0) <= body.len());
            let outer = root.outer();
            assert_eq!(Element::parse(outer.as_bytes()).as_ref(), Ok(&root), "{outer}");
        }
        let _ = (Find::parse(body), LockInfo::parse(body));
        // values that clients set are said again to others
        for patch in Patch::parse(body).unwrap_or_default() {
            let (name, value) = match patch {
                Patch::Set(name, value) => (name, Some(value)),
                Patch::Remove(name) => (name, None),
            };
            let mut out = answer::BEGIN.to_string();
            answer::response(
                &mut out,
                "/a",
                &[(http::StatusCode::OK, vec![Property { name: name.clone(), value }])],
            );
            out.push_str(answer::END);
            let root = Element::parse(out.as_bytes()).expect(&out);
            let response = root.elements().next().expect("a response");
            let prop = response.child("propstat").and_then(|stat| stat.child("prop")).expect("properties");
            assert_eq!(prop.elements().map(|e| &e.name).collect::<Vec<_>>(), [&name], "{out}");
            assert_eq!((root.elements().count(), response.elements().count()), (1, 2), "{out}");
        }
    });
}

#[test]
fn a_failure_is_told_in_one_line() {
    check!()
        .with_iterations(2000)
        .with_generator(text("\n|\r|success: Created|End|\u{85}|\u{2028}|a"))
        .for_each(|why| {
            let line = marker::failure(why);
            assert!(line.ends_with('\n') && line.lines().count() == 1 && line.starts_with("failure: "));
        });
}

const METHODS: &str = "\
    GET|HEAD|PUT|POST|DELETE|MKCOL|COPY|MOVE|PROPFIND|PROPPATCH|LOCK|UNLOCK|OPTIONS|TRACE|PATCH";
const NAMES: &str = "\
    depth|overwrite|timeout|lock-token|if|if-match|if-none-match|range|content-range|want-digest|\
    digest|destination|authorization|content-type|accept|x-http-method-override|content-length|\
    x-oc-mtime|oc-checksum|content-encoding|expect";
const ANY: &str = "\
    /home/|/atlas/|/atlas/secret|http://here/|a|b|..|%2e%2e|/|0|1|infinity|T|F|bytes=|-|*|\"x\"|\
    (<urn:a>)|(Not <urn:a>)|adler32=|md5|Bearer |Basic |application/macaroon-request|\
    application/json|text/html|1234567890|<|>|é";

/// Whole requests of bob, on a real cell: none is answered "we failed", none shows or changes what
/// is not his.
#[test]
fn no_request_reaches_what_belongs_to_somebody_else() {
    let rig = Rig::new();
    secret(&rig);
    let header = || (one(NAMES), soup(ANY));
    let input = (one(METHODS), text(PATHS), (header(), header()), soup(XML));
    let rig = std::panic::AssertUnwindSafe(&rig);
    check!().with_iterations(400).with_generator(input).for_each(|(method, path, (a, b), body)| {
        let Some(map) = headers(&[(a.0, &a.1), (b.0, &b.1)]) else { return };
        let Ok(uri) = format!("/{path}").parse::<http::Uri>() else { return };
        let body =
            Full::new(bytes::Bytes::copy_from_slice(body)).map_err(|never| match never {}).boxed_unsync();
        let mut request =
            Request::builder().method(*method).uri(uri).header("host", "here").body(body).expect("a request");
        request.headers_mut().extend(map);
        if !request.headers().contains_key("authorization") {
            request.headers_mut().insert("authorization", HeaderValue::from_static(BOB));
        }
        let got = rig.send(request);
        assert_ne!(got.status, 500, "{method} {path}: {}", got.text());
        assert!(!got.text().contains("of atlas alone"), "{method} {path}");
        assert_eq!(
            (rig.names("/"), rig.names("/atlas")),
            (vec!["atlas".into(), "home".into()], vec!["secret".into()])
        );
    });
}

/// A file that only its owner may read, in a directory that all may enter.
fn secret(rig: &Rig) {
    let dir = rig.node("/atlas");
    let ctx = leeward_env::Ctx::system();
    let make = Op::Make { dir, name: b"secret", make: Make::File, mode: 0o600, umask: 0 };
    let Ok(Reply::Attr(attr)) = rig.cell.call(&ctx, make) else { panic!("made") };
    let write = Op::Write { node: attr.node, offset: 0, data: b"of atlas alone" };
    rig.cell.call(&ctx, write).expect("written");
}
