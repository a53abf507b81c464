//! Letter questions in the manner of CAA: which of two answers does the model choose, and does it choose at all?

use methexis_model::edit::Edit;
use methexis_model::score::{score, ScoreItem, ScoreOptions};
use methexis_model::Model;

use super::stats::{bootstrap, mean_at, Interval};
use crate::contrast::{AbQuestion, ContrastSet, Pair};
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

/// The text of a letter question up to the answer, and as candidates the two tokens at which the answers part: those that
/// the model would really write there, be it `A` or ` A` (matching one first).
///
/// # Errors
/// Those of the layout; [`Error::Input`] where the two letters are one token.
pub fn letter_item(
    model: &Model,
    style: Style,
    system: Option<&str>,
    asked: &AbQuestion,
) -> Result<ScoreItem> {
    let (x, y) = (
        lay_out(model, style, system, &asked.question, &asked.matching)?,
        lay_out(model, style, system, &asked.question, &asked.other)?,
    );
    let at = x.tokens.iter().zip(&y.tokens).position(|(i, j)| i != j);
    let parted = at.and_then(|k| Some((k, *x.tokens.get(k)?, *y.tokens.get(k)?)));
    let Some((k, matching, other)) = parted else {
        return Err(Error::input("letters", "the two answers are the same token in this model"));
    };
    let tokens = x.tokens.get(..=k).unwrap_or_default().to_vec();
    Ok(ScoreItem { tokens, completion: k, candidates: vec![matching, other] })
}

/// Scores every pair as a question with two lettered answers, both ways round ([`ContrastSet::ab_question`]), under every
/// version: a model that likes one letter better likes it in both.
///
/// # Errors
/// Those of the layout and the model; [`Error::Input`] where the two letters are one token.
#[allow(clippy::too_many_arguments)]
pub fn letters(
    model: &Model,
    set: &ContrastSet,
    pairs: &[&Pair],
    style: Style,
    system: Option<&str>,
    versions: &mut [Vec<Edit>],
    options: &ScoreOptions<'_>,
    seed: u64,
) -> Result<Vec<LetterScores>> {
    let mut items = Vec::new();
    for p in pairs {
        for flip in [false, true] {
            items.push(letter_item(model, style, system, &set.ab_question(p, flip))?);
        }
    }
    let scores = score(model.decoder(), &items, versions, options)?;
    scores
        .into_iter()
        .map(|version| {
            // One value a pair: the mean of both ways round.
            let (mut share, mut legal) = (Vec::new(), Vec::new());
            for both in version.chunks_exact(2) {
                let each = both.iter().filter_map(|s| match s.candidates.as_slice() {
                    [matching, other] => {
                        let (a, b) = (f64::from(*matching).exp(), f64::from(*other).exp());
                        Some((a / (a + b).max(f64::MIN_POSITIVE), a + b))
                    }
                    _ => None,
                });
                let (s, l) = each.fold((0.0, 0.0), |t, x| (t.0 + x.0, t.1 + x.1));
                share.push(s / 2.0);
                legal.push(l / 2.0);
            }
            let all: Vec<usize> = (0..legal.len()).collect();
            let matching = bootstrap(share.len(), seed, |pick| mean_at(&share, pick))
                .ok_or_else(|| Error::input("letters", "gave no finite score"))?;
            Ok(LetterScores { matching, legal: mean_at(&legal, &all) })
        })
        .collect()
}
