//! The machine's own limits: rate of f32 products, rate of reading memory.

use std::hint::black_box;
use std::time::Instant;

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use crate::report::median;
use crate::Result;

/// Greatest rate, in GFLOP/s, at which a general product (crate gemm) computes `[m, k] · [k, n]`, of several runs.
pub(crate) fn gemm_peak(m: usize, k: usize, n: usize, runs: usize) -> Result<f64> {
    let x = Tensor::randn(0f32, 1.0, (m, k), &Device::Cpu)?;
    let w = Tensor::randn(0f32, 1.0, (k, n), &Device::Cpu)?;
    let flops = 2.0 * m as f64 * k as f64 * n as f64;
    let mut times = Vec::new();
    for _ in 0..runs {
        let begin = Instant::now();
        black_box(x.matmul(&w)?);
        times.push(begin.elapsed().as_secs_f64());
    }
    Ok(flops / median(&times) / 1e9)
}

/// Reads `mib` MiB with all threads, `runs` times; GB/s of each run.
pub(crate) struct Bandwidth(Vec<u64>);

impl Bandwidth {
    pub(crate) fn new(mib: usize) -> Self {
        Self((0..mib * (1 << 17)).map(|i| i as u64).collect())
    }

    pub(crate) fn run(&self) -> f64 {
        let part = self.0.len().div_ceil(rayon::current_num_threads()).max(1);
        let begin = Instant::now();
        let total: u64 = self
            .0
            .par_chunks(part)
            .map(|c| {
                let mut sums = [0u64; 32];
                for line in c.as_chunks::<32>().0 {
                    sums.iter_mut().zip(line).for_each(|(s, x)| *s = s.wrapping_add(*x));
                }
                sums.into_iter().fold(0u64, u64::wrapping_add)
            })
            .reduce(|| 0, u64::wrapping_add);
        black_box(total);
        (self.0.len() * 8) as f64 / begin.elapsed().as_secs_f64() / 1e9
    }
}
