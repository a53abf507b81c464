//! One file over HTTP, that can be stopped at any byte and gone on with later.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use super::cache::cannot_write;
use super::network::in_words;
use super::{seal, Progress};
use crate::{Cancel, Error, Result};

/// Attempts in a row that may bring nothing new before it is given up.
const FRUITLESS: u32 = 4;

/// What to fetch.
pub(crate) struct Job<'a> {
    /// Words for messages and the progress bar.
    pub(crate) what: &'a str,
    /// Address.
    pub(crate) url: &'a str,
    /// Further request headers.
    pub(crate) headers: &'a [(&'a str, String)],
    /// The file that is filled, and gone on with where it already holds bytes.
    pub(crate) partial: &'a Path,
    /// SHA-256 of the whole, where known.
    pub(crate) sha256: Option<&'a str>,
    /// Size of the whole, where known.
    pub(crate) bytes: Option<u64>,
    /// More bytes than this are not taken from any server.
    pub(crate) limit: u64,
}

/// Why there is no file.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server or the way to it failed: another way to the same bytes may work.
    Server(Error),
    /// No other way helps: stopped, refused by the disk, or wrong bytes.
    Fatal(Error),
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Server(error) | Trouble::Fatal(error) => error,
        }
    }
}

/// How one attempt ended without the whole file.
enum Attempt {
    Again { reason: String, pause: Option<Duration> },
    Over(Trouble),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Self {
        Self::Over(Trouble::Fatal(error))
    }
}

fn again(reason: impl Into<String>) -> Attempt {
    Attempt::Again { reason: reason.into(), pause: None }
}

/// Fetches a file into `job.partial` and checks it; the caller then moves it to where it belongs.
/// Returns its SHA-256. What has been fetched stays in place on every error but wrong bytes.
pub(crate) fn fetch(
    agent: &Agent,
    job: &Job<'_>,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<String, Trouble> {
    let mut partial = Partial::open(job.partial, cancel).map_err(Trouble::Fatal)?;
    let mut inherited = partial.bytes > 0;
    let mut started = false;
    loop {
        complete(agent, job, &mut partial, &mut started, progress, cancel)?;
        let found = seal::hex(&partial.hasher.clone().finalize());
        let size_fits = job.bytes.is_none_or(|bytes| bytes == partial.bytes);
        if size_fits && job.sha256.is_none_or(|wanted| wanted.eq_ignore_ascii_case(&found)) {
            partial
                .file
                .sync_all()
                .map_err(|source| Trouble::Fatal(cannot_write(job.partial, "write", source)))?;
            progress.finish("fetched");
            return Ok(found);
        }
        if inherited {
            // The beginning came from an earlier run, perhaps of another file: once more from zero.
            inherited = false;
            partial.truncate().map_err(Trouble::Fatal)?;
            continue;
        }
        progress.finish("wrong content");
        let problem = format!(
            "the server gave {} bytes with SHA-256 {found} in place of {}{}; they were thrown away. Run the same \
             command again; if it persists, something between here and the server (a proxy, a mirror) alters files",
            partial.bytes,
            job.bytes.map(|bytes| format!("{bytes} bytes with ")).unwrap_or_default(),
            job.sha256.unwrap_or("another one"),
        );
        drop(partial);
        super::cache::remove(job.partial).map_err(Trouble::Fatal)?;
        return Err(Trouble::Fatal(Error::fetch(job.what, problem)));
    }
}

