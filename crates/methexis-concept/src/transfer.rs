//! The whole way: read a concept in one model, carry it over a bridge, steer another model with it, measure.

use std::collections::BTreeMap;

use methexis_model::edit::Scope;
use methexis_model::read::ReadOptions;
use methexis_model::{Cancel, Model, ModelId, Site};

use crate::bridge::{fit, permute_texts, Bridge, Endpoint, Facts, Fit, FitOptions, Kind, PairedRows};
use crate::contrast::{text_hash, ContrastSet, NeutralText, Pair, Split};
use crate::direction::{separation, Direction, Method, Provenance, Separation};
use crate::layout::Style;
use crate::measure::{measure, CarriedVectors, MeasureOptions, Measurement, Report, Vectors};
use crate::reading::{pair_texts, read_items, read_pairs, PairRows, Pairing};
use crate::rows::Rows;
use crate::{Error, Result};

/// How the way is gone.
#[derive(Clone)]
pub struct TransferOptions<'a> {
    /// How directions are made.
    pub method: Method,
    /// Which bridge.
    pub kind: Kind,
    /// How rows are paired.
    pub pairing: Pairing,
    /// Neutral texts for the bridge; the same number again at most is kept apart for drift.
    pub texts: usize,
    /// Training pairs for directions.
    pub train: usize,
    /// Held-out pairs for scores.
    pub test: usize,
    /// Relative doses.
    pub doses: Vec<f64>,
    /// The dose at which conditions are compared.
    pub main_dose: f64,
    /// On which positions the vectors act.
    pub scope: Scope,
    /// Score letter questions, too.
    pub letters: bool,
    /// Blocks of the target at which the carried direction may act; empty: chosen by the bridge's held-out R².
    pub target_blocks: Vec<usize>,
    /// Blocks of the source at which the direction may be read; empty: the middle third of the depth.
    pub source_blocks: Vec<usize>,
    /// Most tokens in one batch.
    pub batch_tokens: usize,
    /// Seed of everything drawn.
    pub seed: u64,
    /// Asked between passes.
    pub cancel: Cancel,
    /// Called with (what, done, total).
    pub progress: Option<Report<'a>>,
}

impl Default for TransferOptions<'_> {
    fn default() -> Self {
        Self {
            method: Method::MeanDifference,
            kind: Kind::Ridge,
            pairing: Pairing::Last,
            texts: 400,
            train: 100,
            test: 40,
            doses: vec![0.1, 0.2, 0.4],
            main_dose: 0.2,
            scope: Scope::All,
            letters: false,
            target_blocks: Vec::new(),
            source_blocks: Vec::new(),
            batch_tokens: 512,
            seed: 0,
            cancel: Cancel::default(),
            progress: None,
        }
    }
}

/// Separation of a concept at one block of one model (training pairs, cross-validated).
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct BlockSeparation {
    /// The block.
    pub block: usize,
    /// How well it separates the halves.
    #[serde(flatten)]
    pub separation: Separation,
}

/// What came out.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Transfer {
    /// The measurement in the target, with all controls.
    pub measurement: Measurement,
    /// What the bridge says about itself.
    pub bridge: Facts,
    /// Separation by block in the source.
    pub source_blocks: Vec<BlockSeparation>,
    /// Separation by block in the target.
    pub target_blocks: Vec<BlockSeparation>,
    /// Held-out R² of the bridge for (source block, target block).
    pub pairing: Vec<(usize, usize, f64)>,
    /// The chosen blocks.
    pub chosen: (usize, usize),
}

/// The pieces that later steps use.
pub struct Parts {
    /// What came out.
    pub transfer: Transfer,
    /// The direction in the source.
    pub source: Direction,
    /// The bridge.
    pub bridge: Bridge,
    /// The carried direction.
    pub carried: Direction,
    /// The target's own direction.
    pub own: Direction,
    /// The compared vectors.
    pub vectors: Vectors,
}

