//! `methexis demo`: the whole way on two real models.

use std::path::Path;
use std::time::Instant;

use methexis_concept::contrast::{neutral, resolve, text_hash, Split};
use methexis_concept::layout::{lay_out_prompt, Style};
use methexis_concept::measure::Condition;
use methexis_concept::plan::{Dose, Plan};
use methexis_concept::transfer::{transfer, Parts, Transfer, TransferOptions};
use methexis_model::edit::Scope;
use methexis_model::generate::{generate_many, Flow, Options, Request};
use methexis_model::{Model, ModelId};
use serde::{Deserialize, Serialize};

use super::measure::main_dose;
use crate::cli::Demo;
use crate::commands::Outcome;
use crate::context::{Context, Failure, Result};
use crate::render::{html, transfer_text};

/// A continuation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// What was asked.
    pub(crate) prompt: String,
    /// Under which version of the model.
    pub(crate) condition: Condition,
    /// At which dose.
    pub(crate) dose: f64,
    /// What it wrote.
    pub(crate) text: String,
}

/// Everything a report needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DemoResult {
    /// Model that the concept was read in.
    pub(crate) source: ModelId,
    /// Model that was steered.
    pub(crate) target: ModelId,
    /// Name of the concept.
    pub(crate) concept: String,
    /// What it means.
    pub(crate) description: String,
    /// All figures.
    pub(crate) transfer: Transfer,
    /// Continuations.
    pub(crate) samples: Vec<Sample>,
    /// Seconds of computing.
    pub(crate) seconds: f64,
    /// The same by kind of work; reading ahead of the first report of a kind counts to the kind before.
    #[serde(default)]
    pub(crate) spent: Vec<(String, f64)>,
    /// Version of the program.
    pub(crate) version: String,
    /// The command that makes it.
    pub(crate) command: String,
}

const SAMPLE_TOKENS: usize = 40;
const SAMPLE_PROMPTS: usize = 2;

pub(crate) fn run(a: &Demo, context: &Context) -> Result<Outcome> {
    let (set, other) = (resolve(&a.concept)?, resolve(&a.other)?);
    if set.name == other.name {
        return Err(Failure::usage("--other must be another concept than --concept; it is the control"));
    }
    let main_dose = main_dose(&a.doses, a.main_dose)?;
    let texts = neutral()?;
    let (source, target) = (context.open(&a.source)?, context.open(&a.target)?);
    let command = format!(
        "methexis demo --source {} --target {} --concept {} --other {} --texts {} --items {} --doses {} --seed {}",
        a.source,
        a.target,
        a.concept,
        a.other,
        a.texts,
        a.items,
        a.doses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        context.seed
    );
    // A saved result is reused only for the very same models, texts and settings.
    let key = text_hash([
        env!("CARGO_PKG_VERSION"),
        &source.id().fingerprint,
        &target.id().fingerprint,
        &set.hash(Split::Train),
        &set.hash(Split::Test),
        &other.hash(Split::Train),
        &text_hash(texts.iter().map(|t| t.text.as_str())),
        &command,
        &main_dose.to_string(),
        if a.letters { "letters" } else { "" },
    ]);
    let folder = context.fetch.cache.root().join("runs").join(key.get(..16).unwrap_or(&key));
    let saved = folder.join("result.json");
    let reused = !a.fresh && saved.is_file();
    let result = if reused {
        load(&saved)?
    } else {
        let began = Instant::now();
        context.bars.take_spent();
        let progress =
            |what: &str, done: usize, total: usize| context.bars.show(what, done as u64, total as u64, false);
        let options = TransferOptions {
            texts: a.texts,
            test: a.items,
            doses: a.doses.clone(),
            main_dose,
            letters: a.letters,
            seed: context.seed,
            cancel: context.cancel.clone(),
            progress: Some(&progress),
            ..TransferOptions::default()
        };
        let parts = transfer(&source, &target, &set, &other, &texts, &options)?;
        let openings: Vec<String> = set.openings.iter().take(SAMPLE_PROMPTS).cloned().collect();
        let samples = samples(&target, &parts, &openings, &a.doses, context)?;
        let result = DemoResult {
            source: source.id().clone(),
            target: target.id().clone(),
            concept: set.name.clone(),
            description: set.description.clone(),
            transfer: parts.transfer.clone(),
            samples,
            seconds: began.elapsed().as_secs_f64(),
            spent: context.bars.take_spent(),
            version: env!("CARGO_PKG_VERSION").into(),
            command,
        };
        save(&folder, &parts, &result)?;
        result
    };
    context.bars.clear();
    save_text(&a.report, &html::page(&result))?;
    let mut text = transfer_text(&result);
    if reused {
        text.push_str(&format!(
            "(saved result of an earlier run, {}; --fresh computes anew)\n",
            folder.display()
        ));
    } else {
        text.push_str(&format!("{:.0} s of computing; saved in {}\n", result.seconds, folder.display()));
    }
    text.push_str(&format!("report: {}\n", a.report.display()));
    Outcome::new(&result, text)
}

