//! The error type of this crate.

use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a contrast set and a measured effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model room failed.
    #[error(transparent)]
    Model(#[from] methexis_model::Error),
    /// A file is not what it should be.
    #[error("{}: {place}: {problem}", path.display())]
    Format {
        /// File concerned.
        path: PathBuf,
        /// Line, field or tensor.
        place: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The caller asked for something that does not exist or does not fit.
    #[error("{what}: {problem}")]
    Input {
        /// The argument or object at fault.
        what: String,
        /// What is wrong with it and what to do instead.
        problem: String,
    },
}

impl Error {
    /// An [`Error::Format`].
    pub fn format(path: impl AsRef<Path>, place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Format { path: path.as_ref().to_path_buf(), place: place.into(), problem: problem.into() }
    }

    /// An [`Error::Input`].
    pub fn input(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Input { what: what.into(), problem: problem.into() }
    }

    /// A failed read or write.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        Self::Model(methexis_model::Error::io(path, action, source))
    }

    /// Whether this is the user's own stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Model(methexis_model::Error::Cancelled))
    }
}
