#!/usr/bin/python3
"""Writes gpt2_torch.safetensors: loss and all gradients of a 2-layer GPT-2, by PyTorch.

The model is written from the GPT-2 paper (pre-norm blocks, learned positions, tanh GELU, tied head)
with torch.nn.functional alone; autograd gives the gradients, once in float32 and once in float64
from the same float32 weights. mt_model_test loads the file and holds worker/model to it.

    /usr/bin/python3 tests/golden/gpt2_torch.py        # rewrites the file beside this script

File: safetensors (8-byte little-endian header length, JSON header, data). Tensors:
    weight/<name> F32 · grad_f32/<name> F32 · grad_f64/<name> F64      (unpadded, torch's shapes)
    tokens, labels I32 [s, b] · weights F32 [s, b] · loss_f32, loss_f64 F64 [1] (weighted sum)
and in __metadata__ the sizes. Gradients are those of loss / (s b). Names are the checkpoint's.
"""

import json
import os
import struct

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, HEAD_DIM, FFN = 2, 32, 4, 12, 128
VOCAB, SEQ, BATCH, MAX_POSITIONS, EPS = 97, 24, 3, 32, 1e-5


def parameter_shapes():
    """Name -> shape, in the order in which the model registers them."""
    q = HEADS * HEAD_DIM
    shapes = {"embedding.word.weight": (VOCAB, HIDDEN),
              "embedding.position.weight": (MAX_POSITIONS, HIDDEN)}
    for i in range(LAYERS):
        prefix = f"layers.{i}."
        shapes[prefix + "norm1.weight"] = shapes[prefix + "norm1.bias"] = (HIDDEN,)
        for name in "qkv":
            shapes[prefix + f"attention.{name}.weight"] = (q, HIDDEN)
            shapes[prefix + f"attention.{name}.bias"] = (q,)
        shapes[prefix + "attention.out.weight"] = (HIDDEN, q)
        shapes[prefix + "attention.out.bias"] = (HIDDEN,)
        shapes[prefix + "norm2.weight"] = shapes[prefix + "norm2.bias"] = (HIDDEN,)
        shapes[prefix + "ffn.up.weight"] = (FFN, HIDDEN)
        shapes[prefix + "ffn.up.bias"] = (FFN,)
        shapes[prefix + "ffn.down.weight"] = (HIDDEN, FFN)
        shapes[prefix + "ffn.down.bias"] = (HIDDEN,)
    shapes["final_norm.weight"] = shapes["final_norm.bias"] = (HIDDEN,)
    return shapes


def make_weights():
    """Wider than a real initialisation, so that softmax, GELU and the norms are far from linear."""
    weights = {}
    for name, shape in parameter_shapes().items():
        noise = torch.randn(shape, dtype=torch.float32)
        is_gain = "norm" in name and name.endswith("weight")
        weights[name] = 1 + 0.2 * noise if is_gain else (0.1 if len(shape) == 1 else 0.15) * noise
    return weights


def heads_first(x):
    """[s, b, q] -> [b, heads, s, head_dim]."""
    return x.view(SEQ, BATCH, HEADS, HEAD_DIM).permute(1, 2, 0, 3)


def attention(p, prefix, x):
    q, k, v = (heads_first(F.linear(x, p[prefix + n + ".weight"], p[prefix + n + ".bias"]))
               for n in "qkv")
    scores = q @ k.transpose(-1, -2) / HEAD_DIM ** 0.5
    future = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
    o = torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ v
    o = o.permute(2, 0, 1, 3).reshape(SEQ, BATCH, HEADS * HEAD_DIM)
    return F.linear(o, p[prefix + "out.weight"], p[prefix + "out.bias"])


def loss_sum(p, tokens, labels, weights):
    """Sum over tokens of weight * cross-entropy, from parameters p."""

    def norm(name, x):
        return F.layer_norm(x, (HIDDEN,), p[name + ".weight"], p[name + ".bias"], EPS)

    table = p["embedding.word.weight"]
    x = F.embedding(tokens, table) + p["embedding.position.weight"][:SEQ].unsqueeze(1)
    for i in range(LAYERS):
        prefix = f"layers.{i}."
        x = x + attention(p, prefix + "attention.", norm(prefix + "norm1", x))
        y = norm(prefix + "norm2", x)
        y = F.linear(y, p[prefix + "ffn.up.weight"], p[prefix + "ffn.up.bias"])
        y = F.gelu(y, approximate="tanh")
        x = x + F.linear(y, p[prefix + "ffn.down.weight"], p[prefix + "ffn.down.bias"])
    logits = F.linear(norm("final_norm", x), table)
    losses = F.cross_entropy(logits.view(-1, VOCAB), labels.reshape(-1), reduction="none")
    return (losses * weights.reshape(-1).to(losses.dtype)).sum()


def run(weights, dtype, batch):
    p = {name: w.to(dtype).clone().requires_grad_() for name, w in weights.items()}
    loss = loss_sum(p, *batch)
    (loss / (SEQ * BATCH)).backward()
    return loss.detach().to(torch.float64).reshape(1), {name: t.grad for name, t in p.items()}


def write_safetensors(path, tensors, metadata):
    names = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    weights = make_weights()
    tokens = torch.randint(0, VOCAB, (SEQ, BATCH))
    tokens[:, 0] = tokens[:, 0] % 5  # a token that occurs often
    labels = torch.randint(0, VOCAB, (SEQ, BATCH))
    loss_weights = (torch.rand(SEQ, BATCH) > 0.15).to(torch.float32)
    tensors = {"tokens": tokens.to(torch.int32), "labels": labels.to(torch.int32),
               "weights": loss_weights}
    for name, weight in weights.items():
        tensors["weight/" + name] = weight
    for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        loss, gradients = run(weights, dtype, (tokens, labels, loss_weights))
        tensors["loss_" + label] = loss
        for name, gradient in gradients.items():
            tensors[f"grad_{label}/{name}"] = gradient
        print(label, "loss per token", float(loss) / float(loss_weights.sum()))
    sizes = {"layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "head_dim": HEAD_DIM, "ffn": FFN,
             "vocab": VOCAB, "seq": SEQ, "batch": BATCH, "max_positions": MAX_POSITIONS, "eps": EPS}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt2_torch.safetensors")
    write_safetensors(path, tensors, {k: str(v) for k, v in sizes.items()})
    print(path, os.path.getsize(path), "bytes; torch", torch.__version__)


if __name__ == "__main__":
    main()
