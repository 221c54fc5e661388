//! What files there are: the same by the records of a volume and by its directories, each inode
//! once, and nothing that has no name.

use crate::rig::{Rig, noise};
use leeward_fs::{Make, Op, SetAttr, SetTime, Time};
use leeward_volume::admin::{self, Counted, FileCensus, FilesCounted, PropertyChanges};
use std::time::Duration;

const ALICE: u32 = 1000;

impl Rig {
    fn census(&self, path: &str) -> FilesCounted {
        self.admin(&FileCensus { path: path.into() })
    }

    /// A tree with something of each kind, in this directory.
    fn plant(&self, top: &str) {
        let dir = self.dir(&format!("{top}/d"));
        self.dir(&format!("{top}/d/empty"));
        let file = self.file(&format!("{top}/d/a.ROOT"), &noise(5000, 1));
        self.call(Op::Link { node: file, dir, name: b"b.root" }).expect("linked");
        self.file(&format!("{top}/none"), b"");
        let old = self.file(&format!("{top}/old.txt"), &noise(100_000, 2));
        let mtime = Some(SetTime::To(Time { secs: self.now_secs() - 40 * 86_400, nanos: 0 }));
        self.call(Op::SetAttr { node: old, set: SetAttr { uid: Some(ALICE), mtime, ..SetAttr::default() } })
            .expect("set");
        self.make(&format!("{top}/link"), Make::Symlink(b"d")).expect("made");
        self.make(&format!("{top}/pipe"), Make::Fifo).expect("made");
        self.file(&format!("{top}/gone.txt"), &noise(3000, 3));
        self.unlink(&format!("{top}/gone.txt"));
    }
}

fn in_bound(of: &[admin::CountedUpTo], up_to: u64) -> u64 {
    of.iter().find(|of| of.up_to == Some(up_to)).expect("a bound").counted.files
}

#[test]
fn records_and_directories_say_the_same() {
    let rig = Rig::new();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0, pool: None });
    let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
    rig.admin(&admin::VolumeSet { name: "v".into(), set });
    rig.dir("/v/part");
    rig.plant("/v/part");
    let below = admin::VolumeCreate { name: "w".into(), at: "/v/part/w".into(), uid: 0, gid: 0, pool: None };
    rig.admin(&below);
    rig.file("/v/part/w/not-counted", b"x");

    let part = rig.census("/v/part");
    assert_eq!((part.files.files, part.files.bytes), (3, 105_000));
    assert_eq!((part.dirs, part.symlinks, part.special, part.volumes, part.linked), (2, 1, 1, 1, 1));
    assert_eq!(
        (in_bound(&part.by_size, 0), in_bound(&part.by_size, 65_536), in_bound(&part.by_size, 1 << 20)),
        (1, 1, 1)
    );
    assert_eq!(
        (in_bound(&part.by_age, 1), in_bound(&part.by_age, 30), in_bound(&part.by_age, 90)),
        (2, 0, 1)
    );
    let endings: Vec<_> = part.by_ending.iter().map(|of| (of.ending.as_deref(), of.counted.bytes)).collect();
    assert_eq!(endings, [(Some("txt"), 100_000), (Some("root"), 5000), (Some(""), 0)]);
    let owners: Vec<_> = part.by_owner.iter().map(|of| (of.uid, of.counted.files)).collect();
    assert_eq!(owners, [(ALICE, 1), (0, 2)]);

    let whole = rig.census("/v");
    assert_eq!(whole, FilesCounted { dirs: part.dirs + 1, ..part.clone() }, "and the directory itself");
    let sum = |of: &[admin::CountedUpTo]| of.iter().map(|of| of.counted.bytes).sum::<u64>();
    assert_eq!((sum(&whole.by_size), sum(&whole.by_age)), (whole.files.bytes, whole.files.bytes));
    let usage = rig.admin(&admin::UsageShow { path: "/v/part/d".into() });
    assert_eq!(usage.bytes, rig.census("/v/part/d").files.allocated);
}

#[test]
fn many_files_are_all_counted() {
    let rig = Rig::new();
    let dir = rig.dir("/many");
    for n in 0..3000u32 {
        let name = format!("f{n}.e{}", n % 7);
        let op = Op::Make { dir, name: name.as_bytes(), make: Make::File, mode: 0o644, umask: 0 };
        rig.call(op).expect("made");
    }
    rig.env.advance(Duration::from_secs(8 * 86_400));
    for path in ["/", "/many"] {
        let counted = rig.census(path);
        assert_eq!(counted.files, Counted { files: 3000, bytes: 0, allocated: 0 });
        assert_eq!(counted.by_ending.len(), 7);
        assert_eq!(in_bound(&counted.by_age, 30), 3000);
    }
}

#[test]
fn what_is_no_directory_is_refused() {
    let rig = Rig::new();
    rig.file("/f", b"x");
    for (path, word) in [("/f", "no directory"), ("/none", "no such file")] {
        let failure = rig.ask(&FileCensus { path: path.into() }).expect_err(path);
        assert!(failure.message.contains(word), "{failure:?}");
    }
}
