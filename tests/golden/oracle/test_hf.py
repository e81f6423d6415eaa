"""Small models of Hugging Face's transformers, written again from config.json and the published layouts alone, by the network of
worker/model/README.md.

Holds worker/hf/README.md's conventions (names, fused and transposed matrices, rotations, windows, the fold of GPT-NeoX's norms) to
transformers' logits and loss, in Debian's torch and without the program.
"""
import json
import math
import struct
import unittest
from pathlib import Path

import numpy as np
import torch

import network

FOLDER = Path(__file__).resolve().parent.parent / "hf"
TYPES = {"F32": np.float32, "I32": np.int32}


def read(path):
    """Name -> array of a safetensors file."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            out[name] = np.frombuffer(raw[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"]).astype(
                np.float64 if entry["dtype"] == "F32" else np.int64)
    return out


class HfNetwork(network.Network):
    """With the frequencies of llama3 (Dubey et al. 2024)."""

    def __init__(self, model, weights):
        self.scaling = model.get("rope", {}).pop("scaling", None)
        super().__init__(model, weights)

    def rotate(self, x):
        if not self.scaling:
            return super().rotate(x)
        r, s = x.shape[-1], self.scaling
        frequencies = []
        for c in range(r // 2):
            f = self.model["rope"]["base"] ** (-2 * c / r)
            turns = s["original_max_position_embeddings"] * f / (2 * math.pi)
            share = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
            share = min(max(share, 0), 1)
            frequencies.append((1 - share) * f / s["factor"] + share * f)
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), torch.tensor(frequencies, dtype=torch.float64))
        first, second = x.split([r // 2, r // 2], -1)
        return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def rope_of(config):
    """As transformers 5 reads it."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    neox = config["model_type"] == "gpt_neox"
    base = rope.get("rope_theta", config.get("rotary_emb_base" if neox else "rope_theta", 10000.0))
    percent = rope.get("partial_rotary_factor", config.get("rotary_pct", 0.25)) if neox else 1.0
    return {"base": base, "percent": percent, "scaling": rope if rope.get("rope_type") == "llama3" else None}


def activation_of(config):
    name = config.get("activation_function") or config["hidden_act"]
    return {"gelu": "gelu_erf", "gelu_new": "gelu", "silu": "swiglu"}[name]


