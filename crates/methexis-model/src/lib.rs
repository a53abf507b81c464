//! Open-weight language models with readable and editable sites.

pub mod checkpoint;
mod error;

pub use error::{Error, Result};
