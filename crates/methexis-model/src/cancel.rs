//! The one way to stop long work from outside: a flag that the work looks at between steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::{Error, Result};

/// A flag shared by the one who may stop the work (a Ctrl-C handler) and the work itself.
///
/// Clones share the flag. Once raised it stays raised.
///
/// ```
/// let cancel = methexis_model::Cancel::default();
/// assert!(cancel.check().is_ok());
/// cancel.clone().cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the work to stop at its next step. Safe to call from a signal handler's thread, and twice.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked the work to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// To be called between steps.
    ///
    /// # Errors
    /// [`Error::Cancelled`] once [`Cancel::cancel`] has been called.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}