def model_of(config):
    kind = config["model_type"]
    gpt2 = kind == "gpt2"
    if gpt2:
        h, layers, heads, ffn = config["n_embd"], config["n_layer"], config["n_head"], config["n_inner"] or 4 * config["n_embd"]
    else:
        h, layers, heads, ffn = (config[n] for n in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"))
    plain = kind in ("gpt2", "gpt_neox")
    model = {"layers": layers, "hidden_size": h, "heads": heads, "kv_heads": config.get("num_key_value_heads") or heads,
             "head_dim": config.get("head_dim") or h // heads, "ffn_size": ffn, "vocab_size": config["vocab_size"],
             "position": "learned" if gpt2 else "rope", "norm": "layernorm" if plain else "rmsnorm",
             "norm_eps": config[{"gpt2": "layer_norm_epsilon", "gpt_neox": "layer_norm_eps"}.get(kind, "rms_norm_eps")],
             "norm_one_plus": False, "activation": activation_of(config), "bias": plain, "qkv_bias": plain or kind == "qwen2",
             "qk_norm": kind == "qwen3", "tie_embeddings": config["tie_word_embeddings"],
             "parallel_residual": config.get("use_parallel_residual", False), "hidden_dropout": 0.0, "attention_dropout": 0.0,
             "window": config.get("sliding_window") if kind == "mistral" else None}
    if not gpt2:
        model["rope"] = rope_of(config)
    return model


def gpt2_weights(model, files):
    out = {"embedding.word.weight": files["transformer.wte.weight"], "embedding.position.weight": files["transformer.wpe.weight"]}
    for end in ("weight", "bias"):
        out["final_norm." + end] = files["transformer.ln_f." + end]
        for i in range(model["layers"]):
            theirs, ours = f"transformer.h.{i}.", f"layers.{i}."
            for a, b in (("ln_1", "norm1"), ("ln_2", "norm2"), ("attn.c_proj", "attention.out"), ("mlp.c_fc", "ffn.up"),
                         ("mlp.c_proj", "ffn.down")):
                out[f"{ours}{b}.{end}"] = files[f"{theirs}{a}.{end}"].T
            for part, value in zip("qkv", np.split(files[f"{theirs}attn.c_attn.{end}"].T, 3)):
                out[f"{ours}attention.{part}.{end}"] = value
    return out


def neox_weights(model, files):
    out = {"embedding.word.weight": files["gpt_neox.embed_in.weight"], "head.weight": files["embed_out.weight"]}
    h, heads = model["hidden_size"], model["heads"]
    for end in ("weight", "bias"):
        out["final_norm." + end] = files["gpt_neox.final_layer_norm." + end]
    for i in range(model["layers"]):
        theirs, ours = f"gpt_neox.layers.{i}.", f"layers.{i}."
        for end in ("weight", "bias"):
            for a, b in (("input_layernorm", "norm1"), ("post_attention_layernorm", "norm2"), ("attention.dense", "attention.out"),
                         ("mlp.dense_h_to_4h", "ffn.up"), ("mlp.dense_4h_to_h", "ffn.down")):
                out[f"{ours}{b}.{end}"] = files[f"{theirs}{a}.{end}"]
            fused = files[f"{theirs}attention.query_key_value.{end}"]
            by_head = fused.reshape(heads, 3, h // heads, *fused.shape[1:])
            for j, part in enumerate("qkv"):
                out[f"{ours}attention.{part}.{end}"] = by_head[:, j].reshape(h, *fused.shape[1:])
        if model["parallel_residual"]:  # one norm here: gains and shifts go into the products behind the two
            norms = {n: [out.pop(f"{ours}{n}.{end}") for end in ("weight", "bias")] for n in ("norm1", "norm2")}
            for part, norm in (("attention.q", "norm1"), ("attention.k", "norm1"), ("attention.v", "norm1"), ("ffn.up", "norm2")):
                gain, shift = norms[norm]
                weight = out[f"{ours}{part}.weight"]
                out[f"{ours}{part}.bias"] = out[f"{ours}{part}.bias"] + weight @ shift
                out[f"{ours}{part}.weight"] = weight * gain
            out[ours + "norm1.weight"], out[ours + "norm1.bias"] = np.ones(h), np.zeros(h)
    return out


def llama_weights(model, files):
    out = {"embedding.word.weight": files["model.embed_tokens.weight"], "final_norm.weight": files["model.norm.weight"]}
    if not model["tie_embeddings"]:
        out["head.weight"] = files["lm_head.weight"]
    names = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2", "self_attn.o_proj": "attention.out",
             "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down"}
    names |= {f"self_attn.{part}_proj": f"attention.{part}" for part in "qkv"}
    names |= {f"self_attn.{part}_norm": f"attention.{part}_norm" for part in "qk"}
    for name, value in files.items():
        if name.startswith("model.layers."):
            i, rest = name[len("model.layers."):].split(".", 1)
            stem, end = rest.rsplit(".", 1)
            out[f"layers.{i}.{names[stem]}.{end}"] = value
    return out


class HfTest(unittest.TestCase):
    def test_logits_and_loss_are_those_of_transformers(self):
        folders = sorted(path for path in FOLDER.iterdir() if path.is_dir())
        self.assertEqual(len(folders), 10)
        for folder in folders:
            with self.subTest(folder.name):
                config = json.loads((folder / "config.json").read_text())
                model = model_of(config)
                weights = {"gpt2": gpt2_weights, "gpt_neox": neox_weights}.get(config["model_type"], llama_weights)(
                    model, read(folder / "model.safetensors"))
                expected = read(folder / "expected.safetensors")
                self.assertEqual({name: value.shape for name, value in weights.items()},
                                 {name: shape for name, (shape, _) in network.parameters(
                                     model | {"max_positions": config.get("n_positions")}).items()})
                net = HfNetwork(model, {name: np.ascontiguousarray(value) for name, value in weights.items()})
                with torch.no_grad():
                    logits = net.logits(torch.from_numpy(expected["tokens"])[None])[0]
                    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.from_numpy(expected["tokens"][1:]))
                self.assertLess(float((logits - torch.from_numpy(expected["logits"])).abs().max()), 1e-4)
                self.assertLess(abs(float(loss) - expected["loss"][0]), 1e-5)


if __name__ == "__main__":
    unittest.main()
