"""Freezes tiny random checkpoints of each family with what transformers computes from them.

    python oracle/tiny.py

For each family golden/tiny/<family>/ is a Hugging Face folder (F32), golden/tiny/<family>-sharded/ the same model rounded
to BF16 in several files (F16 for Llama), and golden/tiny/<family>.gguf the F32 weights under GGUF's names and conventions (Llama's query
and key rows interleaved, Gemma's norms plus one). golden/tiny.safetensors holds the token ids, the output of every block
and the logits of each; biases, grouped heads, windows shorter than the text, tied and untied heads are all in use.
"""
import os
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen2Config

from common import GOLDEN

VOCAB, WIDTH, HIDDEN, DEPTH, LENGTH = 64, 32, 48, 6, 24
SHARED = dict(
    vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=DEPTH, max_position_embeddings=128,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
CONFIGS = {
    "llama": LlamaConfig(**SHARED, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SHARED, num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=True),
    "gemma3": Gemma3TextConfig(
        **SHARED, num_attention_heads=2, num_key_value_heads=1, head_dim=16, sliding_window=8, query_pre_attn_scalar=16,
        tie_word_embeddings=True,
    ),
}
ROUNDED = {"llama": torch.float16, "qwen2": torch.bfloat16, "gemma3": torch.bfloat16}
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def model(config):
    torch.manual_seed(7)
    m = AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(torch.float32).eval()
    with torch.no_grad():
        for name, p in m.named_parameters():
            noise = torch.randn(p.shape) * (0.3 if p.dim() == 1 else 0.2)
            p.copy_(noise + (1.0 if "norm" in name and "gemma3" not in config.model_type else 0.0))
    return m


def gguf_name(name, gemma):
    if name.startswith("model.layers."):
        _, _, l, rest = name.split(".", 3)
        part, kind = rest.rsplit(".", 1)
        if part == "post_attention_layernorm":
            return f"blk.{l}.{'post_attention_norm' if gemma else 'ffn_norm'}.{kind}"
        return f"blk.{l}.{NAMES[part]}.{kind}"
    return {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }[name]


def write_gguf(path, family, config, m):
    w = gguf.GGUFWriter(path, family)
    w.add_block_count(DEPTH)
    w.add_context_length(128)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    if family == "gemma3":
        w.add_key_length(16)
        w.add_value_length(16)
        w.add_sliding_window(8)
        w.add_rope_freq_base(1e6)
    else:
        w.add_rope_freq_base(10000.0)
    tied = config.tie_word_embeddings
    for name, p in m.state_dict().items():
        if name == "lm_head.weight" and tied:
            continue
        a = p.numpy().astype(np.float32)
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            a = a.reshape(heads, 2, a.shape[0] // heads // 2, a.shape[1]).swapaxes(1, 2).reshape(a.shape)
        if family == "gemma3" and "norm" in name:
            a = a + 1
        w.add_tensor(gguf_name(name, family == "gemma3"), np.ascontiguousarray(a))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def states(m, ids):
    found = {}

    def keep(l):
        def hook(_, __, out):
            found[f"block.{l}"] = (out[0] if isinstance(out, tuple) else out).reshape(LENGTH, -1)

        return hook

    hooks = [b.register_forward_hook(keep(l)) for l, b in enumerate(m.model.layers)]
    with torch.no_grad():
        found["logits"] = m(ids[None]).logits[0]
    for h in hooks:
        h.remove()
    return {k: v.float().contiguous() for k, v in found.items()}


def main():
    folder = os.path.join(GOLDEN, "tiny")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    ids = torch.randint(3, VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(1))
    out = {"ids": ids.to(torch.int32)}
    for family, config in CONFIGS.items():
        m = model(config)
        m.save_pretrained(os.path.join(folder, family))
        write_gguf(os.path.join(folder, family + ".gguf"), family, config, m)
        out.update({f"{family}.{k}": v for k, v in states(m, ids).items()})
        rounded = os.path.join(folder, family + "-sharded")
        m.to(ROUNDED[family]).save_pretrained(rounded, max_shard_size="30KB")
        # Read again: the model in memory has rounded its rotary frequencies, too.
        m = AutoModelForCausalLM.from_pretrained(rounded, dtype=torch.float32, attn_implementation="eager").eval()
        out.update({f"{family}-sharded.{k}": v for k, v in states(m, ids).items()})
        for f in (family, family + "-sharded"):
            os.remove(os.path.join(folder, f, "generation_config.json"))
    save_file(out, os.path.join(GOLDEN, "tiny.safetensors"))


if __name__ == "__main__":
    main()
