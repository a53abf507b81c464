//! Formats made of JSON objects: JSONL, arrays, CAA questions, ACS pairs.

use std::path::Path;

use serde_json::{Map, Value};

use super::build::{build, fill, template, Meta, Record};
use super::{Format, ReadOptions};
use crate::contrast::set::{shortened, ContrastSet};
use crate::{Error, Result};

type Object = Map<String, Value>;

const POSITIVE: &[&str] = &["positive", "chosen"];
const NEGATIVE: &[&str] = &["negative", "rejected"];
const PROMPT: &[&str] = &["prompt", "question"];
const ID: &[&str] = &["id", "pair_id"];
const MATCHING: &str = "answer_matching_behavior";
const NOT_MATCHING: &str = "answer_not_matching_behavior";

/// One object a line; the first may describe the set instead of holding a pair.
pub(super) fn lines(origin: &Path, text: &str, options: &ReadOptions) -> Result<ContrastSet> {
    let mut meta = Meta::default();
    let mut records = Vec::new();
    for (index, (place, object)) in objects(origin, text)?.into_iter().enumerate() {
        if index == 0 && is_meta(&object) {
            meta = read_meta(origin, &place, &object)?;
        } else {
            records.push(record(origin, place, &object)?);
        }
    }
    build(origin, meta, records, options)
}

/// An array of objects.
pub(super) fn array(origin: &Path, text: &str, options: &ReadOptions) -> Result<ContrastSet> {
    let mut records = Vec::new();
    for (place, object) in items(origin, text)? {
        records.push(record(origin, place, &object)?);
    }
    build(origin, Meta::default(), records, options)
}

/// Questions whose two answers are mostly letters. Both are kept as written: prompt and answer are joined later, by
/// the same rule as every other pair.
pub(super) fn caa(origin: &Path, text: &str, options: &ReadOptions) -> Result<ContrastSet> {
    let mut records = Vec::new();
    for (place, object) in items(origin, text)? {
        records.push(Record {
            prompt: required(origin, &place, &object, &["question"])?,
            positive: required(origin, &place, &object, &[MATCHING])?,
            negative: required(origin, &place, &object, &[NOT_MATCHING])?,
            place,
            ..Record::default()
        });
    }
    build(origin, Meta::default(), records, options)
}

/// Whole texts, numbered along an axis.
pub(super) fn acs(origin: &Path, text: &str, options: &ReadOptions) -> Result<ContrastSet> {
    let template = template(options, "{text}")?;
    let emotion = options.emotion.as_deref().unwrap_or_default();
    let mut meta = Meta::default();
    let mut records = Vec::new();
    for (place, object) in objects(origin, text)? {
        let axis = required(origin, &place, &object, &["axis"])?;
        if let Some(first) = meta.name.as_ref().filter(|first| **first != axis) {
            return Err(Error::format(
                origin,
                format!("{place}, field `axis`"),
                format!(
                    "`{}` after `{}`: one set is one axis; split the file",
                    shortened(&axis, 40),
                    shortened(first, 40)
                ),
            ));
        }
        let number = required(origin, &place, &object, &["pair_id"])?;
        let read = record(origin, place, &object)?;
        records.push(Record {
            id: Some(format!("{axis}-{number}")),
            positive: fill(template, &read.positive, emotion),
            negative: fill(template, &read.negative, emotion),
            ..read
        });
        meta.name.get_or_insert(axis);
    }
    build(origin, meta, records, options)
}

/// The strings of a JSON list.
pub(super) fn strings(origin: &Path, text: &str) -> Result<Vec<String>> {
    let values = parse::<Vec<Value>>(origin, text)?;
    let mut out = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        match value {
            Value::String(text) => out.push(text),
            other => {
                return Err(Error::format(
                    origin,
                    format!("item {}", index + 1),
                    format!(
                        "expected a string, found {}; an emotion list is a JSON list of strings",
                        kind(&other)
                    ),
                ))
            }
        }
    }
    Ok(out)
}

/// Tells the formats that are arrays apart by their first item.
pub(super) fn detect_array(origin: &Path, text: &str) -> Result<Format> {
    // Only the first item is needed, but a stream over array items is not worth its code for files of this size.
    let values = parse::<Vec<Value>>(origin, text)?;
    match values.first() {
        Some(Value::Object(object)) if object.contains_key(MATCHING) || object.contains_key(NOT_MATCHING) => {
            Ok(Format::Caa)
        }
        Some(Value::Object(_)) => Ok(Format::Json),
        Some(Value::String(_)) => Ok(Format::Repe),
        Some(other) => Err(Error::format(
            origin,
            "item 1",
            format!("expected an object with two halves, or a string of a list, found {}", kind(other)),
        )),
        None => {
            Err(Error::format(origin, "file", "the array is empty; a contrast set needs at least one pair"))
        }
    }
}

