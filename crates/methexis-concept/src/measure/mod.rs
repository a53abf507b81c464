//! Honest measurement: every number with its controls and its interval.

pub mod stats;
