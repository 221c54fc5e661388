//! Write-behind: the protocol keeps its promises in each state, and each rule is needed.

use leeward_protocol_model::behind::properties::{
    ALONE, CURRENT, FORETOLD, FRESH, KEPT, ONCE, ORDERED, SYNCED, UNHARMED, UNSTUCK, is_finished,
};
use leeward_protocol_model::behind::{Behind, Kind, Op, Program, Room, Rule};
use leeward_protocol_model::check::{ends_well, fails, passes};

/// A directory.
const D: u8 = 1;
/// An inode that is made in it, where nothing else is said.
const I: u8 = 2;
/// Another directory.
const E: u8 = 4;
/// One more.
const F: u8 = 8;

fn op(kind: Kind, inodes: u8) -> Op {
    Op { kind, inodes, makes: 0 }
}

fn make() -> Op {
    Op { makes: I, ..op(Kind::Names, D | I) }
}

fn names(inodes: u8) -> Op {
    op(Kind::Names, inodes)
}

fn attributes(inodes: u8) -> Op {
    op(Kind::Attributes, inodes)
}

fn read(inodes: u8) -> Op {
    op(Kind::Read, inodes)
}

fn sync(inodes: u8) -> Op {
    op(Kind::Sync, inodes)
}

/// A program of the first user of a client.
fn program(client: usize, script: &[Op]) -> Program {
    Program { client, user: 0, script: script.to_vec() }
}

fn of_second_user(program: Program) -> Program {
    Program { user: 1, ..program }
}

/// Clients that have W on these inodes from the start, and programs.
fn behind(alone: &[u8], programs: Vec<Program>) -> Behind {
    Behind {
        clients: alone.len(),
        old: D | E,
        alone: alone.to_vec(),
        programs,
        room: None,
        brisk: false,
        crashes: 0,
        breaks: 0,
        silences: 0,
        shares: 0,
        without: &[],
    }
}

fn without(rules: &'static [Rule], model: Behind) -> Behind {
    Behind { without: rules, ..model }
}

fn breaks(model: Behind) -> Behind {
    Behind { breaks: 1, ..model }
}

fn crashes(model: Behind) -> Behind {
    Behind { crashes: 1, ..model }
}

fn silent(model: Behind) -> Behind {
    Behind { silences: 1, ..model }
}

fn shares(model: Behind) -> Behind {
    Behind { shares: 1, ..model }
}

/// One client makes an inode and changes it, another looks it up.
fn one_makes_another_looks() -> Behind {
    behind(&[D, 0], vec![program(0, &[make(), attributes(I)]), program(1, &[read(D | I)])])
}

/// One client makes an inode and changes the directory, another reads that.
fn one_changes_names() -> Behind {
    behind(&[D, 0], vec![program(0, &[make(), names(D)]), program(1, &[read(D)])])
}

/// One client changes a directory twice, another once.
fn both_change() -> Behind {
    behind(&[D, 0], vec![program(0, &[attributes(D), attributes(D)]), program(1, &[attributes(D)])])
}

/// The same, and the other reads what it has.
fn both_change_and_one_reads() -> Behind {
    let programs = vec![program(0, &[attributes(D), attributes(D)]), program(1, &[attributes(D), read(D)])];
    behind(&[D, 0], programs)
}

/// One client changes names; another attributes, and then names.
fn one_changes_after_the_other() -> Behind {
    behind(&[0, 0], vec![program(0, &[names(D)]), program(1, &[attributes(D), names(D)])])
}

/// One client renames between two directories, another changes one of them and reads both.
fn one_renames() -> Behind {
    let renames = program(0, &[names(D | E), attributes(E)]);
    behind(&[D | E, 0], vec![renames, program(1, &[attributes(D), read(D | E)])])
}

/// Two users of one client change a directory.
fn two_users() -> Behind {
    let first = program(0, &[make(), names(D)]);
    behind(&[D], vec![first, of_second_user(program(0, &[attributes(D), read(D)]))])
}

/// One user of a client changes a directory, another reads it with one that the client has no copy
/// of.
fn another_user_reads() -> Behind {
    let reads = of_second_user(program(0, &[read(D | E)]));
    behind(&[D], vec![program(0, &[names(D)]), reads])
}

/// Two users of one client change a directory each, and another client reads both.
fn two_fifos() -> Behind {
    let second = of_second_user(program(0, &[attributes(E), read(D)]));
    behind(&[D | E, 0], vec![program(0, &[names(D)]), second, program(1, &[read(D | E)])])
}

/// Two programs of one user: one makes and changes, the other reads.
fn one_changes_and_reads() -> Behind {
    behind(&[D], vec![program(0, &[make(), attributes(D)]), program(0, &[read(D), read(D)])])
}

