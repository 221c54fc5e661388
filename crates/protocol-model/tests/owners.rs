//! Several servers: in each state one of them speaks for a shard, nothing that was acknowledged is
//! lost, and each rule is needed.

use leeward_protocol_model::check::{ends_well, fails, passes, runs_end};
use leeward_protocol_model::owners::properties::{
    COPIES, CURRENT, FEW_SWAPS, KEPT, ONCE, ONE_ANSWERS, ONE_COMMITS, is_finished,
};
use leeward_protocol_model::owners::{Counts, Op, Owners, Rule, Script, Times};

const NONE: Counts = Counts { freezes: 0, crashes: 0, suspicions: 0, moves: 0, lost_puts: 0, silences: 0 };
const FREEZE: Counts = Counts { freezes: 1, ..NONE };
const FREEZE_AND_CRASH: Counts = Counts { crashes: 1, ..FREEZE };
const SILENCE: Counts = Counts { silences: 1, ..NONE };
const MOVE: Counts = Counts { moves: 1, ..NONE };
const LOST_MOVE: Counts = Counts { lost_puts: 1, ..MOVE };

/// Sessions.
const WRITER: Script = Script { shard: 0, session: true, ops: &[Op::Write(0)] };
const SESSION_READER: Script = Script { shard: 0, session: true, ops: &[Op::Read] };
/// Users of doors.
const DOOR_WRITER: Script = Script { shard: 0, session: false, ops: &[Op::Write(1)] };
const READER: Script = Script { shard: 0, session: false, ops: &[Op::Read] };

const DOORS: &[Script] = &[DOOR_WRITER, READER];
const BOTH: &[Script] = &[WRITER, READER];

/// Server 0, the owner, may fail; server 1 does not.
fn two(clients: &[Script], limits: Counts) -> Owners {
    let clients = clients.to_vec();
    Owners { servers: 2, faulty: 1, shards: 1, clients, times: None, limits, without: &[] }
}

/// Two of three may fail.
fn three(clients: &[Script], limits: Counts) -> Owners {
    Owners { servers: 3, faulty: 2, ..two(clients, limits) }
}

fn two_shards(limits: Counts) -> Owners {
    Owners { shards: 2, ..two(&[WRITER, Script { shard: 1, ..READER }], limits) }
}

/// Shorter times than the protocol's. Clients' clocks are right here, so a new owner need not wait
/// longer than they do; `clocks` has clients whose clocks are slow.
const SHORT: Times = Times { owner: 1, mark: 2, answer: 0, client: 0, sessions: 1 };
const LEASES: Times = Times { client: 2, sessions: 2, ..SHORT };

fn timed(clients: &[Script], limits: Counts, times: Times) -> Owners {
    Owners { times: Some(times), ..two(clients, limits) }
}

fn doors(limits: Counts) -> Owners {
    timed(DOORS, limits, SHORT)
}

/// A user of doors writes while a session may have a copy.
fn leases(limits: Counts, times: Times) -> Owners {
    timed(&[DOOR_WRITER, SESSION_READER], limits, times)
}

/// Peers mark a server as soon as they suspect it, and wait later.
fn mark_first(times: Times) -> Times {
    Times { mark: 0, answer: times.mark, ..times }
}

fn without(rules: &'static [Rule], model: Owners) -> Owners {
    Owners { without: rules, ..model }
}

/// All properties hold, and each run ends with one living server for each shard and nobody waiting.
fn holds_and_ends(name: &str, model: Owners) {
    passes(name, model.clone());
    ends_well(name, &model, |state| is_finished(&model, state));
}

/// A run ends with a shard that nobody serves, or a client that waits.
fn ends_badly(model: &Owners) {
    match runs_end(model, |state| is_finished(model, state)) {
        Ok(states) => panic!("each run ends well, {states} states"),
        Err(problem) => println!("{problem}"),
    }
}

