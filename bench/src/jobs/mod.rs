//! The jobs.

mod bridge;
mod decode;
mod memory;
mod prefill;
mod profile;
mod reads;

use std::time::Instant;

use candle_core::Device;
use clap::ValueEnum;
use methexis_model::checkpoint::Precision;
use methexis_model::Model;

use crate::peer::{file_of, Peer};
use crate::report::{table, Line};
use crate::{Args, Result};

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Job {
    /// Last tokens of truncated statements, against repeng.
    Truncated,
    /// Last tokens of pairs in the chat format, against repeng.
    Pairs,
    /// Unrelated texts at all layers, against transformers.
    Texts,
    /// Prefill against llama.cpp.
    Prefill,
    /// The linear layers during prefill against this machine's product.
    Linear,
    /// Decoding against llama.cpp and against memory bandwidth.
    Decode,
    /// Decoding with a plan on every layer against without.
    Plan,
    /// Statistics and fit of a wide bridge against NumPy's least squares.
    Bridge,
    /// Peak memory of a read of 10,000 texts.
    Memory,
    /// Time to the first hidden state.
    Loading,
    /// Where the time of a prefill and of a decode goes.
    Profile,
}

/// What jobs share.
pub(crate) struct Bench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) peer: Option<Peer>,
    pub(crate) lines: Vec<Line>,
}

impl Bench<'_> {
    pub(crate) fn push(&mut self, line: Line) {
        eprint!("{}", table(std::slice::from_ref(&line)).lines().last().unwrap_or_default());
        eprintln!();
        self.lines.push(line);
    }

    pub(crate) fn open(&self, name: &str, precision: Precision) -> Result<Model> {
        Ok(Model::open(file_of(name)?, name, precision, Device::Cpu)?)
    }
}

pub(crate) fn seconds<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begin = Instant::now();
    std::hint::black_box(work()?);
    Ok(begin.elapsed().as_secs_f64())
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let peer = if args.alone { None } else { Some(Peer::start(&args.home, args.threads)?) };
    let mut bench = Bench { args, peer, lines: Vec::new() };
    let versions = match &mut bench.peer {
        Some(p) => p.ask(serde_json::json!({"do": "versions"}))?,
        None => serde_json::Value::Null,
    };
    let all = Job::value_variants();
    for job in if args.jobs.is_empty() { all } else { &args.jobs } {
        eprintln!("== {job:?}");
        match job {
            Job::Truncated => reads::truncated(&mut bench)?,
            Job::Pairs => reads::pairs(&mut bench)?,
            Job::Texts => reads::texts(&mut bench)?,
            Job::Prefill => prefill::against_llama(&mut bench)?,
            Job::Linear => prefill::linear(&mut bench)?,
            Job::Decode => decode::against_llama(&mut bench)?,
            Job::Plan => decode::plan(&mut bench)?,
            Job::Bridge => bridge::fit(&mut bench)?,
            Job::Memory => memory::read_many(&mut bench)?,
            Job::Loading => memory::loading(&mut bench)?,
            Job::Profile => profile::show(&mut bench)?,
        }
    }
    let text = table(&bench.lines);
    println!("{text}");
    if let Some(path) = &args.markdown {
        std::fs::write(path, &text)?;
    }
    if let Some(path) = &args.json {
        let all = serde_json::json!({"lines": bench.lines, "versions": versions, "threads": args.threads, "runs": args.runs});
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)?;
    }
    Ok(())
}
