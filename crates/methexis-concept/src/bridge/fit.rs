//! Fitting a bridge from paired rows.

use std::collections::BTreeMap;

use faer::{Mat, Side};
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::algebra::interpolates;
use super::moments::{Covariances, Moments};
use super::Kind;
use crate::rows::Rows;
use crate::{Error, Result};

/// Rows of two models at the same places of the same texts.
#[derive(Debug, Clone)]
pub struct PairedRows {
    source: Rows,
    target: Rows,
    texts: Vec<usize>,
}

impl PairedRows {
    /// Pairs row i of `source` with row i of `target`; `texts[i]` is the number of the text they come from.
    ///
    /// # Errors
    /// [`Error::Input`] where the numbers of rows differ or there are fewer than 4 texts.
    pub fn new(source: Rows, target: Rows, texts: Vec<usize>) -> Result<Self> {
        if source.n() != target.n() || source.n() != texts.len() {
            return Err(Error::input(
                "bridge",
                format!("{} source rows, {} target rows, {} texts", source.n(), target.n(), texts.len()),
            ));
        }
        let out = Self { source, target, texts };
        if out.n_texts() < 4 {
            return Err(Error::input(
                "bridge",
                format!("{} texts are too few; give at least 4, better 300", out.n_texts()),
            ));
        }
        Ok(out)
    }

    /// Number of row pairs.
    pub fn n(&self) -> usize {
        self.texts.len()
    }

    /// Number of texts.
    pub fn n_texts(&self) -> usize {
        let mut t = self.texts.clone();
        t.sort_unstable();
        t.dedup();
        t.len()
    }

    /// The source rows.
    pub fn source(&self) -> &Rows {
        &self.source
    }

    /// The target rows.
    pub fn target(&self) -> &Rows {
        &self.target
    }
}

/// The control: every target row is paired with a source row of another text, at random. What a bridge fitted on these
/// rows still does, it does without any correspondence between the models.
pub fn permute_texts(rows: &PairedRows, seed: u64) -> PairedRows {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..rows.n()).collect();
    order.shuffle(&mut rng);
    // A few swaps mend the rows that fell on their own text.
    let text = |i: usize| rows.texts.get(i).copied();
    for i in 0..order.len() {
        for k in 1..order.len() {
            if order.get(i).and_then(|o| text(*o)) != text(i) {
                break;
            }
            order.swap(i, (i + k) % rows.n());
        }
    }
    PairedRows { source: rows.source.select(&order), target: rows.target.clone(), texts: rows.texts.clone() }
}

/// How to fit.
#[derive(Debug, Clone, PartialEq)]
pub struct FitOptions {
    /// Which map.
    pub kind: Kind,
    /// Penalties to choose from, in units of the mean variance of a source dimension.
    pub lambdas: Vec<f64>,
    /// Rows are measured in standard deviations of their dimension before the penalty counts, so that a few massive
    /// dimensions do not set its scale.
    pub standardise: bool,
    /// Rows are centred. The paper does not; then the mean state dominates.
    pub centre: bool,
    /// Number of folds of texts for held-out figures.
    pub folds: usize,
    /// Seed of the folds.
    pub seed: u64,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self {
            kind: Kind::Ridge,
            lambdas: (-8..=5).map(|k| 10f64.powf(f64::from(k) / 2.0)).collect(),
            standardise: true,
            centre: true,
            folds: 4,
            seed: 0,
        }
    }
}

/// A fitted map with its figures.
#[derive(Debug, Clone)]
pub struct Fit {
    /// T `[d_s, d_t]`.
    pub map: Mat<f64>,
    /// Means of source and target rows (zero where rows were not centred).
    pub means: (Vec<f64>, Vec<f64>),
    /// Standard deviations of source and target dimensions.
    pub stds: (Vec<f64>, Vec<f64>),
    /// The penalty that was chosen; 0 for OLS.
    pub lambda: f64,
    /// See [`Facts::fit_r2`](super::Facts::fit_r2).
    pub fit_r2: f64,
    /// See [`Facts::held_out_r2`](super::Facts::held_out_r2).
    pub held_out_r2: f64,
    /// See [`Facts::held_out_r2_raw`](super::Facts::held_out_r2_raw).
    pub held_out_r2_raw: f64,
    /// Held-out R² at every penalty that was tried.
    pub path: Vec<(f64, f64)>,
    /// See [`interpolates`].
    pub interpolates: bool,
}

