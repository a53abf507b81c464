//! One mechanism for reading and editing: a tap is called at its site with the rows of the batch.

use candle_core::Tensor;

use crate::forward::Batch;
use crate::{Result, Site};

/// Something that looks at, or changes, the rows at one site.
pub trait Tap {
    /// Where this tap sits.
    fn site(&self) -> Site;

    /// Called with the rows `[batch.rows(), width]` at the site; what it returns goes on. A reader returns `rows`.
    ///
    /// At [`Site::Logits`] only the rows that were asked for exist; `picked` then holds their row numbers in the
    /// batch, elsewhere it is `None`.
    fn visit(&mut self, rows: Tensor, batch: &Batch, picked: Option<&[u32]>) -> Result<Tensor>;

    /// A fingerprint of the change this tap makes to sequence `sequence` of a batch; `None` where it makes none.
    fn edit_fingerprint(&self, sequence: usize) -> Option<u64> {
        let _ = sequence;
        None
    }

    /// Whether this tap looks at rows (and so must be reached), rather than changing them.
    fn reads(&self) -> bool {
        true
    }
}
