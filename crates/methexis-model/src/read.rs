//! The planned read: which sites, which positions, into which sink; planned before it runs.
//!
//! Texts are packed without padding into batches of a bounded number of tokens, what several begin with is computed
//! once, a pass ends after the last site that is read, and no logits are made.

use std::ops::Range;

use candle_core::{DType, Tensor};

use crate::forward::{common_prefix, Batch, Decoder, LogitRows, Packed, Pass, Text, Trie};
use crate::tap::Tap;
use crate::{Cancel, Error, Result, Site};

/// Which positions of a text are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Positions {
    /// The last token.
    Last,
    /// Every token.
    All,
    /// These tokens; negative ones count from the end (−1 is the last).
    Indices(Vec<isize>),
    /// Tokens that overlap these bytes of the text.
    Bytes(Range<usize>),
    /// Tokens from the begin of the response on (after the template).
    Response,
}

impl Positions {
    /// The token numbers that are meant in a text of `n` tokens, ascending.
    ///
    /// `spans` are the byte ranges of the tokens in the text; `response` is the number of the first token of the
    /// response.
    ///
    /// # Errors
    /// [`Error::Input`] where a position is not there.
    pub fn resolve(&self, n: usize, spans: &[Range<usize>], response: Option<usize>) -> Result<Vec<usize>> {
        let missing =
            |what: String| Error::input(format!("position {what}"), format!("the text has {n} tokens"));
        let found = match self {
            Self::Last => n.checked_sub(1).into_iter().collect::<Vec<_>>(),
            Self::All => (0..n).collect(),
            Self::Indices(list) => {
                let mut out = Vec::with_capacity(list.len());
                for &i in list {
                    let at = if i < 0 { n as isize + i } else { i };
                    if !(0..n as isize).contains(&at) {
                        return Err(missing(i.to_string()));
                    }
                    out.push(at as usize);
                }
                out.sort_unstable();
                out.dedup();
                out
            }
            Self::Bytes(range) => spans
                .iter()
                .enumerate()
                .filter(|(_, s)| s.start < range.end && range.start < s.end)
                .map(|(i, _)| i)
                .collect(),
            Self::Response => match response {
                Some(r) => (r..n).collect(),
                None => return Err(Error::input("position response", "this text has no response part")),
            },
        };
        if found.is_empty() {
            return Err(missing(format!("{self:?}")));
        }
        Ok(found)
    }
}

/// One text to be read.
#[derive(Debug, Clone)]
pub struct ReadItem {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Token numbers to read, ascending (see [`Positions::resolve`]).
    pub rows: Vec<usize>,
}

/// Where rows go: called once for each site and batch. Texts come in the order that lets them share beginnings; the
/// owners say which row is whose.
pub trait Sink {
    /// `rows` is `[texts' rows, width]` in f32; `owners` holds for every row the number of its text and of its token.
    fn take(&mut self, site: usize, rows: &Tensor, owners: &[(usize, usize)]) -> Result<()>;
}

/// All rows of one site.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SiteRows {
    /// Values of a row.
    pub width: usize,
    /// Rows end to end.
    pub data: Vec<f32>,
    /// For every row the number of its text and of its token.
    pub owners: Vec<(usize, usize)>,
}

impl SiteRows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.data.chunks_exact(self.width.max(1))
    }

    /// The same rows in the order of their owners.
    fn in_order(&self) -> Self {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|i| self.owners.get(*i));
        let mut sorted =
            Self { width: self.width, data: Vec::with_capacity(self.data.len()), owners: Vec::new() };
        for i in order {
            sorted.data.extend_from_slice(self.row(i).unwrap_or_default());
            sorted.owners.extend(self.owners.get(i));
        }
        sorted
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> Option<&[f32]> {
        self.data.get(i * self.width..(i + 1) * self.width)
    }
}

/// A sink that keeps every row.
#[derive(Default)]
struct KeepRows {
    sites: Vec<SiteRows>,
}

