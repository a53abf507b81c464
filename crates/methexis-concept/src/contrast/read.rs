//! Readers: every format becomes the same [`ContrastSet`] at this border.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::Value;

use super::{builtin, builtin_names, hash, ContrastSet, Pair, Split};
use crate::store;
use crate::{Error, Result};

/// Most pairs that a set may have.
const MAX_PAIRS: usize = 1_000_000;
/// Longest text of a half, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// How a file holds its pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line: `positive` and `negative` (or `chosen` and `rejected`), optional `prompt`, `id`,
    /// `split`, `form`; a first line with `concept` describes the set. ACS files (`axis`, `pair_id`) are of this form.
    Jsonl,
    /// A JSON array of such objects.
    Json,
    /// CAA: a JSON array of `question`, `answer_matching_behavior`, `answer_not_matching_behavior`.
    Caa,
    /// CSV with a header: `positive`, `negative`, optional `prompt`, `id`, `split`, `form`.
    Csv,
    /// CSV of `statement,label` with labels 1/0 or true/false: the i-th true statement is paired with the i-th false one.
    StatementCsv,
}

impl Format {
    /// All formats with the names that [`resolve`] takes before a colon.
    pub const ALL: [(&'static str, Self); 5] = [
        ("jsonl", Self::Jsonl),
        ("json", Self::Json),
        ("caa", Self::Caa),
        ("csv", Self::Csv),
        ("statements", Self::StatementCsv),
    ];
}

/// The set of a shipped name, a path, `format:path`, or `repe:POSITIVE.json,NEGATIVE.json` (two RepE lists of scenarios).
///
/// # Errors
/// [`Error::Input`] for an unknown name, with the names there are; [`Error::Format`] for a damaged file.
pub fn resolve(text: &str) -> Result<ContrastSet> {
    if let Some(set) = builtin(text)? {
        return Ok(set);
    }
    if let Some(lists) = text.strip_prefix("repe:") {
        let (p, n) = lists.split_once(',').ok_or_else(|| {
            Error::input(
                format!("concept {text:?}"),
                "two lists are needed: repe:POSITIVE.json,NEGATIVE.json",
            )
        })?;
        return repe(Path::new(p), Path::new(n));
    }
    if let Some((format, path)) = text.split_once(':') {
        if let Some((_, format)) = Format::ALL.iter().find(|(n, _)| *n == format) {
            return read(Path::new(path), Some(*format));
        }
    }
    let path = Path::new(text);
    if path.exists() {
        return read(path, None);
    }
    let names: Vec<_> = builtin_names().collect();
    let near = names.iter().min_by_key(|n| distance(n, text)).filter(|n| distance(n, text) <= 3);
    let near = near.map(|n| format!("; did you mean {n}?")).unwrap_or_default();
    Err(Error::input(
        format!("concept {text:?}"),
        format!("is neither a shipped set nor a file; shipped sets: {}{near}", names.join(", ")),
    ))
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut next = vec![i + 1];
        for ((y, up), diagonal) in b.iter().zip(row.iter().skip(1)).zip(&row) {
            let left = next.last().copied().unwrap_or(0);
            next.push((diagonal + usize::from(x != *y)).min(up + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// Reads a file; the format is told by its content unless given.
///
/// # Errors
/// [`Error::Format`] with line or element and field.
pub fn read(path: &Path, format: Option<Format>) -> Result<ContrastSet> {
    let bytes = store::read(path)?;
    let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or("set");
    let mut set = parse(&bytes, name, format).map_err(|e| match e {
        Error::Input { what, problem } => Error::format(path, what, problem),
        other => other,
    })?;
    set.source = path.display().to_string();
    Ok(set)
}

/// Parses the bytes of a file; `name` is the set's name where the file has none.
///
/// # Errors
/// [`Error::Input`] with line or element and field.
pub fn parse(bytes: &[u8], name: &str, format: Option<Format>) -> Result<ContrastSet> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes)
        .map_err(|e| Error::input(format!("byte {}", e.valid_up_to()), "the file is not UTF-8 text"))?;
    let format = match format {
        Some(f) => f,
        None => detect(text)?,
    };
    let mut set = ContrastSet {
        name: name.to_string(),
        description: String::new(),
        instruction: None,
        opposite_instruction: None,
        openings: Vec::new(),
        pairs: Vec::new(),
        source: name.to_string(),
    };
    match format {
        Format::Jsonl => jsonl(text, &mut set)?,
        Format::Json | Format::Caa => {
            let list: Vec<Value> = serde_json::from_str(text).map_err(|e| {
                Error::input(format!("line {}, column {}", e.line(), e.column()), e.to_string())
            })?;
            for (i, v) in list.iter().enumerate() {
                let pair =
                    if format == Format::Caa { caa(v, i)? } else { object(v, &format!("element {i}"), i)? };
                push(&mut set, pair, &format!("element {i}"))?;
            }
        }
        Format::Csv => csv_pairs(text, &mut set)?,
        Format::StatementCsv => statements(text, &mut set)?,
    }
    finish(set)
}

fn detect(text: &str) -> Result<Format> {
    let start = text.trim_start();
    if start.starts_with('[') {
        return Ok(if text.contains("\"answer_matching_behavior\"") { Format::Caa } else { Format::Json });
    }
    if start.starts_with('{') {
        return Ok(Format::Jsonl);
    }
    let header = start.lines().next().unwrap_or_default().to_lowercase();
    let has = |c: &str| header.split(',').any(|h| h.trim().trim_matches('"') == c);
    if has("positive") && has("negative") {
        return Ok(Format::Csv);
    }
    if has("statement") && has("label") {
        return Ok(Format::StatementCsv);
    }
    Err(Error::input(
        "line 1",
        "no known format of pairs: JSONL or a JSON array with positive and negative, CAA JSON, or CSV with a header \
         (positive,negative or statement,label)",
    ))
}

fn jsonl(text: &str, set: &mut ContrastSet) -> Result<()> {
    let mut n = 0;
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let place = format!("line {}", i + 1);
        let v: Value = serde_json::from_str(line)
            .map_err(|e| Error::input(place.clone(), format!("no sound JSON: {e}")))?;
        if v.get("concept").is_some() && v.get("positive").is_none() {
            let get = |f: &str| v.get(f).and_then(Value::as_str).map(str::to_string);
            set.name = get("concept").unwrap_or_else(|| set.name.clone());
            set.description = get("description").unwrap_or_default();
            set.instruction = get("instruction");
            set.opposite_instruction = get("opposite_instruction");
            let openings = v.get("openings").and_then(Value::as_array);
            set.openings =
                openings.into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect();
            continue;
        }
        push(set, object(&v, &place, n)?, &place)?;
        n += 1;
    }
    Ok(())
}

/// A pair from a JSON object with any of the usual field names.
fn object(v: &Value, place: &str, n: usize) -> Result<Pair> {
    if !v.is_object() {
        return Err(Error::input(place.to_string(), "is no JSON object"));
    }
    let get =
        |names: &[&str]| names.iter().find_map(|f| v.get(*f)).and_then(Value::as_str).map(str::to_string);
    let need = |names: &[&str]| {
        get(names).ok_or_else(|| {
            Error::input(place.to_string(), format!("field {} is missing or no text", names.join(" / ")))
        })
    };
    let id = match v.get("id").or_else(|| v.get("pair_id")) {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Number(x)) => x.to_string(),
        _ => (n + 1).to_string(),
    };
    Ok(Pair {
        split: split(get(&["split"]).as_deref(), &id, place)?,
        form: get(&["form"]).unwrap_or_default(),
        prompt: get(&["prompt", "question"]).unwrap_or_default(),
        positive: need(&["positive", "chosen"])?,
        negative: need(&["negative", "rejected"])?,
        id,
    })
}

/// CAA: the letters are read where CAA reads them, so the answer keeps its form ` (A)`.
fn caa(v: &Value, i: usize) -> Result<Pair> {
    let get = |f: &str| {
        v.get(f)
            .and_then(Value::as_str)
            .map(str::to_string)
            .ok_or_else(|| Error::input(format!("element {i}"), format!("field {f} is missing or no text")))
    };
    let id = (i + 1).to_string();
    Ok(Pair {
        split: split(None, &id, "")?,
        form: "caa".into(),
        prompt: get("question")?,
        positive: get("answer_matching_behavior")?,
        negative: get("answer_not_matching_behavior")?,
        id,
    })
}

/// The split that a file states, else one by a hash of the id: two thirds train, one third test, the same every time.
fn split(stated: Option<&str>, id: &str, place: &str) -> Result<Split> {
    match stated {
        Some("train") => Ok(Split::Train),
        Some("test" | "validation" | "dev") => Ok(Split::Test),
        Some(other) => {
            Err(Error::input(place.to_string(), format!("split {other:?} is neither train nor test")))
        }
        None => {
            let byte = hash::of([id]).bytes().take(4).fold(0u32, |h, b| h * 31 + u32::from(b));
            Ok(if byte % 3 == 0 { Split::Test } else { Split::Train })
        }
    }
}

fn push(set: &mut ContrastSet, pair: Pair, place: &str) -> Result<()> {
    if set.pairs.len() >= MAX_PAIRS {
        return Err(Error::input(place.to_string(), format!("more than {MAX_PAIRS} pairs")));
    }
    if [&pair.prompt, &pair.positive, &pair.negative].iter().any(|t| t.len() > MAX_TEXT) {
        return Err(Error::input(place.to_string(), format!("a text is longer than {MAX_TEXT} bytes")));
    }
    set.pairs.push(pair);
    Ok(())
}

fn csv_pairs(text: &str, set: &mut ContrastSet) -> Result<()> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| Error::input("line 1", e.to_string()))?.clone();
    for (i, record) in reader.records().enumerate() {
        let record = record.map_err(|e| Error::input(format!("record {}", i + 1), e.to_string()))?;
        let place = format!("line {}", record.position().map_or(0, |p| p.line()));
        let fields: BTreeMap<String, &str> =
            header.iter().map(|h| h.trim().to_lowercase()).zip(record.iter()).collect();
        let mut object_map = serde_json::Map::new();
        for (k, v) in fields {
            if !(v.is_empty() && matches!(k.as_str(), "split" | "id")) {
                object_map.insert(k, Value::String(v.to_string()));
            }
        }
        push(set, object(&Value::Object(object_map), &place, i)?, &place)?;
    }
    Ok(())
}