/// One reads what the client has copies of, together with what it has not.
fn one_reads_more() -> Behind {
    behind(&[D], vec![program(0, &[attributes(D)]), program(0, &[read(D | E), read(D)])])
}

/// One client changes a directory and syncs it, another changes it, too.
fn one_syncs() -> Behind {
    behind(&[D, 0], vec![program(0, &[attributes(D), sync(D)]), program(1, &[attributes(D)])])
}

/// Each of two clients has two directories, and renames from one of them to one of the other's.
fn both_rename() -> Behind {
    let of = |client, first, second, others| {
        let changes = program(client, &[attributes(first), attributes(second)]);
        [changes, program(client, &[attributes(first | others)])]
    };
    let programs = [of(0, D, I, F), of(1, E, F, I)].into_iter().flatten().collect();
    Behind { old: D | I | E | F, brisk: true, ..behind(&[D | I, E | F], programs) }
}

/// Each of two clients reads a directory of its own and one of the other's.
fn both_look() -> Behind {
    let of =
        |client, own| [program(client, &[attributes(own), attributes(own)]), program(client, &[read(D | E)])];
    Behind { brisk: true, ..behind(&[D, E], [of(0, D), of(1, E)].into_iter().flatten().collect()) }
}

/// Two clients change names, one of them for two users, and there is room for few.
fn little_room() -> Behind {
    let programs = vec![
        program(0, &[names(D), names(D)]),
        of_second_user(program(0, &[names(E)])),
        program(1, &[names(F), names(F)]),
    ];
    let room = Some(Room { limit: 4, margin: 2, bound: 1 });
    Behind { room, old: D | E | F, brisk: true, ..behind(&[D, F], programs) }
}

#[test]
fn what_is_predicted_happens_whatever_breaks() {
    passes("makes, looks; break, crash", breaks(crashes(one_makes_another_looks())));
    passes("both change; two crashes", Behind { crashes: 2, ..both_change() });
    passes("renames; crash", crashes(one_renames()));
    passes("names; break, crash", breaks(crashes(one_changes_names())));
    passes("syncs; break, crash", breaks(crashes(one_syncs())));
}

#[test]
fn a_silent_client_harms_nobody() {
    passes("makes, looks; silent", silent(one_makes_another_looks()));
    passes("both change; break, silent", breaks(silent(both_change())));
    passes("both change; crash, silent", crashes(silent(both_change())));
    passes("one after the other; crash, silent", crashes(silent(one_changes_after_the_other())));
    passes("syncs; crash, silent", crashes(silent(one_syncs())));
}

#[test]
fn users_of_one_client_do_not_disturb_each_other() {
    passes("two users; break, crash", breaks(crashes(two_users())));
    passes("two fifos; crash", crashes(two_fifos()));
    passes("changes and reads; break, crash", breaks(crashes(one_changes_and_reads())));
    passes("reads more; break", breaks(one_reads_more()));
}

#[test]
fn each_run_ends() {
    let check = |name, model: Behind| ends_well(name, &model, |state| is_finished(&model, state));
    check("both change", breaks(both_change_and_one_reads()));
    check("makes, looks", crashes(one_makes_another_looks()));
    check("syncs", silent(one_syncs()));
}

#[test]
fn without_recalls_others_read_what_is_old() {
    fails(FRESH, without(&[Rule::RecallFirst], one_makes_another_looks()));
}

#[test]
fn a_grant_that_a_recall_overtook_is_used() {
    fails(CURRENT, without(&[Rule::RecallVoids], both_change_and_one_reads()));
    fails(ALONE, without(&[Rule::RecallVoids], both_change_and_one_reads()));
}

#[test]
fn a_lease_granted_while_somebody_waits_is_given_back_unknowingly() {
    fails(ALONE, without(&[Rule::NoneWhileAsked], both_change_and_one_reads()));
}

#[test]
fn what_is_made_behind_is_read_and_changed_before_its_maker_is_asked() {
    fails(FRESH, without(&[Rule::MadeIsAlone], one_makes_another_looks()));
}

#[test]
fn a_lease_on_what_is_not_durable_of_another_client_builds_on_what_may_be_lost() {
    let model = crashes(silent(one_changes_after_the_other()));
    fails(FORETOLD, without(&[Rule::GrantOnCommitted], model));
}

#[test]
fn a_fifo_out_of_order_does_something_else() {
    fails(UNHARMED, without(&[Rule::Fifo], one_makes_another_looks()));
    fails(FORETOLD, without(&[Rule::Fifo], one_changes_names()));
}

#[test]
fn a_read_beside_the_fifo_overtakes_what_was_predicted() {
    fails(FRESH, without(&[Rule::ReadsInOrder], one_reads_more()));
    fails(SYNCED, without(&[Rule::ReadsInOrder], one_syncs()));
}

