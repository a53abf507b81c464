//! `x · Wᵀ` for few rows of x, where a general product spends its time on packing W: here W is read once, in its own
//! order, as dot products in register tiles.

use candle_core::{CpuStorage, CustomOp2, Layout, Shape, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Most rows of x for which this beats the general product (measured against gemm 0.19 with AVX-512 and AVX2).
pub(super) const MOST_ROWS: usize = 64;

/// Columns of the result that are one task.
const TASK: usize = 64;

/// The product as candle's operator: x `[m, k]`, W `[n, k]` → `[m, n]`, f32 on the CPU, no gradient.
pub(super) struct SkinnyProduct;

/// Whether `x` and `w` are what [`SkinnyProduct`] takes.
pub(super) fn fits(x: &Tensor, w: &Tensor) -> bool {
    let plain = |t: &Tensor| {
        t.device().is_cpu()
            && t.dtype() == candle_core::DType::F32
            && t.rank() == 2
            && t.is_contiguous()
            && !t.track_op()
    };
    plain(x) && plain(w) && x.dims().first().is_some_and(|m| *m <= MOST_ROWS)
}

impl CustomOp2 for SkinnyProduct {
    fn name(&self) -> &'static str {
        "skinny-product"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        fn slice<'a>(s: &'a CpuStorage, l: &Layout) -> candle_core::Result<&'a [f32]> {
            let (from, to) =
                l.contiguous_offsets().ok_or_else(|| candle_core::Error::msg("a strided operand"))?;
            s.as_slice::<f32>()?
                .get(from..to)
                .ok_or_else(|| candle_core::Error::msg("a layout beyond its data"))
        }
        let ((m, k), (n, k2)) = (x_layout.shape().dims2()?, w_layout.shape().dims2()?);
        if k != k2 {
            candle_core::bail!("{m}×{k} does not go with the transpose of {n}×{k2}");
        }
        let mut y = vec![0.0f32; m * n];
        product(slice(x, x_layout)?, slice(w, w_layout)?, k, n, &mut y);
        Ok((CpuStorage::F32(y), Shape::from((m, n))))
    }
}

fn product(x: &[f32], w: &[f32], k: usize, n: usize, y: &mut [f32]) {
    if k == 0 || n == 0 {
        return;
    }
    // Every task gets its columns of every row of the result.
    let mut tasks: Vec<(&[f32], Vec<&mut [f32]>)> = w.chunks(TASK * k).map(|w| (w, Vec::new())).collect();
    for row in y.chunks_exact_mut(n) {
        tasks.iter_mut().zip(row.chunks_mut(TASK)).for_each(|(task, part)| task.1.push(part));
    }
    let arch = Arch::new();
    tasks.into_par_iter().for_each(|(w, mut y)| arch.dispatch(Task { x, w, k, y: &mut y }));
}

struct Task<'a, 'y, 'o> {
    x: &'a [f32],
    w: &'a [f32],
    k: usize,
    y: &'y mut [&'o mut [f32]],
}

impl WithSimd for Task<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match (self.y.len(), S::REGISTER_COUNT >= 32) {
            (1, _) => self.tiles::<S, 1, 4>(simd),
            (2..=3, _) | (_, false) => self.tiles::<S, 3, 4>(simd),
            _ => self.tiles::<S, 6, 4>(simd),
        }
    }
}

impl Task<'_, '_, '_> {
    /// Tiles of R rows by C columns. A tile at the edge repeats its last row or column and drops what is too much.
    #[inline(always)]
    fn tiles<S: Simd, const R: usize, const C: usize>(self, simd: S) {
        let Self { x, w, k, y } = self;
        for (j, w) in w.chunks(C * k).enumerate() {
            let mut columns: [&[f32]; C] = [&[]; C];
            repeat_last(&mut columns, w.chunks_exact(k));
            for (x, y) in x.chunks(R * k).zip(y.chunks_mut(R)) {
                let mut rows: [&[f32]; R] = [&[]; R];
                repeat_last(&mut rows, x.chunks_exact(k));
                let sums = tile::<S, R, C>(simd, &rows, &columns);
                for (y, sums) in y.iter_mut().zip(&sums) {
                    y.iter_mut().skip(j * C).zip(sums).for_each(|(y, s)| *y = *s);
                }
            }
        }
    }
}

