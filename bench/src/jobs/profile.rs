//! Where the time goes.

use std::time::Instant;

use methexis_kernel::profile;
use methexis_model::checkpoint::Precision;
use methexis_model::generate::{generate, Flow, Options, Request};

use super::prefill::{ids, prefill};
use super::Bench;
use crate::Result;

pub(crate) fn show(bench: &mut Bench<'_>) -> Result<()> {
    for name in bench.args.models.clone() {
        for precision in [Precision::F32, Precision::Quantized] {
            let model = bench.open(&name, precision)?;
            let jobs: [(&str, &dyn Fn() -> Result<()>); 3] = [
                ("prefill 512", &|| prefill(&model, 512)),
                ("prefill 2048", &|| prefill(&model, 2048)),
                ("decode 64", &|| {
                    let request = Request { prompt: ids(&model, 16), edits: Vec::new() };
                    let options = Options { max_tokens: 64, ..Options::default() };
                    generate(model.decoder(), &request, &options, &mut |_| Flow::Continue)?;
                    Ok(())
                }),
            ];
            for (what, job) in jobs {
                job()?;
                profile::start();
                let begin = Instant::now();
                job()?;
                let total = begin.elapsed().as_secs_f64();
                let spent = profile::stop();
                println!("{name}, {precision:?}, {what}: {:.1} ms", total * 1e3);
                let mut rest = total;
                for (kind, s) in spent {
                    let t = s.time.as_secs_f64();
                    rest -= t;
                    let rate = if s.flops > 0.0 {
                        format!(
                            ", {:.0} GFLOP/s, {:.1} GB/s of weights",
                            s.flops / t / 1e9,
                            s.bytes / t / 1e9
                        )
                    } else {
                        String::new()
                    };
                    println!(
                        "  {kind:10} {:5.1} %  {:6} calls, {:6.1} µs each{rate}",
                        100.0 * t / total,
                        s.calls,
                        t * 1e6 / s.calls as f64
                    );
                }
                println!("  {:10} {:5.1} %", "the rest", 100.0 * rest / total);
            }
        }
    }
    Ok(())
}
