//! What every engine must do, as functions.
