//! Formats of one file a side: emotion lists, and plain text.

use std::path::Path;

use super::build::{build, fill, template, Meta, Record};
use super::{json, ReadOptions};
use crate::contrast::set::ContrastSet;
use crate::{Error, Result};

/// The template that emotion lists are read through, after Zou et al. 2023: the same question about every scenario, so
/// that the halves differ in the scenario alone.
pub const EMOTION_TEMPLATE: &str =
    "Consider the {emotion} of the following scenario:\nScenario: {text}\nAnswer:";

/// The positive list against one or more negative lists, taken in turn. Both halves ask about the same emotion: the
/// stem of the positive file's name, if the caller names none. Texts without a partner are left out, and the source says how many.
pub(super) fn emotions(
    origin: &Path,
    text: &str,
    negatives: &[(&Path, &str)],
    options: &ReadOptions,
) -> Result<ContrastSet> {
    let template = template(options, EMOTION_TEMPLATE)?;
    let stem = origin.file_stem().map(|stem| stem.to_string_lossy().replace(['_', '-'], " "));
    let emotion = options.emotion.clone().or(stem).unwrap_or_default();
    let positive = json::strings(origin, text)?;
    let mut lists = Vec::with_capacity(negatives.len());
    for (path, text) in negatives {
        lists.push(json::strings(path, text)?);
    }
    let total: usize = lists.iter().map(Vec::len).sum();
    sides(origin, positive.len(), negatives.iter().map(|(path, _)| *path).next(), total)?;
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let turns = (0..longest).flat_map(|index| lists.iter().filter_map(move |list| list.get(index)));
    let records: Vec<Record> = positive
        .iter()
        .zip(turns)
        .enumerate()
        .map(|(index, (positive, negative))| record(index, "item", template, &emotion, positive, negative))
        .collect();
    let note = (positive.len() > records.len()).then(|| {
        format!(
            "{} of {} positive texts left out, having no partner",
            positive.len() - records.len(),
            positive.len()
        )
    });
    build(origin, Meta { source: Some(source(origin, negatives)), note, ..Meta::default() }, records, options)
}

/// Line *n* against line *n*. Unequal files are refused: one missing line would pair every later text wrongly.
pub(super) fn plain(
    origin: &Path,
    text: &str,
    negatives: &[(&Path, &str)],
    options: &ReadOptions,
) -> Result<ContrastSet> {
    let template = template(options, "{text}")?;
    let emotion = options.emotion.as_deref().unwrap_or_default();
    let [(path, other)] = negatives else {
        return Err(Error::input(
            origin.display().to_string(),
            format!(
                "plain text takes one positive and one negative file, not {} negative ones",
                negatives.len()
            ),
        ));
    };
    let (positive, negative): (Vec<&str>, Vec<&str>) = (text.lines().collect(), other.lines().collect());
    sides(origin, positive.len(), Some(path), negative.len())?;
    if positive.len() != negative.len() {
        return Err(Error::format(
            *path,
            format!("line {}", positive.len().min(negative.len()) + 1),
            format!(
                "{} lines against {} in {}; line n of one file is the other half of line n of the other, so both need \
                 the same number",
                negative.len(),
                positive.len(),
                origin.display()
            ),
        ));
    }
    let records = positive
        .iter()
        .zip(&negative)
        .enumerate()
        .map(|(index, (positive, negative))| record(index, "line", template, emotion, positive, negative))
        .collect();
    build(origin, Meta { source: Some(source(origin, negatives)), ..Meta::default() }, records, options)
}

fn record(index: usize, unit: &str, template: &str, emotion: &str, positive: &str, negative: &str) -> Record {
    // An empty text stays empty, so that it is refused rather than hidden inside its template.
    let filled = |text: &str| {
        if text.trim().is_empty() {
            String::new()
        } else {
            fill(template, text, emotion)
        }
    };
    Record {
        place: format!("{unit} {}", index + 1),
        positive: filled(positive),
        negative: filled(negative),
        ..Record::default()
    }
}

fn source(origin: &Path, negatives: &[(&Path, &str)]) -> String {
    let others: Vec<String> = negatives.iter().map(|(path, _)| path.display().to_string()).collect();
    format!("{} against {}", origin.display(), others.join(" and "))
}

fn sides(origin: &Path, positive: usize, other: Option<&Path>, negative: usize) -> Result<()> {
    let side = if positive == 0 {
        (origin, "positive")
    } else if negative == 0 {
        (other.unwrap_or(origin), "negative")
    } else {
        return Ok(());
    };
    Err(Error::format(
        side.0,
        "file",
        format!("the set is one-sided: there is no {} text; a contrast needs both", side.1),
    ))
}
