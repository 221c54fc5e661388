//! What operators say about users and groups at the gate, and that it lasts.

use crate::rig::Rig;
use leeward_fs::flows::{UserOrGroup, WEIGHT_MAX};
use leeward_volume::admin::{self, FlowInfo};

fn weight(who: UserOrGroup, weight: u32) -> admin::FlowSet {
    admin::FlowSet { who, weight: Some(weight), ops_per_sec: None, bytes_per_sec: None }
}

fn told(rig: &Rig) -> Vec<FlowInfo> {
    rig.admin(&admin::FlowList).flows
}

#[test]
fn what_was_said_lasts_and_can_be_taken_back() {
    let mut rig = Rig::new();
    let (user, group) = (UserOrGroup::User(7), UserOrGroup::Group(7));
    rig.admin(&weight(group, 300));
    rig.admin(&weight(user, 50));
    let ceiling = admin::FlowSet { who: user, weight: None, ops_per_sec: Some(1000), bytes_per_sec: Some(0) };
    rig.admin(&ceiling);
    let expected = vec![
        FlowInfo { who: user, weight: Some(50), ops_per_sec: Some(1000), bytes_per_sec: Some(0) },
        FlowInfo { who: group, weight: Some(300), ops_per_sec: None, bytes_per_sec: None },
    ];
    assert_eq!(told(&rig), expected);
    rig.reopen();
    assert_eq!(told(&rig), expected);
    assert_eq!(rig.cell.flow_settings().in_force(7, &[7]).weight, 50);
    rig.admin(&admin::FlowReset { who: user });
    rig.reopen();
    assert_eq!(told(&rig), expected[1..]);
    assert_eq!(rig.cell.flow_settings().in_force(7, &[7]).weight, 300);
    for refused in [0, WEIGHT_MAX + 1] {
        let failure = rig.ask(&weight(user, refused)).expect_err("refused");
        assert_eq!(failure.errno, libc::EINVAL, "{failure}");
    }
    assert!(rig.findings().is_empty());
}
