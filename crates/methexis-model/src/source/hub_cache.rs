//! The hub's own cache on disk, which other programs fill and read too.
//!
//! ```text
//! <hub>/models--<owner>--<name>/refs/<revision>              the commit that a branch or tag meant last
//! <hub>/models--<owner>--<name>/snapshots/<commit>/<file>    links into blobs
//! <hub>/models--<owner>--<name>/blobs/<etag>                 contents; <etag>.incomplete while fetched
//! <hub>/.locks/models--<owner>--<name>/<etag>.lock           held while a process fetches that blob
//! ```

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::cache::{self, cannot_write};
use crate::Result;

/// Where the hub's tools keep their files, as they find it themselves: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`,
/// `HF_HOME/hub`, `XDG_CACHE_HOME/huggingface/hub`, `~/.cache/huggingface/hub`.
pub(crate) fn folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE")).or_else(|| Some(home(variable)?.join("hub")))
}

/// `HF_HOME` and what stands for it where it is not set.
pub(crate) fn home(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HF_HOME")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("huggingface")))
        .or_else(|| Some(set("HOME").or_else(|| set("USERPROFILE"))?.join(".cache").join("huggingface")))
}

/// The part of the cache that belongs to one repository.
pub(crate) struct Shelf {
    hub: PathBuf,
    repo: String,
}

impl Shelf {
    /// The shelf of `repo` (`owner/name`) in the cache `hub`; nothing is made yet.
    pub(crate) fn new(hub: &Path, repo: &str) -> Self {
        Self { hub: hub.to_path_buf(), repo: format!("models--{}", repo.replace('/', "--")) }
    }

    fn root(&self) -> PathBuf {
        self.hub.join(&self.repo)
    }

    /// The commit that a revision means here, if the cache knows it.
    pub(crate) fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_string());
        }
        let text = std::fs::read_to_string(self.root().join("refs").join(revision)).ok()?;
        Some(text.trim().to_string()).filter(|commit| is_commit(commit))
    }

    /// The folder of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root().join("snapshots").join(commit)
    }

    /// All files of a commit that are here and whole, with `/` in their names.
    pub(crate) fn files(&self, commit: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![(self.snapshot(commit), String::new())];
        while let Some((folder, prefix)) = open.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                // Links are followed: one that leads nowhere is no file.
                if entry.path().is_dir() {
                    open.push((entry.path(), format!("{name}/")));
                } else if entry.path().is_file() {
                    found.push(name);
                }
            }
        }
        found.sort();
        found
    }

    /// Where the content with this etag lies or will lie.
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.root().join("blobs").join(etag)
    }

    /// The lock file for this content; its folder is made.
    pub(crate) fn lock_file(&self, etag: &str) -> Result<PathBuf> {
        let folder = self.hub.join(".locks").join(&self.repo);
        cache::make_folder(&folder)?;
        Ok(folder.join(format!("{etag}.lock")))
    }

    /// Remembers which commit a branch or tag means. Best effort, as it only serves later offline runs.
    pub(crate) fn remember(&self, revision: &str, commit: &str) {
        if is_commit(revision) || self.commit(revision).as_deref() == Some(commit) {
            return;
        }
        let path = self.root().join("refs").join(revision);
        if path.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok()) {
            let _ = cache::write_whole(&path, commit.as_bytes());
        }
    }

    /// Makes `snapshots/<commit>/<file>` lead to the blob.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<()> {
        let path = self.snapshot(commit).join(file);
        cache::make_folder(path.parent().unwrap_or(&path))?;
        cache::remove(&path)?;
        // Relative, so that the cache can be moved as a whole.
        let up = "../".repeat(2 + file.split('/').count() - 1);
        let target = format!("{up}blobs/{etag}");
        link_or_copy(Path::new(&target), &self.blob(etag), &path)
            .map_err(|source| cannot_write(&path, "link", source))
    }
}

#[cfg(unix)]
fn link_or_copy(target: &Path, _blob: &Path, path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Windows lets only some users make links; a file that lies there itself serves as well.
#[cfg(not(unix))]
fn link_or_copy(_target: &Path, blob: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::hard_link(blob, path).or_else(|_| std::fs::copy(blob, path).map(|_| ()))
}

/// Whether a revision is the full name of a commit.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a name given by a server may become a path below our folder.
pub(crate) fn is_safe(name: &str) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    !name.is_empty() && !name.contains(['\\', ':', '\0']) && Path::new(name).components().all(plain)
}
