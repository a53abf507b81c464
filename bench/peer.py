"""The peers' side of the benchmark: a worker that answers one JSON object a line.

    python bench/peer.py --threads N

`requirements.txt` and `requirements-llama.txt` (a compiler, some minutes) say what to install.

A line on standard input is a request, `{"do": NAME, ...}`; the line that answers it is `{"error": TEXT}` if it failed.
Everything else that the libraries have to say goes to standard error. Models are loaded once and kept; neither loading,
nor warming up, nor the making of inputs is in any of the times. Every time is wall-clock seconds.

The peers: repeng and transformers (hidden states), llama.cpp as llama-cpp-python compiles it for this machine (prefill,
decoding), NumPy and torch (products, reading, least squares). A peer that is not installed is an error of the requests
that need it and `null` among the versions.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import functools
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
import traceback

THREAD_VARIABLES = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
                    "RAYON_NUM_THREADS"]
# What would make a peer slower than it is by default.
HANDICAPS = ["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY",
             "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY"]
SEED = 20240229


def take_stdout():
    """The stream of the answers; from now on file descriptor 1 leads to standard error."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


def prepare(threads):
    """Environment of the libraries; to be called before any of them is imported."""
    for name in HANDICAPS:
        os.environ.pop(name, None)
    if core := core_type():
        os.environ["OPENBLAS_CORETYPE"] = core
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["TQDM_DISABLE"] = "1"


