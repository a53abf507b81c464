//! Contrast sets: pairs of texts that differ in one concept.

mod builtin;
mod hash;
mod lint;
mod read;

pub use builtin::{builtin, builtin_names, neutral, NeutralText};
pub use lint::{lint, Finding, LintReport, Severity};
pub use read::{parse, read, resolve, Format};

use crate::{Error, Result};

/// Whether a pair may be learnt from, or only measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// For directions and the choice of layers.
    Train,
    /// For measurement alone.
    Test,
}

/// Two texts that differ in the concept alone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pair {
    /// Unique in its set.
    pub id: String,
    /// Train or test.
    pub split: Split,
    /// Kind of text, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub form: String,
    /// What both halves begin with: a user's turn, or the opening of a text; empty for pairs of whole texts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The half that shows the concept.
    pub positive: String,
    /// The half that does not.
    pub negative: String,
}

/// A named set of pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContrastSet {
    /// Name of the concept.
    pub name: String,
    /// What positive and negative mean.
    pub description: String,
    /// An instruction that makes a model show the concept: the baseline that steering has to beat.
    pub instruction: Option<String>,
    /// One that makes it show the opposite.
    pub opposite_instruction: Option<String>,
    /// Neutral prompts whose answers the concept can colour, for samples.
    pub openings: Vec<String>,
    /// The pairs.
    pub pairs: Vec<Pair>,
    /// Where the set comes from.
    pub source: String,
}

impl ContrastSet {
    /// The pairs of one split.
    pub fn split(&self, split: Split) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |p| p.split == split)
    }

    /// The training pairs.
    pub fn train(&self) -> impl Iterator<Item = &Pair> {
        self.split(Split::Train)
    }

    /// The held-out pairs.
    pub fn test(&self) -> impl Iterator<Item = &Pair> {
        self.split(Split::Test)
    }

    /// SHA-256 over the pairs of a split, in their order.
    pub fn hash(&self, split: Split) -> String {
        hash::of(self.split(split).flat_map(|p| [p.prompt.as_str(), &p.positive, &p.negative]))
    }

    /// Checks what every use needs: enough pairs, both halves, differing.
    ///
    /// # Errors
    /// [`Error::Input`] with the pair and the remedy.
    pub fn check(&self) -> Result<()> {
        let fail = |problem: String| Err(Error::input(format!("contrast set {}", self.name), problem));
        if self.pairs.is_empty() {
            return fail("is empty; give pairs with a positive and a negative half".into());
        }
        for p in &self.pairs {
            let side = match (p.positive.trim().is_empty(), p.negative.trim().is_empty()) {
                (true, _) => "positive",
                (_, true) => "negative",
                _ if p.positive == p.negative => {
                    return fail(format!(
                        "pair {}: both halves are the same; they must differ in the concept",
                        p.id
                    ))
                }
                _ => continue,
            };
            return fail(format!("pair {}: the {side} half is empty; a contrast needs both", p.id));
        }
        if self.train().count() < 2 {
            return fail(format!(
                "has {} training pairs; at least 2 are needed, better 100",
                self.train().count()
            ));
        }
        Ok(())
    }
}

/// SHA-256 over texts in their order.
pub fn text_hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    hash::of(texts)
}
