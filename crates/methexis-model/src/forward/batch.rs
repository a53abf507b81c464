//! A packed batch: many sequences in one matrix of rows, without padding.

use candle_core::Tensor;

use crate::{Error, Result};

/// One sequence of a batch, or the next piece of one whose beginning is cached.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    /// Token ids of this piece; at least one.
    pub tokens: Vec<u32>,
    /// Number of positions before this piece that its cache holds.
    pub past: usize,
    /// Absolute position (of the sequence, not of this piece) at which the response begins; edits of scope
    /// [`Scope::Response`](crate::edit::Scope::Response) act from there on.
    pub response: Option<usize>,
    /// Number of an earlier sequence of the same batch that this one continues: it sees that one's tokens (and those of
    /// its parents) as its own past. `past` then counts them.
    pub parent: Option<usize>,
    /// Rotary positions, one a token; default: `past`, `past + 1`, ….
    pub positions: Option<Vec<u32>>,
    /// Attention mask added to the scores, `[tokens, past + tokens]` (0 sees, −∞ does not); default: causal with
    /// the block's window. Where given it replaces both.
    pub mask: Option<Tensor>,
}

impl Sequence {
    /// A whole sequence with causal attention.
    pub fn new(tokens: impl Into<Vec<u32>>) -> Self {
        Self { tokens: tokens.into(), ..Self::default() }
    }

    /// The same with the position at which the response begins.
    pub fn with_response(mut self, response: usize) -> Self {
        self.response = Some(response);
        self
    }
}

/// Sequences laid end to end.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    sequences: Vec<Sequence>,
    starts: Vec<usize>,
    rows: usize,
}

impl Batch {
    /// Lays `sequences` end to end.
    ///
    /// # Errors
    /// [`Error::Input`] for an empty sequence or for positions or a mask of the wrong size.
    pub fn new(sequences: Vec<Sequence>) -> Result<Self> {
        let mut starts = Vec::with_capacity(sequences.len());
        let mut rows = 0;
        for (i, s) in sequences.iter().enumerate() {
            let fail = |problem: String| Error::input(format!("sequence {i} of the batch"), problem);
            if s.tokens.is_empty() {
                return Err(fail(
                    "has no token; an empty text has no position to read or to continue".into(),
                ));
            }
            if let Some(p) = &s.positions {
                if p.len() != s.tokens.len() {
                    return Err(fail(format!("has {} positions for {} tokens", p.len(), s.tokens.len())));
                }
            }
            if let Some(m) = &s.mask {
                let want = [s.tokens.len(), s.past + s.tokens.len()];
                if m.dims() != want {
                    return Err(fail(format!("has a mask of shape {:?} where {want:?} is needed", m.dims())));
                }
            }
            if let Some(p) = s.parent {
                let end = sequences.get(p).filter(|_| p < i).map(|q| q.past + q.tokens.len());
                if end != Some(s.past) {
                    return Err(fail(format!(
                        "continues sequence {p} after {} positions, which is no earlier one that ends there",
                        s.past
                    )));
                }
            }
            starts.push(rows);
            rows += s.tokens.len();
        }
        if rows == 0 {
            return Err(Error::input("batch", "has no sequence"));
        }
        Ok(Self { sequences, starts, rows })
    }

    /// Number of rows (tokens of all sequences together).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The sequences with the row at which each begins.
    pub fn spans(&self) -> impl Iterator<Item = (usize, &Sequence)> {
        self.starts.iter().copied().zip(&self.sequences)
    }

    /// The sequences.
    pub fn sequences(&self) -> &[Sequence] {
        &self.sequences
    }

    /// The rows that sequence `i` sees before its own, in order: those of its ancestors in this batch, as
    /// (first row, number of rows), adjacent ones joined.
    pub fn ancestors(&self, i: usize) -> Vec<(usize, usize)> {
        let mut chain: Vec<(usize, usize)> = Vec::new();
        let mut next = self.sequences.get(i).and_then(|s| s.parent);
        while let Some(p) = next {
            let (Some(s), Some(&start)) = (self.sequences.get(p), self.starts.get(p)) else { break };
            match chain.last_mut() {
                Some(c) if start + s.tokens.len() == c.0 => *c = (start, s.tokens.len() + c.1),
                _ => chain.push((start, s.tokens.len())),
            }
            next = s.parent;
        }
        chain.reverse();
        chain
    }

    /// All token ids in the order of the rows.
    pub fn tokens(&self) -> Vec<u32> {
        self.sequences.iter().flat_map(|s| s.tokens.iter().copied()).collect()
    }

    /// Rotary position of every row.
    pub fn positions(&self) -> Vec<u32> {
        self.sequences
            .iter()
            .flat_map(|s| match &s.positions {
                Some(p) => p.clone(),
                None => (s.past..s.past + s.tokens.len()).map(|p| p as u32).collect(),
            })
            .collect()
    }

    /// The row of the last token of every sequence.
    pub fn last_rows(&self) -> Vec<u32> {
        self.spans().map(|(start, s)| (start + s.tokens.len() - 1) as u32).collect()
    }
}

/// Shortest common beginning that is worth a pass of its own, in tokens.
const WORTH: usize = 4;

/// Number of tokens that all texts begin with, where it is worth computing them once; `least` is for each text the number
/// of tokens that must not be counted in (from the first that is read on).
pub fn common_prefix<'a>(texts: impl IntoIterator<Item = (&'a [u32], usize)>) -> usize {
    let mut first: Option<&[u32]> = None;
    let mut n = usize::MAX;
    let mut count = 0;
    for (tokens, least) in texts {
        let head = *first.get_or_insert(tokens);
        let same = head.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        n = n.min(same).min(least).min(tokens.len().saturating_sub(1));
        count += 1;
    }
    if count > 1 && n >= WORTH {
        n
    } else {
        0
    }
}