#[test]
fn an_owner_that_freezes_is_replaced_and_comes_back() {
    holds_and_ends("two, freeze", two(BOTH, FREEZE));
    holds_and_ends("two, freeze, lost put", two(BOTH, Counts { lost_puts: 1, ..FREEZE }));
}

#[test]
fn one_of_several_takes_over_and_may_fail_at_each_step() {
    holds_and_ends("three, freeze and crash", three(DOORS, FREEZE_AND_CRASH));
    holds_and_ends("three, suspicion and crash", three(BOTH, Counts { suspicions: 1, crashes: 1, ..NONE }));
    holds_and_ends("three, two crashes", three(BOTH, Counts { crashes: 2, ..NONE }));
}

#[test]
fn a_shard_moves_and_both_ends_may_fail_at_each_step() {
    holds_and_ends("two, two moves", two(BOTH, Counts { moves: 2, lost_puts: 1, silences: 1, ..NONE }));
    holds_and_ends("two, move and freeze", two(BOTH, Counts { freezes: 1, ..LOST_MOVE }));
    holds_and_ends("three, move and crash", three(BOTH, Counts { crashes: 1, ..MOVE }));
}

#[test]
fn two_shards_have_one_map() {
    holds_and_ends("two shards, freeze", two_shards(FREEZE));
    holds_and_ends("two shards, drain", two_shards(Counts { moves: 2, ..LOST_MOVE }));
}

#[test]
fn limits_of_time_provide_that_nobody_answers_who_was_replaced() {
    passes("doors", doors(FREEZE));
    passes("session", timed(BOTH, FREEZE, SHORT));
}

#[test]
fn a_server_may_be_marked_before_its_time_is_over() {
    passes("doors, mark first", timed(DOORS, FREEZE, mark_first(SHORT)));
    passes("session, mark first", timed(BOTH, FREEZE, mark_first(SHORT)));
}

#[test]
fn no_copy_is_old_after_a_take_over_or_a_move() {
    passes("leases", leases(SILENCE, LEASES));
    passes("leases, mark first", leases(SILENCE, mark_first(LEASES)));
    passes("leases, move", Owners { faulty: 0, ..leases(Counts { moves: 1, ..SILENCE }, LEASES) });
}

// ---- the map

#[test]
fn two_that_take_over_at_once_would_both_own_one_epoch() {
    fails(ONE_COMMITS, without(&[Rule::SwapIfMatch], three(BOTH, Counts { crashes: 1, ..NONE })));
}

#[test]
fn a_late_swap_would_find_the_bytes_that_it_expects() {
    fails(CURRENT, without(&[Rule::VersionsDiffer], two(DOORS, LOST_MOVE)));
}

#[test]
fn an_owner_that_does_not_know_that_it_won_would_not_serve() {
    let limits = Counts { crashes: 1, lost_puts: 1, ..NONE };
    ends_badly(&without(&[Rule::MapIsTruth], two(DOORS, limits)));
}

#[test]
fn two_that_are_marked_and_do_not_know_it_would_swap_for_ever() {
    fails(FEW_SWAPS, without(&[Rule::SwapInTime], three(&[], Counts { freezes: 2, ..NONE })));
}

#[test]
fn a_shard_taken_from_a_server_that_is_not_marked_is_answered_twice() {
    fails(CURRENT, without(&[Rule::MarkBeforeTake], doors(NONE)));
}

// ---- records and clocks

#[test]
fn a_late_mark_would_miss_a_renewal() {
    fails(CURRENT, without(&[Rule::MarkIfMatch], doors(NONE)));
}

#[test]
fn a_renewal_would_remove_a_mark() {
    fails(CURRENT, without(&[Rule::RenewIfMatch], doors(NONE)));
}

#[test]
fn time_that_begins_with_the_answer_lasts_too_long() {
    fails(CURRENT, without(&[Rule::TimeBeginsAtSending], doors(NONE)));
}

#[test]
fn a_clock_that_stops_with_the_process_lasts_too_long() {
    fails(CURRENT, without(&[Rule::LookAtEachAnswer], doors(FREEZE)));
}

