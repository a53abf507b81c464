//! Texts that occur twice: duplicates, leaks from test into train, neutral text that is not neutral.

use std::collections::{HashMap, HashSet};

use super::pairs::Texts;
use super::{Finding, Rule, Severity};
use crate::contrast::set::{shortened, ContrastSet, NeutralText, Split};
use crate::contrast::words::{grams, words};

/// Share of a text's trigrams in one other text from which it counts as the same text in other words.
const LEAK: f64 = 0.6;
/// Share of shared trigrams (Jaccard) from which two pairs of one split count as near-duplicates.
const NEAR: f64 = 0.7;
/// Share for neutral texts, which must not even resemble a pair.
const NEUTRAL: f64 = 0.5;
/// Texts with fewer trigrams are only compared whole.
const FEWEST: usize = 3;

/// Trigrams of many texts, to ask which of them a text shares most with.
struct Index {
    sizes: Vec<usize>,
    holders: HashMap<u64, Vec<u32>>,
    /// A trigram that more texts hold is the language's or a template's, not a text's own.
    common: usize,
}

/// The text that shares most trigrams with a query.
struct Best {
    text: usize,
    shared: usize,
    /// Trigrams of the query that are not common.
    own: usize,
}

impl Best {
    /// Share of the query's trigrams found in the text.
    fn share(&self) -> f64 {
        self.shared as f64 / self.own.max(1) as f64
    }
}

impl Index {
    fn new<'a>(texts: impl Iterator<Item = &'a Vec<String>>) -> Self {
        let mut sizes = Vec::new();
        let mut holders: HashMap<u64, Vec<u32>> = HashMap::new();
        for (text, words) in texts.enumerate() {
            let own: HashSet<u64> = grams(words, 3).into_iter().collect();
            sizes.push(own.len());
            for gram in own {
                holders.entry(gram).or_default().push(text as u32);
            }
        }
        let common = (sizes.len() / 20).clamp(8, 200);
        Self { sizes, holders, common }
    }

    /// The best match among the texts that `keep` admits, or `None` where nothing is shared or the query is too short.
    fn best(&self, words: &[String], keep: impl Fn(usize) -> bool) -> Option<Best> {
        let own: HashSet<u64> = grams(words, 3).into_iter().collect();
        let mut counts: HashMap<u32, usize> = HashMap::new();
        let mut known = 0;
        for gram in own {
            let holders = self.holders.get(&gram).map(Vec::as_slice).unwrap_or_default();
            if holders.len() > self.common {
                continue;
            }
            known += 1;
            for text in holders.iter().filter(|text| keep(**text as usize)) {
                *counts.entry(*text).or_default() += 1;
            }
        }
        if known < FEWEST {
            return None;
        }
        let (text, shared) =
            counts.into_iter().max_by_key(|(text, shared)| (*shared, std::cmp::Reverse(*text)))?;
        Some(Best { text: text as usize, shared, own: known })
    }
}

