//! The cache folder: where things lie in it, who may write, and what to say when the disk refuses.
//! Its layout is drawn in the documentation of [`super`].

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Progress;
use crate::{Cancel, Error, Result};

/// The folder in which fetched models are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// A cache in a folder of the caller's choice; it need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        // pip is run from another folder, so a relative path would change its meaning under way.
        Self { root: std::path::absolute(&root).unwrap_or(root) }
    }

    /// The user's cache: `METHEXIS_CACHE`, else `$XDG_CACHE_HOME/methexis`, else the system's custom
    /// (`~/.cache/methexis`; `~/Library/Caches/methexis` on macOS; `%LOCALAPPDATA%\methexis` on Windows).
    ///
    /// # Errors
    /// [`Error::Input`] where none of these variables nor a home folder is set.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(&|name| std::env::var_os(name))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self> {
        let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(root) = folder("METHEXIS_CACHE") {
            return Ok(Self::at(root));
        }
        let base = folder("XDG_CACHE_HOME").or_else(|| {
            if cfg!(windows) {
                return folder("LOCALAPPDATA");
            }
            let home = folder("HOME")?;
            Some(home.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" }))
        });
        match base {
            Some(base) => Ok(Self::at(base.join("methexis"))),
            None => {
                Err(Error::input("cache folder", "no home folder is known; set METHEXIS_CACHE to a folder"))
            }
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the finished models lie.
    pub(crate) fn models(&self) -> PathBuf {
        self.root.join("models")
    }

    /// Where the unfinished pieces of one model lie.
    pub(crate) fn partial(&self, name: &str) -> PathBuf {
        self.root.join("partial").join(name)
    }

    /// Takes the right to fetch `name`, waiting for another process that holds it.
    pub(crate) fn lock(&self, name: &str, progress: &dyn Progress, cancel: &Cancel) -> Result<Lock> {
        let folder = self.root.join("locks");
        make_folder(&folder)?;
        Lock::take(&folder.join(format!("{name}.lock")), name, progress, cancel)
    }
}

/// The right to fetch one model; given back on drop, also when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Locks the file `path`, made where it is missing, and says so where another process has to finish first.
    pub(crate) fn take(path: &Path, what: &str, progress: &dyn Progress, cancel: &Cancel) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|source| cannot_write(path, "lock", source))?;
        let mut waiting = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    if !waiting {
                        progress.start(&format!("{what}: another process is fetching it, waiting"), None);
                        waiting = true;
                    }
                    cancel.check()?;
                    std::thread::sleep(Duration::from_millis(100));
                }
                // A file system without locks is still one on which a single user can work.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => break,
                Err(TryLockError::Error(error)) => return Err(cannot_write(path, "lock", error)),
            }
        }
        if waiting {
            progress.finish("the other process is done");
        }
        Ok(Self { _file: file })
    }
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|source| cannot_write(path, "create folder", source))
}

/// Writes `bytes` under a temporary name and renames, so that no reader sees half a file.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        io::Write::write_all(&mut file, bytes)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|source| cannot_write(path, "write", source))
}

/// Removes a file or a folder; that it is not there is no error.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(data) if data.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot_write(path, "remove", error)),
        _ => Ok(()),
    }
}

/// The error for a refused write: with a remedy where the reason is a common one.
pub(crate) fn cannot_write(path: &Path, action: &'static str, source: io::Error) -> Error {
    let remedy = match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full; what is fetched so far is kept. Free some space and run the same command again, \
             or set METHEXIS_CACHE (for hub models HF_HUB_CACHE) to a folder on a larger disk"
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            "the cache cannot be written; set METHEXIS_CACHE (for hub models HF_HUB_CACHE) to a folder that can be"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a file lies where the cache needs a folder; set METHEXIS_CACHE (for hub models HF_HUB_CACHE) to a folder"
        }
        _ => return Error::io(path, action, source),
    };
    Error::fetch(format!("{}: {action} failed", path.display()), format!("{remedy} ({source})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(set: &[(&str, &str)]) -> Result<PathBuf> {
        let find =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        Cache::from_variables(&find).map(|cache| cache.root)
    }

    #[test]
    #[cfg(all(unix, not(target_os = "macos")))]
    fn the_folder_follows_the_variables_in_order() {
        let all = [("METHEXIS_CACHE", "/m"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(root(&all).unwrap(), Path::new("/m"));
        assert_eq!(root(&all[1..]).unwrap(), Path::new("/x/methexis"));
        assert_eq!(root(&all[2..]).unwrap(), Path::new("/h/.cache/methexis"));
        // An empty variable counts as unset, as the XDG rules say.
        assert_eq!(root(&[("METHEXIS_CACHE", ""), ("HOME", "/h")]).unwrap(), Path::new("/h/.cache/methexis"));
        assert!(root(&[]).unwrap_err().to_string().contains("METHEXIS_CACHE"));
    }

    #[test]
    fn a_full_disk_and_a_read_only_one_name_the_remedy() {
        for (kind, word) in
            [(ErrorKind::StorageFull, "full"), (ErrorKind::ReadOnlyFilesystem, "METHEXIS_CACHE")]
        {
            let text = cannot_write(Path::new("/c/x"), "write", kind.into()).to_string();
            assert!(text.contains(word) && text.contains("/c/x"), "{text}");
        }
    }
}
