//! The console on a cell, asked as browsers ask, and as those who want harm do.

mod hostile;
mod rig;
mod rights;
mod strangers;
