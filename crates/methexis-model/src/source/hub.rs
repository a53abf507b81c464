//! Models of the hub, over its HTTP interface, into its own cache.
//!
//! The crate hf-hub would do this too; in its version 1.0 it starts every download from zero, cannot be stopped,
//! does not know `HF_HUB_OFFLINE`, and brings some two hundred crates and a second TLS library.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use super::cache::{cannot_write, make_folder, Lock};
use super::download::{self, Job, Trouble};
use super::hub_cache::{self, is_commit, is_safe, Shelf};
use super::hub_files::{self, Choice};
use super::network::{self, in_words, Via};
use super::{FetchOptions, Progress, Quiet, Resolved};
use crate::{Cancel, Error, Result};

/// More of an answer than this is not read: lists of files are far smaller.
const ANSWER: u64 = 64 << 20;

/// Files below this many bytes are fetched without a progress bar.
const SMALL: u64 = 1 << 20;

/// Where the hub is and who asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hub {
    pub(crate) endpoint: String,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) token: Option<String>,
}

impl Hub {
    /// Reads the variables that the hub's own tools read.
    pub(crate) fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| {
            let value = variable(name)?.to_string_lossy().trim().to_string();
            (!value.is_empty()).then_some(value)
        };
        let flag =
            |name: &str| text(name).is_some_and(|value| !matches!(value.as_str(), "0" | "false" | "no"));
        let kept = || {
            let path = text("HF_TOKEN_PATH").map(PathBuf::from);
            let path = path.or_else(|| Some(hub_cache::home(variable)?.join("token")))?;
            let token = std::fs::read_to_string(path).ok()?.trim().to_string();
            (!token.is_empty()).then_some(token)
        };
        let token = match flag("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            true => None,
            false => text("HF_TOKEN").or_else(kept),
        };
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Self {
            endpoint: endpoint.trim_end_matches('/').to_string(),
            folder: hub_cache::folder(variable),
            token,
        }
    }
}

/// What is asked of the hub.
pub(crate) struct Wanted<'a> {
    pub(crate) repo: &'a str,
    pub(crate) revision: Option<&'a str>,
    pub(crate) file: Option<&'a str>,
}

impl Wanted<'_> {
    fn revision(&self) -> &str {
        self.revision.unwrap_or("main")
    }

    fn in_words(&self) -> String {
        let file = self.file.map(|file| format!(":{file}")).unwrap_or_default();
        format!("{}@{}{file}", self.repo, self.revision())
    }
}

/// Gives the model's path in the hub's cache, fetching what is missing unless `offline`.
pub(crate) fn resolve(
    wanted: &Wanted<'_>,
    hub: &Hub,
    options: &FetchOptions,
    offline: bool,
) -> Result<Resolved> {
    let Some(folder) = &hub.folder else {
        return Err(Error::input("the hub's cache", "no home folder is known; set HF_HUB_CACHE to a folder"));
    };
    let shelf = Shelf::new(folder, wanted.repo);
    if offline {
        let unfetched = |reason: String| {
            let problem = format!(
                "{reason}, and offline mode forbids fetching it from {}. Run once without offline mode, or set \
                 HF_HUB_CACHE to a folder that has it",
                hub.endpoint
            );
            Error::fetch(wanted.in_words(), problem)
        };
        return from_cache(wanted, &shelf, "offline")
            .map_err(|problem| unfetched(format!("{problem} in the cache {}", folder.display())));
    }
    let client = network::client(None, Via::Environment)?;
    let session = Session { wanted, hub, options, client, shelf };
    match session.fetch() {
        Ok(resolved) => Ok(resolved),
        Err(Trouble::Fatal(error)) => Err(error),
        // As the hub's own tools do: what is there is used when the way to the hub is barred.
        Err(Trouble::Server(error)) => {
            from_cache(wanted, &session.shelf, "the hub did not answer").map_err(|_| error)
        }
    }
}

/// The model from what other runs or programs have left; `Err` is the reason in words.
fn from_cache(wanted: &Wanted<'_>, shelf: &Shelf, why: &str) -> Result<Resolved, String> {
    let commit = shelf.commit(wanted.revision()).ok_or("the revision is not")?;
    let files = shelf.files(&commit);
    if files.is_empty() {
        return Err("its files are not".into());
    }
    let choice = hub_files::choose(wanted.repo, &files, wanted.file).map_err(|error| error.to_string())?;
    let missing = match choice {
        Choice::Folder(_) => hub_files::missing_shards(&shelf.snapshot(&commit)),
        Choice::File(_) => Vec::new(),
    };
    if !missing.is_empty() {
        return Err(format!("{} are not", missing.join(", ")));
    }
    Ok(resolved(wanted, shelf, &commit, choice, None, &format!(", from the cache ({why})")))
}

