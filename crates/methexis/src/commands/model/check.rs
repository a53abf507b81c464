//! `methexis model check`: does what was understood hold together?

use methexis_model::chat::Message;
use methexis_model::forward::{Batch, Cache, LogitRows, Pass, Sequence};
use methexis_model::tokenizer::{AddSpecial, Specials};
use methexis_model::Model;
use serde::Serialize;

use crate::commands::Outcome;
use crate::context::{Context, Result};

#[derive(Serialize)]
struct Check {
    name: &'static str,
    good: bool,
    detail: String,
}

const SAMPLE: &str = "The quick brown fox, 12 jumps; “über” 日本 🦊\n\tdone.";

pub(crate) fn run(name: &str, context: &Context) -> Result<Outcome> {
    let model = context.open(name)?;
    let mut checks = vec![round_trip(&model)?, begin_token(&model)?, template(&model)?];
    checks.extend(passes(&model)?);
    let good = checks.iter().all(|c| c.good);
    let text: String = checks
        .iter()
        .map(|c| format!("{} {:24} {}\n", if c.good { "ok  " } else { "FAIL" }, c.name, c.detail))
        .collect();
    let mut outcome = Outcome::new(&checks, text)?;
    outcome.good = good;
    Ok(outcome)
}

fn round_trip(model: &Model) -> Result<Check> {
    let t = model.tokenizer();
    let ids = t.encode(SAMPLE, AddSpecial::No, Specials::Parsed)?.ids;
    let back = t.decode(&ids, false)?;
    let good = back.trim_start() == SAMPLE;
    Ok(Check { name: "tokenizer round trip", good, detail: format!("{} tokens", ids.len()) })
}

fn begin_token(model: &Model) -> Result<Check> {
    let t = model.tokenizer();
    let ids = model.encode("hello")?.ids;
    let n = ids.iter().filter(|i| Some(**i) == t.bos()).count();
    let want = usize::from(t.adds_bos());
    Ok(Check {
        name: "one begin token",
        good: n == want,
        detail: format!("{n}, as the tokenizer says {want}"),
    })
}

fn template(model: &Model) -> Result<Check> {
    if model.template().is_none() {
        return Ok(Check { name: "chat template", good: true, detail: "none: a base model".into() });
    }
    let said = "Name a colour.";
    let laid = model.encode_chat(&[Message::new("user", said)], true)?;
    let t = model.tokenizer();
    let bos = laid.encoding.ids.iter().filter(|i| Some(**i) == t.bos()).count();
    let found =
        laid.contents.first().cloned().flatten().and_then(|r| laid.text.get(r)).is_some_and(|x| x == said);
    // Some models use their begin token as a turn's begin, so more than one is not always wrong; two in a row are.
    let doubled = laid.encoding.ids.windows(2).any(|w| w.iter().all(|i| Some(*i) == t.bos()));
    Ok(Check {
        name: "chat template",
        good: found && !doubled,
        detail: format!("{} tokens, {bos} of them the begin token", laid.encoding.len()),
    })
}

/// Finite activations, and agreement of one pass over all tokens with step by step.
fn passes(model: &Model) -> Result<Vec<Check>> {
    let d = model.decoder();
    let ids = model.encode("One two three four five six seven.")?.ids;
    let last = |batch: &Batch, caches: Option<&mut [Cache]>| -> Result<Vec<f32>> {
        let pass = Pass { caches, logits: LogitRows::Last, ..Pass::default() };
        let logits = d.run(batch, pass)?;
        let row = logits.map(|l| l.flatten_all().and_then(|l| l.to_vec1::<f32>()));
        Ok(row.transpose().map_err(methexis_model::Error::from)?.unwrap_or_default())
    };
    let whole = last(&Batch::new(vec![Sequence::new(ids.clone())])?, None)?;
    let mut caches = [Cache::new()];
    let mut stepped = Vec::new();
    for (i, id) in ids.iter().enumerate() {
        let s = Sequence { tokens: vec![*id], past: i, ..Sequence::default() };
        stepped = last(&Batch::new(vec![s])?, Some(&mut caches))?;
    }
    let norm = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let apart: Vec<f32> = whole.iter().zip(&stepped).map(|(a, b)| a - b).collect();
    let relative = norm(&apart) / norm(&whole);
    let finite = whole.iter().all(|x| x.is_finite());
    let flat = whole.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |m, x| (m.0.min(*x), m.1.max(*x)));
    let bound = if d.precision() == methexis_model::checkpoint::Precision::F32 { 1e-4 } else { 5e-2 };
    Ok(vec![
        Check { name: "finite logits", good: finite, detail: format!("{:.2} to {:.2}", flat.0, flat.1) },
        Check {
            name: "one pass = step by step",
            good: relative < bound,
            detail: format!("relative difference {relative:.1e}, bound {bound:.0e}"),
        },
    ])
}
