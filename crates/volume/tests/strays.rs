//! What is stored of volumes that are not there.

use crate::rig::{Rig, engine};
use leeward_fs::{NodeId, VIEW_FIRST};
use leeward_meta::{Batch, Kv, Value};
use leeward_volume::format::inode::{BinRecord, Stats};
use leeward_volume::format::keys::{self, EpochPair, Key};

/// A volume that there is not.
const GONE: u32 = 5;

#[test]
fn fsck_finds_what_is_stored_of_a_volume_that_is_not_there() {
    let node = NodeId::new(GONE, 2);
    let pair = EpochPair { death: 3, birth: 1 };
    let empty = || Value::from(&b""[..]);
    let bin = BinRecord { uid: 0, name: (*b"x").into() };
    let cases: [(&str, Key, Value); 6] = [
        ("a name", keys::dentry(node, b"name"), empty()),
        ("history", keys::version(&keys::inode(node), 3), empty()),
        ("deadlist", keys::dead_record(&keys::inode(node), pair), empty()),
        ("bin", keys::binned(node, 1_000_000_000_000_000_000), bin.encode()),
        ("unfolded", keys::unfolded(node), Stats::default().encode()),
        ("attribute", keys::xattr(NodeId::new(VIEW_FIRST - 1, 7), b"user.x"), empty()),
    ];
    for (what, key, value) in cases {
        let mut rig = Rig::new();
        rig.file("f", b"content");
        rig.clean();
        assert_eq!(rig.findings(), [], "{what}: before");
        rig.cell.close().expect("a clean close");
        let kv = engine(&rig.env, &rig.disk);
        kv.commit(&Batch { writes: vec![(key, Some(value))], inline_data: Vec::new() }).expect("changed");
        drop(kv);
        rig.start();
        let found = rig.findings();
        assert!(found.iter().any(|f| f.kind == "no-volume"), "{what}: {found:?}");
    }
}
