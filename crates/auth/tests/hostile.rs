//! Fuzz targets: credentials as strangers make them up, and as those change them who have one. What
//! is accepted never allows more than what the cell, or an issuer, signed. `docs/TESTING.md` says
//! how they are run for longer.
#![allow(missing_docs)]

mod rig;
#[path = "../../door/tests/soup/mod.rs"]
mod soup;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bolero::{check, produce};
use leeward_auth::{
    ACTIVITIES, Activity, CellPath, Grants, Identity, Macaroon, Rights, Rule, Scopes, Signer, TokenRequest,
    Verdict, Version, Via,
};
use rig::{Rig, SIGNING, path};
use serde_json::json;
use soup::{soup, text};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

const PATHS: &str = "\
    /|//|.|..|%2e|%2F|%|%00|%zz|:| |storage.read|storage.read:/|storage.modify:/a|storage.create:|\
    storage.create:/a/b/|compute.create|a|b|vo|/vo/|é|\0|\u{202e}";

#[test]
fn a_path_that_is_read_has_nothing_to_resolve() {
    check!().with_iterations(20_000).with_generator(text(PATHS)).for_each(|text| {
        for read in [CellPath::parse(text), CellPath::from_encoded(text)].into_iter().flatten() {
            let names: Vec<_> = read.components().collect();
            assert!(names.iter().all(|name| !matches!(*name, b"" | b"." | b"..")
                && !name.contains(&0)
                && !name.contains(&b'/')));
            let again = CellPath::parse(read.as_bytes()).expect("normal");
            assert_eq!(again.as_bytes(), read.as_bytes());
            assert!(CellPath::root().contains(&read) && read.contains(&read));
        }
    });
}

#[test]
fn scopes_allow_nothing_outside_the_base_path() {
    check!().with_iterations(20_000).with_generator((text(PATHS), text(PATHS))).for_each(|(text, at)| {
        let Ok(scopes) = Scopes::parse(text) else { return };
        let grants = scopes.grants(&[path("/vo")]);
        let Ok(at) = CellPath::parse(format!("/{at}")) else { return };
        for activity in Activity::ALL {
            if grants.allow(activity, &at) && !path("/vo").contains(&at) {
                assert!(activity == Activity::Stat && at.is_root(), "{text} allows {activity:?} of {at}");
            }
        }
    });
}

#[test]
fn a_macaroon_is_read_as_it_is_or_not_at_all() {
    check!().with_iterations(10_000).with_type::<(u8, Vec<u8>)>().for_each(|(version, bytes)| {
        // most bytes are none: begin as one does
        let begin: &[u8] = match version % 3 {
            0 => b"",
            1 => b"0010location x\n",
            _ => &[2, 1, 1, b'x', 2, 1, b'i', 0],
        };
        let text = URL_SAFE_NO_PAD.encode([begin, bytes].concat());
        if let Ok(read) = Macaroon::from_text(&text) {
            for version in [Version::V1, Version::V2] {
                assert_eq!(Macaroon::from_text(&read.to_text(version)).as_ref(), Ok(&read));
            }
        }
    });
}

#[test]
fn a_macaroon_is_written_so_that_it_is_read() {
    check!().with_iterations(2000).with_type::<(String, Vec<Vec<u8>>)>().for_each(|(identifier, caveats)| {
        let plain = Macaroon::new("l", identifier, b"k");
        let macaroon = caveats.iter().cloned().fold(plain, Macaroon::with);
        assert!(macaroon.is_signed_by(b"k") && !macaroon.is_signed_by(b"K"));
        for version in [Version::V1, Version::V2] {
            assert_eq!(Macaroon::from_text(&macaroon.to_text(version)).as_ref(), Ok(&macaroon));
        }
    });
}

/// A token of bob for everything, for an hour.
fn token(rig: &Rig) -> Macaroon {
    let wish = TokenRequest { path: None, activities: None, until_secs: rig.now() + 3600 };
    let signer = Signer { number: 1, secret: &SIGNING, generation: 0, user: "bob" };
    Macaroon::from_text(&signer.mint(1, "here", &wish).expect("a token")).expect("a macaroon")
}

