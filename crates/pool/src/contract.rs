//! What every store must do, as functions.
