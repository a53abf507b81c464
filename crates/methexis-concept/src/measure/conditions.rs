//! The conditions of a measurement: what is compared with what.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One version of the model under measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// No steering.
    No,
    /// The target's own direction.
    Own,
    /// The direction carried over the bridge.
    Carried,
    /// A random direction of equal norm.
    Random,
    /// Carried over a bridge whose text pairing was broken.
    Permuted,
    /// Another concept's direction.
    Other,
    /// No steering, but an instruction in the prompt: the honest strong baseline.
    Prompt,
}

impl Condition {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no steering",
            Self::Own => "own direction",
            Self::Carried => "carried",
            Self::Random => "random direction",
            Self::Permuted => "permuted bridge",
            Self::Other => "other concept",
            Self::Prompt => "prompt",
        }
    }
}

/// The vectors that are compared. A carried vector cannot be given without the one that its permuted bridge carries, and
/// nothing can be measured without another concept: controls are not optional.
#[derive(Debug, Clone, PartialEq)]
pub struct Vectors {
    /// The target's own direction, from its own training pairs.
    pub own: Vec<f32>,
    /// The carried direction and its permuted control; `None` where a model's own direction is measured.
    pub carried: Option<CarriedVectors>,
    /// Another concept's own direction in the target.
    pub other: Vec<f32>,
    /// Name of that concept.
    pub other_name: String,
}

/// A carried vector with its control.
#[derive(Debug, Clone, PartialEq)]
pub struct CarriedVectors {
    /// Over the bridge.
    pub carried: Vec<f32>,
    /// Over the bridge with broken pairing.
    pub permuted: Vec<f32>,
}

impl Vectors {
    /// The steered conditions with their vectors; the random one is drawn from `seed`.
    pub fn steered(&self, seed: u64) -> Vec<(Condition, Vec<f32>)> {
        let mut out = vec![(Condition::Own, self.own.clone())];
        if let Some(c) = &self.carried {
            out.push((Condition::Carried, c.carried.clone()));
            out.push((Condition::Permuted, c.permuted.clone()));
        }
        out.push((Condition::Random, random(self.own.len(), seed)));
        out.push((Condition::Other, self.other.clone()));
        out
    }
}

/// A Gaussian random direction.
pub fn random(width: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x9E37_79B9_7F4A_7C15);
    (0..width)
        .map(|_| {
            // Box–Muller.
            let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
            ((-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()) as f32
        })
        .collect()
}
