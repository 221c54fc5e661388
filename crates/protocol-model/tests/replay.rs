//! Replay by numbers: the protocol keeps its promises in each state, and each rule is needed.

use leeward_protocol_model::check::{fails, passes};
use leeward_protocol_model::replay::properties::{DURABLE, KEPT, ONCE, ORDERED, UNHARMED, UNSTUCK};
use leeward_protocol_model::replay::{Kind, OLD, Op, Replays, Rule};

const FILE: u8 = 0;

fn change(kind: Kind, name: u8) -> Op {
    Op { kind, name, under: None, slot: 0 }
}

fn create(name: u8) -> Op {
    change(Kind::Create, name)
}

fn second_slot(op: Op) -> Op {
    Op { slot: 1, ..op }
}

fn scripts(scripts: Vec<Vec<Op>>) -> Replays {
    Replays { scripts, crashes: 1, breaks: 0, deaths: 0, late: 0, aways: 0, without: &[] }
}

fn without(rule: &'static [Rule], model: Replays) -> Replays {
    Replays { without: rule, ..model }
}

/// Two clients append to one file.
fn both_append() -> Replays {
    let append = || vec![change(Kind::Append, OLD)];
    scripts(vec![append(), append()])
}

/// One client appends twice, in two slots; another empties the file.
fn one_appends_one_truncates() -> Replays {
    let append = change(Kind::Append, OLD);
    scripts(vec![vec![append, second_slot(append)], vec![change(Kind::Truncate, OLD)]])
}

/// One client writes a file and sets its attributes, another writes the same byte.
fn both_write() -> Replays {
    let write = change(Kind::Write(0), OLD);
    scripts(vec![vec![write, change(Kind::SetAttributes, OLD)], vec![write]])
}

/// One client makes a directory, another a file in it.
fn one_builds_on_the_other() -> Replays {
    let inside = Op { under: Some(FILE), ..create(1) };
    scripts(vec![vec![create(FILE)], vec![inside]])
}

/// Both make and remove one name.
fn both_change_one_name() -> Replays {
    let remove = change(Kind::Remove, FILE);
    scripts(vec![vec![create(FILE), remove], vec![remove]])
}

/// One client makes a file, another writes to it.
fn one_writes_to_a_file_of_the_other() -> Replays {
    scripts(vec![vec![create(FILE)], vec![change(Kind::Write(0), FILE)]])
}

/// One client makes a file and writes to it, another removes it.
fn one_removes_a_file_of_the_other() -> Replays {
    let writes = vec![create(FILE), change(Kind::Write(0), FILE)];
    scripts(vec![writes, vec![change(Kind::Remove, FILE)]])
}

/// One client appends to a file and makes a name, in one slot.
fn content_then_name() -> Replays {
    scripts(vec![vec![change(Kind::Append, OLD), create(FILE)]])
}

/// One client makes a name, and removes it in another slot.
fn two_slots() -> Replays {
    scripts(vec![vec![create(FILE), second_slot(change(Kind::Remove, FILE))]])
}

/// Two crashes, and one client may come too late.
fn late(model: Replays) -> Replays {
    Replays { crashes: 2, late: 1, ..model }
}

/// A client may be noted as away.
fn away(model: Replays) -> Replays {
    Replays { aways: 1, breaks: 1, ..model }
}

/// A client may die.
fn mortal(model: Replays) -> Replays {
    Replays { deaths: 1, ..model }
}

#[test]
fn content_of_one_file_is_that_of_the_order_that_was_told() {
    passes("both append", mortal(Replays { breaks: 1, ..both_append() }));
    passes("append and truncate", one_appends_one_truncates());
    passes("both write", both_write());
}

#[test]
fn names_are_what_was_told() {
    passes("one builds on the other", mortal(Replays { breaks: 1, ..one_builds_on_the_other() }));
    passes("both change one name", mortal(both_change_one_name()));
    passes("content, then a name", Replays { crashes: 2, breaks: 1, ..content_then_name() });
    passes("two slots", Replays { crashes: 2, breaks: 1, ..two_slots() });
}

#[test]
fn files_that_come_and_go_keep_what_was_told() {
    passes("one writes to a file of the other", mortal(one_writes_to_a_file_of_the_other()));
    passes("one removes a file of the other", mortal(one_removes_a_file_of_the_other()));
}

#[test]
fn a_second_crash_and_a_late_client_harm_nobody() {
    passes("late, content", late(both_append()));
    passes("late, names", late(one_builds_on_the_other()));
}

#[test]
fn a_client_that_is_away_loses_nothing() {
    passes("away", away(both_append()));
}

#[test]
fn without_replay_what_was_told_is_gone() {
    fails(KEPT, without(&[Rule::Replay], both_append()));
}

#[test]
fn numbers_that_begin_again_confuse_what_is_durable() {
    fails(KEPT, without(&[Rule::FreshNumbers], Replays { crashes: 2, ..both_append() }));
}

#[test]
fn a_committed_name_would_be_made_again() {
    fails(UNHARMED, without(&[Rule::RecordsByCommitted], one_builds_on_the_other()));
    fails(ONCE, without(&[Rule::RecordsByCommitted], both_write()));
}

#[test]
fn content_that_is_in_would_enter_again() {
    fails(ONCE, without(&[Rule::ContentByFile], both_append()));
}

#[test]
fn content_that_is_not_in_would_be_taken_for_committed() {
    fails(KEPT, without(&[Rule::ContentNotByCommitted], both_append()));
}

