//! A disk in memory that forgets, fails and lies on command.
