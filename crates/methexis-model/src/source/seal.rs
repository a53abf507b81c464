//! What was checked once need not be hashed again: a small file beside the model remembers it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{cache, Progress};
use crate::{Cancel, Error, Result};

/// One checked file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sealed {
    /// Path inside the model folder, with `/`; empty where the model is the file itself.
    pub(crate) path: String,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Time of the last change, nanoseconds since 1970.
    pub(crate) modified: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub(crate) sha256: String,
}

/// The content of `….verified.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    pub(crate) files: Vec<Sealed>,
}

impl Seal {
    /// Where the seal of a model lies.
    pub(crate) fn beside(model: &Path) -> PathBuf {
        let mut name = model.file_name().unwrap_or_default().to_os_string();
        name.push(".verified.json");
        model.with_file_name(name)
    }

    /// Reads the seal of a model; a missing or unreadable one only costs a new check.
    pub(crate) fn read(model: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::beside(model)).ok()?).ok()
    }

    /// Hashes a file, or every file of a folder.
    pub(crate) fn of(model: &Path, progress: &dyn Progress, cancel: &Cancel) -> Result<Self> {
        let mut paths = Vec::new();
        if model.is_dir() {
            list(model, "", &mut paths)?;
            paths.sort();
        } else {
            paths.push(String::new());
        }
        let seal = |path: String| -> Result<Sealed> {
            let full = place(model, &path);
            let (bytes, modified) = stamp(&full).map_err(|source| Error::io(&full, "read", source))?;
            let sha256 = hash_file(&full, progress, cancel)?;
            Ok(Sealed { path, bytes, modified, sha256 })
        };
        Ok(Self { files: paths.into_iter().map(seal).collect::<Result<_>>()? })
    }

    /// Writes the seal. Best effort: where the cache is read-only, the next run checks again.
    pub(crate) fn write(&self, model: &Path) {
        if let Ok(text) = serde_json::to_vec_pretty(self) {
            let _ = cache::write_whole(&Self::beside(model), &text);
        }
    }

    /// SHA-256 of one of the files.
    pub(crate) fn sha256_of(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.sha256.as_str())
    }

    /// Whether every file still has the size and the time that it had when it was checked.
    pub(crate) fn untouched(&self, model: &Path) -> bool {
        !self.files.is_empty()
            && self.files.iter().all(|file| {
                stamp(&place(model, &file.path)).is_ok_and(|found| found == (file.bytes, file.modified))
            })
    }

    /// The first file whose content differs from that of an earlier seal, or that is missing.
    pub(crate) fn first_change<'a>(&self, earlier: &'a Self) -> Option<&'a Sealed> {
        earlier.files.iter().find(|file| self.sha256_of(&file.path) != Some(&file.sha256))
    }
}

/// The place of a sealed file.
pub(crate) fn place(model: &Path, inner: &str) -> PathBuf {
    if inner.is_empty() {
        return model.to_path_buf();
    }
    model.join(inner)
}

fn list(folder: &Path, prefix: &str, into: &mut Vec<String>) -> Result<()> {
    let here = |source| Error::io(folder, "read", source);
    for entry in std::fs::read_dir(folder).map_err(here)? {
        let entry = entry.map_err(here)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().map_err(here)?.is_dir() {
            list(&entry.path(), &format!("{name}/"), into)?;
        } else {
            into.push(name);
        }
    }
    Ok(())
}

fn stamp(path: &Path) -> std::io::Result<(u64, u64)> {
    let data = std::fs::metadata(path)?;
    let since = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((data.len(), u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}

/// SHA-256 of a file in lower-case hexadecimal, read in pieces.
pub(crate) fn hash_file(path: &Path, progress: &dyn Progress, cancel: &Cancel) -> Result<String> {
    let failed = |source| Error::io(path, "read", source);
    let mut file = File::open(path).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    let shown = total > 32 << 20;
    if shown {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        progress.start(&format!("checking {name}"), Some(total));
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    let mut done = 0_u64;
    loop {
        cancel.check()?;
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            break;
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
        done += count as u64;
        if shown {
            progress.advance(done);
        }
    }
    if shown {
        progress.finish("checked");
    }
    Ok(hex(&hasher.finalize()))
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Quiet;

    #[test]
    fn a_folder_is_sealed_with_all_that_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("m");
        std::fs::create_dir_all(model.join("sub")).unwrap();
        std::fs::write(model.join("a"), "abc").unwrap();
        std::fs::write(model.join("sub/b"), "").unwrap();
        let seal = Seal::of(&model, &Quiet, &Cancel::default()).unwrap();
        // The two values are the published test vectors of SHA-256.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!((seal.sha256_of("a"), seal.sha256_of("sub/b")), (Some(abc), Some(empty)));
        seal.write(&model);
        assert_eq!(Seal::read(&model), Some(seal.clone()));
        assert!(seal.untouched(&model));
        std::fs::write(model.join("sub/b"), "x").unwrap();
        assert!(!seal.untouched(&model));
        let now = Seal::of(&model, &Quiet, &Cancel::default()).unwrap();
        assert_eq!(now.first_change(&seal).unwrap().path, "sub/b");
    }
}
