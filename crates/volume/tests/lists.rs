//! Lists of volumes and of what is about them, asked for while volumes come and go.
#![allow(missing_docs)]

mod rig;

use leeward_env::Ctx;
use leeward_volume::admin::{self, AnyRequest};
use rig::Rig;
use std::sync::atomic::{AtomicBool, Ordering};

const VOLUMES: u32 = 150;
const LISTS: [&str; 10] = [
    r#"{"request":"volume-list"}"#,
    r#"{"request":"schedule-list"}"#,
    r#"{"request":"quota-list"}"#,
    r#"{"request":"snap-list","path":null,"volume":null}"#,
    r#"{"request":"snap-usage-list","volume":null}"#,
    r#"{"request":"bin-list","path":null}"#,
    r#"{"request":"project-list"}"#,
    r#"{"request":"mirror-list"}"#,
    r#"{"request":"backup-list"}"#,
    r#"{"request":"df-show"}"#,
];

/// Makes a volume with what lists show, and removes it.
fn comes_and_goes(rig: &Rig, n: u32) {
    let (name, at) = (format!("v{n}"), format!("/v{n}"));
    let create = admin::VolumeCreate { name: name.clone(), at: at.clone(), uid: 0, gid: 0, pool: None };
    rig.admin(&create);
    rig.admin(&admin::QuotaSet { path: at.clone(), bytes: Some(1 << 20), files: None });
    rig.admin(&admin::ScheduleSet { path: at.clone(), interval_secs: 3600, keep: "24h".into() });
    rig.admin(&admin::SnapCreate { path: at, name: "s".into() });
    rig.admin(&admin::VolumeRemove { name });
    rig.rest();
}

#[test]
fn what_is_removed_meanwhile_is_left_out_of_lists() {
    let rig = Rig::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let lister = threads.spawn(|| {
            let mut asked = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                for json in LISTS {
                    let request: AnyRequest = serde_json::from_str(json).expect(json);
                    if let Err(failure) = rig.cell.admin_any(&Ctx::user(0, 0), &request, &mut |_| {}) {
                        panic!("{json}: {failure:?}");
                    }
                    asked += 1;
                }
            }
            asked
        });
        (0..VOLUMES).for_each(|n| comes_and_goes(&rig, n));
        is_over.store(true, Ordering::Relaxed);
        let asked = lister.join().expect("no list fails");
        assert!(asked > VOLUMES, "asked only {asked} times");
    });
    rig.clean();
}
