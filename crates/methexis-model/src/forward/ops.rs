//! The operators of the decoder. Each has two forms with one meaning: a fused one that holds no gradient, taken where
//! none is tracked, and one of differentiable operations (candle's fused forms drop gradients in silence).

use candle_core::{Tensor, D};

use super::skinny;
use crate::architecture::Activation;
use crate::checkpoint::Matrix;
use crate::Result;

/// `x · Wᵀ` for x `[rows, in]` and W `[out, in]`.
pub(super) fn matmul(x: &Tensor, w: &Matrix) -> Result<Tensor> {
    Ok(match w {
        Matrix::Dense(w) if skinny::fits(x, w) => x.apply_op2_no_bwd(w, &skinny::SkinnyProduct)?,
        Matrix::Dense(w) => x.matmul(&w.t()?)?,
        Matrix::Quantized(q) => x.contiguous()?.apply_op1_no_bwd(q.as_ref())?,
    })
}

/// RMS norm over the last dimension: `x / sqrt(mean(x²) + ε) · w`.
pub(super) fn rms_norm(x: &Tensor, w: &Tensor, eps: f64) -> Result<Tensor> {
    if x.track_op() || w.track_op() {
        return Ok(candle_nn::ops::rms_norm_slow(x, w, eps as f32)?);
    }
    Ok(candle_nn::ops::rms_norm(&x.contiguous()?, w, eps as f32)?)
}

/// Rotary embedding in half-split form of x `[rows, heads, dim]`, with cos and sin `[rows, dim / 2]`.
pub(super) fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    if x.track_op() {
        let half = x.dim(D::Minus1)? / 2;
        let (a, b) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
        let (cos, sin) = (cos.unsqueeze(1)?, sin.unsqueeze(1)?);
        let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
        let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
        return Ok(Tensor::cat(&[first, second], D::Minus1)?);
    }
    Ok(candle_nn::rotary_emb::rope_thd(&x.contiguous()?.unsqueeze(0)?, cos, sin)?.squeeze(0)?)
}

/// Softmax over the last dimension.
pub(super) fn softmax(x: &Tensor) -> Result<Tensor> {
    if x.track_op() {
        return Ok(candle_nn::ops::softmax(x, D::Minus1)?);
    }
    Ok(candle_nn::ops::softmax_last_dim(&x.contiguous()?)?)
}

/// The gated nonlinearity `act(gate) · up`.
pub(super) fn gated(gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    let act = match activation {
        Activation::Silu => gate.silu()?,
        Activation::GeluTanh => gate.gelu()?,
    };
    Ok((act * up)?)
}
