//! Log-probabilities of rows of logits, without a second matrix of that size: one log-sum-exp a row, the rest on demand.

use candle_core::{DType, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::Result;

const LANES: usize = 16;
/// Groups of lanes that are summed in f32 before the sum goes on in f64.
const RUN: usize = 64;

/// Rows of logits `[rows, vocab]` and what normalises them.
#[derive(Debug, Clone)]
pub struct LogProbs {
    vocab: usize,
    logits: Vec<f32>,
    normaliser: Vec<f32>,
}

impl LogProbs {
    /// From logits `[rows, vocab]` on any device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new(logits: &Tensor) -> Result<Self> {
        let vocab = logits.dim(1)?;
        let logits = logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let arch = Arch::new();
        let rows = logits.par_chunks_exact(vocab.max(1));
        let normaliser = rows.map(|row| arch.dispatch(LogSumExp(row))).collect();
        Ok(Self { vocab, logits, normaliser })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.normaliser.len()
    }

    /// Natural log-probability of `token` in `row`; NaN where there is no such row or token.
    pub fn get(&self, row: usize, token: u32) -> f32 {
        if token as usize >= self.vocab {
            return f32::NAN;
        }
        match (self.logits.get(row * self.vocab + token as usize), self.normaliser.get(row)) {
            (Some(l), Some(z)) => l - z,
            _ => f32::NAN,
        }
    }

    /// Kullback–Leibler divergence of `other` from these, KL(self ‖ other) in nats, for each row.
    pub fn divergence(&self, other: &Self) -> Vec<f64> {
        let width = self.vocab.max(1);
        let ours = self.logits.par_chunks_exact(width).zip(&self.normaliser);
        let theirs = other.logits.par_chunks_exact(width).zip(&other.normaliser);
        let arch = Arch::new();
        let pairs = ours.zip(theirs);
        pairs.map(|((p, zp), (q, zq))| arch.dispatch(Divergence { p: (p, *zp), q: (q, *zq) })).collect()
    }
}

/// e^x within 2 units in the last place, for x ≤ 0 (and moderate x above); 0 below −87. Written so that it vectorises.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding this rounds to an integer, which then stands in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let small = x < -87.0;
    let x = if small { -87.0 } else { x };
    let t = x * std::f32::consts::LOG2_E + ROUND;
    let n = t - ROUND;
    // ln 2 in two parts (Cody and Waite).
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    // Polynomial of Cephes' expf.
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5] {
        p = p.mul_add(r, c);
    }
    let y = (p * r).mul_add(r, r) + 1.0;
    let scale = f32::from_bits((t.to_bits() << 23).wrapping_add(127 << 23));
    if small {
        0.0
    } else {
        y * scale
    }
}

/// log Σ exp over a row; NaN where it holds NaN.
struct LogSumExp<'a>(&'a [f32]);

// `with_simd` is compiled once for each instruction set, and what is inlined into it is vectorised for that set.
impl WithSimd for LogSumExp<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let mut max = [f32::NEG_INFINITY; LANES];
        let mut nan = [0u32; LANES];
        let (parts, rest) = self.0.as_chunks::<LANES>();
        for part in parts {
            for ((m, n), x) in max.iter_mut().zip(&mut nan).zip(part) {
                *m = if *x > *m { *x } else { *m };
                *n |= u32::from(x.is_nan());
            }
        }
        let max = max.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, f32::max);
        if nan.iter().any(|n| *n > 0) || rest.iter().any(|x| x.is_nan()) || !max.is_finite() {
            return f32::NAN;
        }
        let mut total: f64 = rest.iter().map(|x| f64::from(exp(x - max))).sum();
        for run in parts.chunks(RUN) {
            let mut sums = [0.0f32; LANES];
            for part in run {
                for (s, x) in sums.iter_mut().zip(part) {
                    *s += exp(x - max);
                }
            }
            total += sums.iter().map(|s| f64::from(*s)).sum::<f64>();
        }
        (f64::from(max) + total.ln()) as f32
    }
}

/// KL divergence of one row from another, each with its normaliser.
struct Divergence<'a> {
    p: (&'a [f32], f32),
    q: (&'a [f32], f32),
}

impl WithSimd for Divergence<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let ((p, zp), (q, zq)) = (self.p, self.q);
        let (p_parts, p_rest) = p.as_chunks::<LANES>();
        let (q_parts, q_rest) = q.as_chunks::<LANES>();
        let mut total = 0.0f64;
        for (x, y) in p_rest.iter().zip(q_rest) {
            total += f64::from(exp(x - zp) * ((x - zp) - (y - zq)));
        }
        for (p, q) in p_parts.chunks(RUN).zip(q_parts.chunks(RUN)) {
            let mut sums = [0.0f32; LANES];
            for (p, q) in p.iter().zip(q) {
                for ((s, x), y) in sums.iter_mut().zip(p).zip(q) {
                    let log_p = x - zp;
                    *s += exp(log_p) * (log_p - (y - zq));
                }
            }
            total += sums.iter().map(|s| f64::from(*s)).sum::<f64>();
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn exp_is_exp() {
        for i in 0..=200_000 {
            let x = -86.9 + f32::from(i as u16) * 1e-5 + (i as f32) * 4.3e-4;
            let want = f64::from(x).exp();
            assert!((f64::from(exp(x)) / want - 1.0).abs() < 3e-7, "{x}");
        }
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn agrees_with_sums_in_double_precision() {
        let vocab = 5003;
        let value = |i: usize, k: usize| ((i * 7919 + k * 104_729) % 4001) as f32 / 200.0 - 10.0;
        let make = |k| {
            let data: Vec<f32> = (0..3 * vocab).map(|i| value(i, k)).collect();
            LogProbs::new(&Tensor::from_vec(data, (3, vocab), &Device::Cpu).unwrap()).unwrap()
        };
        let (a, b) = (make(1), make(2));
        let kl = a.divergence(&b);
        for (row, kl) in kl.iter().enumerate() {
            let exact = |k: usize| {
                let x: Vec<f64> = (0..vocab).map(|i| f64::from(value(row * vocab + i, k))).collect();
                let z = x.iter().map(|x| x.exp()).sum::<f64>().ln();
                x.into_iter().map(|x| x - z).collect::<Vec<f64>>()
            };
            let (p, q) = (exact(1), exact(2));
            for (i, want) in p.iter().enumerate() {
                assert!((f64::from(a.get(row, i as u32)) - want).abs() < 5e-6);
            }
            let want: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
            assert!((kl / want - 1.0).abs() < 1e-5, "{kl} for {want}");
        }
        assert!(a.divergence(&a).iter().all(|k| k.abs() < 1e-9));
        assert!(a.get(0, vocab as u32).is_nan());
    }

    #[test]
    fn nan_and_infinity_do_not_pass_for_numbers() {
        for bad in [f32::NAN, f32::INFINITY] {
            let t = Tensor::from_vec(vec![0.0, bad, 1.0], (1, 3), &Device::Cpu).unwrap();
            assert!(LogProbs::new(&t).unwrap().get(0, 0).is_nan());
        }
    }
}