fn everything() -> Vec<CellPath> {
    let names = ["a", "b", "ab", "a b"];
    let mut paths = vec![CellPath::root()];
    for depth in 0..3 {
        let above = paths.iter().filter(|p| p.components().count() == depth && (p.is_dir() || depth == 0));
        let above: Vec<CellPath> = above.cloned().collect();
        for (dir, name) in above.iter().flat_map(|dir| names.iter().map(move |name| (dir, name))) {
            paths.push(dir.join(&path(&format!("/{name}"))));
            paths.push(dir.join(&path(&format!("/{name}/"))));
        }
    }
    paths
}

/// Nothing is allowed by `inner` that `outer` does not.
fn assert_within(inner: &Verdict, outer: &Verdict, paths: &[CellPath]) {
    for (at, activity) in paths.iter().flat_map(|at| Activity::ALL.map(|activity| (at, activity))) {
        assert!(!inner.allows(activity, at) || outer.allows(activity, at), "{activity:?} of {at}");
    }
    let (inner, outer) = (inner.until_secs.unwrap_or(i64::MAX), outer.until_secs.unwrap_or(i64::MAX));
    assert!(inner <= outer, "{inner} is later than {outer}");
}

const CAVEATS: &str = "\
    path:|/a|/b|/ab|/a b|/|//|/..|activity:|DOWNLOAD|LIST|UPLOAD|DELETE|MANAGE|READ_METADATA|\
    UPDATE_METADATA|,| |before:|2001-09-10T00:00:00Z|2001-09-09T01:50:00Z|2040-01-01T00:00:00Z|.5|\
    id:|x|é";

#[test]
fn a_caveat_never_widens() {
    let (rig, paths) = (Rig::new(), everything());
    let rig = AssertUnwindSafe(&rig);
    let caveats = (text(CAVEATS), text(CAVEATS), text(CAVEATS));
    check!().with_iterations(3000).with_generator(caveats).for_each(|(one, two, three)| {
        let mut macaroon = token(&rig);
        let mut outer = rig.bearer(&macaroon.to_text(Version::V1)).expect("good");
        for caveat in [one, two, three].into_iter().filter(|caveat| !caveat.is_empty()) {
            macaroon = macaroon.with(caveat.as_str());
            let Ok(inner) = rig.bearer(&macaroon.to_text(Version::V2)) else { return };
            assert_within(&inner, &outer, &paths);
            assert_eq!(inner.who, outer.who);
            outer = inner;
        }
    });
}

/// What a verdict is limited to, out of numbers.
fn some_grants(rules: &[(u16, u8, u8)]) -> Grants {
    let names = ["", "/a", "/b", "/ab", "/a b", "/a/b", "/a/", "/b/a/b"];
    let rule = |(rights, at, parents): &(u16, u8, u8)| {
        let rights: Vec<_> = (0..9).filter(|n| rights & 1 << n != 0).map(|n| Activity::ALL[n]).collect();
        let at = path(&format!("/{}", names[usize::from(*at) % names.len()].trim_start_matches('/')));
        Rule { parents_from: usize::from(parents % 4), ..Rule::new(at, Rights::of(&rights)) }
    };
    if rules.is_empty() { Grants::All } else { Grants::Rules(rules.iter().map(rule).collect()) }
}

#[test]
fn a_token_that_is_asked_for_never_widens() {
    let (rig, paths) = (Rig::new(), everything());
    let rig = AssertUnwindSafe(&rig);
    let rules = produce::<Vec<(u16, u8, u8)>>().with().len(0usize..4);
    let input = (rules, produce::<u8>(), text(CAVEATS), text(CAVEATS));
    check!().with_iterations(2000).with_generator(input).for_each(|(rules, at, one, two)| {
        let who = Identity { name: "bob".into(), uid: 3000, gids: Arc::new([3000]) };
        let via = Via::Key("KEYOFBOB".into());
        let verdict = Verdict { who, grants: some_grants(rules), until_secs: Some(rig.now() + 100), via };
        let caveats: Vec<&String> = [one, two].into_iter().filter(|caveat| !caveat.is_empty()).collect();
        let body = json!({ "caveats": caveats }).to_string();
        let at = &paths[usize::from(*at) % paths.len()];
        if let Ok(minted) = rig.authority.macaroon(&verdict, at, body.as_bytes(), "x") {
            assert_within(&rig.bearer(&minted.macaroon).expect("good"), &verdict, &paths);
        }
    });
}

