//! `methexis bridge show`

use std::path::Path;

use methexis_concept::bridge::{Bridge, Facts};

use crate::commands::Outcome;
use crate::context::Result;

pub(crate) fn run(path: &Path) -> Result<Outcome> {
    let bridge = Bridge::load(path)?;
    Outcome::new(&bridge.facts, describe(&bridge.facts))
}

/// What a bridge says about itself, for people.
pub(crate) fn describe(f: &Facts) -> String {
    let mut text = format!(
        "{} {} → {} {}\n  map          {}{}, λ {:.3}\n  rows         {} ({}), from {} texts ({}), {} to {}\n  \
         held-out R²  {:.3} (mean over dimensions in units of their spread)\n  fit R²       {:.3}\n  raw          {:.3} held out, \
         dominated by a few massive dimensions\n  text hash    {}\n",
        f.source.model.name,
        f.source.site,
        f.target.model.name,
        f.target.site,
        f.kind.name(),
        if f.permuted { " with broken pairing (control)" } else { "" },
        f.lambda,
        f.n_rows,
        f.rows,
        f.n_texts,
        f.text_source,
        f.style.split(" to ").next().unwrap_or_default(),
        f.style.split(" to ").nth(1).unwrap_or_default(),
        f.held_out_r2,
        f.fit_r2,
        f.held_out_r2_raw,
        f.text_hash,
    );
    if f.interpolates {
        text.push_str(
            "  note         it has no more rows than source dimensions, so it reproduces the rows it was fitted on whatever \
             they are; a concept that is among them is carried by algebra, not by likeness of the models\n",
        );
    }
    if f.held_out_r2 < 0.1 {
        text.push_str("  warning      it hardly predicts held-out states: do not trust what it carries\n");
    }
    text
}
