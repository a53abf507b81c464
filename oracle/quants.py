"""Freezes golden/quants.gguf, one tensor of random blocks for each type of GGUF, and quants.safetensors, what the gguf
package makes of them.

    python oracle/quants.py
"""
import os

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize
from safetensors.numpy import save_file

from common import GOLDEN

ROWS, COLUMNS = 3, 512
# Where the half-precision scales of a block stand (bytes); random bits there could be NaN.
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}


def main():
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(os.path.join(GOLDEN, "quants.gguf"), "llama")
    out = {}
    values = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    half = values.astype(np.float16)
    brain = (values.view(np.uint32) >> 16).astype(np.uint16)
    writer.add_tensor("f32", values)
    writer.add_tensor("f16", half)
    writer.add_tensor("bf16", brain.view(np.uint8), raw_shape=(ROWS, COLUMNS * 2), raw_dtype=T.BF16)
    out["f32"], out["f16"] = values, half.astype(np.float32)
    out["bf16"] = (brain.astype(np.uint32) << 16).view(np.float32)
    for kind, places in SCALES.items():
        block, size = GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, size=(ROWS, COLUMNS // block, size), dtype=np.uint8)
        for at in places:
            scale = (rng.normal(size=(ROWS, COLUMNS // block)) * 0.05).astype(np.float16)
            data[:, :, at : at + 2] = scale[..., None].view(np.uint8)
        data = data.reshape(ROWS, -1)
        name = kind.name.lower()
        writer.add_tensor(name, data, raw_dtype=kind)
        out[name] = np.ascontiguousarray(dequantize(data, kind), dtype=np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(out, os.path.join(GOLDEN, "quants.safetensors"))
    print({k: v.shape for k, v in out.items()})


if __name__ == "__main__":
    main()
