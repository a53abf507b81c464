//! Formats that are tables: CSV pairs, and statements labelled true or false.

use std::path::Path;

use csv::StringRecord;

use super::build::{build, fill, template, Meta, Record};
use super::{Format, ReadOptions};
use crate::contrast::set::{shortened, ContrastSet};
use crate::{Error, Result};

const POSITIVE: &[&str] = &["positive", "chosen"];
const NEGATIVE: &[&str] = &["negative", "rejected"];

/// A table with a column for each half.
pub(super) fn pairs(origin: &Path, text: &str, options: &ReadOptions) -> Result<ContrastSet> {
    let table = Table::read(origin, text)?;
    let positive = table.column(POSITIVE)?;
    let negative = table.column(NEGATIVE)?;
    let optional = |name: &str| table.find(&[name]);
    let (prompt, split, id, form) = (optional("prompt"), optional("split"), optional("id"), optional("form"));
    let mut records = Vec::with_capacity(table.rows.len());
    for (place, row) in &table.rows {
        let cell = |column: Option<usize>| column.and_then(|i| row.get(i)).unwrap_or_default();
        let split = match cell(split).trim() {
            "" => None,
            text => Some(text.parse().map_err(|e: Error| {
                Error::format(origin, format!("{place}, column `split`"), e.to_string())
            })?),
        };
        records.push(Record {
            place: place.clone(),
            id: Some(cell(id).to_owned()).filter(|id| !id.is_empty()),
            split,
            form: cell(form).to_owned(),
            prompt: cell(prompt).to_owned(),
            positive: cell(Some(positive)).to_owned(),
            negative: cell(Some(negative)).to_owned(),
        });
    }
    build(origin, Meta::default(), records, options)
}

/// Statements with label 1 against statements with label 0: the first of one with the first of the other, and so on.
/// What finds no partner is left out, and the set's source says how many.
pub(super) fn truth(origin: &Path, text: &str, options: &ReadOptions) -> Result<ContrastSet> {
    let table = Table::read(origin, text)?;
    let (statement, label) = (table.column(&["statement"])?, table.column(&["label"])?);
    let template = template(options, "{text}")?;
    let emotion = options.emotion.as_deref().unwrap_or_default();
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    for (place, row) in &table.rows {
        let text = fill(template, row.get(statement).unwrap_or_default(), emotion);
        let written = row.get(label).unwrap_or_default().trim();
        match written.to_ascii_lowercase().as_str() {
            "1" | "true" => yes.push((place, text)),
            "0" | "false" => no.push((place, text)),
            _ => {
                return Err(Error::format(
                    origin,
                    format!("{place}, column `label`"),
                    format!("`{}` is no label; use 1 or true, 0 or false", shortened(written, 40)),
                ))
            }
        }
    }
    if !table.rows.is_empty() {
        for (side, label) in [(&yes, 1), (&no, 0)] {
            if side.is_empty() {
                return Err(Error::format(
                    origin,
                    "column `label`",
                    format!("the set is one-sided: no statement has label {label}; a contrast needs both"),
                ));
            }
        }
    }
    let left = yes.len().abs_diff(no.len());
    let note =
        (left > 0).then(|| format!("{left} of {} statements left out, having no partner", table.rows.len()));
    let records = yes
        .into_iter()
        .zip(no)
        .map(|((first, positive), (second, negative))| Record {
            place: format!("{first} and {second}"),
            positive,
            negative,
            ..Record::default()
        })
        .collect();
    build(origin, Meta { note, ..Meta::default() }, records, options)
}

/// Whether the first line is a header of one of the tables.
pub(super) fn detect(text: &str) -> Option<Format> {
    let header = header(text)?;
    let has = |names: &[&str]| header.iter().any(|column| names.contains(&column.as_str()));
    if has(POSITIVE) || has(NEGATIVE) {
        Some(Format::Csv)
    } else if has(&["statement"]) && has(&["label"]) {
        Some(Format::Truth)
    } else {
        None
    }
}

/// Column names of the first line, lower-cased.
fn header(text: &str) -> Option<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter(text)).from_reader(text.as_bytes());
    Some(reader.headers().ok()?.iter().map(|column| column.trim().to_lowercase()).collect())
}

/// The separator that the header uses most: comma, tab or semicolon.
fn delimiter(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or_default();
    let count = |c: char| first.matches(c).count();
    let (commas, tabs, semicolons) = (count(','), count('\t'), count(';'));
    if tabs > commas && tabs >= semicolons {
        b'\t'
    } else if semicolons > commas {
        b';'
    } else {
        b','
    }
}

struct Table<'a> {
    origin: &'a Path,
    header: Vec<String>,
    rows: Vec<(String, StringRecord)>,
}

impl<'a> Table<'a> {
    fn read(origin: &'a Path, text: &str) -> Result<Self> {
        let fault = |e: csv::Error| {
            let place = e.position().map_or_else(|| "file".into(), |p| format!("line {}", p.line()));
            let problem = match e.kind() {
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!(
                    "{len} cells where the header has {expected_len}; put cells that hold the separator in double quotes"
                ),
                other => shortened(&format!("{other:?}"), 160),
            };
            Error::format(origin, place, problem)
        };
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter(text)).from_reader(text.as_bytes());
        let header = reader.headers().map_err(fault)?;
        let header: Vec<String> = header.iter().map(|column| column.trim().to_lowercase()).collect();
        let mut rows = Vec::new();
        for row in reader.records() {
            let row = row.map_err(fault)?;
            let line = row.position().map_or(0, csv::Position::line);
            rows.push((format!("line {line}"), row));
        }
        Ok(Self { origin, header, rows })
    }

    fn find(&self, names: &[&str]) -> Option<usize> {
        self.header.iter().position(|column| names.contains(&column.as_str()))
    }

    fn column(&self, names: &[&str]) -> Result<usize> {
        self.find(names).ok_or_else(|| {
            Error::format(
                self.origin,
                "line 1",
                format!(
                    "no column `{}`; the header has `{}`",
                    names.join("` or `"),
                    shortened(&self.header.join("`, `"), 120)
                ),
            )
        })
    }
}
