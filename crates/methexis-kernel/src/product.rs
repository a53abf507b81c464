//! The product of the decoder's linear maps, whatever its weights are held as.

use crate::dense::{accumulate_products, Packed};

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
}

/// `y += x · [W₁; W₂; …]ᵀ`: x `[m, k]`, y `[m, n₁ + n₂ + …]`.
pub fn products(parts: &[Weights<'_>], x: &[f32], m: usize, y: &mut [f32]) {
    let packed: Vec<&Packed> = parts
        .iter()
        .map(|w| match w {
            Weights::Packed(p) => *p,
        })
        .collect();
    accumulate_products(&packed, x, m, y);
}
