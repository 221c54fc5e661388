//! The engine in memory.