#[test]
fn a_clock_that_is_slower_than_the_limits_allow_lasts_too_long() {
    fails(CURRENT, without(&[Rule::ClocksDifferLittle], doors(NONE)));
}

#[test]
fn peers_that_wait_no_longer_than_the_owner_go_on_too_early() {
    fails(CURRENT, timed(DOORS, NONE, Times { mark: 1, ..SHORT }));
    fails(CURRENT, timed(DOORS, NONE, mark_first(Times { mark: 1, ..SHORT })));
}

#[test]
fn a_server_that_does_not_answer_its_peers_is_not_dead() {
    fails(CURRENT, timed(DOORS, NONE, Times { mark: 0, ..SHORT }));
}

#[test]
fn an_owner_whose_time_is_over_answers_reads() {
    fails(CURRENT, without(&[Rule::ReadInTime], doors(NONE)));
}

#[test]
fn an_owner_whose_time_is_over_tells_what_is_lost() {
    fails(ONE_ANSWERS, without(&[Rule::TellInTime], timed(BOTH, NONE, SHORT)));
}

#[test]
fn an_owner_whose_time_is_over_keeps_leases_alive() {
    fails(COPIES, without(&[Rule::KeepaliveInTime], leases(SILENCE, LEASES)));
}

#[test]
fn another_server_keeps_the_leases_of_an_owner_alive() {
    fails(COPIES, without(&[Rule::KeepaliveOfOwner], leases(SILENCE, LEASES)));
}

// ---- the log

#[test]
fn commits_of_an_earlier_owner_take_effect_late() {
    fails(ONCE, without(&[Rule::Fence], two(BOTH, FREEZE)));
    fails(ONE_COMMITS, without(&[Rule::Fence], two(BOTH, FREEZE)));
    fails(CURRENT, without(&[Rule::Fence], two(DOORS, FREEZE)));
}

#[test]
fn a_log_read_before_the_fence_misses_a_commit() {
    fails(KEPT, without(&[Rule::ReadAfterFence], two(DOORS, FREEZE)));
}

#[test]
fn a_late_opener_fences_the_owner_which_answers_what_is_old() {
    fails(CURRENT, without(&[Rule::LaterEpochWins], three(DOORS, FREEZE_AND_CRASH)));
    fails(ONE_COMMITS, without(&[Rule::LaterEpochWins], three(DOORS, FREEZE_AND_CRASH)));
}

#[test]
fn a_late_opener_cannot_see_an_epoch_that_is_not_in_the_log() {
    fails(CURRENT, without(&[Rule::EpochBeforeAnswers], three(DOORS, FREEZE_AND_CRASH)));
}

#[test]
fn answers_of_two_openings_in_one_epoch_are_mixed_up() {
    fails(KEPT, without(&[Rule::EpochOpenedOnce], three(&[WRITER], Counts { freezes: 2, ..NONE })));
}

#[test]
fn an_owner_that_a_late_opener_fenced_must_open_again() {
    ends_badly(&without(&[Rule::OpenAgain], three(&[DOOR_WRITER], FREEZE_AND_CRASH)));
}

// ---- clients

#[test]
fn an_owner_that_does_not_wait_for_sessions_loses_what_they_were_told() {
    fails(KEPT, without(&[Rule::WaitForSessions], two(BOTH, FREEZE)));
}

#[test]
fn a_wait_that_begins_with_the_process_is_over_too_early() {
    fails(COPIES, without(&[Rule::WaitFromTakeOver], leases(SILENCE, LEASES)));
}

#[test]
fn a_wait_that_begins_while_the_old_owner_answers_is_over_too_early() {
    fails(COPIES, without(&[Rule::WaitAfterPredecessor], leases(SILENCE, mark_first(LEASES))));
}

