#!/usr/bin/python3
"""Writes variants_torch.safetensors: loss and all gradients of every model variant, by PyTorch.

One compact reference model with all variants of worker/model (norm, positions, activation, heads,
biases, ...), written from the papers that the code below names, with torch.nn.functional and
autograd, in float64. mt_model_test builds the same models and holds worker/model to it.

    /usr/bin/python3 tests/golden/variants_torch.py        # rewrites the file beside this script

File: safetensors (8-byte little-endian header length, JSON header, data). In __metadata__
"variants" is a JSON object: name -> all sizes and switches. Tensors:
    tokens, labels I32 [s, b] · weights F32 [s, b]          (of every variant)
    weight/<name>/<shape> F32                               (shared by the variants that have it)
    <variant>/loss F64 [1], weighted sum · <variant>/grad/<name> F64, of loss / (s b)
Names and shapes are the checkpoint's.
"""

import json
import math
import os
import zlib

import torch
import torch.nn.functional as F

from gpt2_torch import write_safetensors

VOCAB, SEQ, BATCH = 23, 20, 2

BASE = {"layers": 2, "hidden": 10, "heads": 4, "kv_heads": 4, "head_dim": 6, "ffn": 14,
        "position": "learned", "rope_percent": 1.0, "rope_base": 10000.0, "scaling": "none",
        "factor": 1.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_positions": 8192,
        "norm": "layernorm", "one_plus": False, "eps": 1e-5, "activation": "gelu", "bias": True,
        "qkv_bias": True, "qk_norm": False, "tied": True, "parallel": False, "window": 0}

ROPE = {"position": "rope"}
# Turns over 64 positions, head size 12: 10.2, 2.2, 0.47, ...: one frequency stays, one is mixed.
LLAMA3 = {"scaling": "llama3", "factor": 8.0, "original_positions": 64, "head_dim": 12}
LLAMA = ROPE | {"norm": "rmsnorm", "activation": "swiglu", "kv_heads": 2, "tied": False,
                "bias": False, "qkv_bias": False}

VARIANTS = {
    "rmsnorm": {"norm": "rmsnorm", "eps": 1e-2},
    "layernorm_one_plus": {"one_plus": True, "eps": 1e-2},
    "rmsnorm_one_plus": {"norm": "rmsnorm", "one_plus": True},
    "rope": ROPE,
    "rope_base": ROPE | {"rope_base": 500.0},
    "rope_percent": ROPE | {"rope_percent": 0.67},
    "rope_linear": ROPE | {"scaling": "linear", "factor": 4.0},
    "rope_llama3": ROPE | LLAMA3,
    "no_positions": {"position": "none"},
    "alibi": {"position": "alibi"},
    "alibi_3_heads": {"position": "alibi", "heads": 3, "kv_heads": 3},
    "swiglu": {"activation": "swiglu"},
    "geglu": {"activation": "geglu"},
    "relu2": {"activation": "relu2"},
    "gelu_erf": {"activation": "gelu_erf"},
    "gqa": {"kv_heads": 2},
    "mqa": {"kv_heads": 1},
    "qk_norm": {"qk_norm": True, "eps": 1e-2},
    "qk_norm_rope_one_plus": ROPE | {"qk_norm": True, "one_plus": True, "kv_heads": 2},
    "window": {"window": 5},
    "window_1": {"window": 1},
    "parallel_residual": {"parallel": True},
    "untied": {"tied": False},
    "no_bias": {"bias": False, "qkv_bias": False},
    "qkv_bias_alone": {"bias": False},
    "no_qkv_bias": {"qkv_bias": False},
    "head_size_12": {"head_dim": 12},
    "head_size_7": {"head_dim": 7},
    "llama": LLAMA,
    "llama3": LLAMA | LLAMA3,
    "everything": LLAMA | {
        "qkv_bias": True, "one_plus": True, "rope_percent": 0.5, "activation": "geglu",
        "qk_norm": True, "parallel": True, "window": 6, "head_dim": 12},
}