/// Tells the formats of one object a line apart by their first line.
pub(super) fn detect_line(text: &str) -> Format {
    let first = text.lines().next().unwrap_or_default();
    match serde_json::from_str::<Object>(first) {
        Ok(object) if object.contains_key("axis") && object.contains_key("pair_id") => Format::Acs,
        // A line that does not parse is reported by the reader, with its place.
        _ => Format::Jsonl,
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(origin: &Path, text: &'a str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| {
        Error::format(
            origin,
            format!("line {}, column {}", e.line(), e.column()),
            format!("not a JSON array: {}", plain(&e)),
        )
    })
}

/// serde's message without its own place, which ours already gives.
fn plain(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    shortened(text.get(..end).unwrap_or(&text), 160)
}

fn items(origin: &Path, text: &str) -> Result<Vec<(String, Object)>> {
    let values = parse::<Vec<Value>>(origin, text)?;
    let mut out = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let place = format!("item {}", index + 1);
        match value {
            Value::Object(object) => out.push((place, object)),
            other => {
                return Err(Error::format(
                    origin,
                    place,
                    format!("expected an object, found {}", kind(&other)),
                ))
            }
        }
    }
    Ok(out)
}

fn objects(origin: &Path, text: &str) -> Result<Vec<(String, Object)>> {
    let mut out = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let object = serde_json::from_str(line).map_err(|e| {
            Error::format(
                origin,
                format!("line {}, column {}", index + 1, e.column()),
                format!(
                    "not a JSON object: {}; every line is one object of its own, without line breaks inside",
                    plain(&e)
                ),
            )
        })?;
        out.push((format!("line {}", index + 1), object));
    }
    Ok(out)
}

fn is_meta(object: &Object) -> bool {
    !POSITIVE.iter().chain(NEGATIVE).any(|field| object.contains_key(*field))
        && ["concept", "name", "description", "instruction"].iter().any(|field| object.contains_key(*field))
}

fn read_meta(origin: &Path, place: &str, object: &Object) -> Result<Meta> {
    let text = |field: &str| optional(origin, place, object, &[field]);
    let mut openings = Vec::new();
    match object.get("openings") {
        None | Some(Value::Null) => {}
        Some(Value::Array(values)) if values.iter().all(Value::is_string) => {
            openings.extend(values.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        Some(other) => {
            return Err(Error::format(
                origin,
                format!("{place}, field `openings`"),
                format!("expected a list of strings, found {}", kind(other)),
            ))
        }
    }
    let source = match (text("source")?, text("licence")?) {
        (Some(source), Some(licence)) => Some(format!("{source} ({licence})")),
        (Some(source), None) => Some(source),
        (None, Some(licence)) => Some(format!("{} ({licence})", origin.display())),
        (None, None) => None,
    };
    Ok(Meta {
        name: optional(origin, place, object, &["concept", "name"])?,
        description: text("description")?.unwrap_or_default(),
        instruction: text("instruction")?,
        opposite_instruction: text("opposite_instruction")?,
        openings,
        source,
        note: None,
    })
}

fn record(origin: &Path, place: String, object: &Object) -> Result<Record> {
    let split =
        match optional(origin, &place, object, &["split"])? {
            None => None,
            Some(text) => Some(text.parse().map_err(|e: Error| {
                Error::format(origin, format!("{place}, field `split`"), e.to_string())
            })?),
        };
    Ok(Record {
        id: optional(origin, &place, object, ID)?,
        split,
        form: optional(origin, &place, object, &["form"])?.unwrap_or_default(),
        prompt: optional(origin, &place, object, PROMPT)?.unwrap_or_default(),
        positive: required(origin, &place, object, POSITIVE)?,
        negative: required(origin, &place, object, NEGATIVE)?,
        place,
    })
}

fn required(origin: &Path, place: &str, object: &Object, names: &[&str]) -> Result<String> {
    optional(origin, place, object, names)?.ok_or_else(|| {
        let found: Vec<String> =
            object.keys().take(8).map(|key| format!("`{}`", shortened(key, 30))).collect();
        Error::format(
            origin,
            place,
            format!(
                "no field `{}`; it has {}",
                names.join("` or `"),
                if found.is_empty() { "none".into() } else { found.join(", ") }
            ),
        )
    })
}

/// The text (or number) of the one field of that meaning, or `None` where it is absent or null.
fn optional(origin: &Path, place: &str, object: &Object, names: &[&str]) -> Result<Option<String>> {
    let mut found: Option<(&str, String)> = None;
    for name in names {
        let text = match object.get(*name) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => {
                return Err(Error::format(
                    origin,
                    format!("{place}, field `{name}`"),
                    format!("expected a string, found {}; write the text itself", kind(other)),
                ))
            }
        };
        if let Some((first, _)) = found {
            return Err(Error::format(
                origin,
                place,
                format!("both `{first}` and `{name}` are given, and mean the same; keep one"),
            ));
        }
        found = Some((name, text));
    }
    Ok(found.map(|(_, text)| text))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
