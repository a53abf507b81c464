//! Letter questions in the manner of CAA: which of two answers does the model choose, and does it choose at all?

use methexis_model::edit::Edit;
use methexis_model::score::{score, ScoreItem, ScoreOptions};
use methexis_model::Model;

use super::stats::{bootstrap, mean_at, Interval};
use crate::contrast::{text_hash, Pair};
use crate::layout::{lay_out, Style};
use crate::{Error, Result};

/// Letter questions under one version of the model.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LetterScores {
    /// Mean of p(matching letter) / (p(A) + p(B)).
    pub matching: Interval,
    /// Mean of p(A) + p(B). A broken model scores one half above for the wrong reason; here it shows.
    pub legal: f64,
}

/// Scores every pair as a question with two lettered answers, under every version. Which letter matches follows a hash
/// of the pair's id, so that half of them are A.
///
/// # Errors
/// Those of the layout and the model; [`Error::Input`] where the two letters are one token.
pub fn letters(
    model: &Model,
    pairs: &[&Pair],
    style: Style,
    system: Option<&str>,
    versions: &mut [Vec<Edit>],
    options: &ScoreOptions<'_>,
    seed: u64,
) -> Result<Vec<LetterScores>> {
    let mut items = Vec::new();
    let mut matching_first = Vec::new();
    for p in pairs {
        let a_matches = text_hash([p.id.as_str()]).bytes().next().is_some_and(|b| b % 2 == 0);
        let (a, b) = if a_matches { (&p.positive, &p.negative) } else { (&p.negative, &p.positive) };
        let question = format!("{}\n\nChoices:\n (A) {a}\n (B) {b}", p.prompt);
        // The token that the model would really write: the first at which the two answers part.
        let (x, y) = (
            lay_out(model, style, system, &question, "(A)")?,
            lay_out(model, style, system, &question, "(B)")?,
        );
        let at = x.tokens.iter().zip(&y.tokens).position(|(i, j)| i != j);
        let parted = at.and_then(|k| Some((k, *x.tokens.get(k)?, *y.tokens.get(k)?)));
        let Some((k, letter_a, letter_b)) = parted else {
            return Err(Error::input("letters", "A and B are the same token in this model"));
        };
        let tokens = x.tokens.get(..=k).unwrap_or_default().to_vec();
        items.push(ScoreItem { tokens, completion: k, candidates: vec![letter_a, letter_b] });
        matching_first.push(a_matches);
    }
    let scores = score(model.decoder(), &items, versions, options)?;
    scores
        .into_iter()
        .map(|version| {
            let mut share = Vec::new();
            let mut legal = Vec::new();
            for (s, first) in version.iter().zip(&matching_first) {
                let p: Vec<f64> = s.candidates.iter().map(|l| f64::from(*l).exp()).collect();
                let [a, b] = p.as_slice() else { continue };
                let match_p = if *first { a } else { b };
                share.push(match_p / (a + b).max(f64::MIN_POSITIVE));
                legal.push(a + b);
            }
            let all: Vec<usize> = (0..legal.len()).collect();
            let matching = bootstrap(share.len(), seed, |pick| mean_at(&share, pick))
                .ok_or_else(|| Error::input("letters", "gave no finite score"))?;
            Ok(LetterScores { matching, legal: mean_at(&legal, &all) })
        })
        .collect()
}
