//! Decoding against llama.cpp, against memory bandwidth, and with a plan against without.

use methexis_kernel::profile;
use methexis_model::checkpoint::Precision;
use methexis_model::edit::{Edit, Operation, Scope};
use methexis_model::generate::{generate, Flow, Options, Request, Sampling};
use methexis_model::{Model, Site};
use serde_json::json;

use super::prefill::ids;
use super::{seconds, Bench};
use crate::machine::Bandwidth;
use crate::peer::file_of;
use crate::report::Line;
use crate::Result;

const PROMPT: usize = 16;
const TOKENS: usize = 128;

/// Files of a model in several quantisations, made by the peer where they are not the shipped one: (file, kind, bar).
pub(crate) fn variants(
    bench: &mut Bench<'_>,
    name: &str,
    kinds: &[&str],
) -> Result<Vec<(String, String, f64)>> {
    let mut out = Vec::new();
    for kind in kinds {
        if *kind == "as shipped" {
            out.push((name.to_string(), (*kind).to_string(), 2.0));
            continue;
        }
        let stem: String = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".gguf").to_string();
        let to = bench.args.home.join(format!("{stem}.{kind}.gguf"));
        if !to.exists() {
            let from = file_of(name)?;
            let Some(peer) = &mut bench.peer else { continue };
            let part = to.with_extension("part");
            peer.ask(json!({"do": "quantize", "from": from, "to": part, "type": kind}))?;
            std::fs::rename(part, &to)?;
        }
        out.push((to.display().to_string(), (*kind).to_string(), 2.0));
    }
    Ok(out)
}

/// Times of decoding `TOKENS` tokens one by one, without the prefill.
fn decode(model: &Model, edits: &[Edit]) -> Result<f64> {
    let request = Request { prompt: ids(model, PROMPT), edits: edits.to_vec() };
    let options = Options {
        max_tokens: TOKENS + 1,
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        ..Options::default()
    };
    let mut begin = None;
    let mut n = 0;
    let total = seconds(|| {
        Ok(generate(model.decoder(), &request, &options, &mut |_| {
            n += 1;
            begin.get_or_insert_with(std::time::Instant::now);
            Flow::Continue
        })?)
    })?;
    if n != TOKENS + 1 {
        return Err(format!("{n} tokens instead of {}", TOKENS + 1).into());
    }
    Ok(begin.map_or(total, |b| b.elapsed().as_secs_f64()))
}

pub(crate) fn against_llama(bench: &mut Bench<'_>) -> Result<()> {
    let memory = Bandwidth::new(1024);
    for name in bench.args.models.clone() {
        for (file, kind, _) in variants(bench, &name, &["as shipped", "Q8_0", "Q4_K_M"])? {
            let model = bench.open(&file, Precision::Quantized)?;
            let label = format!("{name} {kind}");
            decode(&model, &[])?;
            profile::start();
            decode(&model, &[])?;
            let bytes: f64 = profile::stop().values().map(|s| s.bytes).sum::<f64>();
            let mut best = (f64::INFINITY, json!({}));
            if let Some(peer) = &mut bench.peer {
                for flash in [true, false] {
                    let request = json!({"do": "llama_decode", "model": file_of(&file)?, "prompt": PROMPT, "tokens": TOKENS, "flash": flash});
                    let t = peer.seconds(request.clone())?;
                    if t < best.0 {
                        best = (t, request);
                    }
                }
            }
            let (mut ours, mut theirs, mut limit) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..bench.args.runs {
                ours.push(decode(&model, &[])?);
                theirs.push(match &mut bench.peer {
                    Some(peer) => peer.seconds(best.1.clone())?,
                    None => f64::NAN,
                });
                limit.push(bytes / 1e9 / memory.run());
            }
            let line = Line::of_times("decode 128", &label, "llama.cpp", &ours, &theirs, 1.0);
            bench.push(
                line.rate(TOKENS as f64, "tokens/s")
                    .note(format!("flash {}", best.1.get("flash").cloned().unwrap_or_default())),
            );
            let line =
                Line::of_times("weights read while decoding", &label, "reading memory", &ours, &limit, 0.7);
            bench.push(
                line.rate(bytes / 1e9, "GB/s")
                    .note(format!("{:.0} MB a token", bytes / 1e6 / (TOKENS + 1) as f64)),
            );
        }
    }
    Ok(())
}

pub(crate) fn plan(bench: &mut Bench<'_>) -> Result<()> {
    for name in bench.args.models.clone() {
        let model = bench.open(&name, Precision::Quantized)?;
        let a = model.architecture();
        let edits: Vec<Edit> = (0..a.depth())
            .map(|l| {
                let v = (0..a.width).map(|i| if i % 2 == 0 { 1e-3 } else { -1e-3 }).collect();
                Ok(Edit::new(Site::ResidPost(l), Scope::All, Operation::Add(v), a, model.decoder().device())?)
            })
            .collect::<Result<_>>()?;
        decode(&model, &edits)?;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..bench.args.runs {
            with.push(decode(&model, &edits)?);
            without.push(decode(&model, &[])?);
        }
        let line =
            Line::of_times("decode 128 with a plan on every layer", &name, "without", &with, &without, 0.98);
        bench.push(line.rate(TOKENS as f64, "tokens/s"));
    }
    Ok(())
}
