//! Makes one call below a [`FaultTarget`] fail, and judges the result.
//!
//! The contract, besides that of [`crate::crash`]:
//! * the failure is answered with an I/O error, or nobody notices: a wrong answer is never allowed;
//! * what was acknowledged by Fsync or SyncAll before or *after* the failure is there when the file
//!   system is opened again, and so is everything after a successful close;
//! * opening, too, fails or works; when nothing fails any more it works, and the file system's own
//!   check is clean.

use crate::compare::Verdict;
use crate::crash::{Expected, judged, step_noted, steps_of};
use crate::generate::Profile;
use crate::harness::{Failure, Harness, Target, guarded, report, shrink_with};
use crate::step::{Act, Step};
use leeward_fs::Error;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is killed (kill -9).
    Kill,
    /// The power fails.
    PowerCut,
    /// It closes the file system.
    Close,
}

/// A file system above something of which single calls can fail.
pub trait FaultTarget: Target + Sized {
    /// A call that fails, and how.
    type Fault: Clone + std::fmt::Debug;

    /// From now on this call fails, when it comes.
    fn fail(&self, fault: &Self::Fault);

    /// No call fails from now on.
    fn heal(&self);

    /// Ends this process and opens the file system again; first while `opening` fails, then while
    /// nothing does. Returns whether the end said that everything is durable.
    fn end(self, ending: Ending, opening: Option<&Self::Fault>) -> Result<(Self, bool), String>;
}

/// A run with one failing call.
#[derive(Clone, Debug)]
pub struct FaultOptions<F> {
    /// Decides the steps.
    pub seed: u64,
    /// Most steps.
    pub steps: usize,
    /// Profile of the steps.
    pub profile: Profile,
    /// The fault.
    pub fault: F,
    /// Number of steps before the fault.
    pub after: usize,
    /// Whether everything is made durable then: data that was not, though an Fsync said so, is not
    /// noticed any more.
    pub syncs: bool,
    /// How it ends.
    pub ending: Ending,
    /// What fails while it is opened again.
    pub opening: Option<F>,
}

/// The result of a failing call, where that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// No answer showed it.
    Unnoticed,
    /// An answer was an error, and everything went on.
    Answered,
    /// Nothing could be made durable any more, until it was opened again.
    Stayed,
}

/// Runs random steps, one call failing.
///
/// # Panics
/// When the outcome is not allowed: with the steps, shrunk.
pub fn fail_once<T: FaultTarget>(make: impl Fn() -> T, options: &FaultOptions<T::Fault>) -> Outcome {
    let steps = steps_of(&make, (options.seed, options.steps), options.profile);
    let attempt = |steps: &[Step]| fail_in(&make, steps, options).map(drop);
    fail_in(&make, &steps, options).unwrap_or_else(|failure| {
        let small = shrink_with(failure.clone(), attempt);
        panic!("{options:?}: {}", report(&failure, &small));
    })
}

/// Runs these steps with the failing call, and judges.
///
/// # Errors
/// An outcome that is not allowed.
pub fn fail_in<T: FaultTarget>(
    make: impl Fn() -> T,
    steps: &[Step],
    options: &FaultOptions<T::Fault>,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::Unnoticed;
    let verdict = guarded(|| {
        let mut harness = Harness::new(make())?;
        let mut expected = Expected::new(harness.model.clone());
        let mut in_doubt = false;
        for (n, step) in steps.iter().enumerate() {
            if n == options.after.min(steps.len().saturating_sub(1)) {
                harness.target.fail(&options.fault);
            }
            if step_noted(&mut harness, &mut expected, step, has_failed)? {
                outcome = Outcome::Answered;
                in_doubt = changes(&step.act);
            }
            if in_doubt {
                break;
            }
        }
        harness.target.heal();
        if options.syncs {
            match harness.step(&Step::root(Act::SyncAll)) {
                Ok(()) => expected.all_durable_but_last(in_doubt),
                Err(_) => outcome = Outcome::Stayed,
            }
        }
        end(harness, expected, in_doubt, outcome, options)
    });
    verdict.map(|()| outcome).map_err(|difference| Failure { steps: steps.to_vec(), difference })
}

/// Whether the answer was an error that says nothing about the request.
fn has_failed<T>(harness: &Harness<T>) -> bool {
    matches!(harness.failed_with, Some(Error::Io(_) | Error::Corrupt(_) | Error::NoSpace))
}

/// Whether it leaves anything else than before, when it succeeds.
fn changes(act: &Act) -> bool {
    !matches!(
        act,
        Act::Fsync(_)
            | Act::SyncAll
            | Act::Read { .. }
            | Act::Seek { .. }
            | Act::ReadLink(_)
            | Act::List { .. }
            | Act::GetXattr { .. }
            | Act::ListXattr(_)
            | Act::Stat(_)
            | Act::StatFs
    )
}

fn end<T: FaultTarget>(
    mut harness: Harness<T>,
    mut expected: Expected,
    in_doubt: bool,
    outcome: Outcome,
    options: &FaultOptions<T::Fault>,
) -> Verdict {
    let works = outcome != Outcome::Stayed;
    if works && options.syncs && !in_doubt {
        harness.compare().map_err(|e| format!("after the failure: {e}"))?;
    }
    let (target, said) = harness.target.end(options.ending, options.opening.as_ref())?;
    if said {
        expected.all_durable_but_last(in_doubt);
    }
    let when = if works { "opened again" } else { "opened again after a failure that stayed" };
    let mut harness = judged(target, &expected).map_err(|e| format!("{when}: {e}"))?;
    harness.settle().map_err(|e| format!("{when}, when idle: {e}"))
}
