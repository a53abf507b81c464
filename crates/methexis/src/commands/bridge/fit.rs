//! `methexis bridge fit`

use methexis_concept::bridge::{fit, permute_texts, Bridge, FitOptions, Kind, PairedRows};
use methexis_concept::contrast::{neutral, resolve, NeutralText};
use methexis_concept::layout::Style;
use methexis_concept::reading::{pair_texts, read_items, Pairing};
use methexis_concept::rows::Rows;
use methexis_concept::transfer::{middle_blocks, split_neutral, Joined};
use methexis_model::read::{ReadItem, ReadOptions};
use methexis_model::{Model, Site};
use serde_json::json;

use super::show::describe;
use crate::cli::BridgeFit;
use crate::commands::Outcome;
use crate::context::{Context, Failure, Result};

pub(crate) fn run(a: &BridgeFit, context: &Context) -> Result<Outcome> {
    let (source, target) = (context.open(&a.source)?, context.open(&a.target)?);
    if source.id().fingerprint == target.id().fingerprint {
        return Err(Failure::usage("source and target are the same model; there is nothing to bridge"));
    }
    let (texts, origin) = match &a.text {
        None => (neutral()?, "shipped neutral texts".to_string()),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|e| methexis_model::Error::io(path, "reading", e))?;
            let lines = text.lines().map(str::trim).filter(|l| !l.is_empty()).enumerate();
            let texts = lines.map(|(i, t)| NeutralText {
                id: format!("{}", i + 1),
                kind: String::new(),
                text: t.into(),
            });
            (texts.collect(), path.display().to_string())
        }
    };
    let mut warnings = Vec::new();
    if let Some(concept) = &a.concept {
        let set = resolve(concept)?;
        let report = methexis_concept::contrast::lint(&set, &[], &texts, None);
        let n =
            report.findings.iter().filter(|f| f.rule == methexis_concept::contrast::Rule::Neutral).count();
        if n > 0 {
            warnings.push(format!(
                "{n} texts of {concept} stand in the bridge's text: what it carries of this concept proves nothing"
            ));
        }
    }
    let fit_texts: Vec<&str> = if a.text.is_some() {
        texts.iter().take(a.texts).map(|t| t.text.as_str()).collect()
    } else {
        split_neutral(&texts, a.texts).0
    };
    if fit_texts.is_empty() {
        return Err(Failure::usage(format!(
            "{origin}: no text is left to fit on; give some hundreds, one a line"
        )));
    }
    let (kind, pairing) = (
        if a.kind == "ols" { Kind::Ols } else { Kind::Ridge },
        if a.rows == "aligned" { Pairing::Aligned } else { Pairing::Last },
    );
    let half = source.architecture().depth() as isize / 2;
    let source_site = Site::resid_post(a.source_block.unwrap_or(half), source.architecture())?;
    let target_sites: Vec<Site> = match a.target_block {
        Some(b) => vec![Site::resid_post(b, target.architecture())?],
        None => middle_blocks(target.architecture().depth()).into_iter().map(Site::ResidPost).collect(),
    };
    let styles = (Style::natural(&source), Style::natural(&target));
    let items = pair_texts((&source, styles.0), (&target, styles.1), &fit_texts, pairing)?;
    let read = |model: &Model, items: &[ReadItem], sites: &[Site]| -> Result<Vec<Rows>> {
        let what = format!("reading neutral text in {}", model.id().name);
        let total = items.len() as u64;
        let report = |done: usize| context.bars.show(&what, done as u64, total, false);
        let options =
            ReadOptions { cancel: context.cancel.clone(), progress: Some(&report), ..ReadOptions::default() };
        Ok(read_items(model, items, sites, &options)?)
    };
    let x = read(&source, &items.source, &[source_site])?.into_iter().next();
    let x = x.ok_or_else(|| Failure::usage("no row was read"))?;
    let ys = read(&target, &items.target, &target_sites)?;
    let options = FitOptions { kind, seed: context.seed, ..FitOptions::default() };
    let mut best: Option<(Bridge, f64)> = None;
    let mut scan = Vec::new();
    for (i, (site, y)) in target_sites.iter().zip(ys).enumerate() {
        context.cancel.check()?;
        context.bars.show("fitting", i as u64, target_sites.len() as u64, false);
        let mut rows = PairedRows::new(x.clone(), y, items.texts.clone())?;
        if a.permuted {
            rows = permute_texts(&rows, context.seed);
        }
        let fitted = fit(&rows, &options)?;
        let joined = Joined {
            source: (source.id(), source_site, styles.0),
            target: (target.id(), *site, styles.1),
            kind,
            pairing,
            permuted: a.permuted,
            texts: &fit_texts,
            text_source: &origin,
        };
        let bridge = joined.bridge(&fitted, &rows);
        scan.push(json!({"target_site": site, "held_out_r2": fitted.held_out_r2}));
        if best.as_ref().is_none_or(|b| fitted.held_out_r2 > b.1) {
            best = Some((bridge, fitted.held_out_r2));
        }
    }
    let (bridge, _) = best.ok_or_else(|| Failure::usage("no block to bridge to"))?;
    bridge.save(&a.output)?;
    let data = json!({"facts": bridge.facts, "scan": scan, "output": a.output, "warnings": warnings});
    let warned: String = warnings.iter().map(|w| format!("  warning      {w}\n")).collect();
    Outcome::new(&data, format!("{}{warned}saved as {}\n", describe(&bridge.facts), a.output.display()))
}
