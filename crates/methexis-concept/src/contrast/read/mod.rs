//! Readers: every format becomes a [`ContrastSet`] here, and nothing further in knows of formats.
//!
//! | [`Format`] | content | halves |
//! |---|---|---|
//! | `jsonl` | one object a line; a first line without halves may describe the set | `positive`/`negative` or `chosen`/`rejected` |
//! | `json` | array of such objects | same |
//! | `csv` | header with `positive,negative[,prompt,split,id,form]`; comma, semicolon or tab | same |
//! | `caa` | array of `{question, answer_matching_behavior, answer_not_matching_behavior}` (Rimsky et al. 2024) | the answers as written, whatever their letters |
//! | `repe` | lists of strings against each other (Zou et al. 2023) | each string in a template |
//! | `acs` | one `{axis, pair_id, positive, negative}` a line | whole texts |
//! | `truth` | CSV `statement,label` | statements with label 1 against those with label 0, in order |
//! | `text` | two plain files, one text a line | line *n* of one against line *n* of the other |
//!
//! The format is recognised by content, or stated. Every reader is bounded: a file by [`MAX_BYTES`], a text by
//! [`MAX_TEXT`]; malformed input is an error that names file, line or item, field and remedy.

mod build;
mod json;
mod lists;
mod table;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::set::{shortened, ContrastSet, Split};
use crate::{Error, Result};
pub(super) use build::hash64;
pub use build::SplitRule;
pub use lists::EMOTION_TEMPLATE;

/// Largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;
/// Largest prompt or half, in bytes.
pub const MAX_TEXT: usize = 64 << 10;

/// How pairs are written down in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object a line.
    Jsonl,
    /// A JSON array of objects.
    Json,
    /// A table with a header.
    Csv,
    /// Questions with lettered answers.
    Caa,
    /// Lists of strings, read against each other.
    Repe,
    /// One `{axis, pair_id, positive, negative}` a line.
    Acs,
    /// Statements labelled 1 (true) or 0 (false).
    Truth,
    /// Two plain-text files.
    Text,
}

impl Format {
    /// Every format, in the order they are listed to users.
    pub const ALL: [Self; 8] =
        [Self::Jsonl, Self::Json, Self::Csv, Self::Caa, Self::Repe, Self::Acs, Self::Truth, Self::Text];

    /// The name used in `format:path` and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Caa => "caa",
            Self::Repe => "repe",
            Self::Acs => "acs",
            Self::Truth => "truth",
            Self::Text => "text",
        }
    }

    /// Whether the halves lie in files of their own (a list of texts each).
    pub fn needs_two_files(self) -> bool {
        matches!(self, Self::Repe | Self::Text)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wanted = text.trim().to_ascii_lowercase();
        Self::ALL.into_iter().find(|format| format.name() == wanted).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
            Error::input("format", format!("`{}` is not one of {}", shortened(&wanted, 40), names.join(", ")))
        })
    }
}

/// What the caller knows better than the file.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// Format, instead of recognising it by content.
    pub format: Option<Format>,
    /// Name of the set, instead of the one in the file or the file's own.
    pub name: Option<String>,
    /// Where pairs go whose file does not say.
    pub split: SplitRule,
    /// Template around each text of `repe` ([`EMOTION_TEMPLATE`] by default), `truth`, `text` and `acs` (none by
    /// default): `{text}` stands for the text, `{emotion}` for [`ReadOptions::emotion`].
    pub template: Option<String>,
    /// The word for `{emotion}`; the stem of the positive file's name by default.
    pub emotion: Option<String>,
}

/// Reads a set from one file.
///
/// # Errors
/// An IO error where the file cannot be read; [`Error::Format`] where it is too large, of no known format, malformed,
/// empty or one-sided; [`Error::Input`] where the format needs two files.
pub fn read(path: impl AsRef<Path>, options: &ReadOptions) -> Result<ContrastSet> {
    let path = path.as_ref();
    read_bytes(path, &load(path)?, options)
}

/// Reads a set from bytes; `origin` is the name that errors and the set's source give them.
///
/// # Errors
/// As [`read`], but those of the file system.
pub fn read_bytes(origin: impl AsRef<Path>, bytes: &[u8], options: &ReadOptions) -> Result<ContrastSet> {
    let origin = origin.as_ref();
    let text = decode(origin, bytes)?;
    let format = match options.format {
        Some(format) => format,
        None => detect(origin, text)?,
    };
    match format {
        Format::Jsonl => json::lines(origin, text, options),
        Format::Json => json::array(origin, text, options),
        Format::Caa => json::caa(origin, text, options),
        Format::Acs => json::acs(origin, text, options),
        Format::Csv => table::pairs(origin, text, options),
        Format::Truth => table::truth(origin, text, options),
        Format::Repe | Format::Text => Err(Error::input(
            origin.display().to_string(),
            format!(
                "the `{format}` format holds one side of a contrast in a file; give the positive file and the negative \
                 one as `{format}:positive,negative`"
            ),
        )),
    }
}

