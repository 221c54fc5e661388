//! What people are told, made of the cell's answers: for the command line and for the console.
//!
//! Nothing here asks the cell or prints.

pub mod alarms;
pub mod forecast;
pub mod month;
pub mod paper;
pub mod rates;
pub mod usage;
pub mod waits;
