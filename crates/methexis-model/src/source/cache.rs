//! The folder of fetched models.
//!
//! Layout: `<cache>/models/<name>/<file>` and beside it `<file>.verified` (size, time and SHA-256 of the check, so that
//! a later run need not hash again); `<cache>/models/<name>/.parts/` while a fetch is under way.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::named::NamedModel;
use crate::{Cancel, Error, Result};

/// The folder of fetched models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// A cache in `root`; nothing is made until something is fetched.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `METHEXIS_CACHE`, else `methexis` in the user's cache folder.
    ///
    /// # Errors
    /// [`Error::Input`] where the environment names no home.
    pub fn from_env() -> Result<Self> {
        let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(root) = var("METHEXIS_CACHE") {
            return Ok(Self::new(root));
        }
        let base = if cfg!(windows) {
            var("LOCALAPPDATA")
        } else if cfg!(target_os = "macos") {
            var("HOME").map(|h| h.join("Library/Caches"))
        } else {
            var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|h| h.join(".cache")))
        };
        base.map(|b| Self::new(b.join("methexis")))
            .ok_or_else(|| Error::input("cache", "no home folder is known; set METHEXIS_CACHE to a folder"))
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a model.
    pub(super) fn model(&self, model: &NamedModel) -> PathBuf {
        self.root.join("models").join(model.name)
    }

    /// The model, where it is here and was verified.
    pub(super) fn verified(&self, model: &NamedModel) -> Option<PathBuf> {
        let file = self.model(model).join(model.file);
        let stamp = fs::read_to_string(stamp_path(&file)).ok()?;
        (stamp == stamp_of(&file, model.sha256)?).then(|| self.place(model))
    }

    /// What is opened: the file, or the folder around it.
    pub(super) fn place(&self, model: &NamedModel) -> PathBuf {
        if model.folder {
            self.model(model)
        } else {
            self.model(model).join(model.file)
        }
    }

    /// Hashes the file and, where it is right, marks it as verified.
    pub(super) fn verify(&self, model: &NamedModel, file: &Path, cancel: &Cancel) -> Result<()> {
        let found = sha256(file, cancel)?;
        if found != model.sha256 {
            return Err(Error::fetch(
                format!("{} ({})", model.name, file.display()),
                format!("has SHA-256 {found} instead of {}; remove the file and fetch again", model.sha256),
            ));
        }
        if let Some(stamp) = stamp_of(file, model.sha256) {
            // A cache that cannot be written only costs another hash next time.
            let _ = fs::write(stamp_path(file), stamp);
        }
        Ok(())
    }
}

fn stamp_path(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(".verified");
    file.with_file_name(name)
}

fn stamp_of(file: &Path, sha256: &str) -> Option<String> {
    let meta = fs::metadata(file).ok()?;
    let time = meta.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(format!("{} {} {sha256}\n", meta.len(), time.as_nanos()))
}

/// SHA-256 of a file, as hex.
pub(super) fn sha256(file: &Path, cancel: &Cancel) -> Result<String> {
    let mut f = File::open(file).map_err(|e| Error::io(file, "opening", e))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        cancel.check()?;
        let n = f.read(&mut buffer).map_err(|e| Error::io(file, "reading", e))?;
        if n == 0 {
            break;
        }
        hash.update(buffer.get(..n).unwrap_or_default());
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// A lock that other processes see; freed when dropped.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock in `folder`, waiting for another process that fetches the same model.
    pub(super) fn take(folder: &Path, cancel: &Cancel, waiting: impl Fn()) -> Result<Self> {
        let path = folder.join(".lock");
        let file = File::create(&path).map_err(|e| {
            let hint = if e.kind() == std::io::ErrorKind::PermissionDenied || e.raw_os_error() == Some(30) {
                "making a lock in the cache (is it read-only? set METHEXIS_CACHE to a folder that can be written)"
            } else {
                "making a lock in the cache"
            };
            Error::io(&path, hint, e)
        })?;
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(fs::TryLockError::WouldBlock) => {
                    if !said {
                        waiting();
                        said = true;
                    }
                    cancel.check()?;
                    std::thread::sleep(std::time::Duration::from_millis(200));
                }
                Err(fs::TryLockError::Error(e)) => return Err(Error::io(&path, "locking", e)),
            }
        }
    }
}
