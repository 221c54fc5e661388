//! The rules of leases and time: nothing old is used in any state, and each rule is needed.

use leeward_protocol_model::check::{fails, passes};
use leeward_protocol_model::clocks::properties::{BOUNDED, DAEMON, FENCED, KERNEL};
use leeward_protocol_model::clocks::{Clocks, Rule};

/// Shorter times than the protocol's, in the same order, for fewer states.
const SHORT: Clocks = Clocks {
    client_limit: 2,
    server_limit: 3,
    recall_limit: 1,
    foreign_writes: 1,
    own_writes: 1,
    freezes: 1,
    restarts: 0,
    without: &[],
};

fn without(rules: &'static [Rule]) -> Clocks {
    Clocks { without: rules, ..SHORT }
}

#[test]
fn nothing_old_is_used_and_waits_are_bounded() {
    passes("short", SHORT);
}

/// A new server takes over once.
const TAKEN_OVER: Clocks = Clocks { restarts: 1, ..SHORT };

#[test]
fn nothing_old_is_used_after_a_take_over() {
    passes("taken over", TAKEN_OVER);
}

#[test]
fn a_new_server_that_does_not_wait_changes_what_clients_use() {
    fails(DAEMON, Clocks { without: &[Rule::NewServerWaits], ..TAKEN_OVER });
}

#[test]
fn a_new_server_that_is_told_of_w_only_must_take_it_that_all_have_r() {
    fails(DAEMON, Clocks { without: &[Rule::KnownSessionHasR], ..TAKEN_OVER });
}

#[test]
fn a_late_client_that_tells_a_new_server_of_its_leases_brings_back_what_the_old_one_took() {
    fails(DAEMON, Clocks { without: &[Rule::LateForNewServerDrops], ..TAKEN_OVER });
}

#[test]
fn time_that_begins_with_the_answer_lasts_too_long() {
    fails(DAEMON, without(&[Rule::TimeBeginsAtSending]));
}

#[test]
fn an_answer_that_counts_for_another_keepalive_lasts_too_long() {
    fails(DAEMON, without(&[Rule::AnswerNamesItsKeepalive]));
}

#[test]
fn a_clock_that_is_slower_than_the_limits_allow_lasts_too_long() {
    fails(DAEMON, without(&[Rule::ClocksDifferLittle]));
}

#[test]
fn a_server_that_waits_no_longer_than_the_client_takes_a_lease_that_is_used() {
    fails(DAEMON, Clocks { server_limit: SHORT.client_limit, ..SHORT });
}

#[test]
fn a_kernel_that_gets_the_whole_time_out_serves_old_data() {
    fails(KERNEL, without(&[Rule::TimeoutIsWhatIsLeft]));
}

#[test]
fn a_daemon_delayed_between_the_clock_and_the_kernel_hands_over_old_data() {
    fails(KERNEL, without(&[Rule::HandOverAtOnce]));
}

#[test]
fn an_answer_to_a_recall_before_the_kernel_has_dropped_its_copy_leaves_old_data() {
    fails(KERNEL, without(&[Rule::KernelFirst]));
}

#[test]
fn a_session_renewed_after_its_leases_were_taken_uses_old_data() {
    fails(DAEMON, without(&[Rule::TakenIsTold]));
}

#[test]
fn a_server_that_tells_only_once_that_it_took_the_leases_renews_a_client_that_does_not_know() {
    fails(DAEMON, without(&[Rule::ToldUntilHeard]));
}

#[test]
fn a_client_that_keeps_its_copies_when_told_uses_old_data() {
    fails(DAEMON, without(&[Rule::DropWhenTold]));
}

#[test]
fn a_flush_that_is_not_fenced_overwrites_somebody_elses_write() {
    fails(FENCED, without(&[Rule::FlushIsFenced]));
}

#[test]
fn a_session_renewed_while_it_does_not_answer_a_recall_lets_others_wait_for_ever() {
    fails(BOUNDED, without(&[Rule::SuspendStopsRenewal]));
}

#[test]
#[ignore = "minutes, and up to 2 GB: for the night"]
fn the_times_of_the_protocol() {
    let times = Clocks { client_limit: 5, server_limit: 6, recall_limit: 3, ..TAKEN_OVER };
    passes("5, 6 and 3 ticks", times);
    passes("two of each", Clocks { foreign_writes: 2, own_writes: 2, freezes: 2, ..TAKEN_OVER });
}
