//! Tokens of the cell, which are made where its keys are.

use crate::control::NewToken;
use leeward_auth::{CellPath, Signer, TokenRequest};
use leeward_volume::Cell;
use leeward_volume::admin::{Failure, TokenMake};
use std::fmt::Display;

/// The token that is wanted; `sign` asks the cell whether it may be, and signs it.
///
/// # Errors
/// Those of `sign`, or that the path is none.
pub fn make(
    wanted: &TokenMake,
    sign: impl FnOnce(&TokenRequest) -> Result<String, Failure>,
) -> Result<NewToken, Failure> {
    let TokenMake { user, path, activities, until_secs, .. } = wanted.clone();
    let at = CellPath::parse(&path)
        .map_err(|e| Failure { message: format!("{path}: {e}"), errno: libc::EINVAL })?;
    let request = TokenRequest { path: Some(at), activities: Some(activities.clone()), until_secs };
    Ok(NewToken { token: sign(&request)?, user, path, activities, until_secs })
}

/// Signs in a cell that nobody serves, and that has let the user have the token.
///
/// # Errors
/// What is impossible in the request.
pub fn sign_in(cell: &Cell, user: &str, request: &TokenRequest, id: u64) -> Result<String, Failure> {
    let accounts = cell.accounts();
    let signer =
        Signer::of(&accounts, user).ok_or_else(|| refused(&"the cell has no key to sign it with"))?;
    signer.mint(id, "leeward", request).map_err(|e| refused(&e))
}

/// Why there is no token.
pub fn refused(why: &dyn Display) -> Failure {
    Failure { message: why.to_string(), errno: libc::EACCES }
}
