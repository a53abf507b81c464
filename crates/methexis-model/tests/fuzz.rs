//! Mutation fuzzing of the readers of model files, for METHEXIS_FUZZ_SECONDS (a blink where unset, a minute in CI).
#![allow(missing_docs)]

use std::path::Path;
use std::time::{Duration, Instant};

use methexis_model::checkpoint::gguf::check;
use methexis_model::checkpoint::gguf_write::{to_bytes, RawTensor};
use methexis_model::checkpoint::metadata::{Array, Metadata, Value};
use methexis_model::checkpoint::safetensors::parse;
use methexis_model::tokenizer::Tokenizer;
use rand::{Rng, SeedableRng};

fn seconds() -> Duration {
    let asked = std::env::var("METHEXIS_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs_f64(asked.unwrap_or(0.3))
}

/// Changes bytes, cuts, doubles and swaps pieces of `seed`, and runs `target` on each until the time is over.
fn fuzz(name: &str, seeds: &[Vec<u8>], target: impl Fn(&[u8])) {
    let end = Instant::now() + seconds();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let mut runs = 0u64;
    while Instant::now() < end {
        let mut b = seeds[rng.random_range(0..seeds.len())].clone();
        for _ in 0..rng.random_range(1..8) {
            if b.is_empty() {
                break;
            }
            let at = rng.random_range(0..b.len());
            match rng.random_range(0..6) {
                0 => b[at] = rng.random(),
                1 => b[at] ^= 1 << rng.random_range(0..8),
                2 => b.truncate(at),
                3 => {
                    let piece = b[at..b.len().min(at + 16)].to_vec();
                    b.splice(at..at, piece);
                }
                4 => {
                    let v = [0u64, 1, 0x7FFF_FFFF, u64::MAX, 1 << 40][rng.random_range(0..5)].to_le_bytes();
                    let end = b.len().min(at + 8);
                    b[at..end].copy_from_slice(&v[..end - at]);
                }
                _ => b.extend((0..rng.random_range(1..32)).map(|_| rng.random::<u8>())),
            }
        }
        target(&b);
        runs += 1;
    }
    eprintln!("{name}: {runs} inputs, no panic");
    assert!(runs > 0);
}

fn tokenizer_metadata() -> Metadata {
    let mut m = Metadata::new();
    m.insert("tokenizer.ggml.model", Value::String("llama".into()));
    m.insert(
        "tokenizer.ggml.tokens",
        Value::Array(Array::String(["<unk>", "a", "b", "ab", "▁"].map(String::from).to_vec())),
    );
    m.insert("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0, -1.0, -2.0, -3.0, -4.0])));
    m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![2, 1, 1, 1, 4])));
    m.insert("tokenizer.ggml.unknown_token_id", Value::U32(0));
    m.insert("general.alignment", Value::U32(32));
    m
}

#[test]
fn gguf() {
    let t = [RawTensor::f32("a.weight", vec![4, 8], &[0.5; 32]), RawTensor::f32("b", vec![8], &[1.0; 8])];
    let seed = to_bytes(&tokenizer_metadata(), &t).unwrap();
    fuzz("gguf", &[seed, b"GGUF\x03\0\0\0".to_vec()], |b| {
        if let Ok((metadata, _)) = check(b, Path::new("x")) {
            let _ = Tokenizer::from_gguf(&metadata);
        }
    });
}

#[test]
fn safetensors() {
    let head = br#"{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"__metadata__":{"k":"v"}}"#;
    let mut seed = (head.len() as u64).to_le_bytes().to_vec();
    seed.extend(head);
    seed.extend([0u8; 16]);
    fuzz("safetensors", &[seed], |b| {
        let _ = parse(b, Path::new("x"));
    });
}
