//! The canonical weights of a decoder and their names in the two formats.

/// A weight outside of the blocks or inside of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Token embedding, `[vocab, width]`.
    Embedding,
    /// Output head, `[vocab, width]`; absent where it is tied to the embedding.
    Head,
    /// Norm after the last block, `[width]`.
    FinalNorm,
    /// A weight of block `.0` (0-based).
    Block(usize, BlockPart),
}

/// A weight of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BlockPart {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    Output,
    /// Norm on what attention adds (Gemma).
    PostAttentionNorm,
    MlpNorm,
    Gate,
    Up,
    Down,
    /// Norm on what the MLP adds (Gemma).
    PostMlpNorm,
}

impl Part {
    /// Name in a GGUF file.
    pub fn gguf(self) -> String {
        use BlockPart as B;
        match self {
            Self::Embedding => "token_embd.weight".into(),
            Self::Head => "output.weight".into(),
            Self::FinalNorm => "output_norm.weight".into(),
            Self::Block(l, part) => {
                let name = match part {
                    B::AttentionNorm => "attn_norm.weight",
                    B::Query => "attn_q.weight",
                    B::Key => "attn_k.weight",
                    B::Value => "attn_v.weight",
                    B::QueryBias => "attn_q.bias",
                    B::KeyBias => "attn_k.bias",
                    B::ValueBias => "attn_v.bias",
                    B::QueryNorm => "attn_q_norm.weight",
                    B::KeyNorm => "attn_k_norm.weight",
                    B::Output => "attn_output.weight",
                    B::PostAttentionNorm => "post_attention_norm.weight",
                    B::MlpNorm => "ffn_norm.weight",
                    B::Gate => "ffn_gate.weight",
                    B::Up => "ffn_up.weight",
                    B::Down => "ffn_down.weight",
                    B::PostMlpNorm => "post_ffw_norm.weight",
                };
                format!("blk.{l}.{name}")
            }
        }
    }

    /// Name in a Hugging Face checkpoint, after the prefix (`model.`) except for the head, which has none.
    ///
    /// `post_norms`: the family has norms on both sides of a sublayer, and with it other names.
    pub fn hf(self, post_norms: bool) -> String {
        use BlockPart as B;
        match self {
            Self::Embedding => "embed_tokens.weight".into(),
            Self::Head => "lm_head.weight".into(),
            Self::FinalNorm => "norm.weight".into(),
            Self::Block(l, part) => {
                let name = match part {
                    B::AttentionNorm => "input_layernorm.weight",
                    B::Query => "self_attn.q_proj.weight",
                    B::Key => "self_attn.k_proj.weight",
                    B::Value => "self_attn.v_proj.weight",
                    B::QueryBias => "self_attn.q_proj.bias",
                    B::KeyBias => "self_attn.k_proj.bias",
                    B::ValueBias => "self_attn.v_proj.bias",
                    B::QueryNorm => "self_attn.q_norm.weight",
                    B::KeyNorm => "self_attn.k_norm.weight",
                    B::Output => "self_attn.o_proj.weight",
                    B::PostAttentionNorm => "post_attention_layernorm.weight",
                    B::MlpNorm if post_norms => "pre_feedforward_layernorm.weight",
                    B::MlpNorm => "post_attention_layernorm.weight",
                    B::Gate => "mlp.gate_proj.weight",
                    B::Up => "mlp.up_proj.weight",
                    B::Down => "mlp.down_proj.weight",
                    B::PostMlpNorm => "post_feedforward_layernorm.weight",
                };
                format!("layers.{l}.{name}")
            }
        }
    }
}
