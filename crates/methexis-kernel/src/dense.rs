//! Dense f32 matrices, laid out once for the product.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::aligned::Aligned;
use crate::tile::{accumulate, interleave, PANEL, ROWS};

/// Rows of x that go over a panel together; their part of y stays in the second-level cache.
const BLOCK_ROWS: usize = 192;

/// Most values of a row that are taken at once: that part of a panel stays in the first-level cache.
const DEPTH: usize = 192;

/// Products below this number of multiplications are not worth a second thread.
const ALONE: usize = 1 << 16;

/// A matrix W `[n, k]` as panels of 64 of its rows, each panel `[k, 64]`: the order in which a product reads it.
#[derive(Debug)]
pub struct Packed {
    n: usize,
    k: usize,
    panels: Aligned,
}

impl Packed {
    /// Lays out the rows of W, which `rows(from, out)` writes `[count, k]` into `out`.
    pub fn new(n: usize, k: usize, rows: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        let mut panels = Aligned::zeros(n.div_ceil(PANEL) * PANEL * k);
        if k > 0 {
            panels.as_mut().par_chunks_exact_mut(PANEL * k).enumerate().for_each_init(
                || vec![0.0; PANEL * k],
                |scratch, (p, panel)| {
                    let count = (n - p * PANEL).min(PANEL);
                    let scratch = scratch.get_mut(..count * k).unwrap_or_default();
                    rows(p * PANEL, scratch);
                    transpose(scratch, k, panel);
                },
            );
        }
        Self { n, k, panels }
    }

    /// From W row by row.
    pub fn from_rows(w: &[f32], n: usize, k: usize) -> Self {
        Self::new(n, k, |from, out| {
            if let Some(w) = w.get(from * k..from * k + out.len()) {
                out.copy_from_slice(w);
            }
        })
    }

    /// Number of rows of W.
    pub fn rows(&self) -> usize {
        self.n
    }

    /// Number of columns of W.
    pub fn cols(&self) -> usize {
        self.k
    }

    /// Bytes in memory.
    pub fn bytes_len(&self) -> usize {
        size_of_val(self.panels.as_ref())
    }

    /// W row by row, `[n, k]`.
    pub fn unpack(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.n * self.k];
        if self.k > 0 {
            out.par_chunks_mut(PANEL * self.k)
                .zip(self.panels.as_ref().par_chunks_exact(PANEL * self.k))
                .for_each(|(rows, panel)| {
                    for (c, row) in rows.chunks_exact_mut(self.k).enumerate() {
                        let column = panel.iter().skip(c).step_by(PANEL);
                        row.iter_mut().zip(column).for_each(|(r, v)| *r = *v);
                    }
                });
        }
        out
    }

    pub(crate) fn panel(&self, p: usize) -> &[f32] {
        self.panels.as_ref().get(p * PANEL * self.k..(p + 1) * PANEL * self.k).unwrap_or_default()
    }
}

/// `[count, k]` row by row into a panel `[k, PANEL]`; columns beyond `count` keep what they hold.
pub(crate) fn transpose(rows: &[f32], k: usize, panel: &mut [f32]) {
    const SQUARE: usize = 16;
    for (b, lines) in panel.chunks_mut(SQUARE * PANEL).enumerate() {
        for (c, row) in rows.chunks_exact(k).enumerate() {
            let values = row.get(b * SQUARE..).unwrap_or_default();
            lines.iter_mut().skip(c).step_by(PANEL).zip(values).for_each(|(l, v)| *l = *v);
        }
    }
}

