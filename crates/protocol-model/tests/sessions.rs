//! The rules of sessions: the protocol keeps its promises in each state, and each rule is needed.

use leeward_protocol_model::check::{fails, passes};
use leeward_protocol_model::sessions::properties::{
    DESERVED, DURABLE, GROUNDED, KEPT, ONCE, ORDERED, UNHARMED, UNSTUCK,
};
use leeward_protocol_model::sessions::{Kind, Op, Rule, Sessions};

fn create(name: u8, under: Option<u8>, slot: u8) -> Op {
    Op { kind: Kind::Create, name, under, slot }
}

fn remove(name: u8, under: Option<u8>) -> Op {
    Op { kind: Kind::Remove, name, under, slot: 0 }
}

/// A client makes a directory and a file beside it, in two slots; another makes a file in it.
fn one_builds_on_the_other() -> Sessions {
    Sessions {
        scripts: vec![vec![create(0, None, 0), create(1, None, 1)], vec![create(2, Some(0), 0)]],
        crashes: 1,
        breaks: 1,
        deaths: 1,
        late: 0,
        aways: 0,
        commit_before_sharing: true,
        without: &[],
    }
}

/// Two clients make and remove the same name.
fn both_change_one_name() -> Sessions {
    let scripts = vec![vec![create(0, None, 0), remove(0, None)], vec![remove(0, None)]];
    Sessions { scripts, ..one_builds_on_the_other() }
}

/// One client makes a directory with a file and removes the file, another removes the directory.
fn one_empties_what_the_other_removes() -> Sessions {
    let first = vec![create(0, None, 0), create(1, Some(0), 0), remove(1, Some(0))];
    Sessions { scripts: vec![first, vec![remove(0, None)]], breaks: 0, ..one_builds_on_the_other() }
}

/// One client makes a directory, and two make files in it.
fn two_build_on_one() -> Sessions {
    let scripts = vec![vec![create(0, None, 0)], vec![create(1, Some(0), 0)], vec![create(2, Some(0), 0)]];
    Sessions { scripts, breaks: 0, commit_before_sharing: false, ..one_builds_on_the_other() }
}

/// One client makes three names one after the other, in two slots.
fn one_client() -> Sessions {
    let scripts = vec![vec![create(0, None, 0), create(1, None, 1), create(2, None, 0)]];
    Sessions { scripts, deaths: 0, ..one_builds_on_the_other() }
}

#[test]
fn each_change_happens_once_and_what_was_told_is_kept() {
    passes("one builds on the other", one_builds_on_the_other());
    passes("both change one name", both_change_one_name());
    passes("one empties, the other removes", one_empties_what_the_other_removes());
}

#[test]
fn a_second_crash_in_the_middle_of_recovery_changes_nothing() {
    passes("one client, two crashes", Sessions { crashes: 2, ..one_client() });
}

#[test]
fn a_client_that_is_late_is_told_and_harms_nobody() {
    passes("late", Sessions { late: 1, deaths: 0, breaks: 0, crashes: 2, ..both_change_one_name() });
}

/// A client may be noted as away, and comes back before or after a crash.
fn away() -> Sessions {
    Sessions { aways: 1, deaths: 0, ..both_change_one_name() }
}

#[test]
fn recovery_that_does_not_wait_for_a_client_that_is_away_harms_nobody() {
    passes("away", away());
}

#[test]
fn a_client_that_is_answered_before_it_is_durably_back_loses_what_it_was_told() {
    fails(UNHARMED, without(&[Rule::BackDurably], Sessions { crashes: 1, ..away() }));
}

#[test]
fn without_commit_before_sharing_only_what_built_on_a_dead_clients_change_is_lost() {
    passes("versions", Sessions { commit_before_sharing: false, ..one_builds_on_the_other() });
    passes("versions, three clients", two_build_on_one());
}

/// The configuration without one rule.
fn without(rules: &'static [Rule], model: Sessions) -> Sessions {
    Sessions { without: rules, ..model }
}

#[test]
fn an_outcome_outside_the_transaction_lets_a_change_happen_twice() {
    fails(ONCE, without(&[Rule::OutcomeInTransaction], both_change_one_name()));
}

#[test]
fn an_outcome_outside_the_transaction_refuses_what_was_done() {
    fails(KEPT, without(&[Rule::OutcomeInTransaction], one_client()));
}

#[test]
fn a_late_duplicate_happens_again_when_neither_slot_nor_connection_keeps_it_out() {
    let rules = &[Rule::NumberOutlivesOutcome, Rule::DropOldConnection];
    fails(ONCE, without(rules, both_change_one_name()));
}

