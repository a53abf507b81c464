//! Bridges and directions against NumPy, SciPy and scikit-learn (`oracle/numeric.py`).
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::PathBuf;

use methexis_concept::bridge::{fit, FitOptions, Kind, PairedRows};
use methexis_concept::direction::Method;
use methexis_concept::measure::stats::auroc;
use methexis_concept::rows::Rows;
use serde_json::Value;

fn golden() -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../oracle/golden/numeric.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn rows(v: &Value, n: usize) -> Rows {
    let data: Vec<f32> = numbers(v).iter().map(|x| *x as f32).collect();
    Rows::new(data.len() / n, data).unwrap()
}

/// ‖a − b‖ / ‖b‖.
fn relative(a: impl IntoIterator<Item = f64>, b: &[f64]) -> f64 {
    let a: Vec<f64> = a.into_iter().collect();
    assert_eq!(a.len(), b.len());
    let d: f64 = a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum();
    (d / b.iter().map(|y| y * y).sum::<f64>()).sqrt()
}

#[test]
fn bridges_agree_with_scipy_and_scikit_learn() {
    let golden = golden();
    for case in golden["bridges"].as_array().unwrap() {
        let n = case["n"].as_u64().unwrap() as usize;
        let paired = PairedRows::new(rows(&case["x"], n), rows(&case["y"], n), (0..n).collect()).unwrap();
        let lambdas = vec![case["lambda"].as_f64().unwrap()];
        for (name, kind, centre, standardise) in [
            ("ols", Kind::Ols, false, false),
            ("ols_centred", Kind::Ols, true, true),
            ("ridge_centred", Kind::Ridge, true, false),
            ("ridge_standardised", Kind::Ridge, true, true),
        ] {
            let options =
                FitOptions { kind, centre, standardise, lambdas: lambdas.clone(), ..FitOptions::default() };
            let fitted = fit(&paired, &options).unwrap();
            let map = &fitted.map;
            let got = (0..map.nrows()).flat_map(|i| (0..map.ncols()).map(move |j| *map.get(i, j)));
            let error = relative(got, &numbers(&case[name]));
            assert!(error < 1e-6, "{name} on {n} rows: {error:.1e}");
        }
    }
}

#[test]
fn directions_agree_with_numpy_and_scikit_learn() {
    let golden = golden();
    for case in golden["directions"].as_array().unwrap() {
        let n = case["n"].as_u64().unwrap() as usize;
        let (p, q) = (rows(&case["positive"], n), rows(&case["negative"], n));
        for (method, most) in
            [(Method::MeanDifference, 1e-6), (Method::PcaUncentred, 1e-6), (Method::Logistic, 1e-4)]
        {
            let got = method.fit(&p, &q, 0).unwrap();
            let error = relative(got.iter().map(|v| f64::from(*v)), &numbers(&case[method.name()]));
            assert!(error < most, "{} of {n} pairs: {error:.1e}", method.name());
        }
        let area = auroc(&numbers(&case["scores_positive"]), &numbers(&case["scores_negative"]));
        assert!((area - case["auroc"].as_f64().unwrap()).abs() < 1e-12);
    }
}

#[test]
fn shuffled_components_agree_with_numpy_whatever_the_shuffle() {
    let golden = golden();
    let case = &golden["shuffled"];
    let n = case["n"].as_u64().unwrap() as usize;
    let (p, q) = (rows(&case["positive"], n), rows(&case["negative"], n));
    for seed in 0..5 {
        let got = Method::PcaShuffled.fit(&p, &q, seed).unwrap();
        let error = relative(got.iter().map(|v| f64::from(*v)), &numbers(&case["pca-shuffled"]));
        assert!(error < 0.02, "seed {seed}: {error:.1e}");
    }
}
