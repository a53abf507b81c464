//! Mutation fuzzing of the readers of contrast sets, for METHEXIS_FUZZ_SECONDS (a blink where unset, a minute in CI).
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use methexis_concept::contrast::fuzz_any;
use rand::{Rng, SeedableRng};

const SEEDS: [&str; 5] = [
    "{\"concept\":\"x\",\"description\":\"d\",\"openings\":[\"o\"]}\n{\"positive\":\"a\",\"negative\":\"b\",\"prompt\":\"p\",\"split\":\"train\",\"id\":\"1\"}\n",
    "[{\"question\":\"q\\n (A) x\\n (B) y\",\"answer_matching_behavior\":\"(A)\",\"answer_not_matching_behavior\":\"(B)\"}]",
    "prompt,positive,negative,split\np,\"a, b\",c,train\n,d,e,test\n",
    "statement,label\nThe sky is blue.,1\nThe sky is green.,0\n",
    "[\"You win a prize.\",\"A friend calls.\"]",
];

#[test]
fn contrast_sets() {
    let asked = std::env::var("METHEXIS_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs_f64(asked.unwrap_or(0.3));
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(2);
    let mut runs = 0u64;
    while Instant::now() < end {
        let mut b = SEEDS[rng.random_range(0..SEEDS.len())].as_bytes().to_vec();
        for _ in 0..rng.random_range(1..8) {
            if b.is_empty() {
                break;
            }
            let at = rng.random_range(0..b.len());
            match rng.random_range(0..5) {
                0 => b[at] = rng.random(),
                1 => b[at] = b"{}[]\",:\\\n\r\0"[rng.random_range(0..11)],
                2 => b.truncate(at),
                3 => {
                    let piece = b[at..b.len().min(at + 40)].to_vec();
                    b.splice(at..at, piece);
                }
                _ => {
                    b.remove(at);
                }
            }
        }
        fuzz_any(&b);
        runs += 1;
    }
    eprintln!("contrast sets: {runs} inputs, no panic");
    assert!(runs > 0);
}
