//! Models of the protocol between one server and its clients, for a checker that runs through all
//! their states. Nothing of Leeward's code is here: a model says what the code must do.
//!
//! Each model can leave out one rule of the protocol (a *mutant*). Its tests show that the checker
//! then finds a state that must not be, so each rule is needed and the model can fail.
//! `docs/decisions/0030` states the rules for an implementer.

pub mod check;
pub mod clocks;
pub mod names;
pub mod recalls;
pub mod sessions;
