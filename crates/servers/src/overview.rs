//! What an operator sees: the map and all records.

use crate::record::{MAP, Map, Record, decode, is_record};
use crate::store::Store;

/// The map and the records of all servers of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Whose the cell is.
    pub map: Map,
    /// All servers, by id.
    pub servers: Vec<Record>,
    /// Objects that make no sense, with what is wrong.
    pub damaged: Vec<String>,
}

/// Reads them.
///
/// # Errors
/// For a person: the store does not answer.
pub fn overview<S: Store>(store: &S) -> Result<Overview, String> {
    let mut overview = Overview::default();
    let text = |e: crate::Failed| e.to_string();
    let mut names = store.names().map_err(text)?;
    names.sort();
    for name in names {
        if name != MAP && !is_record(&name) {
            continue;
        }
        let Some((body, _)) = store.get(&name).map_err(text)? else { continue };
        let read = if name == MAP {
            decode(&name, &body).map(|map| overview.map = map)
        } else {
            decode(&name, &body).map(|record| overview.servers.push(record))
        };
        if let Err(damaged) = read {
            overview.damaged.push(damaged.to_string());
        }
    }
    Ok(overview)
}
