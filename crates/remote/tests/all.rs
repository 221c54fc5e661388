//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod addresses;
mod ahead;
mod behind;
mod broken;
mod cached;
mod calls;
mod coherent;
mod commands;
mod gateway;
mod histories;
mod locks;
mod logins;
mod restarted;
mod rig;
mod rights;
mod strangers;
mod wire;
mod worlds;
