//! The linter: what makes a contrast set measure something else than its concept.
//!
//! A direction read from pairs holds everything that differs between their halves. [`lint`] looks for what is easy to
//! overlook: halves of unlike length or punctuation, test pairs already seen in training, neutral text that is
//! not neutral, one sentence frame filled a hundred times. It judges form, not meaning: a clean report does not make a
//! set good, and published sets have findings.

mod overlap;
mod pairs;
mod shape;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::set::{ContrastSet, NeutralText, Split};

/// Counts the tokens of a text as the model at hand would.
pub type TokenCounter<'a> = &'a dyn Fn(&str) -> usize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; often in the nature of the concept.
    Note,
    /// Likely to blur what is measured.
    Warning,
    /// Makes held-out numbers untrue.
    Error,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// One half is much longer than the other, in words.
    Length,
    /// The halves have hardly a word in common.
    Wording,
    /// The halves end in different punctuation, right where the last token is read.
    Ending,
    /// The halves are of different lengths in tokens.
    Tokens,
    /// A prompt or pair occurs twice in a split.
    Duplicate,
    /// A pair is nearly another pair of its split.
    NearDuplicate,
    /// A test pair is, in whole or in large part, in the training pairs.
    Leak,
    /// A neutral text is, in whole or in large part, in the set.
    Neutral,
    /// A prompt is also in another concept's set.
    OtherSet,
    /// One side is systematically longer.
    Balance,
    /// Many halves of one side begin alike.
    Opening,
    /// A word gives the side away.
    Marker,
    /// The set says the same word sequences again and again.
    Variety,
    /// A split has no pairs.
    Split,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "length",
            Self::Wording => "wording",
            Self::Ending => "ending",
            Self::Tokens => "tokens",
            Self::Duplicate => "duplicate",
            Self::NearDuplicate => "near-duplicate",
            Self::Leak => "leak",
            Self::Neutral => "neutral",
            Self::OtherSet => "other-set",
            Self::Balance => "balance",
            Self::Opening => "opening",
            Self::Marker => "marker",
            Self::Variety => "variety",
            Self::Split => "split",
        })
    }
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub rule: Rule,
    /// Id of the pair; `None` where it is about the whole set.
    pub pair: Option<String>,
    /// What is the matter, with the numbers.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

/// How varied the texts are: distinct n-grams over all n-grams of prompts and halves, lower-cased (Li et al. 2016). No
/// n-gram crosses from one text into the next; where the halves share a template, it is left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Variety {
    /// Words in all texts.
    pub words: usize,
    /// Distinct words over words; 0 without words.
    pub distinct_1: f64,
    /// The same for runs of two words.
    pub distinct_2: f64,
    /// The same for runs of three words.
    pub distinct_3: f64,
}

/// How long the halves are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lengths {
    /// Mean words of a prompt.
    pub prompt_words: f64,
    /// Mean words of a positive half.
    pub positive_words: f64,
    /// Mean words of a negative half.
    pub negative_words: f64,
    /// Pairs whose positive half has more words.
    pub positive_longer: usize,
    /// Pairs whose negative half has more words.
    pub negative_longer: usize,
    /// Mean tokens of the positive text less those of the negative one; `None` without a tokenizer.
    pub token_difference: Option<f64>,
}

/// What [`lint`] says about a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintReport {
    /// Name of the set.
    pub set: String,
    /// [`ContrastSet::hash`] of the training pairs.
    pub train_hash: String,
    /// The same of the held-out pairs.
    pub test_hash: String,
    /// Training pairs.
    pub train: usize,
    /// Held-out pairs.
    pub test: usize,
    /// Pairs of each form; the empty name stands for pairs without one.
    pub forms: BTreeMap<String, usize>,
    /// Distinct n-grams.
    pub variety: Variety,
    /// Lengths of the halves.
    pub lengths: Lengths,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

impl LintReport {
    /// The findings of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.severity == severity)
    }

    /// Findings counted by severity and rule, the worst first.
    pub fn counts(&self) -> Vec<(Severity, Rule, usize)> {
        let mut counts: BTreeMap<(Severity, Rule), usize> = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry((finding.severity, finding.rule)).or_default() += 1;
        }
        let mut counts: Vec<_> =
            counts.into_iter().map(|((severity, rule), n)| (severity, rule, n)).collect();
        counts.sort_by_key(|(severity, rule, _)| (std::cmp::Reverse(*severity), *rule));
        counts
    }
}

/// Looks a set over, by itself and beside `others` and the `neutral` texts. With a `tokenizer` it also compares the
/// halves where the last token is read.
///
/// Time and memory grow with the number of words; texts are compared by shared word trigrams, of which those that
/// very many texts share are left out.
pub fn lint(
    set: &ContrastSet,
    others: &[&ContrastSet],
    neutral: &[NeutralText],
    tokenizer: Option<TokenCounter<'_>>,
) -> LintReport {
    let texts = pairs::Texts::of(set);
    let mut findings = Vec::new();
    for split in [Split::Train, Split::Test] {
        if set.split(split).next().is_none() {
            findings.push(Finding {
                severity: Severity::Warning,
                rule: Rule::Split,
                pair: None,
                problem: format!("no pair is in the {split} split"),
                remedy: "mark pairs in the `split` field, or leave it out to have them assigned by a hash of their ids".into(),
            });
        }
    }
    pairs::check(set, &texts, &mut findings);
    let token_difference = tokenizer.and_then(|count| pairs::tokens(set, count, &mut findings));
    overlap::within(set, &texts, &mut findings);
    overlap::with_neutral(set, &texts, neutral, &mut findings);
    overlap::with_others(set, others, &mut findings);
    let variety = shape::variety(&texts);
    let lengths = Lengths { token_difference, ..shape::lengths(&texts) };
    shape::check(set, &texts, variety, lengths, &mut findings);
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.rule));
    let mut forms = BTreeMap::new();
    for pair in &set.pairs {
        *forms.entry(pair.form.clone()).or_default() += 1;
    }
    LintReport {
        set: set.name.clone(),
        train_hash: set.hash(Split::Train),
        test_hash: set.hash(Split::Test),
        train: set.train().count(),
        test: set.test().count(),
        forms,
        variety,
        lengths,
        findings,
    }
}

#[cfg(test)]
mod tests;
