//! Lists of volumes and of what is about them, asked for while volumes come and go.

use crate::rig::Rig;
use leeward_env::Ctx;
use leeward_volume::admin::{self, AnyRequest};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const VOLUMES: u32 = 150;
/// How often each list is asked for at least.
const ROUNDS: usize = 15;
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
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        let lister = threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for json in LISTS {
                    let request: AnyRequest = serde_json::from_str(json).expect(json);
                    if let Err(failure) = rig.cell.admin_any(&Ctx::user(0, 0), &request, &mut |_| {}) {
                        panic!("{json}: {failure:?}");
                    }
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        // as many as it takes until they have met often
        let goes_on = |n: &u32| *n < VOLUMES || rounds.load(Ordering::Relaxed) < ROUNDS;
        (0..).take_while(goes_on).take_while(|_| !lister.is_finished()).for_each(|n| comes_and_goes(&rig, n));
        is_over.store(true, Ordering::Relaxed);
        lister.join().expect("no list fails");
    });
    rig.clean();
}
