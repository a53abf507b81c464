//! Every command and flag, defined once: help, checks and shell completions come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Read a concept in one language model, carry it over a linear bridge to another, steer there, and measure honestly
/// whether it worked.
#[derive(Parser)]
#[command(
    name = "methexis",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Examples:
  methexis demo                                    the whole way on two real models
  methexis model list                              models that can be had by name
  methexis concept read happiness -m smollm2-135m -o happiness.safetensors
  methexis bridge fit smollm2-135m qwen2.5-coder-0.5b -o bridge.safetensors
  methexis concept carry happiness.safetensors --bridge bridge.safetensors -o carried.safetensors
  methexis generate qwen2.5-coder-0.5b \"Tell me about your day.\" --add carried.safetensors --dose 0.3
  methexis measure qwen2.5-coder-0.5b happiness
A model is a path, a name of `model list`, or a hub id owner/name[@revision][:file.gguf]."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Args)]
pub(crate) struct Global {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Seed of everything that is drawn at random.
    #[arg(long, global = true, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Threads to compute with (default: all cores).
    #[arg(long, global = true, value_parser = parse_threads)]
    pub(crate) threads: Option<usize>,
    /// No progress on stderr.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Never use the network.
    #[arg(long, global = true)]
    pub(crate) offline: bool,
    /// How the weights of quantised files are held.
    #[arg(long, global = true, value_enum, default_value = "f32")]
    pub(crate) weights: Weights,
    /// A chat template (Jinja) instead of the model's own.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=1024).contains(&n) => Ok(n),
        _ => Err("give a number from 1 to 1024".into()),
    }
}

/// How quantised weights are held.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weights {
    /// As f32: fastest to read with, four bytes a weight.
    F32,
    /// As in the file.
    Quantized,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// The whole way on two real models: read, carry, steer, measure, report.
    Demo(Demo),
    /// Models: fetch, list, look at, test.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Concepts: sets of contrast pairs and the directions read from them.
    #[command(subcommand)]
    Concept(ConceptCommand),
    /// Bridges between the spaces of two models.
    #[command(subcommand)]
    Bridge(BridgeCommand),
    /// Continue a prompt, steered or not.
    Generate(Generate),
    /// Talk with a model, steered or not.
    Chat(Chat),
    /// Measure whether steering with a direction works, with all controls.
    Measure(Measure),
    /// Write the HTML report of a saved result.
    Report(Report),
    /// Print shell completions.
    #[command(
        after_help = "Examples:\n  methexis completions bash > ~/.local/share/bash-completion/completions/methexis"
    )]
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
}

/// The whole way on two real models.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  methexis demo\n  methexis demo --concept fear --source gemma3-270m --report fear.html\n\
Results are saved in the cache; a later run with the same settings reuses them (--fresh computes anew)."
)]
pub(crate) struct Demo {
    /// Model that the concept is read in.
    #[arg(long, default_value = "smollm2-135m")]
    pub(crate) source: String,
    /// Model that is steered.
    #[arg(long, default_value = "qwen2.5-coder-0.5b")]
    pub(crate) target: String,
    /// A shipped concept or a file of contrast pairs.
    #[arg(long, default_value = "happiness")]
    pub(crate) concept: String,
    /// Another concept, for the control.
    #[arg(long, default_value = "fairness")]
    pub(crate) other: String,
    /// Where the report goes.
    #[arg(long, default_value = "report.html")]
    pub(crate) report: PathBuf,
    /// Neutral texts for the bridge.
    #[arg(long, default_value_t = 400)]
    pub(crate) texts: usize,
    /// Held-out pairs to score.
    #[arg(long, default_value_t = 40)]
    pub(crate) items: usize,
    /// Relative doses, ascending.
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.2,0.3")]
    pub(crate) doses: Vec<f64>,
    /// The dose at which conditions are compared (default: the middle one).
    #[arg(long)]
    pub(crate) main_dose: Option<f64>,
    /// Score letter questions, too.
    #[arg(long)]
    pub(crate) letters: bool,
    /// Compute anew although a saved result fits.
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// Models.
#[derive(Subcommand)]
pub(crate) enum ModelCommand {
    /// Fetch a model into the cache.
    #[command(
        after_help = "Examples:\n  methexis model pull smollm2-135m\n  methexis model pull Qwen/Qwen2.5-0.5B-Instruct"
    )]
    Pull {
        /// Name of `model list`, or hub id.
        model: String,
    },
    /// List the models that can be had by name, and which are here.
    #[command(after_help = "Examples:\n  methexis model list\n  methexis model list --json")]
    List,
    /// Show what was understood of a model file.
    #[command(
        after_help = "Examples:\n  methexis model show smollm2-135m\n  methexis model show ./model.gguf --json"
    )]
    Show {
        /// Path, name or hub id.
        model: String,
    },
    /// Run a self-test of a model.
    #[command(after_help = "Examples:\n  methexis model check ./model.gguf")]
    Check {
        /// Path, name or hub id.
        model: String,
    },
}

