//! Models of the protocol between servers and clients, for a checker that runs through all their
//! states. Nothing of Leeward's code is here: a model says what the code must do.
//!
//! Each model can leave out one rule of the protocol (a *mutant*). Its tests show that the checker
//! then finds a state that must not be, so each rule is needed and the model can fail.
//! `docs/decisions/0030-the-protocol-as-a-checked-model.md` states the rules for an implementer,
//! `0038-owners-of-shards-as-a-checked-model.md` those among several servers.
//!
//! [`sessions`]: requests, crashes and replay. [`replay`]: the same as the code has it, with
//! content. [`recalls`]: grants and recalls that overtake each other. [`copies`]: the same as the
//! code has them, without numbers. [`behind`]: write-behind. [`clocks`]: keepalives, freezes,
//! take-over. [`names`]: the kernel's directory locks. [`owners`]: which of several servers owns a
//! shard.

pub mod behind;
pub mod check;
pub mod clocks;
pub mod copies;
pub mod names;
pub mod owners;
pub mod recalls;
pub mod replay;
pub mod sessions;
