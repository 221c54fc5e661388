//! The engine on a directory.
