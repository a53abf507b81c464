//! `methexis concept list`

use methexis_concept::contrast::{builtin, builtin_names};
use serde_json::json;

use crate::commands::Outcome;
use crate::context::Result;
use crate::render::table;

pub(crate) fn run() -> Result<Outcome> {
    let mut rows = Vec::new();
    let mut data = Vec::new();
    for name in builtin_names() {
        let Some(set) = builtin(name)? else { continue };
        let (train, test) = (set.train().count(), set.test().count());
        rows.push(vec![name.to_string(), train.to_string(), test.to_string(), set.description.clone()]);
        data.push(json!({"name": name, "train": train, "test": test, "description": set.description}));
    }
    let text = table(&["concept", "train", "test", "what"], &rows);
    Outcome::new(
        &data,
        format!("{text}\nA file of pairs works, too: JSONL, JSON, CSV or CAA (see concept check)."),
    )
}
