//! The commands; the tree of files is the tree of commands. Each gives data, with its rendering as text.

mod bridge;
mod chat;
mod concept;
pub(crate) mod demo;
mod generate;
mod measure;
mod model;
mod report;
mod steering;

use clap::CommandFactory;
use serde_json::Value;

use crate::cli::{BridgeCommand, Cli, Command, ConceptCommand, ModelCommand};
use crate::context::{Context, Failure, Result};

/// What a command gives.
pub(crate) struct Outcome {
    /// The data.
    pub(crate) json: Value,
    /// The same for people.
    pub(crate) text: String,
    /// Whether all is well; a failed check is not.
    pub(crate) good: bool,
}

impl Outcome {
    /// Data and its text.
    pub(crate) fn new(data: &impl serde::Serialize, text: impl Into<String>) -> Result<Self> {
        let json =
            serde_json::to_value(data).map_err(|e| Failure::usage(format!("the result is no JSON: {e}")))?;
        Ok(Self { json, text: text.into(), good: true })
    }
}

pub(crate) fn run(command: Command, context: &Context) -> Result<Outcome> {
    let outcome = match command {
        Command::Demo(a) => demo::run(&a, context),
        Command::Model(ModelCommand::Pull { model }) => model::pull::run(&model, context),
        Command::Model(ModelCommand::List) => model::list::run(context),
        Command::Model(ModelCommand::Show { model }) => model::show::run(&model, context),
        Command::Model(ModelCommand::Check { model }) => model::check::run(&model, context),
        Command::Concept(ConceptCommand::List) => concept::list::run(),
        Command::Concept(ConceptCommand::Check { concept, model }) => {
            concept::check::run(&concept, model.as_deref(), context)
        }
        Command::Concept(ConceptCommand::Read(a)) => concept::read::run(&a, context),
        Command::Concept(ConceptCommand::Carry { direction, bridge, output }) => {
            concept::carry::run(&direction, &bridge, &output)
        }
        Command::Bridge(BridgeCommand::Fit(a)) => bridge::fit::run(&a, context),
        Command::Bridge(BridgeCommand::Show { bridge }) => bridge::show::run(&bridge),
        Command::Generate(a) => generate::run(&a, context),
        Command::Chat(a) => chat::run(&a, context),
        Command::Measure(a) => measure::run(&a, context),
        Command::Report(a) => report::run(&a),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "methexis", &mut out);
            let text = String::from_utf8_lossy(&out).into_owned();
            Outcome::new(&text, text.clone())
        }
    };
    context.bars.clear();
    outcome
}
