//! The sets that ship with the program; all written for it (see `data/README.md`).

use super::{read, ContrastSet};
use crate::Result;

const SETS: &[(&str, &str)] = &[
    ("ai-coordination", include_str!("../../data/concepts/ai-coordination.jsonl")),
    ("fairness", include_str!("../../data/concepts/fairness.jsonl")),
    ("happiness", include_str!("../../data/concepts/happiness.jsonl")),
    ("harmfulness", include_str!("../../data/concepts/harmfulness.jsonl")),
    ("myopic-reward", include_str!("../../data/concepts/myopic-reward.jsonl")),
    ("survival-instinct", include_str!("../../data/concepts/survival-instinct.jsonl")),
];

const NEUTRAL: &str = include_str!("../../data/neutral.jsonl");

/// A text that has nothing to do with the concepts, for fitting bridges and measuring drift.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NeutralText {
    /// Unique.
    pub id: String,
    /// Kind of text.
    pub kind: String,
    /// The text.
    pub text: String,
}

/// Names of the shipped sets.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|(n, _)| *n)
}

/// The shipped set `name`, where there is one.
///
/// # Errors
/// None in a sound build; the tests read every set.
pub fn builtin(name: &str) -> Result<Option<ContrastSet>> {
    let Some((name, text)) = SETS.iter().find(|(n, _)| *n == name) else { return Ok(None) };
    let mut set = read::parse(text.as_bytes(), name, Some(read::Format::Jsonl))?;
    set.source = "shipped with methexis".into();
    Ok(Some(set))
}

/// The shipped neutral texts.
///
/// # Errors
/// None in a sound build.
pub fn neutral() -> Result<Vec<NeutralText>> {
    NEUTRAL
        .lines()
        .map(|l| serde_json::from_str(l).map_err(|e| crate::Error::input("neutral texts", e.to_string())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contrast::{lint, Severity};

    #[test]
    fn every_shipped_set_is_complete_and_clean() {
        let neutral = neutral().unwrap();
        for name in builtin_names() {
            let set = builtin(name).unwrap().unwrap();
            set.check().unwrap();
            assert_eq!(set.name, name);
            assert!(set.train().count() >= 100, "{name}: {} train pairs", set.train().count());
            assert!(set.test().count() >= 50, "{name}: {} test pairs", set.test().count());
            assert!(
                set.instruction.is_some() && set.opposite_instruction.is_some() && set.openings.len() >= 6
            );
            let report = lint(&set, &neutral, None);
            let errors: Vec<_> = report.findings.iter().filter(|f| f.severity == Severity::Error).collect();
            assert!(errors.is_empty(), "{name}: {errors:#?}");
            assert!(report.distinct_2 > 0.55 && report.distinct_3 > 0.8, "{name}: {report:?}");
        }
    }

    #[test]
    fn the_neutral_texts_are_many_and_unlike() {
        let texts = neutral().unwrap();
        assert!(texts.len() >= 1000, "{}", texts.len());
        let mut seen = std::collections::HashSet::new();
        for t in &texts {
            assert!(seen.insert(t.text.to_lowercase()), "{} occurs twice", t.text);
        }
    }
}
