//! Texts as a trie of tokens: what several texts begin with is computed once.
//!
//! A node of the trie is a sequence of the batch that continues its parent ([`Sequence::parent`]). A pair's common
//! prompt, a question with many answers or the thousand truncations of one text cost what their distinct tokens cost.

use std::cmp::Ordering;

use super::{Batch, Sequence};
use crate::{Error, Result};

/// Shortest common beginning that becomes a node of its own, in tokens: below that the overhead of a node costs more.
const WORTH: usize = 3;

/// A text to be packed.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// Token ids, without the `past` that a cached prefix holds.
    pub tokens: &'a [u32],
    /// Absolute position at which the response begins ([`Sequence::response`]).
    pub response: Option<usize>,
}

/// Some of the texts as one batch.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The batch.
    pub batch: Batch,
    /// The texts in it, by number, each with the batch's row of every one of its tokens.
    pub texts: Vec<(usize, Vec<u32>)>,
}

/// Texts in the order that brings equal beginnings together.
#[derive(Debug)]
pub struct Trie<'a> {
    texts: Vec<Text<'a>>,
    order: Vec<usize>,
    past: usize,
    next: usize,
}

impl<'a> Trie<'a> {
    /// Plans `texts`, all of which continue after `past` positions that are cached.
    pub fn new(texts: Vec<Text<'a>>, past: usize) -> Self {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        let get = |i: &usize| texts.get(*i).copied().unwrap_or(Text { tokens: &[], response: None });
        order.sort_by(|a, b| compare(get(a), get(b), past).then(a.cmp(b)));
        Self { texts, order, past, next: 0 }
    }

    fn text(&self, i: usize) -> Text<'a> {
        self.texts.get(i).copied().unwrap_or(Text { tokens: &[], response: None })
    }

    /// The next texts, of at most `batch_tokens` distinct tokens together (a longer text comes alone); `None` at the end.
    ///
    /// # Errors
    /// [`Error::Input`] for an empty text.
    pub fn pack(&mut self, batch_tokens: usize) -> Result<Option<Packed>> {
        let first = self.next;
        let mut tokens = 0;
        let mut before: Option<Text<'_>> = None;
        while let Some(&i) = self.order.get(self.next) {
            let text = self.text(i);
            if text.tokens.is_empty() {
                return Err(Error::input(format!("text {i}"), "has no token"));
            }
            let new = text.tokens.len() - before.map_or(0, |b| common(b, text, self.past));
            if self.next > first && tokens + new > batch_tokens {
                break;
            }
            tokens += new;
            before = Some(text);
            self.next += 1;
        }
        let chunk: Vec<(usize, Text<'a>)> =
            self.order.get(first..self.next).unwrap_or_default().iter().map(|&i| (i, self.text(i))).collect();
        if chunk.is_empty() {
            return Ok(None);
        }
        // A text that another one begins with needs no node: its rows are the other's.
        let mut longest: Vec<usize> = (0..chunk.len()).collect();
        for k in (0..chunk.len().saturating_sub(1)).rev() {
            if let (Some((_, a)), Some((_, b))) = (chunk.get(k), chunk.get(k + 1)) {
                if common(*a, *b, self.past) == a.tokens.len() {
                    let target = longest.get(k + 1).copied().unwrap_or(k);
                    if let Some(slot) = longest.get_mut(k) {
                        *slot = target;
                    }
                }
            }
        }
        let ends: Vec<usize> = (0..chunk.len()).filter(|k| longest.get(*k) == Some(k)).collect();
        let mut nodes = Nodes { past: self.past, sequences: Vec::new(), rows: 0, paths: Vec::new() };
        nodes.paths.resize(chunk.len(), Vec::new());
        nodes.grow(&chunk, &ends, 0, None);
        let Nodes { sequences, paths, .. } = nodes;
        let texts = chunk
            .iter()
            .zip(&longest)
            .map(|((i, text), end)| {
                let rows = paths.get(*end).map(|p| p.iter().copied().take(text.tokens.len()).collect());
                (*i, rows.unwrap_or_default())
            })
            .collect();
        Ok(Some(Packed { batch: Batch::new(sequences)?, texts }))
    }
}

struct Nodes {
    past: usize,
    sequences: Vec<Sequence>,
    rows: usize,
    /// For each text of the chunk the rows of its tokens.
    paths: Vec<Vec<u32>>,
}