#[test]
fn another_user_overtakes_what_was_predicted() {
    fails(FORETOLD, without(&[Rule::OtherUserWaits], two_users()));
    fails(FRESH, without(&[Rule::OtherUserWaits], another_user_reads()));
}

#[test]
fn reads_that_hold_a_fifo_while_they_wait_for_recalls_deadlock() {
    fails(UNSTUCK, without(&[Rule::ReadsHoldNothing], both_look()));
}

#[test]
fn predicted_changes_behind_one_that_waits_for_recalls_deadlock() {
    fails(UNSTUCK, without(&[Rule::ChangesWait, Rule::NothingAfterInOrder], both_rename()));
}

#[test]
fn a_client_that_predicts_over_its_own_change_guesses() {
    fails(FORETOLD, without(&[Rule::OwnChangeVoids], two_users()));
}

#[test]
fn a_read_from_before_a_prediction_sets_the_copy_back() {
    fails(CURRENT, without(&[Rule::PredictionVoidsReads], one_reads_more()));
}

/// What has W was never taken from it: no term has ended, and a recall was answered after all
/// changes.
#[test]
fn a_look_at_w_or_at_the_term_is_enough_until_a_crash() {
    passes("no look at W; silent", silent(without(&[Rule::AloneOrRefused], both_change())));
    passes("no look at the term; silent", silent(without(&[Rule::SameTerm], both_change())));
    fails(ORDERED, silent(without(&[Rule::AloneOrRefused, Rule::SameTerm], both_change())));
}

/// Its refusal is lost with the connection, and in no slot.
#[test]
fn a_change_that_was_refused_runs_when_a_change_behind_it_got_w_again() {
    let model = breaks(silent(without(&[Rule::ChangesWait, Rule::SameTerm], both_change())));
    fails(ORDERED, model);
}

#[test]
fn a_change_whose_refusal_was_lost_with_the_server_runs_after_the_crash() {
    fails(ORDERED, crashes(silent(without(&[Rule::SameTermAfterCrash], both_change()))));
}

#[test]
fn a_recall_that_is_answered_too_early_shows_what_is_old() {
    fails(FRESH, without(&[Rule::AnswersFirst], one_makes_another_looks()));
    fails(UNHARMED, without(&[Rule::AnswersFirst], one_makes_another_looks()));
}

#[test]
fn a_connection_that_breaks_makes_changes_twice() {
    fails(ONCE, breaks(without(&[Rule::Once], one_makes_another_looks())));
}

#[test]
fn a_fifo_sent_again_in_another_order_does_something_else() {
    fails(UNHARMED, breaks(without(&[Rule::SentAgainInOrder], one_makes_another_looks())));
    fails(FORETOLD, breaks(without(&[Rule::SentAgainInOrder], one_changes_names())));
}

#[test]
fn after_a_crash_nobody_has_w_and_what_was_predicted_would_be_refused() {
    fails(UNHARMED, crashes(without(&[Rule::BehindAfterCrash], one_makes_another_looks())));
}

#[test]
fn what_was_predicted_would_run_before_what_it_builds_on() {
    fails(FORETOLD, crashes(without(&[Rule::ToldFirst], one_changes_names())));
}

#[test]
fn a_request_before_the_end_of_recovery_overtakes_what_was_predicted() {
    fails(ORDERED, crashes(without(&[Rule::BehindBeforeRequests], both_change())));
    fails(FRESH, crashes(without(&[Rule::BehindBeforeRequests], one_makes_another_looks())));
}

#[test]
fn what_ran_after_a_crash_would_run_again_after_the_next_over_what_was_told_since() {
    let model = Behind { crashes: 2, ..both_change() };
    fails(ORDERED, without(&[Rule::DurableBeforeRequests], model));
}

#[test]
fn a_connection_that_breaks_in_recovery_loses_what_was_predicted() {
    fails(UNHARMED, breaks(crashes(without(&[Rule::CaughtUpStays], both_change()))));
}

#[test]
fn a_lease_taken_before_that_is_durable_is_forgotten_in_a_crash() {
    fails(ORDERED, crashes(silent(without(&[Rule::AwayBeforeTaken], both_change()))));
}

#[test]
fn what_runs_between_note_and_taking_is_lost_or_refused_too_early() {
    fails(FRESH, silent(without(&[Rule::AwayRunsNothing], one_makes_another_looks())));
    fails(KEPT, crashes(silent(without(&[Rule::AwayRunsNothing], both_change()))));
}

#[test]
fn a_client_that_predicts_before_it_is_durably_back_loses_it() {
    fails(UNHARMED, crashes(silent(without(&[Rule::BackDurably], both_change()))));
    fails(KEPT, crashes(silent(without(&[Rule::BackDurably], both_change()))));
}

