"""What the oracle scripts share: models, the sign generator, prompts."""
import argparse
import json
import os

MODELS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"]
HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "golden")
MASK = (1 << 64) - 1


def signs(seed, n):
    """n values of +1 or -1: the top bit of splitmix64 started at `seed` (1: -1)."""
    out, state = [], seed
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        out.append(-1.0 if z >> 63 else 1.0)
    return out


def arguments(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--models", required=True, help="folder that holds <name>.gguf")
    p.add_argument("--only", nargs="*", default=MODELS)
    return p.parse_args()


def prompts():
    with open(os.path.join(HERE, "prompts.json"), encoding="utf-8") as f:
        return json.load(f)


def load(folder, name):
    """The model in f32 with eager attention, and its tokenizer, both from the GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    file = name + ".gguf"
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    return model, tokenizer


def encode_all(tokenizer):
    """(kind, source, ids) of all 20 prompts; chat prompts only where there is a template."""
    p = prompts()
    out = [("text", t, tokenizer(t)["input_ids"]) for t in p["text"]]
    if tokenizer.chat_template:
        for messages in p["chat"]:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            out.append(("chat", messages, tokenizer(text, add_special_tokens=False)["input_ids"]))
    else:
        for messages in p["chat"]:
            text = "\n".join(m["content"] for m in messages)
            out.append(("text", text, tokenizer(text)["input_ids"]))
    return out