fn resolved(
    wanted: &Wanted<'_>,
    shelf: &Shelf,
    commit: &str,
    choice: Choice,
    licence: Option<String>,
    note: &str,
) -> Resolved {
    let snapshot = shelf.snapshot(commit);
    let single = match &choice {
        Choice::File(file) => Some(file.clone()),
        Choice::Folder(files) => {
            let mut weights = files.iter().filter(|file| file.ends_with(".safetensors"));
            weights.next().filter(|_| weights.next().is_none()).cloned()
        }
    };
    // A link into `blobs` bears the SHA-256 of large files as its target's name.
    let blob = single.and_then(|file| std::fs::read_link(snapshot.join(file)).ok());
    let sha256 =
        blob.and_then(|path| Some(path.file_name()?.to_str()?.to_string())).filter(|name| is_sha256(name));
    let (path, name) = match choice {
        Choice::Folder(_) => (snapshot, wanted.repo.to_string()),
        Choice::File(file) => (snapshot.join(&file), format!("{}:{file}", wanted.repo)),
    };
    let short: String = commit.chars().take(12).collect();
    let origin = format!("hub {}, commit {short}{note}", wanted.in_words());
    Resolved { path, name, origin, sha256, licence }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// One fetch from the hub.
struct Session<'a> {
    wanted: &'a Wanted<'a>,
    hub: &'a Hub,
    options: &'a FetchOptions,
    client: Agent,
    shelf: Shelf,
}

