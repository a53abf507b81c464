//! Asking long work to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::{Error, Result};

/// A flag that long work looks at between its steps; clones share it.
///
/// ```
/// let cancel = methexis_model::Cancel::default();
/// assert!(cancel.check().is_ok());
/// cancel.cancel();
/// assert!(matches!(cancel.check(), Err(methexis_model::Error::Cancelled)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks all who hold this flag to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// [`Error::Cancelled`] once somebody asked.
    ///
    /// # Errors
    /// Only that one.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}
