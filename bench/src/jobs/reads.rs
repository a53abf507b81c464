//! Reads against repeng and transformers.

use methexis_concept::contrast::{builtin, neutral, ContrastSet, Pair};
use methexis_model::chat::Message;
use methexis_model::checkpoint::Precision;
use methexis_model::read::{read_rows, ReadItem, ReadOptions, SiteRows};
use methexis_model::{Model, Site};
use serde_json::{json, Value};

use super::{seconds, Bench};
use crate::peer::file_of;
use crate::report::Line;
use crate::Result;

/// Batch sizes that peers are tried at.
const BATCHES: [usize; 4] = [1, 8, 32, 64];

/// Values of a row that both sides show, to see that they read the same.
const SHOWN: usize = 8;

fn set(name: &str) -> Result<ContrastSet> {
    Ok(builtin(name)?.ok_or("a shipped set is missing")?)
}

fn all_pairs(set: &ContrastSet) -> impl Iterator<Item = &Pair> {
    set.pairs.iter()
}

/// repeng's way of making data: every truncation of every statement, behind two instructions.
fn truncated_texts(model: &Model) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for pair in all_pairs(&set("happiness")?) {
        let statement = pair.positive.trim();
        let ids = model.encode(statement)?.ids;
        for n in 1..ids.len() {
            let cut = model.tokenizer().decode(ids.get(..n).unwrap_or_default(), true)?;
            for persona in ["happy", "sad"] {
                out.push(format!("Pretend you're an extremely {persona} person. {}", cut.trim_start()));
            }
            if out.len() >= 2000 {
                return Ok(out);
            }
        }
    }
    Ok(out)
}

/// Pairs of one question and two answers, in the model's chat format.
fn chat_texts(model: &Model) -> Result<Vec<String>> {
    let template = model.template().ok_or("the model has no chat format")?;
    let mut out = Vec::new();
    for name in ["happiness", "fear", "anger", "fairness"] {
        for pair in set(name)?.pairs.iter().take(100) {
            for answer in [&pair.positive, &pair.negative] {
                let messages =
                    [Message::new("user", pair.prompt.trim()), Message::new("assistant", answer.trim())];
                out.push(template.render(&messages, false, model.tokenizer())?);
            }
        }
    }
    Ok(out)
}

fn read_last(model: &Model, texts: &[String], sites: &[Site]) -> Result<Vec<SiteRows>> {
    let mut items = Vec::with_capacity(texts.len());
    for ids in model.encode_all(texts)? {
        items.push(ReadItem { rows: vec![ids.len() - 1], tokens: ids });
    }
    Ok(read_rows(model.decoder(), &items, sites, &mut [], &ReadOptions::default())?)
}

fn middle(model: &Model) -> Vec<usize> {
    let depth = model.architecture().depth();
    (depth / 4..depth * 3 / 4).collect()
}

/// How far the last text's rows differ, relative to their size.
fn difference(ours: &[SiteRows], theirs: &Value) -> f64 {
    let theirs: Vec<Vec<f64>> = serde_json::from_value(theirs.clone()).unwrap_or_default();
    let mut worst: f64 = 0.0;
    for (site, theirs) in ours.iter().zip(&theirs) {
        let row = site.iter().last().unwrap_or_default();
        let size = theirs.iter().map(|x| x.abs()).fold(1e-9, f64::max);
        for (a, b) in row.iter().zip(theirs) {
            worst = worst.max((f64::from(*a) - b).abs() / size);
        }
    }
    if theirs.len() == ours.len() {
        worst
    } else {
        f64::NAN
    }
}

