//! Log-probabilities of given completions, several edited versions of the model in one pass.
//!
//! Texts are packed as in [`read`](crate::read). What lies below the lowest edited block is the same under every
//! version, so it is computed once and each version starts from there.

use candle_core::{DType, Tensor, D};

use crate::edit::Edit;
use crate::forward::{common_prefix, Batch, Cache, Decoder, LogitRows, Pass, Sequence, Start};
use crate::tap::Tap;
use crate::{Cancel, Error, Result, Site};

/// A text whose end is scored.
#[derive(Debug, Clone)]
pub struct ScoreItem {
    /// Token ids of prompt and completion together.
    pub tokens: Vec<u32>,
    /// Number of the first token of the completion; at least 1.
    pub completion: usize,
    /// Further candidate tokens for the first position of the completion, whose log-probabilities are wanted.
    pub candidates: Vec<u32>,
}

/// The score of one item under one version of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Natural log-probability of each completion token given all before it.
    pub log_probs: Vec<f32>,
    /// Log-probability of each candidate in place of the first completion token.
    pub candidates: Vec<f32>,
}

impl Score {
    /// Log-probability of the whole completion.
    pub fn total(&self) -> f64 {
        self.log_probs.iter().map(|x| f64::from(*x)).sum()
    }

    /// Mean log-probability of a completion token.
    pub fn mean(&self) -> f64 {
        self.total() / self.log_probs.len().max(1) as f64
    }
}

/// How scoring runs.
#[derive(Clone)]
pub struct ScoreOptions<'a> {
    /// Most tokens in one batch.
    pub batch_tokens: usize,
    /// Asked between passes.
    pub cancel: Cancel,
    /// Called after each batch with the number of items that are done.
    pub progress: Option<&'a dyn Fn(usize)>,
}

impl Default for ScoreOptions<'_> {
    fn default() -> Self {
        Self { batch_tokens: 512, cancel: Cancel::default(), progress: None }
    }
}

struct Snapshot {
    site: Site,
    found: Option<Tensor>,
}

impl Tap for Snapshot {
    fn site(&self) -> Site {
        self.site
    }

    fn visit(&mut self, rows: Tensor, _: &Batch, _: Option<&[u32]>) -> Result<Tensor> {
        self.found = Some(rows.clone());
        Ok(rows)
    }
}

/// Scores `items` under each of `versions` (lists of edits; an empty list is the model itself).
///
/// Returns one list a version, in the order of the items. `visit_logits` (where given) sees the logits
/// `[completion rows, vocab]` of every batch and version: (version, first item, rows, logits).
///
/// # Errors
/// [`Error::Input`] for items without a completion or beyond the context; [`Error::Cancelled`].
pub fn score(
    decoder: &Decoder,
    items: &[ScoreItem],
    versions: &mut [Vec<Edit>],
    options: &ScoreOptions<'_>,
) -> Result<Vec<Vec<Score>>> {
    score_with(decoder, items, versions, options, &mut |_, _, _| Ok(()))
}

