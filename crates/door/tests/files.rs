//! Files by path, as a user.
#![allow(missing_docs)]

mod rig;

use leeward_door::keys::{Key, Keys, Wanted};
use leeward_door::{Digest, Finish, Tree};
use leeward_env::Ctx;
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, RenameMode, Reply, SetAttr};
use leeward_volume::admin;
use rig::{Rig, noise, path};
use std::collections::BTreeSet;

/// A cell whose root everybody may write to.
fn open_to_all() -> Rig {
    let rig = Rig::new();
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    rig.root(|node| Op::SetAttr { node, set });
    rig
}

#[test]
fn a_file_is_there_whole_or_not_at_all() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    for size in [0, 5, 70_000, 300_000, 3_000_000] {
        let content = noise(size, size as u64);
        rig.put(&tree, "a/b/c", &content).expect("put");
        assert!(rig.get(&tree, "a/b/c").is_ok_and(|got| got == content), "{size}");
        assert_eq!(rig.usage(), (1, size as u64));
    }
    // begun and given up
    rig.wait(async {
        let mut upload = tree.create(&path("a/x"), None).await.expect("begun");
        upload.write(noise(800_000, 9).into()).await.expect("written");
        drop(upload);
        let part = tree.create(&path("a/y"), None).await.expect("begun");
        let of_none = part.keep_as_part(NodeId(5), 1, Vec::new()).await;
        assert_eq!(of_none, Err(Error::Stale), "there is no such upload");
    });
    assert_eq!(rig.get(&tree, "a/x"), Err(Error::NotFound));
    rig.check();
    let rig = rig.reopen();
    assert_eq!(rig.usage(), (1, 3_000_000));
    rig.check();
}

#[test]
fn what_was_opened_stays_what_it_is() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    let (old, new) = (noise(500_000, 1), noise(400_000, 2));
    rig.put(&tree, "f", &old).expect("put");
    let file = rig.wait(tree.open(&path("f"), &[])).expect("opened");
    rig.put(&tree, "f", &new).expect("put");
    let read = rig.wait(file.read_at(300_000, 1000)).expect("read");
    assert_eq!(read, old[300_000..301_000]);
    assert!(rig.get(&tree, "f").is_ok_and(|got| got == new));
    drop(file);
    rig.check();
    assert_eq!(rig.usage(), (1, 400_000));
}

#[test]
fn conditions_hold_when_the_name_is_given() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    let first = rig.put(&tree, "f", b"1").expect("put");
    let try_put = |over| {
        rig.wait(async {
            let upload = tree.create(&path("f"), Some(0)).await.expect("begun");
            upload.finish(Finish { over, ..Finish::default() }).await
        })
    };
    assert_eq!(try_put(Precondition::Nothing), Err(Error::Exists));
    assert!(try_put(Precondition::This(first.node, first.ctime)).is_ok());
    assert_eq!(try_put(Precondition::This(first.node, first.ctime)), Err(Error::Changed));
    let remove = |over| rig.wait(tree.remove_if(&path("f"), over, true));
    assert_eq!(remove(Precondition::This(first.node, first.ctime)), Err(Error::Changed));
    let now = rig.wait(tree.stat(&path("f"), &[])).expect("there").attr;
    remove(Precondition::This(now.node, now.ctime)).expect("removed");
}

/// All bytes, in their order.
#[derive(Default)]
struct Seen(Vec<u8>);

