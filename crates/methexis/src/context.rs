//! What every command shares: cache, progress, the stop flag; opening models.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use candle_core::Device;
use methexis_model::chat::ChatTemplate;
use methexis_model::checkpoint::Precision;
use methexis_model::source::{FetchOptions, Resolved, Source};
use methexis_model::{Cancel, Model};

use crate::cli::{Global, Weights};
use crate::progress::Bars;

/// What a command fails with.
#[derive(Debug)]
pub(crate) enum Failure {
    /// From the rooms below.
    Concept(methexis_concept::Error),
    /// Wrong usage that the argument parser cannot see.
    Usage(String),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<methexis_concept::Error> for Failure {
    fn from(e: methexis_concept::Error) -> Self {
        Self::Concept(e)
    }
}

impl From<methexis_model::Error> for Failure {
    fn from(e: methexis_model::Error) -> Self {
        Self::Concept(e.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Concept(e) => e.fmt(f),
            Self::Usage(s) => f.write_str(s),
        }
    }
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Whether what was asked for is wrong, rather than the world.
    pub(crate) fn is_usage(&self) -> bool {
        use methexis_concept::Error as C;
        use methexis_model::Error as M;
        matches!(self, Self::Usage(_) | Self::Concept(C::Input { .. } | C::Model(M::Input { .. })))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Concept(e) if e.is_cancelled())
    }
}

/// Sets the number of threads of all pools; must come before the first of them starts.
pub(crate) fn set_threads(threads: Option<usize>) {
    // Where the number is not said, candle asks the kernel for it before every product.
    let cores = || std::thread::available_parallelism().ok().map(std::num::NonZero::get);
    let said = std::env::var_os("RAYON_NUM_THREADS").is_some();
    if let Some(n) = threads.or_else(|| if said { None } else { cores() }) {
        std::env::set_var("RAYON_NUM_THREADS", n.to_string());
    }
    // Two pools share the cores; the one that spins while it waits takes them from the other.
    if std::env::var_os("CANDLE_BARRIER_POOL_SPIN_LIMIT").is_none() {
        std::env::set_var("CANDLE_BARRIER_POOL_SPIN_LIMIT", "200");
    }
}

/// What every command shares.
pub(crate) struct Context {
    pub(crate) cancel: Cancel,
    /// Whether a command waits for its user and so has nothing to finish.
    pub(crate) waits: Arc<AtomicBool>,
    pub(crate) bars: Arc<Bars>,
    pub(crate) fetch: FetchOptions,
    pub(crate) seed: u64,
    pub(crate) quiet: bool,
    pub(crate) json: bool,
    weights: Weights,
    template: Option<PathBuf>,
}

impl Context {
    pub(crate) fn new(global: &Global) -> Result<Self> {
        let cancel = Cancel::default();
        let waits = Arc::new(AtomicBool::new(false));
        let (flag, idle) = (cancel.clone(), waits.clone());
        let asked = ctrlc::set_handler(move || {
            if flag.is_cancelled() || idle.load(Ordering::SeqCst) {
                // The second time is meant, and so is the first where nothing is at work.
                eprintln!("\nstopped");
                std::process::exit(130);
            }
            flag.cancel();
            eprintln!("\nstopping after this step (once more to stop at once)");
        });
        if let Err(e) = asked {
            return Err(Failure::usage(format!("the stop signal cannot be caught: {e}")));
        }
        let bars = Arc::new(Bars::new(global.quiet));
        let mut fetch = FetchOptions::from_env()?;
        fetch.offline |= global.offline;
        fetch.cancel = cancel.clone();
        fetch.progress = bars.clone();
        Ok(Self {
            cancel,
            waits,
            bars,
            fetch,
            seed: global.seed,
            quiet: global.quiet,
            json: global.json,
            weights: global.weights,
            template: global.template.clone(),
        })
    }

    /// Finds (and fetches, where need be) what the user calls `name`.
    pub(crate) fn resolve(&self, name: &str) -> Result<Resolved> {
        let found = Source::parse(name)?.resolve(&self.fetch)?;
        self.bars.clear();
        Ok(found)
    }

    /// Opens the model that the user calls `name`.
    pub(crate) fn open(&self, name: &str) -> Result<Model> {
        self.open_as(name, self.weights.into())
    }

    /// Opens a model with its weights held in a given way.
    pub(crate) fn open_as(&self, name: &str, precision: Precision) -> Result<Model> {
        let found = self.resolve(name)?;
        let mut model = Model::open(&found.path, &found.name, precision, device()?)?;
        if let Some(path) = &self.template {
            let source =
                std::fs::read_to_string(path).map_err(|e| methexis_model::Error::io(path, "reading", e))?;
            model.set_template(ChatTemplate::new(source, path.display().to_string())?);
        }
        Ok(model)
    }
}

/// The best device that this build supports.
fn device() -> Result<Device> {
    if cfg!(feature = "cuda") {
        return Ok(Device::new_cuda(0).map_err(methexis_model::Error::from)?);
    }
    if cfg!(feature = "metal") {
        return Ok(Device::new_metal(0).map_err(methexis_model::Error::from)?);
    }
    Ok(Device::Cpu)
}

impl From<Weights> for Precision {
    fn from(w: Weights) -> Self {
        match w {
            Weights::F32 => Self::F32,
            Weights::Quantized => Self::Quantized,
        }
    }
}