impl Fit {
    /// `v T`.
    pub fn carry(&self, v: &[f32]) -> Vec<f32> {
        let row = Mat::from_fn(1, v.len(), |_, j| v.get(j).copied().map_or(0.0, f64::from));
        let out = row * &self.map;
        (0..out.ncols()).map(|j| *out.get(0, j) as f32).collect()
    }
}

/// Relative size below which an eigenvalue of the Gram matrix counts as zero in OLS.
const RANK_TOLERANCE: f64 = 1e-10;

/// Fits a map, choosing the penalty by held-out error over texts.
///
/// # Errors
/// [`Error::Input`] for rows that do not vary, or an eigendecomposition that does not converge.
pub fn fit(rows: &PairedRows, options: &FitOptions) -> Result<Fit> {
    let (ds, dt) = (rows.source.d(), rows.target.d());
    let mut total = Moments::new(ds, dt);
    let parts = fold_moments(rows, options)?;
    for part in &parts {
        total.merge(part)?;
    }
    let stds = (rows.source.std(), rows.target.std());
    if stds.0.iter().all(|s| *s == 0.0) || stds.1.iter().all(|s| *s == 0.0) {
        return Err(Error::input("bridge", "the rows of one model are all equal"));
    }
    let candidates: Vec<f64> = match options.kind {
        Kind::Ols => vec![0.0],
        Kind::Ridge if options.lambdas.is_empty() => {
            return Err(Error::input("bridge", "there is no penalty to choose from"));
        }
        Kind::Ridge => options.lambdas.clone(),
    };
    // Held-out residuals by penalty and target dimension, over all folds; and the spread they are measured against.
    let mut residual = vec![vec![0.0; dt]; candidates.len()];
    let mut spread = vec![0.0; dt];
    for part in parts.iter().filter(|p| p.n > 0) {
        let train = total.without(part)?;
        let means = means_of(&train, options);
        let solver = Solver::new(&train, &means, options, &stds.0)?;
        let held = part.about(&means.0, &means.1);
        for (r, lambda) in residual.iter_mut().zip(&candidates) {
            let t = solver.map(*lambda);
            residuals(&held, &t).iter().zip(r).for_each(|(e, r)| *r += e * part.n as f64);
        }
        spread.iter_mut().zip(&held.yy).for_each(|(s, y)| *s += y * part.n as f64);
    }
    let r2 = |residual: &[f64], spread: &[f64]| mean_r2(residual, spread);
    let path: Vec<(f64, f64)> = candidates.iter().zip(&residual).map(|(l, r)| (*l, r2(r, &spread))).collect();
    let best = path.iter().enumerate().max_by(|a, b| a.1 .1.total_cmp(&b.1 .1)).map_or(0, |(i, _)| i);
    let (lambda, held_out_r2) = path.get(best).copied().unwrap_or((0.0, 0.0));
    let chosen = residual.get(best).map(Vec::as_slice).unwrap_or_default();
    let held_out_r2_raw =
        1.0 - chosen.iter().sum::<f64>() / spread.iter().sum::<f64>().max(f64::MIN_POSITIVE);

    let means = means_of(&total, options);
    let map = Solver::new(&total, &means, options, &stds.0)?.map(lambda);
    let all = total.about(&means.0, &means.1);
    let fit_r2 = mean_r2(&residuals(&all, &map), &all.yy);
    Ok(Fit {
        map,
        means,
        stds,
        lambda,
        fit_r2,
        held_out_r2,
        held_out_r2_raw,
        path,
        interpolates: interpolates(rows.n().saturating_sub(usize::from(options.centre)), ds),
    })
}

/// The map of least squares with penalty `lambda` (in units of the mean variance of a source dimension), centred, from
/// statistics alone: by Cholesky, which where the rows determine the map takes a fraction of the time of [`fit`]'s
/// eigendecomposition.
///
/// # Errors
/// [`Error::Input`] where the rows do not determine the map: give more rows or a penalty.
pub fn solve(moments: &Moments, lambda: f64) -> Result<Mat<f64>> {
    use faer::linalg::solvers::Solve;
    let (mx, my) = moments.means();
    let Covariances { mut xx, xy, .. } = moments.about(&mx, &my);
    let d = xx.nrows();
    let mean = (0..d).map(|i| *xx.get(i, i)).sum::<f64>() / d.max(1) as f64;
    for i in 0..d {
        *xx.get_mut(i, i) += lambda * mean;
    }
    let cholesky = xx.llt(Side::Lower).map_err(|_| {
        Error::input("bridge", "the rows do not determine the map: give more rows or a penalty")
    })?;
    Ok(cholesky.solve(xy))
}

