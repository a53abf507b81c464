//! Concepts as directions.
