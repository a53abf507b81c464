//! Figures: medians, ratios with their spread, the table.

use serde::{Deserialize, Serialize};

/// One line of the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    /// What was done.
    pub(crate) job: String,
    /// With which model.
    pub(crate) model: String,
    /// Ours, in `unit`.
    pub(crate) ours: f64,
    /// What it is measured against.
    pub(crate) against: String,
    /// That, in `unit`.
    pub(crate) theirs: f64,
    /// s, tokens/s, GB/s, …
    pub(crate) unit: String,
    /// How many times better we are: median, least and greatest over the pairs of runs.
    pub(crate) ratio: (f64, f64, f64),
    /// The bar.
    pub(crate) bar: f64,
    /// What else is worth knowing.
    pub(crate) note: String,
}

impl Line {
    /// From times in seconds, pair by pair.
    pub(crate) fn of_times(
        job: &str,
        model: &str,
        against: &str,
        ours: &[f64],
        theirs: &[f64],
        bar: f64,
    ) -> Self {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(o, t)| t / o).collect();
        Self {
            job: job.into(),
            model: model.into(),
            ours: median(ours),
            against: against.into(),
            theirs: median(theirs),
            unit: "s".into(),
            ratio: spread(&ratios, median(theirs) / median(ours)),
            bar,
            note: String::new(),
        }
    }

    /// The same with what `amount` is a second.
    pub(crate) fn rate(mut self, amount: f64, unit: &str) -> Self {
        self.ours = amount / self.ours;
        self.theirs = amount / self.theirs;
        self.unit = unit.into();
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    fn markdown(&self) -> String {
        let Self { job, model, ours, against, theirs, unit, ratio: (mid, low, high), bar, note } = self;
        let met = if mid >= bar { "" } else { " ✗" };
        format!(
            "| {job} | {model} | {} | {against}: {} | {unit} | **{mid:.2}** [{low:.2}, {high:.2}] | {bar}{met} | {note} |",
            figure(*ours),
            figure(*theirs)
        )
    }
}

fn figure(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 0.1 => format!("{x:.2}"),
        _ => format!("{x:.4}"),
    }
}

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let n = v.len();
    let at = |i: usize| v.get(i).copied().unwrap_or(f64::NAN);
    match n % 2 {
        1 => at(n / 2),
        _ => (at(n / 2) + at((n / 2).wrapping_sub(1))) / 2.0,
    }
}

fn spread(ratios: &[f64], mid: f64) -> (f64, f64, f64) {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    (mid, low, ratios.iter().copied().fold(0.0, f64::max))
}

/// All lines as Markdown.
pub(crate) fn table(lines: &[Line]) -> String {
    let mut out = String::from(
        "| job | model | ours | against | unit | ratio [least, most] | bar | |\n|---|---|---|---|---|---|---|---|\n",
    );
    for line in lines {
        out.push_str(&line.markdown());
        out.push('\n');
    }
    out
}
