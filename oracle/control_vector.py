"""Freezes what a GGUF control vector does to the logits of llama.cpp.

    python oracle/control_vector.py --models FOLDER
    python oracle/control_vector.py --models FOLDER --vector FILE

`golden/control_vector_smollm2-135m.json` holds, for each prompt, logits of the last token without and with the vector:
every 64th, the ten largest, and the L2 norms of the plain logits and of the difference. The weights are those of the
GGUF file, dequantised to F32; cache F32, no flash attention.

The vector is written with the `gguf` package, as other programs write theirs: `direction.N` for every block but the
first, zero save for two blocks. llama.cpp's own loader reads the file; what it reads goes to `llama_set_adapter_cvec`.
Before anything is frozen, the outputs of the two blocks are held against each other without and with the vector: the
difference at every position is `direction.N` in block N and nothing in the block before.

With `--vector`, nothing is frozen: the file (the same vector by another program) stands in for ours, and the logits are
held against the frozen ones.

llama.cpp comes compiled in the wheel of xllamacpp, which exports its C interface; the structures below are those of its
version (`WHEEL`).
"""
import argparse
import ctypes as c
import importlib.metadata
import json
import os
import sys
import tempfile

import gguf
import numpy as np
import xllamacpp

import common

MODEL = "smollm2-135m"
ARCH = "llama"
WHEEL = "xllamacpp-2026.10.11549-cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
BUILD = "b11549"
SEEDS = {10: 10, 20: 20}  # block: seed
SCALE = 0.5
STRIDE = 64
TOP = 10
TEXTS = [
    "The old bridge over the river was",
    "My neighbour keeps seven bees in a glass jar because",
    "To bake a simple loaf of bread, first mix the flour with water and",
]

EVAL = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_bool, c.c_void_p)
LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)


def structure(name, fields):
    """`fields`: lines of `type name name ...`."""
    types = {"i32": c.c_int32, "u32": c.c_uint32, "f32": c.c_float, "ptr": c.c_void_p, "bool": c.c_bool,
             "size": c.c_size_t, "eval": EVAL}
    lines = [line.split() for line in fields.strip().splitlines()]
    return type(name, (c.Structure,), {"_fields_": [(n, types[t]) for t, *names in lines for n in names]})


ModelParams = structure("ModelParams", """
    ptr devices tensor_buft_overrides
    i32 n_gpu_layers split_mode load_mode lazy_mode main_gpu
    ptr tensor_split progress_callback progress_callback_user_data kv_overrides
    bool vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp
""")
ContextParams = structure("ContextParams", """
    u32 n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq
    i32 n_threads n_threads_batch ctx_type rope_scaling_type pooling_type attention_type flash_attn_type
    f32 rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow
    u32 yarn_orig_ctx
    f32 defrag_thold
    eval cb_eval
    ptr cb_eval_user_data
    i32 type_k type_v
    size moe_cache_size
    ptr abort_callback abort_callback_data
    bool embeddings offload_kqv no_perf op_offload swa_full kv_unified
    ptr samplers
    size n_samplers
    ptr ctx_other
""")
Batch = structure("Batch", "i32 n_tokens\nptr token embd pos n_seq_id seq_id logits")
F32 = 0  # ggml_type
F16 = 1
FLASH_OFF = 0

# std::vector, the entry of a list of control vectors, and what the loader returns, as g++ lays them out. The wheel is
# compiled with the older std::string, a pointer to the characters; the loader does no more than read it.
Vector = structure("Vector", "ptr begin end capacity")
LoadInfo = structure("LoadInfo", "f32 strength\nptr name")
LoadData = structure("LoadData", "i32 n_embd\nptr begin end capacity")


def library():
    folder = os.path.dirname(xllamacpp.__file__)
    lib = c.CDLL(os.path.join(folder, "xllamacpp.abi3.so"))
    for name, result, arguments in [
        ("llama_version", c.c_char_p, []),
        ("ggml_version", c.c_char_p, []),
        ("llama_log_set", None, [LOG, c.c_void_p]),
        ("llama_model_default_params", ModelParams, []),
        ("llama_context_default_params", ContextParams, []),
        ("llama_model_load_from_file", c.c_void_p, [c.c_char_p, ModelParams]),
        ("llama_init_from_model", c.c_void_p, [c.c_void_p, ContextParams]),
        ("llama_free", None, [c.c_void_p]),
        ("llama_model_free", None, [c.c_void_p]),
        ("llama_model_get_vocab", c.c_void_p, [c.c_void_p]),
        ("llama_vocab_n_tokens", c.c_int32, [c.c_void_p]),
        ("llama_model_n_embd", c.c_int32, [c.c_void_p]),
        ("llama_model_n_layer", c.c_int32, [c.c_void_p]),
        ("llama_tokenize", c.c_int32,
         [c.c_void_p, c.c_char_p, c.c_int32, c.c_void_p, c.c_int32, c.c_bool, c.c_bool]),
        ("llama_batch_get_one", Batch, [c.c_void_p, c.c_int32]),
        ("llama_decode", c.c_int32, [c.c_void_p, Batch]),
        ("llama_get_logits_ith", c.POINTER(c.c_float), [c.c_void_p, c.c_int32]),
        ("llama_set_adapter_cvec", c.c_int32,
         [c.c_void_p, c.c_void_p, c.c_size_t, c.c_int32, c.c_int32, c.c_int32]),
        ("ggml_get_name", c.c_char_p, [c.c_void_p]),
        ("ggml_nelements", c.c_int64, [c.c_void_p]),
        ("ggml_backend_tensor_get", None, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t]),
    ]:
        f = getattr(lib, name)
        f.restype, f.argtypes = result, arguments
    d = lib.llama_context_default_params()
    if (d.n_ctx, d.n_batch, d.flash_attn_type, d.type_k, d.type_v, d.n_samplers) != (512, 2048, -1, F16, F16, 0):
        sys.exit("the defaults are not those of " + BUILD + ": the structures differ")
    lib.quiet = LOG(lambda level, text, data: None)
    lib.llama_log_set(lib.quiet, None)
    return lib


