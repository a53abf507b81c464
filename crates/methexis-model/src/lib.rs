//! Open-weight language models with readable and editable sites.

pub mod architecture;
mod cancel;
pub mod chat;
pub mod checkpoint;
pub mod edit;
mod error;
mod file;
pub mod forward;
pub mod generate;
pub mod log_probs;
mod model;
pub mod read;
pub mod score;
mod site;
pub mod source;
mod tap;

pub mod tokenizer;

pub use cancel::Cancel;
pub use error::{Error, Result};
pub use file::write_whole;
pub use model::{Model, ModelId};
pub use site::Site;
pub use tap::Tap;
