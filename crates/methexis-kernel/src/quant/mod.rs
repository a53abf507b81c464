//! Quantised matrices: exact dequantisation and products with 8-bit activations.
