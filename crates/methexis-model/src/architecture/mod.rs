//! A model family as data: everything that the one decoder needs to know to be Llama, Qwen2 or Gemma 3.
//!
//! [`Architecture::from_gguf`] reads GGUF metadata, [`Architecture::from_hf`] a `config.json`; both give the same
//! value for the same model. A new family is a new arm in those two readers and, where it does something that no
//! family did before, a new field here with its one place in the decoder.

mod gguf;
mod hf;

pub use gguf::TensorFacts;

use crate::{Error, Result};

/// The families that are read, by the names that files use.
pub const FAMILIES: &[(&str, Family)] = &[
    ("llama", Family::Llama),
    ("qwen2", Family::Qwen2),
    ("gemma3", Family::Gemma3),
    ("gemma3_text", Family::Gemma3),
];

/// The name of a family; behaviour never depends on it, only on the other fields of [`Architecture`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Family {
    /// Llama 2 and 3, SmolLM, and others that declare themselves as `llama`.
    Llama,
    /// Qwen 2 and 2.5: biases on query, key and value.
    Qwen2,
    /// Gemma 3 (text): norms on both sides of each sublayer, query and key norms, local and global attention.
    Gemma3,
}

impl Family {
    /// The family that files call `name`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the list of families and the nearest name.
    pub fn parse(name: &str) -> Result<Self> {
        if let Some((_, family)) = FAMILIES.iter().find(|(n, _)| *n == name) {
            return Ok(*family);
        }
        let known = FAMILIES.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
        let near = FAMILIES
            .iter()
            .map(|(n, _)| (n.chars().zip(name.chars()).take_while(|(a, b)| a == b).count(), *n))
            .max()
            .filter(|(same, _)| *same >= 3)
            .map(|(_, n)| format!("; its name most resembles {n}"))
            .unwrap_or_default();
        Err(Error::unsupported(
            format!("the model family {name:?}"),
            format!("families that are read: {known}{near}"),
        ))
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Gemma3 => "gemma3",
        })
    }
}

/// The nonlinearity of the gated MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
}

/// How rotary frequencies are changed for contexts longer than the trained one.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeScaling {
    /// As trained.
    None,
    /// All frequencies divided by one factor.
    Linear {
        /// The factor, above 0.
        factor: f64,
    },
    /// Llama 3.1: low frequencies divided, high ones kept, a smooth part between.
    Llama3 {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Wavelengths above `original / low` are divided.
        low: f64,
        /// Wavelengths below `original / high` are kept.
        high: f64,
        /// Trained context length.
        original: f64,
    },
    /// A divisor for each frequency, as stored in a GGUF file (`rope_freqs.weight`).
    Factors(Vec<f32>),
}

/// Rotary position embedding of one kind of layer (half-split form: dimension i turns with i + dims/2).
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Rope {
    /// Base of the geometric series of wavelengths.
    pub base: f64,
    /// Scaling of the frequencies.
    pub scaling: RopeScaling,
}

impl Rope {
    /// The angular frequency of each of the `head_dim / 2` pairs, in radians a position.
    ///
    /// Llama 3.1's rule is that of its reference implementation.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f64> {
        (0..head_dim / 2)
            .map(|i| {
                let f = self.base.powf(-2.0 * i as f64 / head_dim as f64);
                match &self.scaling {
                    RopeScaling::None => f,
                    RopeScaling::Linear { factor } => f / factor,
                    RopeScaling::Factors(factors) => f / f64::from(factors.get(i).copied().unwrap_or(1.0)),
                    RopeScaling::Llama3 { factor, low, high, original } => {
                        let wavelength = 2.0 * std::f64::consts::PI / f;
                        if wavelength < original / high {
                            f
                        } else if wavelength > original / low {
                            f / factor
                        } else {
                            let smooth = (original / wavelength - low) / (high - low);
                            (1.0 - smooth) * f / factor + smooth * f
                        }
                    }
                }
            })
            .collect()
    }
}

/// What may differ from block to block.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct BlockShape {
    /// Each position sees itself and at most `window − 1` before it; `None`: all before it.
    pub window: Option<usize>,
    /// Which of [`Architecture::ropes`] turns queries and keys.
    pub rope: usize,
}

