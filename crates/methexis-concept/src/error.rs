//! The error type of this crate: what went wrong, where, and what to do instead.

use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between rows of activations and a measured concept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a read or a write.
    #[error("{}: {action} failed: {source}", path.display())]
    Io {
        /// File or folder concerned.
        path: PathBuf,
        /// What was tried, as a noun ("reading", "writing", "renaming", …).
        action: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
    /// A file is not what it should be: truncated, hostile, or of another format.
    #[error("{}: {place}: {problem}", path.display())]
    Format {
        /// File concerned.
        path: PathBuf,
        /// Where in the file: a field, a tensor, a line.
        place: String,
        /// What is wrong and, where there is one, the remedy.
        problem: String,
    },
    /// Something well-formed that this program does not support.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// The thing that was asked for.
        what: String,
        /// Why not, and what to do instead.
        reason: String,
    },
    /// The caller asked for something that does not exist or does not fit.
    #[error("{what}: {problem}")]
    Input {
        /// The argument or object at fault.
        what: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A decomposition did not converge or a matrix was not what theory says it is.
    #[error("{what}: {problem}")]
    Numeric {
        /// The computation that failed.
        what: String,
        /// How, and what to do about it.
        problem: String,
    },
    /// The model's room reported an error.
    #[error(transparent)]
    Model(#[from] methexis_model::Error),
}

impl Error {
    /// An [`Error::Io`] for `path`.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), action, source }
    }

    /// An [`Error::Format`] for `path`.
    pub fn format(path: impl AsRef<Path>, place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Format { path: path.as_ref().to_path_buf(), place: place.into(), problem: problem.into() }
    }

    /// An [`Error::Unsupported`].
    pub fn unsupported(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), reason: reason.into() }
    }

    /// An [`Error::Input`].
    pub fn input(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Input { what: what.into(), problem: problem.into() }
    }

    /// An [`Error::Numeric`].
    pub fn numeric(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Numeric { what: what.into(), problem: problem.into() }
    }
}
