//! Leases without numbers: copies are current in each state, and each rule is needed.

use leeward_protocol_model::check::{ends_well, fails, passes_symmetric};
use leeward_protocol_model::copies::{CURRENT, Copies, Rule};

const TWO: Copies = Copies { clients: 2, reads: 2, changes: 1, forgets: 1, without: &[] };

fn without(rule: &'static [Rule]) -> Copies {
    Copies { without: rule, ..TWO }
}

#[test]
fn copies_of_two_clients_are_current() {
    passes_symmetric("two clients, who read", Copies { reads: 3, forgets: 0, ..TWO });
    passes_symmetric("two clients, who change", Copies { reads: 1, changes: 2, ..TWO });
}

#[test]
fn copies_of_three_clients_are_current() {
    passes_symmetric("three clients", Copies { clients: 3, reads: 1, changes: 1, forgets: 0, without: &[] });
}

#[test]
fn each_run_ends_with_nobody_waiting() {
    let model = Copies { reads: 1, ..TWO };
    ends_well("two clients", &model, |state| state.is_quiet());
}

#[test]
fn a_change_that_does_not_wait_leaves_old_copies() {
    fails(CURRENT, without(&[Rule::RecallFirst]));
}

#[test]
fn a_read_that_a_recall_overtakes_must_not_be_kept() {
    fails(CURRENT, without(&[Rule::RecallVoids]));
}

#[test]
fn who_is_asked_for_a_lease_would_keep_an_answer_from_before() {
    fails(CURRENT, without(&[Rule::NoneWhileAsked]));
}

#[test]
fn a_slow_answer_would_carry_the_grant_of_a_later_one() {
    // one that is recalled, one that runs before it is given back, one that gets the next
    fails(CURRENT, Copies { reads: 3, forgets: 0, ..without(&[Rule::GrantWhenRun]) });
}

#[test]
fn a_client_would_keep_what_its_own_change_made_old() {
    fails(CURRENT, without(&[Rule::OwnChangeVoids]));
}

#[test]
fn a_lease_that_went_with_the_last_reference_would_be_used() {
    fails(CURRENT, without(&[Rule::ForgetVoids]));
}

#[test]
#[ignore = "minutes: for the night"]
fn larger_configurations() {
    passes_symmetric("two clients", TWO);
    passes_symmetric("two clients, more", Copies { reads: 3, changes: 2, forgets: 1, ..TWO });
    passes_symmetric("three clients, more", Copies { clients: 3, ..TWO });
}
