//! What happens to rows between two products: norms, rotary embedding, the gated nonlinearity, sums.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::math::{gelu_tanh, silu};

/// Values below which a second thread costs more than it saves.
const ALONE: usize = 1 << 14;

const LANES: usize = 16;

/// Rows with `stride` values from one to the next, of which the first `width` count.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The values, from the first row's first one on.
    pub data: &'a [f32],
    /// Values from one row to the next.
    pub stride: usize,
    /// Values of a row.
    pub width: usize,
}

impl<'a> View<'a> {
    /// Row `i`; empty where there is none.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &'a [f32] {
        self.data.get(i * self.stride..i * self.stride + self.width).unwrap_or_default()
    }
}

/// Calls `work` with ranges of rows of `out`, over both cores where that pays.
fn by_rows(out: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    if width == 0 || out.is_empty() {
        return;
    }
    let rows = out.len() / width;
    let threads = rayon::current_num_threads();
    if out.len() < ALONE || threads == 1 || rows == 1 {
        return work(0, out);
    }
    let part = rows.div_ceil(2 * threads).max(1);
    out.par_chunks_mut(part * width).enumerate().for_each(|(i, out)| work(i * part, out));
}

/// RMS norm of every row (or of every head of `weight.len()` values in it): `x / √(mean(x²) + ε) · w` into `out`
/// `[rows, x.width]`.
pub fn rms_norm(x: View<'_>, weight: &[f32], eps: f32, out: &mut [f32]) {
    struct Norm<'a, 'o> {
        x: View<'a>,
        weight: &'a [f32],
        eps: f32,
        from: usize,
        out: &'o mut [f32],
    }
    impl WithSimd for Norm<'_, '_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            let Self { x, weight, eps, from, out } = self;
            for (i, out) in out.chunks_exact_mut(x.width).enumerate() {
                let row = x.row(from + i);
                for (x, out) in row.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
                    let scale = 1.0 / (sum_of_squares(x) / weight.len() as f32 + eps).sqrt();
                    out.iter_mut().zip(x).zip(weight).for_each(|((o, x), w)| *o = x * scale * w);
                }
            }
        }
    }
    if weight.is_empty() {
        return;
    }
    by_rows(out, x.width, |from, out| Arch::new().dispatch(Norm { x, weight, eps, from, out }));
}

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (parts, rest) = x.as_chunks::<LANES>();
    for part in parts {
        for (s, x) in sums.iter_mut().zip(part) {
            *s = x.mul_add(*x, *s);
        }
    }
    let mut total = 0.0;
    for s in sums {
        total += s;
    }
    for x in rest {
        total += x * x;
    }
    total
}

/// Rotary embedding in half-split form of every head of `dim` values, with cos and sin `[rows, dim / 2]`, times `scale`,
/// into `out` `[rows, x.width]`.
pub fn rope(x: View<'_>, dim: usize, cos: &[f32], sin: &[f32], scale: f32, out: &mut [f32]) {
    struct Rope<'a, 'o> {
        x: View<'a>,
        dim: usize,
        cos: &'a [f32],
        sin: &'a [f32],
        scale: f32,
        from: usize,
        out: &'o mut [f32],
    }
    impl WithSimd for Rope<'_, '_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            let Self { x, dim, cos, sin, scale, from, out } = self;
            let half = dim / 2;
            for (i, out) in out.chunks_exact_mut(x.width).enumerate() {
                let at = (from + i) * half;
                let (Some(cos), Some(sin)) = (cos.get(at..at + half), sin.get(at..at + half)) else { return };
                for (x, out) in x.row(from + i).chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
                    let (a, b) = x.split_at(half);
                    let (first, second) = out.split_at_mut(half);
                    for ((((o, a), b), c), s) in first.iter_mut().zip(a).zip(b).zip(cos).zip(sin) {
                        *o = (a * c - b * s) * scale;
                    }
                    for ((((o, a), b), c), s) in second.iter_mut().zip(a).zip(b).zip(cos).zip(sin) {
                        *o = (b * c + a * s) * scale;
                    }
                }
            }
        }
    }
    if dim < 2 {
        return;
    }
    by_rows(out, x.width, |from, out| Arch::new().dispatch(Rope { x, dim, cos, sin, scale, from, out }));
}

/// The nonlinearity of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// x · sigmoid(x).
    Silu,
    /// The tanh form of GELU.
    GeluTanh,
}