def core_type():
    """What to tell OpenBLAS of this processor; None where it had better look for itself.

    repeng 0.4 needs NumPy 1.26, whose OpenBLAS (0.3.23) takes an x86 processor younger than itself for one with no more
    than SSE3, and is then six times slower.
    """
    numpy = version("numpy")
    if numpy is None or not numpy.startswith("1.") or not os.path.exists("/proc/cpuinfo"):
        return None
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        flags = set(next((line for line in f if line.startswith("flags")), "").split())
    if {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return "SkylakeX"
    return "Haswell" if {"avx2", "fma"} <= flags else None


def measured(job):
    """(seconds, result)"""
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result


def spread(job, reps, warm=1):
    """Median and best seconds of `reps` calls after `warm` others."""
    for _ in range(warm):
        job()
    times = [measured(job)[0] for _ in range(max(1, reps))]
    return {"median": statistics.median(times), "best": min(times)}


def first(rows, k):
    """The first `k` numbers of each row."""
    return [[float(x) for x in row[:k]] for row in rows]


class Models:
    """transformers models by path and kind, and tokenizers by path."""

    def __init__(self):
        self.models = {}
        self.tokenizers = {}

    def model(self, path, kind):
        key = (os.path.abspath(path), kind)
        if key not in self.models:
            self.models[key] = self.base_of_causal(key) or self.load(*key)
            self.warm_up(self.models[key])
        return self.models[key]

    def base_of_causal(self, key):
        """The same module as `AutoModel` gives, if it has been loaded as a part of the model with a head."""
        path, kind = key
        whole = self.models.get((path, "causal"))
        return whole.base_model if whole is not None and kind == "base" else None

    def load(self, path, kind):
        import torch
        import transformers

        classes = {"causal": transformers.AutoModelForCausalLM, "base": transformers.AutoModel}
        folder, file = os.path.split(path)
        return classes[kind].from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()

    def warm_up(self, model):
        import torch

        tokens = torch.arange(64).reshape(2, 32)
        mask = torch.ones_like(tokens)
        mask[1, 16:] = 0
        with torch.inference_mode():
            model(input_ids=tokens, attention_mask=mask, output_hidden_states=True)

    def tokenizer(self, path):
        """As repeng wants it: with a token to pad with. Its function finds the last token on either side; padded on the
        right, the tokens of a text stand at the positions that they have alone."""
        path = os.path.abspath(path)
        if path not in self.tokenizers:
            import transformers

            folder, file = os.path.split(path)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
            if tokenizer.pad_token_id is None:
                tokenizer.pad_token = tokenizer.eos_token
            tokenizer.padding_side = "right"
            self.tokenizers[path] = tokenizer
        return self.tokenizers[path]

    def unload(self, path):
        path = os.path.abspath(path)
        for key in [k for k in self.models if k[0] == path]:
            del self.models[key]
        self.tokenizers.pop(path, None)


class Llama:
    """llama.cpp through the C interface that llama-cpp-python brings: the loop of llama-bench, without its program.

    One model and one context are kept, until a request asks for another.
    """

    def __init__(self, threads):
        self.threads = threads
        self.lib = None
        self.model = self.model_path = None
        self.context = self.settings = None

    def library(self):
        if self.lib is None:
            self.lib = importlib.import_module("llama_cpp.llama_cpp")
            self.quiet = self.lib.llama_log_callback(lambda level, text, data: None)
            self.lib.llama_log_set(self.quiet, None)
            self.lib.llama_backend_init()
        return self.lib

    def features(self):
        """What llama.cpp was compiled to use of this processor."""
        return self.library().llama_print_system_info().decode().strip(" |")

    def close_context(self):
        if self.context:
            self.lib.llama_free(self.context)
        self.context = self.settings = None

    def close(self):
        self.close_context()
        if self.model:
            self.lib.llama_model_free(self.model)
        self.model = self.model_path = None

    def open_model(self, path):
        path = os.path.abspath(path)
        if self.model_path == path:
            return
        lib = self.library()
        self.close()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"{path}: llama.cpp refuses it")
        self.model_path = path
        self.vocabulary = lib.llama_model_get_vocab(self.model)
        self.n_tokens = lib.llama_vocab_n_tokens(self.vocabulary)

    def open_context(self, size, batch, ubatch, flash):
        """`flash`: true, false, or None for llama.cpp's own choice. True if there was none like it yet."""
        settings = (self.model_path, size, batch, ubatch, flash)
        if self.settings == settings:
            return False
        lib = self.lib
        self.close_context()
        p = lib.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch = size, batch, ubatch
        p.n_threads = p.n_threads_batch = self.threads
        p.flash_attn_type = -1 if flash is None else int(flash)
        self.context = lib.llama_init_from_model(self.model, p)
        if not self.context:
            raise RuntimeError(f"llama.cpp refuses a context of {settings[1:]}")
        self.settings = settings
        self.batch = batch
        return True

    def open(self, request, length):
        """Model and context for `length` tokens, as the request wants them; True if the context is new."""
        self.open_model(request["model"])
        ubatch = request.get("ubatch", 512)
        batch = request.get("batch", max(2048, ubatch))
        return self.open_context((length + 255) // 256 * 256, batch, ubatch, request.get("flash"))

    def random_ids(self, n):
        """llama-bench also runs on random tokens: the work does not depend on which they are."""
        import numpy as np

        ids = np.random.default_rng(SEED).integers(0, self.n_tokens, n).tolist()
        if n and self.lib.llama_vocab_get_add_bos(self.vocabulary):
            ids[0] = self.lib.llama_vocab_bos(self.vocabulary)
        return ids

    def decode(self, tokens):
        batch = self.lib.llama_batch_get_one(tokens, len(tokens))
        if self.lib.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama.cpp could not decode")

    def prefill(self, ids):
        """Empties the cache and runs all of `ids`; logits of the last token of every batch."""
        lib = self.lib
        lib.llama_memory_clear(lib.llama_get_memory(self.context), False)
        for start in range(0, len(ids), self.batch):
            part = ids[start:start + self.batch]
            self.decode((ctypes.c_int32 * len(part))(*part))
        lib.llama_synchronize(self.context)

    def greedy(self):
        """The largest of the last logits, end of text or not. NumPy finds it sooner than llama.cpp's own sampler."""
        import numpy as np

        logits = self.lib.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.n_tokens,)).argmax())

    def generate(self, n):
        """`n` tokens after what is in the cache, each run by itself."""
        out, token = [], (ctypes.c_int32 * 1)()
        for _ in range(n):
            token[0] = self.greedy()
            out.append(token[0])
            self.decode(token)
            self.lib.llama_synchronize(self.context)
        return out

    def quantize(self, source, target, kind):
        lib = self.library()
        p = lib.llama_model_quantize_default_params()
        p.nthread, p.allow_requantize = self.threads, True
        name = {"Q2_K": "Q2_K_S", "Q3_K": "Q3_K_S", "Q4_K": "Q4_K_S", "Q5_K": "Q5_K_S"}.get(kind, kind)
        p.pure = name != kind or not kind.endswith(("_S", "_M", "_L"))
        prefix = "LLAMA_FTYPE_ALL_" if kind == "F32" else "LLAMA_FTYPE_MOSTLY_"
        p.ftype = getattr(lib, prefix + name)
        status = lib.llama_model_quantize(os.path.abspath(source).encode(), os.path.abspath(target).encode(),
                                          ctypes.byref(p))
        if status != 0:
            raise RuntimeError(f"llama.cpp could not write {source} as {kind}")
        return bool(p.pure)