#[inline(always)]
fn repeat_last<'a, const N: usize>(slots: &mut [&'a [f32]; N], parts: impl Iterator<Item = &'a [f32]>) {
    let mut parts = parts;
    let mut last: &[f32] = &[];
    for slot in slots {
        last = parts.next().unwrap_or(last);
        *slot = last;
    }
}

/// All dot products of R rows with C columns, in registers.
#[inline(always)]
fn tile<S: Simd, const R: usize, const C: usize>(
    simd: S,
    rows: &[&[f32]; R],
    columns: &[&[f32]; C],
) -> [[f32; C]; R] {
    let zero = simd.splat_f32s(0.0);
    let n = columns.first().map_or(0, |c| c.len() / S::F32_LANES);
    let mut xs: [&[S::f32s]; R] = [&[]; R];
    for (slot, row) in xs.iter_mut().zip(rows) {
        *slot = S::as_simd_f32s(row).0.get(..n).unwrap_or_default();
    }
    let mut ws: [&[S::f32s]; C] = [&[]; C];
    for (slot, column) in ws.iter_mut().zip(columns) {
        *slot = S::as_simd_f32s(column).0.get(..n).unwrap_or_default();
    }
    let mut sums = [[zero; C]; R];
    for t in 0..n {
        let mut b = [zero; C];
        for (b, w) in b.iter_mut().zip(&ws) {
            if let Some(v) = w.get(t) {
                *b = *v;
            }
        }
        for (sums, x) in sums.iter_mut().zip(&xs) {
            if let Some(a) = x.get(t) {
                for (s, b) in sums.iter_mut().zip(&b) {
                    *s = simd.mul_add_e_f32s(*a, *b, *s);
                }
            }
        }
    }
    let done = S::F32_LANES * n;
    let mut out = [[0.0f32; C]; R];
    for ((out, sums), row) in out.iter_mut().zip(&sums).zip(rows) {
        for ((out, s), column) in out.iter_mut().zip(sums).zip(columns) {
            let rest = row.iter().zip(*column).skip(done).map(|(a, b)| a * b);
            *out = simd.reduce_sum_f32s(*s) + rest.sum::<f32>();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_sums_in_double_precision(m in 1usize..20, k in 1usize..150, n in 1usize..150, seed in 0u64..99) {
            let value = |i: usize| (((i as u64 * 2_654_435_761 + seed * 40_503) % 2001) as f32 - 1000.0) / 500.0;
            let x: Vec<f32> = (0..m * k).map(value).collect();
            let w: Vec<f32> = (0..n * k).map(|i| value(i + 7)).collect();
            let mut y = vec![f32::NAN; m * n];
            product(&x, &w, k, n, &mut y);
            for i in 0..m {
                for j in 0..n {
                    let exact: f64 = (0..k).map(|t| f64::from(x[i * k + t]) * f64::from(w[j * k + t])).sum();
                    prop_assert!((f64::from(y[i * n + j]) - exact).abs() < 1e-4 * (k as f64).sqrt());
                }
            }
        }
    }

    #[test]
    fn operands_that_do_not_fit_are_left_to_the_general_product() {
        use candle_core::{DType, Device, Tensor, Var};
        let t = |m, k| Tensor::zeros((m, k), DType::F32, &Device::Cpu).unwrap();
        assert!(fits(&t(3, 8), &t(5, 8)));
        assert!(!fits(&t(MOST_ROWS + 1, 8), &t(5, 8)));
        assert!(!fits(&t(8, 3).t().unwrap(), &t(5, 8)));
        assert!(!fits(&Var::zeros((3, 8), DType::F32, &Device::Cpu).unwrap(), &t(5, 8)));
        assert!(t(3, 8).apply_op2_no_bwd(&t(5, 9), &SkinnyProduct).is_err());
    }
}
