//! Statistics: seeded, independent of threads and platform.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::rows::norm;

/// Area under the ROC curve: the share of (up, down) pairs in which the up value is larger, ties counting half.
/// 0.5 where one side is empty.
pub fn auroc(up: &[f64], down: &[f64]) -> f64 {
    if up.is_empty() || down.is_empty() {
        return 0.5;
    }
    let mut all: Vec<(f64, bool)> =
        up.iter().map(|x| (*x, true)).chain(down.iter().map(|x| (*x, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Mann–Whitney U with mid-ranks.
    let mut rank_sum = 0.0;
    let mut i = 0;
    while i < all.len() {
        let value = all.get(i).map_or(0.0, |a| a.0);
        let ties = all.iter().skip(i).take_while(|a| a.0 == value).count();
        let mid = i as f64 + (ties as f64 + 1.0) / 2.0;
        rank_sum += mid * all.iter().skip(i).take(ties).filter(|a| a.1).count() as f64;
        i += ties;
    }
    let (m, n) = (up.len() as f64, down.len() as f64);
    (rank_sum - m * (m + 1.0) / 2.0) / (m * n)
}

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// The estimate from all items.
    pub value: f64,
    /// 2.5 % point.
    pub low: f64,
    /// 97.5 % point.
    pub high: f64,
}

impl Interval {
    /// Whether the interval does not reach `x`.
    pub fn excludes(&self, x: f64) -> bool {
        self.low > x || self.high < x
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} [{:.2}, {:.2}]", self.value, self.low, self.high)
    }
}

/// Bootstrap resamples.
pub const RESAMPLES: usize = 2000;

/// Percentile bootstrap over items `0..n` of any statistic of them (Efron). Resamples on which the statistic is not
/// finite are left out; `None` where more than a tenth are.
pub fn bootstrap(n: usize, seed: u64, statistic: impl Fn(&[usize]) -> f64) -> Option<Interval> {
    if n == 0 {
        return None;
    }
    let all: Vec<usize> = (0..n).collect();
    let value = statistic(&all);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut found = Vec::with_capacity(RESAMPLES);
    let mut pick = vec![0; n];
    for _ in 0..RESAMPLES {
        pick.iter_mut().for_each(|p| *p = rng.random_range(0..n));
        let s = statistic(&pick);
        if s.is_finite() {
            found.push(s);
        }
    }
    if !value.is_finite() || found.len() * 10 < RESAMPLES * 9 {
        return None;
    }
    found.sort_by(f64::total_cmp);
    let at = |q: f64| found.get(((found.len() - 1) as f64 * q).round() as usize).copied().unwrap_or(value);
    Some(Interval { value, low: at(0.025), high: at(0.975) })
}

/// Mean of `values` at `pick`.
pub fn mean_at(values: &[f64], pick: &[usize]) -> f64 {
    pick.iter().filter_map(|i| values.get(*i)).sum::<f64>() / pick.len().max(1) as f64
}

/// Mean with its interval.
pub fn mean(values: &[f64], seed: u64) -> Option<Interval> {
    bootstrap(values.len(), seed, |pick| mean_at(values, pick))
}

/// Retention (cross − no) / (self − no) of per-item values, items resampled together; `None` where the effect of the
/// target's own vector is not distinguishable from 0, since a ratio to nothing means nothing.
pub fn retention(no: &[f64], own: &[f64], cross: &[f64], seed: u64) -> Option<Interval> {
    let n = no.len().min(own.len()).min(cross.len());
    let gain = bootstrap(n, seed, |p| mean_at(own, p) - mean_at(no, p))?;
    if !gain.excludes(0.0) {
        return None;
    }
    bootstrap(n, seed, |p| (mean_at(cross, p) - mean_at(no, p)) / (mean_at(own, p) - mean_at(no, p)))
}

/// Least-squares slope of `y` over `x`; 0 where x does not vary.
pub fn slope(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len().min(y.len()).max(1) as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let over: f64 = x.iter().zip(y).map(|(a, b)| (a - mx) * (b - my)).sum();
    let under: f64 = x.iter().map(|a| (a - mx).powi(2)).sum();
    if under > 0.0 {
        over / under
    } else {
        0.0
    }
}

/// Cosine of two vectors; 0 where one is zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    let length = norm(a.iter().map(|x| f64::from(*x))) * norm(b.iter().map(|x| f64::from(*x)));
    if length > 0.0 {
        dot / length
    } else {
        0.0
    }
}

/// Cosine after dividing every dimension by its standard deviation over neutral states. A few massive dimensions
/// dominate the raw cosine, so that even a permuted bridge can reach ± 0.8; here it stays near 0.
pub fn whitened_cosine(a: &[f32], b: &[f32], std: &[f32]) -> f64 {
    let top = std.iter().copied().fold(0.0, f32::max);
    let scale = |v: &[f32]| -> Vec<f32> {
        v.iter().zip(std).map(|(x, s)| if *s > 1e-9 * top { x / s } else { 0.0 }).collect()
    };
    cosine(&scale(a), &scale(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auroc_counts_ties_half() {
        assert_eq!(auroc(&[1.0, 2.0], &[0.0, 1.0]), 0.875);
        assert_eq!(auroc(&[1.0], &[1.0]), 0.5);
        assert_eq!(auroc(&[3.0, 4.0], &[1.0, 2.0]), 1.0);
        assert_eq!(auroc(&[], &[1.0]), 0.5);
    }

    #[test]
    fn intervals_cover_about_as_often_as_they_say() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let covered = (0..200)
            .filter(|t| {
                let x: Vec<f64> =
                    (0..60).map(|_| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0).collect();
                let i = mean(&x, *t).unwrap();
                i.low <= 0.0 && 0.0 <= i.high
            })
            .count();
        assert!((180..=199).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn retention_without_an_own_effect_is_undefined() {
        let no: Vec<f64> = (0..50).map(|i| f64::from(i % 7)).collect();
        let shifted: Vec<f64> = no.iter().map(|x| x + 2.0).collect();
        let half: Vec<f64> = no.iter().map(|x| x + 1.0).collect();
        let r = retention(&no, &shifted, &half, 0).unwrap();
        assert!((r.value - 0.5).abs() < 1e-12 && r.low > 0.4 && r.high < 0.6);
        let noise: Vec<f64> =
            no.iter().enumerate().map(|(i, x)| x + if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        assert!(retention(&no, &noise, &half, 0).is_none());
    }

    #[test]
    fn bootstrap_repeats_with_its_seed() {
        let x: Vec<f64> = (0..30).map(f64::from).collect();
        assert_eq!(mean(&x, 5), mean(&x, 5));
        assert_ne!(mean(&x, 5), mean(&x, 6));
    }

    #[test]
    fn slope_is_least_squares() {
        assert!((slope(&[0.0, 1.0, 2.0], &[1.0, 3.0, 5.0]) - 2.0).abs() < 1e-12);
        assert_eq!(slope(&[1.0, 1.0], &[1.0, 3.0]), 0.0);
    }

    #[test]
    fn whitening_takes_the_power_from_massive_dimensions() {
        let (a, b, std) = ([100.0, 1.0, 0.0], [100.0, -1.0, 0.0], [100.0, 0.1, 0.0]);
        assert!(cosine(&a, &b) > 0.99);
        assert!(whitened_cosine(&a, &b, &std) < -0.9);
    }
}
