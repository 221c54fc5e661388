//! Reads: from what is kept, from what is under way, or from the server; and calls that read ahead.

use super::Client;
use super::content::{Ahead, Found, Reading};
use super::slots::Answer;
use crate::message::Call;
use leeward_env::Ctx;
use leeward_fs::{NodeId, Op, Reply, Result};

impl Client {
    /// [`Op::Read`].
    pub(super) fn read(&self, ctx: Ctx, (node, offset, len): (NodeId, u64, u32), answer: Answer) {
        let range = offset..offset.saturating_add(u64::from(len));
        let (found, ahead) = self.0.copies.read(Reading { ctx, node, range, answer });
        self.answer_read(found);
        ahead.into_iter().for_each(|call| self.read_ahead(&ctx, call));
    }

    fn answer_read(&self, found: Found) {
        match found {
            Found::Bytes(reading, pieces) => (reading.answer)(Ok(Reply::Data(pieces.bytes()))),
            Found::Waits => (),
            Found::Nothing(Reading { ctx, node, range, answer }) => {
                let op = Op::Read { node, offset: range.start, len: (range.end - range.start) as u32 };
                self.ask_op(&ctx, op, answer);
            }
        }
    }

    fn read_ahead(&self, ctx: &Ctx, call: Ahead) {
        let len = (call.range.end - call.range.start) as u32;
        let op = Op::Read { node: call.node, offset: call.range.start, len };
        let (caller, asked) = (self.caller(ctx, &op), self.0.copies.asked_ahead(&call));
        let client = self.clone();
        let answer = move |result: Result<Reply>| {
            for reading in client.0.copies.ahead_ended(&call) {
                client.answer_read(client.0.copies.read_again(reading, result.is_ok()));
            }
        };
        self.ask(Call::Op(caller, op), Some(asked), Box::new(answer));
    }
}
