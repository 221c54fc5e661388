//! A real cell on a simulated disk against the model: random steps, and a crash at every mutation
//! of the disk.
//!
//! `MODEL_SEEDS=FROM..TO` chooses the seeds, `MODEL_STEPS` how many steps, `MODEL_STRIDE` at every
//! how many mutations a crash; `MODEL_USAGE=no` leaves recursive statistics out, `MODEL_TRACE=1`
//! prints the steps, for a run that hangs.

use crate::whole::{SimCell, owner, seeds, steps, stride};
use leeward_model::Profile;
use leeward_model::crash::{CrashOptions, crash_everywhere};
use leeward_model::harness::{Options, replay, run};

#[test]
fn random_steps_agree_with_the_model() {
    for seed in seeds(0..8) {
        let trace = std::env::var("MODEL_TRACE").is_ok();
        run(|| SimCell::new(seed), &Options { trace, ..Options::new(seed, steps(2000)) });
    }
}

#[test]
fn a_crash_anywhere_leaves_an_allowed_state() {
    for seed in seeds(0..6) {
        let survived =
            crash_everywhere(|| SimCell::new(seed), &CrashOptions::new(seed, steps(200), stride(5)));
        println!("seed {seed}: {survived} crashes survived");
    }
}

/// As long as `MODEL_SEEDS` and `MODEL_STEPS` say.
#[test]
fn random_steps_with_snapshots_agree_with_the_model() {
    for seed in seeds(100..106) {
        let trace = std::env::var("MODEL_TRACE").is_ok();
        let profile = Profile::default().with_snapshots(20, 8);
        let options = Options { trace, profile, compare_every: 100, ..Options::new(seed, steps(1500)) };
        run(|| SimCell::owned_by(seed, owner(seed)), &options);
    }
}

#[test]
fn a_crash_anywhere_leaves_snapshots_whole_or_not_there() {
    for seed in seeds(100..104) {
        let profile = Profile::crash().with_snapshots(20, 3);
        let options = CrashOptions { profile, ..CrashOptions::new(seed, steps(150), stride(7)) };
        let survived = crash_everywhere(|| SimCell::owned_by(seed, owner(seed)), &options);
        println!("seed {seed}: {survived} crashes survived");
    }
}

#[test]
fn random_steps_between_two_pools_agree_with_the_model() {
    for seed in seeds(200..206) {
        let trace = std::env::var("MODEL_TRACE").is_ok();
        let profile = Profile::default().with_snapshots(8, 4).with_moves(6);
        let options = Options { trace, profile, compare_every: 100, ..Options::new(seed, steps(1500)) };
        run(|| SimCell::with_pools(seed), &options);
    }
}

#[test]
fn random_steps_with_flags_agree_with_the_model() {
    for seed in seeds(300..306) {
        let trace = std::env::var("MODEL_TRACE").is_ok();
        let profile = Profile::default().with_snapshots(8, 4).with_flags(12);
        let options = Options { trace, profile, compare_every: 100, ..Options::new(seed, steps(1500)) };
        run(|| SimCell::owned_by(seed, owner(seed)), &options);
    }
}

#[test]
fn a_crash_anywhere_leaves_flags_as_they_were_set() {
    for seed in seeds(300..303) {
        let profile = Profile::crash().with_snapshots(8, 2).with_flags(20);
        let options = CrashOptions { profile, ..CrashOptions::new(seed, steps(150), stride(7)) };
        let survived = crash_everywhere(|| SimCell::owned_by(seed, owner(seed)), &options);
        println!("seed {seed}: {survived} crashes survived");
    }
}

#[test]
fn a_crash_anywhere_between_two_pools_loses_nothing() {
    for seed in seeds(200..204) {
        let profile = Profile::crash().with_snapshots(8, 2).with_moves(12);
        let options = CrashOptions { profile, ..CrashOptions::new(seed, steps(150), stride(5)) };
        let survived = crash_everywhere(|| SimCell::with_pools(seed), &options);
        println!("seed {seed}: {survived} crashes survived");
    }
}

/// Data that died before it was stored, of two flows in turns: the queue waits for one segment
/// after the other has vanished.
#[test]
fn a_segment_that_vanished_early_holds_nothing_up() {
    let steps = "make /e file 644 0
u1000 write /e 446464 1016459 295
truncate /e 167936
write /e 0 351848 375
u1000 write /e 536576 222374 2
u1000 truncate /e 188947
reopen";
    replay(|| SimCell::new(0), steps);
}

/// Data of two flows that touches, and is not in records yet.
#[test]
fn between_two_pieces_that_touch_is_no_hole() {
    let steps = "make /a file 644 77
u1000 write /a 1019639 747072 174218
write /a 1137991 103897 65536
seek /a 1112701 hole";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn a_removed_directory_keeps_its_modification_time() {
    replay(|| SimCell::new(0), "make /d dir 755 0\nhold 1 /d\nadvance 5\nrmdir /d\nrelease 1");
}

#[test]
fn a_name_that_was_noted_may_go_with_the_snapshot_that_saw_it() {
    let steps = "make /c dir 644 77
make /.snap/s1 dir 755 22
make /c/b file 600 0
make /c/.snap/s4 dir 755 22
make /tmp file 644 0
rename /tmp /c/b replace
rmdir /c/.snap/s4";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn data_of_a_removed_snapshot_may_go_before_its_records() {
    let steps = "make /a file 644 0
make /tmp file 644 0
write /tmp 0 516605 8
rename /tmp /a replace
make /.snap/s2 dir 755 22
write /a 0 913551 2125
rmdir /.snap/s2
reopen";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn an_open_file_without_a_name_takes_content_across_a_snapshot() {
    let steps = "make /e file 600 22
hold 1 /e
unlink /e
u1000 write @1 0 318105 6
make /.snap/s1 dir 755 22
u1000 allocate @1 0 24576 punch
write @1 100 565 5000
chmod @1 600
make /.snap/s2 dir 755 22
write @1 50 566 200
read @1 0 6000";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn a_listing_in_a_snapshot_keeps_its_limit() {
    let steps = "make /a file 644 0
make /b file 644 0
make /c file 644 0
make /.snap/s dir 755 0
unlink /a
unlink /b
make /d file 644 0
list /.snap/s 1
list /.snap/s 2
list /.snap/s 2 a
list /.snap/s 2 b";
    replay(|| SimCell::new(0), steps);
}

/// What was read of it is still in memory.
#[test]
fn nothing_is_copied_from_a_snapshot_that_was_removed() {
    let steps = "make /a file 644 0
make /b file 644 0
write /a 0 1234 500000
syncall
make /.snap/s dir 755 0
truncate /a 0
hold 1 /.snap/s/a
read @1 0 500000
rmdir /.snap/s
copy @1 0 /b 0 500000
link @1 /c";
    replay(|| SimCell::new(0), steps);
}
