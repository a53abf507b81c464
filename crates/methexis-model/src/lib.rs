//! Open-weight language models with readable and editable sites.

pub mod architecture;
mod cancel;
pub mod checkpoint;
pub mod edit;
mod error;
pub mod forward;
pub mod generate;
pub mod read;
pub mod score;
mod site;
mod tap;

pub use cancel::Cancel;
pub use error::{Error, Result};
pub use site::Site;
pub use tap::Tap;
