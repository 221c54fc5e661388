//! An operation survives being carried to another thread.
#![allow(missing_docs)]

use leeward_fs::{Make, NodeId, Op, Precondition, RenameMode, XattrMode};
use leeward_vfs::OwnedOp;

#[test]
fn bytes_come_back_where_they_were() {
    let (dir, node, to_dir) = (NodeId(7), NodeId(8), NodeId(9));
    let ops = [
        Op::Lookup { dir, name: b"n" },
        Op::Make { dir, name: b"n", make: Make::Symlink(b"target"), mode: 0o777, umask: 0 },
        Op::Make { dir, name: b"n", make: Make::CharDev(5), mode: 0o600, umask: 0o22 },
        Op::MakeUnnamed { dir, mode: 0o640, umask: 0o22, bytes: 5 },
        Op::Place { node, dir, name: b"n", over: Precondition::Nothing },
        Op::BeginUpload { dir, key: b"b/k", note: b"note" },
        Op::KeepPart { node, upload: dir, number: 3, note: b"note" },
        Op::CompleteUpload { upload: dir, node, dir, name: b"n", over: Precondition::Any, note: b"note" },
        Op::EndUpload { upload: dir },
        Op::ListUploads { prefix: b"b/", after: b"b/k", after_upload: node, limit: 3 },
        Op::StatUploads { bucket: Some(b"b") },
        Op::StatUploads { bucket: None },
        Op::Link { node, dir, name: b"n" },
        Op::Unlink { dir, name: b"n", over: Precondition::Any },
        Op::RmDir { dir, name: b"n" },
        Op::Rename { from_dir: dir, from_name: b"a", to_dir, to_name: b"b", mode: RenameMode::Exchange },
        Op::Write { node, offset: 3, data: b"data" },
        Op::Read { node, offset: 3, len: 4 },
        Op::List { dir, after: b"x", limit: 3, attrs: true },
        Op::GetXattr { node, name: b"user.a" },
        Op::SetXattr { node, name: b"user.a", value: b"v", mode: XattrMode::Create },
        Op::RemoveXattr { node, name: b"user.a" },
        Op::Fsync { node },
        Op::Forget { node, count: 2 },
    ];
    for op in ops {
        assert_eq!(OwnedOp::from(op).as_op(), op);
    }
    let owned = OwnedOp::from(Op::SetXattr { node, name: b"user.a", value: b"v", mode: XattrMode::Set });
    assert_eq!(owned.byte_count(), 7);
    assert_eq!(owned.shape(), Op::SetXattr { node, name: b"", value: b"", mode: XattrMode::Set });
}