impl Digest for Seen {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

#[test]
fn a_digest_is_of_all_that_was_written_in_its_order() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    for bytes in [0, 1, 100_000, 3_000_000] {
        let content: Vec<u8> = (0..bytes).map(|n: u32| (n / 251 + n) as u8).collect();
        let put = async {
            let mut upload =
                tree.create(&path("f"), Some(content.len() as u64)).await?.with_digest(Seen::default());
            for piece in content.chunks(65_536) {
                upload.write(bytes::Bytes::copy_from_slice(piece)).await?;
            }
            let (seen, upload) = upload.digested().await?;
            upload.finish(Finish::default()).await?;
            Ok::<_, Error>(seen)
        };
        assert!(rig.wait(put).expect("put").0 == content, "{bytes}");
        assert!(rig.get(&tree, "f").expect("there") == content, "{bytes}");
    }
    // all memory is given back, by threads that may still be at it
    while tree.files().incoming().taken() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn every_directory_on_the_way_must_let_the_user_through() {
    let rig = open_to_all();
    let (ann, bob) = (rig.tree(1000, ""), rig.tree(1001, ""));
    rig.put(&ann, "d/e/f", b"x").expect("put");
    let chmod = |at: &str, mode| {
        let node = rig.wait(ann.stat(&path(at), &[])).expect("there").attr.node;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        rig.call(Op::SetAttr { node, set }).expect("changed");
    };
    assert_eq!(rig.get(&bob, "d/e/f"), Ok(b"x".to_vec()));
    assert_eq!(rig.put(&bob, "d/e/g", b"y").map(drop), Err(Error::Access), "he may not write there");
    assert_eq!(rig.wait(bob.remove(&path("d/e/f"), true)), Err(Error::Access));
    assert_eq!(
        rig.wait(bob.rename(&path("d/e/f"), &bob, &path("g"), RenameMode::Replace)),
        Err(Error::Access)
    );
    chmod("d/e/f", 0o600);
    assert_eq!(rig.get(&bob, "d/e/f"), Err(Error::Access));
    assert!(rig.wait(bob.stat(&path("d/e/f"), &[])).is_ok(), "he may see it");
    chmod("d/e", 0o711);
    assert_eq!(rig.wait(bob.list(&path("d/e"), b"", 10)).map(drop), Err(Error::Access));
    chmod("d", 0o700);
    assert_eq!(rig.wait(bob.stat(&path("d/e/f"), &[])).map(drop), Err(Error::Access));
    assert_eq!(rig.wait(rig.tree(1001, "d/e").stat(&path("f"), &[])).map(drop), Err(Error::Access));
    assert!(rig.get(&rig.tree(1000, "d/e"), "f").is_ok());
    chmod("d", 0o1777);
    chmod("d/e", 0o1777);
    assert_eq!(rig.wait(bob.remove(&path("d/e/f"), true)), Err(Error::NotPermitted), "a sticky directory");
    assert_eq!(rig.put(&bob, "d/e/f", b"z").map(drop), Err(Error::NotPermitted));
    rig.check();
}

#[test]
fn links_are_followed_within_the_tree_only() {
    let rig = open_to_all();
    let all = rig.tree(1000, "");
    rig.put(&all, "secret", b"secret").expect("put");
    rig.put(&all, "b/in/f", b"f").expect("put");
    let dir = rig.wait(all.stat(&path("b"), &[])).expect("there").attr.node;
    for (name, target) in
        [("near", "in/f"), ("dots", "./in/../in"), ("up", "../secret"), ("far", "/secret"), ("loop", "loop")]
    {
        let make = Make::Symlink(target.as_bytes());
        let op = Op::Make { dir, name: name.as_bytes(), make, mode: 0, umask: 0 };
        rig.call(op).expect("made");
    }
    let tree = rig.tree(1000, "b");
    assert_eq!(rig.get(&tree, "near"), Ok(b"f".to_vec()));
    assert_eq!(rig.get(&tree, "dots/f"), Ok(b"f".to_vec()));
    for out in ["up", "far", "loop"] {
        assert_eq!(rig.get(&tree, out), Err(Error::NotFound), "{out}");
    }
    assert_eq!(rig.get(&all, "b/up"), Ok(b"secret".to_vec()), "from above it does not lead out");
    rig.put(&tree, "up", b"mine").expect("in place of the link");
    assert_eq!(
        (rig.get(&all, "secret"), rig.get(&tree, "up")),
        (Ok(b"secret".to_vec()), Ok(b"mine".to_vec()))
    );
}

#[test]
fn who_has_come_to_a_directory_stays_in_it() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    rig.put(&tree, "shared/sub/f", b"mine").expect("put");
    rig.put(&tree, "home/f", b"precious").expect("put");
    let spot = rig.wait(tree.spot(&path("shared/sub"), false)).expect("there");
    let root = rig.wait(tree.stat(&path(""), &[])).expect("there").attr.node;
    let shared = rig.wait(tree.stat(&path("shared"), &[])).expect("there").attr.node;
    assert_eq!(spot.above, [root, shared]);
    let dir = spot.tree.within(spot.attr.expect("there").node);
    // somebody puts a link in its place
    rig.wait(tree.rename(&path("shared/sub"), &tree, &path("shared/away"), RenameMode::NoReplace))
        .expect("moved");
    rig.wait(tree.make_link(&path("shared/sub"), b"../home")).expect("made");
    assert_eq!(rig.get(&tree, "shared/sub/f"), Ok(b"precious".to_vec()), "a path follows it");
    assert_eq!(rig.get(&dir, "f"), Ok(b"mine".to_vec()));
    assert_eq!(rig.get(&spot.tree, "sub/f"), Err(Error::NotFound));
    assert_eq!(rig.wait(spot.tree.remove_dir(&path("sub"))), Err(Error::NotDir));
    rig.wait(dir.remove(&path("f"), false)).expect("removed");
    assert_eq!(rig.get(&tree, "home/f"), Ok(b"precious".to_vec()));
    assert_eq!(rig.wait(tree.read_link(&path("shared/sub"))), Ok(b"../home".to_vec()));
}

