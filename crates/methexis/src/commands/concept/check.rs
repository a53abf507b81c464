//! `methexis concept check`

use methexis_concept::contrast::{builtin_names, lint, neutral, resolve, ContrastSet, Severity};
use methexis_model::tokenizer::{AddSpecial, Specials};

use crate::commands::Outcome;
use crate::context::{Context, Result};

pub(crate) fn run(concept: &str, model: Option<&str>, context: &Context) -> Result<Outcome> {
    let set = resolve(concept)?;
    let neutral = neutral()?;
    let model = model.map(|m| context.open(m)).transpose()?;
    let count = |t: &str| {
        let encoded = model.as_ref().map(|m| m.tokenizer().encode(t, AddSpecial::No, Specials::Text));
        encoded.and_then(|e| e.ok()).map_or(0, |e| e.len())
    };
    // Beside the shipped sets, since these serve as controls for each other.
    let shipped = builtin_names().map(resolve).collect::<std::result::Result<Vec<_>, _>>()?;
    let others: Vec<&ContrastSet> = shipped.iter().filter(|s| s.name != set.name).collect();
    let report = lint(&set, &others, &neutral, model.as_ref().map(|_| &count as _));
    let mut text = format!(
        "{}: {} training and {} held-out pairs, {} forms\n  words a half   {:.1} positive, {:.1} negative\n  \
         distinct       {:.3} of word pairs, {:.3} of word triples\n",
        report.set,
        report.train,
        report.test,
        report.forms.len(),
        report.lengths.positive_words,
        report.lengths.negative_words,
        report.variety.distinct_2,
        report.variety.distinct_3,
    );
    for f in &report.findings {
        text.push_str(&format!(
            "  {:7} {}: {}; {}\n",
            format!("{:?}", f.severity).to_lowercase(),
            f.pair.as_deref().unwrap_or("set"),
            f.problem,
            f.remedy
        ));
    }
    if report.findings.is_empty() {
        text.push_str("  nothing was found\n");
    }
    let mut outcome = Outcome::new(&report, text)?;
    outcome.good = report.findings.iter().all(|f| f.severity != Severity::Error);
    Ok(outcome)
}