fn statements(text: &str, set: &mut ContrastSet) -> Result<()> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| Error::input("line 1", e.to_string()))?.clone();
    let column = |name: &str| {
        header
            .iter()
            .position(|h| h.trim().eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::input("line 1", format!("column {name} is missing")))
    };
    let (statement, label) = (column("statement")?, column("label")?);
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    for (i, record) in reader.records().enumerate() {
        let record = record.map_err(|e| Error::input(format!("record {}", i + 1), e.to_string()))?;
        let get = |c: usize| record.get(c).unwrap_or_default().trim().to_string();
        match get(label).to_lowercase().as_str() {
            "1" | "true" => yes.push(get(statement)),
            "0" | "false" => no.push(get(statement)),
            other => {
                return Err(Error::input(
                    format!("record {}", i + 1),
                    format!("label {other:?} is neither 1 nor 0"),
                ))
            }
        }
    }
    whole_texts(set, yes, no)
}

/// Pairs the i-th text of one list with the i-th of the other.
fn whole_texts(set: &mut ContrastSet, positive: Vec<String>, negative: Vec<String>) -> Result<()> {
    if positive.is_empty() || negative.is_empty() {
        return Err(Error::input("labels", "only one side is there; a contrast needs both"));
    }
    for (i, (positive, negative)) in positive.into_iter().zip(negative).enumerate() {
        let id = (i + 1).to_string();
        let split = split(None, &id, "")?;
        let pair = Pair { id, split, form: String::new(), prompt: String::new(), positive, negative };
        push(set, pair, &format!("pair {}", i + 1))?;
    }
    Ok(())
}

