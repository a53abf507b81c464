//! Concepts as directions: contrast sets, and what is read from them.
//!
//! * [`contrast`]: pairs of texts that show a concept and its absence; their formats, their linter, the shipped sets.

pub mod contrast;
mod error;

pub use error::{Error, Result};
