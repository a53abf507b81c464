//! Honest measurement: every number with its controls and its interval.

mod conditions;
mod letters;
mod run;
pub mod stats;

pub use conditions::{random, CarriedVectors, Condition, Vectors};
pub use letters::{letter_item, letters, LetterScores};
pub use run::{measure, Likeness, MeasureOptions, Measurement, Report, Row, Steerability};
