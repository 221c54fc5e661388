//! What strangers send, in all shapes: parsers end without a panic, and what they let through is harmless.
//! `PROPTEST_CASES=100000 cargo test -p leeward-auth --test parsers` looks for longer.
#![allow(missing_docs)]

mod rig;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leeward_auth::{Activity, CellPath, Macaroon, Scopes, Version};
use proptest::prelude::*;
use rig::{Rig, path};

/// Pieces that mean something to one of the parsers, and some that mean nothing.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "/", "//", ".", "..", "%2e", "%2F", "%", "%00", "%zz", ":", " ", "storage.read", "storage.read:/",
            "storage.modify:/a", "storage.create:", "compute.create", "a", "b", "é", "\0", "\u{202e}",
        ]).prop_map(String::from),
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_path_that_is_read_has_nothing_to_resolve(text in soup()) {
        for read in [CellPath::parse(&text), CellPath::from_encoded(&text)].into_iter().flatten() {
            prop_assert!(read.components().all(|c| !matches!(c, b"" | b"." | b"..") && !c.contains(&0) && !c.contains(&b'/')));
            let again = CellPath::parse(read.as_bytes()).expect("normal");
            prop_assert_eq!(again.as_bytes(), read.as_bytes());
            prop_assert!(CellPath::root().contains(&read) && read.contains(&read));
        }
    }

    #[test]
    fn scopes_allow_nothing_outside_the_base_path(text in soup(), at in soup()) {
        let Ok(scopes) = Scopes::parse(&text) else { return Ok(()) };
        let grants = scopes.grants(&[path("/vo")]);
        let Ok(at) = CellPath::parse(format!("/{at}")) else { return Ok(()) };
        for activity in Activity::ALL {
            if grants.allow(activity, &at) && !path("/vo").contains(&at) {
                prop_assert!(activity == Activity::Stat && at.is_root(), "{} allows {:?} of {}", text, activity, at);
            }
        }
    }

    #[test]
    fn a_macaroon_of_any_bytes_is_read_as_it_is_or_not_at_all(bytes in prop::collection::vec(any::<u8>(), 0..300), version in 0u8..3) {
        // most bytes are none: begin as one does
        let begin: &[u8] = match version { 0 => b"", 1 => b"0010location x\n", _ => &[2, 1, 1, b'x', 2, 1, b'i', 0] };
        let text = URL_SAFE_NO_PAD.encode([begin, &bytes].concat());
        if let Ok(read) = Macaroon::from_text(&text) {
            for version in [Version::V1, Version::V2] {
                prop_assert_eq!(&Macaroon::from_text(&read.to_text(version)), &Ok(read.clone()));
            }
        }
    }

    #[test]
    fn a_macaroon_is_written_so_that_it_is_read(identifier in ".{0,80}", caveats in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6)) {
        let macaroon = caveats.into_iter().fold(Macaroon::new("l", &identifier, b"k"), Macaroon::with);
        prop_assert!(macaroon.is_signed_by(b"k") && !macaroon.is_signed_by(b"K"));
        for version in [Version::V1, Version::V2] {
            prop_assert_eq!(&Macaroon::from_text(&macaroon.to_text(version)), &Ok(macaroon.clone()));
        }
    }

    #[test]
    fn a_changed_token_of_an_issuer_is_none(at in 0usize..2000, bit in 0u8..8) {
        let rig = Rig::new();
        let good = rig.minter.sign(&rig.claims("storage.read:/"));
        let mut bytes = good.into_bytes();
        let at = at % bytes.len();
        let last_of_part = bytes.get(at + 1).is_none_or(|next| *next == b'.');
        bytes[at] ^= 1 << bit;
        if let Ok(changed) = String::from_utf8(bytes) && !last_of_part {
            prop_assert!(rig.bearer(&changed).is_err());
        }
    }

    #[test]
    fn tokens_of_soup_are_refused(header in soup(), claims in soup(), rest in soup()) {
        let rig = Rig::new();
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for token in [
            format!("{header}.{claims}.{rest}"),
            format!("{}.{}.{}", encode(&header), encode(&claims), encode(&rest)),
            format!("{}.{}.{}", encode(r#"{"alg":"RS256"}"#), encode(&claims), encode(&rest)),
        ] {
            prop_assert!(rig.bearer(&token).is_err());
        }
    }
}