#[test]
fn what_is_kept_is_kept_with_what_was_read() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    rig.put(&tree, "f", b"old").expect("put");
    let file = rig.wait(tree.open(&path("f"), &[])).expect("opened");
    let node = file.attr.node;
    rig.wait(tree.rename(&path("f"), &tree, &path("g"), RenameMode::NoReplace)).expect("moved");
    let file = rig.wait(tree.open(&path("g"), &[])).expect("opened");
    rig.put(&tree, "f", b"other").expect("put");
    rig.wait(rig.tree(1001, "").open(&path("g"), &[]))
        .map(|f| rig.wait(f.keep(b"user.k", b"1".to_vec())))
        .expect("opened")
        .expect("kept");
    let get = |node| rig.call(Op::GetXattr { node, name: b"user.k" });
    assert_eq!(get(node), Ok(Reply::Data(b"1".to_vec())));
    assert_eq!(rig.wait(file.is_same()), Ok(false), "something was noted beside it");
    rig.wait(file.keep(b"user.k", b"2".to_vec())).expect("not kept");
    assert_eq!(get(node), Ok(Reply::Data(b"1".to_vec())));
    let other = rig.wait(tree.open(&path("f"), &[])).expect("opened");
    assert_eq!(rig.wait(other.is_same()), Ok(true));
    rig.call(Op::Write { node: other.attr.node, offset: 0, data: b"O" }).expect("written");
    assert_eq!(rig.wait(other.is_same()), Ok(false));
}

#[test]
fn a_long_path_is_walked_once() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    let long = "d/".repeat(1500) + "f";
    rig.put(&tree, &long, b"x").expect("put");
    assert_eq!(rig.get(&tree, &long), Ok(b"x".to_vec()));
    rig.wait(tree.remove(&path(&long), true)).expect("removed");
    assert_eq!(rig.wait(tree.stat(&path("d"), &[])).map(drop), Err(Error::NotFound), "with all directories");
    rig.check();
}

#[test]
fn directories_of_paths_go_with_their_last_file() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    rig.wait(tree.make_dir(&path("kept"), false)).expect("made");
    rig.put(&tree, "kept/a/b/f", b"1").expect("put");
    rig.put(&tree, "kept/a/g", b"2").expect("put");
    let is_there = |at: &str| rig.wait(tree.stat(&path(at), &[])).is_ok();
    rig.wait(tree.remove(&path("kept/a/b/f"), true)).expect("removed");
    assert!(!is_there("kept/a/b") && is_there("kept/a"));
    rig.wait(tree.remove(&path("kept/a/g"), true)).expect("removed");
    assert!(!is_there("kept/a") && is_there("kept"), "what somebody made stays");
    assert_eq!(rig.wait(tree.make_dir(&path("kept"), false)).map(drop), Err(Error::Exists));
    assert_eq!(rig.wait(tree.make_dir(&path("x/y"), false)).map(drop), Err(Error::NotFound));
    assert!(rig.wait(tree.make_dir(&path("x/y"), true)).is_ok());
    assert_eq!(rig.put(&tree, "kept/.snap/s/f", b"1").map(drop), Err(Error::ReadOnly), "takes no snapshot");
    rig.check();
}

