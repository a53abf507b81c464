//! From steering flags to edits and sampling, for `generate` and `chat`.

use methexis_concept::direction::Direction;
use methexis_concept::plan::{Action, Dose, Plan, Step};
use methexis_model::edit::{Edit, Scope};
use methexis_model::generate::{Flow, Sampling};
use methexis_model::tokenizer::DecodeStream;
use methexis_model::Model;

use crate::cli::Steering;
use crate::context::{Context, Failure, Result};

/// The edits that the flags ask for.
pub(crate) fn edits(flags: &Steering, model: &Model) -> Result<Vec<Edit>> {
    let scope = if flags.response_only { Scope::Response } else { Scope::All };
    let mut plan = Plan::default();
    let doses = &flags.dose;
    if doses.len() != 1 && doses.len() != flags.add.len() {
        return Err(Failure::usage(format!(
            "{} doses for {} directions; give one for all, or one each",
            doses.len(),
            flags.add.len()
        )));
    }
    if let Some(bad) = doses.iter().find(|d| !d.is_finite()) {
        return Err(Failure::usage(format!("--dose {bad}: give a finite number")));
    }
    for (i, path) in flags.add.iter().enumerate() {
        let direction = Direction::open(path)?;
        direction.check_model(model.id())?;
        let dose = doses.get(i).or(doses.first()).copied().unwrap_or(0.0);
        // Several layers share the dose, so that one number means about the same for one and for many.
        let share = dose / (direction.vectors.len() as f64).sqrt();
        for (site, vector) in &direction.vectors {
            site.check(model.architecture())?;
            let norm = direction.provenance.typical_norm.get(&site.to_string()).copied();
            let dose = match (flags.raw, norm) {
                (true, _) => Dose::Raw(dose),
                (false, Some(_)) => Dose::Relative(share),
                (false, None) => {
                    return Err(Failure::usage(format!(
                    "{} does not say the typical norm at {site}, so a relative dose means nothing; use --raw",
                    path.display()
                )))
                }
            };
            plan.steps.push(Step {
                site: *site,
                vector: vector.clone(),
                action: Action::Add(dose),
                scope: scope.clone(),
                typical_norm: norm.unwrap_or(1.0),
            });
        }
    }
    for path in &flags.ablate {
        let direction = Direction::open(path)?;
        direction.check_model(model.id())?;
        for (site, vector) in direction.vectors {
            plan.steps.push(Step {
                site,
                vector,
                action: Action::Ablate,
                scope: scope.clone(),
                typical_norm: 1.0,
            });
        }
    }
    Ok(plan.edits(model)?)
}

/// The sampling that the flags ask for.
pub(crate) fn sampling(flags: &Steering, context: &Context) -> Sampling {
    Sampling {
        repetition_penalty: flags.repetition_penalty,
        temperature: flags.temperature,
        top_k: flags.top_k,
        top_p: flags.top_p,
        min_p: flags.min_p,
        seed: context.seed,
    }
}

/// Turns tokens into text, stopping before a stop string.
pub(crate) struct Writer<'a> {
    stream: DecodeStream<'a>,
    stop: &'a [String],
    text: String,
    shown: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(model: &'a Model, stop: &'a [String]) -> Self {
        Self { stream: model.tokenizer().stream(), stop, text: String::new(), shown: 0 }
    }

    /// Takes a token, hands what is certain to `show`, and says whether to go on.
    pub(crate) fn push(&mut self, token: u32, show: &mut dyn FnMut(&str)) -> Flow {
        // Ids come from the model's own vocabulary; one that cannot be decoded is shown as nothing.
        self.text.push_str(&self.stream.push(token).unwrap_or_default());
        let end = self.stop.iter().filter(|s| !s.is_empty()).filter_map(|s| self.text.find(s.as_str())).min();
        if let Some(end) = end {
            self.text.truncate(end);
            self.show_to(self.text.len(), show);
            return Flow::Stop;
        }
        // What could become a stop string is held back.
        let longest = self.stop.iter().map(String::len).max().unwrap_or(0);
        let mut safe = self.text.len().saturating_sub(longest.saturating_sub(1));
        while !self.text.is_char_boundary(safe) {
            safe -= 1;
        }
        self.show_to(safe, show);
        Flow::Continue
    }

    /// The rest, and the whole text.
    pub(crate) fn finish(mut self, stopped: bool, show: &mut dyn FnMut(&str)) -> String {
        if !stopped {
            self.text.push_str(&self.stream.finish().unwrap_or_default());
        }
        self.show_to(self.text.len(), show);
        self.text
    }

    fn show_to(&mut self, to: usize, show: &mut dyn FnMut(&str)) {
        if to > self.shown {
            show(self.text.get(self.shown..to).unwrap_or_default());
            self.shown = to;
        }
    }
}