/// `y += x · [W₁; W₂; …]ᵀ` in one parallel region: x `[m, k]`, y `[m, n₁ + n₂ + …]`.
pub fn accumulate_products(parts: &[&Packed], x: &[f32], m: usize, y: &mut [f32]) {
    let n: usize = parts.iter().map(|p| p.n).sum();
    let k = parts.first().map_or(0, |p| p.k);
    debug_assert!(parts.iter().all(|p| p.k == k) && x.len() == m * k && y.len() == m * n);
    if n == 0 || k == 0 || m == 0 {
        return;
    }
    let panels: Vec<(&[f32], usize)> = parts
        .iter()
        .flat_map(|w| (0..w.n.div_ceil(PANEL)).map(move |p| (w.panel(p), (w.n - p * PANEL).min(PANEL))))
        .collect();
    let threads = if m * n * k < ALONE { 1 } else { rayon::current_num_threads() };
    let row_blocks = m.div_ceil(BLOCK_ROWS);
    // Some tasks a thread even out what else the machine does; more would only cost.
    let groups = (4 * threads).div_ceil(row_blocks).min(panels.len()).max(1);
    let groups = if threads == 1 { 1 } else { groups };
    let per_group = panels.len().div_ceil(groups);
    let rows_per_block = m.div_ceil(row_blocks).next_multiple_of(ROWS);
    let mut tiles = vec![0.0; x.len()];
    let pack = |(x, out): (&[f32], &mut [f32])| interleave(x, k, out);
    if threads == 1 || m <= ROWS {
        pack((x, &mut tiles));
    } else {
        x.par_chunks(4 * ROWS * k).zip(tiles.par_chunks_mut(4 * ROWS * k)).for_each(pack);
    }
    let x = &tiles;
    let mut tasks: Vec<Task<'_, '_>> = Vec::with_capacity(row_blocks * groups);
    for (x, y) in x.chunks(rows_per_block * k).zip(y.chunks_mut(rows_per_block * n)) {
        let first = tasks.len();
        tasks.extend(panels.chunks(per_group).map(|panels| Task { x, k, panels, y: Vec::new() }));
        for mut row in y.chunks_exact_mut(n) {
            for task in tasks.iter_mut().skip(first) {
                let width = task.panels.iter().map(|p| p.1).sum();
                let (part, rest) = std::mem::take(&mut row).split_at_mut(width);
                task.y.push(part);
                row = rest;
            }
        }
    }
    let arch = Arch::new();
    if threads == 1 {
        tasks.into_iter().for_each(|t| arch.dispatch(t));
    } else {
        tasks.into_par_iter().for_each(|t| arch.dispatch(t));
    }
}

/// Some rows of x against some panels.
struct Task<'a, 'y> {
    x: &'a [f32],
    k: usize,
    panels: &'a [(&'a [f32], usize)],
    y: Vec<&'y mut [f32]>,
}

impl WithSimd for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, k, panels, mut y } = self;
        let depth = k.div_ceil(k.div_ceil(DEPTH));
        let mut column = 0;
        // A part of a panel stays in the first-level cache while all rows go over it, and its columns of y in the second.
        for (panel, width) in panels {
            let mut out: Vec<&mut [f32]> =
                y.iter_mut().filter_map(|y| y.get_mut(column..column + width)).collect();
            for from in (0..k).step_by(depth) {
                let to = (from + depth).min(k);
                accumulate(simd, x, k, (from, to), panel, &mut out);
            }
            column += width;
        }
    }
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
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn products_agree_with_sums_in_double_precision(
            m in 1usize..300, k in 1usize..90, ns in prop::collection::vec(1usize..150, 1..4), seed in 0u64..99,
        ) {
            let x = values(m * k, seed);
            let ws: Vec<Vec<f32>> = ns.iter().map(|n| values(n * k, seed + *n as u64)).collect();
            let packed: Vec<Packed> = ns.iter().zip(&ws).map(|(n, w)| Packed::from_rows(w, *n, k)).collect();
            for (p, w) in packed.iter().zip(&ws) {
                prop_assert_eq!(&p.unpack(), w);
            }
            let total: usize = ns.iter().sum();
            let mut y = vec![1.0; m * total];
            accumulate_products(&packed.iter().collect::<Vec<_>>(), &x, m, &mut y);
            let all: Vec<&[f32]> = ws.iter().flat_map(|w| w.chunks_exact(k)).collect();
            for i in 0..m {
                for (j, w) in all.iter().enumerate() {
                    let exact: f64 = (0..k).map(|t| f64::from(x[i * k + t]) * f64::from(w[t])).sum();
                    prop_assert!((f64::from(y[i * total + j]) - 1.0 - exact).abs() < 1e-4 * (k as f64).sqrt());
                }
            }
        }

        #[test]
        fn long_rows_are_taken_in_parts(m in 1usize..8, k in 600usize..2000, seed in 0u64..9) {
            let (x, w) = (values(m * k, seed), values(3 * k, seed + 1));
            let mut y = vec![0.0; m * 3];
            accumulate_products(&[&Packed::from_rows(&w, 3, k)], &x, m, &mut y);
            for i in 0..m {
                for j in 0..3 {
                    let exact: f64 = (0..k).map(|t| f64::from(x[i * k + t]) * f64::from(w[j * k + t])).sum();
                    prop_assert!((f64::from(y[i * 3 + j]) - exact).abs() < 1e-3 * (k as f64).sqrt());
                }
            }
        }
    }
}
