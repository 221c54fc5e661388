//! The requests that users may ask, one of each.

use super::{Asking, BOB, EVE, Target};
use leeward_fs::flows::UserOrGroup;
use leeward_volume::admin::{self, AnyRequest, Day, EventFilter, GroupKey};

/// Requests about a volume, or what is in it. An operator gets an answer to each.
pub fn about(target: &Target) -> Vec<AnyRequest> {
    let (at, volume) = (target.at.to_string(), target.volume.to_string());
    let path = || at.clone();
    let name = || volume.clone();
    let below = |leaf: &str| format!("{at}/{leaf}");
    let named = |leaf: &str| format!("{}{leaf}", target.begin);
    let grant = admin::AclGrant { who: UserOrGroup::User(EVE), rights: [admin::Right::Read].into() };
    let newest = EventFilter::default();
    let bin = admin::PropertyChanges { bin_days: Some(8), ..admin::PropertyChanges::default() };
    let budget = admin::Budget::default();
    let owner = "carol:lab".to_string();
    vec![
        admin::AclSet { path: path(), grants: vec![grant], recursive: false }.into(),
        admin::AclShow { path: path() }.into(),
        admin::BinEmpty { volume: Some(name()) }.into(),
        admin::BinRestore { path: below("gone"), at_secs: None, to: None }.into(),
        admin::BucketCreate { name: named("new"), path: path(), public: false }.into(),
        admin::BucketRemove { name: name() }.into(),
        admin::EventList {
            path: Some(path()),
            cursor: None,
            newest_first: true,
            until_now: false,
            filter: newest,
            limit: 9,
        }
        .into(),
        admin::FileCensus { path: path() }.into(),
        admin::OwnerLimit { volume: Some(name()), who: UserOrGroup::User(EVE), bytes: Some(9), files: None }
            .into(),
        admin::ProjectCreate {
            name: named("new"),
            at: below("d"),
            owner,
            budget,
            pool: None,
            counts_snapshots: None,
        }
        .into(),
        admin::ProjectMove { volume: name(), to: Some("lab.sub".into()) }.into(),
        admin::QuotaSet { path: path(), bytes: Some(1 << 30), files: None }.into(),
        admin::QuotaShow { path: path() }.into(),
        admin::ScheduleRemove { path: path() }.into(),
        admin::ScheduleSet { path: below("d"), interval_secs: 3600, keep: "3h".into() }.into(),
        admin::SnapCreate { path: path(), name: "t".into() }.into(),
        admin::SnapDiff { path: path(), from: "s".into(), to: None }.into(),
        admin::SnapList { path: Some(path()), volume: None }.into(),
        admin::SnapRemove { path: path(), name: "s".into() }.into(),
        admin::SnapRename { path: path(), name: "s".into(), to: "t".into() }.into(),
        admin::SnapRestore { path: path(), name: "s".into(), what: "d".into(), to: None, in_place: true }
            .into(),
        admin::SnapUsageList { volume: Some(name()) }.into(),
        admin::UsageShow { path: path() }.into(),
        admin::VolumeAllow { name: name(), users: vec![EVE], groups: Vec::new(), allow: true }.into(),
        admin::VolumeCreate { name: named("v"), at: below("v"), uid: BOB, gid: BOB, pool: None }.into(),
        admin::VolumeRemove { name: name() }.into(),
        admin::VolumeRename { name: name(), to: named("renamed") }.into(),
        admin::VolumeSet { name: name(), set: bin }.into(),
        admin::VolumeShow { name: name() }.into(),
    ]
}

/// Requests about what the asker is, or all.
pub fn about_none(asker: &Asking) -> Vec<AnyRequest> {
    // of an operator it is alice's
    let own = if asker.uid == 0 { "alice" } else { asker.name };
    let lab = || "carol:lab".to_string();
    let by = || None;
    vec![
        admin::BinList { path: None, newest: None }.into(),
        admin::BucketList.into(),
        admin::DfShow.into(),
        admin::GroupAdd { name: lab(), members: vec!["eve".into()], by: by() }.into(),
        admin::GroupCreate { name: format!("{own}:new"), owner: None, gid: None, by: by() }.into(),
        admin::GroupDrop { name: lab(), members: vec!["alice".into()], by: by() }.into(),
        admin::GroupFind { key: GroupKey::User(own.into()) }.into(),
        admin::GroupLimit { user: own.into(), groups: None }.into(),
        admin::GroupList { of: None }.into(),
        admin::GroupRemove { name: "carol:spare".into(), by: by() }.into(),
        admin::GroupSet { name: lab(), owner: "alice".into(), by: by() }.into(),
        admin::GroupShow { name: lab() }.into(),
        admin::KeyCreate { user: own.into(), label: String::new(), host: None }.into(),
        admin::KeyList { user: Some(own.into()) }.into(),
        admin::KeyRevoke { user: own.into(), access_key_id: None }.into(),
        admin::OwnerUsage { volume: None, who: Vec::new(), limited: false }.into(),
        admin::ProjectList.into(),
        admin::ProjectRemove { name: "lab.sub".into() }.into(),
        admin::ProjectSet {
            name: "lab.sub".into(),
            budget: admin::Budget { bytes: Some(1 << 30), ..admin::Budget::default() },
            ..admin::ProjectSet::default()
        }
        .into(),
        admin::ProjectShow { name: "lab".into() }.into(),
        admin::QuotaList.into(),
        admin::ScheduleList.into(),
        admin::TokenMake {
            user: own.into(),
            path: "/".into(),
            activities: vec!["DOWNLOAD".into()],
            until_secs: 1,
            host: None,
        }
        .into(),
        admin::TokenRevoke { user: Some(own.into()) }.into(),
        admin::UsageReport {
            of: admin::Sampled::Volume,
            from: Day(0),
            to: None,
            only: Vec::new(),
            daily: false,
        }
        .into(),
        admin::UserCreate { name: own.into(), uid: None, gids: Vec::new() }.into(),
        admin::UserList.into(),
        admin::UserShow { name: own.into() }.into(),
        admin::VolumeList.into(),
    ]
}