impl Sink for KeepRows {
    fn take(&mut self, site: usize, rows: &Tensor, owners: &[(usize, usize)]) -> Result<()> {
        if self.sites.len() <= site {
            self.sites.resize_with(site + 1, SiteRows::default);
        }
        let Some(slot) = self.sites.get_mut(site) else { return Ok(()) };
        slot.width = rows.dim(1)?;
        slot.data.extend(rows.flatten_all()?.to_vec1::<f32>()?);
        slot.owners.extend_from_slice(owners);
        Ok(())
    }
}

/// Running moments of one site.
#[derive(Debug, Clone, Default)]
pub struct Moments {
    /// Number of rows.
    pub n: u64,
    /// Sum of each dimension.
    pub sum: Vec<f64>,
    /// Sum of squares of each dimension.
    pub sum_squares: Vec<f64>,
    /// Sum of the norms of rows.
    pub sum_norms: f64,
}

impl Moments {
    /// Mean of each dimension.
    pub fn mean(&self) -> Vec<f64> {
        self.sum.iter().map(|s| s / self.n.max(1) as f64).collect()
    }

    /// Standard deviation of each dimension (of the population).
    pub fn std(&self) -> Vec<f64> {
        let n = self.n.max(1) as f64;
        self.sum
            .iter()
            .zip(&self.sum_squares)
            .map(|(s, q)| (q / n - (s / n).powi(2)).max(0.0).sqrt())
            .collect()
    }

    /// Mean norm of a row.
    pub fn mean_norm(&self) -> f64 {
        self.sum_norms / self.n.max(1) as f64
    }
}

/// A sink that keeps first and second moments in f64 and no row: memory does not grow with the texts.
#[derive(Debug, Default)]
pub struct KeepMoments {
    /// One entry a site, in the order of the plan.
    pub sites: Vec<Moments>,
}

impl Sink for KeepMoments {
    fn take(&mut self, site: usize, rows: &Tensor, _: &[(usize, usize)]) -> Result<()> {
        if self.sites.len() <= site {
            self.sites.resize_with(site + 1, Moments::default);
        }
        let Some(m) = self.sites.get_mut(site) else { return Ok(()) };
        let width = rows.dim(1)?;
        m.sum.resize(width, 0.0);
        m.sum_squares.resize(width, 0.0);
        for row in rows.flatten_all()?.to_vec1::<f32>()?.chunks_exact(width.max(1)) {
            m.n += 1;
            let mut norm = 0.0;
            for ((s, q), x) in m.sum.iter_mut().zip(&mut m.sum_squares).zip(row) {
                let x = f64::from(*x);
                *s += x;
                *q += x * x;
                norm += x * x;
            }
            m.sum_norms += norm.sqrt();
        }
        Ok(())
    }
}

/// How a read runs.
#[derive(Clone)]
pub struct ReadOptions<'a> {
    /// Most tokens in one batch; a longer text is a batch of its own. Memory grows with it, results do not change.
    pub batch_tokens: usize,
    /// Asked between batches.
    pub cancel: Cancel,
    /// Called after each batch with the number of texts that are done.
    pub progress: Option<&'a dyn Fn(usize)>,
}

impl Default for ReadOptions<'_> {
    fn default() -> Self {
        Self { batch_tokens: 512, cancel: Cancel::default(), progress: None }
    }
}

/// A tap that copies chosen rows.
struct Reader {
    site: Site,
    rows: Tensor,
    found: Option<Tensor>,
}

impl Tap for Reader {
    fn site(&self) -> Site {
        self.site
    }

    fn visit(&mut self, rows: Tensor, _: &Batch, picked: Option<&[u32]>) -> Result<Tensor> {
        self.found = Some(match picked {
            // Logits exist only for the rows that are read, in the same order.
            Some(_) => rows.clone(),
            None => rows.index_select(&self.rows, 0)?,
        });
        Ok(rows)
    }
}

