//! The metadata journal stays short whatever users do.

use leeward_env::disk::real::RealDisk;
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, Make, NodeId, Op, Reply};
use leeward_meta::lsm::{LsmKv, Options};
use leeward_meta::{EngineOptions, Kv};
use leeward_pool::DirStore;
use leeward_volume::{Cell, Config, first_batch};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE_BYTES: u64 = 128 << 10;
const JOURNAL_BYTES: u64 = 1 << 20;
const WRITERS: u64 = 6;
const WRITES: u64 = 500;

fn open(dir: &Path) -> Arc<Cell> {
    let env = Env::real();
    let mut engine = EngineOptions { journal_bytes: JOURNAL_BYTES, ..EngineOptions::default() };
    engine.journal.file_bytes = FILE_BYTES;
    let disk = Arc::new(RealDisk::open(dir).expect("the directory"));
    let kv =
        LsmKv::open(env.clone(), disk.clone(), &dir.join("tables"), Options { engine, ..Options::default() })
            .expect("the engine opens");
    if kv.get(&leeward_volume::format::keys::cell()).expect("get").is_none() {
        kv.commit(&first_batch(&env, 0, 0)).expect("the first commit");
    }
    let store = Arc::new(DirStore::new(disk, "data"));
    Cell::start(&env, Box::new(kv), store, &Config::default()).expect("the cell opens")
}

fn call(cell: &Cell, uid: u32, op: Op<'_>) -> Reply {
    cell.call(&Ctx::user(uid, uid), op).expect("done")
}

/// Several users write a little here and there and fsync, again and again, as a database does.
#[test]
fn fsyncs_of_many_leave_a_short_journal() {
    let dir = tempfile::tempdir().expect("a directory");
    let cell = open(dir.path());
    let make = |writer: u64| {
        let name = format!("f{writer}");
        let op =
            Op::Make { dir: NodeId::ROOT, name: name.as_bytes(), make: Make::File, mode: 0o666, umask: 0 };
        match call(&cell, 0, op) {
            Reply::Attr(attr) => attr.node,
            other => panic!("{other:?}"),
        }
    };
    let nodes: Vec<NodeId> = (0..WRITERS).map(make).collect();
    std::thread::scope(|threads| {
        for (writer, &node) in (0u64..).zip(&nodes) {
            let cell = &cell;
            threads.spawn(move || {
                for i in 0..WRITES {
                    let block = (i * 7919 + writer * 31) % 512;
                    let data = [(i % 251) as u8; 4096];
                    call(cell, writer as u32, Op::Write { node, offset: block * 4096, data: &data });
                    call(cell, writer as u32, Op::Fsync { node });
                }
            });
        }
    });
    let engine = cell.figures().engine;
    assert!(engine.written_bytes > 8 * JOURNAL_BYTES, "the journal was not put to the test: {engine:?}");
    // what is stored is let go of in the background: soon, and without anybody asking
    let env = Env::real();
    let is_short = || cell.figures().engine.journal_bytes <= 3 * JOURNAL_BYTES;
    let waited = (0..1200).any(|_| {
        is_short() || {
            env.sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(waited, "a minute later the journal still has {} bytes", cell.figures().engine.journal_bytes);
    cell.close().expect("a clean end");
    drop(cell);
    let left = std::fs::read_dir(dir.path().join("meta")).expect("list").filter_map(Result::ok);
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("journal-")).count();
    assert_eq!(left, 0, "files of the journal after an orderly end");
    let cell = open(dir.path());
    for (writer, node) in (0..WRITERS).zip(nodes) {
        let last = ((WRITES - 1) * 7919 + writer * 31) % 512;
        let Reply::Data(data) = call(&cell, 0, Op::Read { node, offset: last * 4096, len: 4096 }) else {
            panic!("no data");
        };
        assert!(data.iter().all(|byte| *byte == ((WRITES - 1) % 251) as u8), "writer {writer}");
    }
    cell.close().expect("a clean end");
}
