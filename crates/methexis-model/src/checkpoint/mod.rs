//! Checkpoints: files and sources of weights.
