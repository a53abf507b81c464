//! The data: a pair of texts, a set of pairs, a neutral text.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// What a pair is for: fitting, or held out for measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Directions, layers and doses may be chosen on it.
    Train,
    /// Held out: only measured on.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Test => "test",
        })
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "train" => Ok(Self::Train),
            "test" => Ok(Self::Test),
            other => Err(Error::input(
                "split",
                format!("`{}` is neither `train` nor `test`", shortened(other, 40)),
            )),
        }
    }
}

/// Two texts that differ in the concept and, if well written, in nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Unique in its set; decides the split and the letters of questions where the file does not.
    pub id: String,
    /// Fitted on, or held out.
    pub split: Split,
    /// Kind of text ("letter", "review", …); empty where the source does not say.
    #[serde(default)]
    pub form: String,
    /// What both halves answer or continue. Empty where the halves are whole texts.
    #[serde(default)]
    pub prompt: String,
    /// The half that shows the concept.
    pub positive: String,
    /// The half that shows its absence or opposite.
    pub negative: String,
}

/// A concept as data: pairs of texts, and what a prompt would have to say to get the same effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContrastSet {
    /// Name of the concept.
    pub name: String,
    /// What positive and negative mean, in a sentence; empty where the source does not say.
    pub description: String,
    /// Instruction that asks a model for the concept: the Prompt baseline that steering has to beat.
    pub instruction: Option<String>,
    /// Instruction that asks for the opposite.
    pub opposite_instruction: Option<String>,
    /// Neutral prompts whose answers the concept could colour; none of them is in a pair.
    pub openings: Vec<String>,
    /// The pairs, in file order.
    pub pairs: Vec<Pair>,
    /// Where the pairs come from, and what was left out on the way.
    pub source: String,
}

impl ContrastSet {
    /// The pairs to fit on.
    pub fn train(&self) -> impl Iterator<Item = &Pair> {
        self.split(Split::Train)
    }

    /// The held-out pairs.
    pub fn test(&self) -> impl Iterator<Item = &Pair> {
        self.split(Split::Test)
    }

    /// The pairs of one split, in order.
    pub fn split(&self, split: Split) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |pair| pair.split == split)
    }

    /// The pairs of one split, at least one.
    ///
    /// # Errors
    /// [`Error::Input`] where the set has none: a direction cannot be fitted, or nothing is left to measure on.
    pub fn require(&self, split: Split) -> Result<Vec<&Pair>> {
        let pairs: Vec<&Pair> = self.split(split).collect();
        if pairs.is_empty() {
            return Err(Error::input(
                format!("contrast set `{}`", self.name),
                format!(
                    "none of its {} pairs is in the {split} split; mark some with `split: {split}`, or leave the \
                     field out to have every pair assigned by a hash of its id",
                    self.pairs.len()
                ),
            ));
        }
        Ok(pairs)
    }

    /// Checks what every later step relies on: there are pairs, their ids are unique, no half is empty, and the two
    /// halves of a pair differ. Readers call it; call it again after changing a set by hand.
    ///
    /// # Errors
    /// [`Error::Input`] that names the set, the pair and the remedy.
    pub fn check(&self) -> Result<()> {
        let what = || format!("contrast set `{}`", shortened(&self.name, 80));
        if self.pairs.is_empty() {
            return Err(Error::input(what(), "it has no pairs; a concept needs at least one"));
        }
        for (side, other, text) in [
            ("positive", "negative", (|pair| &pair.positive) as fn(&Pair) -> &String),
            ("negative", "positive", |pair| &pair.negative),
        ] {
            if self.pairs.iter().all(|pair| text(pair).trim().is_empty()) {
                return Err(Error::input(
                    what(),
                    format!("it is one-sided: no pair has a {side} half; a contrast needs a {side} text beside each {other} one"),
                ));
            }
        }
        let mut seen = HashMap::with_capacity(self.pairs.len());
        for (index, pair) in self.pairs.iter().enumerate() {
            let id = shortened(&pair.id, 80);
            if let Some(first) = seen.insert(pair.id.as_str(), index) {
                return Err(Error::input(
                    what(),
                    format!(
                        "pairs {} and {} have the same id `{id}`; make ids unique, or leave them out to have the pairs numbered",
                        first + 1,
                        index + 1
                    ),
                ));
            }
            for (side, text) in [("positive", &pair.positive), ("negative", &pair.negative)] {
                if text.trim().is_empty() {
                    return Err(Error::input(
                        what(),
                        format!("pair `{id}`: its {side} half is empty; write one or remove the pair"),
                    ));
                }
            }
            if pair.positive.trim() == pair.negative.trim() {
                return Err(Error::input(
                    what(),
                    format!("pair `{id}`: its two halves are equal, so they show no contrast; change one or remove the pair"),
                ));
            }
        }
        Ok(())
    }

    /// SHA-256, in hexadecimal, over the pairs of a split in their order: [`text_hash`] of prompt, positive and negative of
    /// each. Names, ids, forms and sources do not enter: two files with the same pairs give the same numbers, and have
    /// the same hash.
    pub fn hash(&self, split: Split) -> String {
        text_hash(self.split(split).flat_map(|p| [p.prompt.as_str(), &p.positive, &p.negative]))
    }
}