/// Two RepE lists of scenarios, each in the template of the RepE notebooks for emotions.
fn repe(positive: &Path, negative: &Path) -> Result<ContrastSet> {
    let list = |path: &Path| -> Result<Vec<String>> {
        let bytes = store::read(path)?;
        serde_json::from_slice(&bytes).map_err(|e| {
            Error::format(path, format!("line {}", e.line()), format!("no JSON list of texts: {e}"))
        })
    };
    let emotion = positive.file_stem().and_then(|s| s.to_str()).unwrap_or("emotion").to_string();
    let wrap =
        |t: String| format!("Consider the {emotion} of the following scenario:\nScenario: {t}\nAnswer:");
    let mut set = ContrastSet {
        description: format!("scenarios of {emotion} against those of {}", negative.display()),
        instruction: None,
        opposite_instruction: None,
        openings: Vec::new(),
        pairs: Vec::new(),
        source: format!("{} against {}", positive.display(), negative.display()),
        name: emotion.clone(),
    };
    let (p, n) = (list(positive)?, list(negative)?);
    whole_texts(&mut set, p.into_iter().map(&wrap).collect(), n.into_iter().map(&wrap).collect())?;
    finish(set)
}

fn finish(set: ContrastSet) -> Result<ContrastSet> {
    let mut seen = HashSet::new();
    if let Some(p) = set.pairs.iter().find(|p| !seen.insert(p.id.as_str())) {
        return Err(Error::input(format!("pair {}", p.id), "the id occurs twice"));
    }
    set.check()?;
    Ok(set)
}