/// Concepts.
#[derive(Subcommand)]
pub(crate) enum ConceptCommand {
    /// List the shipped sets of contrast pairs.
    #[command(after_help = "Examples:\n  methexis concept list\n  methexis concept list --json")]
    List,
    /// Lint a set: leaks, unequal halves, overlap with the neutral text.
    #[command(
        after_help = "Examples:\n  methexis concept check happiness\n  methexis concept check caa:my_set.json --model smollm2-135m"
    )]
    Check {
        /// Shipped name, file, or format:file.
        concept: String,
        /// Count tokens with this model's tokenizer, too.
        #[arg(short, long)]
        model: Option<String>,
    },
    /// Read a direction from a set in a model.
    Read(ConceptRead),
    /// Carry a direction over a bridge.
    #[command(
        after_help = "Examples:\n  methexis concept carry happiness.safetensors --bridge bridge.safetensors -o carried.safetensors"
    )]
    Carry {
        /// Direction file.
        direction: PathBuf,
        /// Bridge file.
        #[arg(long)]
        bridge: PathBuf,
        /// Where the carried direction goes (.safetensors, or .gguf for llama.cpp and repeng).
        #[arg(short, long)]
        output: PathBuf,
    },
}

/// Read a direction.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  methexis concept read happiness -m smollm2-135m -o happiness.safetensors\n  \
methexis concept read my.jsonl -m ./model.gguf --blocks 10,12,14 --method pca-uncentred -o v.gguf"
)]
pub(crate) struct ConceptRead {
    /// Shipped name, file, or format:file.
    pub(crate) concept: String,
    /// The model.
    #[arg(short, long)]
    pub(crate) model: String,
    /// How the direction is made.
    #[arg(long, default_value = "mean-difference", value_parser = ["mean-difference", "pca-uncentred", "pca-shuffled", "logistic"])]
    pub(crate) method: String,
    /// Blocks to read after, from 0 or, negative, from the back; default: the middle block that separates the training
    /// pairs best.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) blocks: Vec<isize>,
    /// Text layout; default: chat where the model has a template.
    #[arg(long, value_enum)]
    pub(crate) style: Option<StyleArg>,
    /// Most training pairs.
    #[arg(long, default_value_t = 1000)]
    pub(crate) pairs: usize,
    /// Where the direction goes (.safetensors, or .gguf for llama.cpp and repeng).
    #[arg(short, long)]
    pub(crate) output: PathBuf,
}

/// Text layout.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StyleArg {
    /// Plain text.
    Plain,
    /// The model's chat format.
    Chat,
}

/// Bridges.
#[derive(Subcommand)]
pub(crate) enum BridgeCommand {
    /// Fit a bridge on neutral text.
    Fit(BridgeFit),
    /// Show what a bridge says about itself.
    #[command(after_help = "Examples:\n  methexis bridge show bridge.safetensors")]
    Show {
        /// Bridge file.
        bridge: PathBuf,
    },
}

/// Fit a bridge.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  methexis bridge fit smollm2-135m qwen2.5-coder-0.5b -o bridge.safetensors\n  methexis bridge fit smollm2-135m gemma3-270m --rows aligned --text my_texts.txt -o bridge.safetensors"
)]
pub(crate) struct BridgeFit {
    /// Model that directions come from.
    pub(crate) source: String,
    /// Model that they go to.
    pub(crate) target: String,
    /// Block of the source (from 0 or, negative, from the back); default: half of the depth.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) source_block: Option<isize>,
    /// Block of the target; default: the best held-out R² among the middle ones.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) target_block: Option<isize>,
    /// Which map.
    #[arg(long, default_value = "ridge", value_parser = ["ols", "ridge"])]
    pub(crate) kind: String,
    /// How rows are paired.
    #[arg(long, default_value = "last", value_parser = ["last", "aligned"])]
    pub(crate) rows: String,
    /// Text file, one neutral text a line; default: the shipped ones.
    #[arg(long)]
    pub(crate) text: Option<PathBuf>,
    /// Most texts.
    #[arg(long, default_value_t = 1000)]
    pub(crate) texts: usize,
    /// Warn where the texts overlap this concept.
    #[arg(long)]
    pub(crate) concept: Option<String>,
    /// Break the pairing on purpose: the control.
    #[arg(long)]
    pub(crate) permuted: bool,
    /// Where the bridge goes.
    #[arg(short, long)]
    pub(crate) output: PathBuf,
}

