//! Open-weight language models with readable and editable sites.

pub mod architecture;
pub mod checkpoint;
pub mod edit;
mod error;
pub mod forward;
mod site;
mod tap;

pub use error::{Error, Result};
pub use site::Site;
pub use tap::Tap;
