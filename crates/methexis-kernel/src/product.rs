//! The product of the decoder's linear maps, whatever its weights are held as.

use crate::dense::{accumulate_products, Packed};
use crate::profile;

/// Weights `[n, k]` of a product.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    /// f32.
    Packed(&'a Packed),
}

impl Weights<'_> {
    /// Number of rows: columns of the result.
    pub fn rows(&self) -> usize {
        match self {
            Self::Packed(p) => p.rows(),
        }
    }

    /// Bytes in memory.
    pub fn bytes_len(&self) -> usize {
        match self {
            Self::Packed(p) => p.bytes_len(),
        }
    }
}

/// `y += x · [W₁; W₂; …]ᵀ`: x `[m, k]`, y `[m, n₁ + n₂ + …]`.
pub fn products(parts: &[Weights<'_>], x: &[f32], m: usize, y: &mut [f32]) {
    let cost = || {
        let bytes: usize = parts.iter().map(Weights::bytes_len).sum();
        (2.0 * x.len() as f64 * (y_len(parts)) as f64, bytes as f64)
    };
    profile::timed("linear", cost, || {
        let packed: Vec<&Packed> = parts
            .iter()
            .map(|w| match w {
                Weights::Packed(p) => *p,
            })
            .collect();
        accumulate_products(&packed, x, m, y);
    });
}

fn y_len(parts: &[Weights<'_>]) -> usize {
    parts.iter().map(Weights::rows).sum()
}