/// SHA-256, in hexadecimal, over texts in their order, each preceded by its length in bytes (u64, little-endian) so that
/// no two lists share a hash by accident.
pub fn text_hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text that has nothing to do with any of the shipped concepts: for bridges, and for measuring drift.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeutralText {
    /// Unique among the neutral texts.
    pub id: String,
    /// Kind of text ("instruction", "description", "code", …).
    pub kind: String,
    /// The text itself.
    pub text: String,
}

/// `text` cut to `limit` characters, for messages that quote what a file says.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let mut out: String = text.chars().take(limit).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(limit).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(id: &str, positive: &str, negative: &str) -> Pair {
        Pair {
            id: id.into(),
            split: Split::Train,
            form: String::new(),
            prompt: "How was it?".into(),
            positive: positive.into(),
            negative: negative.into(),
        }
    }

    fn set(pairs: Vec<Pair>) -> ContrastSet {
        ContrastSet {
            name: "weather".into(),
            description: String::new(),
            instruction: None,
            opposite_instruction: None,
            openings: vec![],
            pairs,
            source: "test".into(),
        }
    }

    #[test]
    fn faults_are_named() {
        let message = |pairs| set(pairs).check().unwrap_err().to_string();
        assert!(message(vec![]).contains("no pairs"));
        assert!(message(vec![pair("a", "sun", " "), pair("b", "sea", "")])
            .contains("one-sided: no pair has a negative"));
        assert!(message(vec![pair("a", "sun", "rain"), pair("b", "", "rain")])
            .contains("pair `b`: its positive half is empty"));
        assert!(
            message(vec![pair("a", "sun", "rain"), pair("b", "rain", "rain ")]).contains("halves are equal")
        );
        assert!(message(vec![pair("a", "sun", "rain"), pair("a", "x", "y")])
            .contains("pairs 1 and 2 have the same id `a`"));
        set(vec![pair("a", "sun", "rain")]).check().unwrap();
    }

    #[test]
    fn a_missing_split_is_an_error_where_it_is_asked_for() {
        let set = set(vec![pair("a", "sun", "rain")]);
        assert_eq!(set.require(Split::Train).unwrap().len(), 1);
        assert!(set.require(Split::Test).unwrap_err().to_string().contains("test split"));
    }

    #[test]
    fn the_hash_is_of_the_pairs_and_of_nothing_else() {
        let base = set(vec![pair("a", "sun", "rain"), pair("b", "up", "down")]);
        let mut renamed = base.clone();
        renamed.name = "other".into();
        renamed.source = "elsewhere".into();
        assert_eq!(base.hash(Split::Train), renamed.hash(Split::Train));
        let mut swapped = base.clone();
        swapped.pairs.swap(0, 1);
        assert_ne!(base.hash(Split::Train), swapped.hash(Split::Train));
        // A byte that moves from one field to the next changes the hash: fields are length-prefixed.
        let mut moved = base.clone();
        moved.pairs[0].positive = "su".into();
        moved.pairs[0].negative = "nrain".into();
        assert_ne!(base.hash(Split::Train), moved.hash(Split::Train));
        assert_ne!(base.hash(Split::Train), base.hash(Split::Test));
    }

    #[test]
    fn the_hash_is_stable_across_versions() {
        // Computed independently with Python's hashlib over the documented bytes: a change here breaks the
        // provenance of every saved direction.
        assert_eq!(
            set(vec![pair("a", "sun", "rain")]).hash(Split::Train),
            "f99c3771e19c67766189faaefe3a872f2cc03857f63f7984e7b1f1258ddec9c2"
        );
    }
}
