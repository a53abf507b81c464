//! Model hubs.

use super::{FetchOptions, Resolved};
use crate::{Error, Result};

/// The model of a repository.
pub(super) fn fetch(repo: &str, _: Option<&str>, _: Option<&str>, _: &FetchOptions) -> Result<Resolved> {
    Err(Error::unsupported(
        format!("the hub id {repo}"),
        "hubs are not read yet; give a local file or a known name",
    ))
}