def dequantise(source, target):
    """Copies a model file with every tensor in F32 and all metadata."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, ARCH)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = 0 if name == "general.file_type" else field.contents()
        item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], item)
    for t in reader.tensors:
        writer.add_tensor(t.name, np.ascontiguousarray(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def recipe(depth, width):
    """[depth - 1, width], the row of block 1 first."""
    rows = np.zeros((depth - 1, width), dtype=np.float32)
    for block, seed in SEEDS.items():
        rows[block - 1] = np.array(common.signs(seed, width)) * SCALE
    return rows


def write_vector(path, rows):
    writer = gguf.GGUFWriter(path, "controlvector")
    writer.add_string("controlvector.model_hint", ARCH)
    writer.add_uint32("controlvector.layer_count", len(rows))
    for block, row in enumerate(rows, 1):
        writer.add_tensor(f"direction.{block}", row)
    finish(writer)


def read_vector(path, depth, width):
    """By the gguf package: every block but the first, one dimension, F32."""
    found = {}
    for t in gguf.GGUFReader(path).tensors:
        if t.tensor_type != gguf.GGMLQuantizationType.F32 or t.shape.tolist() != [width]:
            sys.exit(f"{path}: {t.name} is {t.tensor_type.name} of shape {t.shape.tolist()}")
        found[t.name] = np.array(t.data)
    names = [f"direction.{n}" for n in range(1, depth)]
    if sorted(found) != sorted(names):
        sys.exit(f"{path}: holds {sorted(found)}")
    return np.stack([found[n] for n in names])


def load_vector(lib, path):
    """By llama.cpp's own loader, the one behind `--control-vector`."""
    name = path.encode()
    info = LoadInfo(strength=1.0, name=c.cast(c.c_char_p(name), c.c_void_p))
    begin = c.addressof(info)
    infos = Vector(begin, begin + c.sizeof(info), begin + c.sizeof(info))
    data = LoadData()
    load = lib._Z26common_control_vector_loadRKSt6vectorI31common_control_vector_load_infoSaIS0_EE
    load.restype, load.argtypes = c.c_void_p, [c.c_void_p, c.c_void_p]  # the result is returned through the first
    load(c.addressof(data), c.addressof(infos))
    if data.n_embd < 1:
        sys.exit(f"{path}: refused by llama.cpp")
    n = (data.end - data.begin) // 4
    return np.ctypeslib.as_array((c.c_float * n).from_address(data.begin)).copy().reshape(-1, data.n_embd)


class Model:
    def __init__(self, lib, path):
        self.lib = lib
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            sys.exit(path + ": refused by llama.cpp")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.tokens = lib.llama_vocab_n_tokens(self.vocab)
        self.depth = lib.llama_model_n_layer(self.model)
        self.width = lib.llama_model_n_embd(self.model)

    def tokenize(self, text):
        raw = text.encode()
        ids = (c.c_int32 * 256)()
        n = self.lib.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), True, False)
        return list(ids[:n])

    def run(self, ids, rows=None, start=1, end=None, watch=()):
        """Logits of the last token; with `watch`, also the output of those blocks, all positions.

        Every run has a context of its own.
        """
        lib, seen = self.lib, {}

        def look(tensor, ask, _):
            name = lib.ggml_get_name(tensor).decode()
            block = int(name[6:]) if name.startswith("l_out-") else -1
            if block in watch and not ask:
                out = np.empty(lib.ggml_nelements(tensor), dtype=np.float32)
                lib.ggml_backend_tensor_get(tensor, out.ctypes.data, 0, out.nbytes)
                seen[block] = out.reshape(-1, self.width)
            return block in watch or not ask

        p = lib.llama_context_default_params()
        p.n_ctx, p.n_threads, p.n_threads_batch = 256, 2, 2
        p.type_k = p.type_v = F32
        p.flash_attn_type = FLASH_OFF
        callback = EVAL(look)
        if watch:
            p.cb_eval = callback
        context = lib.llama_init_from_model(self.model, p)
        if rows is not None:
            flat = np.ascontiguousarray(rows, dtype=np.float32)
            end = self.depth - 1 if end is None else end
            if lib.llama_set_adapter_cvec(context, flat.ctypes.data, flat.size, rows.shape[1], start, end) != 0:
                sys.exit("llama.cpp refused the control vector")
        tokens = (c.c_int32 * len(ids))(*ids)
        if lib.llama_decode(context, lib.llama_batch_get_one(tokens, len(ids))) != 0:
            sys.exit("llama.cpp could not decode")
        logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (self.tokens,)).copy()
        lib.llama_free(context)
        return (logits, seen) if watch else logits


