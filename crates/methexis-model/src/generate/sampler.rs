//! Choosing the next token from logits.

use rand::distr::weighted::WeightedIndex;
use rand::distr::Distribution;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::{Error, Result};

/// How the next token is chosen. The steps apply in the order of the fields.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sampling {
    /// Divides positive and multiplies negative logits of tokens that have occurred (Keskar et al. 2019, as in
    /// transformers); 1: off.
    pub repetition_penalty: f32,
    /// 0: greedy (the steps below are skipped); else logits are divided by it.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0: all.
    pub top_k: usize,
    /// Keep the smallest set of most likely tokens whose probability reaches p; 1: all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely one; 0: none.
    pub min_p: f32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

impl Sampling {
    /// Refuses values that mean nothing.
    ///
    /// # Errors
    /// [`Error::Input`] with the name and the range that would be right.
    pub fn check(&self) -> Result<()> {
        let fail = |name: &str, range: &str| Err(Error::input(name.to_string(), format!("must be {range}")));
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return fail("repetition penalty", "a number above 0 (1 is off)");
        }
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return fail("temperature", "0 (greedy) or a positive number");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return fail("top-p", "above 0 and at most 1 (1 is off)");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return fail("min-p", "between 0 (off) and 1");
        }
        Ok(())
    }
}

/// A sampler with its own random stream.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    rng: ChaCha8Rng,
}

impl Sampler {
    /// A sampler; equal seeds give equal draws on every machine.
    ///
    /// # Errors
    /// As [`Sampling::check`].
    pub fn new(sampling: Sampling) -> Result<Self> {
        sampling.check()?;
        let rng = ChaCha8Rng::seed_from_u64(sampling.seed);
        Ok(Self { sampling, rng })
    }

    /// Chooses a token from `logits` `[vocab]` after the tokens `seen`.
    ///
    /// # Errors
    /// [`Error::Input`] where the logits hold NaN or nothing finite.
    pub fn choose(&mut self, logits: &[f32], seen: &[u32]) -> Result<u32> {
        if logits.iter().any(|l| l.is_nan()) || !logits.iter().any(|l| l.is_finite()) {
            return Err(Error::input(
                "logits",
                "are NaN or all infinite: the dose is too high or the model is damaged",
            ));
        }
        let s = &self.sampling;
        let mut changed;
        let logits = if s.repetition_penalty == 1.0 {
            logits
        } else {
            changed = logits.to_vec();
            let mut once: Vec<u32> = seen.to_vec();
            once.sort_unstable();
            once.dedup();
            for id in once {
                if let Some(l) = changed.get_mut(id as usize) {
                    *l = if *l > 0.0 { *l / s.repetition_penalty } else { *l * s.repetition_penalty };
                }
            }
            &changed
        };
        if s.temperature == 0.0 {
            // The first of equal maxima, as NumPy and torch choose.
            let best =
                logits
                    .iter()
                    .enumerate()
                    .fold((0, f32::NEG_INFINITY), |b, (i, &l)| if l > b.1 { (i, l) } else { b });
            return Ok(best.0 as u32);
        }
        let mut order: Vec<(u32, f32)> =
            logits.iter().enumerate().map(|(i, &l)| (i as u32, l / s.temperature)).collect();
        let by_logit = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if s.top_k > 0 && s.top_k < order.len() {
            order.select_nth_unstable_by(s.top_k - 1, by_logit);
            order.truncate(s.top_k);
        }
        order.sort_unstable_by(by_logit);
        let top = order.first().map_or(0.0, |o| o.1);
        let mut weights: Vec<f32> = order.iter().map(|o| (o.1 - top).exp()).collect();
        if s.top_p < 1.0 {
            let total: f32 = weights.iter().sum();
            let mut mass = 0.0;
            let keep = weights
                .iter()
                .position(|w| {
                    mass += w / total;
                    mass >= s.top_p
                })
                .map_or(weights.len(), |i| i + 1);
            weights.truncate(keep);
        }
        if s.min_p > 0.0 {
            // The most likely token has weight 1.
            let keep = weights.iter().position(|w| *w < s.min_p).unwrap_or(weights.len()).max(1);
            weights.truncate(keep);
        }
        let draw = WeightedIndex::new(&weights)
            .map_err(|e| Error::input("logits", format!("cannot be sampled from: {e}")))?
            .sample(&mut self.rng);
        order.get(draw).map(|o| o.0).ok_or_else(|| Error::input("logits", "are empty"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(sampling: Sampling, logits: &[f32], n: usize) -> Vec<u32> {
        let mut s = Sampler::new(sampling).unwrap();
        (0..n).map(|_| s.choose(logits, &[]).unwrap()).collect()
    }

    #[test]
    fn greedy_takes_the_first_of_equal_maxima() {
        assert_eq!(draws(Sampling::default(), &[1.0, 3.0, 3.0, 2.0], 1), [1]);
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [0.0, 1.0, 2.0];
        let n = 20_000;
        let d = draws(Sampling { temperature: 1.0, ..Sampling::default() }, &logits, n);
        let z: f32 = logits.iter().map(|l| l.exp()).sum();
        for (i, l) in logits.iter().enumerate() {
            let share = d.iter().filter(|x| **x == i as u32).count() as f32 / n as f32;
            assert!((share - l.exp() / z).abs() < 0.02, "{i}: {share}");
        }
    }

    #[test]
    fn truncations_keep_what_they_say() {
        let logits = [0.0, 1.0, 2.0, 3.0];
        let one = |s: Sampling| draws(Sampling { temperature: 1.0, ..s }, &logits, 500).into_iter().min();
        assert_eq!(one(Sampling { top_k: 2, ..Sampling::default() }), Some(2));
        // softmax: .032 .087 .237 .644
        assert_eq!(one(Sampling { top_p: 0.6, ..Sampling::default() }), Some(3));
        assert_eq!(one(Sampling { top_p: 0.7, ..Sampling::default() }), Some(2));
        assert_eq!(one(Sampling { min_p: 0.3, ..Sampling::default() }), Some(2));
    }

    #[test]
    fn seeds_repeat() {
        let s = Sampling { temperature: 1.0, seed: 7, ..Sampling::default() };
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 / 3.0).collect();
        assert_eq!(draws(s.clone(), &logits, 30), draws(s.clone(), &logits, 30));
        assert_ne!(draws(s.clone(), &logits, 30), draws(Sampling { seed: 8, ..s }, &logits, 30));
    }

    #[test]
    fn repetition_penalty_lowers_seen_tokens() {
        let mut s = Sampler::new(Sampling { repetition_penalty: 2.0, ..Sampling::default() }).unwrap();
        assert_eq!(s.choose(&[3.0, 2.0], &[0]).unwrap(), 1);
        assert_eq!(s.choose(&[-1.0, -1.5], &[0]).unwrap(), 1);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            Sampling { temperature: -1.0, ..Sampling::default() },
            Sampling { temperature: f32::NAN, ..Sampling::default() },
            Sampling { top_p: 0.0, ..Sampling::default() },
            Sampling { min_p: 1.5, ..Sampling::default() },
            Sampling { repetition_penalty: 0.0, ..Sampling::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Sampler::new(Sampling::default()).unwrap().choose(&[f32::NAN, 1.0], &[]).is_err());
    }
}
