//! `methexis model pull`

use serde_json::json;

use crate::commands::Outcome;
use crate::context::{Context, Result};

pub(crate) fn run(name: &str, context: &Context) -> Result<Outcome> {
    let found = context.resolve(name)?;
    let data = json!({
        "name": found.name, "path": found.path, "origin": found.origin, "licence": found.licence,
    });
    Outcome::new(&data, format!("{}: {}", found.name, found.path.display()))
}
