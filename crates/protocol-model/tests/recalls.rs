//! The rules of grants and recalls: copies are current in each state, and each rule is needed.

use leeward_protocol_model::check::{ends_well, fails, passes_symmetric};
use leeward_protocol_model::recalls::properties::{ANSWERS, CURRENT, UNSTUCK};
use leeward_protocol_model::recalls::{Recalls, Rule};

const TWO: Recalls = Recalls { clients: 2, reads: 1, writes: 2, releases: 1, without: &[] };
const THREE: Recalls = Recalls { clients: 3, reads: 1, writes: 1, releases: 0, without: &[] };

fn without(rule: &'static [Rule], model: Recalls) -> Recalls {
    Recalls { without: rule, ..model }
}

#[test]
fn copies_of_two_clients_are_current() {
    passes_symmetric("two clients", TWO);
}

#[test]
fn each_run_ends_with_nobody_waiting() {
    let model = Recalls { writes: 1, ..TWO };
    ends_well("two clients", &model, |state| state.is_quiet());
}

#[test]
fn copies_of_three_clients_are_current() {
    passes_symmetric("three clients", THREE);
}

#[test]
fn a_conflict_that_does_not_wait_for_its_recalls_leaves_old_copies() {
    fails(CURRENT, without(&[Rule::RecallBeforeConflict], TWO));
}

#[test]
fn a_grant_that_a_recall_overtakes_must_be_void() {
    fails(CURRENT, without(&[Rule::RecallVoidsGrantsUnderWay], TWO));
}

#[test]
fn a_lease_granted_while_a_write_waits_for_recalls_is_old_at_once() {
    fails(CURRENT, without(&[Rule::NothingNewMeanwhile], THREE));
}

#[test]
fn a_read_that_waits_behind_a_write_keeps_the_pages_locked_that_the_write_recalls() {
    fails(UNSTUCK, without(&[Rule::ReadsDoNotQueue], TWO));
}

#[test]
fn an_answer_to_a_recall_before_the_flush_was_answered_lets_others_read_the_old_value() {
    fails(ANSWERS, without(&[Rule::FlushBeforeAnswer], TWO));
}

#[test]
fn a_release_without_its_number_takes_back_a_newer_grant() {
    fails(CURRENT, without(&[Rule::ReleaseNamesItsGrant], TWO));
}

#[test]
fn a_client_that_keeps_its_copy_while_it_writes_reads_what_others_no_longer_see() {
    fails(CURRENT, without(&[Rule::OwnCopyGoesFirst], TWO));
}

#[test]
fn a_read_that_weakens_w_lets_the_client_write_a_copy_that_others_share() {
    fails(CURRENT, without(&[Rule::GrantNeverWeakens], TWO));
}

#[test]
#[ignore = "minutes, and up to 2 GB: for the night"]
fn larger_configurations() {
    passes_symmetric("two clients, more", Recalls { reads: 2, writes: 3, releases: 1, ..TWO });
    passes_symmetric("three clients, releases", Recalls { releases: 1, ..THREE });
    passes_symmetric("three clients, two writes", Recalls { writes: 2, ..THREE });
}
