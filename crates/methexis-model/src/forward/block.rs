//! One block of the decoder: attention and MLP on a residual stream, with every site a tap can sit at.

use candle_core::{Device, Tensor};

use super::attention::{attend, Masks};
use super::{ops, Batch, Cache, Visitor};
use crate::architecture::Architecture;
use crate::checkpoint::{BlockPart, Checkpoint, Matrix, Part, Precision};
use crate::{Result, Site};

/// The weights of one block.
#[derive(Debug)]
pub(super) struct Block {
    attention_norm: Tensor,
    query: Matrix,
    key: Matrix,
    value: Matrix,
    bias: Option<[Tensor; 3]>,
    qk_norm: Option<[Tensor; 2]>,
    output: Matrix,
    mlp_norm: Tensor,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
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
            query: matrix(B::Query)?,
            key: matrix(B::Key)?,
            value: matrix(B::Value)?,
            bias: match a.qkv_bias {
                true => Some([vector(B::QueryBias)?, vector(B::KeyBias)?, vector(B::ValueBias)?]),
                false => None,
            },
            qk_norm: match a.qk_norm {
                true => Some([vector(B::QueryNorm)?, vector(B::KeyNorm)?]),
                false => None,
            },
            output: matrix(B::Output)?,
            mlp_norm: vector(B::MlpNorm)?,
            gate: matrix(B::Gate)?,
            up: matrix(B::Up)?,
            down: matrix(B::Down)?,
            post_norms: match a.post_norms {
                true => Some([vector(B::PostAttentionNorm)?, vector(B::PostMlpNorm)?]),
                false => None,
            },
        })
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
        let project = |w: &Matrix, i: usize, heads: usize| -> Result<Tensor> {
            let mut y = ops::matmul(&x, w)?;
            if let Some(b) = self.bias.as_ref().and_then(|b| b.get(i)) {
                y = y.broadcast_add(b)?;
            }
            let y = y.reshape((batch.rows(), heads, a.head_dim))?;
            Ok(match self.qk_norm.as_ref().and_then(|n| n.get(i)) {
                Some(norm) => ops::rms_norm(&y, norm, a.norm_eps)?,
                None => y,
            })
        };
        let q = ops::rope(&project(&self.query, 0, a.heads)?, &rotary.0, &rotary.1)?;
        let k = ops::rope(&project(&self.key, 1, a.kv_heads)?, &rotary.0, &rotary.1)?;
        let v = project(&self.value, 2, a.kv_heads)?;
        let z = attend(l, &(q * a.attention_scale)?, &k, &v, a, batch, masks, caches, prefix)?;
        let z = taps.visit(Site::Heads(l), z, batch)?;
        let z = taps.visit_heads(l, z, a, batch)?;
        if taps.done(Site::Head(l, 0)) {
            return Ok(None);
        }
        let mut attn = ops::matmul(&z, &self.output)?;
        if let Some([norm, _]) = &self.post_norms {
            attn = ops::rms_norm(&attn, norm, a.norm_eps)?;
        }
        let attn = taps.visit(Site::AttnOut(l), attn, batch)?;
        if taps.done(Site::AttnOut(l)) {
            return Ok(None);
        }
        let h = taps.visit(Site::ResidMid(l), (h + attn)?, batch)?;
        if taps.done(Site::ResidMid(l)) {
            return Ok(None);
        }
        let x = ops::rms_norm(&h, &self.mlp_norm, a.norm_eps)?;
        let inner = ops::gated(&ops::matmul(&x, &self.gate)?, &ops::matmul(&x, &self.up)?, a.activation)?;
        let mut mlp = ops::matmul(&inner, &self.down)?;
        if let Some([_, norm]) = &self.post_norms {
            mlp = ops::rms_norm(&mlp, norm, a.norm_eps)?;
        }
        let mlp = taps.visit(Site::MlpOut(l), mlp, batch)?;
        if taps.done(Site::MlpOut(l)) {
            return Ok(None);
        }
        let h = taps.visit(Site::ResidPost(l), (h + mlp)?, batch)?;
        Ok((!taps.done(Site::ResidPost(l))).then_some(h))
    }
}
