//! Tests of where models come from, against servers on this machine: no network is needed.

mod download;
mod hub;
mod parse;
mod registry;
mod server;

use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::{Cache, FetchOptions, Progress};
use crate::Cancel;

/// Bytes without a pattern that a shifted or doubled piece could repeat.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| step()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    super::seal::hex(&Sha256::digest(bytes))
}

/// Writes down what is shown, and stops the work at a given byte.
#[derive(Default)]
struct Watch {
    lines: Mutex<Vec<String>>,
    last: Mutex<u64>,
    cancel: Cancel,
    stop_at: Option<u64>,
}

impl Watch {
    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Progress for Watch {
    fn start(&self, what: &str, total: Option<u64>) {
        let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
        self.lines.lock().unwrap().push(format!("{what}{total}"));
    }
    fn advance(&self, done: u64) {
        *self.last.lock().unwrap() = done;
        if self.stop_at.is_some_and(|limit| done >= limit) {
            self.cancel.cancel();
        }
    }
    fn finish(&self, note: &str) {
        self.lines.lock().unwrap().push(note.to_string());
    }
}

fn options(folder: &Path, watch: &Arc<Watch>) -> FetchOptions {
    FetchOptions {
        cache: Cache::at(folder),
        offline: false,
        progress: watch.clone(),
        cancel: watch.cancel.clone(),
    }
}

/// A file system in memory, where the tests may mount one; unmounted on drop.
#[cfg(target_os = "linux")]
struct Mounted(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl Mounted {
    /// `None` (and a line in the output) where this user may not mount.
    fn new(how: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", how, "methexis-test"])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            println!("skipped: this user may not mount a file system ({how})");
            return None;
        }
        Some(Self(folder))
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let status = std::process::Command::new("mount").args(["-o", &options]).arg(self.0.path()).status();
        assert!(status.unwrap().success());
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
