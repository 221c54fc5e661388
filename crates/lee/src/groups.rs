//! Groups that users own, where the machine comes in: in whose name a request is made, whether the
//! users that it names exist, and of which groups a user of the machine is.

use crate::control::server::failure;
use crate::people::Machine;
use crate::system;
use leeward_fs::accounts::Accounts;
use leeward_fs::groups::{cell_name, prefix, wrong_group_name};
use leeward_vfs::{People, Subordinates};
use leeward_volume::Cell;
use leeward_volume::admin::{
    AnyRequest, Failure, GroupAdd, GroupCreate, GroupDrop, GroupList, GroupRemove, GroupSet,
};
use std::sync::{Arc, Weak};

/// The name of a user: the cell's, or else the machine's. `None`: neither knows the number.
pub fn name_of(accounts: &Accounts, uid: u32) -> Option<String> {
    accounts.user_of(uid).map(String::from).or_else(|| system::known_user_name(uid))
}

/// A request about groups in the name of a user, whatever it says itself; others as they are.
pub fn in_name_of(user: &str, request: &AnyRequest) -> AnyRequest {
    use AnyRequest as A;
    let by = Some(user.to_owned());
    match request.clone() {
        A::GroupCreate(r) => GroupCreate { by, ..r }.into(),
        A::GroupSet(r) => GroupSet { by, ..r }.into(),
        A::GroupAdd(r) => GroupAdd { by, ..r }.into(),
        A::GroupDrop(r) => GroupDrop { by, ..r }.into(),
        A::GroupRemove(r) => GroupRemove { by, ..r }.into(),
        A::GroupList(_) => GroupList { of: by }.into(),
        other => other,
    }
}

/// Refuses to make somebody a member or an owner whom nobody knows.
///
/// # Errors
/// Who, or that the user database of the machine does not answer.
pub fn refuse_unknown(accounts: &Accounts, request: &AnyRequest) -> Result<(), Failure> {
    use AnyRequest as A;
    let named: Vec<String> = match request {
        // the cell says what is wrong with the name
        A::GroupCreate(r) if wrong_group_name(&cell_name(&r.name)).is_some() => return Ok(()),
        A::GroupCreate(r) => vec![r.owner.clone().unwrap_or(prefix(&cell_name(&r.name)).into())],
        A::GroupSet(r) => vec![r.owner.clone()],
        A::GroupAdd(r) => r.members.clone(),
        _ => return Ok(()),
    };
    for name in &named {
        let is_group = name.contains(':') || accounts.groups().number(&cell_name(name)).is_some();
        if is_group || accounts.user(name).is_some() {
            continue;
        }
        let found = system::user(name).map_err(|fail| failure(libc::EAGAIN, &fail.to_string()))?;
        let Some(found) = found else {
            let text = format!("neither the cell nor the machine that serves it has a user {name}");
            return Err(failure(libc::ENOENT, &text));
        };
        // some user databases do not tell large letters from small ones; members do
        let called = system::known_user_name(found.uid);
        if let Some(called) = called.filter(|called| called != name && called.eq_ignore_ascii_case(name)) {
            return Err(failure(libc::EINVAL, &format!("the user is called {called}: write it so")));
        }
    }
    Ok(())
}

/// The machine, whose users are in groups of a cell, too.
pub struct CellPeople {
    machine: Machine,
    cell: Weak<Cell>,
}

impl CellPeople {
    /// Of this machine and this cell.
    pub fn new(cell: &Arc<Cell>) -> CellPeople {
        CellPeople { machine: Machine::default(), cell: Arc::downgrade(cell) }
    }
}

impl People for CellPeople {
    fn groups_of(&self, uid: u32) -> Vec<u32> {
        let mut gids = self.machine.groups_of(uid);
        let Some(accounts) = self.cell.upgrade().map(|cell| cell.accounts()) else { return gids };
        gids.retain(|gid| !accounts.groups().is_number(*gid));
        if accounts.groups().memberships() > 0
            && let Some(name) = name_of(&accounts, uid)
        {
            gids.extend(accounts.groups().of_user(&name).iter());
        }
        gids
    }

    fn job_of(&self, pid: u32) -> Option<String> {
        self.machine.job_of(pid)
    }

    fn subordinates(&self) -> Option<Vec<Subordinates>> {
        self.machine.subordinates()
    }
}