fn samples(
    target: &Model,
    parts: &Parts,
    prompts: &[String],
    doses: &[f64],
    context: &Context,
) -> Result<Vec<Sample>> {
    let m = &parts.transfer.measurement;
    let style = Style::natural(target);
    let mut requests = Vec::new();
    let mut out = Vec::new();
    for prompt in prompts {
        let tokens = lay_out_prompt(target, style, None, prompt)?;
        let mut add = |condition: Condition, dose: f64, edits| {
            requests.push(Request { prompt: tokens.clone(), edits });
            out.push(Sample { prompt: prompt.clone(), condition, dose, text: String::new() });
        };
        add(Condition::No, 0.0, Vec::new());
        for (condition, vector) in parts.vectors.steered(context.seed) {
            if !matches!(condition, Condition::Own | Condition::Carried | Condition::Random) {
                continue;
            }
            for &dose in doses {
                let plan =
                    Plan::add(m.site, vector.clone(), Dose::Relative(dose), Scope::All, m.typical_norm);
                add(condition, dose, plan.edits(target)?);
            }
        }
    }
    let options = Options {
        max_tokens: SAMPLE_TOKENS,
        end_tokens: target.tokenizer().eos().to_vec(),
        cancel: context.cancel.clone(),
        ..Options::default()
    };
    let total = (requests.len() * SAMPLE_TOKENS) as u64;
    let mut written = 0;
    let done = generate_many(target.decoder(), &requests, &options, &mut |_, _| {
        written += 1;
        context.bars.show("writing continuations", written, total, false);
        Flow::Continue
    })?;
    context.cancel.check()?;
    for (sample, generated) in out.iter_mut().zip(done) {
        sample.text = target.tokenizer().decode(&generated.tokens, true)?;
    }
    Ok(out)
}

fn save(folder: &Path, parts: &Parts, result: &DemoResult) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| {
        methexis_model::Error::io(
            folder,
            "making a folder in the cache (set METHEXIS_CACHE to one that can be written)",
            e,
        )
    })?;
    parts.source.save(&folder.join("source.safetensors"))?;
    parts.bridge.save(&folder.join("bridge.safetensors"))?;
    parts.carried.save(&folder.join("carried.safetensors"))?;
    parts.own.save(&folder.join("own.safetensors"))?;
    save_json(&folder.join("result.json"), result)
}

fn load(path: &Path) -> Result<DemoResult> {
    let text = std::fs::read_to_string(path).map_err(|e| methexis_model::Error::io(path, "reading", e))?;
    serde_json::from_str(&text).map_err(|e| {
        methexis_model::Error::format(path, format!("line {}", e.line()), format!("{e}; run with --fresh"))
            .into()
    })
}

/// Writes data as JSON.
pub(crate) fn save_json(path: &Path, data: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(data)
        .map_err(|e| Failure::usage(format!("the result is no JSON: {e}")))?;
    save_text(path, &text)
}

/// Writes a text file, whole or not at all.
pub(crate) fn save_text(path: &Path, text: &str) -> Result<()> {
    Ok(methexis_model::write_whole(path, text.as_bytes())?)
}
