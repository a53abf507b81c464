//! The sets and the neutral texts that ship inside the binary (`data/README.md` says how they were written).

use super::read::{self, Format, ReadOptions};
use super::set::{ContrastSet, NeutralText};

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
    "corrigibility",
    "survival-instinct",
    "ai-coordination",
    "myopic-reward",
    "harmfulness",
    "fairness",
);

const NEUTRAL: &str = include_str!("../../data/neutral.jsonl");

/// The shipped contrast set of that name, or `None` (see [`builtin_names`]; [`super::resolve`] also takes files
/// and suggests the nearest name).
pub fn builtin(name: &str) -> Option<ContrastSet> {
    let (_, text) = SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
    let options = ReadOptions { format: Some(Format::Jsonl), ..ReadOptions::default() };
    // A test reads every shipped set, so a failure cannot reach a user.
    read::read_bytes(format!("built-in {name}"), text.as_bytes(), &options).ok()
}

/// Names of the shipped sets.
pub fn builtin_names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// The shipped neutral texts: varied in kind and length, none about a shipped concept.
pub fn neutral() -> Vec<NeutralText> {
    NEUTRAL.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