/// Reads `sites` of all `items` into `sink`, under `edits` (none as a rule).
///
/// # Errors
/// [`Error::Input`] for an item without tokens or rows, a text longer than the context, or a site the model lacks;
/// [`Error::Format`] where the model gives NaN or infinite values; [`Error::Cancelled`].
pub fn read(
    decoder: &Decoder,
    items: &[ReadItem],
    sites: &[Site],
    edits: &mut [crate::edit::Edit],
    options: &ReadOptions<'_>,
    sink: &mut dyn Sink,
) -> Result<()> {
    let a = decoder.architecture();
    for site in sites {
        site.check(a)?;
    }
    for (i, item) in items.iter().enumerate() {
        let fail = |problem: String| Err(Error::input(format!("text {i}"), problem));
        if item.tokens.is_empty() || item.rows.is_empty() {
            return fail("has no token to read".into());
        }
        if item.tokens.len() > a.context {
            return fail(format!("has {} tokens, the model's context is {}", item.tokens.len(), a.context));
        }
        if item.rows.iter().any(|r| *r >= item.tokens.len()) {
            return fail(format!("a row beyond its {} tokens is asked for", item.tokens.len()));
        }
    }
    // What all texts begin with (a template's system turn, as a rule) is computed once.
    let shared =
        common_prefix(items.iter().map(|i| (i.tokens.as_slice(), i.rows.iter().copied().min().unwrap_or(0))));
    let head = items.first().and_then(|i| i.tokens.get(..shared)).unwrap_or_default();
    let prefix = match sites.iter().max() {
        Some(last) if shared > 0 => Some(decoder.prefix(head, edits, *last)?),
        _ => None,
    };
    let texts = items
        .iter()
        .map(|i| Text { tokens: i.tokens.get(shared..).unwrap_or_default(), response: None })
        .collect();
    let mut trie = Trie::new(texts, shared);
    let mut done = 0;
    while let Some(Packed { batch, texts }) = trie.pack(options.batch_tokens)? {
        options.cancel.check()?;
        let mut owners = Vec::new();
        let mut rows = Vec::new();
        for (text, places) in &texts {
            for &r in items.get(*text).map(|i| i.rows.as_slice()).unwrap_or_default() {
                owners.push((*text, r));
                rows.extend(places.get(r - shared));
            }
        }
        let index = Tensor::from_slice(&rows, rows.len(), decoder.device())?;
        let mut readers: Vec<Reader> =
            sites.iter().map(|&site| Reader { site, rows: index.clone(), found: None }).collect();
        let logits = if sites.contains(&Site::Logits) { LogitRows::Rows(rows) } else { LogitRows::None };
        let mut taps: Vec<&mut dyn Tap> = edits.iter_mut().map(|e| e as &mut dyn Tap).collect();
        taps.extend(readers.iter_mut().map(|r| r as &mut dyn Tap));
        decoder.run(&batch, Pass { taps, logits, prefix: prefix.as_ref(), ..Pass::default() })?;
        for (i, reader) in readers.into_iter().enumerate() {
            let found = reader
                .found
                .ok_or_else(|| Error::input(format!("site {}", reader.site), "was not reached by the pass"))?
                .to_dtype(DType::F32)?;
            let sum = found.abs()?.sum_all()?.to_scalar::<f32>()?;
            if !sum.is_finite() {
                return Err(Error::format(
                    decoder.checkpoint().path(),
                    format!("site {}", reader.site),
                    "the model gives NaN or infinite activations",
                ));
            }
            sink.take(i, &found, &owners)?;
        }
        done += texts.len();
        if let Some(progress) = options.progress {
            progress(done);
        }
    }
    Ok(())
}

/// As [`read`], keeping every row: one entry a site, rows in the order of the texts and of their tokens.
///
/// # Errors
/// As [`read`].
pub fn read_rows(
    decoder: &Decoder,
    items: &[ReadItem],
    sites: &[Site],
    edits: &mut [crate::edit::Edit],
    options: &ReadOptions<'_>,
) -> Result<Vec<SiteRows>> {
    let mut kept = KeepRows::default();
    read(decoder, items, sites, edits, options, &mut kept)?;
    Ok(kept.sites.iter().map(SiteRows::in_order).collect())
}
