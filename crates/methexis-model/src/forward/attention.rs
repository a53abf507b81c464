//! Attention of a packed batch: every sequence sees itself (and its cache), no padding, no mask across sequences.

use std::collections::HashMap;

use candle_core::{Device, Tensor};

use super::{ops, Batch, Cache};
use crate::architecture::Architecture;
use crate::{Error, Result};

/// Causal masks by (queries, past, window), built once a pass.
#[derive(Default)]
pub(super) struct Masks(HashMap<(usize, usize, Option<usize>), Option<Tensor>>);

impl Masks {
    /// The mask `[n, past + n]` to add to scores; `None` where every key is seen.
    fn causal(
        &mut self,
        n: usize,
        past: usize,
        window: Option<usize>,
        device: &Device,
    ) -> Result<Option<Tensor>> {
        let total = past + n;
        // A window as long as the text hides nothing.
        let window = window.filter(|w| *w < total);
        if let Some(known) = self.0.get(&(n, past, window)) {
            return Ok(known.clone());
        }
        let mask = if n == 1 && window.is_none() {
            None
        } else {
            let data: Vec<f32> = (0..n)
                .flat_map(|i| {
                    let at = past + i;
                    let first = window.map_or(0, |w| (at + 1).saturating_sub(w));
                    (0..total).map(move |j| if j <= at && j >= first { 0.0 } else { f32::NEG_INFINITY })
                })
                .collect();
            Some(Tensor::from_vec(data, (n, total), device)?)
        };
        self.0.insert((n, past, window), mask.clone());
        Ok(mask)
    }
}

/// Attention of block `l`: q `[rows, heads, dim]` (scaled), k and v `[rows, kv_heads, dim]` → `[rows, heads · dim]`.
#[allow(clippy::too_many_arguments)]
pub(super) fn attend(
    l: usize,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    a: &Architecture,
    batch: &Batch,
    masks: &mut Masks,
    mut caches: Option<&mut [Cache]>,
    prefix: Option<&Cache>,
) -> Result<Tensor> {
    let window = a.blocks.get(l).and_then(|b| b.window);
    let shared = prefix.map(|p| p.shared(l)).transpose()?;
    let mut outputs = Vec::with_capacity(batch.sequences().len());
    for (i, (start, s)) in batch.spans().enumerate() {
        let n = s.tokens.len();
        let q = q.narrow(0, start, n)?;
        let chain = batch.ancestors(i);
        let gather = |t: &Tensor, prefix: Option<&Tensor>| -> Result<Tensor> {
            let own = t.narrow(0, start, n)?;
            let mut parts: Vec<Tensor> = prefix.into_iter().cloned().collect();
            for &(first, n) in &chain {
                parts.push(t.narrow(0, first, n)?);
            }
            if parts.is_empty() {
                return Ok(own);
            }
            parts.push(own);
            Ok(Tensor::cat(&parts, 0)?)
        };
        let (k, v) = match caches.as_deref_mut() {
            Some(caches) => {
                let (k, v) = (gather(k, None)?, gather(v, None)?);
                let cache =
                    caches.get_mut(i).ok_or_else(|| Error::input("caches", "fewer than sequences"))?;
                cache.append(l, &k, &v)?
            }
            None => (gather(k, shared.as_ref().map(|s| &s.0))?, gather(v, shared.as_ref().map(|s| &s.1))?),
        };
        let mask = match &s.mask {
            Some(mask) => Some(mask.clone()),
            None => masks.causal(n, s.past, window, q.device())?,
        };
        outputs.push(one(&q, &k, &v, mask.as_ref(), a)?);
    }
    match outputs.as_slice() {
        [single] => Ok(single.clone()),
        many => Ok(Tensor::cat(many, 0)?),
    }
}

/// One sequence: q `[n, heads, dim]`, k and v `[m, kv_heads, dim]`, mask `[n, m]` → `[n, heads · dim]`.
fn one(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, a: &Architecture) -> Result<Tensor> {
    let (n, m, dim) = (q.dim(0)?, k.dim(0)?, a.head_dim);
    let group = a.heads / a.kv_heads;
    // Query heads that share a key head are stacked as rows of one product: nothing is repeated.
    let q = q.transpose(0, 1)?.contiguous()?.reshape((a.kv_heads, group * n, dim))?;
    let k = k.permute((1, 2, 0))?.contiguous()?;
    let v = v.transpose(0, 1)?.contiguous()?;
    let scores = q.matmul(&k)?;
    let scores = match mask {
        Some(mask) => {
            scores.reshape((a.heads, n, m))?.broadcast_add(mask)?.reshape((a.kv_heads, group * n, m))?
        }
        None => scores,
    };
    let out = ops::softmax(&scores)?.matmul(&v)?;
    Ok(out.reshape((a.heads, n, dim))?.transpose(0, 1)?.contiguous()?.reshape((n, a.heads * dim))?)
}
