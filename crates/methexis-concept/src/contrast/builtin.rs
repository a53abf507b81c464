//! The sets and the neutral texts that ship inside the binary (`data/README.md` says how they were written).

use super::read::{self, Format, ReadOptions};
use super::set::{ContrastSet, NeutralText};
use crate::{Error, Result};

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        /// Name and text of every shipped set, in the order they are listed.
        const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../data/concepts/", $name, ".jsonl")))),+];
    };
}

shipped!(
    "happiness",
    "fear",
    "refusal",
    "sycophancy",
    "corrigibility",
    "ai-coordination",
    "myopic-reward",
    "survival-instinct",
    "hallucination",
    "harmfulness",
    "fairness",
);

const NEUTRAL: &str = include_str!("../../data/neutral.jsonl");

/// The shipped contrast set of that name, or `None` (see [`builtin_names`]; [`super::resolve`] also takes files
/// and suggests the nearest name).
///
/// # Errors
/// None in a sound build: a test reads every shipped set.
pub fn builtin(name: &str) -> Result<Option<ContrastSet>> {
    let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) else { return Ok(None) };
    let options = ReadOptions { format: Some(Format::Jsonl), ..ReadOptions::default() };
    read::read_bytes(format!("shipped set {name}"), text.as_bytes(), &options).map(Some)
}