/// Attempts until the file is whole.
fn complete(
    agent: &Agent,
    job: &Job<'_>,
    partial: &mut Partial<'_>,
    started: &mut bool,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<(), Trouble> {
    let mut furthest = partial.bytes;
    let mut fruitless = 0;
    loop {
        let (reason, pause) = match attempt(agent, job, partial, started, progress, cancel) {
            Ok(()) => return Ok(()),
            Err(Attempt::Over(trouble)) => {
                if *started {
                    progress.finish("stopped");
                }
                return Err(trouble);
            }
            Err(Attempt::Again { reason, pause }) => (reason, pause),
        };
        if partial.bytes > furthest {
            furthest = partial.bytes;
            fruitless = 0;
        }
        fruitless += 1;
        if fruitless >= FRUITLESS {
            if *started {
                progress.finish("stopped");
            }
            let kept = match partial.bytes {
                0 => String::new(),
                bytes => format!(" {bytes} bytes are kept, and the next run goes on from there."),
            };
            let problem =
                format!("{reason}, {fruitless} times in a row.{kept} Check the network and run again");
            return Err(Trouble::Server(Error::fetch(job.what, problem)));
        }
        rest(pause.unwrap_or(Duration::from_millis(250 << fruitless)), cancel).map_err(Trouble::Fatal)?;
    }
}

/// One request, and what it brings.
fn attempt(
    agent: &Agent,
    job: &Job<'_>,
    partial: &mut Partial<'_>,
    started: &mut bool,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<(), Attempt> {
    cancel.check()?;
    let mut request = agent.get(job.url);
    for (name, value) in job.headers {
        request = request.header(*name, value);
    }
    if partial.bytes > 0 {
        request = request.header("Range", format!("bytes={}-", partial.bytes));
    }
    let response = request.call().map_err(|error| again(in_words(&error)))?;
    let Some(total) = accept(&response, job, partial)? else { return Ok(()) };
    if !*started {
        progress.start(job.what, total);
        *started = true;
    }
    progress.advance(partial.bytes);
    if total.is_some_and(|total| total > job.limit) {
        return Err(too_large(job));
    }
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0_u8; 256 << 10];
    loop {
        cancel.check()?;
        let count =
            body.read(&mut buffer).map_err(|error| again(format!("the connection broke ({error})")))?;
        if count == 0 {
            break;
        }
        if partial.bytes.saturating_add(count as u64) > job.limit {
            return Err(too_large(job));
        }
        partial.append(buffer.get(..count).unwrap_or_default())?;
        progress.advance(partial.bytes);
    }
    match total {
        Some(total) if partial.bytes < total => Err(again("the connection ended too early")),
        Some(total) if partial.bytes > total => {
            partial.truncate()?;
            Err(again("the server sent more than it announced"))
        }
        _ => Ok(()),
    }
}

/// Reads the head of a response and brings the partial file to where the body begins. `None`: nothing is missing.
fn accept(
    response: &Response<Body>,
    job: &Job<'_>,
    partial: &mut Partial<'_>,
) -> Result<Option<Option<u64>>, Attempt> {
    let headers = response.headers();
    match response.status().as_u16() {
        200 => {
            // A server that knows no ranges starts over, and so do we.
            partial.truncate()?;
            Ok(Some(number(headers, "content-length")))
        }
        206 => match range(headers) {
            Some((Some(start), total)) if start == partial.bytes => Ok(Some(total)),
            _ => {
                partial.truncate()?;
                Err(again("the server sent another range than the one asked for"))
            }
        },
        416 if range(headers) == Some((None, Some(partial.bytes))) => Ok(None),
        416 => {
            partial.truncate()?;
            Err(again("the server has a shorter file than what was fetched before"))
        }
        status @ (408 | 429 | 500..=599) => {
            let pause = number(headers, "retry-after").map(|seconds| Duration::from_secs(seconds.min(60)));
            Err(Attempt::Again { reason: format!("the server answered with status {status}"), pause })
        }
        status => {
            let hint = match status {
                401 | 403 => " (not allowed: does it need a login or a token?)",
                404 | 410 => " (no such file)",
                407 => " (the proxy wants a login)",
                _ => "",
            };
            let problem = format!("the server answered with status {status}{hint}");
            Err(Attempt::Over(Trouble::Server(Error::fetch(job.what, problem))))
        }
    }
}

fn too_large(job: &Job<'_>) -> Attempt {
    let problem = format!(
        "the server offers more than the {} bytes that this can be; nothing more was taken",
        job.limit
    );
    Attempt::Over(Trouble::Fatal(Error::fetch(job.what, problem)))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// `Content-Range: bytes 5-9/10` is `(Some(5), Some(10))`; `bytes */10` is `(None, Some(10))`.
fn range(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let text = headers.get("content-range")?.to_str().ok()?.trim().strip_prefix("bytes")?;
    let (span, total) = text.trim().split_once('/')?;
    let start = span.split_once('-').and_then(|(start, _)| start.trim().parse().ok());
    Some((start, total.trim().parse().ok()))
}

/// Sleeps, but not through a stop.
pub(crate) fn rest(pause: Duration, cancel: &Cancel) -> Result<()> {
    let step = Duration::from_millis(50);
    let mut left = pause;
    while !left.is_zero() {
        cancel.check()?;
        std::thread::sleep(step.min(left));
        left = left.saturating_sub(step);
    }
    cancel.check()
}

/// The file being filled, with the hash of what is in it.
struct Partial<'a> {
    path: &'a Path,
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl<'a> Partial<'a> {
    fn open(path: &'a Path, cancel: &Cancel) -> Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = file.map_err(|source| cannot_write(path, "write", source))?;
        let mut hasher = Sha256::new();
        let mut bytes = 0;
        let mut buffer = vec![0_u8; 1 << 20];
        loop {
            cancel.check()?;
            let count = file.read(&mut buffer).map_err(|source| Error::io(path, "read", source))?;
            if count == 0 {
                return Ok(Self { path, file, hasher, bytes });
            }
            hasher.update(buffer.get(..count).unwrap_or_default());
            bytes += count as u64;
        }
    }

    fn append(&mut self, piece: &[u8]) -> Result<()> {
        // After a write that failed half-way the file may hold bytes that are not counted: it is cut back, so that
        // what the next run finds is what was hashed.
        self.file.write_all(piece).map_err(|source| {
            let _ = self.file.set_len(self.bytes);
            cannot_write(self.path, "write", source)
        })?;
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let cut = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cut.map_err(|source| cannot_write(self.path, "write", source))?;
        self.hasher = Sha256::new();
        self.bytes = 0;
        Ok(())
    }
}
