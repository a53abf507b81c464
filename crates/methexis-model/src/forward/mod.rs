//! The one decoder: every family, every pass (reading, editing, scoring, generating) runs through [`Decoder::run`].

mod attention;
mod batch;
mod block;
mod cache;
mod linear;
mod ops;
mod trie;

use std::sync::OnceLock;

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use crate::architecture::Architecture;
use crate::checkpoint::{Checkpoint, Part, Precision};
use crate::tap::Tap;
use crate::{edit, Error, Result, Site};

pub use batch::{common_prefix, Batch, Sequence};
use block::Block;
pub use cache::Cache;
use linear::Linear;
pub use trie::{Packed, Text, Trie};

/// Which rows get logits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogitRows {
    /// None: the head is not computed, and the pass ends after the last tap.
    #[default]
    None,
    /// The last row of each sequence.
    Last,
    /// Every row.
    All,
    /// These rows of the batch.
    Rows(Vec<u32>),
}

/// Where a pass begins.
#[derive(Debug, Clone, Default)]
pub enum Start {
    /// At the embedding.
    #[default]
    Tokens,
    /// At the input of a block, with the residual stream `[rows, width]` there. Taps before it are not called.
    Block(usize, Tensor),
}

/// One pass over a batch.
#[derive(Default)]
pub struct Pass<'p, 't> {
    /// Readers and edits; those at one site are called in their order.
    pub taps: Vec<&'t mut dyn Tap>,
    /// One cache a sequence, or none.
    pub caches: Option<&'p mut [Cache]>,
    /// Positions that all sequences begin with, computed before under the same edits; every sequence then has `past` of
    /// its length. Not together with `caches`.
    pub prefix: Option<&'p Cache>,
    /// Which rows get logits.
    pub logits: LogitRows,
    /// Where to begin.
    pub start: Start,
}

/// The taps of a running pass.
struct Visitor<'v, 't> {
    taps: &'v mut [&'t mut dyn Tap],
    /// The last site that must be computed.
    last: Site,
}

impl Visitor<'_, '_> {
    fn visit(&mut self, site: Site, rows: Tensor, batch: &Batch) -> Result<Tensor> {
        self.visit_picked(site, rows, batch, None)
    }

    fn visit_picked(
        &mut self,
        site: Site,
        mut rows: Tensor,
        batch: &Batch,
        picked: Option<&[u32]>,
    ) -> Result<Tensor> {
        for tap in self.taps.iter_mut().filter(|t| t.site() == site) {
            rows = tap.visit(rows, batch, picked)?;
        }
        Ok(rows)
    }

    /// Calls the taps at single heads of block `l` with their part of `z` `[rows, heads · dim]`.
    fn visit_heads(&mut self, l: usize, mut z: Tensor, a: &Architecture, batch: &Batch) -> Result<Tensor> {
        for tap in self.taps.iter_mut() {
            let Site::Head(block, head) = tap.site() else { continue };
            if block != l {
                continue;
            }
            let part = z.narrow(1, head * a.head_dim, a.head_dim)?.contiguous()?;
            let edits = !tap.reads();
            let part = tap.visit(part, batch, None)?;
            if edits {
                let before = z.narrow(1, 0, head * a.head_dim)?;
                let after = z.narrow(1, (head + 1) * a.head_dim, (a.heads - head - 1) * a.head_dim)?;
                let parts: Vec<&Tensor> =
                    [&before, &part, &after].into_iter().filter(|t| t.elem_count() > 0).collect();
                z = Tensor::cat(&parts, 1)?;
            }
        }
        Ok(z)
    }

    /// Whether a tap sits at `site`.
    fn watch(&self, site: Site) -> bool {
        self.taps.iter().any(|t| t.site() == site)
    }

    /// Whether everything up to `site` was all that is needed.
    fn done(&self, site: Site) -> bool {
        self.last.order() <= site.order()
    }
}

