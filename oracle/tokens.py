"""Freezes the token ids that transformers gives for the lines of corpus.json, one file a model.

    python oracle/tokens.py --models FOLDER

Every line is encoded with the begin token as the model's rule says; `parsed` reads control tokens that are written out
as such, `text` (kept only where it differs) reads them as ordinary characters.
"""
import json
import os

import tokenizers
import transformers

import common


def main():
    args = common.arguments(__doc__)
    with open(os.path.join(common.HERE, "corpus.json"), encoding="utf-8") as f:
        lines = json.load(f)
    for name in args.only:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.models, gguf_file=name + ".gguf")
        backend = tokenizer.backend_tokenizer
        parsed = [tokenizer(t)["input_ids"] for t in lines]
        backend.encode_special_tokens = True
        text = [backend.encode(t, add_special_tokens=True).ids for t in lines]
        backend.encode_special_tokens = False
        out = {
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "parsed": parsed,
            "text": {str(i): t for i, (p, t) in enumerate(zip(parsed, text)) if p != t},
        }
        path = os.path.join(common.GOLDEN, f"tokens_{name}.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(out, f, separators=(",", ":"))
            f.write("\n")
        print(path, len(lines), len(out["text"]))


if __name__ == "__main__":
    main()
