//! `methexis measure`

use methexis_concept::contrast::{neutral, resolve, Pair, Split};
use methexis_concept::direction::{separation, Direction, Method};
use methexis_concept::layout::{lay_out, Style};
use methexis_concept::measure::{measure, CarriedVectors, MeasureOptions, Vectors};
use methexis_concept::reading::{read_items, read_pairs};
use methexis_concept::transfer::{middle_blocks, split_neutral};
use methexis_model::edit::Scope;
use methexis_model::read::{ReadItem, ReadOptions};
use methexis_model::Site;

use crate::cli::Measure;
use crate::commands::Outcome;
use crate::context::{Context, Failure, Result};
use crate::render::measurement;

pub(crate) fn run(a: &Measure, context: &Context) -> Result<Outcome> {
    let (set, other) = (resolve(&a.concept)?, resolve(&a.other)?);
    let main_dose = main_dose(&a.doses, a.main_dose)?;
    let model = context.open(&a.model)?;
    let arch = model.architecture();
    let style = Style::natural(&model);
    let load = |path: &std::path::PathBuf| -> Result<Direction> {
        let d = Direction::open(path)?;
        d.check_model(model.id())?;
        Ok(d)
    };
    let carried = a.carried.as_ref().map(&load).transpose()?;
    let permuted = a.permuted.as_ref().map(&load).transpose()?;
    let of_carried = carried.as_ref().and_then(|d| d.vectors.keys().next().copied());
    let sites: Vec<Site> = match (a.block, of_carried) {
        (Some(b), _) => vec![Site::resid_post(b, arch)?],
        (None, Some(site)) => vec![site],
        (None, None) => middle_blocks(arch.depth()).into_iter().map(Site::ResidPost).collect(),
    };
    let progress =
        |what: &str, done: usize, total: usize| context.bars.show(what, done as u64, total as u64, false);
    let options =
        |report| ReadOptions { cancel: context.cancel.clone(), progress: report, ..ReadOptions::default() };
    let train: Vec<&Pair> = set.train().collect();
    let total = train.len();
    let report = |done: usize| progress("reading the concept", done / 2, total);
    let rows = read_pairs(&model, &train, style, &sites, &options(Some(&report)))?;
    let mut best = (0, f64::NEG_INFINITY);
    for (i, (p, n)) in rows.positive.iter().zip(&rows.negative).enumerate() {
        let s = separation(Method::MeanDifference, p, n, 5, context.seed)?;
        if s.effect > best.1 {
            best = (i, s.effect);
        }
    }
    let missing = || Failure::usage("no site was read");
    let site = sites.get(best.0).copied().ok_or_else(missing)?;
    let (p, n) = rows.positive.get(best.0).zip(rows.negative.get(best.0)).ok_or_else(missing)?;
    let own = Method::MeanDifference.fit(p, n, context.seed)?;
    let other_train: Vec<&Pair> = other.train().take(60).collect();
    let control = read_pairs(&model, &other_train, style, &[site], &options(None))?;
    let (p, n) = control.positive.first().zip(control.negative.first()).ok_or_else(missing)?;
    let other_vector = Method::MeanDifference.fit(p, n, context.seed)?;
    let test: Vec<&Pair> = set.split(Split::Test).take(a.items).collect();
    let held_out = read_pairs(&model, &test, style, &[site], &options(None))?;
    let texts = neutral()?;
    let (fit_texts, drift) = split_neutral(&texts, 100);
    let items = fit_texts
        .iter()
        .map(|t| {
            let laid = lay_out(&model, style, None, "", t)?;
            let last = laid.tokens.len() - 1;
            Ok(ReadItem { tokens: laid.tokens, rows: vec![last] })
        })
        .collect::<methexis_concept::Result<Vec<_>>>()?;
    let neutral_rows =
        read_items(&model, &items, &[site], &options(None))?.into_iter().next().ok_or_else(missing)?;
    let std: Vec<f32> = neutral_rows.std().iter().map(|x| *x as f32).collect();
    let carried = match (carried, permuted) {
        (Some(c), Some(p)) => {
            Some(CarriedVectors { carried: c.at(site)?.to_vec(), permuted: p.at(site)?.to_vec() })
        }
        _ => None,
    };
    let vectors = Vectors { own, carried, other: other_vector, other_name: other.name.clone() };
    let result = measure(
        &model,
        &set,
        &vectors,
        &held_out,
        &std,
        &MeasureOptions {
            site,
            typical_norm: neutral_rows.median_norm(),
            doses: a.doses.clone(),
            main_dose,
            scope: if a.response_only { Scope::Response } else { Scope::All },
            style,
            items: a.items,
            letters: a.letters,
            neutral: drift,
            seed: context.seed,
            batch_tokens: 512,
            cancel: context.cancel.clone(),
            progress: Some(&progress),
        },
    )?;
    if let Some(path) = &a.output {
        super::demo::save_json(path, &result)?;
    }
    Outcome::new(&result, measurement(&result))
}

/// The dose at which conditions are compared.
pub(crate) fn main_dose(doses: &[f64], wanted: Option<f64>) -> Result<f64> {
    let middle = doses.get(doses.len() / 2).copied();
    let dose = wanted.or(middle).ok_or_else(|| Failure::usage("--doses: give at least one"))?;
    if !doses.contains(&dose) {
        return Err(Failure::usage(format!("--main-dose {dose} is not among --doses {doses:?}")));
    }
    if doses.windows(2).any(|w| matches!(w, [a, b] if a >= b))
        || doses.iter().any(|d| !d.is_finite() || *d <= 0.0)
    {
        return Err(Failure::usage("--doses must be positive numbers in ascending order"));
    }
    Ok(dose)
}
