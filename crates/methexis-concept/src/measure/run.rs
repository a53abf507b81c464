//! Measuring whether steering with a direction works, with all the controls.

use methexis_model::edit::{Edit, Scope};
use methexis_model::log_probs::LogProbs;
use methexis_model::score::{score, score_with, ScoreItem, ScoreOptions};
use methexis_model::{Cancel, Model, ModelId, Site};

use super::conditions::{Condition, Vectors};
use super::letters::{letters, LetterScores};
use super::stats::{self, auroc, mean, slope, Interval};
use crate::contrast::{ContrastSet, Pair, Split};
use crate::layout::{lay_out, Style};
use crate::plan::{Dose, Plan};
use crate::reading::PairRows;
use crate::{Error, Result};

/// Hears how long work goes on: what, done, total.
pub type Report<'a> = &'a dyn Fn(&str, usize, usize);

/// What to measure and how.
#[derive(Clone)]
pub struct MeasureOptions<'a> {
    /// Where the vectors act.
    pub site: Site,
    /// Typical ‖h‖ there; doses are relative to it.
    pub typical_norm: f64,
    /// Doses above 0, ascending. Own and carried directions are measured at each.
    pub doses: Vec<f64>,
    /// The dose at which everything is compared; one of `doses`.
    pub main_dose: f64,
    /// On which positions the vectors act.
    pub scope: Scope,
    /// How texts are laid out.
    pub style: Style,
    /// Most held-out pairs to score.
    pub items: usize,
    /// Whether letter questions are scored, too.
    pub letters: bool,
    /// Neutral texts for perplexity and drift; none of them may have been used to fit the bridge.
    pub neutral: Vec<String>,
    /// Seed of the random direction and of the intervals.
    pub seed: u64,
    /// Most tokens in one batch.
    pub batch_tokens: usize,
    /// Asked between passes.
    pub cancel: Cancel,
    /// Called with (what, done, total).
    pub progress: Option<Report<'a>>,
}

/// One condition at one dose.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Which version of the model.
    pub condition: Condition,
    /// Relative dose; 0 for no steering and for the prompt.
    pub dose: f64,
    /// Mean over held-out pairs of log p(positive) − log p(negative), in nats.
    pub propensity: Interval,
    /// Its gain over no steering, paired by item.
    pub gain: Option<Interval>,
    /// Share of pairs whose positive half is the likelier one.
    pub preferred: f64,
    /// Perplexity of the neutral texts under this version.
    pub perplexity: f64,
    /// Mean KL divergence of the next-token distribution on neutral text from the unsteered model's, in nats a token.
    pub kl: f64,
    /// Letter questions: share of the legal mass on the matching letter, and the legal mass itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letters: Option<LetterScores>,
    /// Propensity of every item, for further statistics.
    pub items: Vec<f64>,
}

/// How one kind of direction responds to the dose.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Steerability {
    /// Which direction.
    pub condition: Condition,
    /// Mean slope of an item's propensity over the dose, nats a unit of dose (Tan et al., NeurIPS 2024).
    pub slope: Interval,
    /// Share of items that move the wrong way.
    pub negative: f64,
}

/// How alike two directions are and how well they read the concept, without steering.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Likeness {
    /// Which direction.
    pub condition: Condition,
    /// Cosine to the target's own after whitening by the spread of neutral states.
    pub whitened_cosine: f64,
    /// Raw cosine; a few massive dimensions dominate it, see the permuted bridge's.
    pub cosine: f64,
    /// AUROC of held-out halves projected on the direction.
    pub auroc: Option<Interval>,
}

/// A finished measurement.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Measurement {
    /// The steered model.
    pub model: ModelId,
    /// The concept.
    pub concept: String,
    /// Where it was steered.
    pub site: Site,
    /// Typical ‖h‖ there.
    pub typical_norm: f64,
    /// On which positions.
    pub scope: Scope,
    /// How texts were laid out.
    pub style: Style,
    /// The dose at which conditions are compared.
    pub main_dose: f64,
    /// Number of held-out pairs.
    pub pairs: usize,
    /// Name of the other concept.
    pub other: String,
    /// All conditions; the first is no steering.
    pub rows: Vec<Row>,
    /// (carried − no) / (own − no) by dose; `None` where the own direction has no distinguishable effect.
    pub retention: Vec<(f64, Option<Interval>)>,
    /// Gain of the carried direction over each control at the main dose, paired by item, in nats.
    #[serde(default)]
    pub over_controls: Vec<(Condition, Option<Interval>)>,
    /// The same ratio for the controls at the main dose.
    pub control_retention: Vec<(Condition, Option<Interval>)>,
    /// Dose response.
    pub steerability: Vec<Steerability>,
    /// Directions compared.
    pub likeness: Vec<Likeness>,
}