impl Nodes {
    /// Adds the nodes of `group` (numbers in the chunk, sorted; none begins another), which agree up to `depth` and
    /// continue `parent`.
    fn grow(&mut self, chunk: &[(usize, Text<'_>)], group: &[usize], depth: usize, parent: Option<usize>) {
        // Depth grows by at least one token or the group shrinks; a stack of its own keeps long chains off the call stack.
        let mut work = vec![(group.to_vec(), depth, parent)];
        while let Some((group, depth, parent)) = work.pop() {
            let text = |k: &usize| chunk.get(*k).map(|c| c.1);
            let (Some(first), Some(last)) = (group.first().and_then(text), group.last().and_then(text))
            else {
                continue;
            };
            let agreed = match group.len() {
                1 => first.tokens.len(),
                // Sorted, so the first and the last differ the most.
                _ => common(first, last, self.past),
            };
            let (depth, parent) = if group.len() == 1 || agreed - depth.min(agreed) >= WORTH {
                let tokens = first.tokens.get(depth..agreed).unwrap_or_default().to_vec();
                let start = self.rows as u32;
                let n = tokens.len() as u32;
                self.rows += tokens.len();
                for k in &group {
                    if let Some(path) = self.paths.get_mut(*k) {
                        path.extend(start..start + n);
                    }
                }
                self.sequences.push(Sequence {
                    tokens,
                    past: self.past + depth,
                    response: first.response,
                    parent,
                    ..Sequence::default()
                });
                (agreed, Some(self.sequences.len() - 1))
            } else {
                (depth, parent)
            };
            if group.len() == 1 {
                continue;
            }
            let key = |k: &usize| text(k).and_then(|t| at(t, agreed, self.past));
            let parts: Vec<Vec<usize>> =
                group.chunk_by(|a, b| key(a) == key(b)).map(<[usize]>::to_vec).collect();
            // Last in, first out: reversed, so that nodes come in the order of the texts.
            work.extend(parts.into_iter().rev().map(|p| (p, depth, parent)));
        }
    }
}

/// What must agree for two texts to share a position: the token, and whether it belongs to the response.
fn at(t: Text<'_>, i: usize, past: usize) -> Option<(u32, bool)> {
    t.tokens.get(i).map(|&id| (id, t.response.is_some_and(|r| past + i >= r)))
}

fn compare(a: Text<'_>, b: Text<'_>, past: usize) -> Ordering {
    let n = common(a, b, past);
    at(a, n, past).cmp(&at(b, n, past))
}

fn common(a: Text<'_>, b: Text<'_>, past: usize) -> usize {
    let same = a.tokens.iter().zip(b.tokens).take_while(|(x, y)| x == y).count();
    if a.response == b.response {
        return same;
    }
    // They part where the first response begins.
    let begin = |t: Text<'_>| t.response.map_or(usize::MAX, |r| r.saturating_sub(past));
    same.min(begin(a).min(begin(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(lists: &[Vec<u32>]) -> Vec<Text<'_>> {
        lists.iter().map(|tokens| Text { tokens, response: None }).collect()
    }

    /// The tokens that a text has in the batch, and the chain of nodes they lie in.
    fn spelled(packed: &Packed, rows: &[u32]) -> Vec<u32> {
        let all = packed.batch.tokens();
        rows.iter().map(|r| all[*r as usize]).collect()
    }

    #[test]
    fn a_pair_shares_its_prompt_and_truncations_cost_nothing() {
        let lists: Vec<Vec<u32>> = vec![vec![1, 2, 3, 4, 5], vec![1, 2, 3, 9], vec![1, 2, 3, 4], vec![1, 2]];
        let mut trie = Trie::new(texts(&lists), 7);
        let packed = trie.pack(100).unwrap().unwrap();
        assert_eq!(packed.batch.rows(), 6);
        let s = packed.batch.sequences();
        assert_eq!(s.len(), 3);
        assert_eq!((s[0].past, s[0].parent), (7, None));
        assert!(s[1..].iter().all(|x| x.past == 10 && x.parent == Some(0)));
        for (i, rows) in &packed.texts {
            assert_eq!(spelled(&packed, rows), lists[*i]);
        }
        assert!(trie.pack(100).unwrap().is_none());
    }

    #[test]
    fn a_response_is_not_shared_with_a_prompt() {
        let tokens = vec![1, 2, 3, 4, 5, 6, 7, 8];
        let list = vec![
            Text { tokens: &tokens, response: Some(4) },
            Text { tokens: &tokens, response: Some(6) },
            Text { tokens: &tokens, response: None },
        ];
        let packed = Trie::new(list, 0).pack(100).unwrap().unwrap();
        // 4 common, then "response from 4", and two that agree for no more than two further tokens.
        assert_eq!(packed.batch.rows(), 4 + 4 + 4 + 4);
    }

    proptest! {
        #[test]
        fn every_text_is_spelled_by_its_rows(
            lists in prop::collection::vec(prop::collection::vec(0u32..3, 1..24), 1..40),
            budget in 1usize..80,
            past in 0usize..5,
        ) {
            let mut trie = Trie::new(texts(&lists), past);
            let mut seen = vec![false; lists.len()];
            while let Some(packed) = trie.pack(budget).unwrap() {
                let sequences = packed.batch.sequences();
                let starts: Vec<usize> = packed.batch.spans().map(|s| s.0).collect();
                prop_assert!(packed.texts.len() == 1 || packed.batch.rows() <= budget * (WORTH + 1));
                for (i, rows) in &packed.texts {
                    prop_assert!(!std::mem::replace(&mut seen[*i], true));
                    prop_assert_eq!(spelled(&packed, rows), lists[*i].clone());
                    // Each row lies at the position of its token, in a node whose ancestors hold the tokens before.
                    for (t, row) in rows.iter().enumerate() {
                        let n = starts.iter().rposition(|s| s <= &(*row as usize)).unwrap();
                        prop_assert_eq!(sequences[n].past + (*row as usize - starts[n]), past + t);
                        if t > 0 && *row as usize == starts[n] {
                            let p = sequences[n].parent.unwrap();
                            prop_assert_eq!(rows[t - 1] as usize, starts[p] + sequences[p].tokens.len() - 1);
                        }
                    }
                }
            }
            prop_assert!(seen.iter().all(|s| *s));
        }
    }
}
