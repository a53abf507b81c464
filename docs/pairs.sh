#!/usr/bin/env bash
# The figures of README.md for all six directed pairs of the three small models: happiness and fear, all controls.
# About an hour on two cores. Usage: docs/pairs.sh [FOLDER for the reports]
set -euo pipefail
folder="${1:-reports}"
mkdir -p "$folder"
models=(smollm2-135m gemma3-270m qwen2.5-coder-0.5b)
for concept in happiness fear; do
  for source in "${models[@]}"; do
    for target in "${models[@]}"; do
      if [ "$source" = "$target" ]; then continue; fi
      cargo run --quiet --release -- demo -q --concept "$concept" --source "$source" --target "$target" \
        --report "$folder/$concept-$source-$target.html" | tee "$folder/$concept-$source-$target.txt" |
        grep -E "carried to|^own direction +0\.2|^retention at dose 0\.2|^the same ratio"
    done
  done
done
