//! Write-behind: the protocol keeps its promises in each state, and each rule is needed.

use leeward_protocol_model::behind::properties::{
    ALONE, CURRENT, FORETOLD, FRESH, KEPT, ONCE, ORDERED, UNHARMED, UNSTUCK,
};
use leeward_protocol_model::behind::{Behind, Kind, Op, Program, Rule};
use leeward_protocol_model::check::{fails, passes};

/// A directory.
const D: u8 = 1;
/// An inode that is made in it.
const I: u8 = 2;
/// Another directory.
const E: u8 = 4;
/// One more.
const F: u8 = 8;

const NONE: Behind =
    Behind { clients: 2, old: D | E, alone: Vec::new(), programs: Vec::new(), crashes: 0, breaks: 0, silences: 0, without: &[] };

fn make() -> Op {
    Op { kind: Kind::Names, inodes: D | I, makes: I }
}

fn names(inodes: u8) -> Op {
    Op { kind: Kind::Names, inodes, makes: 0 }
}

fn attributes(inodes: u8) -> Op {
    Op { kind: Kind::Attributes, inodes, makes: 0 }
}

fn read(inodes: u8) -> Op {
    Op { kind: Kind::Read, inodes, makes: 0 }
}

fn program(client: usize, user: usize, script: &[Op]) -> Program {
    Program { client, user, script: script.to_vec() }
}

fn behind(alone: &[u8], programs: Vec<Program>) -> Behind {
    Behind { clients: alone.len(), alone: alone.to_vec(), programs, ..NONE }
}

fn without(rule: &'static [Rule], model: Behind) -> Behind {
    Behind { without: rule, ..model }
}

/// One client makes an inode and changes it; another looks it up.
fn one_makes_another_looks() -> Behind {
    behind(&[D, 0], vec![program(0, 0, &[make(), attributes(I)]), program(1, 0, &[read(D | I)])])
}

/// Each of two clients has two directories, and renames from one of them to one of the other's.
fn both_rename() -> Behind {
    let of = |client, first, second, others| {
        let changes = program(client, 0, &[attributes(first), attributes(second)]);
        [changes, program(client, 0, &[names(first | others)])]
    };
    let programs = [of(0, D, I, F), of(1, E, F, I)];
    Behind { old: D | I | E | F, ..behind(&[D | I, E | F], programs.into_iter().flatten().collect()) }
}

/// Each of two clients reads a directory of its own and one of the other's.
fn both_look() -> Behind {
    let of = |client, own| {
        let changes = program(client, 0, &[attributes(own), attributes(own)]);
        [changes, program(client, 0, &[read(D | E)])]
    };
    behind(&[D, E], [of(0, D), of(1, E)].into_iter().flatten().collect())
}

/// Two users of one client change a directory, one of another client, too.
fn two_users() -> Behind {
    let programs = vec![
        program(0, 0, &[make(), names(D)]),
        program(0, 1, &[attributes(D), read(D)]),
        program(1, 0, &[attributes(D)]),
    ];
    behind(&[D, 0], programs)
}

/// One client changes a directory, another too, and reads what it has.
fn both_change() -> Behind {
    behind(&[D, 0], vec![program(0, 0, &[attributes(D), attributes(D)]), program(1, 0, &[attributes(D), read(D)])])
}

fn try_all(name: &str, model: Behind) {
    passes(name, model.clone());
    passes(&format!("{name}, breaks"), Behind { breaks: 1, ..model.clone() });
    passes(&format!("{name}, crash"), Behind { crashes: 1, ..model.clone() });
    passes(&format!("{name}, silent"), Behind { silences: 1, ..model.clone() });
    passes(&format!("{name}, break, crash"), Behind { breaks: 1, crashes: 1, ..model.clone() });
    passes(&format!("{name}, crash, silent"), Behind { crashes: 1, silences: 1, ..model.clone() });
    passes(&format!("{name}, break, silent"), Behind { breaks: 1, silences: 1, ..model.clone() });
    passes(&format!("{name}, two crashes"), Behind { crashes: 2, ..model.clone() });
}