#[test]
fn a_refused_request_is_in_no_slot_so_its_late_duplicate_happens_on_an_old_connection() {
    fails(KEPT, without(&[Rule::DropOldConnection], both_change_one_name()));
}

#[test]
fn without_a_slots_number_a_replay_does_not_see_that_its_change_is_there() {
    fails(UNHARMED, without(&[Rule::NumberOutlivesOutcome], both_change_one_name()));
    let unchecked = &[Rule::NumberOutlivesOutcome, Rule::VersionCheck];
    fails(ONCE, without(unchecked, both_change_one_name()));
}

#[test]
fn without_replay_what_was_told_is_gone() {
    fails(KEPT, without(&[Rule::Replay], one_client()));
}

#[test]
fn a_replay_without_the_recorded_outcome_gives_another_inode_number() {
    fails(KEPT, without(&[Rule::RecordedOutcome], one_client()));
}

#[test]
fn a_replay_out_of_order_takes_older_changes_for_done() {
    fails(KEPT, without(&[Rule::ReplayInOrder], one_client()));
}

#[test]
fn numbers_that_are_given_out_again_confuse_what_is_durable() {
    fails(DURABLE, without(&[Rule::FreshNumbers], one_builds_on_the_other()));
}

#[test]
fn new_requests_before_the_replay_is_over_harm_a_living_client() {
    fails(UNHARMED, without(&[Rule::ReplayBeforeNew], both_change_one_name()));
}

#[test]
fn a_server_that_gives_nobody_up_waits_for_the_dead() {
    fails(UNSTUCK, without(&[Rule::GiveUp], both_change_one_name()));
}

#[test]
fn a_session_given_up_only_in_memory_comes_back_after_a_crash_and_harms_others() {
    let model = Sessions { late: 1, deaths: 0, breaks: 0, crashes: 2, ..both_change_one_name() };
    fails(UNHARMED, without(&[Rule::GivenUpDurably], model));
}

#[test]
fn what_arrives_late_of_a_session_that_was_given_up_must_be_refused() {
    fails(DESERVED, without(&[Rule::GivenUpIsFinal], both_change_one_name()));
}

#[test]
fn a_watermark_in_the_middle_of_recovery_lies() {
    fails(DURABLE, without(&[Rule::WatermarkAfterReplay], one_builds_on_the_other()));
}

#[test]
fn a_watermark_before_the_replay_of_a_new_connection_lies_about_what_was_lost() {
    let model = Sessions { commit_before_sharing: false, ..one_builds_on_the_other() };
    fails(DURABLE, without(&[Rule::WatermarkAfterReplayOfConnection], model));
}

#[test]
fn a_replay_that_checks_no_version_builds_on_what_is_gone() {
    let model = Sessions { commit_before_sharing: false, ..one_builds_on_the_other() };
    fails(GROUNDED, without(&[Rule::VersionCheck], model));
    let one_name = Sessions { commit_before_sharing: false, ..both_change_one_name() };
    fails(ORDERED, without(&[Rule::VersionCheck], one_name));
}

#[test]
fn a_replay_that_does_not_wait_for_the_version_it_needs_fails_for_nothing() {
    let model = Sessions { commit_before_sharing: false, ..one_builds_on_the_other() };
    fails(DESERVED, without(&[Rule::WaitForVersion], model));
}

#[test]
fn replays_that_wait_for_all_others_wait_for_each_other() {
    fails(UNSTUCK, without(&[Rule::WaitForOlderOnly], two_build_on_one()));
}

#[test]
fn without_commit_before_sharing_a_lost_reply_alone_harms_another_client() {
    let model = Sessions { commit_before_sharing: false, deaths: 0, ..one_builds_on_the_other() };
    fails(UNHARMED, model);
}

#[test]
fn a_directory_removed_before_it_is_durably_empty_is_removed_with_a_file_in_it() {
    fails(GROUNDED, without(&[Rule::EmptinessIsShared], one_empties_what_the_other_removes()));
}

#[test]
fn with_commit_before_sharing_no_replay_needs_a_version() {
    passes("no versions", without(&[Rule::VersionCheck], one_builds_on_the_other()));
    passes("no versions, emptied", without(&[Rule::VersionCheck], one_empties_what_the_other_removes()));
    passes("no versions, one name", without(&[Rule::VersionCheck], both_change_one_name()));
}

#[test]
#[ignore = "minutes, and up to 2 GB: for the night"]
fn larger_configurations() {
    passes("two crashes, two breaks", Sessions { crashes: 2, breaks: 2, ..both_change_one_name() });
    passes("building, two crashes", Sessions { crashes: 2, late: 1, ..one_builds_on_the_other() });
    let three = Sessions { breaks: 1, crashes: 2, commit_before_sharing: true, ..two_build_on_one() };
    passes("three clients", three);
}
