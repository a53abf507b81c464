//! Contrast sets: pairs of texts that show a concept and its absence.
//!
//! A [`ContrastSet`] is what the rest of this crate reads a direction from and measures it on. Formats stop here:
//! JSONL, JSON, CSV, answer-letter questions (CAA), emotion lists (RepE) and labelled statements all become the same
//! set by [`read()`], and nothing further in asks where a pair came from. Eleven sets written for this project and
//! a corpus of neutral text are built in ([`builtin()`], [`neutral`]);
//! [`resolve`] takes a name or a file, [`lint()`] looks a set over.

mod builtin;
mod fuzz;
mod lint;
mod read;
mod render;
mod resolve;
mod set;
mod words;

pub use builtin::{builtin, builtin_names, neutral};
#[doc(hidden)]
pub use fuzz::fuzz_any;
pub use lint::{lint, Finding, Lengths, LintReport, Rule, Severity, TokenCounter, Variety};
pub use read::{
    detect, read, read_bytes, read_sides, read_sides_bytes, Format, ReadOptions, SplitRule, EMOTION_TEMPLATE,
    MAX_BYTES, MAX_TEXT,
};
pub use render::{AbQuestion, Half};
pub use resolve::{resolve, resolve_with};
pub use set::{text_hash, ContrastSet, NeutralText, Pair, Split};
