//! The harness judges itself: the model agrees with itself, and deliberately wrong copies are
//! caught.

use leeward_env::Ctx;
use leeward_fs::{Error, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, Usage};
use leeward_model::content::Allocation;
use leeward_model::harness::{Options, Target, run, try_run};
use leeward_model::snapshots::{Namespace, place};
use leeward_model::step::{Fill, Path};
use leeward_model::{Model, Profile, text};
use std::cell::RefCell;

/// How the copy is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    LostWrite,
    ShiftedWrite,
    StaleTail,
    Nlink,
    ForgottenRename,
    HalfExchange,
    RenameOverFull,
    LostXattr,
    KeptSetuid,
    LostGroup,
    NoTimes,
    TimesOnRead,
    SkippedListing,
    OtherErrno,
    OtherParent,
    LostOrphan,
    Usage,
    SharedCopy,
    HiddenData,
    PunchBeyond,
    Blocks,
    LiveInSnapshot,
    WritableSnapshot,
    KeptSnapshot,
    LostSnapshot,
    RemovedParent,
    NoInheritance,
    SnapshotTimes,
}

const ALL: &[Wrong] = &[
    Wrong::LostWrite,
    Wrong::ShiftedWrite,
    Wrong::StaleTail,
    Wrong::Nlink,
    Wrong::ForgottenRename,
    Wrong::HalfExchange,
    Wrong::RenameOverFull,
    Wrong::LostXattr,
    Wrong::KeptSetuid,
    Wrong::LostGroup,
    Wrong::NoTimes,
    Wrong::TimesOnRead,
    Wrong::SkippedListing,
    Wrong::OtherErrno,
    Wrong::OtherParent,
    Wrong::LostOrphan,
    Wrong::Usage,
    Wrong::SharedCopy,
    Wrong::HiddenData,
    Wrong::PunchBeyond,
    Wrong::Blocks,
    Wrong::LiveInSnapshot,
    Wrong::WritableSnapshot,
    Wrong::KeptSnapshot,
    Wrong::LostSnapshot,
    Wrong::RemovedParent,
    Wrong::NoInheritance,
    Wrong::SnapshotTimes,
];

/// A model as target, with other inode numbers, and one fault that strikes now and then.
struct Twin {
    model: RefCell<Model>,
    wrong: Wrong,
    calls: RefCell<u64>,
}

impl Twin {
    fn new(wrong: Wrong) -> Twin {
        let mut model = Model::new(0, 0, 0o755);
        let (ctx, dir, name) = (Ctx::user(0, 0), NodeId::ROOT, &b"x"[..]);
        for _ in 0..17 {
            model.apply(&ctx, &Op::Make { dir, name, make: Make::File, mode: 0, umask: 0 }).unwrap();
            model.apply(&ctx, &Op::Unlink { dir, name, over: Precondition::Any }).unwrap();
        }
        Twin { model: RefCell::new(model), wrong, calls: RefCell::new(0) }
    }

    /// Whether the fault strikes at this call.
    fn strikes(&self, op: &Op<'_>) -> bool {
        let apt = match self.wrong {
            Wrong::LostWrite | Wrong::ShiftedWrite => matches!(op, Op::Write { .. }),
            Wrong::StaleTail => matches!(op, Op::SetAttr { set, .. } if set.size.is_some()),
            Wrong::ForgottenRename | Wrong::RenameOverFull => matches!(op, Op::Rename { .. }),
            Wrong::HalfExchange => matches!(op, Op::Rename { mode: RenameMode::Exchange, .. }),
            Wrong::LostXattr => matches!(op, Op::SetXattr { .. }),
            Wrong::HiddenData => matches!(op, Op::SeekTo { .. }),
            Wrong::PunchBeyond => matches!(op, Op::Allocate { .. }),
            Wrong::SharedCopy => matches!(op, Op::CopyRange { .. }),
            Wrong::KeptSnapshot | Wrong::LostSnapshot => {
                matches!(op, Op::RmDir { dir, .. } if is_snap_dir(*dir))
            }
            Wrong::Nothing => false,
            _ => return true,
        };
        *self.calls.borrow_mut() += u64::from(apt);
        apt && *self.calls.borrow() % 7 == 3
    }