impl Measurement {
    /// The row of a condition at a dose.
    pub fn row(&self, condition: Condition, dose: f64) -> Option<&Row> {
        self.rows.iter().find(|r| r.condition == condition && (r.dose - dose).abs() < 1e-9)
    }

    /// The row of a condition at the main dose (of no steering and prompt: their only one).
    pub fn main(&self, condition: Condition) -> Option<&Row> {
        match condition {
            Condition::No | Condition::Prompt => self.row(condition, 0.0),
            _ => self.row(condition, self.main_dose),
        }
    }

    /// Retention at the main dose.
    pub fn main_retention(&self) -> Option<Interval> {
        self.retention.iter().find(|r| (r.0 - self.main_dose).abs() < 1e-9).and_then(|r| r.1)
    }
}

/// Measures `vectors` on the held-out pairs of `set`.
///
/// # Errors
/// [`Error::Input`] for a set without held-out pairs or without prompts, or doses that make no sense; those of the model.
pub fn measure(
    model: &Model,
    set: &ContrastSet,
    vectors: &Vectors,
    held_out: &PairRows,
    std: &[f32],
    options: &MeasureOptions<'_>,
) -> Result<Measurement> {
    let pairs: Vec<&Pair> = set.split(Split::Test).take(options.items).collect();
    check(set, &pairs, options)?;
    let steered = vectors.steered(options.seed);

    // Every steered version: own and carried at all doses, the controls at the main one.
    let mut versions: Vec<(Condition, f64)> = vec![(Condition::No, 0.0)];
    let mut edits: Vec<Vec<Edit>> = vec![Vec::new()];
    for (condition, vector) in &steered {
        let all = matches!(condition, Condition::Own | Condition::Carried);
        for &dose in options.doses.iter().filter(|d| all || **d == options.main_dose) {
            let plan = Plan::add(
                options.site,
                vector.clone(),
                Dose::Relative(dose),
                options.scope.clone(),
                options.typical_norm,
            );
            versions.push((*condition, dose));
            edits.push(plan.edits(model)?);
        }
    }

    let propensities = propensity(model, &pairs, None, &mut edits, options)?;
    let drift = drift(model, &mut edits, options)?;
    let letter_scores = match options.letters {
        true => {
            let scoring = score_options(options);
            letters(model, set, &pairs, options.style, None, &mut edits, &scoring, options.seed)?
                .into_iter()
                .map(Some)
                .collect()
        }
        false => vec![None; versions.len()],
    };
    let no = propensities.first().cloned().unwrap_or_default();
    let mut rows = Vec::new();
    let parts = versions.iter().zip(propensities).zip(drift).zip(letter_scores);
    for ((((condition, dose), items), (perplexity, kl)), letters) in parts {
        rows.push(row(*condition, *dose, items, &no, perplexity, kl, letters, options.seed)?);
    }
    if let Some(instruction) = &set.instruction {
        let mut plain = vec![Vec::new()];
        let items = propensity(model, &pairs, Some(instruction), &mut plain, options)?.remove(0);
        let letters = match options.letters {
            true => letters(
                model,
                set,
                &pairs,
                options.style,
                Some(instruction),
                &mut plain,
                &score_options(options),
                options.seed,
            )?
            .pop(),
            false => None,
        };
        let unsteered = rows.first().map_or(f64::NAN, |r| r.perplexity);
        rows.push(row(Condition::Prompt, 0.0, items, &no, unsteered, 0.0, letters, options.seed)?);
    }

    let items_of = |c: Condition, d: f64| {
        rows.iter().find(|r| r.condition == c && r.dose == d).map(|r| r.items.clone()).unwrap_or_default()
    };
    let ratio = |c: Condition, d: f64| {
        stats::retention(&no, &items_of(Condition::Own, d), &items_of(c, d), options.seed)
    };
    let retention = match &vectors.carried {
        Some(_) => options.doses.iter().map(|&d| (d, ratio(Condition::Carried, d))).collect(),
        None => Vec::new(),
    };
    let control_retention = steered
        .iter()
        .map(|s| s.0)
        .filter(|c| matches!(c, Condition::Random | Condition::Permuted | Condition::Other))
        .map(|c| (c, ratio(c, options.main_dose)))
        .collect();
    let carried_items = items_of(Condition::Carried, options.main_dose);
    let over_controls = steered
        .iter()
        .map(|s| s.0)
        .filter(|c| matches!(c, Condition::Random | Condition::Permuted | Condition::Other))
        .filter(|_| !carried_items.is_empty())
        .map(|c| {
            let control = items_of(c, options.main_dose);
            let more: Vec<f64> = carried_items.iter().zip(control).map(|(a, b)| a - b).collect();
            (c, mean(&more, options.seed))
        })
        .collect();
    let steerability = steered
        .iter()
        .map(|s| s.0)
        .filter(|c| matches!(c, Condition::Own | Condition::Carried))
        .filter_map(|condition| {
            let doses: Vec<f64> = std::iter::once(0.0).chain(options.doses.iter().copied()).collect();
            let curves: Vec<Vec<f64>> = std::iter::once(no.clone())
                .chain(options.doses.iter().map(|&d| items_of(condition, d)))
                .collect();
            let slopes: Vec<f64> = (0..no.len())
                .map(|i| {
                    let y: Vec<f64> = curves.iter().filter_map(|c| c.get(i).copied()).collect();
                    slope(&doses, &y)
                })
                .collect();
            let negative = slopes.iter().filter(|s| **s < 0.0).count() as f64 / slopes.len().max(1) as f64;
            Some(Steerability { condition, slope: mean(&slopes, options.seed)?, negative })
        })
        .collect();
    let likeness =
        steered.iter().map(|(c, v)| likeness(*c, v, &vectors.own, held_out, std, options)).collect();
    Ok(Measurement {
        model: model.id().clone(),
        concept: set.name.clone(),
        site: options.site,
        typical_norm: options.typical_norm,
        scope: options.scope.clone(),
        style: options.style,
        main_dose: options.main_dose,
        pairs: pairs.len(),
        other: vectors.other_name.clone(),
        rows,
        retention,
        over_controls,
        control_retention,
        steerability,
        likeness,
    })
}

