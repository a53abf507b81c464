//! [`Architecture`] from GGUF metadata.

use super::{gemma3_blocks, Activation, Architecture, BlockShape, Family, Rope, RopeScaling};
use crate::checkpoint::metadata::Metadata;
use crate::{Error, Result};

/// Facts of the file beyond its metadata that the architecture needs.
pub struct TensorFacts {
    /// Rows of `token_embd.weight`.
    pub vocab: usize,
    /// Whether there is an `output.weight`.
    pub has_head: bool,
    /// `rope_freqs.weight`, where present.
    pub rope_factors: Option<Vec<f32>>,
}

impl Architecture {
    /// Reads the metadata of a GGUF file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for other families and for rotary scalings that are not read, [`Error::Input`] for
    /// missing or impossible numbers, with the key.
    pub fn from_gguf(metadata: &Metadata, facts: TensorFacts) -> Result<Self> {
        let name = metadata
            .string("general.architecture")
            .ok_or_else(|| Error::input("GGUF metadata: general.architecture", "is missing or no string"))?;
        let family = Family::parse(name)?;
        let key = |k: &str| format!("{name}.{k}");
        let size = |k: &str| {
            let k = key(k);
            metadata
                .u64(&k)
                .and_then(|v| usize::try_from(v).ok())
                .ok_or_else(|| Error::input(format!("GGUF metadata: {k}"), "is missing or no number"))
        };
        let depth = size("block_count")?;
        if depth > super::MAX_BLOCKS {
            return Err(Error::input(
                format!("GGUF metadata: {}", key("block_count")),
                format!("{depth} blocks cannot be right"),
            ));
        }
        let width = size("embedding_length")?;
        let heads = size("attention.head_count")?.max(1);
        let kv_heads = metadata.u64(&key("attention.head_count_kv")).map_or(heads, |v| v as usize);
        let head_dim = metadata.u64(&key("attention.key_length")).map_or(width / heads, |v| v as usize);
        if metadata.u64(&key("attention.value_length")).is_some_and(|v| v as usize != head_dim) {
            return Err(Error::unsupported(
                "a value width that differs from the key width",
                "no family that is read has it",
            ));
        }
        if metadata.u64(&key("rope.dimension_count")).is_some_and(|v| v as usize != head_dim) {
            return Err(Error::unsupported(
                "rotary embedding on a part of each head",
                "no family that is read has it",
            ));
        }
        if metadata.u64(&key("expert_count")).is_some_and(|n| n > 0) {
            return Err(Error::unsupported("a mixture of experts", "dense models are read so far"));
        }
        let scaling = match (metadata.string(&key("rope.scaling.type")), facts.rope_factors) {
            (None | Some("none"), None) => RopeScaling::None,
            (Some("linear"), None) => RopeScaling::Linear {
                factor: metadata.f64(&key("rope.scaling.factor")).ok_or_else(|| {
                    Error::input(format!("GGUF metadata: {}", key("rope.scaling.factor")), "is missing")
                })?,
            },
            (None | Some("none"), Some(factors)) => RopeScaling::Factors(factors),
            (Some(other), _) => {
                return Err(Error::unsupported(
                    format!("rotary scaling {other:?}"),
                    "none, linear and stored factors are read",
                ))
            }
        };
        let base = metadata.f64(&key("rope.freq_base")).unwrap_or(10_000.0);
        let global = Rope { base, scaling };
        let (ropes, blocks) = match family {
            Family::Gemma3 => {
                let window = size("attention.sliding_window")?;
                // The files do not store the local base nor the pattern; both are fixed in the family.
                let local = Rope {
                    base: metadata.f64(&key("rope.freq_base_swa")).unwrap_or(10_000.0),
                    scaling: RopeScaling::None,
                };
                (vec![global, local], gemma3_blocks(depth, window, |l| (l + 1) % 6 == 0))
            }
            Family::Llama | Family::Qwen2 => {
                (vec![global], vec![BlockShape { window: None, rope: 0 }; depth])
            }
        };
        let gemma = family == Family::Gemma3;
        Self {
            family,
            vocab: facts.vocab,
            width,
            heads,
            kv_heads,
            head_dim,
            hidden: size("feed_forward_length")?,
            context: size("context_length")?,
            norm_eps: metadata.f64(&key("attention.layer_norm_rms_epsilon")).ok_or_else(|| {
                Error::input(
                    format!("GGUF metadata: {}", key("attention.layer_norm_rms_epsilon")),
                    "is missing",
                )
            })?,
            embed_scale: gemma.then(|| f64::from((width as f32).sqrt())),
            qkv_bias: family == Family::Qwen2,
            qk_norm: gemma,
            post_norms: gemma,
            activation: if gemma { Activation::GeluTanh } else { Activation::Silu },
            // Gemma 3 27B alone scales by width/heads instead of the head width.
            attention_scale: if gemma && depth == 62 {
                (width as f64 / heads as f64).powf(-0.5)
            } else {
                (head_dim as f64).powf(-0.5)
            },
            ropes,
            blocks,
            tied_head: !facts.has_head,
            hf_norm_offset: gemma,
            gguf_paired_rope: family == Family::Llama,
        }
        .validated()
    }
}
