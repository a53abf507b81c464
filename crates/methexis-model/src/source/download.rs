//! Resumable HTTP.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use super::cache::sha256;
use super::Progress;
use crate::{Cancel, Error, Result};

/// How often a broken connection is taken up again before giving up.
const ATTEMPTS: usize = 5;

/// Fetches `url` into `to`, whose SHA-256 must be `hash`. What is there already is kept: a run that was stopped goes on
/// where it ended, if the server can.
pub(super) fn fetch(
    url: &str,
    to: &Path,
    hash: &str,
    what: &str,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<()> {
    let mut partial = to.as_os_str().to_os_string();
    partial.push(".partial");
    let partial = Path::new(&partial).to_path_buf();
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        cancel.check()?;
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(200 << attempt));
        }
        match pull(url, &partial, what, progress, cancel) {
            Ok(()) => {
                let found = sha256(&partial, cancel)?;
                if found == hash {
                    fs::rename(&partial, to).map_err(|e| Error::io(to, "renaming", e))?;
                    return Ok(());
                }
                // A resumed file may mix two versions: once more from the start.
                fs::remove_file(&partial).map_err(|e| Error::io(&partial, "removing", e))?;
                last = Some(Error::fetch(what, format!("has SHA-256 {found}, the index promises {hash}")));
                if attempt > 0 {
                    break;
                }
            }
            Err(e @ (Error::Cancelled | Error::Io { .. })) => return Err(e),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| Error::fetch(what, "could not be fetched")))
}

fn agent() -> ureq::Agent {
    let tls = ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build();
    ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .http_status_as_error(false)
        .build()
        .into()
}

fn pull(url: &str, partial: &Path, what: &str, progress: &dyn Progress, cancel: &Cancel) -> Result<()> {
    let have = fs::metadata(partial).map_or(0, |m| m.len());
    let mut request = agent().get(url).header("Accept-Encoding", "identity");
    if have > 0 {
        request = request.header("Range", format!("bytes={have}-"));
    }
    let failed = |e: &dyn std::fmt::Display| {
        Error::fetch(what, format!("the download failed: {e}; run again to go on where it ended"))
    };
    let response = request.call().map_err(|e| failed(&e))?;
    let status = response.status().as_u16();
    let append = match status {
        206 => true,
        200 => false,
        // Nothing is left to send: the file is whole.
        416 if have > 0 => return Ok(()),
        _ => return Err(failed(&format!("the server answers {status}"))),
    };
    let length = response.headers().get("content-length").and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    let mut done = if append { have } else { 0 };
    let total = length.map(|l| l + done);
    let mut file = open(partial, append)?;
    progress.start(what, total);
    progress.advance(done);
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0u8; 256 << 10];
    loop {
        if cancel.is_cancelled() {
            file.flush().map_err(|e| Error::io(partial, "writing", e))?;
            return Err(Error::Cancelled);
        }
        let n = body.read(&mut buffer).map_err(|e| failed(&e))?;
        if n == 0 {
            break;
        }
        file.write_all(buffer.get(..n).unwrap_or_default()).map_err(|e| full(partial, e))?;
        done += n as u64;
        progress.advance(done);
    }
    if total.is_some_and(|t| done < t) {
        return Err(failed(&format!("the connection ended after {done} bytes")));
    }
    progress.finish("");
    Ok(())
}

fn open(partial: &Path, append: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true);
    if append {
        options.append(true);
    } else {
        options.write(true).truncate(true);
    }
    options.open(partial).map_err(|e| full(partial, e))
}

/// A failed write with its likely reason.
pub(super) fn full(path: &Path, e: std::io::Error) -> Error {
    let action = match e.kind() {
        std::io::ErrorKind::StorageFull => {
            "writing (the disk is full; make room, or set METHEXIS_CACHE to another disk)"
        }
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            "writing (the cache is read-only; set METHEXIS_CACHE to a folder that can be written)"
        }
        _ => "writing",
    };
    Error::io(path, action, e)
}