fn check(set: &ContrastSet, pairs: &[&Pair], options: &MeasureOptions<'_>) -> Result<()> {
    let fail = |problem: &str| Err(Error::input(format!("contrast set {}", set.name), problem));
    if pairs.len() < 5 {
        return fail("has fewer than 5 held-out pairs; nothing can be measured on so few");
    }
    if pairs.iter().any(|p| p.prompt.trim().is_empty()) {
        return fail(
            "has pairs without a prompt, so that no completion can be scored; it can be read, not steered on",
        );
    }
    if options.doses.is_empty() || options.doses.iter().any(|d| !d.is_finite() || *d <= 0.0) {
        return Err(Error::input("doses", "give at least one, each a positive number"));
    }
    if !options.doses.contains(&options.main_dose) {
        return Err(Error::input("main dose", "must be one of the doses"));
    }
    Ok(())
}

fn score_options<'a>(options: &MeasureOptions<'a>) -> ScoreOptions<'a> {
    ScoreOptions { batch_tokens: options.batch_tokens, cancel: options.cancel.clone(), progress: None }
}

#[allow(clippy::too_many_arguments)]
fn row(
    condition: Condition,
    dose: f64,
    items: Vec<f64>,
    no: &[f64],
    perplexity: f64,
    kl: f64,
    letters: Option<LetterScores>,
    seed: u64,
) -> Result<Row> {
    let gains: Vec<f64> = items.iter().zip(no).map(|(a, b)| a - b).collect();
    Ok(Row {
        condition,
        dose,
        propensity: mean(&items, seed)
            .ok_or_else(|| Error::input("propensity", "is not finite: the dose broke the model"))?,
        gain: if condition == Condition::No { None } else { mean(&gains, seed) },
        preferred: items.iter().filter(|x| **x > 0.0).count() as f64 / items.len().max(1) as f64,
        perplexity,
        kl,
        letters,
        items,
    })
}

