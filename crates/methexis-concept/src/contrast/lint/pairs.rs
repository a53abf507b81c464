//! Pair by pair: do the halves differ in more than the concept?

use super::{Finding, Rule, Severity, TokenCounter};
use crate::contrast::set::{ContrastSet, Pair};
use crate::contrast::words::{edit_distance, words};
use crate::layout::Style;

/// Halves are compared in full up to this many words, so that time stays linear in the file.
const COMPARED_WORDS: usize = 200;
/// A frame shared by all halves counts as a template from this many bytes on.
const TEMPLATE_BYTES: usize = 8;

/// The words of every text, without the template that all halves share.
pub(super) struct Texts {
    pub(super) prompts: Vec<Vec<String>>,
    pub(super) positives: Vec<Vec<String>>,
    pub(super) negatives: Vec<Vec<String>>,
}

impl Texts {
    pub(super) fn of(set: &ContrastSet) -> Self {
        let halves = || set.pairs.iter().flat_map(|pair| [pair.positive.as_str(), pair.negative.as_str()]);
        let (start, end) = if set.pairs.len() < 4 { (0, 0) } else { frame(halves()) };
        let cut = |text: &str| words(text.get(start..text.len().saturating_sub(end)).unwrap_or(text));
        Self {
            prompts: set.pairs.iter().map(|pair| words(&pair.prompt)).collect(),
            positives: set.pairs.iter().map(|pair| cut(&pair.positive)).collect(),
            negatives: set.pairs.iter().map(|pair| cut(&pair.negative)).collect(),
        }
    }

    /// Every text of the set.
    pub(super) fn all(&self) -> impl Iterator<Item = &Vec<String>> {
        self.prompts.iter().chain(&self.positives).chain(&self.negatives)
    }
}

/// Bytes that all texts have in common at the start and at the end, if enough to be a template.
fn frame<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> (usize, usize) {
    let Some(first) = texts.clone().next() else { return (0, 0) };
    let mut start = first.len();
    let mut end = first.len();
    for text in texts {
        let same = |a: &mut dyn Iterator<Item = (u8, u8)>| a.take_while(|(x, y)| x == y).count();
        start = start.min(same(&mut first.bytes().zip(text.bytes())));
        end = end.min(same(&mut first.bytes().rev().zip(text.bytes().rev())));
        // Start and end must not meet in a short text.
        end = end.min(text.len().saturating_sub(start));
    }
    // Words are not cut in two: the frame ends at white space.
    let whitespace = |c: char| c.is_whitespace();
    let head = first.get(..start).and_then(|head| head.rfind(whitespace)).map_or(0, |at| at + 1);
    let tail = first.len() - end;
    let tail = first.get(tail..).and_then(|rest| rest.find(whitespace)).map_or(0, |at| end - at);
    let enough = |bytes: usize| if bytes < TEMPLATE_BYTES { 0 } else { bytes };
    (enough(head), enough(tail))
}

pub(super) fn check(set: &ContrastSet, texts: &Texts, findings: &mut Vec<Finding>) {
    for ((pair, positive), negative) in set.pairs.iter().zip(&texts.positives).zip(&texts.negatives) {
        let mut report = |severity, rule, problem: String, remedy: &str| {
            findings.push(Finding {
                severity,
                rule,
                pair: Some(pair.id.clone()),
                problem,
                remedy: remedy.into(),
            });
        };
        let (long, short) = (positive.len().max(negative.len()), positive.len().min(negative.len()));
        if long - short > 2 && long as f64 > 1.25 * short as f64 {
            report(
                Severity::Warning,
                Rule::Length,
                format!(
                    "{} words in the positive half, {} in the negative one",
                    positive.len(),
                    negative.len()
                ),
                "bring the halves to within two words, or length becomes part of the direction",
            );
        }
        let (a, b) = (ending(&pair.positive), ending(&pair.negative));
        if a != b {
            report(
                Severity::Warning,
                Rule::Ending,
                format!("the positive half ends in {}, the negative one in {}", named(a), named(b)),
                "end both halves with the same mark: the last token is where states are read",
            );
        }
        let head = |words: &[String]| -> Vec<String> { words.iter().take(COMPARED_WORDS).cloned().collect() };
        let (a, b) = (head(positive), head(negative));
        let distance = edit_distance(&a, &b);
        let most = a.len().max(b.len());
        if most >= 5 && distance == most {
            report(
                Severity::Note,
                Rule::Wording,
                format!("the halves share no word in place (edit distance {distance} of {most} words)"),
                "keep topic, person and sentence shape, and change only what shows the concept",
            );
        }
    }
}

/// The last mark of a text, or a space for a letter or digit.
fn ending(text: &str) -> char {
    match text.trim_end().chars().next_back() {
        Some(c) if !c.is_alphanumeric() => c,
        _ => ' ',
    }
}

fn named(mark: char) -> String {
    if mark == ' ' {
        "a letter or digit".into()
    } else {
        format!("`{mark}`")
    }
}

/// Compares the halves in tokens, as plain text: the positions at which their last tokens are read. Returns the mean
/// difference, positive less negative.
pub(super) fn tokens(set: &ContrastSet, count: TokenCounter<'_>, findings: &mut Vec<Finding>) -> Option<f64> {
    let of = |pair: &Pair| {
        let [positive, negative] = set.halves(pair, Style::Plain);
        (count(&positive.text()) as f64, count(&negative.text()) as f64)
    };
    let differences: Vec<f64> = set
        .pairs
        .iter()
        .map(|pair| {
            let (positive, negative) = of(pair);
            let difference = positive - negative;
            if difference.abs() > 3.0 && difference.abs() > 0.15 * positive.max(negative) {
                findings.push(Finding {
                    severity: Severity::Note,
                    rule: Rule::Tokens,
                    pair: Some(pair.id.clone()),
                    problem: format!(
                        "{positive} tokens in the positive text, {negative} in the negative one"
                    ),
                    remedy: "choose words so that the last token stands at about the same position in both"
                        .into(),
                });
            }
            difference
        })
        .collect();
    let (mean, error) = mean_and_error(&differences)?;
    if mean.abs() > 0.5 && mean.abs() > 3.0 * error {
        let (side, by) = if mean > 0.0 { ("positive", mean) } else { ("negative", -mean) };
        findings.push(Finding {
            severity: Severity::Warning,
            rule: Rule::Tokens,
            pair: None,
            problem: format!("{side} texts are {by:.2} tokens longer on average (standard error {error:.2})"),
            remedy: "balance the lengths: the reading point of one side lies later, and position becomes part of the direction"
                .into(),
        });
    }
    Some(mean)
}

/// Mean, and its standard error (0 for a single value).
pub(super) fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = if values.len() > 1 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
    Some((mean, error))
}