/// A decoder-only transformer, described.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Architecture {
    /// Family name, for people.
    pub family: Family,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Inner width of the MLP.
    pub hidden: usize,
    /// Trained context, in tokens.
    pub context: usize,
    /// Epsilon of all RMS norms.
    pub norm_eps: f64,
    /// Factor on embedding rows.
    pub embed_scale: Option<f64>,
    /// Bias on query, key and value.
    pub qkv_bias: bool,
    /// RMS norm on each query and key head.
    pub qk_norm: bool,
    /// A second norm after attention and after the MLP, before the addition.
    pub post_norms: bool,
    /// Nonlinearity of the MLP.
    pub activation: Activation,
    /// Factor on attention scores.
    pub attention_scale: f64,
    /// Kinds of rotary embedding in use.
    pub ropes: Vec<Rope>,
    /// One entry a block.
    pub blocks: Vec<BlockShape>,
    /// The output head is the embedding.
    pub tied_head: bool,
    /// Norm weights in safetensors are stored as w − 1 (GGUF stores w).
    #[serde(skip)]
    pub hf_norm_offset: bool,
    /// GGUF stores query and key rows interleaved for the paired rotary form.
    #[serde(skip)]
    pub gguf_paired_rope: bool,
}

/// Largest sizes that are believed; a file that claims more is damaged or hostile.
const MAX_BLOCKS: usize = 1024;
const MAX_WIDTH: usize = 1 << 18;
const MAX_VOCAB: usize = 1 << 24;

impl Architecture {
    /// Number of blocks.
    pub fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// Checks that the numbers fit each other, so that nothing later divides by zero or allocates without bound.
    fn validated(self) -> Result<Self> {
        let bad =
            |what: &str, problem: String| Err(Error::input(format!("model configuration: {what}"), problem));
        let bounded = |what: &str, n: usize, most: usize| {
            if n == 0 || n > most {
                return Err(Error::input(
                    format!("model configuration: {what}"),
                    format!("{n} is outside of 1 to {most}"),
                ));
            }
            Ok(())
        };
        bounded("number of blocks", self.blocks.len(), MAX_BLOCKS)?;
        bounded("width", self.width, MAX_WIDTH)?;
        bounded("MLP width", self.hidden, MAX_WIDTH * 8)?;
        bounded("vocabulary", self.vocab, MAX_VOCAB)?;
        bounded("heads", self.heads, 4096)?;
        bounded("key/value heads", self.kv_heads, self.heads)?;
        bounded("head width", self.head_dim, 8192)?;
        bounded("context", self.context, 1 << 30)?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            return bad(
                "heads",
                format!("{} query heads are not a multiple of {} key/value heads", self.heads, self.kv_heads),
            );
        }
        if !self.head_dim.is_multiple_of(2) {
            return bad("head width", format!("{} is odd; rotary embedding needs pairs", self.head_dim));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return bad("norm epsilon", format!("{} is not a positive number", self.norm_eps));
        }
        if self.embed_scale.is_some_and(|s| !s.is_finite()) || !self.attention_scale.is_finite() {
            return bad("scale", "is not a finite number".into());
        }
        for rope in &self.ropes {
            let finite = match &rope.scaling {
                RopeScaling::None => true,
                RopeScaling::Linear { factor } => factor.is_finite() && *factor > 0.0,
                RopeScaling::Llama3 { factor, low, high, original } => {
                    [factor, low, high, original].iter().all(|v| v.is_finite() && **v > 0.0) && high > low
                }
                RopeScaling::Factors(f) => {
                    f.len() == self.head_dim / 2 && f.iter().all(|v| v.is_finite() && *v > 0.0)
                }
            };
            if !(rope.base.is_finite() && rope.base > 0.0 && finite) {
                return bad("rotary embedding", "base or scaling is not a positive finite number".into());
            }
        }
        if self.blocks.iter().any(|b| b.window == Some(0) || b.rope >= self.ropes.len()) {
            return bad("attention window", "a window of 0 positions or a missing rotary kind".into());
        }
        Ok(self)
    }
}

/// Local and global layers as Gemma 3 has them: five local, one global, again and again.
fn gemma3_blocks(depth: usize, window: usize, global: impl Fn(usize) -> bool) -> Vec<BlockShape> {
    (0..depth)
        .map(|l| {
            if global(l) {
                BlockShape { window: None, rope: 0 }
            } else {
                BlockShape { window: Some(window), rope: 1 }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_family_is_refused_with_the_list() {
        let text = Family::parse("gemma7").unwrap_err().to_string();
        assert!(text.contains("llama") && text.contains("most resembles gemma3"), "{text}");
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let plain = Rope { base: 1e4, scaling: RopeScaling::None }.frequencies(8);
        let scaled = Rope { base: 1e4, scaling: RopeScaling::Linear { factor: 8.0 } }.frequencies(8);
        assert_eq!(plain[0], 1.0);
        for (p, s) in plain.iter().zip(scaled) {
            assert!((p / 8.0 - s).abs() < 1e-15);
        }
    }
}
