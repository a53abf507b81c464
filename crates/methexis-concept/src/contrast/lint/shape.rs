//! The set as a whole: lengths, variety, openings, words that give a side away.

use std::collections::{HashMap, HashSet};

use super::pairs::{mean_and_error, Texts};
use super::{Finding, Lengths, Rule, Severity, Variety};
use crate::contrast::set::ContrastSet;
use crate::contrast::words::grams;

/// Below this share of distinct word pairs a set of ordinary size reads like a filled template.
const DISTINCT_2: f64 = 0.5;
/// The shortest set whose variety and openings are judged, in pairs.
const JUDGED: usize = 20;

/// Distinct n-grams over all texts.
pub(super) fn variety(texts: &Texts) -> Variety {
    let distinct = |n: usize| {
        let mut total = 0usize;
        let mut seen = HashSet::new();
        for words in texts.all() {
            let grams = grams(words, n);
            total += grams.len();
            seen.extend(grams);
        }
        if total == 0 {
            0.0
        } else {
            seen.len() as f64 / total as f64
        }
    };
    Variety {
        words: texts.all().map(Vec::len).sum(),
        distinct_1: distinct(1),
        distinct_2: distinct(2),
        distinct_3: distinct(3),
    }
}

/// Mean lengths, and which side is longer how often. Tokens are filled in by the caller.
pub(super) fn lengths(texts: &Texts) -> Lengths {
    let mean = |texts: &[Vec<String>]| {
        let total: usize = texts.iter().map(Vec::len).sum();
        total as f64 / texts.len().max(1) as f64
    };
    let both = || texts.positives.iter().zip(&texts.negatives).map(|(p, n)| (p.len(), n.len()));
    Lengths {
        prompt_words: mean(&texts.prompts),
        positive_words: mean(&texts.positives),
        negative_words: mean(&texts.negatives),
        positive_longer: both().filter(|(p, n)| p > n).count(),
        negative_longer: both().filter(|(p, n)| p < n).count(),
        token_difference: None,
    }
}

pub(super) fn check(
    set: &ContrastSet,
    texts: &Texts,
    variety: Variety,
    lengths: Lengths,
    findings: &mut Vec<Finding>,
) {
    let mut add = |severity, rule, problem: String, remedy: &str| {
        findings.push(Finding { severity, rule, pair: None, problem, remedy: remedy.into() });
    };
    let differences: Vec<f64> =
        texts.positives.iter().zip(&texts.negatives).map(|(p, n)| p.len() as f64 - n.len() as f64).collect();
    let longer = if lengths.positive_longer > lengths.negative_longer { "positive" } else { "negative" };
    if let Some((mean, error)) = mean_and_error(&differences) {
        if mean.abs() > 0.5 && mean.abs() > 3.0 * error {
            let side = if mean > 0.0 { "positive" } else { "negative" };
            add(
                Severity::Warning,
                Rule::Balance,
                format!("{side} halves are {:.2} words longer on average", mean.abs()),
                "lengthen the other side in some pairs: length becomes part of the direction otherwise",
            );
        }
    }
    // Sign test: under balance the count of longer positives is binomial; three standard deviations are beyond chance.
    let unequal = (lengths.positive_longer + lengths.negative_longer) as f64;
    let excess = (lengths.positive_longer as f64 - unequal / 2.0).abs();
    if excess > 1.5 * unequal.sqrt()
        && lengths.positive_longer.max(lengths.negative_longer) * 10 > set.pairs.len() * 3
    {
        add(
            Severity::Warning,
            Rule::Balance,
            format!(
                "the {longer} half is the longer one too often: positive {} times, negative {} times",
                lengths.positive_longer, lengths.negative_longer
            ),
            "make the other half the longer one in some pairs",
        );
    }
    if set.pairs.len() < JUDGED {
        return;
    }
    if variety.distinct_2 < DISTINCT_2 {
        add(
            Severity::Warning,
            Rule::Variety,
            format!("only {:.2} of all word pairs are distinct", variety.distinct_2),
            "vary scenes, persons and sentence shapes: a filled template teaches its template",
        );
    }
    let limit = (set.pairs.len() * 3 / 100).max(5);
    for (side, halves) in [("positive", &texts.positives), ("negative", &texts.negatives)] {
        let mut openings: HashMap<String, usize> = HashMap::new();
        for half in halves.iter().filter(|half| half.len() > 2) {
            *openings.entry(half.iter().take(2).cloned().collect::<Vec<_>>().join(" ")).or_default() += 1;
        }
        let mut often: Vec<_> = openings.into_iter().filter(|(_, count)| *count > limit).collect();
        often.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        for (opening, count) in often.into_iter().take(5) {
            add(
                Severity::Note,
                Rule::Opening,
                format!("{count} {side} halves begin with `{opening}`"),
                "vary the openings: the first words settle the direction early otherwise",
            );
        }
    }
    for (word, positive, negative) in markers(texts) {
        let (side, share) = if positive > negative { ("positive", positive) } else { ("negative", negative) };
        add(
            Severity::Note,
            Rule::Marker,
            format!(
                "`{word}` is in {:.0} % of positive and {:.0} % of negative halves",
                100.0 * positive,
                100.0 * negative
            ),
            if share > 0.5 {
                "say it in other words in most pairs: the direction may become that one word"
            } else if side == "positive" {
                "see whether the concept needs the word; if not, vary it"
            } else {
                "see whether the absence needs the word; if not, vary it"
            },
        );
    }
}

/// Words in a fifth or more of one side's halves and four times rarer on the other, the most telling first.
fn markers(texts: &Texts) -> Vec<(String, f64, f64)> {
    let holders = |halves: &[Vec<String>]| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for half in halves {
            for word in half.iter().collect::<HashSet<_>>() {
                *counts.entry(word.clone()).or_default() += 1;
            }
        }
        counts
    };
    let (positive, negative) = (holders(&texts.positives), holders(&texts.negatives));
    let n = texts.positives.len().max(1) as f64;
    let share =
        |counts: &HashMap<String, usize>, word: &str| counts.get(word).copied().unwrap_or(0) as f64 / n;
    let mut found: Vec<(String, f64, f64)> = positive
        .keys()
        .chain(negative.keys())
        .collect::<HashSet<_>>()
        .into_iter()
        .map(|word| (word.clone(), share(&positive, word), share(&negative, word)))
        .filter(|(_, p, n)| p.max(*n) >= 0.2 && p.max(*n) >= 4.0 * p.min(*n))
        .collect();
    let gap = |entry: &(String, f64, f64)| (entry.1 - entry.2).abs();
    found.sort_by(|a, b| gap(b).total_cmp(&gap(a)).then_with(|| a.0.cmp(&b.0)));
    found.truncate(5);
    found
}
