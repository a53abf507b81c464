//! What the tests on real weights share.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::path::PathBuf;

use candle_core::Device;
use methexis_model::checkpoint::Precision;
use methexis_model::source::{FetchOptions, Source};
use methexis_model::Model;

/// The three small models of the oracle.
pub const MODELS: [&str; 3] = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"];

/// Whether the tests on real weights are switched off, which is said aloud so that it can be counted.
pub fn skipped(test: &str) -> bool {
    let skip = std::env::var("METHEXIS_SKIP_MODEL_TESTS").is_ok_and(|v| v == "1");
    if skip {
        eprintln!("SKIPPED {test}: METHEXIS_SKIP_MODEL_TESTS=1");
    }
    skip
}

/// The model, fetched as the program fetches it.
pub fn path(name: &str) -> PathBuf {
    let options = FetchOptions::from_env().expect("a cache folder");
    let found = Source::parse(name).expect("a known name").resolve(&options);
    found
        .unwrap_or_else(|e| {
            panic!("{name} cannot be had ({e}); set METHEXIS_SKIP_MODEL_TESTS=1 to go without")
        })
        .path
}

pub fn open(name: &str, precision: Precision) -> Model {
    Model::open(path(name), name, precision, Device::Cpu).expect("a sound model")
}

/// A golden file of the oracle.
pub fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../oracle/golden").join(file)
}

/// n values of +1 or −1: the top bit of splitmix64 started at `seed` (1: −1), as in oracle/common.py.
pub fn signs(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            if z >> 63 == 1 {
                -1.0
            } else {
                1.0
            }
        })
        .collect()
}

/// ‖a − b‖ / ‖b‖.
pub fn relative(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(x, y)| f64::from(*x) - f64::from(*y)));
    apart / norm(&mut b.iter().map(|y| f64::from(*y))).max(1e-12)
}