fn against_repeng(
    bench: &mut Bench<'_>,
    job: &str,
    bar: f64,
    texts_of: fn(&Model) -> Result<Vec<String>>,
) -> Result<()> {
    for name in bench.args.models.clone() {
        let model = bench.open(&name, Precision::default())?;
        let texts = texts_of(&model)?;
        let layers = middle(&model);
        let sites: Vec<Site> = layers.iter().map(|l| Site::ResidPost(*l)).collect();
        let rows = read_last(&model, &texts, &sites)?;
        let mut ours = Vec::new();
        let (mut theirs, mut note) = (Vec::new(), String::new());
        if let Some(mut peer) = bench.peer.take() {
            let path = file_of(&name)?;
            peer.ask(json!({"do": "load", "model": path, "kind": "causal"}))?;
            let request = |batch: usize, some: &[String]| json!({"do": "repeng", "model": path, "texts": some, "layers": layers, "batch": batch, "values": SHOWN});
            // The best batch size on a part of the texts; all of them would take long at the bad ones.
            let part: Vec<String> = texts.iter().step_by(8).cloned().collect();
            let mut best = (f64::INFINITY, 1);
            for batch in BATCHES {
                let t = peer.seconds(request(batch, &part))?;
                if t < best.0 {
                    best = (t, batch);
                }
            }
            for _ in 0..bench.args.runs {
                ours.push(seconds(|| read_last(&model, &texts, &sites))?);
                let answer = peer.ask(request(best.1, &texts))?;
                theirs.push(answer.get("seconds").and_then(Value::as_f64).unwrap_or(f64::NAN));
                note = format!(
                    "{} texts, {} layers, its batch {}; rows differ by {:.0e}",
                    texts.len(),
                    sites.len(),
                    best.1,
                    difference(&rows, answer.get("values").unwrap_or(&Value::Null))
                );
            }
            bench.peer = Some(peer);
        } else {
            for _ in 0..bench.args.runs {
                ours.push(seconds(|| read_last(&model, &texts, &sites))?);
            }
            theirs = vec![f64::NAN; ours.len()];
            note = format!("{} texts", texts.len());
        }
        bench.push(Line::of_times(job, &name, "repeng", &ours, &theirs, bar).note(note));
    }
    Ok(())
}

pub(crate) fn truncated(bench: &mut Bench<'_>) -> Result<()> {
    against_repeng(bench, "truncated statements, last token", 15.0, truncated_texts)
}

pub(crate) fn pairs(bench: &mut Bench<'_>) -> Result<()> {
    against_repeng(bench, "chat pairs, last token", 4.0, chat_texts)
}

pub(crate) fn texts(bench: &mut Bench<'_>) -> Result<()> {
    for name in bench.args.models.clone() {
        let model = bench.open(&name, Precision::default())?;
        let mut ids: Vec<Vec<u32>> =
            neutral()?.iter().take(200).map(|t| Ok(model.encode(&t.text)?.ids)).collect::<Result<_>>()?;
        ids.sort_by_key(Vec::len);
        let tokens: usize = ids.iter().map(Vec::len).sum();
        let items: Vec<ReadItem> =
            ids.iter().map(|t| ReadItem { rows: vec![t.len() - 1], tokens: t.clone() }).collect();
        let sites: Vec<Site> = (0..model.architecture().depth()).map(Site::ResidPost).collect();
        let read = || Ok(read_rows(model.decoder(), &items, &sites, &mut [], &ReadOptions::default())?);
        let rows = read()?;
        let (mut ours, mut theirs, mut note) = (Vec::new(), Vec::new(), String::new());
        let path = file_of(&name)?;
        let mut best = (f64::INFINITY, 1);
        if let Some(peer) = &mut bench.peer {
            peer.ask(json!({"do": "load", "model": path, "kind": "base"}))?;
            for batch in BATCHES {
                let t = peer.seconds(json!({"do": "hidden", "model": path, "ids": ids, "batch": batch}))?;
                if t < best.0 {
                    best = (t, batch);
                }
            }
        }
        for _ in 0..bench.args.runs {
            ours.push(seconds(read)?);
            let Some(peer) = &mut bench.peer else {
                theirs.push(f64::NAN);
                continue;
            };
            let answer = peer
                .ask(json!({"do": "hidden", "model": path, "ids": ids, "batch": best.1, "values": SHOWN}))?;
            theirs.push(answer.get("seconds").and_then(Value::as_f64).unwrap_or(f64::NAN));
            // Its last state is after the final norm; all others are compared.
            let n = rows.len() - 1;
            let mut values = answer.get("values").cloned().unwrap_or_default();
            if let Some(list) = values.as_array_mut() {
                let extra = list.len().saturating_sub(rows.len());
                list.drain(..extra);
                list.truncate(n);
            }
            note = format!(
                "{} texts sorted by length, {tokens} tokens, its batch {}; rows differ by {:.0e}",
                ids.len(),
                best.1,
                difference(rows.get(..n).unwrap_or_default(), &values)
            );
        }
        let line = Line::of_times("unrelated texts, all layers", &name, "transformers", &ours, &theirs, 1.4);
        bench.push(line.rate(tokens as f64, "tokens/s").note(note));
    }
    Ok(())
}