/// Duplicates and near-duplicates in a split; leaks from test into train.
pub(super) fn within(set: &ContrastSet, texts: &Texts, findings: &mut Vec<Finding>) {
    let split: Vec<Split> = set.pairs.iter().map(|pair| pair.split).collect();
    let is = |index: usize, wanted: Split| split.get(index) == Some(&wanted);
    let id = |index: usize| set.pairs.get(index).map(|pair| pair.id.clone()).unwrap_or_default();
    let mut add = |severity, rule, index: usize, problem: String, remedy: &str| {
        findings.push(Finding { severity, rule, pair: Some(id(index)), problem, remedy: remedy.into() });
    };
    // Whole texts first: they are certain, and spare the comparison by trigrams.
    let mut first: HashMap<(Split, String), usize> = HashMap::new();
    let mut exact: HashSet<usize> = HashSet::new();
    let keys: Vec<String> = set
        .pairs
        .iter()
        .zip(&texts.prompts)
        .zip(texts.positives.iter().zip(&texts.negatives))
        .map(|((_, prompt), (positive, negative))| {
            // Where there is no prompt, the halves are all there is to compare.
            if prompt.is_empty() {
                format!("{}\n{}", positive.join(" "), negative.join(" "))
            } else {
                prompt.join(" ")
            }
        })
        .collect();
    for (index, key) in keys.iter().enumerate() {
        let Some(pair) = set.pairs.get(index) else { continue };
        match first.get(&(pair.split, key.clone())) {
            Some(earlier) => {
                exact.insert(index);
                add(
                    Severity::Warning,
                    Rule::Duplicate,
                    index,
                    format!("same prompt as `{}`: `{}`", id(*earlier), shortened(key, 60)),
                    "remove one of the two, or write another scene",
                );
            }
            None => {
                first.insert((pair.split, key.clone()), index);
            }
        }
    }
    for (index, key) in keys.iter().enumerate().filter(|(index, _)| is(*index, Split::Test)) {
        if let Some(earlier) = first.get(&(Split::Train, key.clone())) {
            exact.insert(index);
            add(
                Severity::Error,
                Rule::Leak,
                index,
                format!("held out, but its prompt is also that of train pair `{}`", id(*earlier)),
                "move both pairs to the same split, or replace one: held-out numbers are untrue otherwise",
            );
        }
    }
    for (field, all) in
        [("prompt", &texts.prompts), ("positive half", &texts.positives), ("negative half", &texts.negatives)]
    {
        let index = Index::new(all.iter());
        for (number, words) in all.iter().enumerate().filter(|(number, _)| !exact.contains(number)) {
            if is(number, Split::Test) {
                let best =
                    index.best(words, |other| is(other, Split::Train)).filter(|best| best.share() > LEAK);
                if let Some(best) = best {
                    add(
                        Severity::Error,
                        Rule::Leak,
                        number,
                        format!(
                            "held out, but {} of the {} word trigrams of its {field} are in train pair `{}`",
                            best.shared,
                            best.own,
                            id(best.text)
                        ),
                        "move both pairs to the same split, or write another scene",
                    );
                }
            }
            // Only earlier pairs, so that each near-duplicate is told once.
            let best = index.best(words, |other| other < number && split.get(other) == split.get(number));
            if let Some(best) = best {
                let union = best.own + index.sizes.get(best.text).copied().unwrap_or(0);
                let jaccard = best.shared as f64 / union.saturating_sub(best.shared).max(1) as f64;
                if jaccard > NEAR {
                    add(
                        Severity::Warning,
                        Rule::NearDuplicate,
                        number,
                        format!(
                            "its {field} is nearly that of `{}` (trigram overlap {jaccard:.2})",
                            id(best.text)
                        ),
                        "write another scene: near-duplicates count one idea twice",
                    );
                }
            }
        }
    }
}

/// Neutral texts that are, in whole or in large part, in the set.
pub(super) fn with_neutral(
    set: &ContrastSet,
    texts: &Texts,
    neutral: &[NeutralText],
    findings: &mut Vec<Finding>,
) {
    if neutral.is_empty() {
        return;
    }
    let count = set.pairs.len().max(1);
    let whole: HashMap<String, usize> = texts
        .all()
        .enumerate()
        .filter(|(_, words)| !words.is_empty())
        .map(|(index, words)| (words.join(" "), index))
        .collect();
    let index = Index::new(texts.all());
    for text in neutral {
        let words = words(&text.text);
        let same = whole.get(&words.join(" ")).map(|text| (Severity::Error, *text, "is".to_owned()));
        let found = same.or_else(|| {
            let best = index.best(&words, |_| true)?;
            let small = best.own.min(index.sizes.get(best.text).copied().unwrap_or(0));
            let share = best.shared as f64 / small.max(1) as f64;
            (share > NEUTRAL && small >= FEWEST)
                .then(|| (Severity::Warning, best.text, format!("shares {} word trigrams with", best.shared)))
        });
        if let Some((severity, at, how)) = found {
            findings.push(Finding {
                severity,
                rule: Rule::Neutral,
                // Texts are numbered prompts first, then the halves.
                pair: set.pairs.get(at % count).map(|pair| pair.id.clone()),
                problem: format!("neutral text `{}` {how} one of its texts", text.id),
                remedy:
                    "leave that neutral text out: a bridge fitted on the concept's own text proves nothing"
                        .into(),
            });
        }
    }
}

/// Prompts that another concept's set has, too.
pub(super) fn with_others(set: &ContrastSet, others: &[&ContrastSet], findings: &mut Vec<Finding>) {
    for other in others {
        let prompts: HashMap<String, &str> = other
            .pairs
            .iter()
            .map(|pair| (words(&pair.prompt).join(" "), pair.id.as_str()))
            .filter(|(prompt, _)| !prompt.is_empty())
            .collect();
        for pair in &set.pairs {
            if let Some(id) = prompts.get(&words(&pair.prompt).join(" ")) {
                findings.push(Finding {
                    severity: Severity::Warning,
                    rule: Rule::OtherSet,
                    pair: Some(pair.id.clone()),
                    problem: format!("its prompt is also that of `{id}` in `{}`", other.name),
                    remedy: "write another prompt: the other concept serves as a control, and must be another text".into(),
                });
            }
        }
    }
}