/// As [`score()`], handing the log-probabilities `[completion rows, vocab]` of every batch to `visit` with the number
/// of the batch and of the version.
///
/// # Errors
/// As [`score()`], and those of `visit`.
pub fn score_with(
    decoder: &Decoder,
    items: &[ScoreItem],
    versions: &mut [Vec<Edit>],
    options: &ScoreOptions<'_>,
    visit: &mut dyn FnMut(usize, usize, &Tensor) -> Result<()>,
) -> Result<Vec<Vec<Score>>> {
    let a = decoder.architecture();
    for (i, item) in items.iter().enumerate() {
        let fail = |problem: String| Err(Error::input(format!("item {i}"), problem));
        if item.completion == 0 || item.completion >= item.tokens.len() {
            return fail(format!(
                "the completion begins at token {} of {}; both prompt and completion need a token",
                item.completion,
                item.tokens.len()
            ));
        }
        if item.tokens.len() > a.context {
            return fail(format!("has {} tokens, the model's context is {}", item.tokens.len(), a.context));
        }
    }
    // The lowest block that any version changes; below it all versions are one.
    let edited = versions.iter().flatten().filter(|e| !e.is_identity());
    let shared =
        edited.map(|e| e.site().block().unwrap_or(if e.site() == Site::Embed { 0 } else { a.depth() })).min();
    let shared = shared.unwrap_or(a.depth()).min(a.depth() - 1);
    // What all items begin with is computed once for each version.
    let common = common_prefix(items.iter().map(|i| (i.tokens.as_slice(), i.completion - 1)));
    let head = items.first().and_then(|i| i.tokens.get(..common)).unwrap_or_default();
    let plain: Option<Cache> = match common > 0 && shared > 0 {
        true => Some(decoder.prefix(head, &mut [], Site::ResidPre(shared))?),
        false => None,
    };
    let mut prefixes: Vec<Option<Cache>> = Vec::with_capacity(versions.len());
    for version in versions.iter_mut() {
        options.cancel.check()?;
        prefixes.push(match common > 0 {
            true => Some(decoder.prefix(head, version, Site::Logits)?),
            false => None,
        });
    }
    let mut out: Vec<Vec<Score>> = versions.iter().map(|_| Vec::with_capacity(items.len())).collect();
    let mut next = 0;
    let mut number = 0;
    while next < items.len() {
        let first = next;
        let mut tokens = 0;
        while let Some(item) = items.get(next) {
            if next > first && tokens + item.tokens.len() - common > options.batch_tokens {
                break;
            }
            tokens += item.tokens.len() - common;
            next += 1;
        }
        let chunk = items.get(first..next).unwrap_or_default();
        let sequences =
            chunk.iter().map(|i| Sequence::new(i.tokens.clone()).with_response(i.completion)).collect();
        let batch = Batch::new(sequences)?;
        let rows: Vec<u32> = batch
            .spans()
            .zip(chunk)
            .flat_map(|((start, _), item)| {
                (item.completion - 1..item.tokens.len() - 1).map(move |r| (start + r - common) as u32)
            })
            .collect();
        let mut below = Snapshot { site: Site::ResidPre(shared), found: None };
        if shared > 0 {
            decoder
                .run(&batch, Pass { taps: vec![&mut below], prefix: plain.as_ref(), ..Pass::default() })?;
        }
        for (v, ((version, scores), prefix)) in versions.iter_mut().zip(&mut out).zip(&prefixes).enumerate() {
            options.cancel.check()?;
            let start = match &below.found {
                Some(h) => Start::Block(shared, h.clone()),
                None => Start::Tokens,
            };
            let taps = version.iter_mut().map(|e| e as &mut dyn Tap).collect();
            let pass = Pass {
                taps,
                logits: LogitRows::Rows(rows.clone()),
                start,
                prefix: prefix.as_ref(),
                ..Pass::default()
            };
            let logits = decoder.run(&batch, pass)?.ok_or_else(|| Error::input("logits", "were not made"))?;
            let log_probs = log_softmax(&logits)?;
            visit(number, v, &log_probs)?;
            collect(&log_probs, chunk, scores)?;
        }
        number += 1;
        if let Some(progress) = options.progress {
            progress(next);
        }
    }
    Ok(out)
}

fn log_softmax(logits: &Tensor) -> Result<Tensor> {
    let logits = logits.to_dtype(DType::F32)?;
    let max = logits.max_keepdim(D::Minus1)?;
    let shifted = logits.broadcast_sub(&max)?;
    let total = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
    Ok(shifted.broadcast_sub(&total)?)
}

fn collect(log_probs: &Tensor, chunk: &[ScoreItem], scores: &mut Vec<Score>) -> Result<()> {
    let mut row = 0;
    for item in chunk {
        let targets = item.tokens.get(item.completion..).unwrap_or_default();
        let n = targets.len();
        let here = log_probs.narrow(0, row, n)?;
        let index = Tensor::from_slice(targets, (n, 1), log_probs.device())?;
        let found = here.gather(&index, 1)?.flatten_all()?.to_vec1::<f32>()?;
        let candidates = if item.candidates.is_empty() {
            Vec::new()
        } else {
            let ids = Tensor::from_slice(&item.candidates, item.candidates.len(), log_probs.device())?;
            here.get(0)?.index_select(&ids, 0)?.to_vec1::<f32>()?
        };
        if let Some(bad) = found.iter().chain(&candidates).find(|x| x.is_nan()) {
            return Err(Error::input(
                "log-probability",
                format!("is {bad}: the dose is too high or the model is damaged"),
            ));
        }
        scores.push(Score { log_probs: found, candidates });
        row += n;
    }
    Ok(())
}
