//! Runs the checker over a model, for the tests of this crate.

use stateright::{Checker, HasDiscoveries, Model, Representative};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;

/// Visits all states of a model and panics, with the steps that lead there, when a property fails.
pub fn passes<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// The same for a model whose clients differ in nothing but their place: of states that differ only
/// in the order of clients it visits one.
pub fn passes_symmetric<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Representative + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let builder = model.checker().symmetry().finish_when(HasDiscoveries::AnyFailures);
    let checker = builder.spawn_dfs().join();
    println!("{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Panics unless the checker finds a state of the model in which `property` fails. Prints the
/// shortest way there.
pub fn fails<M>(property: &'static str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let wanted = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = model.checker().finish_when(wanted).spawn_bfs().join();
    let path = checker.assert_any_discovery(property);
    println!("\"{property}\" fails after {} states:", checker.unique_state_count());
    for action in path.into_actions() {
        println!("  {action:?}");
    }
}

/// Panics unless each run of the model ends, and ends in a state that `is_good`. Stateright's own
/// `eventually` misses cycles and joins; this looks at the whole graph: it has no cycle, and each
/// state without a next one is good.
pub fn ends_well<M>(name: &str, model: &M, is_good: impl Fn(&M::State) -> bool)
where
    M: Model,
    M::State: Clone + Debug + Ord,
{
    match runs_end(model, is_good) {
        Ok(states) => println!("{name}: each run ends well, {states} states"),
        Err(problem) => panic!("{name}: {problem}"),
    }
}

/// The number of states if each run of the model ends in a state that `is_good`, else what is
/// wrong.
///
/// # Errors
/// A run that goes in a circle, or one that ends in a state that is not good.
pub fn runs_end<M>(model: &M, is_good: impl Fn(&M::State) -> bool) -> Result<usize, String>
where
    M: Model,
    M::State: Clone + Debug + Ord,
{
    let mut on_path = BTreeMap::new();
    let mut work: Vec<_> = model.init_states().into_iter().map(Visit::Enter).collect();
    while let Some(visit) = work.pop() {
        match visit {
            Visit::Leave(state) => _ = on_path.insert(state, false),
            Visit::Enter(state) => match on_path.get(&state) {
                Some(true) => return Err(format!("a run goes in a circle through {state:?}")),
                Some(false) => {}
                None => {
                    let next = model.next_states(&state);
                    if next.is_empty() && !is_good(&state) {
                        return Err(format!("a run ends in {state:?}"));
                    }
                    on_path.insert(state.clone(), true);
                    work.push(Visit::Leave(state));
                    work.extend(next.into_iter().map(Visit::Enter));
                }
            },
        }
    }
    Ok(on_path.len())
}

/// A depth-first search enters a state and leaves it when all that follows was searched.
enum Visit<State> {
    Enter(State),
    Leave(State),
}