def parameter_shapes(c):
    """Name -> shape, in the order in which the model registers them."""
    h, q, kv = c["hidden"], c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    shapes = {"embedding.word.weight": (VOCAB, h)}
    if c["position"] == "learned":
        shapes["embedding.position.weight"] = (SEQ, h)

    def norm(name):
        shapes[name + ".weight"] = (h,)
        if c["norm"] == "layernorm":
            shapes[name + ".bias"] = (h,)

    def linear(name, outputs, inputs, bias):
        shapes[name + ".weight"] = (outputs, inputs)
        if bias:
            shapes[name + ".bias"] = (outputs,)

    for i in range(c["layers"]):
        prefix = f"layers.{i}."
        norm(prefix + "norm1")
        for name, width in (("q", q), ("k", kv), ("v", kv)):
            linear(prefix + "attention." + name, width, h, c["qkv_bias"])
        if c["qk_norm"]:
            shapes[prefix + "attention.q_norm.weight"] = (c["head_dim"],)
            shapes[prefix + "attention.k_norm.weight"] = (c["head_dim"],)
        linear(prefix + "attention.out", h, q, c["bias"])
        if not c["parallel"]:
            norm(prefix + "norm2")
        if c["activation"] in ("swiglu", "geglu"):
            linear(prefix + "ffn.gate", c["ffn"], h, c["bias"])
        linear(prefix + "ffn.up", c["ffn"], h, c["bias"])
        linear(prefix + "ffn.down", h, c["ffn"], c["bias"])
    norm("final_norm")
    if not c["tied"]:
        shapes["head.weight"] = (VOCAB, h)
    return shapes


def weight_key(name, shape):
    return f"weight/{name}/" + "x".join(map(str, shape))


def make_weight(name, shape):
    """Wider than a real initialisation, so that softmax, activations and norms are not linear."""
    generator = torch.Generator().manual_seed(zlib.crc32(weight_key(name, shape).encode()))
    noise = torch.randn(shape, generator=generator, dtype=torch.float32)
    is_gain = "norm" in name and name.endswith("weight")
    return 1 + 0.2 * noise if is_gain else (0.1 if len(shape) == 1 else 0.25) * noise


def rope_frequencies(c):
    """Su et al. 2021; linear: Chen et al. 2023; llama3: by wavelength, as Llama 3.1 says."""
    rotated = int(c["head_dim"] * c["rope_percent"]) // 2 * 2
    frequencies = []
    for i in range(0, rotated, 2):
        frequency = c["rope_base"] ** (-i / rotated)
        if c["scaling"] == "linear":
            frequency /= c["factor"]
        elif c["scaling"] == "llama3":
            wavelength = 2 * math.pi / frequency
            longest = c["original_positions"] / c["low_freq_factor"]
            shortest = c["original_positions"] / c["high_freq_factor"]
            if wavelength > longest:
                frequency /= c["factor"]
            elif wavelength >= shortest:
                low, high = c["low_freq_factor"], c["high_freq_factor"]
                smooth = (c["original_positions"] / wavelength - low) / (high - low)
                frequency = (1 - smooth) * frequency / c["factor"] + smooth * frequency
        frequencies.append(frequency)
    return torch.tensor(frequencies, dtype=torch.float64)


def rotate(c, x):
    """x [b, heads, s, d]; the first half of the rotated channels pairs with the second."""
    angles = torch.outer(torch.arange(SEQ, dtype=torch.float64), rope_frequencies(c))
    if "position_ids" in c:  # of positions_torch.py: [s, b]
        angles = angles[c["position_ids"].T].unsqueeze(1)
    cos, sin = angles.cos(), angles.sin()
    half = cos.shape[-1]
    first, second, rest = x.split([half, half, c["head_dim"] - 2 * half], -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def alibi_slopes(n):
    """Press et al. 2022: a geometric sequence, and for other counts every second of the next."""
    if math.log2(n).is_integer():
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    below = 2 ** math.floor(math.log2(n))
    return alibi_slopes(below) + alibi_slopes(2 * below)[0::2][:n - below]


def rms_norm(c, x, gain):
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + c["eps"])
    return y * (1 + gain if c["one_plus"] else gain)