    fn wrong_op(&self, ctx: &Ctx, op: Op<'_>) -> Option<Result<Reply>> {
        let mut model = self.model.borrow_mut();
        let root = Ctx::user(0, 0);
        Some(match (self.wrong, op) {
            (Wrong::LostWrite, Op::Write { node, data, .. }) => {
                model.apply(ctx, &Op::GetAttr { node }).map(|_| Reply::Written(data.len() as u64))
            }
            (Wrong::ShiftedWrite, Op::Write { node, offset, data }) => {
                model.apply(ctx, &Op::Write { node, offset: offset + 1, data })
            }
            (Wrong::StaleTail, op @ Op::SetAttr { node, set }) => {
                let reply = model.apply(ctx, &op);
                let size = set.size.unwrap_or(0);
                if reply.is_ok() && size > 0 {
                    let _ = model.apply(ctx, &Op::Write { node, offset: size - 1, data: b"?" });
                }
                reply
            }
            (Wrong::ForgottenRename, Op::Rename { .. }) => Ok(Reply::Done),
            (Wrong::HalfExchange, Op::Rename { from_dir, from_name, to_dir, to_name, .. }) => {
                let mode = RenameMode::Replace;
                model.apply(ctx, &Op::Rename { from_dir, from_name, to_dir, to_name, mode })
            }
            (Wrong::RenameOverFull, op @ Op::Rename { to_dir, to_name, .. }) => match model.apply(ctx, &op) {
                Err(Error::NotEmpty) => {
                    let _ =
                        model.apply(ctx, &Op::Unlink { dir: to_dir, name: to_name, over: Precondition::Any });
                    Ok(Reply::Done)
                }
                other => other,
            },
            (Wrong::LostXattr, Op::SetXattr { node, .. }) => {
                model.apply(ctx, &Op::GetAttr { node }).map(|_| Reply::Done)
            }
            (Wrong::KeptSetuid, op @ (Op::Write { .. } | Op::SetAttr { .. })) => model.apply(&root, &op),
            (Wrong::LostGroup, op @ Op::Make { dir, .. }) => {
                let reply = model.apply(ctx, &op);
                match reply {
                    Ok(Reply::Attr(mut a)) if a.gid != ctx.gid => {
                        let set = leeward_fs::SetAttr { gid: Some(ctx.gid), ..Default::default() };
                        a.gid = ctx.gid;
                        let _ = (dir, model.apply(&root, &Op::SetAttr { node: a.node, set }));
                        Ok(Reply::Attr(a))
                    }
                    other => other,
                }
            }
            (Wrong::OtherErrno, op @ Op::RmDir { .. }) => match model.apply(ctx, &op) {
                Err(Error::NotEmpty) => Err(Error::Exists),
                other => other,
            },
            (Wrong::OtherParent, Op::Lookup { dir, name: b".." }) => {
                model.apply(ctx, &Op::GetAttr { node: dir })
            }
            (Wrong::LostOrphan, op @ Op::Lookup { .. }) => model.apply(&Ctx { refs: false, ..*ctx }, &op),
            (Wrong::SharedCopy, Op::CopyRange { from, from_offset, to, to_offset, len }) => {
                let to_offset = to_offset / 4096 * 4096;
                model.apply(ctx, &Op::CopyRange { from, from_offset, to, to_offset, len })
            }
            (Wrong::LiveInSnapshot, Op::Read { node, offset, len }) => {
                model.apply(ctx, &Op::Read { node: live(node), offset, len })
            }
            (Wrong::WritableSnapshot, op @ Op::SetAttr { node, set }) => match model.apply(ctx, &op) {
                Err(Error::ReadOnly) => model.apply(ctx, &Op::SetAttr { node: live(node), set }),
                other => other,
            },
            (Wrong::KeptSnapshot, Op::RmDir { dir, name }) => {
                model.apply(ctx, &Op::Lookup { dir, name }).map(|_| Reply::Removed { node: dir, nlink: 0 })
            }
            (Wrong::LostSnapshot, op @ Op::RmDir { .. }) => {
                let other = model.snapshots().map(|(view, _)| view).next();
                let reply = model.apply(ctx, &op);
                other.filter(|_| reply.is_ok()).into_iter().for_each(|view| model.drop_snapshot(view));
                reply
            }
            (Wrong::RemovedParent, op @ Op::RmDir { .. }) => match model.apply(ctx, &op) {
                Err(Error::NotEmpty) if model.snapshots().count() > 0 => {
                    Ok(Reply::Removed { node: NodeId(2), nlink: 0 })
                }
                other => other,
            },
            (Wrong::NoInheritance, op @ Op::Lookup { dir, name }) if is_snap_dir(dir) => {
                if name.starts_with(b"_") { Err(Error::NotFound) } else { model.apply(ctx, &op) }
            }
            (Wrong::HiddenData, Op::SeekTo { .. }) => Err(Error::NoSuchPosition),
            (Wrong::PunchBeyond, Op::Allocate { node, offset, len, mode }) => {
                model.apply(ctx, &Op::Allocate { node, offset, len: len.next_multiple_of(4096), mode })
            }
            _ => return None,
        })
    }