class Worker:
    def __init__(self, threads):
        self.threads = threads
        self.models = Models()
        self.llama = Llama(threads)
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.regressions = {}

    @functools.cached_property
    def torch(self):
        import torch

        torch.set_num_threads(self.threads)
        return torch

    @functools.cached_property
    def numpy(self):
        import numpy

        return numpy

    def answer(self, request):
        job = getattr(self, "do_" + str(request.get("do")), None)
        if job is None:
            raise ValueError(f"no request is called {request.get('do')!r}")
        return job(request)

    def do_versions(self, request):
        """Versions of the peers, and what each says it uses of the processor."""
        out = {"python": platform.python_version()}
        for name in ["torch", "transformers", "tokenizers", "gguf", "repeng", "numpy"]:
            out[name] = version(name)
        out["llama"] = version("llama_cpp_python")
        out["threads"] = self.threads
        out["llama_features"] = self.llama.features() if out["llama"] else None
        out["torch_features"] = self.torch.backends.cpu.get_cpu_capability() if out["torch"] else None
        out["numpy_blas"] = blas_of_numpy()
        return out

    def do_load(self, request):
        """Loads `model` as `kind` ("causal" or "base"), if that has not been done."""
        self.torch  # its threads are set
        kind = request.get("kind", "base")
        seconds, model = measured(lambda: self.models.model(request["model"], kind))
        c = model.config
        return {"seconds": seconds, "layers": c.num_hidden_layers, "width": c.hidden_size,
                "attention": c._attn_implementation, "dtype": str(model.dtype)}

    def do_unload(self, request):
        """Forgets the model in transformers; without `model`, all of them, and llama.cpp's."""
        paths = [request["model"]] if "model" in request else {path for path, _ in self.models.models}
        for path in list(paths):
            self.models.unload(path)
        if "model" not in request:
            self.llama.close()
        return {}

    def do_repeng(self, request):
        """repeng's own collection of last-token states. Layer n >= 0 is the output of block n, counted from 0; a
        negative one counts from the last hidden state, so that -1 and depth - 1 are the output of the final norm."""
        from repeng.extract import batched_get_hiddens

        self.torch
        path, texts, layers, batch = request["model"], request["texts"], request["layers"], request["batch"]
        model, tokenizer = self.models.model(path, "causal"), self.models.tokenizer(path)
        # `ControlVector.train` calls it in this mode.
        with self.torch.inference_mode():
            seconds, found = measured(lambda: batched_get_hiddens(model, tokenizer, texts, layers, batch))
        rows = [found[layer] for layer in layers]
        out = {"seconds": seconds, "rows": [len(texts), len(layers), rows[0].shape[1]]}
        if request.get("tokens"):
            out.update(token_counts(tokenizer, texts, batch))
        if "values" in request:
            out["values"] = first([r[-1] for r in rows], request["values"])
        return out

    def do_hidden(self, request):
        """Last-token states of all layers (0: the embeddings, depth: after the final norm) from ids, by transformers."""
        model = self.models.model(request["model"], request.get("kind", "base"))
        ids = request["ids"]
        pad = model.config.pad_token_id or 0
        with self.torch.inference_mode():
            seconds, rows = measured(lambda: last_states(self.torch, model, ids, request["batch"], pad))
        out = {"seconds": seconds, "rows": list(rows.shape)}
        if "values" in request:
            out["values"] = first(rows[-1], request["values"])
        return out

    def do_llama_prefill(self, request):
        """`tokens` tokens (or `ids`) from an empty cache. `batch`, `ubatch`, `flash`, `reps`."""
        n = len(request["ids"]) if "ids" in request else request["tokens"]
        fresh = self.llama.open(request, n)
        ids = request.get("ids") or self.llama.random_ids(n)
        times = spread(lambda: self.llama.prefill(ids), request.get("reps", 1), warm=int(fresh))
        return {"seconds": times["median"], "best": times["best"], "tokens_per_second": n / times["median"]}

    def do_llama_decode(self, request):
        """`tokens` tokens one by one, greedily, end of text or not, after `prompt` random tokens (or `ids`)."""
        p = len(request["ids"]) if "ids" in request else request["prompt"]
        n = request["tokens"]
        fresh = self.llama.open(request, p + n)
        ids = request.get("ids") or self.llama.random_ids(p)
        if fresh:
            self.llama.prefill(ids)
            self.llama.generate(min(n, 16))
        times = []
        for _ in range(max(1, request.get("reps", 1))):
            self.llama.prefill(ids)
            seconds, out = measured(lambda: self.llama.generate(n))
            times.append(seconds)
        seconds = statistics.median(times)
        return {"seconds": seconds, "best": min(times), "tokens_per_second": n / seconds, "ids": out}

    def do_quantize(self, request):
        """A copy of the model in `from` as `type`, written to `to`. A plain type (`Q8_0`, `Q4_K`) is given to every
        matrix whose rows are whole blocks of it; the names of mixtures (`Q4_K_M`) are llama.cpp's."""
        seconds, pure = measured(lambda: self.llama.quantize(request["from"], request["to"], request["type"]))
        return {"seconds": seconds, "pure": pure, "bytes": os.path.getsize(request["to"]),
                "types": tensor_types(request["to"])}

    def do_gemm(self, request):
        """x[m, k] @ w[k, n] into a given output; w as it is and as the transposed view of [n, k]. The better layout."""
        m, k, n = (request[key] for key in "mkn")
        reps, dtype = request.get("reps", 5), request.get("dtype", "float32")
        rng = self.numpy.random.default_rng(SEED)
        x, plain = (rng.standard_normal(shape).astype(dtype) for shape in [(m, k), (k, n)])
        layouts = {"plain": plain, "transposed": self.numpy.ascontiguousarray(plain.T).T}
        out = {"numpy": better_layout(layouts, lambda w: numpy_product(self.numpy, x, w), reps, 2 * m * k * n),
               "torch": None}
        if version("torch"):
            out["torch"] = better_layout(layouts, lambda w: torch_product(self.torch, x, w), reps, 2 * m * k * n)
        return out

    def do_bandwidth(self, request):
        """GB/s (10^9 bytes) of reading `mib` MiB of float32; the best of some reductions that only read."""
        np, reps = self.numpy, request.get("reps", 5)
        data = np.ones(request["mib"] << 18, dtype=np.float32)
        parts = np.array_split(data, self.threads)
        jobs = {
            "numpy_sum": lambda: list(self.pool.map(np.sum, parts)),
            "numpy_max": lambda: list(self.pool.map(np.max, parts)),
            "numpy_dot": lambda: np.dot(data, data),
        }
        if version("torch"):
            tensor = self.torch.from_numpy(data)
            jobs |= {"torch_sum": tensor.sum, "torch_max": tensor.amax}
        out = {name: rate(spread(job, reps), data.nbytes) for name, job in jobs.items()}
        name = max(out, key=lambda key: out[key]["median"])
        return {**out[name], "by": name, "all": out}

    def do_lstsq(self, request):
        """Least squares of y[n, t] on x[n, d]: `numpy.linalg.lstsq`, or with "by": "torch" `torch.linalg.lstsq`.
        `residual` is |xw - y| / |y|. (NumPy computes in float64 whatever it is given.)"""
        x, y = self.regression(request)
        by = request.get("by", "numpy")
        seconds, w = measured(lambda: LSTSQ[by](x, y))
        np = self.numpy
        out = {"seconds": seconds, "residual": float(np.linalg.norm(x @ w - y) / np.linalg.norm(y)),
               "dtype": str(w.dtype)}
        if "values" in request:
            out["values"] = first([w[0]], request["values"])[0]
        return out

    def regression(self, request):
        """x and y: raw little-endian f32 by rows if files are named, else random, y linear in x but for noise."""
        np = self.numpy
        shape = tuple(request[key] for key in "ndt")
        key = (shape, request.get("dtype", "float64"), request.get("file_x"), request.get("file_y"))
        if key not in self.regressions:
            n, d, t = shape
            if "file_x" in request:
                x, y = (np.fromfile(request[f], dtype="<f4") for f in ["file_x", "file_y"])
            else:
                rng = np.random.default_rng(SEED)
                x, y = (rng.standard_normal(s, dtype=np.float32) for s in [(n, d), (n, t)])
                w = rng.standard_normal((d, t), dtype=np.float32) / np.float32(d ** 0.5)
                y += x @ w
            self.regressions = {key: (x.reshape(n, d).astype(key[1]), y.reshape(n, t).astype(key[1]))}
        return self.regressions[key]


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def blas_of_numpy():
    try:
        import numpy  # its BLAS is found once it is loaded
        import threadpoolctl
    except ImportError:
        return None
    found = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas" and "numpy" in p["filepath"]]
    return ", ".join(f"{p['internal_api']} {p['version']} {p.get('architecture')} {p['num_threads']} threads"
                     for p in found)