#[test]
fn t1() {
    try_all("makes, looks", one_makes_another_looks());
}
#[test]
fn t2() {
    try_all("both change", both_change());
}
#[test]
fn t3() {
    passes("renames", both_rename());
    passes("looks", both_look());
}
#[test]
fn t3b() {
    fails(UNSTUCK, without(&[Rule::NothingAfterInOrder], both_rename()));
}
#[test]
fn t3c() {
    fails(UNSTUCK, without(&[Rule::ReadsHoldNothing], both_look()));
}
/// One client changes names, another attributes and, predicted, names.
fn one_changes_after_the_other() -> Behind {
    behind(&[0, 0], vec![program(0, 0, &[names(D)]), program(1, 0, &[attributes(D), names(D)])])
}
#[test]
fn m1() {
    fails(FORETOLD, without(&[Rule::OwnChangeVoids], two_users()));
}
#[test]
fn m4() {
    let model = Behind { silences: 1, breaks: 1, ..both_change() };
    fails(ORDERED, without(&[Rule::SameTerm], model));
}
#[test]
fn m5() {
    let model = Behind { silences: 1, crashes: 1, ..both_change() };
    fails(ORDERED, without(&[Rule::SameTermAfterCrash], model));
}
#[test]
fn m6() {
    fails(ORDERED, without(&[Rule::DurableBeforeRequests], Behind { crashes: 2, ..both_change() }));
}
#[test]
fn m7() {
    let model = Behind { silences: 1, crashes: 1, ..one_changes_after_the_other() };
    passes("after", model.clone());
    fails(FORETOLD, without(&[Rule::GrantOnCommitted], model));
}
#[test]
fn m8() {
    let model = Behind { silences: 1, crashes: 1, ..both_change() };
    fails(UNHARMED, without(&[Rule::BackDurably], model));
}
#[test]
fn m9() {
    fails(UNHARMED, without(&[Rule::CaughtUpStays], Behind { breaks: 1, crashes: 1, ..both_change() }));
}

/// Two programs of one user change a directory and read it.
fn one_changes_and_reads() -> Behind {
    behind(&[D], vec![program(0, 0, &[make(), attributes(D)]), program(0, 0, &[read(D), read(D)])])
}
/// One client makes an inode and changes it, in two programs of two users; another changes the directory.
fn two_users_of_one_client() -> Behind {
    behind(&[D], vec![program(0, 0, &[make(), names(D)]), program(0, 1, &[attributes(D), read(D)])])
}
fn report(property: &'static str, rule: &'static [Rule], model: Behind) {
    let r = std::panic::catch_unwind(|| fails(property, without(rule, model)));
    println!("{rule:?} {property} {}\n", if r.is_ok() { "OK" } else { "XXX NOT FOUND" });
}

/// One client reads what it has copies of, and what not, and changes the former.
fn one_reads_and_changes() -> Behind {
    behind(&[D], vec![program(0, 0, &[attributes(D)]), program(0, 0, &[read(D | E), read(D)])])
}
/// One client makes an inode and changes the directory.
fn one_makes_and_changes() -> Behind {
    behind(&[D, 0], vec![program(0, 0, &[make(), names(D)]), program(1, 0, &[read(D)])])
}
#[test]
fn z3() {
    let looks = one_makes_another_looks;
    let breaks = |model| Behind { breaks: 1, ..model };
    let crash = |model| Behind { crashes: 1, ..model };
    let silent = |model| Behind { silences: 1, ..model };
    report(UNHARMED, &[Rule::Fifo], one_makes_another_looks());
    report(FORETOLD, &[Rule::Fifo], one_makes_and_changes());
    report(FORETOLD, &[Rule::SentAgainInOrder], breaks(one_makes_and_changes()));
    report(CURRENT, &[Rule::PredictionVoidsReads], one_reads_and_changes());
    report(FORETOLD, &[Rule::ToldFirst], crash(one_makes_and_changes()));
    report(FRESH, &[Rule::AwayRunsNothing], silent(looks()));
    report(KEPT, &[Rule::AwayRunsNothing], crash(silent(looks())));
    report(KEPT, &[Rule::BackDurably], crash(silent(both_change())));
    report(CURRENT, &[Rule::TakenVoids], silent(both_change()));
    report(CURRENT, &[Rule::InTime], silent(both_change()));
    report(ORDERED, &[Rule::AloneOrRefused, Rule::SameTerm], silent(both_change()));
    report(ORDERED, &[Rule::AwayBeforeTaken], crash(silent(both_change())));
    report(ORDERED, &[Rule::SameTerm], breaks(silent(both_change())));
    report(ORDERED, &[Rule::SameTermAfterCrash], crash(silent(both_change())));
    passes("no W3", without(&[Rule::AloneOrRefused], crash(silent(both_change()))));
    passes("no W3", without(&[Rule::AloneOrRefused], breaks(silent(both_change()))));
    passes("no W3", without(&[Rule::AloneOrRefused], breaks(silent(looks()))));
    report(UNHARMED, &[Rule::BackDurably], crash(silent(both_change())));
}
