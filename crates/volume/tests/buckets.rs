//! What is published at the S3 door.

use crate::rig::Rig;
use leeward_volume::admin;
use leeward_volume::format::buckets::BucketRecord;

fn create(rig: &Rig, name: &str, at: &str) {
    rig.admin(&admin::VolumeCreate { name: name.into(), at: at.into(), uid: 1000, gid: 1000, pool: None });
}

/// Buckets with their paths.
fn buckets(rig: &Rig) -> Vec<(String, String)> {
    rig.admin(&admin::BucketList).buckets.into_iter().map(|b| (b.name, b.path)).collect()
}

fn pair(name: &str, path: &str) -> (String, String) {
    (name.into(), path.into())
}

#[test]
fn a_volume_is_a_bucket_of_its_name() {
    let mut rig = Rig::new();
    create(&rig, "home", "/home");
    create(&rig, "No_Bucket", "/odd");
    create(&rig, "inner", "/home/inner/");
    rig.reopen();
    assert_eq!(buckets(&rig), [pair("home", "/home"), pair("inner", "/home/inner")]);

    rig.admin(&admin::VolumeRename { name: "inner".into(), to: "renamed".into() });
    assert_eq!(buckets(&rig), [pair("home", "/home"), pair("renamed", "/home/inner")]);
    rig.admin(&admin::VolumeRename { name: "renamed".into(), to: "Not_For_S3".into() });
    assert_eq!(buckets(&rig), [pair("home", "/home")]);
    rig.admin(&admin::VolumeRemove { name: "Not_For_S3".into() });
    rig.admin(&admin::VolumeRemove { name: "home".into() });
    rig.reopen();
    assert_eq!(buckets(&rig), []);
}

#[test]
fn what_an_operator_published_stays() {
    let rig = Rig::new();
    create(&rig, "other", "/other");
    rig.admin(&admin::BucketCreate { name: "home".into(), path: "/other".into(), public: false });
    create(&rig, "home", "/home");
    assert_eq!(buckets(&rig), [pair("home", "/other"), pair("other", "/other")]);
    rig.admin(&admin::VolumeRemove { name: "home".into() });
    assert_eq!(buckets(&rig), [pair("home", "/other"), pair("other", "/other")]);
    rig.admin(&admin::BucketRemove { name: "other".into() });
    rig.admin(&admin::VolumeRemove { name: "other".into() });
    assert_eq!(buckets(&rig), [pair("home", "/other")]);
}

#[test]
fn the_record_is_what_the_format_says() {
    let record = BucketRecord { path: "/a".into(), created_secs: 0x0102, public: true, cors: "[]".into() };
    let bytes = [1, 1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 2, b'/', b'a', b'[', b']'];
    assert_eq!(&record.encode()[..], bytes);
    assert_eq!(BucketRecord::decode(&bytes), Ok(record));
    for cut in 0..14 {
        assert!(BucketRecord::decode(&bytes[..cut]).is_err(), "{cut} bytes");
    }
    assert!(BucketRecord::decode(&[2; 16]).is_err(), "of a later version");
}