/// A decoder with lazily loaded weights: a block, the embedding or the head is read when a pass first needs it, so a
/// read that ends early never touches what lies above.
#[derive(Debug)]
pub struct Decoder {
    architecture: Architecture,
    checkpoint: Checkpoint,
    precision: Precision,
    device: Device,
    blocks: Vec<OnceLock<Block>>,
    final_norm: OnceLock<Tensor>,
    head: OnceLock<Linear>,
}

impl Decoder {
    /// A decoder over an open checkpoint. Names and shapes of all weights are checked; no weight is read.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Format`] where the checkpoint is of another family or incomplete.
    pub fn new(checkpoint: Checkpoint, precision: Precision, device: Device) -> Result<Self> {
        let architecture = checkpoint.architecture()?;
        checkpoint.check_complete(&architecture)?;
        let blocks = (0..architecture.depth()).map(|_| OnceLock::new()).collect();
        Ok(Self {
            architecture,
            checkpoint,
            precision,
            device,
            blocks,
            final_norm: OnceLock::new(),
            head: OnceLock::new(),
        })
    }

    /// What kind of model this is.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Where tensors live.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How quantised weights are held.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes of the weights that are in memory.
    pub fn weight_bytes(&self) -> usize {
        let blocks = self.blocks.iter().filter_map(OnceLock::get).map(Block::bytes_len);
        blocks.sum::<usize>() + self.head.get().map_or(0, Linear::bytes_len)
    }

    /// Loads blocks `0..blocks` at once, in parallel.
    pub fn preload(&self, blocks: usize) -> Result<()> {
        (0..blocks.min(self.blocks.len())).into_par_iter().try_for_each(|l| self.block(l).map(|_| ()))
    }

    fn block(&self, l: usize) -> Result<&Block> {
        let cell = self.blocks.get(l).ok_or_else(|| Error::input(format!("block {l}"), "is not there"))?;
        lazily(cell, || Block::load(&self.checkpoint, &self.architecture, l, self.precision, &self.device))
    }

    fn head(&self) -> Result<&Linear> {
        lazily(&self.head, || {
            let w =
                self.checkpoint.matrix(&self.architecture, self.head_part(), self.precision, &self.device)?;
            Linear::new(vec![w], None)
        })
    }

    fn head_part(&self) -> Part {
        if self.architecture.tied_head {
            Part::Embedding
        } else {
            Part::Head
        }
    }

    /// The unembedding row of `token`, `[width]`, f32.
    pub fn unembedding(&self, token: u32) -> Result<Tensor> {
        Ok(self.checkpoint.rows(&self.architecture, self.head_part(), &[token], &self.device)?.squeeze(0)?)
    }

    /// Embedding rows of the batch's tokens, after the family's scale: `[rows, width]`.
    fn embed(&self, batch: &Batch) -> Result<Tensor> {
        let tokens = batch.tokens();
        if let Some(bad) = tokens.iter().find(|t| **t as usize >= self.architecture.vocab) {
            return Err(Error::input(
                format!("token id {bad}"),
                format!(
                    "the model has {} tokens: the ids come from another tokenizer",
                    self.architecture.vocab
                ),
            ));
        }
        // Rows are looked up in the mapped file: the table is never loaded.
        let rows = self.checkpoint.rows(&self.architecture, Part::Embedding, &tokens, &self.device)?;
        Ok(match self.architecture.embed_scale {
            Some(scale) => (rows * scale)?,
            None => rows,
        })
    }

    /// cos and sin `[rows, head_dim / 2]` for each kind of rotary embedding.
    fn rotary(&self, batch: &Batch) -> Result<Vec<(Tensor, Tensor)>> {
        let positions = batch.positions();
        let half = self.architecture.head_dim / 2;
        self.architecture
            .ropes
            .iter()
            .map(|rope| {
                let frequencies = rope.frequencies(self.architecture.head_dim);
                let angles =
                    positions.iter().flat_map(|&p| frequencies.iter().map(move |f| f64::from(p) * f));
                let (cos, sin): (Vec<f32>, Vec<f32>) =
                    angles.map(|x| (x.cos() as f32, x.sin() as f32)).unzip();
                let shape = (positions.len(), half);
                Ok((Tensor::from_vec(cos, shape, &self.device)?, Tensor::from_vec(sin, shape, &self.device)?))
            })
            .collect()
    }

