//! From rows at the two halves of contrast pairs to one vector.

use faer::{Mat, Side};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::measure::stats::auroc;
use crate::rows::{norm, Rows};
use crate::{Error, Result};

/// How a direction is made from the rows `P` of the positive and `N` of the negative halves (paired).
///
/// "PCA" is many methods in the literature, so each has its own name. All sums are in f64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// `mean(P − N)` (CAA). Keeps its length.
    #[default]
    MeanDifference,
    /// First right singular vector of `P − N`, not centred, so that the mean all pairs share stays; unit length, sign by
    /// the mean projection.
    PcaUncentred,
    /// As RepE: the order inside each pair is shuffled, then the differences are centred and the first principal
    /// component is taken; unit length, sign by the majority of the pairs.
    PcaShuffled,
    /// Normal of the L2-regularised logistic regression of P against N, in standardised coordinates, mapped back; unit
    /// length.
    Logistic,
}

impl Method {
    /// All methods with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("mean-difference", Self::MeanDifference),
        ("pca-uncentred", Self::PcaUncentred),
        ("pca-shuffled", Self::PcaShuffled),
        ("logistic", Self::Logistic),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, m)| *m == self).map_or("", |(n, _)| n)
    }

    /// Makes the vector `[d]` from paired rows `[n, d]`.
    ///
    /// # Errors
    /// [`Error::Input`] for fewer than 2 pairs, matrices of different shape, or halves that do not differ.
    pub fn fit(self, positive: &Rows, negative: &Rows, seed: u64) -> Result<Vec<f32>> {
        let differences = positive.minus(negative)?;
        if differences.n() < 2 {
            return Err(Error::input(
                "direction",
                format!("{} pairs are too few; 2 is the least", differences.n()),
            ));
        }
        let v = match self {
            Self::MeanDifference => differences.mean(),
            Self::PcaUncentred => {
                let v = first_component(&differences.to_mat())?;
                signed(v, differences.mean())
            }
            Self::PcaShuffled => pca_shuffled(&differences, seed)?,
            Self::Logistic => logistic(positive, negative, 1.0)?,
        };
        if norm(v.iter().copied()) == 0.0 || v.iter().any(|x| !x.is_finite()) {
            return Err(Error::input("direction", "the halves of the pairs do not differ at this site"));
        }
        Ok(v.into_iter().map(|x| x as f32).collect())
    }
}

fn signed(v: Vec<f64>, towards: Vec<f64>) -> Vec<f64> {
    let along: f64 = v.iter().zip(&towards).map(|(a, b)| a * b).sum();
    if along < 0.0 {
        v.into_iter().map(|x| -x).collect()
    } else {
        v
    }
}

/// First right singular vector of `x` `[n, d]`, unit length.
fn first_component(x: &Mat<f64>) -> Result<Vec<f64>> {
    let fail =
        |e: &dyn std::fmt::Debug| Error::input("principal component", format!("did not converge: {e:?}"));
    let (n, d) = (x.nrows(), x.ncols());
    // The smaller of the two Gram matrices has the same nonzero spectrum.
    let v: Vec<f64> = if n < d {
        let eigen = (x * x.transpose()).self_adjoint_eigen(Side::Lower).map_err(|e| fail(&e))?;
        let u = eigen.U().col(n - 1);
        let v = x.transpose() * u;
        v.iter().copied().collect()
    } else {
        let eigen = (x.transpose() * x).self_adjoint_eigen(Side::Lower).map_err(|e| fail(&e))?;
        eigen.U().col(d - 1).iter().copied().collect()
    };
    let length = norm(v.iter().copied());
    Ok(v.into_iter().map(|x| if length > 0.0 { x / length } else { 0.0 }).collect())
}

fn pca_shuffled(differences: &Rows, seed: u64) -> Result<Vec<f64>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x = differences.to_mat();
    let (n, d) = (x.nrows(), x.ncols());
    // Exactly half of the pairs are turned round (which, is random), so that the shared mean becomes variance.
    let mut signs: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    signs.shuffle(&mut rng);
    if rng.random::<bool>() {
        signs.iter_mut().for_each(|s| *s = -*s);
    }
    let sign = |i: usize| signs.get(i).copied().unwrap_or(1.0);
    let turned = Mat::from_fn(n, d, |i, j| x.get(i, j) * sign(i));
    let mean: Vec<f64> = (0..d).map(|j| turned.col(j).iter().sum::<f64>() / n as f64).collect();
    let centred = Mat::from_fn(n, d, |i, j| turned.get(i, j) - mean.get(j).copied().unwrap_or(0.0));
    let v = first_component(&centred)?;
    let votes = differences.project(&v).iter().filter(|p| **p > 0.0).count();
    Ok(if 2 * votes < n { v.into_iter().map(|x| -x).collect() } else { v })
}

