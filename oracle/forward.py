"""Freezes token ids, block outputs, sites, edits, logits and greedy tokens of transformers.

    python forward.py --models DIR

For each model and each of 20 prompts: `golden/forward_<model>.json` (ids, greedy tokens, gaps between the two best
logits, top 32 logits, log-sum-exp) and `golden/forward_<model>.safetensors`:
  rows.P      [blocks + 2, 2, width]   embedding, every block's output, final norm; middle and last token of prompt P
  sketch.P    [blocks, tokens, 4]      every position: products with 4 sign vectors (seeds 1001 ...) / sqrt(width)
  norms.P     [blocks, tokens]
  strided.P   [512]                    evenly strided logits of the last token
  sites.P     [blocks, 3, width]       attn_out, resid_mid, mlp_out of the last token (first four prompts)
  heads.P     [blocks, heads*dim]      input of W_O, last token (first four prompts)
  edited.P.E  [512]                    strided logits under edit E (see `edits` in the json; prompts 0, 4, 14)
"""
import json
import os

import numpy as np
import torch
from safetensors.numpy import save_file

from common import GOLDEN, arguments, encode_all, load, signs

GREEDY = 40
SITES = 4
EDITED = [0, 4, 14]


def hook(module, store, key, position=None):
    def f(_, args, out):
        t = (args[0] if position == "in" else out)
        t = t[0] if isinstance(t, tuple) else t
        store[key] = t[0].detach().clone()
    return module.register_forward_hook(f)


def edit_hooks(layers, head_dim, edit):
    """Registers the edit; returns handles."""
    at, kind = edit["block"], edit["kind"]
    if kind == "zero_head":
        h = edit["head"]
        def pre(_, args):
            z = args[0].clone()
            z[..., h * head_dim:(h + 1) * head_dim] = 0
            return (z,)
        return [layers[at].self_attn.o_proj.register_forward_pre_hook(pre)]
    v = torch.tensor(edit["vector"], dtype=torch.float32)
    module = {"resid_post": layers[at], "attn_out": attn_end(layers[at]), "mlp_out": mlp_end(layers[at])}[edit["site"]]
    def post(_, args, out):
        t = out[0] if isinstance(out, tuple) else out
        t = t.clone()
        if edit["positions"] == "last":
            t[:, -1] += v
        else:
            t += v
        return (t, *out[1:]) if isinstance(out, tuple) else t
    return [module.register_forward_hook(post)]


def attn_end(layer):
    return layer.post_attention_layernorm if hasattr(layer, "pre_feedforward_layernorm") else layer.self_attn


def mlp_end(layer):
    return layer.post_feedforward_layernorm if hasattr(layer, "post_feedforward_layernorm") else layer.mlp


def main():
    args = arguments(__doc__)
    os.makedirs(GOLDEN, exist_ok=True)
    torch.set_num_threads(1)
    for name in args.only:
        model, tokenizer = load(args.models, name)
        base = model.model
        layers = base.layers
        cfg = model.config
        width, head_dim = cfg.hidden_size, getattr(cfg, "head_dim", None) or cfg.hidden_size // cfg.num_attention_heads
        planes = torch.tensor([signs(1001 + j, width) for j in range(4)]).T / width**0.5
        tensors, record = {}, []
        for p, (kind, source, ids) in enumerate(encode_all(tokenizer)):
            x = torch.tensor([ids])
            store, handles = {}, []
            for i, layer in enumerate(layers):
                handles.append(hook(layer, store, ("block", i)))
                handles.append(hook(layer.self_attn.o_proj, store, ("z", i), "in"))
                handles.append(hook(attn_end(layer), store, ("attn", i)))
                handles.append(hook(mlp_end(layer), store, ("mlp", i)))
            handles.append(hook(layers[0].input_layernorm, store, "embed", "in"))
            handles.append(hook(base.norm, store, "norm"))
            logits = model(x).logits[0, -1].double()
            for h in handles:
                h.remove()
            n = len(ids)
            pick = [n // 2, n - 1]
            blocks = torch.stack([store[("block", i)] for i in range(len(layers))])
            rows = torch.stack([store["embed"][pick]] + [blocks[i][pick] for i in range(len(layers))] + [store["norm"][pick]])
            tensors[f"rows.{p}"] = rows.numpy()
            tensors[f"sketch.{p}"] = (blocks @ planes).numpy()
            tensors[f"norms.{p}"] = blocks.norm(dim=-1).numpy()
            stride = len(logits) // 512
            tensors[f"strided.{p}"] = logits[: stride * 512 : stride].float().numpy()
            top = torch.topk(logits, 32)
            entry = {
                "kind": kind, "source": source, "ids": ids,
                "top_ids": top.indices.tolist(), "top": top.values.tolist(),
                "logsumexp": torch.logsumexp(logits, 0).item(), "stride": stride,
            }
            if p < SITES:
                before = [store["embed"]] + [blocks[i] for i in range(len(layers))]
                tensors[f"sites.{p}"] = torch.stack([
                    torch.stack([store[("attn", i)][-1], before[i][-1] + store[("attn", i)][-1], store[("mlp", i)][-1]])
                    for i in range(len(layers))
                ]).numpy()
                tensors[f"heads.{p}"] = torch.stack([store[("z", i)][-1] for i in range(len(layers))]).numpy()
            # Greedy, with the gap between the two best logits at each step.
            out, gaps, past, step = [], [], None, x
            for _ in range(GREEDY):
                r = model(step, past_key_values=past, use_cache=True)
                past = r.past_key_values
                best = torch.topk(r.logits[0, -1].double(), 2)
                gaps.append((best.values[0] - best.values[1]).item())
                out.append(best.indices[0].item())
                step = best.indices[:1].reshape(1, 1)
            entry["greedy"], entry["gaps"] = out, gaps
            if p in EDITED:
                middle = len(layers) // 2
                scale = 0.5 * blocks[middle].norm(dim=-1).mean().item() / width**0.5
                entry["edits"] = []
                for e, edit in enumerate([
                    {"kind": "add", "site": "resid_post", "block": middle, "positions": "all"},
                    {"kind": "add", "site": "resid_post", "block": middle, "positions": "last"},
                    {"kind": "add", "site": "attn_out", "block": middle, "positions": "all"},
                    {"kind": "add", "site": "mlp_out", "block": middle, "positions": "all"},
                    {"kind": "zero_head", "block": 5, "head": 1, "positions": "all"},
                ]):
                    edit["scale"] = scale
                    edit["vector"] = [s * scale for s in signs(2, width)]
                    handles = edit_hooks(layers, head_dim, edit)
                    changed = model(x).logits[0, -1].double()
                    for h in handles:
                        h.remove()
                    tensors[f"edited.{p}.{e}"] = changed[: stride * 512 : stride].float().numpy()
                    edit.pop("vector")
                    edit["logsumexp"] = torch.logsumexp(changed, 0).item()
                    entry["edits"].append(edit)
            record.append(entry)
            print(name, p, len(ids), repr(tokenizer.decode(out))[:60], flush=True)
        save_file({k: np.ascontiguousarray(v, dtype=np.float32) for k, v in tensors.items()},
                  os.path.join(GOLDEN, f"forward_{name}.safetensors"))
        with open(os.path.join(GOLDEN, f"forward_{name}.json"), "w", encoding="utf-8") as f:
            json.dump({"model": name, "prompts": record}, f, ensure_ascii=False, indent=0)


if __name__ == "__main__":
    main()