#[test]
fn a_copy_shares_its_data_and_parts_are_put_together() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    let (a, b) = (noise(6_000_000, 1), noise(700_000, 2));
    rig.wait(async {
        let of = tree.begin_upload(&path("whole"), "bucket/whole".into(), Vec::new()).await.expect("begun");
        let mut replaced = None;
        for (number, content) in [(1, &b), (2, &b), (1, &a)] {
            let mut part = tree.create(&path("whole"), None).await.expect("begun");
            part.write(content.clone().into()).await.expect("written");
            part.keep_as_part(of, number, Vec::new()).await.expect("kept");
            replaced = replaced.or(tree.upload_part(of, 1).await.expect("asked"));
        }
        let mut partly = tree.create(&path("partly"), None).await.expect("begun");
        let freed = partly.copy_part(&replaced.expect("it was there")).await;
        assert_eq!(freed, Err(Error::Stale), "whether its data is still there or not");
        drop(partly);
        let ended =
            tree.begin_upload(&path("other"), "bucket/other".into(), Vec::new()).await.expect("begun");
        tree.end_upload(ended).await.expect("ended");
        for none in [ended, NodeId(0), NodeId(u64::MAX)] {
            assert_eq!(tree.upload(none).await, Err(Error::Stale), "{none:?}");
        }
        assert_eq!(tree.end_upload(ended).await, Err(Error::Stale));
        let below = tree.begin_upload(&path("d/file"), "bucket/d/file".into(), Vec::new()).await;
        assert!(below.is_ok(), "directories are made at the end");
        let mut whole = tree.create(&path("whole"), None).await.expect("begun");
        for part in tree.upload_parts(of, 0, 9).await.expect("asked") {
            whole.copy_part(&part).await.expect("copied");
        }
        let completes = Some((of, b"done".to_vec()));
        whole.finish(Finish { completes, ..Finish::default() }).await.expect("placed");
        tree.settle_upload(of).await.expect("durable");
        assert_eq!(tree.end_upload(of).await, Err(Error::Stale), "it came too late");
        assert!(tree.upload(of).await.is_ok_and(|of| of.complete && &*of.note == b"done"));
        let totals = tree.upload_totals("bucket").await.expect("asked");
        assert_eq!((totals.uploads, totals.bytes), (1, 0), "one that is begun is left");
        let open = tree.uploads("bucket/", ("", NodeId(0)), 9).await.expect("asked");
        assert_eq!(open.iter().map(|(_, of)| of.name()).collect::<Vec<_>>(), ["d/file"]);
    });
    let wanted = [a, b].concat();
    assert!(rig.get(&tree, "whole").is_ok_and(|got| got == wanted));
    rig.check();
    let rig = rig.reopen();
    assert!(rig.get(&rig.tree(1000, ""), "whole").is_ok_and(|got| got == wanted));
    rig.check();
}