/// Names of the shipped sets.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The shipped neutral texts: varied in kind and length, none about a shipped concept.
///
/// # Errors
/// None in a sound build: a test reads every text.
pub fn neutral() -> Result<Vec<NeutralText>> {
    let read = |(index, line)| {
        serde_json::from_str(line).map_err(|e: serde_json::Error| {
            Error::format("shipped neutral texts", format!("line {}", index + 1), e.to_string())
        })
    };
    NEUTRAL.lines().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::super::lint::{lint, Severity};
    use super::super::words::words;
    use super::*;

    const README: &str = include_str!("../../data/README.md");
    /// The licence of this crate, and of its data.
    const LICENCE: &str = env!("CARGO_PKG_LICENSE");

    fn shipped() -> Vec<ContrastSet> {
        builtin_names().map(|name| builtin(name).unwrap().unwrap()).collect()
    }

    #[test]
    fn every_concept_ships_and_no_other_name_does() {
        let names: HashSet<&str> = builtin_names().collect();
        let expected = HashSet::from([
            "happiness",
            "fear",
            "refusal",
            "sycophancy",
            "corrigibility",
            "ai-coordination",
            "myopic-reward",
            "survival-instinct",
            "hallucination",
            "harmfulness",
            "fairness",
        ]);
        assert_eq!(names, expected);
        assert!(builtin("Happiness").unwrap().is_none() && builtin("").unwrap().is_none());
    }

    #[test]
    fn every_shipped_set_is_large_enough_and_clean() {
        let sets = shipped();
        let neutral = neutral().unwrap();
        for set in &sets {
            let name = &set.name;
            set.check().unwrap();
            assert!(builtin_names().any(|known| known == name), "{name}");
            assert!(set.train().count() >= 100 && set.test().count() >= 50, "{name}");
            assert!(
                set.source.contains(LICENCE) && set.source.contains("written for this project"),
                "{}",
                set.source
            );
            assert!(set.description.contains("ositive") && set.description.contains("egative"), "{name}");
            assert!(set.instruction.is_some() && set.opposite_instruction.is_some(), "{name}");
            assert!(set.openings.len() >= 8, "{name}: {} openings", set.openings.len());
            let prompts: HashSet<String> =
                set.pairs.iter().map(|pair| words(&pair.prompt).join(" ")).collect();
            assert_eq!(prompts.len(), set.pairs.len(), "{name}: a prompt occurs twice");
            for opening in &set.openings {
                assert!(!prompts.contains(&words(opening).join(" ")), "{name}: `{opening}` is in a pair");
            }
            for (index, pair) in set.pairs.iter().enumerate() {
                let number =
                    set.pairs.iter().take(index + 1).filter(|other| other.split == pair.split).count();
                assert_eq!(pair.id, format!("{name}-{}-{number:03}", pair.split));
                assert!(!pair.form.is_empty() && !pair.prompt.is_empty(), "{}", pair.id);
                let texts = [&pair.prompt, &pair.positive, &pair.negative];
                assert!(
                    texts.iter().all(|text| text.trim() == text.as_str()),
                    "{}: white space at an end",
                    pair.id
                );
            }
            // Not a single warning: lengths, punctuation, duplicates, leaks, neutral text, other concepts, balance.
            let others: Vec<&ContrastSet> = sets.iter().filter(|other| other.name != *name).collect();
            let report = lint(set, &others, &neutral, None);
            let worse: Vec<_> = report.findings.iter().filter(|f| f.severity > Severity::Note).collect();
            assert!(worse.is_empty(), "{name}: {worse:#?}");
            assert!(report.forms.len() >= 8, "{name}: {:?}", report.forms);
            let most = report.forms.values().max().unwrap();
            assert!(most * 4 <= set.pairs.len(), "{name}: a form has {most} of {} pairs", set.pairs.len());
            assert!(
                report.variety.distinct_2 >= 0.6 && report.variety.distinct_3 >= 0.85,
                "{name}: {:?}",
                report.variety
            );
        }
    }

    #[test]
    fn the_neutral_texts_are_many_varied_and_about_something_else() {
        let texts = neutral().unwrap();
        assert!(texts.len() >= 1000, "{}", texts.len());
        let ids: HashSet<&str> = texts.iter().map(|text| text.id.as_str()).collect();
        let bodies: HashSet<String> = texts.iter().map(|text| words(&text.text).join(" ")).collect();
        assert_eq!((ids.len(), bodies.len()), (texts.len(), texts.len()), "an id or a text occurs twice");
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for text in &texts {
            *kinds.entry(text.kind.as_str()).or_default() += 1;
        }
        assert!(kinds.len() >= 10 && kinds.values().all(|count| *count >= 20), "{kinds:?}");
        let mut lengths: Vec<usize> = texts.iter().map(|text| words(&text.text).len()).collect();
        lengths.sort_unstable();
        let at = |share: usize| lengths[lengths.len() * share / 100];
        assert!(at(5) <= 6 && at(95) >= 30, "5 %: {} words, 95 %: {} words", at(5), at(95));
        // Words that would bring a shipped concept in.
        let banned = [
            "happy",
            "happiness",
            "joy",
            "joyful",
            "glad",
            "delighted",
            "sad",
            "sorrow",
            "gloomy",
            "miserable",
            "fear",
            "afraid",
            "scared",
            "terrified",
            "frightened",
            "panic",
            "refuse",
            "refuses",
            "refused",
            "flatter",
            "flattery",
            "brilliant",
            "robot",
            "robots",
            "ai",
            "shutdown",
            "harm",
            "harmful",
            "hurt",
            "weapon",
            "unfair",
            "fairness",
            "unjust",
            "obey",
            "overseer",
            "hallucinate",
            "survive",
            "survival",
            "reward",
            "tempting",
        ];
        for text in &texts {
            let found: Vec<String> =
                words(&text.text).into_iter().filter(|w| banned.contains(&w.as_str())).collect();
            assert!(found.is_empty(), "{}: {found:?} in `{}`", text.id, text.text);
        }
    }

    #[test]
    fn the_table_in_the_readme_is_what_the_linter_counts() {
        for set in shipped() {
            let report = lint(&set, &[], &[], None);
            let line = format!(
                "| {} | {} | {} | {} | {:.1} | {:.3} | {:.3} |",
                set.name,
                report.train,
                report.test,
                report.forms.len(),
                (report.lengths.positive_words + report.lengths.negative_words) / 2.0,
                report.variety.distinct_2,
                report.variety.distinct_3
            );
            assert!(README.contains(&line), "data/README.md should have the line\n{line}");
        }
        let count = neutral().unwrap().len();
        assert!(README.contains(&format!("{},{:03} texts", count / 1000, count % 1000)));
        assert!(README.contains(LICENCE));
    }
}