/// Candidate blocks: the middle of the depth, at most five.
pub fn middle_blocks(depth: usize) -> Vec<usize> {
    let mut out: Vec<usize> = [0.35, 0.45, 0.55, 0.65].iter().map(|f| (depth as f64 * f) as usize).collect();
    out.retain(|b| *b < depth);
    out.dedup();
    out
}

/// Splits the neutral texts into those that bridges are fitted on and those that drift is measured on: every eighth text
/// is kept apart.
pub fn split_neutral(texts: &[NeutralText], fit: usize) -> (Vec<&str>, Vec<String>) {
    let (mut rows, mut drift) = (Vec::new(), Vec::new());
    for (i, t) in texts.iter().enumerate() {
        if i % 8 == 7 {
            if drift.len() < 24 {
                drift.push(t.text.clone());
            }
        } else if rows.len() < fit {
            rows.push(t.text.as_str());
        }
    }
    (rows, drift)
}

struct Side<'m> {
    model: &'m Model,
    style: Style,
    sites: Vec<Site>,
}

impl<'m> Side<'m> {
    fn new(model: &'m Model, blocks: &[usize]) -> Result<Self> {
        let a = model.architecture();
        let blocks = if blocks.is_empty() { middle_blocks(a.depth()) } else { blocks.to_vec() };
        let sites: Vec<Site> = blocks.into_iter().map(Site::ResidPost).collect();
        for s in &sites {
            s.check(a)?;
        }
        Ok(Self { model, style: Style::natural(model), sites })
    }
}