#[test]
fn the_kernel_is_told_of_what_it_knows() {
    use leeward_fs::Watcher;
    use parking_lot::Mutex;
    #[derive(Default)]
    struct Heard(Mutex<Vec<(NodeId, Vec<u8>)>>);
    impl Watcher for Heard {
        fn entry_changed(&self, dir: NodeId, name: &[u8]) {
            self.0.lock().push((dir, name.to_vec()));
        }
        fn inode_changed(&self, _: NodeId) {}
        fn attributes_changed(&self, _: NodeId) {}
        fn wait_applied(&self) {}
    }
    let rig = open_to_all();
    let heard = std::sync::Arc::new(Heard::default());
    rig.cell.watch(heard.clone());
    let tree = rig.tree(1000, "");
    rig.put(&tree, "d/f", b"1").expect("put");
    let told = std::mem::take(&mut *heard.0.lock());
    assert_eq!(told, [(NodeId::ROOT, b"d".to_vec())], "nobody knows more than the root");
    let kernel = Ctx { refs: true, ..Ctx::system() };
    let Ok(Reply::Attr(dir)) = rig.cell.call(&kernel, Op::Lookup { dir: NodeId::ROOT, name: b"d" }) else {
        panic!("not there")
    };
    rig.put(&tree, "d/f", b"2").expect("put");
    rig.wait(tree.remove(&path("d/f"), false)).expect("removed");
    let told = std::mem::take(&mut *heard.0.lock());
    assert_eq!(told, [(dir.node, b"f".to_vec()), (dir.node, b"f".to_vec())]);
}

fn listed(rig: &Rig, tree: &Tree, wanted: Wanted, page: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), wanted.after.clone());
    loop {
        let mut keys = Keys::new(tree, Wanted { after: after.clone(), ..wanted.clone() });
        let found = rig.wait(keys.next(page)).expect("listed");
        let is_last = found.len() < page;
        if let Some(last) = found.last() {
            after = last.name().to_vec();
        }
        all.extend(found.iter().map(|k: &Key| String::from_utf8(k.name().to_vec()).expect("UTF-8")));
        if is_last {
            return all;
        }
    }
}

#[test]
fn keys_come_in_the_order_of_their_bytes_from_anywhere() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    let names = [
        "a", "a-", "a-b/c", "a.txt", "a/b", "a/b-c", "a0", "b/", "b-/x", "b/c/d", "b/c/e", "b/c-/f", "b0/c",
        "c!/d", "c/d", "c/d!", "z/y/x/w", "ü/ö",
    ];
    let mut keys = BTreeSet::new();
    for name in names {
        // a key cannot be both a file and a directory
        let done = match name.strip_suffix('/') {
            Some(_) => rig.wait(tree.make_dir(&path(name), true)).map(drop),
            None => rig.put(&tree, name, b"x").map(drop),
        };
        if done.is_ok() {
            keys.insert(name.to_owned());
        }
    }
    rig.wait(tree.make_dir(&path("empty/e"), true)).expect("made");
    keys.insert("empty/e/".to_owned());
    keys.remove("b/"); // it has files
    let sorted: Vec<String> = keys.iter().cloned().collect();
    for page in [1, 2, 3, 100] {
        assert_eq!(listed(&rig, &tree, Wanted::default(), page), sorted, "pages of {page}");
    }
    let starts = [
        "", "a", "a-", "a/", "a/b", "a0", "b", "b/c", "b/c/", "b/c/d", "b/c/zzz", "b-", "c!", "empty/e/",
        "zz",
    ];
    for after in starts {
        let wanted = Wanted { after: after.into(), ..Wanted::default() };
        let expected: Vec<String> = sorted.iter().filter(|k| k[..] > *after).cloned().collect();
        assert_eq!(listed(&rig, &tree, wanted, 2), expected, "after {after}");
        for prefix in ["", "a", "b", "b/", "b/c", "b/c/", "e", "empty/e/", "none/", "c/d", "a//"] {
            let wanted = Wanted { after: after.into(), prefix: prefix.into(), ..Wanted::default() };
            let begins = |k: &&String| k.starts_with(prefix) && k[..] > *after;
            let expected: Vec<String> = sorted.iter().filter(begins).cloned().collect();
            assert_eq!(listed(&rig, &tree, wanted, 3), expected, "after {after}, prefix {prefix}");
            let mut by_dir = Vec::new();
            for key in sorted.iter().filter(|k| k.starts_with(prefix)) {
                let at = key[prefix.len()..].find('/').map(|at| prefix.len() + at + 1);
                let told = at.map_or(&key[..], |at| &key[..at]);
                if by_dir.last().is_none_or(|last| last != told) {
                    by_dir.push(told.to_owned());
                }
            }
            by_dir.retain(|k| k[..] > *after && !after.starts_with(&format!("{}/", k.trim_end_matches('/'))));
            let wanted = Wanted {
                after: after.into(),
                prefix: prefix.into(),
                by_directory: true,
                ..Wanted::default()
            };
            assert_eq!(
                listed(&rig, &tree, wanted, 2),
                by_dir,
                "after {after}, prefix {prefix}, by directory"
            );
        }
    }
}

