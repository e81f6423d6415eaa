"""The network by the table of worker/model/README.md: parameters, initial values, loss, gradients.

torch's automatic differentiation in float64 stands for the backward that worker/model writes by
hand. Shapes: b samples, s positions, h hidden, a heads of d channels; activations are [b, s, h].
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

import random_streams

torch.set_num_threads(1)

GATED = ("swiglu", "geglu")
KNOWN_MODEL = {
    "layers", "hidden_size", "heads", "kv_heads", "head_dim", "ffn_size", "vocab_size",
    "vocab_divisible_by", "seq_length", "max_positions", "position", "rope", "norm", "norm_eps",
    "norm_one_plus", "activation", "bias", "qkv_bias", "qk_norm", "tie_embeddings",
    "parallel_residual", "window", "hidden_dropout", "attention_dropout", "init_std", "scaled_init"}


def head_dim(model):
    return model.get("head_dim", model["hidden_size"] // model["heads"])


def parameters(model):
    """Name -> (shape, kind of initial value): worker/params/README.md, "Names"."""
    h, d = model["hidden_size"], head_dim(model)
    q, kv, ffn = model["heads"] * d, model["kv_heads"] * d, model["ffn_size"]
    out = {"embedding.word.weight": ((model["vocab_size"], h), "normal")}
    if model["position"] == "learned":
        out["embedding.position.weight"] = ((model["max_positions"], h), "normal")
    gain = "zero" if model["norm_one_plus"] else "one"

    def norm(name):
        out[name + ".weight"] = ((h,), gain)
        if model["norm"] == "layernorm":
            out[name + ".bias"] = ((h,), "zero")

    def linear(name, shape, bias, kind="normal"):
        out[name + ".weight"] = (shape, kind)
        if bias:
            out[name + ".bias"] = (shape[:1], "zero")

    for i in range(model["layers"]):
        layer = f"layers.{i}."
        norm(layer + "norm1")
        for name, width in (("q", q), ("k", kv), ("v", kv)):
            linear(layer + "attention." + name, (width, h), model["qkv_bias"])
            if model["qk_norm"] and name != "v":
                out[f"{layer}attention.{name}_norm.weight"] = ((d,), gain)
        linear(layer + "attention.out", (h, q), model["bias"], "output")
        if not model["parallel_residual"]:
            norm(layer + "norm2")
        if model["activation"] in GATED:
            linear(layer + "ffn.gate", (ffn, h), model["bias"])
        linear(layer + "ffn.up", (ffn, h), model["bias"])
        linear(layer + "ffn.down", (h, ffn), model["bias"], "output")
    norm("final_norm")
    if not model["tie_embeddings"]:
        out["head.weight"] = ((model["vocab_size"], h), "normal")
    return out


def initial_values(model, seed):
    """Name -> float64 array, before the first step."""
    std = {"normal": model["init_std"]}
    std["output"] = std["normal"]
    if model["scaled_init"]:
        std["output"] /= math.sqrt(2 * model["layers"])
    out = {}
    for name, (shape, kind) in parameters(model).items():
        if kind in std:
            out[name] = random_streams.normal_values(name, seed, shape, std[kind])
        else:
            out[name] = np.full(shape, 1.0 if kind == "one" else 0.0)
    return out


class Network:
    """A model with weights; `dropout_seed` None: evaluation, without dropout."""

    def __init__(self, model, weights, dropout_seed=None):
        assert model["position"] in ("learned", "rope"), model["position"]
        assert model["norm"] in ("layernorm", "rmsnorm"), model["norm"]
        assert model.get("rope", {}).keys() <= {"base", "percent"}, model["rope"]
        self.model = model
        self.seed = dropout_seed
        self.positions = None
        self.p = {name: torch.tensor(value, requires_grad=dropout_seed is not None)
                  for name, value in weights.items()}

    def loss_sum(self, tokens, labels, weights, samples, positions=None):
        """Sum of weight * cross-entropy; tokens, labels, weights [b, s], samples [b] (running
        numbers: of dropout alone), positions [b, s] where they are not those in the sample."""
        self.samples = samples
        self.positions = None if positions is None else torch.from_numpy(positions)
        logits = self.logits(torch.from_numpy(tokens))
        each = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(labels).flatten(), reduction="none")
        return (each * torch.from_numpy(weights).flatten()).sum()

    def logits(self, tokens):
        """[b, s, vocabulary] of tokens [b, s]."""
        x = F.embedding(tokens, self.p["embedding.word.weight"])
        if self.model["position"] == "learned":
            table = self.p["embedding.position.weight"]
            x = x + (table[:tokens.shape[1]] if self.positions is None else table[self.positions])
        x = self.drop(x, 0, "embedding")
        for i in range(self.model["layers"]):
            x = self.layer(i, x)
        table = "embedding.word.weight" if self.model["tie_embeddings"] else "head.weight"
        return F.linear(self.norm("final_norm", x), self.p[table])

    def log_probabilities(self, ids):
        """Of every token of the vocabulary behind each prefix of `ids`: float64 [len(ids), vocabulary]."""
        with torch.no_grad():
            return torch.log_softmax(self.logits(torch.tensor([ids])), -1)[0].numpy()

    def gradients(self, loss):
        """Name -> gradient of a scalar that loss_sum leads to."""
        names = list(self.p)
        return dict(zip(names, (g.numpy() for g in torch.autograd.grad(loss, [self.p[n] for n in names]))))

    def layer(self, i, x):
        name = f"layers.{i}."
        y = self.norm(name + "norm1", x)
        if self.model["parallel_residual"]:  # one branch, one mask: that of the site "ffn"
            return x + self.drop(self.attention(i, y) + self.feed_forward(name, y), i, "ffn")
        x = x + self.drop(self.attention(i, y), i, "attention")
        return x + self.drop(self.feed_forward(name, self.norm(name + "norm2", x)), i, "ffn")

    def drop(self, x, layer, site):
        p = self.model["hidden_dropout"]
        if self.seed is None or p == 0:
            return x
        return x * torch.from_numpy(
            random_streams.hidden_mask(self.seed, layer, site, p, self.samples, tuple(x.shape[1:])))

    def linear(self, name, x):
        return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def gain(self, name):
        gain = self.p[name + ".weight"]
        return 1 + gain if self.model["norm_one_plus"] else gain

    def rms_norm(self, name, x):
        eps = self.model["norm_eps"]
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * self.gain(name)

    def norm(self, name, x):
        if self.model["norm"] == "rmsnorm":
            return self.rms_norm(name, x)
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.sqrt((centred * centred).mean(-1, keepdim=True) + self.model["norm_eps"])
        return centred / scale * self.gain(name) + self.p[name + ".bias"]

    def rotate(self, x):
        """x [b, a, s, d]: of the first r channels, c pairs with c + r / 2."""
        rope, d = self.model["rope"], x.shape[-1]
        r = int(d * rope["percent"]) // 2 * 2
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), torch.tensor(
            [rope["base"] ** (-2 * c / r) for c in range(r // 2)], dtype=torch.float64))
        if self.positions is not None:
            angles = angles[self.positions].unsqueeze(1)
        cos, sin = angles.cos(), angles.sin()
        first, second, rest = x.split([r // 2, r // 2, d - r], -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)

    def heads(self, name, x, count):
        y = self.linear(name, x)
        y = y.view(*x.shape[:2], count, head_dim(self.model)).transpose(1, 2)
        if name.endswith(".v"):
            return y
        if self.model["qk_norm"]:
            y = self.rms_norm(name + "_norm", y)
        return self.rotate(y) if self.model["position"] == "rope" else y

    def attention(self, i, x):
        name, model = f"layers.{i}.attention.", self.model
        heads, groups = model["heads"], model["kv_heads"]
        q = self.heads(name + "q", x, heads)
        k = self.heads(name + "k", x, groups).repeat_interleave(heads // groups, 1)
        v = self.heads(name + "v", x, groups).repeat_interleave(heads // groups, 1)
        s = x.shape[1]
        behind = torch.arange(s)[:, None] - torch.arange(s)[None, :]  # query - key
        hidden = behind < 0
        if model.get("window"):
            hidden = hidden | (behind >= model["window"])
        scores = q @ k.transpose(-1, -2) / math.sqrt(head_dim(model))
        shares = torch.softmax(scores.masked_fill(hidden, -math.inf), -1)
        p = model["attention_dropout"]
        if self.seed is not None and p > 0:
            shares = shares * torch.from_numpy(
                random_streams.probability_mask(self.seed, i, p, self.samples, (heads, s)))
        return self.linear(name + "out", (shares @ v).transpose(1, 2).flatten(2))

    def feed_forward(self, name, x):
        up, kind = self.linear(name + "ffn.up", x), self.model["activation"]
        if kind == "swiglu":
            up = F.silu(self.linear(name + "ffn.gate", x)) * up
        elif kind == "geglu":
            up = F.gelu(self.linear(name + "ffn.gate", x), approximate="tanh") * up
        else:
            up = F.gelu(up, approximate={"gelu": "tanh", "gelu_erf": "none"}[kind])
        return self.linear(name + "ffn.down", up)