/// Edits and sampling, shared by `generate` and `chat`.
#[derive(Args, Clone)]
pub(crate) struct Steering {
    /// Direction to add (.safetensors or GGUF control vector); may be given again.
    #[arg(long = "add", value_name = "FILE")]
    pub(crate) add: Vec<PathBuf>,
    /// Direction to take out of the states; may be given again.
    #[arg(long = "ablate", value_name = "FILE")]
    pub(crate) ablate: Vec<PathBuf>,
    /// Dose of each added direction, relative to the typical ‖h‖ (one for all, or one each).
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0.3")]
    pub(crate) dose: Vec<f64>,
    /// The doses are raw factors of the vectors instead.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Act on the response only, not on the prompt.
    #[arg(long)]
    pub(crate) response_only: bool,
    /// Most tokens to write.
    #[arg(long, default_value_t = 128)]
    pub(crate) max_tokens: usize,
    /// 0: greedy.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Keep the k most likely tokens; 0: all.
    #[arg(long, default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Keep the most likely tokens that make up this probability.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Drop tokens below this share of the likeliest.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_p: f32,
    /// Above 1: discourage repetition.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) repetition_penalty: f32,
    /// Stop where the text contains this; may be given again.
    #[arg(long)]
    pub(crate) stop: Vec<String>,
    /// System message.
    #[arg(long)]
    pub(crate) system: Option<String>,
}

/// Continue a prompt.
#[derive(Args)]
#[command(after_help = "Examples:\n  methexis generate smollm2-135m \"Write a line about the sea.\"\n  \
methexis generate smollm2-135m \"Once upon a time\" --plain --temperature 0.8 --seed 3\n  \
methexis generate smollm2-135m \"How are you?\" --add happiness.safetensors --dose 0.3")]
pub(crate) struct Generate {
    /// The model.
    pub(crate) model: String,
    /// The prompt (- : standard input).
    pub(crate) prompt: String,
    /// Continue the text as it is, without the chat format.
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    pub(crate) steering: Steering,
}

/// Talk with a model.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  methexis chat smollm2-135m\n  methexis chat qwen2.5-coder-0.5b --add happiness.safetensors --dose 0.3"
)]
pub(crate) struct Chat {
    /// The model.
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) steering: Steering,
}

/// Measure steering.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  methexis measure smollm2-135m happiness\n  methexis measure qwen2.5-coder-0.5b happiness \
--carried carried.safetensors --permuted permuted.safetensors --letters"
)]
pub(crate) struct Measure {
    /// The steered model.
    pub(crate) model: String,
    /// Shipped concept or file; its held-out pairs are scored.
    pub(crate) concept: String,
    /// A carried direction to measure against the model's own.
    #[arg(long, requires = "permuted", value_name = "FILE")]
    pub(crate) carried: Option<PathBuf>,
    /// Its control: the same direction carried over a bridge fitted with --permuted.
    #[arg(long, requires = "carried", value_name = "FILE")]
    pub(crate) permuted: Option<PathBuf>,
    /// Block to steer after (default: that of the carried direction, else the best on the training pairs).
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) block: Option<isize>,
    /// Another concept, for the control.
    #[arg(long, default_value = "fairness")]
    pub(crate) other: String,
    /// Relative doses, ascending.
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.2,0.3")]
    pub(crate) doses: Vec<f64>,
    /// The dose at which conditions are compared (default: the middle one).
    #[arg(long)]
    pub(crate) main_dose: Option<f64>,
    /// Held-out pairs to score.
    #[arg(long, default_value_t = 50)]
    pub(crate) items: usize,
    /// Score letter questions, too.
    #[arg(long)]
    pub(crate) letters: bool,
    /// Act on the response only.
    #[arg(long)]
    pub(crate) response_only: bool,
    /// Save the result as JSON.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
}

/// Write a report.
#[derive(Args)]
#[command(after_help = "Examples:\n  methexis report result.json -o report.html")]
pub(crate) struct Report {
    /// Result of `demo` (result.json).
    pub(crate) result: PathBuf,
    /// Where the report goes.
    #[arg(short, long, default_value = "report.html")]
    pub(crate) output: PathBuf,
}