    fn wrong_reply(&self, op: &Op<'_>, reply: &mut Reply) {
        match (self.wrong, reply) {
            (Wrong::Nlink, Reply::Attr(a)) if a.nlink == 2 => a.nlink = 1,
            (Wrong::NoTimes, Reply::Attr(a)) => a.ctime = a.btime,
            (Wrong::TimesOnRead, Reply::Attr(a)) => a.mtime = a.atime,
            (Wrong::SnapshotTimes, Reply::Attr(a)) if live(a.node) != a.node => a.ctime = a.btime,
            (Wrong::Blocks, Reply::Attr(a)) => a.blocks = a.size.div_ceil(512) + 8,
            (Wrong::SkippedListing, Reply::Entries(entries))
                if matches!(op, Op::List { after, .. } if !after.is_empty()) && entries.len() > 1 =>
            {
                entries.remove(0);
            }
            _ => {}
        }
    }
}

fn is_snap_dir(node: NodeId) -> bool {
    matches!(place(node.0), Namespace::SnapDirOf(_))
}

/// What an inode in a snapshot is now.
fn live(node: NodeId) -> NodeId {
    NodeId(node.0 & 0xff_ffff_ffff)
}

impl Target for Twin {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let wrong = if self.strikes(&op) { self.wrong_op(ctx, op) } else { None };
        let mut reply = wrong.unwrap_or_else(|| self.model.borrow_mut().apply(ctx, &op))?;
        self.wrong_reply(&op, &mut reply);
        Ok(reply)
    }

    fn usage(&self, _path: &Path, node: NodeId) -> Option<Usage> {
        let mut usage = self.model.borrow().usage(node.0, Allocation::Units(1)).ok()?.most;
        if self.wrong == Wrong::Usage && usage.files > 3 {
            usage.files += 1;
        }
        Some(usage)
    }

    fn reopen(&mut self) -> std::result::Result<(), String> {
        self.model.get_mut().drop_refs();
        Ok(())
    }
}

#[test]
fn the_model_agrees_with_itself() {
    for seed in 0..8 {
        run(|| Twin::new(Wrong::Nothing), &Options::new(seed, 1500));
    }
}

#[test]
fn the_model_agrees_with_itself_about_snapshots() {
    for seed in 0..8 {
        run(|| Twin::new(Wrong::Nothing), &with_snapshots(seed));
    }
}

fn with_snapshots(seed: u64) -> Options {
    Options { profile: Profile::default().with_snapshots(20, 6), ..Options::new(seed, 1500) }
}

#[test]
fn every_fault_is_caught() {
    for &wrong in ALL {
        let caught = (0..6).find_map(|seed| try_run(|| Twin::new(wrong), &with_snapshots(seed)).err());
        assert!(caught.is_some(), "{wrong:?} was not noticed");
    }
}

#[test]
fn a_failure_shrinks_to_few_steps() {
    let make = || Twin::new(Wrong::StaleTail);
    let failure = (0..6).find_map(|seed| try_run(make, &Options::new(seed, 1000)).err()).expect("a failure");
    let small = leeward_model::harness::shrink(make, failure);
    assert!(small.steps.len() < 20, "{}", text::print(&small.steps));
}

#[test]
fn text_round_trips() {
    let mut model = Model::new(0, 0, 0o755);
    let mut generator = leeward_model::generate::Generator::new(5, Profile::default().with_snapshots(20, 6));
    let mut slots = leeward_model::side::Slots::default();
    for _ in 0..3000 {
        let step = generator.step(&model);
        let line = step.to_string();
        assert_eq!(line.parse::<leeward_model::step::Step>().as_ref(), Ok(&step), "{line}");
        let _ = leeward_model::side::Side { fs: &mut model, root: NodeId::ROOT, slots: &mut slots }
            .perform(&step);
    }
    assert!(text::parse("write /a 0 1").is_err());
    assert!(text::parse("; a comment\n\nu1000 unlink /%ff/b").is_ok());
}

#[test]
fn fills_are_reproducible() {
    assert_eq!(Fill { pattern: 8, len: 9 }.bytes(), vec![0; 9]);
    let long = Fill { pattern: 7, len: 100 }.bytes();
    assert_eq!(long[..50], Fill { pattern: 7, len: 50 }.bytes());
}