def token_counts(tokenizer, texts, batch):
    """Tokens of the texts, and positions computed with the padding of each batch."""
    lengths = [len(ids) for ids in tokenizer(texts)["input_ids"]]
    parts = [lengths[i:i + batch] for i in range(0, len(lengths), batch)]
    return {"tokens": sum(lengths), "padded": sum(max(part) * len(part) for part in parts)}


def last_states(torch, model, ids, batch, pad):
    """[texts, depth + 1, width]"""
    rows = []
    for start in range(0, len(ids), batch):
        part = ids[start:start + batch]
        lengths = torch.tensor([len(text) for text in part])
        longest = int(lengths.max())
        tokens = torch.tensor([text + [pad] * (longest - len(text)) for text in part])
        mask = (torch.arange(longest) < lengths[:, None]).long()
        out = model(input_ids=tokens, attention_mask=mask, output_hidden_states=True, use_cache=False)
        which = torch.arange(len(part))
        rows.append(torch.stack([h[which, lengths - 1] for h in out.hidden_states], dim=1))
    return torch.cat(rows)


def tensor_types(path):
    """How many tensors of each type a GGUF file holds."""
    import gguf

    return dict(collections.Counter(t.tensor_type.name for t in gguf.GGUFReader(path).tensors))


def torch_product(torch, x, w):
    x, w = torch.from_numpy(x), torch.from_numpy(w)
    out = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
    return lambda: torch.matmul(x, w, out=out)