/// Goes the whole way for one concept and one pair of models.
///
/// `other` is the concept of the control; `neutral` the texts for the bridge, which must not touch either concept.
///
/// # Errors
/// Those of reading, fitting and measuring; [`Error::Input`] where the concept cannot be read in the source at all.
pub fn transfer(
    source: &Model,
    target: &Model,
    set: &ContrastSet,
    other: &ContrastSet,
    neutral: &[NeutralText],
    options: &TransferOptions<'_>,
) -> Result<Parts> {
    if source.id().fingerprint == target.id().fingerprint {
        return Err(Error::input(
            "transfer",
            "source and target are the same model; there is nothing to carry",
        ));
    }
    let (from, to) = (Side::new(source, &options.source_blocks)?, Side::new(target, &options.target_blocks)?);
    let say = |what: String, done: usize, total: usize| {
        if let Some(p) = options.progress {
            p(&what, done, total);
        }
    };

    // The concept in both models, and the other concept in the target.
    let train: Vec<&Pair> = set.require(Split::Train)?.into_iter().take(options.train).collect();
    let test: Vec<&Pair> = set.require(Split::Test)?.into_iter().take(options.test).collect();
    let read_set = |side: &Side<'_>, pairs: &[&Pair], what: &str| -> Result<PairRows> {
        let what = format!("{what} in {}", side.model.id().name);
        let total = pairs.len();
        let report = |done: usize| say(what.clone(), done / 2, total);
        report(0);
        let reading = ReadOptions {
            batch_tokens: options.batch_tokens,
            cancel: options.cancel.clone(),
            progress: Some(&report),
        };
        read_pairs(side.model, pairs, side.style, &side.sites, &reading)
    };
    let rows_source = read_set(&from, &train, &format!("reading {}", set.name))?;
    let rows_target = read_set(&to, &train, &format!("reading {}", set.name))?;
    let held_out = read_set(&to, &test, &format!("reading held-out {}", set.name))?;
    let other_train: Vec<&Pair> = other.require(Split::Train)?.into_iter().take(options.train / 2).collect();
    let rows_other = read_set(&to, &other_train, &format!("reading {} (control)", other.name))?;
    let by_block = |rows: &PairRows| -> Result<Vec<BlockSeparation>> {
        rows.sites
            .iter()
            .zip(rows.positive.iter().zip(&rows.negative))
            .map(|(site, (p, n))| {
                let separation = separation(options.method, p, n, 5, options.seed)?;
                Ok(BlockSeparation { block: site.block().unwrap_or(0), separation })
            })
            .collect()
    };
    let (source_blocks, target_blocks) = (by_block(&rows_source)?, by_block(&rows_target)?);
    // The source's block is chosen on its own training pairs; the target's by neutral text alone, since in earnest the
    // target's pairs are not there.
    let s = best(source_blocks.iter().map(|b| b.separation.effect));

    let (fit_texts, drift_texts) = split_neutral(neutral, options.texts);
    let items = pair_texts((source, from.style), (target, to.style), &fit_texts, options.pairing)?;
    let read_neutral = |side: &Side<'_>, items| -> Result<Vec<Rows>> {
        let what = format!("reading neutral text in {}", side.model.id().name);
        let report = |done: usize| say(what.clone(), done, fit_texts.len());
        report(0);
        let reading = ReadOptions {
            batch_tokens: options.batch_tokens,
            cancel: options.cancel.clone(),
            progress: Some(&report),
        };
        read_items(side.model, items, &side.sites, &reading)
    };
    let neutral_source = read_neutral(&from, &items.source)?;
    let neutral_target = read_neutral(&to, &items.target)?;

    let fitting = FitOptions { kind: options.kind, seed: options.seed, ..FitOptions::default() };
    let scan = FitOptions { lambdas: vec![1.0], folds: 2, ..fitting.clone() };
    let mut pairing = Vec::new();
    let total = neutral_source.len() * neutral_target.len();
    for (i, x) in neutral_source.iter().enumerate() {
        for (j, y) in neutral_target.iter().enumerate() {
            options.cancel.check()?;
            say("pairing blocks".into(), pairing.len(), total);
            let f = fit(&PairedRows::new(x.clone(), y.clone(), items.texts.clone())?, &scan)?;
            pairing.push((block(&from.sites, i), block(&to.sites, j), f.held_out_r2));
        }
    }
    let at_source = block(&from.sites, s);
    let t = best(pairing.iter().filter(|p| p.0 == at_source).map(|p| p.2));
    say("fitting the bridge".into(), 0, 2);
    let get =
        |rows: &[Rows], i: usize| rows.get(i).cloned().ok_or_else(|| Error::input("block", "has no rows"));
    let rows = PairedRows::new(get(&neutral_source, s)?, get(&neutral_target, t)?, items.texts.clone())?;
    let fitted = fit(&rows, &fitting)?;
    say("fitting the permuted control".into(), 1, 2);
    let permuted_rows = permute_texts(&rows, options.seed);
    let permuted_fit = fit(&permuted_rows, &FitOptions { lambdas: vec![fitted.lambda], ..fitting })?;

    let text_source = "shipped neutral texts";
    let (Some(site_s), Some(site_t)) = (from.sites.get(s), to.sites.get(t)) else {
        return Err(Error::input("block", "is not there"));
    };
    let joined = Joined {
        source: (source.id(), *site_s, from.style),
        target: (target.id(), *site_t, to.style),
        kind: options.kind,
        pairing: options.pairing,
        permuted: false,
        texts: &fit_texts,
        text_source,
    };
    let bridge = joined.bridge(&fitted, &rows);
    let permuted = Joined { permuted: true, ..joined }.bridge(&permuted_fit, &permuted_rows);
    let facts = bridge.facts.clone();

    let direction =
        |side: &Side<'_>, i: usize, rows: &PairRows, set: &ContrastSet, typical: f64| -> Result<Direction> {
            let site = side.sites.get(i).copied().unwrap_or(Site::Embed);
            let (Some(p), Some(n)) = (rows.positive.get(i), rows.negative.get(i)) else {
                return Err(Error::input("block", "has no rows"));
            };
            let v = options.method.fit(p, n, options.seed)?;
            Ok(Direction {
                concept: set.name.clone(),
                vectors: BTreeMap::from([(site, v)]),
                provenance: Provenance {
                    model: side.model.id().clone(),
                    position: "last token of the completion".into(),
                    style: side.style.name().into(),
                    method: options.method.name().into(),
                    set: set.name.clone(),
                    set_hash: set.hash(Split::Train),
                    pairs: p.n(),
                    typical_norm: BTreeMap::from([(site.to_string(), typical)]),
                    carried_from: None,
                    bridge: None,
                    version: env!("CARGO_PKG_VERSION").into(),
                },
            })
        };
    let read_direction = direction(&from, s, &rows_source, set, facts.source.typical_norm)?;
    let own = direction(&to, t, &rows_target, set, facts.target.typical_norm)?;
    let other_direction = direction(&to, t, &rows_other, other, facts.target.typical_norm)?;
    let carried = bridge.carry_direction(&read_direction)?;
    let permuted = permuted.carry_direction(&read_direction)?;
    let site = facts.target.site;
    let vectors = Vectors {
        own: own.at(site)?.to_vec(),
        carried: Some(CarriedVectors {
            carried: carried.at(site)?.to_vec(),
            permuted: permuted.at(site)?.to_vec(),
        }),
        other: other_direction.at(site)?.to_vec(),
        other_name: other.name.clone(),
    };
    let measuring = MeasureOptions {
        site,
        typical_norm: facts.target.typical_norm,
        doses: options.doses.clone(),
        main_dose: options.main_dose,
        scope: options.scope.clone(),
        style: to.style,
        items: options.test,
        letters: options.letters,
        neutral: drift_texts,
        seed: options.seed,
        batch_tokens: options.batch_tokens,
        cancel: options.cancel.clone(),
        progress: options.progress,
    };
    let measurement = measure(target, set, &vectors, &held_out, &bridge.std_target, &measuring)?;
    let chosen = (at_source, block(&to.sites, t));
    let transfer = Transfer { measurement, bridge: facts, source_blocks, target_blocks, pairing, chosen };
    Ok(Parts { transfer, source: read_direction, bridge, carried, own, vectors })
}

