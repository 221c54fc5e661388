//! The format of a segment object.
