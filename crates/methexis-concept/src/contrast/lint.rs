//! What can be wrong with a contrast set although every line is well-formed.

use std::collections::{HashMap, HashSet};

use super::{ContrastSet, NeutralText, Split};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth a look.
    Note,
    /// Makes figures doubtful.
    Warning,
    /// Makes figures wrong.
    Error,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// The pair, or the set.
    pub pair: String,
    /// What is wrong, and the remedy.
    pub problem: String,
}

/// What a set is like.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LintReport {
    /// Name of the set.
    pub set: String,
    /// Number of training pairs.
    pub train: usize,
    /// Number of held-out pairs.
    pub test: usize,
    /// Number of forms.
    pub forms: usize,
    /// Mean words of a positive half.
    pub words_positive: f64,
    /// Mean words of a negative half.
    pub words_negative: f64,
    /// Share of word pairs that are distinct (over prompts and both halves).
    pub distinct_2: f64,
    /// Share of word triples that are distinct.
    pub distinct_3: f64,
    /// What was found, worst first.
    pub findings: Vec<Finding>,
}

/// Counts the tokens of a text in some model.
pub type CountTokens<'a> = &'a dyn Fn(&str) -> usize;

/// Share of a test prompt's word triples that may be in one training prompt.
const LEAK: f64 = 0.6;

fn words(text: &str) -> Vec<String> {
    text.to_lowercase()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_string)
        .collect()
}

fn grams(text: &str, n: usize) -> Vec<Vec<String>> {
    words(text).windows(n).map(<[String]>::to_vec).collect()
}

fn distinct(texts: &[&str], n: usize) -> f64 {
    let all: Vec<_> = texts.iter().flat_map(|t| grams(t, n)).collect();
    let unlike: HashSet<_> = all.iter().collect();
    unlike.len() as f64 / all.len().max(1) as f64
}