#[test]
fn a_client_that_goes_on_with_its_leases_after_a_crash_is_refused() {
    fails(ALONE, crashes(without(&[Rule::NewProcessVoids], both_change())));
    fails(UNHARMED, crashes(without(&[Rule::NewProcessVoids], one_makes_another_looks())));
}

#[test]
fn a_client_that_keeps_what_was_taken_uses_what_is_old() {
    fails(CURRENT, silent(without(&[Rule::TakenVoids], both_change())));
}

#[test]
fn a_client_that_is_silent_and_goes_on_uses_what_is_old() {
    fails(CURRENT, silent(without(&[Rule::InTime], both_change())));
}

#[test]
fn what_a_client_shares_is_current() {
    passes("makes, looks; shares, crash", shares(crashes(one_makes_another_looks())));
    passes("both change, one reads; shares, break", shares(breaks(both_change_and_one_reads())));
}

#[test]
fn a_client_that_shares_too_early_shows_what_is_old_or_is_refused() {
    fails(FRESH, shares(without(&[Rule::ShareAfterAnswers], one_makes_another_looks())));
    fails(UNHARMED, shares(without(&[Rule::ShareAfterAnswers], one_makes_another_looks())));
}

#[test]
fn a_client_that_shares_may_not_take_the_lease_from_an_older_answer() {
    fails(ALONE, shares(without(&[Rule::ShareVoids], both_change_and_one_reads())));
}

#[test]
fn an_fsync_answered_before_what_was_predicted_promises_too_much() {
    fails(SYNCED, without(&[Rule::SyncAnsweredInOrder], one_syncs()));
}

#[test]
fn what_was_predicted_has_room() {
    passes("little room", little_room());
}

#[test]
fn a_margin_that_is_smaller_than_what_clients_may_predict_is_too_small() {
    let room = |margin, bound| Some(Room { limit: 4, margin, bound });
    fails(FORETOLD, Behind { room: room(1, 1), ..little_room() });
    fails(FORETOLD, Behind { room: room(2, 2), ..little_room() });
    fails(FORETOLD, without(&[Rule::Bounded], little_room()));
}

#[test]
fn who_comes_near_the_limit_must_recall_w_and_grant_none() {
    fails(FORETOLD, without(&[Rule::GrantWithRoom], little_room()));
    fails(FORETOLD, without(&[Rule::NearRecallsAll], little_room()));
    fails(FORETOLD, without(&[Rule::NearRecallsOwn], little_room()));
}

#[test]
fn predicted_changes_near_the_limit_must_end_the_predicting_in_time() {
    fails(FORETOLD, without(&[Rule::NearAsks], little_room()));
    fails(FORETOLD, without(&[Rule::RecallBeforeAnswers], little_room()));
}

/// All that may go wrong once.
fn faulty(model: Behind) -> Behind {
    breaks(crashes(silent(model)))
}

#[test]
#[ignore = "minutes, and gigabytes: for the night"]
fn larger_configurations() {
    passes("both rename", both_rename());
    passes("both rename, in FIFOs", without(&[Rule::ChangesWait], both_rename()));
    let in_fifos = without(&[Rule::ChangesWait], both_change());
    passes("both change, in FIFOs; all faults", faulty(in_fifos));
    passes("no look at W; all faults", faulty(without(&[Rule::AloneOrRefused], both_change())));
    passes("no look at the term; break, silent", breaks(silent(without(&[Rule::SameTerm], both_change()))));
    passes("both look", both_look());
    passes("names; all faults", faulty(one_changes_names()));
    passes("both change; all faults", faulty(both_change()));
    passes("makes, looks; all faults", faulty(one_makes_another_looks()));
    passes("renames; crash, silent", crashes(silent(one_renames())));
    passes("both change and one reads; crash, silent", crashes(silent(both_change_and_one_reads())));
    passes("two fifos; crash, silent", crashes(silent(two_fifos())));
    passes("shares; crash, silent", shares(crashes(silent(one_makes_another_looks()))));
    passes("little room; crash", Behind { brisk: false, ..crashes(little_room()) });
}

#[test]
#[ignore = "minutes, and gigabytes: for the night"]
fn three_clients_and_two_of_a_fault() {
    let third = program(2, &[read(D | I)]);
    let mut model = behind(&[D, 0, 0], one_makes_another_looks().programs);
    model.programs.push(third);
    passes("three, one makes; crash", crashes(model));
    let mut model = behind(&[D, 0, 0], both_change().programs);
    model.programs.push(program(2, &[names(D)]));
    passes("three change; crash", crashes(model.clone()));
    passes("three change; silent", silent(model));
    passes("both change; two crashes, silent", Behind { crashes: 2, ..silent(both_change()) });
    passes("both change; crash, two silences", Behind { silences: 2, ..crashes(both_change()) });
}