/// A token whose holder took bytes out, put some in and changed some is none, or says what it said;
/// where it is for nobody signs.
#[test]
fn a_changed_macaroon_is_none() {
    let (rig, paths) = (Rig::new(), everything());
    let good = token(&rig).with("path:/a").with(format!("activity:{},{}", ACTIVITIES[2], ACTIVITIES[3]));
    let verdict = rig.bearer(&good.to_text(Version::V1)).expect("good");
    let rig = AssertUnwindSafe(&rig);
    check!().with_iterations(5000).with_type::<(bool, Vec<(u16, u8, u8)>)>().for_each(|(first, changes)| {
        let text = good.to_text(if *first { Version::V1 } else { Version::V2 });
        let mut bytes = URL_SAFE_NO_PAD.decode(text).expect("base64");
        for (at, how, value) in changes.iter().take(8) {
            let at = usize::from(*at) % bytes.len().max(1);
            match how % 4 {
                0 if at < bytes.len() => bytes[at] = *value,
                1 if at < bytes.len() => _ = bytes.remove(at),
                2 => bytes.insert(at, *value),
                _ => bytes.truncate(at.max(8)),
            }
        }
        let changed = URL_SAFE_NO_PAD.encode(&bytes);
        let Ok(accepted) = rig.bearer(&changed) else { return };
        let mut read = Macaroon::from_text(&changed).expect("accepted");
        read.location.clone_from(&good.location);
        assert_eq!(read, good);
        assert_within(&accepted, &verdict, &paths);
    });
}

#[test]
fn a_changed_token_of_an_issuer_is_none() {
    let rig = Rig::new();
    let good = rig.minter.sign(&rig.claims("storage.read:/"));
    let rig = AssertUnwindSafe(&rig);
    check!().with_iterations(1000).with_type::<(u16, u8)>().for_each(|(at, bit)| {
        let mut bytes = good.clone().into_bytes();
        let at = usize::from(*at) % bytes.len();
        // bits behind the last byte of base64 carry nothing
        let last_of_part = bytes.get(at + 1).is_none_or(|next| *next == b'.');
        bytes[at] ^= 1 << (bit % 8);
        if let Ok(changed) = String::from_utf8(bytes)
            && !last_of_part
        {
            assert!(rig.bearer(&changed).is_err(), "{changed}");
        }
    });
}

const CLAIMS: &str = "\
    {|}|\"alg\":|\"RS256\"|\"ES256\"|\"none\"|\"HS256\"|\"kid\":|\"rsa1\"|\"ec1\"|\"crit\":[]|,|\
    \"iss\":\"https://issuer.example.org/\"|\"sub\":\"a\"|\"aud\":\"any\"|\"exp\":9999999999|\
    \"scope\":\"storage.read:/\"|\"wlcg.ver\":\"1.0\"|null|[|]|-1|1e999|\"|é| ";

#[test]
fn what_nobody_signed_is_no_token() {
    let rig = Rig::new();
    let rig = AssertUnwindSafe(&rig);
    check!().with_iterations(2000).with_generator((text(CLAIMS), text(CLAIMS), soup(CLAIMS))).for_each(
        |(header, claims, rest)| {
            let encode = |text: &[u8]| URL_SAFE_NO_PAD.encode(text);
            let ours = encode(br#"{"alg":"RS256","kid":"rsa1"}"#);
            let rest = encode(rest);
            for token in [
                format!("{header}.{claims}.{rest}"),
                format!("{}.{}.{rest}", encode(header.as_bytes()), encode(claims.as_bytes())),
                format!("{ours}.{}.{rest}", encode(claims.as_bytes())),
                format!("{ours}.{}.", encode(claims.as_bytes())),
                header.clone(),
                rest,
            ] {
                assert!(rig.bearer(&token).is_err(), "{token}");
            }
        },
    );
}
