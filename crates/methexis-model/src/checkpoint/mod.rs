//! Checkpoints: the files that hold a model's weights, read lazily through a memory map.
//!
//! * [`gguf`]: the container of llama.cpp, versions 2 and 3, with its typed [`metadata`].
//! * [`safetensors`]: Hugging Face folders, one file or many.
//! * [`Checkpoint`]: one door for both; what comes out are canonical weights by [`Part`], so that nothing above
//!   this module asks where a weight came from.

pub mod gguf;
pub mod gguf_write;
pub mod metadata;
mod part;
pub mod safetensors;
mod weights;

pub use part::{BlockPart, Part};
pub use weights::{block_parts, Checkpoint, Matrix, Precision};
