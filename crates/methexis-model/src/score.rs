//! Log-probabilities of given completions, several edited versions of the model in one pass.
//!
//! Texts are packed as in [`read`](crate::read), so that a pair's prompt is computed once. What lies below the lowest edited block is the same under every
//! version, so it is computed once and each version starts from there.

use candle_core::Tensor;

use crate::edit::Edit;
use crate::forward::{common_prefix, Batch, Cache, Decoder, LogitRows, Packed, Pass, Start, Text, Trie};
use crate::log_probs::LogProbs;
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
/// Returns one list a version, in the order of the items.
///
/// # Errors
/// [`Error::Input`] for items without a completion or beyond the context; [`Error::Cancelled`].
pub fn score(
    decoder: &Decoder,
    items: &[ScoreItem],
    versions: &mut [Vec<Edit>],
    options: &ScoreOptions<'_>,
) -> Result<Vec<Vec<Score>>> {
    score_with(decoder, items, versions, options, &mut |_, _| Ok(()))
}

/// As [`score()`], handing the log-probabilities of every batch to `visit` with the number of the version: one row for
/// every position from which a completion token is predicted, in an order that is the same for all versions, whose turn
/// comes in their order.
///
/// # Errors
/// As [`score()`], and those of `visit`.
pub fn score_with(
    decoder: &Decoder,
    items: &[ScoreItem],
    versions: &mut [Vec<Edit>],
    options: &ScoreOptions<'_>,
    visit: &mut dyn FnMut(usize, &LogProbs) -> Result<()>,
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
    let none = || Score { log_probs: Vec::new(), candidates: Vec::new() };
    let mut out: Vec<Vec<Score>> = versions.iter().map(|_| items.iter().map(|_| none()).collect()).collect();
    let texts = items
        .iter()
        .map(|i| Text { tokens: i.tokens.get(common..).unwrap_or_default(), response: Some(i.completion) });
    let mut trie = Trie::new(texts.collect(), common);
    let mut done = 0;
    while let Some(Packed { batch, texts }) = trie.pack(options.batch_tokens)? {
        // Each row once, also where several completions begin after it.
        let wanted = texts.iter().map(|(i, places)| {
            let item = items.get(*i).map_or(0..0, |item| item.completion - 1..item.tokens.len() - 1);
            (*i, item.filter_map(|t| places.get(t - common).copied()).collect::<Vec<u32>>())
        });
        let wanted: Vec<(usize, Vec<u32>)> = wanted.collect();
        let mut rows: Vec<u32> = wanted.iter().flat_map(|w| w.1.iter().copied()).collect();
        rows.sort_unstable();
        rows.dedup();
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
            let log_probs = LogProbs::new(&logits)?;
            visit(v, &log_probs)?;
            for (i, places) in &wanted {
                if let (Some(item), Some(slot)) = (items.get(*i), scores.get_mut(*i)) {
                    *slot = pick(&log_probs, item, places, &rows)?;
                }
            }
        }
        done += texts.len();
        if let Some(progress) = options.progress {
            progress(done);
        }
    }
    Ok(out)
}

/// The score of `item`, whose completion is predicted from the batch's rows `places`; `rows` are those of `log_probs`.
fn pick(log_probs: &LogProbs, item: &ScoreItem, places: &[u32], rows: &[u32]) -> Result<Score> {
    let row = |place: &u32| rows.binary_search(place).unwrap_or(usize::MAX / 2);
    let targets = item.tokens.get(item.completion..).unwrap_or_default();
    let found: Vec<f32> = targets.iter().zip(places).map(|(t, p)| log_probs.get(row(p), *t)).collect();
    let first = places.first().map_or(usize::MAX / 2, row);
    let candidates: Vec<f32> = item.candidates.iter().map(|t| log_probs.get(first, *t)).collect();
    if let Some(bad) = found.iter().chain(&candidates).find(|x| x.is_nan()) {
        return Err(Error::input(
            "log-probability",
            format!(
                "is {bad}: the dose is too high, the model is damaged, or a token is not in its vocabulary"
            ),
        ));
    }
    Ok(Score { log_probs: found, candidates })
}
