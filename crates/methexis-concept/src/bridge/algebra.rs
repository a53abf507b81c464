//! Why a bridge fitted on a concept's own pairs proves nothing.

/// Whether least squares from `d` dimensions reproduces any `n` centred rows exactly.
///
/// Then `X_s X_s† = I`, and a direction that is a combination of the rows, `v_s = aᵀX_s`, is carried to
/// `aᵀX_s X_s† X_t = aᵀX_t`: the target's own vector, **for any two models**, even two that have nothing to do with each
/// other. A transfer measured on such rows measures algebra.
pub fn interpolates(n: usize, d: usize) -> bool {
    n <= d
}

#[cfg(test)]
mod tests {
    use crate::bridge::{fit, FitOptions, Kind, PairedRows};
    use crate::measure::stats::cosine;
    use crate::rows::Rows;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn gaussian(n: usize, d: usize, rng: &mut ChaCha8Rng) -> Rows {
        let data =
            (0..n * d).map(|_| ((0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0) as f32).collect();
        Rows::new(d, data).unwrap()
    }

    fn paired(source: Rows, target: Rows) -> PairedRows {
        let texts = (0..source.n()).collect();
        PairedRows::new(source, target, texts).unwrap()
    }

    /// The noise fact: two unrelated Gaussian "models", a "concept" that is noise in both.
    #[test]
    fn a_same_concept_bridge_between_two_noises_gives_cosine_one_and_a_disjoint_one_zero() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let (n, ds, dt) = (60, 160, 200);
        let (xs, xt) = (gaussian(n, ds, &mut rng), gaussian(n, dt, &mut rng));
        // Signed halves: rows 0..30 are "positive", 30..60 "negative".
        let contrast = |x: &Rows| -> Vec<f32> {
            let (a, b) = (
                x.select(&(0..30).collect::<Vec<_>>()).mean(),
                x.select(&(30..60).collect::<Vec<_>>()).mean(),
            );
            a.iter().zip(b).map(|(a, b)| (a - b) as f32).collect()
        };
        let (own_source, own_target) = (contrast(&xs), contrast(&xt));
        let ols = FitOptions { kind: Kind::Ols, ..FitOptions::default() };

        let same = fit(&paired(xs, xt), &ols).unwrap();
        assert!(same.interpolates, "the program says that this bridge reproduces its own rows");
        assert!(same.fit_r2 > 0.999, "{}", same.fit_r2);
        assert!(same.held_out_r2 < 0.05, "and that it predicts nothing: {}", same.held_out_r2);
        let c = cosine(&same.carry(&own_source), &own_target);
        assert!(c > 0.9999, "cosine {c}");

        let other = paired(gaussian(n, ds, &mut rng), gaussian(n, dt, &mut rng));
        for kind in [Kind::Ols, Kind::Ridge] {
            let disjoint = fit(&other, &FitOptions { kind, ..FitOptions::default() }).unwrap();
            let c = cosine(&disjoint.carry(&own_source), &own_target);
            assert!(c.abs() < 0.25, "{kind:?}: cosine {c}");
        }
    }
}
