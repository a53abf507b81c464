//! Measures the engine against its peers and against the machine: all sides in one run, interleaved, as ratios.

mod jobs;
mod machine;
mod peer;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As the program does (see its `main.rs`): what is measured is what users run.
#[allow(unsafe_code)]
fn keep_pages() {
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: sets a number in the allocator's options; called before any other thread starts.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) }
}

/// Measures the engine against its peers (installed into a virtual environment of their own) and the machine's limits.
#[derive(Parser, Debug)]
pub(crate) struct Args {
    /// Jobs to run; all where none is named.
    #[arg(value_enum)]
    jobs: Vec<jobs::Job>,
    /// Runs of each side, interleaved; the median counts.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Threads of each side.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Models, by name or file.
    #[arg(long, num_args = 1.., default_values = ["smollm2-135m", "qwen2.5-coder-0.5b"])]
    models: Vec<String>,
    /// Measure without the peers.
    #[arg(long)]
    alone: bool,
    /// Where the peers are installed.
    #[arg(long, default_value = "target/bench")]
    home: PathBuf,
    /// Write all figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the table here as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

fn main() -> ExitCode {
    keep_pages();
    let args = Args::parse();
    std::env::set_var("RAYON_NUM_THREADS", args.threads.to_string());
    match jobs::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
