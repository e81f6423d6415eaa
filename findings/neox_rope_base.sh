#!/usr/bin/env bash
# transformers 5.23.0, GPT-NeoX: rope_theta and partial_rotary_factor at the top of config.json, which Llama and Phi read there, are ignored
# (rotary_emb_base and rotary_pct count) and saved again beside rope_parameters that say otherwise. The model computes with base 10000, and
# a program that reads the top level of the saved file takes 500000.
# Seen 2026-11-29: {rope_theta: 500000, partial_rotary_factor: 0.5} gives 10000 and 0.25 for gpt_neox, 500000 and 0.5 for llama.
# What follows: a config.json is written with rope_parameters alone, all fields in it; one whose two forms differ is refused at import.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install -q --disable-pip-version-check --target "$folder/site" transformers==5.23.0
cat > "$folder/show.py" <<'PYTHON'
import json
import sys
import tempfile
from transformers import AutoConfig

seen = []
for model in ("gpt_neox", "llama"):
    for fields in ({"rope_theta": 500000.0, "partial_rotary_factor": 0.5}, {"rotary_emb_base": 500000, "rotary_pct": 0.5}):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/config.json", "w") as file:
                json.dump({"model_type": model, **fields}, file)
            config = AutoConfig.from_pretrained(folder)
            config.save_pretrained(folder)
            with open(folder + "/config.json") as file:
                saved = json.load(file)
        used = config.rope_parameters
        seen.append((model, *fields, used["rope_theta"], used.get("partial_rotary_factor"), saved.get("rope_theta"), saved["rope_parameters"]["rope_theta"]))
        print(f"{model} from {fields}: used base {seen[-1][3]}, part {seen[-1][4]}; saved rope_theta {seen[-1][5]}, in rope_parameters {seen[-1][6]}")
expected = [("gpt_neox", "rope_theta", "partial_rotary_factor", 10000.0, 0.25, 500000.0, 10000.0),
            ("gpt_neox", "rotary_emb_base", "rotary_pct", 500000, 0.5, None, 500000),
            ("llama", "rope_theta", "partial_rotary_factor", 500000.0, 0.5, None, 500000.0),
            ("llama", "rotary_emb_base", "rotary_pct", 10000.0, None, None, 10000.0)]
sys.exit(0 if seen == expected else f"expected {expected}, found {seen}")
PYTHON
PYTHONPATH="$folder/site" python3 "$folder/show.py"
