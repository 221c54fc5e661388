//! Open segments.
