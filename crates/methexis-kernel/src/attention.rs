//! Causal attention of many packed sequences, with grouped heads, without a mask in memory and without copies of keys
//! beyond one layout of each.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::dense::transpose;
use crate::math::exp;
use crate::rows::View;
use crate::tile::{accumulate, interleave, PANEL, ROWS};

/// Query rows (positions times heads of a group) that a block handles together.
const BLOCK_ROWS: usize = 48;

/// Scores that a block holds at most, so that they stay in the second-level cache.
const BLOCK_SCORES: usize = 1 << 17;

/// Query rows on a segment from which on its keys are laid out for the product; below, plain dot products win.
const WORTH: usize = 16;

/// Keys and values of consecutive positions, `[len, kv_heads · dim]` each.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Keys.
    pub keys: View<'a>,
    /// Values.
    pub values: View<'a>,
    /// Number of positions.
    pub len: usize,
}

/// Consecutive query rows of one sequence.
#[derive(Debug, Clone)]
pub struct Queries<'a> {
    /// Number of rows; those of all sequences follow each other.
    pub n: usize,
    /// What they see, in the order of positions. The last one ends with their own positions and is seen causally: query
    /// `i` of `n` sees all but its last `n − 1 − i` positions. The others are seen whole.
    pub segments: Vec<usize>,
    /// Added to the scores `[n, all positions of its segments]` in place of the causal rule and the window.
    pub mask: Option<&'a [f32]>,
}

/// Shape of an attention.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub dim: usize,
    /// A query sees at most so many positions, its own among them.
    pub window: Option<usize>,
}

/// Attention of queries `q` `[rows, heads · dim]` (rotated and scaled) over `segments` into `z` `[rows, heads · dim]`.
pub fn attend(q: View<'_>, segments: &[Segment<'_>], queries: &[Queries<'_>], shape: Shape, z: &mut [f32]) {
    let Shape { heads, kv_heads, dim, .. } = shape;
    if heads == 0 || kv_heads == 0 || dim == 0 {
        return;
    }
    let group = heads / kv_heads;
    let mut viewers = vec![0usize; segments.len()];
    for q in queries {
        for s in &q.segments {
            if let Some(v) = viewers.get_mut(*s) {
                *v += q.n * group;
            }
        }
    }
    let laid: Vec<Laid<'_>> = segments
        .par_iter()
        .zip(&viewers)
        .map(|(s, rows)| Laid { segment: *s, panels: (*rows >= WORTH).then(|| Panels::new(s, shape)) })
        .collect();

    let mut tasks = Vec::new();
    let mut rest = z;
    let mut row = 0;
    for q in queries {
        let seen: usize = q.segments.iter().filter_map(|s| segments.get(*s)).map(|s| s.len).sum();
        let most = (BLOCK_SCORES / seen.max(1)).clamp(ROWS, BLOCK_ROWS);
        let block = (most / group).max(1);
        for from in (0..q.n).step_by(block) {
            let n = block.min(q.n - from);
            let (z, after) = std::mem::take(&mut rest).split_at_mut(n * heads * dim);
            rest = after;
            tasks.push(Task { row: row + from, from, n, queries: q, seen, z });
        }
        row += q.n;
    }
    let arch = Arch::new();
    let run = |task: Task<'_, '_>, scratch: &mut Scratch| {
        arch.dispatch(Block { task, q, laid: &laid, shape, scratch });
    };
    let work: usize = tasks.iter().map(|t| t.n * t.seen * heads * dim).sum();
    if work < 1 << 17 || tasks.len() == 1 {
        let mut scratch = Scratch::default();
        tasks.into_iter().for_each(|t| run(t, &mut scratch));
    } else {
        tasks.into_par_iter().for_each_init(Scratch::default, |scratch, t| run(t, scratch));
    }
}

/// Some positions of one sequence: rows `from..from + n` of its queries.
struct Task<'a, 'z> {
    row: usize,
    from: usize,
    n: usize,
    queries: &'a Queries<'a>,
    seen: usize,
    z: &'z mut [f32],
}

struct Laid<'a> {
    segment: Segment<'a>,
    panels: Option<Panels>,
}

/// Keys and values in the order of the product, head by head.
struct Panels {
    /// For each head and each 64 positions `[dim, PANEL]`.
    keys: Vec<f32>,
    /// For each head and each 64 of its dimensions `[len, PANEL]`.
    values: Vec<f32>,
}

