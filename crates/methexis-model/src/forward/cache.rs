//! Keys and values of the positions that were already computed, for one sequence.

use candle_core::Tensor;

use crate::{Error, Result};

/// The cache of one sequence.
///
/// It belongs to the edits under which it was filled: another plan is refused, since its keys and values would be
/// those of another computation.
#[derive(Debug, Default)]
pub struct Cache {
    blocks: Vec<Option<KeyValue>>,
    len: usize,
    edits: Option<u64>,
}

#[derive(Debug)]
struct KeyValue {
    // Both [capacity, kv_heads · head_dim]; the first `len` rows are in use.
    key: Tensor,
    value: Tensor,
    len: usize,
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of positions that are cached.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Binds the cache to the fingerprint of the edits it is filled under, or refuses another one.
    pub(super) fn bind(&mut self, edits: u64) -> Result<()> {
        match self.edits {
            Some(known) if known != edits && self.len > 0 => Err(Error::input(
                "cache",
                "was filled under other edits; a steered prefix cannot serve another plan: start with an empty cache",
            )),
            _ => {
                self.edits = Some(edits);
                Ok(())
            }
        }
    }

    /// Appends keys and values `[n, kv_heads · head_dim]` of `block` and returns all of them.
    pub(super) fn append(&mut self, block: usize, key: &Tensor, value: &Tensor) -> Result<(Tensor, Tensor)> {
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, || None);
        }
        let slot = self.blocks.get_mut(block).ok_or_else(|| Error::input("cache", "has no such block"))?;
        let (n, width) = key.dims2()?;
        let (len, capacity) = match slot {
            Some(kv) => (kv.len, kv.key.dim(0)?),
            None => (0, 0),
        };
        if len != self.len {
            return Err(Error::input(
                "cache",
                format!(
                    "holds {len} of {} positions in block {block}: it was filled by a pass that ended early",
                    self.len
                ),
            ));
        }
        if len + n > capacity {
            // Doubling keeps the copying linear in the length of the text.
            let grown = (len + n).next_power_of_two().max(64);
            let zeros = || Tensor::zeros((grown, width), key.dtype(), key.device());
            let fresh = KeyValue { key: zeros()?, value: zeros()?, len };
            if let Some(old) = slot.as_ref().filter(|_| len > 0) {
                fresh.key.slice_set(&old.key.narrow(0, 0, len)?.contiguous()?, 0, 0)?;
                fresh.value.slice_set(&old.value.narrow(0, 0, len)?.contiguous()?, 0, 0)?;
            }
            *slot = Some(fresh);
        }
        let kv = slot.as_mut().ok_or_else(|| Error::input("cache", "has no such block"))?;
        kv.key.slice_set(&key.contiguous()?, 0, len)?;
        kv.value.slice_set(&value.contiguous()?, 0, len)?;
        kv.len = len + n;
        Ok((kv.key.narrow(0, 0, kv.len)?, kv.value.narrow(0, 0, kv.len)?))
    }

    /// Keys and values of all positions in `block`, to be seen by sequences that begin alike.
    pub(super) fn shared(&self, block: usize) -> Result<(Tensor, Tensor)> {
        match self.blocks.get(block) {
            Some(Some(kv)) if kv.len == self.len => {
                Ok((kv.key.narrow(0, 0, kv.len)?, kv.value.narrow(0, 0, kv.len)?))
            }
            _ => Err(Error::input("shared prefix", format!("was not computed up to block {block}"))),
        }
    }

    /// Refuses to serve a sequence under other edits than those the cache was filled under.
    pub(super) fn check_edits(&self, edits: u64) -> Result<()> {
        if self.edits.unwrap_or(0) == edits {
            return Ok(());
        }
        Err(Error::input(
            "shared prefix",
            "was computed under other edits; a steered prefix cannot serve another plan",
        ))
    }

    /// Records that a whole pass over `n` further positions is done.
    pub(super) fn advance(&mut self, n: usize) {
        self.len += n;
    }
}
