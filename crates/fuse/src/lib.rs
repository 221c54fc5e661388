//! The FUSE door.