impl Panels {
    fn new(s: &Segment<'_>, shape: Shape) -> Self {
        let Shape { kv_heads, dim, .. } = shape;
        let (by_len, by_dim) = (s.len.div_ceil(PANEL), dim.div_ceil(PANEL));
        let mut keys = vec![0.0; kv_heads * by_len * dim * PANEL];
        let mut values = vec![0.0; kv_heads * by_dim * s.len * PANEL];
        let mut rows = vec![0.0; PANEL * dim];
        for (i, panel) in keys.chunks_exact_mut(dim * PANEL).enumerate() {
            let (head, first) = (i / by_len, i % by_len * PANEL);
            let count = (s.len - first).min(PANEL);
            for (t, to) in rows.chunks_exact_mut(dim).take(count).enumerate() {
                if let Some(k) = s.keys.row(first + t).get(head * dim..(head + 1) * dim) {
                    to.copy_from_slice(k);
                }
            }
            transpose(rows.get(..count * dim).unwrap_or_default(), dim, panel);
        }
        for (i, panel) in values.chunks_exact_mut(s.len * PANEL).enumerate() {
            let (head, first) = (i / by_dim, i % by_dim * PANEL);
            let width = (dim - first).min(PANEL);
            let at = head * dim + first;
            for (t, line) in panel.chunks_exact_mut(PANEL).enumerate() {
                let v = s.values.row(t).get(at..at + width).unwrap_or_default();
                line.iter_mut().zip(v).for_each(|(l, v)| *l = *v);
            }
        }
        Self { keys, values }
    }
}

#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    tile: Vec<f32>,
    queries: Vec<f32>,
    out: Vec<f32>,
}

struct Block<'a, 's, 'z> {
    task: Task<'a, 'z>,
    q: View<'a>,
    laid: &'a [Laid<'a>],
    shape: Shape,
    scratch: &'s mut Scratch,
}

impl WithSimd for Block<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { task: Task { row, from, n, queries, seen, z }, q, laid, shape, scratch } = self;
        let Shape { heads, kv_heads, dim, window } = shape;
        let group = heads / kv_heads;
        let rows = n * group;
        let Scratch { scores, tile, queries: q_tiles, out } = scratch;
        // The last position that the last row sees, and for each row how many it sees.
        let visible = |i: usize| seen - (queries.n - 1 - (from + i));
        let masked = queries.mask.is_some();
        let most = if masked { seen } else { visible(n - 1) };
        let least = match window {
            Some(w) if !masked => visible(0).saturating_sub(w),
            _ => 0,
        };
        for head in 0..kv_heads {
            q_tiles.clear();
            for i in 0..n {
                let row =
                    q.row(row + i).get(head * group * dim..(head + 1) * group * dim).unwrap_or_default();
                q_tiles.extend_from_slice(row);
            }
            tile.resize(rows * dim, 0.0);
            interleave(q_tiles, dim, tile);
            scores.clear();
            scores.resize(rows * most, 0.0);
            let mut first = 0;
            for s in queries.segments.iter().filter_map(|s| laid.get(*s)) {
                let len = s.segment.len.min(most.saturating_sub(first));
                if first + len > least {
                    keys_of(simd, s, (q_tiles, tile), scores, (first, len, most), head, dim);
                }
                first += s.segment.len;
            }
            for (r, line) in scores.chunks_exact_mut(most.max(1)).enumerate() {
                let i = r / group;
                match queries.mask {
                    Some(mask) => {
                        let mask = mask.get((from + i) * seen..(from + i + 1) * seen).unwrap_or_default();
                        line.iter_mut().zip(mask).for_each(|(s, m)| *s += m);
                        softmax(line);
                    }
                    None => {
                        let end = visible(i);
                        let begin = window.map_or(0, |w| end.saturating_sub(w));
                        let (before, rest) = line.split_at_mut(begin.min(end));
                        let (line, after) = rest.split_at_mut(end - begin.min(end));
                        softmax(line);
                        before.fill(0.0);
                        after.fill(0.0);
                    }
                }
            }
            out.clear();
            out.resize(rows * dim, 0.0);
            let mut first = 0;
            for s in queries.segments.iter().filter_map(|s| laid.get(*s)) {
                let len = s.segment.len.min(most.saturating_sub(first));
                if first + len > least {
                    values_of(simd, s, scores, tile, out, (first, len, most), head, dim);
                }
                first += s.segment.len;
            }
            for (z, out) in z.chunks_exact_mut(heads * dim).zip(out.chunks_exact(group * dim)) {
                if let Some(z) = z.get_mut(head * group * dim..(head + 1) * group * dim) {
                    z.copy_from_slice(out);
                }
            }
        }
    }
}