#[derive(Deserialize)]
struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
    #[serde(default, rename = "cardData")]
    card: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Session<'_> {
    fn fetch(&self) -> Result<Resolved, Trouble> {
        let (wanted, progress) = (self.wanted, self.options.progress.as_ref());
        progress.start(&format!("{}: asking the hub", wanted.in_words()), None);
        let listing = self.listing();
        progress.finish(if listing.is_ok() { "found" } else { "no answer" });
        let listing = listing?;
        let names: Vec<String> =
            listing.siblings.into_iter().map(|file| file.rfilename).filter(|name| is_safe(name)).collect();
        let choice = hub_files::choose(wanted.repo, &names, wanted.file).map_err(Trouble::Fatal)?;
        let one = |file: &String| std::slice::from_ref(file).to_vec();
        let files = match &choice {
            Choice::File(file) => one(file),
            Choice::Folder(files) => files.clone(),
        };
        for file in &files {
            if !self.shelf.snapshot(&listing.sha).join(file).is_file() {
                self.file(&listing.sha, file)?;
            }
        }
        self.shelf.remember(wanted.revision(), &listing.sha);
        let licence =
            listing.card.as_ref().and_then(|card| card.get("license")?.as_str()).map(str::to_string);
        Ok(resolved(wanted, &self.shelf, &listing.sha, choice, licence, ""))
    }

    /// The commit that the revision means, and its files.
    fn listing(&self) -> Result<Listing, Trouble> {
        let what = self.wanted.in_words();
        let revision = escape(self.wanted.revision(), false);
        let url = format!("{}/api/models/{}/revision/{revision}", self.hub.endpoint, self.wanted.repo);
        let mut response = self.ask(&what, || {
            let mut request = self.client.get(&url);
            for (name, value) in self.login() {
                request = request.header(name, value);
            }
            request.call()
        })?;
        let bad =
            |problem: String| Trouble::Server(Error::fetch(&what, format!("the hub's answer: {problem}")));
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER)
            .read_to_vec()
            .map_err(|error| bad(in_words(&error)))?;
        let listing: Listing = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        if !is_commit(&listing.sha) {
            return Err(bad("names no commit".into()));
        }
        Ok(listing)
    }

    /// Fetches one file of a commit into the cache.
    fn file(&self, commit: &str, file: &str) -> Result<(), Trouble> {
        let what = format!("{}:{file}", self.wanted.repo);
        let url =
            format!("{}/{}/resolve/{commit}/{}", self.hub.endpoint, self.wanted.repo, escape(file, true));
        let head = self.head(&what, &url)?;
        let header = |name: &str| head.get(name).and_then(|value| value.to_str().ok());
        let etag = header("x-linked-etag").or_else(|| header("etag")).map(|tag| tag.trim_start_matches("W/"));
        let etag = etag.map(|tag| tag.trim_matches('"')).filter(|tag| is_safe(tag) && !tag.contains('/'));
        let Some(etag) = etag else {
            return Err(Trouble::Server(Error::fetch(
                &what,
                "the hub names no etag for it; is HF_ENDPOINT a hub?",
            )));
        };
        let bytes =
            header("x-linked-size").or_else(|| header("content-length")).and_then(|size| size.parse().ok());
        let blob = self.shelf.blob(etag);
        if !blob.is_file() {
            self.blob(&what, &url, etag, bytes)?;
        }
        self.shelf.link(commit, file, etag).map_err(Trouble::Fatal)
    }

    fn blob(&self, what: &str, url: &str, etag: &str, bytes: Option<u64>) -> Result<(), Trouble> {
        let (progress, cancel) = (self.options.progress.as_ref(), &self.options.cancel);
        let blob = self.shelf.blob(etag);
        if let Some(folder) = blob.parent() {
            make_folder(folder).map_err(Trouble::Fatal)?;
        }
        let lock = self.shelf.lock_file(etag).map_err(Trouble::Fatal)?;
        let _lock = Lock::take(&lock, what, progress, cancel).map_err(Trouble::Fatal)?;
        if blob.is_file() {
            return Ok(());
        }
        let partial = blob.with_file_name(format!("{etag}.incomplete"));
        let shown: &dyn Progress = if bytes.is_some_and(|bytes| bytes < SMALL) { &Quiet } else { progress };
        let headers = self.login();
        let sha256 = is_sha256(etag).then_some(etag);
        let limit = bytes.unwrap_or(u64::MAX);
        let job = Job { what, url, headers: &headers, partial: &partial, sha256, bytes, limit };
        download::fetch(&self.client, &job, shown, cancel)?;
        std::fs::rename(&partial, &blob)
            .map_err(|source| Trouble::Fatal(cannot_write(&blob, "rename", source)))
    }

    /// The headers of a file. The hub sends large files elsewhere; etag and size are in its own answer before that.
    fn head(&self, what: &str, address: &str) -> Result<HeaderMap, Trouble> {
        let mut url = address.to_string();
        for _ in 0..5 {
            let response = self.ask(what, || {
                let mut request = self.client.head(&url);
                for (name, value) in self.login() {
                    request = request.header(name, value);
                }
                request.config().max_redirects(0).max_redirects_will_error(false).build().call()
            })?;
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            // A renamed repository answers with a path on the same host; anything else is the file's store.
            match location.filter(|to| to.starts_with('/') && !to.starts_with("//")) {
                Some(path) if response.status().is_redirection() => {
                    url = format!("{}{path}", self.hub.endpoint)
                }
                _ => return Ok(response.headers().clone()),
            }
        }
        Err(Trouble::Server(Error::fetch(what, "the hub sends in circles")))
    }

    fn login(&self) -> Vec<(&'static str, String)> {
        self.hub.token.iter().map(|token| ("Authorization", format!("Bearer {token}"))).collect()
    }

    /// Asks, again where the network stumbles, and turns refusals into words.
    fn ask(
        &self,
        what: &str,
        send: impl Fn() -> std::result::Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, Trouble> {
        let cancel: &Cancel = &self.options.cancel;
        let mut problem = String::new();
        for turn in 0..3_u32 {
            if turn > 0 {
                download::rest(Duration::from_millis(250 << turn), cancel).map_err(Trouble::Fatal)?;
            }
            cancel.check().map_err(Trouble::Fatal)?;
            match send() {
                Err(error) => problem = in_words(&error),
                Ok(response) => match response.status().as_u16() {
                    200..=399 => return Ok(response),
                    status @ (408 | 429 | 500..=599) => {
                        problem = format!("the hub answered with status {status}")
                    }
                    status => return Err(Trouble::Fatal(Error::fetch(what, self.refusal(status)))),
                },
            }
        }
        let remedy = "Check the network (HF_ENDPOINT, proxies), or give a path to a model file";
        Err(Trouble::Server(Error::fetch(what, format!("{}: {problem}. {remedy}", self.hub.endpoint))))
    }

    fn refusal(&self, status: u16) -> String {
        let token = match self.hub.token {
            Some(_) => "the token (HF_TOKEN) that was sent does not open it",
            None => "if it is private or gated, set HF_TOKEN",
        };
        match status {
            401 => format!("no such repository, or it needs a login ({token})"),
            403 => {
                format!("access is refused; its licence may have to be accepted on the hub's site ({token})")
            }
            404 => "no such repository, revision or file".to_string(),
            status => format!("the hub answered with status {status}"),
        }
    }
}

/// Percent-encodes a path for an address; `/` stays where it separates folders.
fn escape(text: &str, keep_slash: bool) -> String {
    let plain = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'_' | b'.' | b'~')
            || (keep_slash && byte == b'/')
    };
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
