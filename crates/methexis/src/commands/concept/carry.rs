//! `methexis concept carry`

use std::path::Path;

use methexis_concept::bridge::Bridge;
use methexis_concept::direction::Direction;
use methexis_concept::measure::stats::cosine;
use serde_json::json;

use crate::commands::Outcome;
use crate::context::Result;

pub(crate) fn run(direction: &Path, bridge: &Path, output: &Path) -> Result<Outcome> {
    let (direction, bridge) = (Direction::open(direction)?, Bridge::load(bridge)?);
    let carried = bridge.carry_direction(&direction)?;
    carried.save_as(output)?;
    let f = &bridge.facts;
    let v = direction.at(f.source.site)?;
    let mean = cosine(v, &bridge.mean_source).abs();
    let data = json!({
        "concept": carried.concept, "output": output, "source": f.source, "target": f.target,
        "held_out_r2": f.held_out_r2, "interpolates": f.interpolates, "permuted": f.permuted,
    });
    let mut text = format!(
        "{}: {} {} → {} {}\n  bridge: {} on {} texts, held-out R² {:.3}\n",
        carried.concept,
        f.source.model.name,
        f.source.site,
        f.target.model.name,
        f.target.site,
        f.kind.name(),
        f.n_texts,
        f.held_out_r2
    );
    if f.permuted {
        text.push_str("  note: this bridge's pairing was broken on purpose; what it carries is a control\n");
    }
    if mean > 0.5 {
        text.push_str(
            "  note: the direction lies largely along the mean state, which says little about the concept\n",
        );
    }
    text.push_str(&format!("saved as {}\n", output.display()));
    Outcome::new(&data, text)
}