/// log p(positive) − log p(negative) of every pair under every version.
fn propensity(
    model: &Model,
    pairs: &[&Pair],
    system: Option<&str>,
    versions: &mut [Vec<Edit>],
    options: &MeasureOptions<'_>,
) -> Result<Vec<Vec<f64>>> {
    let mut items = Vec::with_capacity(pairs.len() * 2);
    for p in pairs {
        for half in [&p.positive, &p.negative] {
            let laid = lay_out(model, options.style, system, &p.prompt, half)?;
            items.push(ScoreItem {
                tokens: laid.tokens,
                completion: laid.completion,
                candidates: Vec::new(),
            });
        }
    }
    let total = items.len();
    let progress = options.progress;
    let report = move |done: usize| {
        if let Some(p) = progress {
            p("scoring held-out pairs", done, total);
        }
    };
    report(0);
    let scoring = ScoreOptions { progress: Some(&report), ..score_options(options) };
    let scores = score(model.decoder(), &items, versions, &scoring)?;
    Ok(scores
        .into_iter()
        .map(|v| {
            v.chunks_exact(2)
                .map(|two| match two {
                    [a, b] => a.total() - b.total(),
                    _ => f64::NAN,
                })
                .collect()
        })
        .collect())
}

/// (perplexity, mean KL from the first version) on neutral text under every version.
fn drift(model: &Model, versions: &mut [Vec<Edit>], options: &MeasureOptions<'_>) -> Result<Vec<(f64, f64)>> {
    let mut items = Vec::new();
    for text in &options.neutral {
        let laid = lay_out(model, options.style, None, "", text)?;
        let first = laid.completion.max(1);
        if laid.tokens.len() > first {
            items.push(ScoreItem { tokens: laid.tokens, completion: first, candidates: Vec::new() });
        }
    }
    if items.is_empty() {
        return Ok(vec![(f64::NAN, f64::NAN); versions.len()]);
    }
    let mut kl = vec![0.0; versions.len()];
    let mut rows = 0usize;
    let mut base: Option<LogProbs> = None;
    let (total, progress) = (items.len(), options.progress);
    let report = move |done: usize| {
        if let Some(p) = progress {
            p("measuring drift on neutral text", done, total);
        }
    };
    report(0);
    // Logits of every position are wide: small batches.
    let scoring = ScoreOptions {
        batch_tokens: options.batch_tokens.min(128),
        progress: Some(&report),
        ..score_options(options)
    };
    let scores = score_with(model.decoder(), &items, versions, &scoring, &mut |version, log_probs| {
        if version == 0 {
            rows += log_probs.rows();
            base = Some(log_probs.clone());
        } else if let (Some(base), Some(kl)) = (&base, kl.get_mut(version)) {
            *kl += base.divergence(log_probs).iter().sum::<f64>();
        }
        Ok(())
    })?;
    Ok(scores
        .into_iter()
        .zip(kl)
        .map(|(s, kl)| {
            let tokens: usize = s.iter().map(|x| x.log_probs.len()).sum();
            let total: f64 = s.iter().map(methexis_model::score::Score::total).sum();
            ((-total / tokens.max(1) as f64).exp(), kl / rows.max(1) as f64)
        })
        .collect())
}

fn likeness(
    condition: Condition,
    v: &[f32],
    own: &[f32],
    held_out: &PairRows,
    std: &[f32],
    options: &MeasureOptions<'_>,
) -> Likeness {
    let at = held_out.sites.iter().position(|s| *s == options.site);
    let rows = at.and_then(|i| Some((held_out.positive.get(i)?, held_out.negative.get(i)?)));
    let v64: Vec<f64> = v.iter().map(|x| f64::from(*x)).collect();
    let auroc = rows.and_then(|(p, n)| {
        let (up, down) = (p.project(&v64), n.project(&v64));
        let at =
            |v: &[f64], pick: &[usize]| pick.iter().filter_map(|i| v.get(*i).copied()).collect::<Vec<_>>();
        stats::bootstrap(up.len(), options.seed, |pick| auroc(&at(&up, pick), &at(&down, pick)))
    });
    Likeness {
        condition,
        whitened_cosine: stats::whitened_cosine(v, own, std),
        cosine: stats::cosine(v, own),
        auroc,
    }
}
