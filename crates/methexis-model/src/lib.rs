//! Open-weight language models with readable and editable sites.

mod cancel;
pub mod checkpoint;
mod error;
pub mod source;

pub use cancel::Cancel;
pub use error::{Error, Result};