/// Scores of all rows on the first `len` positions of one segment, whose first is number `first` of `most`.
#[inline(always)]
fn keys_of<S: Simd>(
    simd: S,
    s: &Laid<'_>,
    (rows, tile): (&[f32], &[f32]),
    scores: &mut [f32],
    (first, len, most): (usize, usize, usize),
    head: usize,
    dim: usize,
) {
    let Some(panels) = &s.panels else {
        for (q, line) in rows.chunks_exact(dim).zip(scores.chunks_exact_mut(most)) {
            for (t, score) in line.iter_mut().skip(first).take(len).enumerate() {
                *score =
                    dot(simd, q, s.segment.keys.row(t).get(head * dim..(head + 1) * dim).unwrap_or_default());
            }
        }
        return;
    };
    let size = dim * PANEL;
    let by_len = s.segment.len.div_ceil(PANEL);
    let keys = panels.keys.get(head * by_len * size..(head + 1) * by_len * size).unwrap_or_default();
    for (p, panel) in keys.chunks_exact(size).enumerate().take(len.div_ceil(PANEL)) {
        let (at, width) = (first + p * PANEL, (len - p * PANEL).min(PANEL));
        for (x, lines) in tile.chunks(ROWS * dim).zip(scores.chunks_mut(ROWS * most)) {
            let mut slots = lines.chunks_exact_mut(most).filter_map(|l| l.get_mut(at..at + width));
            let mut y: [&mut [f32]; ROWS] = std::array::from_fn(|_| slots.next().unwrap_or_default());
            let n = x.len() / dim;
            accumulate(simd, x, dim, (0, dim), panel, y.get_mut(..n).unwrap_or_default());
        }
    }
}

/// Adds the values of the first `len` positions of one segment, weighted by the scores, to every row of `out`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn values_of<S: Simd>(
    simd: S,
    s: &Laid<'_>,
    scores: &[f32],
    tile: &mut Vec<f32>,
    out: &mut [f32],
    (first, len, most): (usize, usize, usize),
    head: usize,
    dim: usize,
) {
    let Some(panels) = &s.panels else {
        for (line, out) in scores.chunks_exact(most).zip(out.chunks_exact_mut(dim)) {
            for (t, p) in line.iter().skip(first).take(len).enumerate() {
                let v = s.segment.values.row(t).get(head * dim..(head + 1) * dim).unwrap_or_default();
                out.iter_mut().zip(v).for_each(|(o, v)| *o = p.mul_add(*v, *o));
            }
        }
        return;
    };
    let size = s.segment.len * PANEL;
    let by_dim = dim.div_ceil(PANEL);
    let values = panels.values.get(head * by_dim * size..(head + 1) * by_dim * size).unwrap_or_default();
    for (lines, out) in scores.chunks(ROWS * most).zip(out.chunks_mut(ROWS * dim)) {
        let n = lines.len() / most;
        tile.resize(n * len, 0.0);
        for (r, line) in lines.chunks_exact(most).enumerate() {
            let line = line.get(first..first + len).unwrap_or_default();
            tile.iter_mut().skip(r).step_by(n).zip(line).for_each(|(t, p)| *t = *p);
        }
        for (p, panel) in values.chunks_exact(size).enumerate() {
            let (at, width) = (p * PANEL, (dim - p * PANEL).min(PANEL));
            let mut slots = out.chunks_exact_mut(dim).filter_map(|o| o.get_mut(at..at + width));
            let mut y: [&mut [f32]; ROWS] = std::array::from_fn(|_| slots.next().unwrap_or_default());
            accumulate(simd, tile, len, (0, len), panel, y.get_mut(..n).unwrap_or_default());
        }
    }
}

#[inline(always)]
fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let mut sum = simd.splat_f32s(0.0);
    for (a, b) in a.iter().zip(b) {
        sum = simd.mul_add_e_f32s(*a, *b, sum);
    }
    let mut total = simd.reduce_sum_f32s(sum);
    for (a, b) in a_rest.iter().zip(b_rest) {
        total += a * b;
    }
    total
}

