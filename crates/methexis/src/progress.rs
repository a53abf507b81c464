//! Progress on stderr.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use methexis_model::source::Progress;

/// One line at a time: the work that goes on now.
pub(crate) struct Bars {
    quiet: bool,
    now: Mutex<Option<(String, ProgressBar)>>,
}

impl Bars {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, now: Mutex::new(None) }
    }

    /// Shows that `done` of `total` of `what` is finished (0 of 0: unknown).
    pub(crate) fn show(&self, what: &str, done: u64, total: u64, bytes: bool) {
        if self.quiet {
            return;
        }
        let Ok(mut now) = self.now.lock() else { return };
        let same = now.as_ref().is_some_and(|(w, _)| w == what);
        if !same {
            if let Some((_, old)) = now.take() {
                old.finish_and_clear();
            }
            let bar = if total > 0 { ProgressBar::new(total) } else { ProgressBar::new_spinner() };
            let form = match (total > 0, bytes) {
                (true, true) => "{msg}  {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                (true, false) => "{msg}  {wide_bar} {pos}/{len} {eta}",
                (false, _) => "{spinner} {msg}",
            };
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            bar.set_message(what.to_string());
            bar.enable_steady_tick(Duration::from_millis(200));
            *now = Some((what.to_string(), bar));
        }
        if let Some((_, bar)) = now.as_ref() {
            bar.set_position(done);
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if let Ok(mut now) = self.now.lock() {
            if let Some((_, bar)) = now.take() {
                bar.finish_and_clear();
            }
        }
    }
}

impl Progress for Bars {
    fn start(&self, what: &str, total: Option<u64>) {
        self.show(what, 0, total.unwrap_or(0), true);
    }

    fn advance(&self, done: u64) {
        if let Ok(now) = self.now.lock() {
            if let Some((_, bar)) = now.as_ref() {
                bar.set_position(done);
            }
        }
    }

    fn finish(&self, note: &str) {
        self.clear();
        if !note.is_empty() && !self.quiet {
            eprintln!("{note}");
        }
    }
}