def norm(c, p, name, x):
    gain = p[name + ".weight"]
    if c["norm"] == "rmsnorm":
        return rms_norm(c, x, gain)
    gain = 1 + gain if c["one_plus"] else gain
    return F.layer_norm(x, (c["hidden"],), gain, p[name + ".bias"], c["eps"])


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def attention(c, p, prefix, x):
    def heads_first(name, count):
        y = linear(p, prefix + name, x).view(SEQ, BATCH, count, c["head_dim"]).permute(1, 2, 0, 3)
        if name in "qk" and c["qk_norm"]:
            y = rms_norm(c, y, p[f"{prefix}{name}_norm.weight"])
        return rotate(c, y) if name in "qk" and c["position"] == "rope" else y

    q = heads_first("q", c["heads"])
    group = c["heads"] // c["kv_heads"]
    k, v = (heads_first(n, c["kv_heads"]).repeat_interleave(group, 1) for n in "kv")
    scores = q @ k.transpose(-1, -2) / c["head_dim"] ** 0.5
    behind = torch.arange(SEQ).unsqueeze(1) - torch.arange(SEQ).unsqueeze(0)  # query - key
    if c["position"] == "alibi":
        slopes = torch.tensor(alibi_slopes(c["heads"]), dtype=scores.dtype)
        scores = scores - slopes.view(-1, 1, 1) * behind
    hidden = behind < 0
    if c["window"]:
        hidden = hidden | (behind >= c["window"])
    o = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v
    return linear(p, prefix + "out", o.permute(2, 0, 1, 3).reshape(SEQ, BATCH, -1))


def feed_forward(c, p, prefix, x):
    up = linear(p, prefix + "up", x)
    kind = c["activation"]
    if kind == "swiglu":
        y = F.silu(linear(p, prefix + "gate", x)) * up
    elif kind == "geglu":
        y = F.gelu(linear(p, prefix + "gate", x), approximate="tanh") * up
    elif kind == "relu2":
        y = F.relu(up).square()
    else:
        y = F.gelu(up, approximate={"gelu": "tanh", "gelu_erf": "none"}[kind])
    return linear(p, prefix + "down", y)


def loss_sum(c, p, tokens, labels, weights):
    """Sum over tokens of weight * cross-entropy, from parameters p."""
    x = F.embedding(tokens, p["embedding.word.weight"])
    if c["position"] == "learned":
        table = p["embedding.position.weight"]
        x = x + (table[c["position_ids"]] if "position_ids" in c else table.unsqueeze(1))
    for i in range(c["layers"]):
        prefix = f"layers.{i}."
        y = norm(c, p, prefix + "norm1", x)
        if c["parallel"]:
            x = x + attention(c, p, prefix + "attention.", y) + feed_forward(
                c, p, prefix + "ffn.", y)
        else:
            x = x + attention(c, p, prefix + "attention.", y)
            x = x + feed_forward(c, p, prefix + "ffn.", norm(c, p, prefix + "norm2", x))
    head = p["embedding.word.weight" if c["tied"] else "head.weight"]
    logits = F.linear(norm(c, p, "final_norm", x), head)
    losses = F.cross_entropy(logits.view(-1, VOCAB), labels.reshape(-1), reduction="none")
    return (losses * weights.reshape(-1)).sum()


def main():
    torch.manual_seed(21)
    torch.set_num_threads(1)
    tokens = torch.randint(0, VOCAB, (SEQ, BATCH))
    labels = torch.randint(0, VOCAB, (SEQ, BATCH))
    loss_weights = (torch.rand(SEQ, BATCH) > 0.15).to(torch.float32)
    tensors = {"tokens": tokens.to(torch.int32), "labels": labels.to(torch.int32),
               "weights": loss_weights}
    configs = {name: BASE | changes for name, changes in VARIANTS.items()}
    for variant, c in configs.items():
        p = {}
        for name, shape in parameter_shapes(c).items():
            weight = make_weight(name, shape)
            tensors[weight_key(name, shape)] = weight
            p[name] = weight.to(torch.float64).requires_grad_()
        loss = loss_sum(c, p, tokens, labels, loss_weights.to(torch.float64))
        (loss / (SEQ * BATCH)).backward()
        tensors[variant + "/loss"] = loss.detach().reshape(1)
        for name, parameter in p.items():
            tensors[f"{variant}/grad/{name}"] = parameter.grad
        print(f"{variant:22} loss per token {float(loss) / float(loss_weights.sum()):.6f}")
    metadata = {"variants": json.dumps(configs), "vocab": str(VOCAB), "seq": str(SEQ),
                "batch": str(BATCH)}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "variants_torch.safetensors")
    write_safetensors(path, tensors, metadata)
    print(path, os.path.getsize(path), "bytes; torch", torch.__version__)


if __name__ == "__main__":
    main()
