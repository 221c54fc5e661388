//! Recalls of names and the kernel's locks: which ways end in a deadlock, and which do not.

use leeward_protocol_model::check::{ends_well, fails, passes};
use leeward_protocol_model::names::properties::{CURRENT, UNHARMED, UNSTUCK};
use leeward_protocol_model::names::{Names, Way};

/// Two machines, each with a program that makes `changes` files in the same directory.
fn storm(changes: usize, way: Way) -> Names {
    let program = vec![vec![0]; changes];
    Names { scripts: vec![vec![program.clone()], vec![program]], way }
}

/// Two machines, each with a program that renames from one directory to the other and one that
/// makes a file. Their kernels lock the two directories in different order.
fn crossing_renames(way: Way) -> Names {
    let first = vec![vec![vec![0, 1]], vec![vec![1]]];
    let second = vec![vec![vec![1, 0]], vec![vec![0]]];
    Names { scripts: vec![first, second], way }
}

/// One machine renames between two directories, the other makes files in both.
fn rename_against_creates(way: Way) -> Names {
    Names { scripts: vec![vec![vec![vec![0, 1]]], vec![vec![vec![0], vec![1], vec![0]]]], way }
}

fn holds_everywhere(way: Way) {
    for (name, model) in [
        ("storm", storm(2, way)),
        ("crossing renames", crossing_renames(way)),
        ("rename against creates", rename_against_creates(way)),
    ] {
        passes(name, model.clone());
        ends_well(name, &model, |state| model.is_done(state));
    }
}

#[test]
fn names_made_void_by_the_epoch_need_no_lock_and_each_run_ends() {
    holds_everywhere(Way::Epoch);
}

#[test]
fn a_recall_answered_when_time_outs_have_run_out_needs_no_lock_and_each_run_ends() {
    holds_everywhere(Way::TimeOut);
}

#[test]
fn two_creates_in_one_directory_deadlock_when_a_recall_waits_for_the_lock() {
    fails(UNSTUCK, storm(1, Way::Invalidate));
}

#[test]
fn a_request_that_is_bounced_again_fails_because_the_kernel_tries_only_once_more() {
    fails(UNHARMED, storm(2, Way::Bounce));
}

#[test]
fn sharing_after_a_bounce_does_not_help_because_the_second_try_may_take_the_lock_first() {
    fails(UNHARMED, storm(2, Way::BounceThenShare));
}

#[test]
fn bouncing_does_not_help_against_a_lock_whose_holder_has_sent_nothing_yet() {
    fails(UNSTUCK, crossing_renames(Way::BounceThenShare));
}

#[test]
fn a_time_out_that_counts_only_behind_a_known_request_deadlocks_in_the_same_way() {
    fails(UNSTUCK, crossing_renames(Way::TimeOutBehindKnown));
}

#[test]
fn a_time_out_that_does_not_wait_for_answers_on_their_way_leaves_old_names() {
    fails(CURRENT, storm(1, Way::TimeOutOverLookUps));
}

#[test]
fn an_answer_that_is_entered_with_the_new_epoch_leaves_old_names() {
    fails(CURRENT, storm(1, Way::EpochReadLate));
}

#[test]
fn a_recall_answered_while_the_kernel_knows_the_names_leaves_old_names() {
    fails(CURRENT, storm(1, Way::Nothing));
}

#[test]
#[ignore = "minutes, and up to 2 GB: for the night"]
fn larger_configurations() {
    for way in [Way::Epoch, Way::TimeOut] {
        passes("longer storm", storm(4, way));
        let three = vec![vec![vec![vec![0]; 2]]; 3];
        passes("three machines", Names { scripts: three, way });
        let busy = vec![vec![vec![vec![0, 1]; 2], vec![vec![1]]], vec![vec![vec![1, 0]; 2], vec![vec![0]]]];
        passes("more renames", Names { scripts: busy, way });
    }
}
