//! `methexis model list`

use methexis_model::source::{named, Source};
use serde_json::json;

use crate::commands::Outcome;
use crate::context::{Context, Result};
use crate::render::table;

pub(crate) fn run(context: &Context) -> Result<Outcome> {
    let mut rows = Vec::new();
    let mut data = Vec::new();
    for m in named() {
        let here = Source::Named(m).cached(&context.fetch.cache);
        rows.push(vec![
            m.name.to_string(),
            m.about.to_string(),
            format!("{} MB", m.bytes / 1_000_000),
            m.licence.unwrap_or("not stated").to_string(),
            if here.is_some() { "yes" } else { "no" }.to_string(),
        ]);
        data.push(json!({
            "name": m.name, "about": m.about, "bytes": m.bytes, "sha256": m.sha256, "licence": m.licence, "path": here.map(|h| h.path),
        }));
    }
    let text = table(&["name", "what", "size", "licence", "here"], &rows);
    Outcome::new(&data, format!("{text}\nAny path or hub id (owner/name) works, too."))
}