/// Softmax of one row; a row of −∞ alone becomes NaN, as the formula says.
#[inline(always)]
fn softmax(line: &mut [f32]) {
    const LANES: usize = 16;
    let mut max = [f32::NEG_INFINITY; LANES];
    let (parts, rest) = line.as_chunks::<LANES>();
    for part in parts {
        for (m, x) in max.iter_mut().zip(part) {
            *m = if *x > *m { *x } else { *m };
        }
    }
    let mut top = f32::NEG_INFINITY;
    for m in max {
        top = if m > top { m } else { top };
    }
    for m in rest {
        top = if *m > top { *m } else { top };
    }
    let mut sums = [0.0f32; LANES];
    let (parts, rest) = line.as_chunks_mut::<LANES>();
    for part in parts {
        for (s, x) in sums.iter_mut().zip(part) {
            *x = exp(*x - top);
            *s += *x;
        }
    }
    let mut total = 0.0;
    for s in sums {
        total += s;
    }
    for x in rest {
        *x = exp(*x - top);
        total += *x;
    }
    let scale = 1.0 / total;
    for x in line.iter_mut() {
        *x *= scale;
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

    /// One query head over the listed keys, in double precision.
    fn plain(q: &[f32], keys: &[(&[f32], &[f32], f64)]) -> Vec<f64> {
        let scores: Vec<f64> = keys
            .iter()
            .map(|(k, _, m)| q.iter().zip(*k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() + m)
            .collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
        let mut out = vec![0.0; q.len()];
        for (s, (_, v, _)) in scores.iter().zip(keys) {
            out.iter_mut().zip(*v).for_each(|(o, v)| *o += (s - top).exp() / total * f64::from(*v));
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn agrees_with_the_formula(
            kv_heads in 1usize..3, group in 1usize..5, half in 1usize..50, // dims up to 98: more than one panel
            lens in prop::collection::vec(1usize..90, 1..5),
            parents in prop::collection::vec(0usize..5, 5), past in 0usize..70,
            window in prop::option::of(1usize..60), masked in any::<bool>(), seed in 0u64..99,
        ) {
            let dim = 2 * half;
            let (heads, width) = (kv_heads * group, kv_heads * dim);
            let rows: usize = lens.iter().sum();
            let q: Vec<f32> = values(rows * heads * dim, seed).iter().map(|x| x / dim as f32).collect();
            let (k, v) = (values(rows * width, seed + 1), values(rows * width, seed + 2));
            let (ck, cv) = (values(past * width, seed + 3), values(past * width, seed + 4));
            let view = |d, w| View { data: d, stride: w, width: w };
            // Segment 0 is the cache, segment i + 1 holds the rows of sequence i; a sequence may continue an earlier one.
            let mut segments = vec![Segment { keys: view(&ck[..], width), values: view(&cv[..], width), len: past }];
            let mut chains: Vec<Vec<usize>> = Vec::new();
            let mut start = 0;
            for (i, n) in lens.iter().enumerate() {
                segments.push(Segment { keys: view(&k[start * width..], width), values: view(&v[start * width..], width), len: *n });
                let mut chain = if parents[i] < i { chains[parents[i]].clone() } else { vec![0] };
                chain.push(i + 1);
                chains.push(chain);
                start += n;
            }
            let seen = |c: &[usize]| c.iter().map(|s| segments[*s].len).sum::<usize>();
            let masks: Vec<Vec<f32>> = chains.iter().zip(&lens).map(|(c, n)| {
                values(n * seen(c), seed + 5).iter().enumerate().map(|(i, x)| if *x > 1.0 && i % seen(c) > 0 { f32::NEG_INFINITY } else { *x }).collect()
            }).collect();
            let queries: Vec<Queries<'_>> = chains.iter().zip(&lens).enumerate().map(|(i, (c, n))| Queries {
                n: *n, segments: c.clone(), mask: (masked && i % 2 == 0).then(|| masks[i].as_slice()),
            }).collect();
            let mut z = vec![f32::NAN; rows * heads * dim];
            attend(view(&q, heads * dim), &segments, &queries, Shape { heads, kv_heads, dim, window }, &mut z);
            let mut row = 0;
            for (s, query) in queries.iter().enumerate() {
                let total = seen(&query.segments);
                for i in 0..query.n {
                    for h in 0..heads {
                        let at = h / group * dim;
                        let end = total - (query.n - 1 - i);
                        let begin = window.map_or(0, |w| end.saturating_sub(w));
                        let mut keys = Vec::new();
                        let mut j = 0;
                        for c in &query.segments {
                            for t in 0..segments[*c].len {
                                let pair = (&segments[*c].keys.row(t)[at..at + dim], &segments[*c].values.row(t)[at..at + dim]);
                                match query.mask {
                                    Some(_) => keys.push((pair.0, pair.1, f64::from(masks[s][i * total + j]))),
                                    None if (begin..end).contains(&j) => keys.push((pair.0, pair.1, 0.0)),
                                    None => {}
                                }
                                j += 1;
                            }
                        }
                        let from = (row * heads + h) * dim;
                        let want = plain(&q[from..from + dim], &keys);
                        for (got, want) in z[from..from + dim].iter().zip(want) {
                            prop_assert!((f64::from(*got) - want).abs() < 2e-5, "{got} {want}");
                        }
                    }
                    row += 1;
                }
            }
        }
    }
}
