//! Attention of a packed batch: every sequence sees itself, its ancestors and its cache; no padding, no mask across
//! sequences.

use std::collections::HashMap;

use candle_core::{CpuStorage, Device, Layout, Storage, Tensor};
use methexis_kernel::attention::{self as kernel, Queries, Segment, Shape};
use methexis_kernel::profile::timed;
use methexis_kernel::rows::View;

use super::ops::{plain, rows_of, with_rows};
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

/// Attention of block `l`: q `[rows, heads · dim]` (scaled), k and v `[rows, kv_heads · dim]` → `[rows, heads · dim]`.
#[allow(clippy::too_many_arguments)]
pub(super) fn attend(
    l: usize,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    a: &Architecture,
    batch: &Batch,
    masks: &mut Masks,
    caches: Option<&mut [Cache]>,
    prefix: Option<&Cache>,
) -> Result<Tensor> {
    let window = a.blocks.get(l).and_then(|b| b.window);
    let shared = prefix.map(|p| p.shared(l)).transpose()?;
    // With caches the keys and values of each sequence lie in its own.
    let cached = match caches {
        Some(caches) => {
            let mut out = Vec::with_capacity(caches.len());
            for ((start, s), cache) in batch.spans().zip(caches) {
                let n = s.tokens.len();
                out.push(cache.append(l, &k.narrow(0, start, n)?, &v.narrow(0, start, n)?)?);
            }
            Some(out)
        }
        None => None,
    };
    let tensors = [q, k, v].into_iter().chain(shared.iter().flat_map(|s| [&s.0, &s.1]));
    let cached_tensors = cached.iter().flatten().flat_map(|(k, v)| [k, v]);
    let masks_given = batch.sequences().iter().filter_map(|s| s.mask.as_ref());
    if tensors.chain(cached_tensors).chain(masks_given).all(plain) {
        return fused(q, k, v, a, batch, window, shared.as_ref(), cached.as_deref());
    }
    let mut outputs = Vec::with_capacity(batch.sequences().len());
    for (i, (start, s)) in batch.spans().enumerate() {
        let n = s.tokens.len();
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
        let (k, v) = match &cached {
            Some(list) => {
                list.get(i).cloned().ok_or_else(|| Error::input("caches", "fewer than sequences"))?
            }
            None => (gather(k, shared.as_ref().map(|s| &s.0))?, gather(v, shared.as_ref().map(|s| &s.1))?),
        };
        let mask = match &s.mask {
            Some(mask) => Some(mask.clone()),
            None => masks.causal(n, s.past, window, q.device())?,
        };
        outputs.push(one(&q.narrow(0, start, n)?, &k, &v, mask.as_ref(), a)?);
    }
    match outputs.as_slice() {
        [single] => Ok(single.clone()),
        many => Ok(Tensor::cat(many, 0)?),
    }
}

/// All sequences by the kernel.
#[allow(clippy::too_many_arguments)]
fn fused(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    a: &Architecture,
    batch: &Batch,
    window: Option<usize>,
    shared: Option<&(Tensor, Tensor)>,
    cached: Option<&[(Tensor, Tensor)]>,
) -> Result<Tensor> {
    // Pairs of tensors with the rows of them that are a segment.
    let mut parts: Vec<(&Tensor, &Tensor, usize, usize)> = Vec::new();
    let mut queries: Vec<Queries<'_>> = Vec::new();
    let mask_of = |s: &super::Sequence| -> Result<Option<Vec<f32>>> {
        Ok(s.mask.as_ref().map(|m| m.flatten_all()?.to_vec1::<f32>()).transpose()?)
    };
    let given: Vec<Option<Vec<f32>>> = batch.sequences().iter().map(mask_of).collect::<Result<_>>()?;
    if let Some(cached) = cached {
        for (i, ((k, v), s)) in cached.iter().zip(batch.sequences()).enumerate() {
            parts.push((k, v, 0, k.dim(0)?));
            let mask = given.get(i).and_then(Option::as_deref);
            queries.push(Queries { n: s.tokens.len(), segments: vec![i], mask });
        }
    } else {
        let first = usize::from(shared.is_some());
        if let Some((k, v)) = shared {
            parts.push((k, v, 0, k.dim(0)?));
        }
        for (i, (start, s)) in batch.spans().enumerate() {
            parts.push((k, v, start, s.tokens.len()));
            let mut segments: Vec<usize> = match s.parent.and_then(|p| queries.get(p)) {
                Some(parent) => parent.segments.clone(),
                None => (0..first).collect(),
            };
            segments.push(first + i);
            let mask = given.get(i).and_then(Option::as_deref);
            queries.push(Queries { n: s.tokens.len(), segments, mask });
        }
    }
    let guards: Vec<_> =
        parts.iter().map(|(k, v, ..)| (k.storage_and_layout(), v.storage_and_layout())).collect();
    let segments: Vec<Segment<'_>> = guards
        .iter()
        .zip(&parts)
        .filter_map(|(((ks, kl), (vs, vl)), (_, _, start, len))| {
            Some(Segment { keys: rows_from(ks, kl, *start)?, values: rows_from(vs, vl, *start)?, len: *len })
        })
        .collect();
    let shape = Shape { heads: a.heads, kv_heads: a.kv_heads, dim: a.head_dim, window };
    let width = a.heads * a.head_dim;
    let mut z = vec![0.0; batch.rows() * width];
    let free = || (0.0, 0.0);
    with_rows(q, |q| timed("attention", free, || kernel::attend(q, &segments, &queries, shape, &mut z)))?;
    drop(guards);
    Ok(Tensor::from_vec(z, (batch.rows(), width), q.device())?)
}

fn rows_from<'a>(storage: &'a Storage, layout: &Layout, start: usize) -> Option<View<'a>> {
    let Storage::Cpu(CpuStorage::F32(data)) = storage else { return None };
    let all = rows_of(data, layout);
    Some(View { data: all.data.get(start * all.stride..)?, ..all })
}

/// One sequence: q `[n, heads · dim]`, k and v `[m, kv_heads · dim]`, mask `[n, m]` → `[n, heads · dim]`.
fn one(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, a: &Architecture) -> Result<Tensor> {
    let (n, m, dim) = (q.dim(0)?, k.dim(0)?, a.head_dim);
    let group = a.heads / a.kv_heads;
    // Query heads that share a key head are stacked as rows of one product: nothing is repeated.
    let split = |t: &Tensor, heads: usize| t.contiguous()?.reshape((t.dim(0)?, heads, dim));
    let (q, k, v) = (split(q, a.heads)?, split(k, a.kv_heads)?, split(v, a.kv_heads)?);
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
