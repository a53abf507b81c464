//! Progress on stderr.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use methexis_model::source::Progress;

/// One line at a time: the work that goes on now.
pub(crate) struct Bars {
    quiet: bool,
    now: Mutex<Option<(String, ProgressBar)>>,
    spent: Mutex<Spent>,
}

/// What time was spent on: the work that goes on now with its begin, and what is finished.
#[derive(Default)]
struct Spent {
    now: Option<(String, Instant)>,
    done: Vec<(String, f64)>,
}

impl Bars {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, now: Mutex::new(None), spent: Mutex::default() }
    }

    /// Seconds by kind of work since the last call, in the order of its first appearance.
    pub(crate) fn take_spent(&self) -> Vec<(String, f64)> {
        self.note(None);
        self.spent.lock().map(|mut s| std::mem::take(&mut s.done)).unwrap_or_default()
    }

    fn note(&self, what: Option<&str>) {
        let Ok(mut spent) = self.spent.lock() else { return };
        if let (Some((now, _)), Some(what)) = (&spent.now, what) {
            if now == what {
                return;
            }
        }
        if let Some((name, since)) = spent.now.take() {
            let seconds = since.elapsed().as_secs_f64();
            match spent.done.iter_mut().find(|d| d.0 == name) {
                Some(d) => d.1 += seconds,
                None => spent.done.push((name, seconds)),
            }
        }
        spent.now = what.map(|w| (w.to_string(), Instant::now()));
    }

    /// Shows that `done` of `total` of `what` is finished (0 of 0: unknown).
    pub(crate) fn show(&self, what: &str, done: u64, total: u64, bytes: bool) {
        self.note(Some(what));
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
