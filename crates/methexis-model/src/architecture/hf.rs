//! [`Architecture`] from a Hugging Face `config.json`.

use serde_json::Value;

use super::{gemma3_blocks, Activation, Architecture, BlockShape, Family, Rope, RopeScaling};
use crate::{Error, Result};

impl Architecture {
    /// Reads a parsed `config.json`, of transformers 4 (`rope_theta`, `rope_scaling`) or 5 (`rope_parameters`).
    ///
    /// # Errors
    /// As [`Architecture::from_gguf`], with the field.
    pub fn from_hf(config: &Value) -> Result<Self> {
        let name = text(config, "model_type")
            .ok_or_else(|| Error::input("config.json: model_type", "is missing or no string"))?;
        let family = Family::parse(name)?;
        let size = |field: &str| {
            config.get(field).and_then(Value::as_u64).and_then(|v| usize::try_from(v).ok()).ok_or_else(|| {
                Error::input(format!("config.json: {field}"), "is missing or no non-negative number")
            })
        };
        let flag = |field: &str, default: bool| config.get(field).and_then(Value::as_bool).unwrap_or(default);
        let depth = size("num_hidden_layers")?;
        if depth > super::MAX_BLOCKS {
            return Err(Error::input(
                "config.json: num_hidden_layers",
                format!("{depth} blocks cannot be right"),
            ));
        }
        let width = size("hidden_size")?;
        let heads = size("num_attention_heads")?.max(1);
        let gemma = family == Family::Gemma3;
        let head_dim = size("head_dim").unwrap_or(if gemma { 256 } else { width / heads });
        let activation = text(config, "hidden_activation").or_else(|| text(config, "hidden_act"));
        let activation = match activation {
            Some("silu" | "swish") => Activation::Silu,
            Some("gelu_pytorch_tanh" | "gelu_new") => Activation::GeluTanh,
            None if gemma => Activation::GeluTanh,
            None => Activation::Silu,
            Some(other) => {
                return Err(Error::unsupported(
                    format!("the activation {other:?}"),
                    "silu and gelu_pytorch_tanh are read",
                ))
            }
        };
        for field in ["final_logit_softcapping", "attn_logit_softcapping"] {
            if config.get(field).is_some_and(|v| !v.is_null()) {
                return Err(Error::unsupported(
                    format!("config.json: {field}"),
                    "soft caps are not read for this family",
                ));
            }
        }
        if family == Family::Llama && (flag("attention_bias", false) || flag("mlp_bias", false)) {
            return Err(Error::unsupported(
                "config.json: attention_bias or mlp_bias",
                "Llama with biases is not read",
            ));
        }
        if family == Family::Qwen2 && flag("use_sliding_window", false) {
            return Err(Error::unsupported(
                "config.json: use_sliding_window",
                "Qwen2 with windows is not read",
            ));
        }
        let global = rope(config, "full_attention", "rope_theta", if gemma { 1e6 } else { 1e4 })?;
        let (ropes, blocks) = if gemma {
            let mut local = rope(config, "sliding_attention", "rope_local_base_freq", 1e4)?;
            if config.get("rope_parameters").is_none() {
                local.scaling = RopeScaling::None;
            }
            let window = size("sliding_window")?;
            let blocks = match config.get("layer_types").and_then(Value::as_array) {
                Some(kinds) if kinds.len() == depth => gemma3_blocks(depth, window, |l| {
                    kinds.get(l).and_then(Value::as_str) == Some("full_attention")
                }),
                Some(kinds) => {
                    return Err(Error::input(
                        "config.json: layer_types",
                        format!("{} entries for {depth} blocks", kinds.len()),
                    ))
                }
                None => {
                    let every = size("sliding_window_pattern").unwrap_or(6).max(1);
                    gemma3_blocks(depth, window, |l| (l + 1) % every == 0)
                }
            };
            (vec![global, local], blocks)
        } else {
            (vec![global], vec![BlockShape { window: None, rope: 0 }; depth])
        };
        let scalar = config.get("query_pre_attn_scalar").and_then(Value::as_f64).unwrap_or(head_dim as f64);
        Self {
            family,
            vocab: size("vocab_size")?,
            width,
            heads,
            kv_heads: size("num_key_value_heads").unwrap_or(heads),
            head_dim,
            hidden: size("intermediate_size")?,
            context: size("max_position_embeddings")?,
            norm_eps: config
                .get("rms_norm_eps")
                .and_then(Value::as_f64)
                .ok_or_else(|| Error::input("config.json: rms_norm_eps", "is missing or no number"))?,
            embed_scale: gemma.then(|| f64::from((width as f32).sqrt())),
            qkv_bias: family == Family::Qwen2,
            qk_norm: gemma,
            post_norms: gemma,
            activation,
            attention_scale: scalar.powf(-0.5),
            ropes,
            blocks,
            tied_head: flag("tie_word_embeddings", gemma),
            hf_norm_offset: gemma,
            gguf_paired_rope: family == Family::Llama,
        }
        .validated()
    }
}

fn text<'a>(config: &'a Value, field: &str) -> Option<&'a str> {
    config.get(field).and_then(Value::as_str)
}

/// The rotary kind `layer_type` in the form of transformers 5, or the flat fields of transformers 4.
fn rope(config: &Value, layer_type: &str, flat: &str, default: f64) -> Result<Rope> {
    let parameters = config.get("rope_parameters").filter(|v| v.is_object());
    let parameters = parameters.map(|p| p.get(layer_type).filter(|v| v.is_object()).unwrap_or(p));
    let base = parameters
        .and_then(|p| p.get("rope_theta"))
        .or_else(|| config.get(flat))
        .and_then(Value::as_f64)
        .unwrap_or(default);
    let scaling = parameters.or_else(|| config.get("rope_scaling").filter(|v| v.is_object()));
    let Some(scaling) = scaling else {
        return Ok(Rope { base, scaling: RopeScaling::None });
    };
    let number = |field: &str| {
        scaling.get(field).and_then(Value::as_f64).ok_or_else(|| {
            Error::input(format!("config.json: rotary scaling: {field}"), "is missing or no number")
        })
    };
    let kind = text(scaling, "rope_type").or_else(|| text(scaling, "type")).unwrap_or("default");
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: number("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: number("original_max_position_embeddings")?,
        },
        other => {
            return Err(Error::unsupported(
                format!("rotary scaling {other:?}"),
                "default, linear and llama3 are read",
            ))
        }
    };
    Ok(Rope { base, scaling })
}
