//! CPU kernels of the decoder, on plain slices: what a profile showed to need one.
//!
//! Instruction sets are chosen at run time; every kernel has a portable form. Nothing here knows of models or tensors.

mod aligned;
pub mod attention;
pub mod dense;
pub mod math;
pub mod product;
pub mod profile;
pub mod quant;
pub mod rows;
mod tile;
