//! The methods, each from a request to an answer.

pub(crate) mod copied_entries;
pub(crate) mod copy;
pub(crate) mod dead;
pub(crate) mod get;
pub(crate) mod lock;
pub(crate) mod pages;
pub(crate) mod propfind;
pub(crate) mod proppatch;
pub(crate) mod put;
pub(crate) mod remove;
pub(crate) mod staging;
pub(crate) mod walk;
