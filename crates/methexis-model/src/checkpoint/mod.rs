//! Checkpoints: the files that hold a model's weights, read lazily through a memory map.
//!
//! * [`gguf`]: the container of llama.cpp, versions 2 and 3.
//! * [`safetensors`]: Hugging Face folders, one file or many.
//! * [`metadata`]: typed key–value pairs of a GGUF file.
//! * [`open`]: one door for both; what comes out are canonical tensors ([`Weights`]), so that nothing
//!   above this module asks where a weight came from.

pub mod gguf;
pub mod metadata;