/// Normal of the logistic regression that minimises `½‖w‖² + C Σ log(1 + exp(−yᵢ (w·xᵢ + b)))` (scikit-learn's
/// objective) in standardised coordinates, by Newton steps in the dual of the smaller side; unit length in the original
/// coordinates. Constant dimensions get weight 0.
fn logistic(positive: &Rows, negative: &Rows, c: f64) -> Result<Vec<f64>> {
    let (n1, n0, d) = (positive.n(), negative.n(), positive.d());
    let mut all = Vec::with_capacity((n1 + n0) * d);
    positive.iter().chain(negative.iter()).for_each(|r| all.extend_from_slice(r));
    let all = Rows::new(d, all)?;
    let (mean, std) = (all.mean(), all.std());
    let largest = std.iter().copied().fold(0.0, f64::max);
    // A dimension that hardly moves against the others holds rounding, not information.
    let inverse: Vec<f64> = std.iter().map(|s| if *s > 1e-9 * largest { 1.0 / s } else { 0.0 }).collect();
    let n = n1 + n0;
    let raw = all.to_mat();
    let get = |v: &[f64], j: usize| v.get(j).copied().unwrap_or(0.0);
    let x = Mat::from_fn(n, d, |i, j| (raw.get(i, j) - get(&mean, j)) * get(&inverse, j));
    let y: Vec<f64> = (0..n).map(|i| if i < n1 { 1.0 } else { -1.0 }).collect();
    let k = &x * x.transpose();
    // w = Xᵀa; Newton on (a, b) by iteratively reweighted least squares in the dual.
    let mut scores = vec![0.0; n];
    let mut a = vec![0.0; n];
    for _ in 0..100 {
        // Weights and working response of the quadratic model of the loss at `scores`.
        let p: Vec<f64> = scores.iter().zip(&y).map(|(s, y)| 1.0 / (1.0 + (y * s).exp())).collect();
        let weight: Vec<f64> = p.iter().map(|p| (c * p * (1.0 - p)).max(1e-12)).collect();
        let z: Vec<f64> =
            scores.iter().zip(&y).zip(&p).zip(&weight).map(|(((s, y), p), w)| s + c * y * p / w).collect();
        // (K + W⁻¹) a + 1 b = z, 1ᵀ a = 0.
        let system = Mat::from_fn(n + 1, n + 1, |i, j| match (i < n, j < n) {
            (true, true) => k.get(i, j) + if i == j { 1.0 / get(&weight, i) } else { 0.0 },
            (false, false) => 0.0,
            _ => 1.0,
        });
        let rhs = Mat::from_fn(n + 1, 1, |i, _| if i < n { get(&z, i) } else { 0.0 });
        let solution = faer::linalg::solvers::Solve::solve(&system.partial_piv_lu(), &rhs);
        a = (0..n).map(|i| *solution.get(i, 0)).collect();
        let b = *solution.get(n, 0);
        let am = Mat::from_fn(n, 1, |i, _| get(&a, i));
        let fresh = &k * &am;
        let mut moved = 0.0f64;
        for (i, s) in scores.iter_mut().enumerate() {
            let next = fresh.get(i, 0) + b;
            moved = moved.max((next - *s).abs());
            *s = next;
        }
        if moved < 1e-10 {
            break;
        }
    }
    let am = Mat::from_fn(n, 1, |i, _| get(&a, i));
    let w = x.transpose() * am;
    let w: Vec<f64> = (0..d).map(|j| w.get(j, 0) * get(&inverse, j)).collect();
    let length = norm(w.iter().copied());
    Ok(w.into_iter().map(|x| if length > 0.0 { x / length } else { 0.0 }).collect())
}

/// How well a site separates the halves of pairs that the direction was not fitted on.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Separation {
    /// Area under the ROC curve of the projections of held-out halves.
    pub auroc: f64,
    /// Mean held-out difference of projections divided by its standard deviation.
    pub effect: f64,
}