#[test]
fn a_listing_does_not_stumble_into_what_it_does_not_show() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    for name in [".snap-x", "a/b", "z"] {
        rig.put(&tree, name, b"x").expect("put");
    }
    let volume = admin::SnapCreate { path: "/".into(), name: "s".into() };
    rig.cell.admin(&volume, &mut |_| {}).expect("a snapshot");
    let from = |after: &[u8], prefix: &str| {
        let wanted = Wanted { after: after.into(), prefix: prefix.into(), ..Wanted::default() };
        listed(&rig, &tree, wanted, 2)
    };
    assert_eq!(from(b".snap", ""), [".snap-x", "a/b", "z"]);
    assert_eq!(from(b".snap-x", ""), ["a/b", "z"], "`-` comes before `/`");
    assert_eq!(from(b"", ".snap/s/a/"), [".snap/s/a/b"], "who asks for it has it");
    assert_eq!(from(b".snap/s/a", ".snap/s/"), [".snap/s/a/b", ".snap/s/z"]);
    assert_eq!(from(&[b'-'; 60_000], ""), [".snap-x", "a/b", "z"]);
    let visible = admin::PropertyChanges { snapshot_dir_visible: Some(true), ..Default::default() };
    let set = admin::VolumeSet { name: "root".into(), set: visible };
    rig.cell.admin(&set, &mut |_| {}).expect("set");
    // a page that has nothing to show is not the end
    let (page, at_end) = rig.wait(tree.list(&path(""), b"", 1)).expect("listed");
    assert_eq!((page.len(), &page[0].name[..], at_end), (1, &b".snap-x"[..], false));
    assert_eq!(from(b"", ""), [".snap-x", "a/b", "z"]);
    // deeper than a path can say
    let mut dir = rig.wait(tree.stat(&path("a"), &[])).expect("there").attr.node;
    for _ in 0..20 {
        let (name, make) = (&[b'n'; 250][..], Make::Dir);
        let made = rig.call(Op::Make { dir, name, make, mode: 0o777, umask: 0 }).expect("made");
        let Reply::Attr(made) = made else { panic!("{made:?}") };
        dir = made.node;
    }
    let keys = from(b"", "");
    assert_eq!(keys, [".snap-x", "a/b", "z"]);
}

#[test]
fn attributes_are_read_and_set() {
    let rig = open_to_all();
    let tree = rig.tree(1000, "");
    rig.put(&tree, "f", b"x").expect("put");
    let set = |tree: &Tree, name: &[u8], value: Option<&[u8]>| {
        rig.wait(tree.set_xattrs(&path("f"), vec![(name.to_vec(), value.map(<[u8]>::to_vec))]))
    };
    set(&tree, b"user.a", Some(b"1")).expect("set");
    let found = rig.wait(tree.stat(&path("f"), &[b"user.a", b"user.b"])).expect("there");
    assert_eq!(found.xattrs, [Some(b"1".to_vec()), None]);
    let kernel = Op::GetXattr { node: found.attr.node, name: b"user.a" };
    assert_eq!(rig.call(kernel), Ok(Reply::Data(b"1".to_vec())), "as the mount shows it");
    assert_eq!(set(&rig.tree(1001, ""), b"user.a", None), Err(Error::Access));
    assert_eq!(set(&tree, b"trusted.a", Some(b"1")), Err(Error::NotSupported));
    set(&tree, b"user.a", None).expect("removed");
    set(&tree, b"user.a", None).expect("it is gone");
}