def numpy_product(np, x, w):
    out = np.empty((x.shape[0], w.shape[1]), dtype=x.dtype)
    return lambda: np.matmul(x, w, out=out)


def better_layout(layouts, product, reps, flops):
    times = {name: spread(product(w), reps, warm=2) for name, w in layouts.items()}
    name = min(times, key=lambda key: times[key]["median"])
    return {**times[name], "layout": name, "gflops": flops / times[name]["median"] / 1e9, "all": times}


def rate(times, n):
    return {"median": n / times["median"] / 1e9, "best": n / times["best"] / 1e9}


def lstsq_numpy(x, y):
    import numpy as np

    return np.linalg.lstsq(x, y, rcond=None)[0]


def lstsq_torch(x, y):
    """QR without pivots, which takes the rank to be full."""
    import torch

    return torch.linalg.lstsq(torch.from_numpy(x), torch.from_numpy(y), driver="gels").solution.numpy()


LSTSQ = {"numpy": lstsq_numpy, "torch": lstsq_torch}


def serve(worker, requests, answers):
    for line in requests:
        if not line.strip():
            continue
        try:
            out = worker.answer(json.loads(line))
        except Exception as e:
            traceback.print_exc()
            out = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(out) + "\n")
        answers.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    args = p.parse_args()
    answers = take_stdout()
    prepare(args.threads)
    serve(Worker(args.threads), sys.stdin, answers)


if __name__ == "__main__":
    main()
