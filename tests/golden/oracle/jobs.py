"""The jobs that the oracle predicts: three models, each field a number that is nobody's default.

`eps` is so large that AdamW with another one takes other steps, `clip_grad` so small that it bites, and
the data set is shorter than the run, so that the order of its second epoch counts too.
"""
import copy

_DATA = {"path": ["numbers"], "split": "71,23,6", "tokenizer": {"type": "null"}}
_OPTIMIZER = {"type": "adamw", "lr": 7.3e-3, "min_lr": 9.1e-4, "decay": "cosine", "warmup": 3,
              "warmup_init": 0, "weight_decay": 0.23, "beta1": 0.83, "beta2": 0.941, "eps": 1.7e-3,
              "clip_grad": 0.37}
_TRAINING = {"train_iters": 6, "micro_batch_size": 2, "global_batch_size": 16, "precision": "fp64",
             "seed": 90210, "eval": {"every_iters": 2, "iters": 2}}

GPT2 = {
    "name": "oracle-gpt2",
    "model": {"layers": 4, "hidden_size": 32, "heads": 4, "kv_heads": 4, "ffn_size": 128,
              "vocab_size": 61, "vocab_divisible_by": 8, "seq_length": 16, "max_positions": 19,
              "position": "learned", "norm": "layernorm", "norm_eps": 3e-4, "norm_one_plus": False,
              "activation": "gelu", "bias": True, "qkv_bias": True, "qk_norm": False,
              "tie_embeddings": True, "parallel_residual": False, "hidden_dropout": 0.13,
              "attention_dropout": 0.21, "init_std": 0.057, "scaled_init": True},
    "data": _DATA,
    "training": _TRAINING,
    "optimizer": _OPTIMIZER,
}

# No warmup from 0 here: every step moves the weights. The batch grows, the decay of weights too.
LLAMA = {
    "name": "oracle-llama",
    "model": GPT2["model"] | {
        "heads": 8, "kv_heads": 4, "head_dim": 6, "ffn_size": 72, "vocab_size": 53, "position": "rope",
        "rope": {"base": 713.0, "percent": 1.0}, "norm": "rmsnorm", "activation": "swiglu",
        "bias": False, "qkv_bias": False, "tie_embeddings": False, "hidden_dropout": 0,
        "attention_dropout": 0, "init_std": 0.071},
    "data": _DATA | {"seed": 4711, "split": "80,20"},
    "training": _TRAINING | {"seed": 3141592653, "batch_ramp": "8,8,16"},
    "optimizer": _OPTIMIZER | {
        "decay": "wsd", "wsd": {"over": 2, "style": "minus_sqrt"}, "decay_over": 5, "warmup": 2,
        "warmup_init": 1.1e-3, "beta1": 0.71, "weight_decay": 0.31, "weight_decay_end": 0.53,
        "weight_decay_style": "cosine", "clip_grad": 0.92},
}

# Falcon's branches under one mask, more variants of the layer, SGD, and data divided within documents.
PARALLEL = {
    "name": "oracle-parallel",
    "model": LLAMA["model"] | {
        "parallel_residual": True, "hidden_dropout": 0.11, "attention_dropout": 0.07,
        "rope": {"base": 713.0, "percent": 0.7}, "qk_norm": True, "norm_one_plus": True,
        "activation": "geglu", "bias": True, "window": 7, "scaled_init": False, "head_dim": 10},
    "data": _DATA | {"split_by": "tokens"},
    "training": _TRAINING | {"seed": 8},
    "optimizer": _OPTIMIZER | {"type": "sgd", "momentum": 0.77, "lr": 0.83, "decay": "linear",
                               "warmup": 0},
}

def restarting(job):
    """The job with positions that restart at documents."""
    return job | {"data": job["data"] | {"reset_positions": True}}


# Down projections of 4 MiB, which are stored in parts of their columns.
WIDE = {
    "name": "oracle-wide",
    "model": GPT2["model"] | {"layers": 2, "ffn_size": 16384},
    "data": _DATA,
    "training": _TRAINING | {"train_iters": 1},
    "optimizer": _OPTIMIZER | {"warmup": 0},
}
LAYOUT_WIDE = {"tensor": 2, "data": 2, "zero_stage": 1}

# Two tensor ranks x two stages of two chunks x two replicas.
LAYOUT_3D = {"tensor": 2, "pipeline": 2, "data": 2, "schedule": "interleaved", "virtual_stages": 2,
             "sequence_parallel": True, "zero_stage": 1, "bucket_size": "8KiB"}


def with_layout(job, parallel):
    out = copy.deepcopy(job)
    out["parallel"] = parallel
    return out
