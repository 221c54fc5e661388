//! Certificates of clients: whose they are, and who of those is let in.

use crate::rig::Rig;
use leeward_auth::Grants;
use leeward_env::Wait;

#[test]
fn a_subject_acts_as_its_user() {
    let rig = Rig::new();
    let ask = |subject: &[&str]| rig.authority.certificate(subject, rig.now() + 100, Wait::Allowed);
    let verdict = ask(&["CN=bob,O=Example,C=DE", "/C=DE/O=Example/CN=bob"]).expect("good");
    assert_eq!((&*verdict.who.name, verdict.who.uid, &verdict.grants), ("bob", 3000, &Grants::All));
    assert_eq!(verdict.until_secs, Some(rig.now() + 100));
    assert_eq!(verdict.via.to_string(), "certificate:CN=bob,O=Example,C=DE");
    let by_grid = ask(&["CN=alice,O=Example,C=DE", "/C=DE/O=Example/CN=alice"]);
    assert_eq!(by_grid.map(|verdict| verdict.who.uid), Ok(1000));
    for (subject, why) in [
        ("CN=mallory", "no user has the certificate of CN=mallory"),
        ("CN=bob", "no user"),
        ("cn=bob,O=Example,C=DE", "no user"),
        ("CN=carol", "disabled"),
        ("CN=root", "root"),
    ] {
        let refusal = ask(&[subject]).expect_err(subject);
        assert_eq!(
            (refusal.status(), refusal.to_string().contains(why)),
            (403, true),
            "{subject}: {refusal}"
        );
    }
    let late = rig.authority.certificate(&["CN=bob,O=Example,C=DE"], rig.now(), Wait::Allowed);
    assert_eq!(late.expect_err("a connection lasts longer").kind(), "expired");
}