fn block(sites: &[Site], i: usize) -> usize {
    sites.get(i).and_then(|s| s.block()).unwrap_or(0)
}

fn best(values: impl Iterator<Item = f64>) -> usize {
    values.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(i, _)| i)
}

/// What a bridge joins, for its provenance.
pub struct Joined<'a> {
    /// Source model, site and layout.
    pub source: (&'a ModelId, Site, Style),
    /// Target model, site and layout.
    pub target: (&'a ModelId, Site, Style),
    /// Which map.
    pub kind: Kind,
    /// How rows were paired.
    pub pairing: Pairing,
    /// Whether the pairing was broken on purpose.
    pub permuted: bool,
    /// The texts.
    pub texts: &'a [&'a str],
    /// Where they come from.
    pub text_source: &'a str,
}

impl Joined<'_> {
    /// The bridge with everything it says about itself.
    pub fn bridge(&self, fit: &Fit, rows: &PairedRows) -> Bridge {
        let f32s = |v: &[f64]| v.iter().map(|x| *x as f32).collect::<Vec<f32>>();
        let map = (0..fit.map.nrows()).flat_map(|i| (0..fit.map.ncols()).map(move |j| (i, j)));
        let end = |side: &(&ModelId, Site, Style), rows: &Rows| Endpoint {
            model: side.0.clone(),
            site: side.1,
            typical_norm: rows.median_norm(),
        };
        Bridge {
            map: map.map(|(i, j)| *fit.map.get(i, j) as f32).collect(),
            mean_source: f32s(&fit.means.0),
            mean_target: f32s(&fit.means.1),
            std_source: f32s(&fit.stds.0),
            std_target: f32s(&fit.stds.1),
            facts: Facts {
                source: end(&self.source, rows.source()),
                target: end(&self.target, rows.target()),
                kind: self.kind,
                lambda: fit.lambda,
                rows: self.pairing.name().into(),
                style: format!("{} to {}", self.source.2.name(), self.target.2.name()),
                n_rows: rows.n(),
                n_texts: rows.n_texts(),
                fit_r2: fit.fit_r2,
                held_out_r2: fit.held_out_r2,
                held_out_r2_raw: fit.held_out_r2_raw,
                interpolates: fit.interpolates,
                permuted: self.permuted,
                text_hash: text_hash(self.texts.iter().copied()),
                text_source: self.text_source.into(),
                version: env!("CARGO_PKG_VERSION").into(),
            },
        }
    }
}
