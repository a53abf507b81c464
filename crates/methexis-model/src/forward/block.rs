//! One block of the decoder: attention and MLP on a residual stream, with every site a tap can sit at.

use candle_core::{Device, Tensor};

use super::attention::{attend, Masks};
use super::linear::Linear;
use super::{ops, Batch, Cache, Visitor};
use crate::architecture::Architecture;
use crate::checkpoint::{BlockPart, Checkpoint, Part, Precision};
use crate::{Result, Site};

/// The weights of one block.
#[derive(Debug)]
pub(super) struct Block {
    attention_norm: Tensor,
    /// Query, key and value.
    qkv: Linear,
    qk_norm: Option<[Tensor; 2]>,
    output: Linear,
    mlp_norm: Tensor,
    /// Gate and up.
    gate_up: Linear,
    down: Linear,
    post_norms: Option<[Tensor; 2]>,
}

impl Block {
    pub(super) fn load(
        c: &Checkpoint,
        a: &Architecture,
        l: usize,
        p: Precision,
        device: &Device,
    ) -> Result<Self> {
        use BlockPart as B;
        let vector = |part| c.vector(a, Part::Block(l, part), device);
        let matrix = |part| c.matrix(a, Part::Block(l, part), p, device);
        Ok(Self {
            attention_norm: vector(B::AttentionNorm)?,
            qkv: Linear::new(
                vec![matrix(B::Query)?, matrix(B::Key)?, matrix(B::Value)?],
                match a.qkv_bias {
                    true => Some(vec![vector(B::QueryBias)?, vector(B::KeyBias)?, vector(B::ValueBias)?]),
                    false => None,
                },
            )?,
            qk_norm: match a.qk_norm {
                true => Some([vector(B::QueryNorm)?, vector(B::KeyNorm)?]),
                false => None,
            },
            output: Linear::new(vec![matrix(B::Output)?], None)?,
            mlp_norm: vector(B::MlpNorm)?,
            gate_up: Linear::new(vec![matrix(B::Gate)?, matrix(B::Up)?], None)?,
            down: Linear::new(vec![matrix(B::Down)?], None)?,
            post_norms: match a.post_norms {
                true => Some([vector(B::PostAttentionNorm)?, vector(B::PostMlpNorm)?]),
                false => None,
            },
        })
    }

    /// Bytes of the matrices.
    pub(super) fn bytes_len(&self) -> usize {
        [&self.qkv, &self.output, &self.gate_up, &self.down].into_iter().map(Linear::bytes_len).sum()
    }

    /// Runs block `l` on `h` `[rows, width]`; `None` where no later site is needed.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn run(
        &self,
        l: usize,
        h: Tensor,
        a: &Architecture,
        batch: &Batch,
        rotary: &(Tensor, Tensor),
        masks: &mut Masks,
        caches: Option<&mut [Cache]>,
        prefix: Option<&Cache>,
        taps: &mut Visitor<'_, '_>,
    ) -> Result<Option<Tensor>> {
        let h = taps.visit(Site::ResidPre(l), h, batch)?;
        if taps.done(Site::ResidPre(l)) {
            return Ok(None);
        }
        let x = ops::rms_norm(&h, &self.attention_norm, a.norm_eps)?;
        let qkv = self.qkv.apply(&x, None)?;
        let part = |from: usize, heads: usize, norm: usize| -> Result<Tensor> {
            let y = qkv.narrow(1, from * a.head_dim, heads * a.head_dim)?;
            match self.qk_norm.as_ref().and_then(|n| n.get(norm)) {
                Some(norm) => ops::rms_norm(&y, norm, a.norm_eps),
                None => Ok(y),
            }
        };
        let (cos, sin) = rotary;
        let q = ops::rope(&part(0, a.heads, 0)?, a.head_dim, cos, sin, a.attention_scale)?;
        let k = ops::rope(&part(a.heads, a.kv_heads, 1)?, a.head_dim, cos, sin, 1.0)?;
        let v = part(a.heads + a.kv_heads, a.kv_heads, 2)?;
        let z = attend(l, &q, &k, &v, a, batch, masks, caches, prefix)?;
        let z = taps.visit(Site::Heads(l), z, batch)?;
        let z = taps.visit_heads(l, z, a, batch)?;
        if taps.done(Site::Head(l, 0)) {
            return Ok(None);
        }
        let h = match &self.post_norms {
            // Where nobody looks at what the attention adds, the product adds it itself.
            None if !taps.watch(Site::AttnOut(l)) => self.output.apply(&z, Some(&h))?,
            norms => {
                let mut attn = self.output.apply(&z, None)?;
                if let Some([norm, _]) = norms {
                    attn = ops::rms_norm(&attn, norm, a.norm_eps)?;
                }
                let attn = taps.visit(Site::AttnOut(l), attn, batch)?;
                if taps.done(Site::AttnOut(l)) {
                    return Ok(None);
                }
                (h + attn)?
            }
        };
        let h = taps.visit(Site::ResidMid(l), h, batch)?;
        if taps.done(Site::ResidMid(l)) {
            return Ok(None);
        }
        let x = ops::rms_norm(&h, &self.mlp_norm, a.norm_eps)?;
        let inner = ops::gated(&self.gate_up.apply(&x, None)?, a.activation)?;
        let h = match &self.post_norms {
            None if !taps.watch(Site::MlpOut(l)) => self.down.apply(&inner, Some(&h))?,
            norms => {
                let mut mlp = self.down.apply(&inner, None)?;
                if let Some([_, norm]) = norms {
                    mlp = ops::rms_norm(&mlp, norm, a.norm_eps)?;
                }
                let mlp = taps.visit(Site::MlpOut(l), mlp, batch)?;
                if taps.done(Site::MlpOut(l)) {
                    return Ok(None);
                }
                (h + mlp)?
            }
        };
        let h = taps.visit(Site::ResidPost(l), h, batch)?;
        Ok((!taps.done(Site::ResidPost(l))).then_some(h))
    }
}