/// Looks for pairs that differ in more than is meant, leaks between train and test, overlap with the neutral text that
/// bridges are fitted on, and halves that can be told apart by length.
pub fn lint(set: &ContrastSet, neutral: &[NeutralText], tokens: Option<CountTokens<'_>>) -> LintReport {
    let mut findings = Vec::new();
    let mut find = |severity, pair: &str, problem: String| {
        findings.push(Finding { severity, pair: pair.to_string(), problem });
    };

    let mut prompts: HashMap<String, &str> = HashMap::new();
    for p in &set.pairs {
        let (a, b) = (words(&p.positive).len(), words(&p.negative).len());
        if a.abs_diff(b) > 2 && a.abs_diff(b) * 4 > a.max(b) {
            find(
                Severity::Warning,
                &p.id,
                format!("the halves have {a} and {b} words; make them alike in length"),
            );
        }
        if let Some(count) = tokens {
            let (a, b) = (count(&p.positive), count(&p.negative));
            if a.abs_diff(b) > 4 && a.abs_diff(b) * 3 > a.max(b) {
                find(
                    Severity::Note,
                    &p.id,
                    format!("the halves have {a} and {b} tokens, so they are read at different depths of the text"),
                );
            }
        }
        let end = |t: &str| t.trim_end().chars().last().filter(|c| !c.is_alphanumeric());
        if end(&p.positive) != end(&p.negative) {
            find(
                Severity::Warning,
                &p.id,
                "the halves end in different punctuation, which the last token then shows instead of the concept".into(),
            );
        }
        let whole = if p.prompt.trim().is_empty() {
            format!("{}\u{0}{}", p.positive, p.negative)
        } else {
            p.prompt.clone()
        };
        if let Some(other) = prompts.insert(whole.to_lowercase(), &p.id) {
            find(Severity::Error, &p.id, format!("has the same prompt as {other}; one of them must go"));
        }
    }

    // Leaks: a test pair whose prompt, or whose halves, stand in the training pairs.
    let mut index: HashMap<Vec<String>, HashSet<usize>> = HashMap::new();
    let train: Vec<_> = set.train().collect();
    for (i, p) in train.iter().enumerate() {
        for g in grams(&format!("{} {} {}", p.prompt, p.positive, p.negative), 3) {
            index.entry(g).or_default().insert(i);
        }
    }
    for p in set.split(Split::Test) {
        let own = grams(&format!("{} {} {}", p.prompt, p.positive, p.negative), 3);
        let mut shared: HashMap<usize, usize> = HashMap::new();
        for g in &own {
            for i in index.get(g).into_iter().flatten() {
                *shared.entry(*i).or_default() += 1;
            }
        }
        if let Some((i, n)) = shared.into_iter().max_by_key(|(i, n)| (*n, usize::MAX - i)) {
            if n as f64 > LEAK * own.len() as f64 {
                let other = train.get(i).map_or("", |t| t.id.as_str());
                find(
                    Severity::Error,
                    &p.id,
                    format!("{n} of its {} word triples stand in the training pair {other}: the held-out figure would be too good", own.len()),
                );
            }
        }
    }

    // Overlap with the text that bridges are fitted on.
    let mut of_neutral: HashMap<Vec<String>, &str> = HashMap::new();
    for t in neutral {
        for g in grams(&t.text, 5) {
            of_neutral.insert(g, &t.id);
        }
    }
    for p in &set.pairs {
        for part in [&p.prompt, &p.positive, &p.negative] {
            let own = grams(part, 5);
            let hits: Vec<_> = own.iter().filter_map(|g| of_neutral.get(g)).collect();
            if let (true, Some(id)) = (hits.len() * 2 > own.len().max(1), hits.first()) {
                find(Severity::Error, &p.id, format!("more than half of a text stands in the neutral text {id}; a bridge fitted there has seen the concept"));
            }
        }
    }

    let texts: Vec<&str> =
        set.pairs.iter().flat_map(|p| [p.prompt.as_str(), &p.positive, &p.negative]).collect();
    let n = set.pairs.len().max(1) as f64;
    let mean =
        |f: fn(&super::Pair) -> &str| set.pairs.iter().map(|p| words(f(p)).len()).sum::<usize>() as f64 / n;
    let (words_positive, words_negative) = (mean(|p| &p.positive), mean(|p| &p.negative));
    if (words_positive - words_negative).abs() > 0.1 * words_positive.max(words_negative) {
        find(
            Severity::Warning,
            "set",
            format!("positive halves have {words_positive:.1} words on average, negative ones {words_negative:.1}: length alone tells them apart"),
        );
    }
    findings.sort_by(|a, b| b.severity.cmp(&a.severity));
    LintReport {
        set: set.name.clone(),
        train: set.train().count(),
        test: set.test().count(),
        forms: set.pairs.iter().map(|p| p.form.as_str()).collect::<HashSet<_>>().len(),
        words_positive,
        words_negative,
        distinct_2: distinct(&texts, 2),
        distinct_3: distinct(&texts, 3),
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contrast::{parse, NeutralText};

    fn set(lines: &[(&str, &str, &str, &str)]) -> ContrastSet {
        let text: String = lines
            .iter()
            .map(|(s, p, a, b)| {
                serde_json::json!({"split": s, "prompt": p, "positive": a, "negative": b}).to_string() + "\n"
            })
            .collect();
        parse(text.as_bytes(), "t", None).unwrap()
    }

    fn has(report: &LintReport, severity: Severity, part: &str) -> bool {
        report.findings.iter().any(|f| f.severity == severity && f.problem.contains(part))
    }

    const CLEAN: [(&str, &str, &str, &str); 3] = [
        ("train", "How was the walk by the river", "It was a delight.", "It was a burden."),
        ("train", "What did the cook say", "She praised the soup.", "She cursed the soup."),
        ("test", "Where are my green boots", "Here, you lucky one!", "Gone, you poor one!"),
    ];

    #[test]
    fn a_clean_set_has_no_findings() {
        assert_eq!(lint(&set(&CLEAN), &[], None).findings, []);
    }

    #[test]
    fn a_leak_is_an_error() {
        let mut lines = CLEAN.to_vec();
        lines.push(("test", "How was the walk by the river today", "It was a delight.", "It was a burden."));
        assert!(has(&lint(&set(&lines), &[], None), Severity::Error, "training pair"));
    }

    #[test]
    fn overlap_with_neutral_text_is_an_error() {
        let neutral = [NeutralText {
            id: "n1".into(),
            kind: "x".into(),
            text: "So how was the walk by the river then".into(),
        }];
        assert!(has(&lint(&set(&CLEAN), &neutral, None), Severity::Error, "neutral text n1"));
    }

    #[test]
    fn pairs_that_differ_in_more_than_is_meant_are_warned_of() {
        let mut lines = CLEAN.to_vec();
        lines.push(("train", "Where is the key", "Here!", "I have no idea where it might be at all."));
        let r = lint(&set(&lines), &[], Some(&|t: &str| t.len()));
        assert!(has(&r, Severity::Warning, "words; make them alike"));
        assert!(has(&r, Severity::Warning, "punctuation"));
        assert!(has(&r, Severity::Note, "tokens"));
    }

    #[test]
    fn doubled_prompts_are_errors() {
        let mut lines = CLEAN.to_vec();
        lines.push(("train", "what did the cook say", "She sang.", "She wept."));
        assert!(has(&lint(&set(&lines), &[], None), Severity::Error, "same prompt"));
    }
}
