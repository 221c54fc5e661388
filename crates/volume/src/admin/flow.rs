//! Requests about shares and ceilings of users and groups at the gate.

use crate::admin::failure::about;
use crate::admin::{Caller, Done, Failure, Refresh, Reply, Request};
use crate::format::keys;
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::Effect;
use leeward_env::Ctx;
use leeward_fs::flows::{FlowRecord, FlowSettings, UserOrGroup, WEIGHT_MAX};
use serde::{Deserialize, Serialize};

/// The settings of a user or a group at the gate; `None`: not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Whose.
    pub who: UserOrGroup,
    /// Share relative to other users.
    pub weight: Option<u32>,
    /// Most operations in a second; 0: no ceiling, whatever is set for groups.
    pub ops_per_sec: Option<u64>,
    /// Most bytes read and written in a second; 0: no ceiling, whatever is set for groups.
    pub bytes_per_sec: Option<u64>,
}

/// Settings of users and groups at the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowInfos {
    /// Users first, by number.
    pub flows: Vec<FlowInfo>,
}

impl Reply for FlowInfos {
    const KIND: &'static str = "flows";
}

/// Sets the share or a ceiling of a user or a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowSet {
    /// Whose.
    pub who: UserOrGroup,
    /// Share relative to other users; `None`: as it was.
    pub weight: Option<u32>,
    /// Most operations in a second; 0: no ceiling; `None`: as it was.
    pub ops_per_sec: Option<u64>,
    /// Most bytes read and written in a second; 0: no ceiling; `None`: as it was.
    pub bytes_per_sec: Option<u64>,
}

impl Request for FlowSet {
    type Reply = FlowInfos;
    const REFRESH: Refresh = Refresh::Flows;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<FlowInfos, Failure> {
        let FlowSet { who, weight, ops_per_sec, bytes_per_sec } = *self;
        if weight.is_some_and(|weight| !(1..=WEIGHT_MAX).contains(&weight)) {
            let message = format!("a weight is a number from 1 to {WEIGHT_MAX}: name another");
            return Err(Failure::new(libc::EINVAL, message));
        }
        let set = FlowRecord { weight, ops_per_sec, bytes_per_sec };
        let record = shard.put_flow(who, |was| set.or(was))?;
        Ok(FlowInfos { flows: vec![info(who, record)] })
    }
}

/// Removes all settings of a user or a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowReset {
    /// Whose.
    pub who: UserOrGroup,
}

impl Request for FlowReset {
    type Reply = Done;
    const REFRESH: Refresh = Refresh::Flows;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        shard.put_flow(self.who, |_| FlowRecord::default())?;
        Ok(Done {})
    }
}

/// Lists the settings of all users and groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowList;

impl Request for FlowList {
    type Reply = FlowInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<FlowInfos, Failure> {
        let flows = shard.flow_settings().iter().map(|(who, record)| info(who, record)).collect();
        Ok(FlowInfos { flows })
    }
}

impl Shard {
    /// The settings of users and groups at the gate.
    pub(crate) fn flow_settings(&self) -> FlowSettings {
        self.lock().flows.clone()
    }

    fn put_flow(
        &self,
        who: UserOrGroup,
        change: impl Fn(FlowRecord) -> FlowRecord,
    ) -> Result<FlowRecord, Failure> {
        let put = self.transact(&Ctx::system(), |tx| {
            let record = change(tx.st.flows.get(who));
            if record == FlowRecord::default() {
                tx.remove(keys::flow(who));
            } else {
                tx.put(keys::flow(who), record.encode());
            }
            tx.then(Effect::Flow(who, record));
            Ok(record)
        });
        let record = put.map_err(about("cannot be changed"))?;
        self.settle()?;
        Ok(record)
    }
}

fn info(who: UserOrGroup, record: FlowRecord) -> FlowInfo {
    let FlowRecord { weight, ops_per_sec, bytes_per_sec } = record;
    FlowInfo { who, weight, ops_per_sec, bytes_per_sec }
}