/// Cross-validated separation of paired rows under `method`, by folds of pairs; for choosing a layer on training data.
///
/// # Errors
/// As [`Method::fit`].
pub fn separation(
    method: Method,
    positive: &Rows,
    negative: &Rows,
    folds: usize,
    seed: u64,
) -> Result<Separation> {
    let n = positive.n();
    let folds = folds.clamp(2, n.max(2));
    let mut order: Vec<usize> = (0..n).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let (mut up, mut down) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for fold in 0..folds {
        let (test, train): (Vec<usize>, Vec<usize>) = {
            let mut test = Vec::new();
            let mut train = Vec::new();
            for (k, &i) in order.iter().enumerate() {
                if k % folds == fold {
                    test.push(i);
                } else {
                    train.push(i);
                }
            }
            (test, train)
        };
        let v = method.fit(&positive.select(&train), &negative.select(&train), seed)?;
        let length = norm(v.iter().map(|x| f64::from(*x)));
        let v: Vec<f64> = v.iter().map(|x| f64::from(*x) / length).collect();
        up.extend(positive.select(&test).project(&v));
        down.extend(negative.select(&test).project(&v));
    }
    let differences: Vec<f64> = up.iter().zip(&down).map(|(a, b)| a - b).collect();
    let mean = differences.iter().sum::<f64>() / n as f64;
    let var = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / n as f64;
    Ok(Separation { auroc: auroc(&up, &down), effect: if var > 0.0 { mean / var.sqrt() } else { 0.0 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(n: usize, d: usize, shift: f64, noise: f64, seed: u64) -> (Rows, Rows) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut gauss = || -> f64 { (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0 };
        let (mut p, mut q) = (Vec::new(), Vec::new());
        for _ in 0..n {
            for j in 0..d {
                let base = gauss() * 3.0;
                let sign = if j % 2 == 0 { 1.0 } else { -1.0 };
                p.push((base + shift * sign + noise * gauss()) as f32);
                q.push((base + noise * gauss()) as f32);
            }
        }
        (Rows::new(d, p).unwrap(), Rows::new(d, q).unwrap())
    }

    fn cosine_to_truth(v: &[f32]) -> f64 {
        let dot: f64 =
            v.iter().enumerate().map(|(j, x)| f64::from(*x) * if j % 2 == 0 { 1.0 } else { -1.0 }).sum();
        dot / (norm(v.iter().map(|x| f64::from(*x))) * (v.len() as f64).sqrt())
    }

    #[test]
    fn every_method_finds_the_shift_with_its_sign() {
        for (n, d) in [(40, 12), (20, 60)] {
            let (p, q) = pairs(n, d, 1.0, 0.3, 5);
            for (name, m) in Method::ALL {
                let v = m.fit(&p, &q, 3).unwrap();
                let least = if m == Method::Logistic { 0.3 } else { 0.9 };
                assert!(cosine_to_truth(&v) > least, "{name} {n} {d}: {}", cosine_to_truth(&v));
            }
        }
    }

    #[test]
    fn centring_differences_would_remove_the_shared_mean() {
        // The reason why plain centred PCA of differences is not offered: here it finds noise.
        let (p, q) = pairs(60, 10, 1.0, 0.3, 9);
        let x = p.minus(&q).unwrap();
        let mean = x.mean();
        let m = x.to_mat();
        let centred = Mat::from_fn(m.nrows(), m.ncols(), |i, j| m.get(i, j) - mean[j]);
        let v: Vec<f32> = first_component(&centred).unwrap().iter().map(|x| *x as f32).collect();
        assert!(cosine_to_truth(&v).abs() < 0.8);
        assert!(cosine_to_truth(&Method::PcaUncentred.fit(&p, &q, 0).unwrap()) > 0.95);
    }

    #[test]
    fn dead_and_constant_dimensions_do_not_make_nan() {
        let (p, q) = pairs(20, 6, 1.0, 0.3, 2);
        let dead = |r: &Rows| {
            let rows = r.iter().flat_map(|x| x.iter().copied().chain([0.0, 7.5])).collect();
            Rows::new(8, rows).unwrap()
        };
        for (name, m) in Method::ALL {
            let v = m.fit(&dead(&p), &dead(&q), 0).unwrap();
            assert!(v.iter().all(|x| x.is_finite()), "{name}");
            assert!(v[6].abs() < 1e-6 && v[7].abs() < 1e-6, "{name} {v:?}");
        }
    }

    #[test]
    fn halves_that_do_not_differ_are_refused() {
        let (p, _) = pairs(20, 6, 1.0, 0.3, 2);
        assert!(Method::MeanDifference.fit(&p, &p, 0).is_err());
    }

    #[test]
    fn separation_is_honest_about_noise() {
        let (p, q) = pairs(60, 40, 0.0, 1.0, 4);
        let s = separation(Method::MeanDifference, &p, &q, 5, 0).unwrap();
        assert!((s.auroc - 0.5).abs() < 0.12, "{s:?}");
        let (p, q) = pairs(60, 40, 1.5, 0.5, 4);
        assert!(separation(Method::MeanDifference, &p, &q, 5, 0).unwrap().auroc > 0.9);
    }
}