    /// Runs one pass and returns the logits `[asked rows, vocab]`, where any were asked for.
    ///
    /// The pass ends after the last site that a reader sits at, or with the logits. Edits above that never run.
    ///
    /// # Errors
    /// [`Error::Input`] for taps at sites the model lacks, token ids out of range, caches that do not fit.
    pub fn run(&self, batch: &Batch, pass: Pass<'_, '_>) -> Result<Option<Tensor>> {
        let Pass { mut taps, mut caches, prefix, logits, start } = pass;
        let a = &self.architecture;
        for tap in &taps {
            tap.site().check(a)?;
        }
        let picked: Option<Vec<u32>> = match logits {
            LogitRows::None => None,
            LogitRows::Last => Some(batch.last_rows()),
            LogitRows::All => Some((0..batch.rows() as u32).collect()),
            LogitRows::Rows(rows) => {
                if let Some(bad) = rows.iter().find(|r| **r as usize >= batch.rows()) {
                    return Err(Error::input(
                        format!("logits of row {bad}"),
                        format!("the batch has {} rows", batch.rows()),
                    ));
                }
                Some(rows)
            }
        };
        let last = match &picked {
            Some(_) => Site::Logits,
            None => {
                let readers = taps.iter().filter(|t| t.reads()).map(|t| t.site());
                match readers.max() {
                    Some(Site::Logits) => {
                        return Err(Error::input("reading at logits", "say which rows get logits"));
                    }
                    Some(site) => site,
                    // A pass that fills caches runs every block.
                    None if caches.is_some() => Site::ResidPost(a.depth() - 1),
                    None => return Ok(None),
                }
            }
        };
        if let Some(caches) = caches.as_deref_mut() {
            if prefix.is_some() {
                return Err(Error::input("caches", "cannot be given together with a shared prefix"));
            }
            if caches.len() != batch.sequences().len() {
                return Err(Error::input(
                    "caches",
                    format!("{} caches for {} sequences", caches.len(), batch.sequences().len()),
                ));
            }
            if let Some(i) = batch.sequences().iter().position(|s| s.parent.is_some()) {
                return Err(Error::input(
                    format!("sequence {i} of the batch"),
                    "continues another one, which a cache of its own excludes",
                ));
            }
            for (i, (cache, s)) in caches.iter_mut().zip(batch.sequences()).enumerate() {
                if cache.len() != s.past {
                    return Err(Error::input(
                        "cache",
                        format!("holds {} positions where the sequence says {}", cache.len(), s.past),
                    ));
                }
                cache.bind(edit::fingerprint(&taps, i))?;
            }
        } else if let Some(prefix) = prefix {
            for (i, s) in batch.sequences().iter().enumerate() {
                if s.past != prefix.len() && s.parent.is_none() {
                    return Err(Error::input(
                        "shared prefix",
                        format!("holds {} positions where sequence {i} says {}", prefix.len(), s.past),
                    ));
                }
                prefix.check_edits(edit::fingerprint(&taps, i))?;
            }
        } else if let Some(s) = batch.sequences().iter().find(|s| s.past > 0 && s.parent.is_none()) {
            return Err(Error::input(
                "sequence",
                format!("continues after {} positions, but no cache is given", s.past),
            ));
        }

        let mut visitor = Visitor { taps: &mut taps, last };
        let (first, mut h) = match start {
            Start::Tokens => {
                let h = visitor.visit(Site::Embed, self.embed(batch)?, batch)?;
                (0, h)
            }
            Start::Block(l, h) => {
                if h.dims() != [batch.rows(), a.width] || l > a.depth() {
                    return Err(Error::input(
                        format!("start at block {l}"),
                        format!(
                            "needs a residual stream of shape [{}, {}] and a block of this model",
                            batch.rows(),
                            a.width
                        ),
                    ));
                }
                (l, h)
            }
        };
        if visitor.done(Site::Embed) {
            return Ok(None);
        }
        let rotary = self.rotary(batch)?;
        let mut masks = attention::Masks::default();
        for l in first..a.depth() {
            let kind = a.blocks.get(l).map_or(0, |b| b.rope);
            let rotary =
                rotary.get(kind).ok_or_else(|| Error::input("rotary embedding", "kind is missing"))?;
            let block = self.block(l)?;
            match block.run(
                l,
                h,
                a,
                batch,
                rotary,
                &mut masks,
                caches.as_deref_mut(),
                prefix,
                &mut visitor,
            )? {
                Some(next) => h = next,
                None => {
                    return self.finish(batch, caches, None);
                }
            }
        }
        let norm = lazily(&self.final_norm, || self.checkpoint.vector(a, Part::FinalNorm, &self.device))?;
        // Rows without logits need no final norm, unless somebody reads it.
        let reads_norm = visitor.taps.iter().any(|t| t.site() == Site::FinalNorm);
        let select = |h: &Tensor, rows: &[u32]| -> Result<Tensor> {
            Ok(h.index_select(&Tensor::from_slice(rows, rows.len(), &self.device)?, 0)?)
        };
        let Some(picked) = picked else {
            visitor.visit(Site::FinalNorm, ops::rms_norm(&h, norm, a.norm_eps)?, batch)?;
            return self.finish(batch, caches, None);
        };
        let x = if reads_norm {
            let x = visitor.visit(Site::FinalNorm, ops::rms_norm(&h, norm, a.norm_eps)?, batch)?;
            select(&x, &picked)?
        } else {
            ops::rms_norm(&select(&h, &picked)?, norm, a.norm_eps)?
        };
        let logits = self.head()?.apply(&x, None)?;
        let logits = visitor.visit_picked(Site::Logits, logits, batch, Some(&picked))?;
        self.finish(batch, caches, Some(logits))
    }