/// The statistics of each fold of texts.
fn fold_moments(rows: &PairedRows, options: &FitOptions) -> Result<Vec<Moments>> {
    let mut by_text: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, t) in rows.texts.iter().enumerate() {
        by_text.entry(*t).or_default().push(i);
    }
    let mut texts: Vec<usize> = by_text.keys().copied().collect();
    texts.shuffle(&mut ChaCha8Rng::seed_from_u64(options.seed));
    let folds = options.folds.clamp(2, texts.len().max(2));
    (0..folds)
        .map(|f| {
            let pick: Vec<usize> = texts
                .iter()
                .skip(f)
                .step_by(folds)
                .filter_map(|t| by_text.get(t))
                .flatten()
                .copied()
                .collect();
            let mut m = Moments::new(rows.source.d(), rows.target.d());
            for chunk in pick.chunks(4096) {
                m.add(&rows.source.select(chunk), &rows.target.select(chunk))?;
            }
            Ok(m)
        })
        .collect()
}

fn means_of(m: &Moments, options: &FitOptions) -> (Vec<f64>, Vec<f64>) {
    if options.centre {
        m.means()
    } else {
        (vec![0.0; m.x.len()], vec![0.0; m.y.len()])
    }
}

/// One eigendecomposition of the (standardised) source covariance, from which the map at any penalty follows.
struct Solver {
    vectors: Mat<f64>,
    values: Vec<f64>,
    // Vᵀ S⁻¹ C_xy.
    rotated: Mat<f64>,
    inverse_std: Vec<f64>,
}

impl Solver {
    fn new(m: &Moments, means: &(Vec<f64>, Vec<f64>), options: &FitOptions, std: &[f64]) -> Result<Self> {
        let c = m.about(&means.0, &means.1);
        let largest = std.iter().copied().fold(0.0, f64::max);
        // OLS is the same in any units where the rows determine it, and of minimum norm in the original ones.
        let inverse_std: Vec<f64> = if options.standardise && options.kind == Kind::Ridge {
            std.iter().map(|s| if *s > 1e-9 * largest { 1.0 / s } else { 0.0 }).collect()
        } else {
            vec![1.0; std.len()]
        };
        let g = |i: usize| inverse_std.get(i).copied().unwrap_or(0.0);
        let xx = Mat::from_fn(c.xx.nrows(), c.xx.ncols(), |i, j| c.xx.get(i, j) * g(i) * g(j));
        let xy = Mat::from_fn(c.xy.nrows(), c.xy.ncols(), |i, j| c.xy.get(i, j) * g(i));
        let eigen = xx
            .self_adjoint_eigen(Side::Lower)
            .map_err(|e| Error::input("bridge", format!("the eigendecomposition did not converge: {e:?}")))?;
        let values = eigen.S().column_vector().iter().map(|v| v.max(0.0)).collect();
        let vectors = eigen.U().to_owned();
        let rotated = vectors.transpose() * xy;
        Ok(Self { vectors, values, rotated, inverse_std })
    }

    /// The map at penalty `lambda` (in units of the mean eigenvalue), back in the original coordinates.
    fn map(&self, lambda: f64) -> Mat<f64> {
        let mean = self.values.iter().sum::<f64>() / self.values.len().max(1) as f64;
        let top = self.values.iter().copied().fold(0.0, f64::max);
        let gain: Vec<f64> = self
            .values
            .iter()
            .map(|v| match lambda > 0.0 {
                true => 1.0 / (v + lambda * mean),
                false if *v > RANK_TOLERANCE * top => 1.0 / v,
                false => 0.0,
            })
            .collect();
        let g = |v: &[f64], i: usize| v.get(i).copied().unwrap_or(0.0);
        let scaled = Mat::from_fn(self.rotated.nrows(), self.rotated.ncols(), |i, j| {
            self.rotated.get(i, j) * g(&gain, i)
        });
        let t = &self.vectors * scaled;
        Mat::from_fn(t.nrows(), t.ncols(), |i, j| t.get(i, j) * g(&self.inverse_std, i))
    }
}