def check_blocks(model, ids, rows):
    """The vector of block N is added to the output of block N (counted from 0), at every position."""
    for block in SEEDS:
        watch = (block - 1, block)
        _, before = model.run(ids, watch=watch)
        _, after = model.run(ids, rows, start=block, end=block, watch=watch)
        if before[block].shape != (len(ids), model.width) or (before[block - 1] != after[block - 1]).any():
            sys.exit(f"block {block - 1} changed")
        # One addition in F32, so that the sum is the same to the last bit.
        if (before[block] + rows[block - 1] != after[block]).any():
            sys.exit(f"the output of block {block} is not moved by direction.{block}")


def number(x):
    return float(f"{x:.7g}")


def summary(logits):
    top = np.argsort(-logits, kind="stable")[:TOP]
    return {
        "strided": [number(x) for x in logits[::STRIDE]],
        "top_ids": top.tolist(),
        "top": [number(x) for x in logits[top]],
    }


def norm(x):
    return number(np.linalg.norm(x.astype(np.float64)))


def compare(golden, prompts):
    worst = 0.0
    for a, b in zip(golden["prompts"], prompts, strict=True):
        if a["ids"] != b["ids"]:
            sys.exit("the token ids differ")
        for kind in ["plain", "steered"]:
            d = np.abs(np.array(a[kind]["strided"]) - np.array(b[kind]["strided"])).max()
            worst = max(worst, d)
            print(f"{kind:8} largest difference from the frozen logits {d:.2e}")
    return worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True, help=f"folder that holds {MODEL}.gguf")
    p.add_argument("--vector", help="control vector to hold against the frozen values instead of freezing")
    args = p.parse_args()
    version = importlib.metadata.version("xllamacpp")
    if version != WHEEL.split("-")[1]:
        sys.exit(f"xllamacpp is {version}, wanted {WHEEL}")
    path = os.path.join(common.GOLDEN, f"control_vector_{MODEL}.json")
    lib = library()
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "f32.gguf")
        dequantise(os.path.join(args.models, MODEL + ".gguf"), weights)
        model = Model(lib, weights)
        wanted = recipe(model.depth, model.width)
        vector = args.vector
        if vector is None:
            vector = os.path.join(folder, "vector.gguf")
            write_vector(vector, wanted)
        rows = load_vector(lib, vector)
        if (read_vector(vector, model.depth, model.width) != rows).any():
            sys.exit(f"{vector}: llama.cpp and the gguf package read different values")
        if rows.shape != wanted.shape or (rows != wanted).any():
            sys.exit(f"{vector}: is not the vector of the recipe")
        prompts = []
        for text in TEXTS:
            ids = model.tokenize(text)
            check_blocks(model, ids, rows)
            plain, steered = model.run(ids), model.run(ids, rows)
            prompts.append({
                "text": text,
                "ids": ids,
                "plain": summary(plain),
                "steered": summary(steered),
                "plain_norm": norm(plain),
                "difference_norm": norm(steered.astype(np.float64) - plain),
            })
            print(f"{len(ids)} tokens, |plain| {prompts[-1]['plain_norm']}, "
                  f"|difference| {prompts[-1]['difference_norm']}, "
                  f"best {plain.argmax()} -> {steered.argmax()}", flush=True)
        depth, width = model.depth, model.width
        lib.llama_model_free(model.model)
    if args.vector is not None:
        with open(path, encoding="utf-8") as f:
            sys.exit(compare(json.load(f), prompts) > 1e-3)
    out = {
        "model": MODEL,
        "weights": "dequantised to F32",
        "llama.cpp": f"{BUILD} ({lib.llama_version().decode()}, ggml {lib.ggml_version().decode()})",
        "wheel": WHEEL,
        "gguf": importlib.metadata.version("gguf"),
        "settings": {"type_k": "F32", "type_v": "F32", "flash_attention": False, "threads": 2},
        "vector": {
            "blocks": [{"block": b, "seed": s} for b, s in SEEDS.items()],
            "scale": SCALE, "depth": depth, "width": width, "first": 1, "last": depth - 1,
        },
        "stride": STRIDE,
        "prompts": prompts,
    }
    with open(path, "w", encoding="utf-8") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
