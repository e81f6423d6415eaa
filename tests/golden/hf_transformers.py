#!/usr/bin/env python3
"""Small random models of Hugging Face's transformers with their logits and loss, and a check of folders that mtctl exports.

  hf_transformers.py make OUT          writes OUT/NAME/{config.json, model.safetensors, expected.safetensors} for each model below
  hf_transformers.py check HERE THERE  loads THERE/NAME of each HERE/NAME and compares its logits with HERE/NAME/expected.safetensors

Made with transformers 5.23.0 and torch 2.15.0 (PyPI) on the CPU. CI reads the files and needs neither. In the old spelling of RoPE are
the models whose name ends in _old: config.json as versions before 5 wrote it, for the same weights and logits.
"""
import json
import os
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

SMALL = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=64, initializer_range=0.2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)


def models():
    t = transformers
    yield "gpt2", t.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2)
    yield "llama2", t.LlamaConfig(**SMALL, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    yield "llama3", t.LlamaConfig(**SMALL, num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=LLAMA3)
    yield "mistral", t.MistralConfig(**SMALL, num_key_value_heads=2, head_dim=10, sliding_window=5,
                                     rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    yield "qwen2", t.Qwen2Config(**SMALL, num_key_value_heads=2, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))
    yield "qwen3", t.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=16,
                                 rope_parameters=dict(rope_type="default", rope_theta=1000000.0))
    yield "neox", t.GPTNeoXConfig(**SMALL, hidden_act="gelu_new", use_parallel_residual=False,
                                  rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))
    yield "neox_parallel", t.GPTNeoXConfig(**SMALL, hidden_act="gelu", use_parallel_residual=True,
                                           rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5))


def old_spelling(config):
    """As versions before 5 wrote the same model."""
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype", "float32")
    if config["model_type"] == "gpt_neox":
        config["rotary_emb_base"], config["rotary_pct"] = rope["rope_theta"], rope["partial_rotary_factor"]
    else:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    return config


def make(out):
    torch.manual_seed(20261130)
    for name, config in models():
        config.dtype = "float32"
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # norms and biases too: what is 0 or 1 would prove nothing
                if parameter.dim() == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
            tokens = torch.randint(0, config.vocab_size, (1, 24))
            result = model(tokens, labels=tokens, attention_mask=torch.ones_like(tokens))
        folder = out / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        save_file({"tokens": tokens[0].to(torch.int32), "logits": result.logits[0].contiguous(), "loss": result.loss.reshape(1)},
                  folder / "expected.safetensors")
        print(name, sum(p.numel() for p in model.parameters()), float(result.loss))
        config_json = json.loads((folder / "config.json").read_text())
        if name in ("llama3", "neox_parallel"):
            old = out / (name + "_old")
            old.mkdir(exist_ok=True)
            (old / "config.json").write_text(json.dumps(old_spelling(config_json), indent=2) + "\n")
            os.path.exists(old / "model.safetensors") or shutil.copy(folder / "model.safetensors", old)
            shutil.copy(folder / "expected.safetensors", old)


def check(here, there):
    worst = 0.0
    for folder in sorted(here.iterdir()):
        if not (folder / "expected.safetensors").exists() or not (there / folder.name).exists():
            continue
        expected = load_file(folder / "expected.safetensors")
        model = transformers.AutoModelForCausalLM.from_pretrained(there / folder.name).eval()
        tokens = expected["tokens"].long()[None]
        with torch.no_grad():
            result = model(tokens, labels=tokens, attention_mask=torch.ones_like(tokens))
        difference = float((result.logits[0].float() - expected["logits"]).abs().max())
        print(f"{folder.name}: logits differ by {difference:.3g}, loss by {abs(float(result.loss) - float(expected['loss'])):.3g}")
        worst = max(worst, difference)
    sys.exit(worst > 1e-4)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
    else:
        check(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
