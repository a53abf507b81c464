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