/// Reads a set whose halves lie in files of their own: the positive texts, and one or more lists of negative ones
/// (taken in turn). Only `repe` and `text` are written so.
///
/// # Errors
/// As [`read`]; [`Error::Input`] for other formats; for `text`, files with different numbers of lines.
pub fn read_sides(
    positive: impl AsRef<Path>,
    negatives: &[PathBuf],
    options: &ReadOptions,
) -> Result<ContrastSet> {
    let positive = positive.as_ref();
    let mut loaded = Vec::with_capacity(negatives.len());
    for path in negatives {
        loaded.push((path.clone(), load(path)?));
    }
    read_sides_bytes(positive, &load(positive)?, &loaded, options)
}

/// [`read_sides`] from bytes.
///
/// # Errors
/// As [`read_sides`], but those of the file system.
pub fn read_sides_bytes(
    origin: &Path,
    positive: &[u8],
    negatives: &[(PathBuf, Vec<u8>)],
    options: &ReadOptions,
) -> Result<ContrastSet> {
    let text = decode(origin, positive)?;
    let mut others = Vec::with_capacity(negatives.len());
    for (path, bytes) in negatives {
        others.push((path.as_path(), decode(path, bytes)?));
    }
    let format = match options.format {
        Some(format) => format,
        None => detect(origin, text)?,
    };
    match format {
        Format::Repe => lists::emotions(origin, text, &others, options),
        Format::Text => lists::plain(origin, text, &others, options),
        other => Err(Error::input(
            origin.display().to_string(),
            format!(
                "the `{other}` format holds both halves in one file; only `repe` and `text` take one file a side"
            ),
        )),
    }
}

/// Recognises a format by what the text looks like.
///
/// # Errors
/// [`Error::Format`] that lists the formats where none fits. Plain text is never guessed: it has to be stated.
pub fn detect(origin: &Path, text: &str) -> Result<Format> {
    let text = text.trim_start_matches('\u{feff}');
    let start = text.trim_start();
    if start.is_empty() {
        return Err(Error::format(origin, "file", "it is empty; a contrast set needs at least one pair"));
    }
    if start.starts_with('[') {
        return json::detect_array(origin, start);
    }
    if start.starts_with('{') {
        return Ok(json::detect_line(start));
    }
    table::detect(start).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.into_iter().map(Format::name).collect();
        Error::format(
            origin,
            "line 1",
            format!(
                "this is no format known here: expected a JSON array, a JSON object a line, or a CSV header with `positive` \
                 and `negative` or with `statement` and `label`, found `{}`; state the format as one of {}, or give two \
                 plain-text files as `text:positive.txt,negative.txt`",
                shortened(start.lines().next().unwrap_or_default(), 60),
                names.join(", ")
            ),
        )
    })
}

/// [`detect`] on a file.
pub(super) fn detect_file(path: &Path) -> Result<Format> {
    detect(path, decode(path, &load(path)?)?)
}

/// The bytes of a file of at most [`MAX_BYTES`].
fn load(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|e| Error::io(path, "opening", e))?;
    let mut bytes = Vec::new();
    // One byte more than allowed: devices and pipes have no length to ask for beforehand.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| Error::io(path, "reading", e))?;
    Ok(bytes)
}

/// The text of a file, without its byte-order mark.
fn decode<'a>(origin: &Path, bytes: &'a [u8]) -> Result<&'a str> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::format(
            origin,
            "file",
            format!("it is larger than the {} MiB read at most; split it into several sets", MAX_BYTES >> 20),
        ));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Error::format(origin, "byte 0", "this is UTF-16 text; save it as UTF-8"));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let valid = bytes.get(..e.valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::format(
            origin,
            format!("line {line}, byte {}", e.valid_up_to()),
            "not UTF-8 text; save the file as UTF-8",
        )
    })?;
    Ok(text.trim_start_matches('\u{feff}'))
}

/// Joins a train file and a test file of the same set. Ids get the split in front, because published files count
/// both from zero.
pub(super) fn join(train: ContrastSet, test: ContrastSet) -> Result<ContrastSet> {
    let mut joined = train.clone();
    joined.source = format!("{} (train), {} (test)", train.source, test.source);
    joined.pairs.clear();
    for (split, set) in [(Split::Train, train), (Split::Test, test)] {
        joined.pairs.extend(set.pairs.into_iter().map(|pair| super::Pair {
            id: format!("{split}-{}", pair.id),
            split,
            ..pair
        }));
    }
    joined.check()?;
    Ok(joined)
}

#[cfg(test)]
mod tests;