    /// Computes the positions that many sequences begin with, once: up to the block that `until` lies in.
    ///
    /// # Errors
    /// As [`Decoder::run`].
    pub fn prefix(&self, tokens: &[u32], edits: &mut [edit::Edit], until: Site) -> Result<Cache> {
        struct End(Site);
        impl Tap for End {
            fn site(&self) -> Site {
                self.0
            }
            fn visit(&mut self, rows: Tensor, _: &Batch, _: Option<&[u32]>) -> Result<Tensor> {
                Ok(rows)
            }
        }
        let last = self.architecture.depth() - 1;
        let block = if until == Site::Embed { 0 } else { until.block().map_or(last, |b| b.min(last)) };
        let mut end = End(Site::ResidPost(block));
        let mut caches = [Cache::new()];
        let mut taps: Vec<&mut dyn Tap> = edits.iter_mut().map(|e| e as &mut dyn Tap).collect();
        taps.push(&mut end);
        let batch = Batch::new(vec![Sequence::new(tokens)])?;
        self.run(&batch, Pass { taps, caches: Some(&mut caches), ..Pass::default() })?;
        let [cache] = caches;
        Ok(cache)
    }

    fn finish(
        &self,
        batch: &Batch,
        caches: Option<&mut [Cache]>,
        logits: Option<Tensor>,
    ) -> Result<Option<Tensor>> {
        if let Some(caches) = caches {
            for (cache, s) in caches.iter_mut().zip(batch.sequences()) {
                cache.advance(s.tokens.len());
            }
        }
        Ok(logits)
    }
}

/// The value of `cell`, made by `load` at the first call; a failed load is tried again at the next.
fn lazily<T>(cell: &OnceLock<T>, load: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = load()?;
    Ok(cell.get_or_init(|| value))
}
