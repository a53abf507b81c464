//! `methexis report`

use serde_json::json;

use super::demo::DemoResult;
use crate::cli::Report;
use crate::commands::Outcome;
use crate::context::{Failure, Result};
use crate::render::html;

pub(crate) fn run(a: &Report) -> Result<Outcome> {
    let text =
        std::fs::read_to_string(&a.result).map_err(|e| methexis_model::Error::io(&a.result, "reading", e))?;
    let result: DemoResult = serde_json::from_str(&text).map_err(|e| {
        Failure::from(methexis_model::Error::format(
            &a.result,
            format!("line {}, column {}", e.line(), e.column()),
            format!("no saved result of a demo: {e}"),
        ))
    })?;
    super::demo::save_text(&a.output, &html::page(&result))?;
    Outcome::new(&json!({"report": a.output}), format!("report: {}\n", a.output.display()))
}
