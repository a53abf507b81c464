//! Concepts as directions: contrast sets, directions, bridges between models, plans of edits, honest measurement.

pub mod bridge;
pub mod contrast;
pub mod direction;
mod error;
pub mod layout;
pub mod measure;
pub mod plan;
pub mod reading;
pub mod rows;
mod store;
pub mod transfer;

pub use error::{Error, Result};

/// The examples of the README compile.
#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
pub struct ReadmeExamples;
