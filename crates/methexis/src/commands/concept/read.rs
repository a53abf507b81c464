//! `methexis concept read`

use std::collections::BTreeMap;

use methexis_concept::contrast::{neutral, resolve, Pair, Split};
use methexis_concept::direction::{separation, Direction, Method, Provenance};
use methexis_concept::layout::{lay_out, Style};
use methexis_concept::reading::{read_items, read_pairs};
use methexis_concept::transfer::middle_blocks;
use methexis_model::read::{ReadItem, ReadOptions};
use methexis_model::Site;
use serde_json::json;

use crate::cli::{ConceptRead, StyleArg};
use crate::commands::Outcome;
use crate::context::{Context, Failure, Result};

/// Neutral texts that tell the typical ‖h‖.
const NORM_TEXTS: usize = 60;

pub(crate) fn run(a: &ConceptRead, context: &Context) -> Result<Outcome> {
    let set = resolve(&a.concept)?;
    let method = Method::ALL.iter().find(|(n, _)| *n == a.method).map(|m| m.1);
    let method = method.ok_or_else(|| Failure::usage(format!("method {} is not known", a.method)))?;
    let model = context.open(&a.model)?;
    let arch = model.architecture();
    let style = match a.style {
        Some(StyleArg::Plain) => Style::Plain,
        Some(StyleArg::Chat) => Style::Chat,
        None => Style::natural(&model),
    };
    let chosen = !a.blocks.is_empty();
    let sites: Vec<Site> = if chosen {
        a.blocks.iter().map(|b| Site::resid_post(*b, arch)).collect::<std::result::Result<_, _>>()?
    } else {
        middle_blocks(arch.depth()).into_iter().map(Site::ResidPost).collect()
    };
    let pairs: Vec<&Pair> = set.require(Split::Train)?.into_iter().take(a.pairs).collect();
    if pairs.len() < 2 {
        return Err(Failure::usage(format!(
            "--pairs {}: a direction needs at least 2 training pairs; {} has {}",
            a.pairs,
            set.name,
            set.train().count()
        )));
    }
    let total = pairs.len() as u64;
    let report =
        |done: usize| context.bars.show(&format!("reading {}", set.name), done as u64 / 2, total, false);
    let options =
        ReadOptions { cancel: context.cancel.clone(), progress: Some(&report), ..ReadOptions::default() };
    let rows = read_pairs(&model, &pairs, style, &sites, &options)?;
    let texts = neutral()?;
    let items = texts
        .iter()
        .take(NORM_TEXTS)
        .map(|t| {
            let laid = lay_out(&model, style, None, "", &t.text)?;
            let last = laid.tokens.len() - 1;
            Ok(ReadItem { tokens: laid.tokens, rows: vec![last] })
        })
        .collect::<methexis_concept::Result<Vec<_>>>()?;
    let neutral_rows = read_items(&model, &items, &sites, &ReadOptions { progress: None, ..options })?;
    let mut table = Vec::new();
    for ((site, (p, n)), neutral) in
        sites.iter().zip(rows.positive.iter().zip(&rows.negative)).zip(&neutral_rows)
    {
        let s = separation(method, p, n, 5, context.seed)?;
        table.push((*site, s, method.fit(p, n, context.seed)?, neutral.median_norm()));
    }
    if !chosen {
        // The block is chosen on training pairs alone, by folds.
        let best = table.iter().map(|t| t.1.effect).fold(f64::NEG_INFINITY, f64::max);
        table.retain(|t| t.1.effect == best);
    }
    let direction = Direction {
        concept: set.name.clone(),
        vectors: table.iter().map(|t| (t.0, t.2.clone())).collect(),
        provenance: Provenance {
            model: model.id().clone(),
            position: "last token of the completion".into(),
            style: style.name().into(),
            method: method.name().into(),
            set: set.source.clone(),
            set_hash: set.hash(Split::Train),
            pairs: pairs.len(),
            typical_norm: table.iter().map(|t| (t.0.to_string(), t.3)).collect::<BTreeMap<_, _>>(),
            carried_from: None,
            bridge: None,
            version: env!("CARGO_PKG_VERSION").into(),
        },
    };
    direction.save_as(&a.output)?;
    let data = json!({
        "concept": direction.concept, "output": a.output, "provenance": direction.provenance,
        "sites": table.iter().map(|t| json!({"site": t.0, "auroc": t.1.auroc, "effect": t.1.effect, "typical_norm": t.3}))
            .collect::<Vec<_>>(),
    });
    let mut text = format!(
        "{} in {} ({} pairs, {}, {})\n",
        set.name,
        model.id().name,
        pairs.len(),
        method.name(),
        style.name()
    );
    for t in &table {
        text.push_str(&format!(
            "  {:14} separates held-out folds with AUROC {:.3}, effect size {:.2}\n",
            t.0.to_string(),
            t.1.auroc,
            t.1.effect
        ));
    }
    text.push_str(&format!("saved as {}\n", a.output.display()));
    Outcome::new(&data, text)
}