/// `act(gate) · up` for rows that hold gate and up side by side (`x.width` = 2 · hidden), into `out` `[rows, hidden]`.
pub fn gated(x: View<'_>, gate: Gate, out: &mut [f32]) {
    struct Gated<'a, 'o> {
        x: View<'a>,
        gate: Gate,
        from: usize,
        out: &'o mut [f32],
    }
    impl WithSimd for Gated<'_, '_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            let Self { x, gate, from, out } = self;
            let hidden = x.width / 2;
            for (i, out) in out.chunks_exact_mut(hidden).enumerate() {
                let (g, u) = x.row(from + i).split_at(hidden);
                match gate {
                    Gate::Silu => out.iter_mut().zip(g).zip(u).for_each(|((o, g), u)| *o = silu(*g) * u),
                    Gate::GeluTanh => {
                        out.iter_mut().zip(g).zip(u).for_each(|((o, g), u)| *o = gelu_tanh(*g) * u)
                    }
                }
            }
        }
    }
    by_rows(out, x.width / 2, |from, out| Arch::new().dispatch(Gated { x, gate, from, out }));
}

/// Adds `x` to every row of `out`.
pub fn add_to_each(x: &[f32], out: &mut [f32]) {
    by_rows(out, x.len(), |_, out| {
        for row in out.chunks_exact_mut(x.len()) {
            row.iter_mut().zip(x).for_each(|(o, x)| *o += x);
        }
    });
}

/// Whether no value is NaN or infinite.
pub fn all_finite(x: &[f32]) -> bool {
    // A sum of |x| · 0 is 0 exactly when every x is finite, and vectorises where a search does not.
    x.par_chunks(1 << 16).all(|x| {
        let mut sums = [0.0f32; LANES];
        let (parts, rest) = x.as_chunks::<LANES>();
        for part in parts {
            for (s, x) in sums.iter_mut().zip(part) {
                *s += x * 0.0;
            }
        }
        sums.iter().sum::<f32>() == 0.0 && rest.iter().all(|x| x.is_finite())
    })
}

/// `out += x`, over both cores where that pays.
pub fn add(x: &[f32], out: &mut [f32]) {
    by_rows(out, 1, |from, out| {
        let x = x.get(from..from + out.len()).unwrap_or_default();
        out.iter_mut().zip(x).for_each(|(o, x)| *o += x);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(n: usize, seed: u64) -> Vec<f32> {
        (0..n)
            .map(|i| (((i as u64 * 2_654_435_761 + seed * 40_503) % 2001) as f32 - 1000.0) / 500.0)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn rows_agree_with_double_precision(n in 1usize..200, heads in 1usize..5, half in 1usize..40, gap in 0usize..9, seed in 0u64..99) {
            let (dim, width) = (2 * half, 2 * half * heads);
            let data = values(n * (width + gap), seed);
            let x = View { data: &data, stride: width + gap, width };
            let at = |i: usize, j: usize| f64::from(data[i * (width + gap) + j]);
            let weight = values(dim, seed + 1);
            let mut out = vec![f32::NAN; n * width];
            rms_norm(x, &weight, 1e-3, &mut out);
            for i in 0..n {
                for j in 0..width {
                    let h = j / dim * dim;
                    let mean = (h..h + dim).map(|t| at(i, t).powi(2)).sum::<f64>() / dim as f64;
                    let want = at(i, j) / (mean + 1e-3).sqrt() * f64::from(weight[j - h]);
                    prop_assert!((f64::from(out[i * width + j]) - want).abs() < 1e-5);
                }
            }
            let (cos, sin) = (values(n * half, seed + 2), values(n * half, seed + 3));
            rope(x, dim, &cos, &sin, 0.5, &mut out);
            for i in 0..n {
                for j in 0..width {
                    let (h, t) = (j / dim * dim, j % dim);
                    let (c, s) = (f64::from(cos[i * half + t % half]), f64::from(sin[i * half + t % half]));
                    let want = if t < half { at(i, j) * c - at(i, h + t + half) * s } else { at(i, j) * c + at(i, h + t - half) * s };
                    prop_assert!((f64::from(out[i * width + j]) - 0.5 * want).abs() < 1e-5);
                }
            }
            let mut out = vec![f32::NAN; n * width / 2];
            gated(x, Gate::Silu, &mut out);
            for i in 0..n {
                for j in 0..width / 2 {
                    let g = at(i, j);
                    let want = g / (1.0 + (-g).exp()) * at(i, j + width / 2);
                    prop_assert!((f64::from(out[i * width / 2 + j]) - want).abs() < 1e-5);
                }
            }
            let mut sum = out.clone();
            add(&out, &mut sum);
            prop_assert!(sum.iter().zip(&out).all(|(s, o)| *s == 2.0 * o));
        }
    }
}