/// Mean squared residual of each target dimension under map `t`, from second moments.
fn residuals(c: &Covariances, t: &Mat<f64>) -> Vec<f64> {
    let xt = &c.xx * t;
    (0..t.ncols())
        .map(|j| {
            let cross: f64 = t.col(j).iter().zip(c.xy.col(j).iter()).map(|(a, b)| a * b).sum();
            let square: f64 = t.col(j).iter().zip(xt.col(j).iter()).map(|(a, b)| a * b).sum();
            (c.yy.get(j).copied().unwrap_or(0.0) - 2.0 * cross + square).max(0.0)
        })
        .collect()
}

/// Mean over dimensions of `1 − residual / spread`; dimensions that do not vary do not count.
fn mean_r2(residual: &[f64], spread: &[f64]) -> f64 {
    let top = spread.iter().copied().fold(0.0, f64::max);
    let ratios: Vec<f64> =
        residual.iter().zip(spread).filter(|(_, s)| **s > 1e-12 * top).map(|(r, s)| 1.0 - r / s).collect();
    ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    fn gaussian(n: usize, d: usize, rng: &mut ChaCha8Rng) -> Mat<f64> {
        Mat::from_fn(n, d, |_, _| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0)
    }

    fn rows(m: &Mat<f64>) -> Rows {
        let data = (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| *m.get(i, j) as f32)).collect();
        Rows::new(m.ncols(), data).unwrap()
    }

    #[test]
    fn a_linear_relation_is_found() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (n, ds, dt) = (400, 12, 9);
        let x = gaussian(n, ds, &mut rng);
        let t = gaussian(ds, dt, &mut rng);
        let y = &x * &t;
        let p = PairedRows::new(rows(&x), rows(&y), (0..n).collect()).unwrap();
        for kind in [Kind::Ols, Kind::Ridge] {
            let f = fit(&p, &FitOptions { kind, ..FitOptions::default() }).unwrap();
            assert!(f.held_out_r2 > 0.999, "{kind:?} {}", f.held_out_r2);
            assert!(!f.interpolates);
            let mut all = Moments::new(ds, dt);
            all.add(&rows(&x), &rows(&y)).unwrap();
            let solved = solve(&all, 0.0).unwrap();
            for i in 0..ds {
                for j in 0..dt {
                    assert!((solved.get(i, j) - t.get(i, j)).abs() < 1e-4);
                    assert!((f.map.get(i, j) - t.get(i, j)).abs() < 0.02, "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn statistics_of_parts_add_up_to_those_of_the_whole() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let (x, y) = (rows(&gaussian(50, 7, &mut rng)), rows(&gaussian(50, 5, &mut rng)));
        let mut whole = Moments::new(7, 5);
        whole.add(&x, &y).unwrap();
        let mut parts = Moments::new(7, 5);
        for range in [0..20, 20..33, 33..50] {
            let pick: Vec<usize> = range.collect();
            let mut part = Moments::new(7, 5);
            part.add(&x.select(&pick), &y.select(&pick)).unwrap();
            parts.merge(&part).unwrap();
        }
        assert_eq!(parts.n, whole.n);
        assert!((parts.xx - &whole.xx).norm_max() < 1e-9);
        assert!((parts.xy - &whole.xy).norm_max() < 1e-9);
        assert!(parts.yy.iter().zip(&whole.yy).all(|(a, b)| (a - b).abs() < 1e-9));
    }

    #[test]
    fn a_permuted_pairing_keeps_no_row_on_its_text() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let x = rows(&gaussian(60, 4, &mut rng));
        let texts: Vec<usize> = (0..60).map(|i| i / 3).collect();
        let p = PairedRows::new(x.clone(), x.clone(), texts.clone()).unwrap();
        let q = permute_texts(&p, 7);
        for i in 0..60 {
            let moved = q.source.iter().nth(i).unwrap();
            let from = x.iter().position(|r| r == moved).unwrap();
            assert_ne!(texts[from], texts[i], "row {i}");
        }
    }

    #[test]
    fn noise_has_no_held_out_r2() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let p = PairedRows::new(
            rows(&gaussian(300, 40, &mut rng)),
            rows(&gaussian(300, 30, &mut rng)),
            (0..300).collect(),
        );
        let f = fit(&p.unwrap(), &FitOptions::default()).unwrap();
        assert!(f.held_out_r2 < 0.02, "{}", f.held_out_r2);
    }
}
