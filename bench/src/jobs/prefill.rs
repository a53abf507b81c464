//! Prefill against llama.cpp, and its linear layers against this machine's product.

use methexis_kernel::profile;
use methexis_model::checkpoint::Precision;
use methexis_model::forward::{Batch, LogitRows, Pass, Sequence};
use methexis_model::Model;
use serde_json::json;

use super::{seconds, Bench};
use crate::machine::gemm_peak;
use crate::peer::file_of;
use crate::report::{median, Line};
use crate::Result;

/// Token ids that mean nothing in particular.
pub(crate) fn ids(model: &Model, n: usize) -> Vec<u32> {
    let vocab = model.architecture().vocab.min(20_000) as u64;
    (0..n as u64).map(|i| (1000 + (i * 7919) % (vocab - 1000)) as u32).collect()
}

pub(crate) fn prefill(model: &Model, n: usize) -> Result<()> {
    let batch = Batch::new(vec![Sequence::new(ids(model, n))])?;
    model.decoder().run(&batch, Pass { logits: LogitRows::Last, ..Pass::default() })?;
    Ok(())
}

pub(crate) fn against_llama(bench: &mut Bench<'_>) -> Result<()> {
    for name in bench.args.models.clone() {
        for (file, kind, bar) in super::decode::variants(bench, &name, &["as shipped", "Q8_0"])? {
            let bar_of = if kind == "Q8_0" { 1.4 } else { bar };
            let model = bench.open(&file, Precision::default())?;
            for n in [512, 2048] {
                prefill(&model, n)?;
                let mut best = (f64::INFINITY, json!({}));
                if let Some(peer) = &mut bench.peer {
                    for (ubatch, flash) in [(512, true), (512, false), (128, true), (2048, true)] {
                        let request = json!({"do": "llama_prefill", "model": file_of(&file)?, "tokens": n, "ubatch": ubatch, "flash": flash});
                        let t = peer.seconds(request.clone())?;
                        if t < best.0 {
                            best = (t, request);
                        }
                    }
                }
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                for _ in 0..bench.args.runs {
                    ours.push(seconds(|| prefill(&model, n))?);
                    theirs.push(match &mut bench.peer {
                        Some(peer) => peer.seconds(best.1.clone())?,
                        None => f64::NAN,
                    });
                }
                let line = Line::of_times(
                    &format!("prefill {n}"),
                    &format!("{name} {kind}"),
                    "llama.cpp",
                    &ours,
                    &theirs,
                    bar_of,
                );
                let setting = |k: &str| best.1.get(k).cloned().unwrap_or_default();
                bench.push(line.rate(n as f64, "tokens/s").note(format!(
                    "its ubatch {}, flash {}",
                    setting("ubatch"),
                    setting("flash")
                )));
            }
        }
    }
    Ok(())
}

pub(crate) fn linear(bench: &mut Bench<'_>) -> Result<()> {
    for name in bench.args.models.clone() {
        for (precision, held) in [(Precision::F32, "f32"), (Precision::Quantized, "quantised")] {
            let model = bench.open(&name, precision)?;
            let a = model.architecture();
            let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
            let shapes = [(a.width, q + 2 * kv), (q, a.width), (a.width, 2 * a.hidden), (a.hidden, a.width)];
            let n = 512;
            prefill(&model, n)?;
            let (mut ours, mut peak) = (Vec::new(), Vec::new());
            for _ in 0..bench.args.runs {
                profile::start();
                prefill(&model, n)?;
                let spent = profile::stop().get("linear").copied().unwrap_or_default();
                ours.push(spent.time.as_secs_f64() / spent.flops * 1e9);
                // The time that the machine's product takes for the same shapes, block by block.
                let mut time = 0.0;
                let mut flops = 0.0;
                for (k, m) in shapes {
                    let f = 2.0 * (n * k * m) as f64;
                    time += f / gemm_peak(n, k, m, 3)?;
                    flops += f;
                }
                peak.push(time / flops);
            }
            let line = Line::of_times(
                "linear layers at 512 rows",
                &format!("{name} {held}"),
                "product of crate gemm",
                &ours,
                &peak,
                0.85,
            );
            let best = peak.iter().copied().fold(f64::INFINITY, f64::min);
            bench.push(line.rate(1.0, "GFLOP/s").note(format!(
                "its best {:.0}, median {:.0}",
                1.0 / best,
                1.0 / median(&peak)
            )));
        }
    }
    Ok(())
}