#[test]
fn a_late_answer_of_an_old_owner_is_believed() {
    fails(KEPT, without(&[Rule::OldOwnerIgnored], two(BOTH, FREEZE)));
    fails(COPIES, without(&[Rule::OldOwnerIgnored], leases(NONE, LEASES)));
}

// ---- moves

#[test]
fn a_move_loses_what_a_silent_session_was_told() {
    fails(KEPT, without(&[Rule::CommitBeforeMove], two(BOTH, Counts { silences: 1, ..MOVE })));
}

#[test]
fn sessions_that_come_would_not_need_that_commit() {
    let model = without(&[Rule::CommitBeforeMove], two(BOTH, Counts { freezes: 1, ..LOST_MOVE }));
    holds_and_ends("move without a commit", model);
}

#[test]
fn an_owner_that_answers_while_it_moves_a_shard_answers_what_is_old() {
    fails(CURRENT, without(&[Rule::SilentFromSwap], two(DOORS, MOVE)));
}

#[test]
fn an_owner_that_takes_a_move_back_by_looking_is_moved_later() {
    fails(CURRENT, without(&[Rule::TakeBackBySwap], two(DOORS, LOST_MOVE)));
}

#[test]
#[ignore = "minutes: for the night"]
fn three_servers_with_more_faults() {
    holds_and_ends("three, freeze and crash", three(BOTH, FREEZE_AND_CRASH));
    passes("three, two freezes", three(BOTH, Counts { freezes: 2, ..NONE }));
    passes("three, suspicion, freeze and crash", three(DOORS, Counts { suspicions: 1, ..FREEZE_AND_CRASH }));
    passes("three, move, freeze and crash", three(BOTH, Counts { moves: 1, ..FREEZE_AND_CRASH }));
    passes("three, move, lost put, freeze", three(BOTH, Counts { freezes: 1, ..LOST_MOVE }));
}

#[test]
#[ignore = "minutes: for the night"]
fn clients_that_do_more() {
    let writer = Script { ops: &[Op::Write(0), Op::Read, Op::Write(2)], ..WRITER };
    let reader = Script { ops: &[Op::Read, Op::Read], ..READER };
    passes("two, freeze and move", two(&[writer, reader], Counts { freezes: 1, ..MOVE }));
    passes("three, freeze and crash", three(&[writer, reader], FREEZE_AND_CRASH));
    passes("session", timed(&[writer, reader], FREEZE, SHORT));
    let copies = [DOOR_WRITER, Script { ops: &[Op::Read, Op::Read], ..SESSION_READER }];
    passes("leases", timed(&copies, SILENCE, LEASES));
}

#[test]
#[ignore = "minutes: for the night"]
fn two_shards_with_more_faults() {
    passes("two shards, move and freeze", two_shards(Counts { moves: 1, ..FREEZE }));
    passes("two shards, move, lost put and freeze", two_shards(Counts { freezes: 1, ..LOST_MOVE }));
    let three = |limits| Owners { servers: 3, faulty: 2, ..two_shards(limits) };
    passes("two shards, three servers, freeze", three(FREEZE));
    passes("two shards, three servers, two crashes", three(Counts { crashes: 2, ..NONE }));
}

#[test]
#[ignore = "minutes: for the night"]
fn the_times_of_the_protocol() {
    // half seconds: 2.5 s and 3 s
    let times = Times { owner: 5, mark: 6, ..SHORT };
    passes("doors, 5 and 6 ticks", timed(DOORS, FREEZE, times));
    passes("session, move", timed(BOTH, Counts { moves: 1, ..FREEZE }, SHORT));
    passes("leases, freeze", leases(Counts { freezes: 1, ..SILENCE }, LEASES));
    passes("leases, 3 ticks", leases(SILENCE, Times { client: 3, sessions: 3, ..LEASES }));
    passes("leases, move and silence", leases(Counts { moves: 1, ..SILENCE }, LEASES));
    passes("leases, mark first, freeze", leases(Counts { freezes: 1, ..SILENCE }, mark_first(LEASES)));
}