/// Runs every reader on arbitrary bytes; for fuzzing. Must never panic.
#[doc(hidden)]
pub fn fuzz_any(bytes: &[u8]) {
    let _ = parse(bytes, "fuzz", None);
    for (_, format) in Format::ALL {
        let _ = parse(bytes, "fuzz", Some(format));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(text: &str) -> String {
        parse(text.as_bytes(), "t", None).unwrap_err().to_string()
    }

    #[test]
    fn formats_become_one() {
        let jsonl = "{\"positive\":\"a\",\"negative\":\"b\",\"prompt\":\"p\",\"split\":\"train\"}\n{\"chosen\":\"c\",\"rejected\":\"d\",\"split\":\"train\"}\n";
        let json = r#"[{"positive":"a","negative":"b","prompt":"p","split":"train"},{"chosen":"c","rejected":"d","split":"train"}]"#;
        let csv = "prompt,positive,negative,split\np,a,b,train\n,c,d,train\n";
        let sets: Vec<_> =
            [jsonl, json, csv].iter().map(|t| parse(t.as_bytes(), "t", None).unwrap().pairs).collect();
        assert_eq!(sets[0], sets[1]);
        assert_eq!(sets[0], sets[2]);
    }

    #[test]
    fn caa_keeps_the_answer_as_written() {
        let text = r#"[{"question":"q\n (A) x\n (B) y","answer_matching_behavior":"(A)","answer_not_matching_behavior":"(B)"},
            {"question":"r","answer_matching_behavior":"(C)","answer_not_matching_behavior":"(D)"},
            {"question":"s","answer_matching_behavior":"(B)","answer_not_matching_behavior":"(A)"}]"#;
        let set = parse(text.as_bytes(), "t", None).unwrap();
        assert_eq!(set.pairs[1].positive, "(C)");
    }

    #[test]
    fn errors_name_line_and_field() {
        assert!(problem("{\"positive\":\"a\"}\n").contains("line 1: field negative"));
        assert!(problem("{\"positive\":\"a\",\"negative\":\"b\"}\n{oops\n").contains("line 2"));
        assert!(problem("").contains("no known format"));
        assert!(problem("[]").contains("is empty"));
        assert!(problem("statement,label\nx,1\ny,1\n").contains("only one side"));
        assert!(problem("positive,negative,split\na,,train\n").contains("negative half is empty"));
        assert!(problem("positive,negative,split\na,a,train\n").contains("both halves are the same"));
        assert!(problem("positive,negative,split\na,b,maybe\n").contains("maybe"));
        let e = parse(&[0x5b, 0xff, 0xfe], "t", None).unwrap_err().to_string();
        assert!(e.contains("UTF-8"), "{e}");
    }

    #[test]
    fn an_unknown_name_lists_the_sets() {
        let e = resolve("hapiness").unwrap_err().to_string();
        assert!(e.contains("did you mean happiness?"), "{e}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            fuzz_any(&bytes);
        }

        #[test]
        fn no_mutation_of_a_sound_file_makes_a_reader_panic(at in 0usize..200, byte in any::<u8>(), cut in 0usize..200) {
            let mut b = br#"[{"question":"q (A) x","answer_matching_behavior":"(A)","answer_not_matching_behavior":"(B)"},{"positive":"a","negative":"b","split":"train","id":3}]"#.to_vec();
            if let Some(x) = b.get_mut(at) { *x = byte; }
            b.truncate(cut.max(1));
            fuzz_any(&b);
        }
    }
}