#[test]
fn a_connection_that_breaks_in_recovery_would_replay_twice() {
    fails(ONCE, without(&[Rule::ReplayOnce], Replays { breaks: 1, ..both_append() }));
}

#[test]
fn sessions_that_replay_side_by_side_overwrite_newer_content() {
    fails(ORDERED, without(&[Rule::MergedReplay], both_append()));
    fails(KEPT, without(&[Rule::MergedReplay], Replays { crashes: 2, ..both_append() }));
}

#[test]
fn requests_before_the_end_of_recovery_overtake_replays() {
    fails(ORDERED, without(&[Rule::ReplayBeforeNew], both_append()));
}

#[test]
fn an_append_that_is_replayed_at_the_end_is_not_where_it_was_told() {
    fails(KEPT, without(&[Rule::AppendAtOffset], mortal(both_append())));
}

#[test]
fn an_outcome_outside_the_transaction_lets_a_change_happen_twice() {
    fails(ONCE, without(&[Rule::OutcomeInTransaction], both_append()));
    fails(KEPT, without(&[Rule::OutcomeInTransaction], one_builds_on_the_other()));
}

#[test]
fn content_that_was_not_answered_is_lost_when_it_is_not_replayed_in_its_place() {
    fails(KEPT, without(&[Rule::UnansweredInPlace], both_append()));
}

#[test]
fn a_truncate_without_outcome_happens_again_after_what_was_durable() {
    let truncate = vec![change(Kind::Truncate, OLD)];
    let model = scripts(vec![truncate, both_append().scripts[0].clone()]);
    passes("truncate and append", model.clone());
    fails(ONCE, without(&[Rule::ContentHasOutcome], model));
}

#[test]
fn an_older_outcome_in_place_of_a_newer_one_makes_a_name_twice() {
    fails(KEPT, without(&[Rule::NewerOutcomeStays], content_then_name()));
}

#[test]
fn older_content_would_set_attributes_back() {
    fails(ORDERED, without(&[Rule::NewerAttributesStay], both_write()));
}

#[test]
fn a_replay_into_a_file_that_is_gone_would_harm_a_living_client() {
    fails(UNHARMED, without(&[Rule::GoneIsDone], one_removes_a_file_of_the_other()));
}

#[test]
fn without_commit_before_sharing_a_lost_answer_harms_another_client() {
    fails(UNHARMED, without(&[Rule::CommitBeforeSharing], one_builds_on_the_other()));
}

#[test]
fn content_in_a_file_whose_birth_is_not_durable_is_lost_with_the_answer_of_another() {
    fails(UNHARMED, without(&[Rule::BirthsBeforeContent], one_writes_to_a_file_of_the_other()));
}

#[test]
fn answers_out_of_order_leave_a_replay_without_what_it_builds_on() {
    fails(UNHARMED, without(&[Rule::AnswersInOrder], two_slots()));
}

#[test]
fn durable_told_during_recovery_is_a_lie() {
    fails(DURABLE, without(&[Rule::DurableAfterRecovery], both_append()));
}

#[test]
fn durable_told_before_content_is_in_is_a_lie() {
    fails(DURABLE, without(&[Rule::DurableCoversContent], both_append()));
}

#[test]
fn a_session_noted_as_away_too_early_loses_content() {
    fails(KEPT, without(&[Rule::AwayWhenDurable], away(both_append())));
}

#[test]
fn a_client_that_is_answered_before_it_is_durably_back_loses_what_it_was_told() {
    let model = away(scripts(vec![both_append().scripts[0].clone(); 1]));
    fails(KEPT, without(&[Rule::BackDurably], model));
}

#[test]
fn a_server_that_closes_nobody_waits_for_the_dead() {
    fails(UNSTUCK, without(&[Rule::Close], mortal(both_append())));
}

#[test]
fn a_session_closed_only_in_memory_comes_back_after_a_crash() {
    let both_create = scripts(vec![vec![create(FILE)], vec![create(FILE)]]);
    passes("late, one name", late(both_create.clone()));
    fails(UNHARMED, without(&[Rule::ClosedDurably], late(both_create)));
}

#[test]
fn a_session_closed_after_the_commit_of_others_is_taken_for_committed() {
    fails(KEPT, without(&[Rule::ClosedBeforeReplays], late(both_append())));
}

#[test]
fn content_that_enters_before_a_session_is_durably_closed_hides_what_that_was_told() {
    fails(KEPT, without(&[Rule::ClosedBeforeContent], late(both_append())));
}

#[test]
fn what_arrives_of_a_closed_session_must_be_refused() {
    fails(ORDERED, without(&[Rule::ClosedIsFinal], late(both_append())));
}

#[test]
#[ignore = "minutes, and gigabytes: for the night"]
fn larger_configurations() {
    let faulty = |model| mortal(Replays { breaks: 1, ..model });
    passes("append and truncate", faulty(one_appends_one_truncates()));
    passes("both write", faulty(both_write()));
    passes("one removes a file of the other", faulty(one_removes_a_file_of_the_other()));
    passes("away, with attributes", away(both_write()));
    passes("late, append and truncate", late(one_appends_one_truncates()));
    passes("late, made and removed", late(both_change_one_name()));
    let append = || vec![change(Kind::Append, OLD)];
    passes("three append", mortal(scripts(vec![append(), append(), append()])));
}
