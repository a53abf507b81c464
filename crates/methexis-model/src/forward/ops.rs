//! The operators of the decoder. Each has two forms with one meaning: a kernel that holds no gradient, taken on the CPU
//! where none is tracked, and one of differentiable operations (candle's fused forms drop gradients in silence).

use candle_core::{CpuStorage, DType, Storage, Tensor, D};
use methexis_kernel::profile::timed;
use methexis_kernel::rows::{self, Gate, View};

use crate::architecture::Activation;
use crate::{Error, Result};

/// Whether the kernels take `t` as it is: f32 rows in memory, `[rows, …]` with contiguous rows, no gradient tracked.
pub(super) fn plain(t: &Tensor) -> bool {
    let layout = t.layout();
    t.device().is_cpu() && t.dtype() == DType::F32 && !t.track_op() && {
        let mut want = 1;
        let inner = layout.shape().dims().iter().zip(layout.stride()).skip(1).rev();
        inner.into_iter().all(|(d, s)| {
            let fits = *s == want || *d == 1;
            want *= d;
            fits
        })
    }
}

/// Calls `work` with the rows of a tensor that is [`plain`].
pub(super) fn with_rows<R>(t: &Tensor, work: impl FnOnce(View<'_>) -> R) -> Result<R> {
    let (storage, layout) = t.storage_and_layout();
    let Storage::Cpu(CpuStorage::F32(data)) = &*storage else {
        return Err(Error::unsupported("this tensor", "f32 on the CPU is needed"));
    };
    Ok(work(rows_of(data, layout)))
}

pub(super) fn rows_of<'a>(data: &'a [f32], layout: &candle_core::Layout) -> View<'a> {
    let width = layout.shape().dims().iter().skip(1).product();
    let stride = layout.stride().first().copied().unwrap_or(width);
    // One row may carry any stride; the width then is as good.
    let stride = if layout.shape().dims().first() == Some(&1) { width } else { stride };
    View { data: data.get(layout.start_offset()..).unwrap_or_default(), stride, width }
}

/// RMS norm of each part of a row that is as wide as `w` (the whole row, or each head): `x / sqrt(mean(x²) + ε) · w`.
pub(super) fn rms_norm(x: &Tensor, w: &Tensor, eps: f64) -> Result<Tensor> {
    if !(plain(x) && plain(&w.unsqueeze(0)?)) {
        let parts = x.contiguous()?.reshape(((), w.dim(0)?))?;
        return Ok(candle_nn::ops::rms_norm_slow(&parts, w, eps as f32)?.reshape(x.shape())?);
    }
    let mut out = vec![0.0; x.elem_count()];
    with_rows(&w.unsqueeze(0)?, |w| {
        with_rows(x, |x| timed("norm", free, || rows::rms_norm(x, w.row(0), eps as f32, &mut out)))
    })??;
    Ok(Tensor::from_vec(out, x.shape(), x.device())?)
}

/// Rotary embedding in half-split form of x `[rows, heads · dim]` times `scale`, with cos and sin `[rows, dim / 2]`.
pub(super) fn rope(x: &Tensor, dim: usize, cos: &Tensor, sin: &Tensor, scale: f64) -> Result<Tensor> {
    if !plain(x) || !plain(cos) || !plain(sin) {
        let half = dim / 2;
        let (n, width) = x.dims2()?;
        let x = x.contiguous()?.reshape((n, width / dim, dim))?;
        let (a, b) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
        let (cos, sin) = (cos.unsqueeze(1)?, sin.unsqueeze(1)?);
        let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
        let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
        return Ok((Tensor::cat(&[first, second], D::Minus1)?.reshape((n, width))? * scale)?);
    }
    let mut out = vec![0.0; x.elem_count()];
    let n = cos.elem_count();
    with_rows(x, |x| {
        with_rows(cos, |cos| {
            with_rows(sin, |sin| {
                let (cos, sin) = (whole(cos, n), whole(sin, n));
                timed("rotary", free, || rows::rope(x, dim, cos, sin, scale as f32, &mut out));
            })
        })
    })???;
    Ok(Tensor::from_vec(out, x.shape(), x.device())?)
}

/// Work that is not counted in operations.
fn free() -> (f64, f64) {
    (0.0, 0.0)
}

fn whole(v: View<'_>, n: usize) -> &[f32] {
    v.data.get(..n).unwrap_or_default()
}

/// Softmax over the last dimension.
pub(super) fn softmax(x: &Tensor) -> Result<Tensor> {
    Ok(candle_nn::ops::softmax(x, D::Minus1)?)
}

/// The gated nonlinearity `act(gate) · up` of rows that hold gate and up side by side: `[rows, 2 · hidden]` →
/// `[rows, hidden]`.
pub(super) fn gated(x: &Tensor, activation: Activation) -> Result<Tensor> {
    let (n, both) = x.dims2()?;
    let hidden = both / 2;
    if !plain(x) {
        let gate = x.narrow(1, 0, hidden)?.contiguous()?;
        let act = match activation {
            Activation::Silu => gate.silu()?,
            Activation::GeluTanh => gate.gelu()?,
        };
        return Ok((act * x.narrow(1, hidden, hidden)?)?);
    }
    let gate = match activation {
        Activation::Silu => Gate::Silu,
        Activation::GeluTanh => Gate::GeluTanh,
    };
    let mut out = vec![0.0; n * hidden];
    with_rows(x, |x| timed("gate", free, || rows::gated(x, gate, &mut out)))?;
    Ok(Tensor::from_vec(out, (n, hidden), x.device())?)
}
