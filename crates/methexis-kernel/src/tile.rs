//! The register tile under every f32 product: a few rows of x against one panel of columns.

use pulp::Simd;

/// Columns of a panel: four AVX-512 vectors, or eight of AVX2, so that one layout serves every instruction set.
pub(crate) const PANEL: usize = 64;

/// Most rows of a tile.
pub(crate) const ROWS: usize = 6;

/// Lays rows of x `[m, k]` out as tiles of up to six rows, each tile `[k, rows]`: what a product multiplies with next
/// stands next, and the loop over it needs no checks.
pub(crate) fn interleave(x: &[f32], k: usize, out: &mut [f32]) {
    for (x, out) in x.chunks(ROWS * k).zip(out.chunks_mut(ROWS * k)) {
        let rows = x.len() / k;
        for (r, x) in x.chunks_exact(k).enumerate() {
            out.iter_mut().skip(r).step_by(rows).zip(x).for_each(|(o, x)| *o = *x);
        }
    }
}

/// `y[r] += x[r] · panel` over values `from..to` of every row: x in tiles ([`interleave`]) of `k` values a row, panel
/// `[k, PANEL]`, y of at most `PANEL` values each.
#[inline(always)]
pub(crate) fn accumulate<S: Simd>(
    simd: S,
    x: &[f32],
    k: usize,
    (from, to): (usize, usize),
    panel: &[f32],
    y: &mut [&mut [f32]],
) {
    let panel = panel.get(from * PANEL..to * PANEL).unwrap_or_default();
    for (x, y) in x.chunks(ROWS * k).zip(y.chunks_mut(ROWS)) {
        let x = x.get(from * y.len()..to * y.len()).unwrap_or_default();
        match y.len() {
            6 => rows::<S, 6>(simd, x, panel, y),
            5 => rows::<S, 5>(simd, x, panel, y),
            4 => rows::<S, 4>(simd, x, panel, y),
            3 => rows::<S, 3>(simd, x, panel, y),
            2 => rows::<S, 2>(simd, x, panel, y),
            _ => rows::<S, 1>(simd, x, panel, y),
        }
    }
}

#[inline(always)]
fn rows<S: Simd, const R: usize>(simd: S, x: &[f32], panel: &[f32], y: &mut [&mut [f32]]) {
    let x = x.as_chunks::<R>().0;
    let vectors = S::as_simd_f32s(panel).0;
    let columns = y.first().map_or(0, |y| y.len());
    // 32 registers hold 6 × 4 sums beside their operands, 16 registers 6 × 2.
    if S::REGISTER_COUNT >= 32 && 4 * S::F32_LANES == PANEL {
        let sums = tile(simd, x, vectors.as_chunks::<4>().0.iter());
        add(simd, &sums, 0, y);
    } else if S::REGISTER_COUNT >= 32 {
        part::<S, R, 4>(simd, x, vectors, columns, y);
    } else {
        part::<S, R, 2>(simd, x, vectors, columns, y);
    }
}

#[inline(always)]
fn part<S: Simd, const R: usize, const C: usize>(
    simd: S,
    x: &[[f32; R]],
    vectors: &[S::f32s],
    columns: usize,
    y: &mut [&mut [f32]],
) {
    let width = C * S::F32_LANES;
    let per_line = PANEL / width;
    for g in 0..columns.div_ceil(width) {
        let sums = tile(simd, x, vectors.as_chunks::<C>().0.iter().skip(g).step_by(per_line));
        add(simd, &sums, g * width, y);
    }
}

#[inline(always)]
fn tile<'v, S: Simd, const R: usize, const C: usize>(
    simd: S,
    x: &[[f32; R]],
    lines: impl Iterator<Item = &'v [S::f32s; C]>,
) -> [[S::f32s; C]; R] {
    let mut sums = [[simd.splat_f32s(0.0); C]; R];
    for (a, b) in x.iter().zip(lines) {
        let b = *b;
        for (sums, a) in sums.iter_mut().zip(a) {
            let a = simd.splat_f32s(*a);
            for (s, b) in sums.iter_mut().zip(&b) {
                *s = simd.mul_add_e_f32s(a, *b, *s);
            }
        }
    }
    sums
}

#[inline(always)]
fn add<S: Simd, const C: usize>(simd: S, sums: &[[S::f32s; C]], from: usize, y: &mut [&mut [f32]]) {
    for (y, sums) in y.iter_mut().zip(sums) {
        let Some(y) = y.get_mut(from..) else { continue };
        if y.len() >= C * S::F32_LANES {
            let (vectors, _) = S::as_mut_simd_f32s(y);
            for (v, s) in vectors.iter_mut().zip(sums) {
                *v = simd.add_f32s(*v, *s);
            }
        } else {
            let (mut spill, n) = ([0.0f32; PANEL], y.len());
            let (vectors, _) = S::as_mut_simd_f32s(&mut spill);
            vectors.iter_mut().zip(sums).for_each(|(v, s)| *v = *s);
            y.iter_mut().zip(spill.get(..n).unwrap_or_default()).for_each(|(y, s)| *y += s);
        }
    }
}
