//! What operators say about users and groups at the gate.

use super::{Answer, no, refuse};
use crate::admin::{Failure, FlowInfo, Reply as AdminReply};
use crate::format::keys;
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::Effect;
use leeward_env::Ctx;
use leeward_fs::flows::{FlowRecord, FlowSettings, Principal, WEIGHT_MAX};

impl Shard {
    /// What was said about flows.
    pub(crate) fn flow_settings(&self) -> FlowSettings {
        self.lock().flows.clone()
    }

    pub(super) fn flow_set(&self, who: Principal, said: FlowRecord) -> Answer {
        if said.weight.is_some_and(|weight| !(1..=WEIGHT_MAX).contains(&weight)) {
            let message = format!("a weight is a number from 1 to {WEIGHT_MAX}: name another");
            return Err(no(libc::EINVAL, message));
        }
        let record = self.put_flow(who, |was| said.or(was))?;
        Ok(AdminReply::Flows { flows: vec![info(who, record)] })
    }

    pub(super) fn flow_reset(&self, who: Principal) -> Answer {
        self.put_flow(who, |_| FlowRecord::default())?;
        Ok(AdminReply::Done)
    }

    pub(super) fn flow_list(&self) -> Answer {
        let flows = self.flow_settings().iter().map(|(who, record)| info(who, record)).collect();
        Ok(AdminReply::Flows { flows })
    }

    fn put_flow(
        &self,
        who: Principal,
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
        let record = put.map_err(|e| refuse(&e, "cannot be changed"))?;
        self.settle()?;
        Ok(record)
    }
}

fn info(who: Principal, record: FlowRecord) -> FlowInfo {
    let FlowRecord { weight, ops_per_sec, bytes_per_sec } = record;
    FlowInfo { who, weight, ops_per_sec, bytes_per_sec }
}
