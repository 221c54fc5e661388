//! Mounting, unmounting and what goes wrong with it.
#![allow(missing_docs, clippy::disallowed_methods)]

mod rig;

use leeward_env::Env;
use leeward_fuse::{MountError, Options, Unmounted, mount};
use leeward_vfs::{Gate, GateOptions};
use rig::memfs::MemFs;
use rig::{PATIENCE, Parameter, Rig};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn try_mount(at: &Path) -> Result<leeward_fuse::Mount, MountError> {
    let (env, _parameter) = (Env::real(), Parameter::kept());
    let gate = Gate::new(Arc::new(MemFs::new(&env)), &env, GateOptions::usual());
    mount(gate, &env, at, Options::new(Path::new("test")))
}

#[test]
fn what_is_wrong_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let e = try_mount(&missing).err().expect("an error");
    assert!(matches!(e, MountError::Missing(_)), "{e}");
    assert!(e.to_string().contains("mkdir -p"), "{e}");
    fs::write(dir.path().join("file"), b"").unwrap();
    assert!(matches!(try_mount(&dir.path().join("file")), Err(MountError::NotADirectory(_))));
    assert!(matches!(try_mount(&dir.path().join("file/below")), Err(MountError::NotADirectory(_))));
    assert!(matches!(try_mount(dir.path()), Err(MountError::NotEmpty(_))));
}

#[test]
fn a_second_mount_is_refused() {
    let Some(rig) = Rig::new(|m| m) else { return };
    let e = try_mount(rig.mount.at()).err().expect("an error");
    assert!(matches!(&e, MountError::Busy { kind, .. } if kind == "fuse.leeward"), "{e}");
}

#[test]
fn unmounting_is_idempotent_and_seen() {
    let Some(rig) = Rig::new(|m| m) else { return };
    assert!(rig.mount.is_alive() && !rig.mount.wait_for(Duration::from_millis(1)));
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Clean);
    assert!(!rig.mount.is_alive());
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Clean);
    rig.mount.wait();
}

#[test]
fn an_unmount_from_outside_is_seen() {
    let Some(rig) = Rig::new(|m| m) else { return };
    assert!(Command::new("umount").arg(rig.mount.at()).status().unwrap().success());
    assert!(rig.mount.wait_for(PATIENCE));
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Clean);
}

#[test]
fn a_busy_mount_is_detached() {
    let Some(rig) = Rig::new(|m| m) else { return };
    let file = File::create(rig.at("open")).unwrap();
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Detached);
    assert!(rig.mount.is_alive(), "the file is still open");
    drop(file);
    assert!(rig.mount.wait_for(PATIENCE));
    drop(try_mount(rig.mount.at()).expect("the place is free"));
}

#[test]
fn a_covered_mount_is_left() {
    let Some(below) = Rig::new(|m| m) else { return };
    let tmpfs = ["-t", "tmpfs", "none"];
    if !Command::new("mount").args(tmpfs).arg(below.mount.at()).status().unwrap().success() {
        return;
    }
    assert!(matches!(below.mount.unmount(), Err(MountError::Covered(_))));
    assert!(Command::new("umount").arg(below.mount.at()).status().unwrap().success());
    assert_eq!(below.mount.unmount().unwrap(), Unmounted::Clean);
}
