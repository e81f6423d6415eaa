#!/usr/bin/python3
"""Writes positions_torch.safetensors: loss and all gradients where positions restart at documents.

The model of variants_torch.py in three variants whose positions, learned or of RoPE, begin again
behind each end-of-document token, as Megatron-LM's --reset-position-ids has them, while attention
still sees everything before (no --reset-attention-mask). mt_model_test holds the data layer to the
positions and worker/model to the rest.

    /usr/bin/python3 tests/golden/positions_torch.py        # rewrites the file beside this script

File: as variants_torch.safetensors, with the variants below, "eod" in __metadata__ and
    positions I32 [s, b]
"""

import json
import os

import torch

import variants_torch as model
from gpt2_torch import write_safetensors

EOD = 7

VARIANTS = {
    "learned": {},
    "rope": model.LLAMA,
    "rope_qk_norm": model.VARIANTS["everything"],
}


def position_ids(tokens):
    """Of one sample: what is behind an end-of-document token loses the number of all tokens up to it."""
    positions = list(range(len(tokens)))
    begin = 0
    for i, token in enumerate(tokens):
        if token == EOD:
            for j in range(i + 1, len(tokens)):
                positions[j] -= i + 1 - begin
            begin = i + 1
    return positions


def make_tokens():
    """Sample 0: documents within, one of them of its end alone. Sample 1: ends at both borders."""
    tokens = torch.randint(0, model.VOCAB, (model.SEQ, model.BATCH))
    tokens[tokens == EOD] = EOD + 1
    for sample, ends in enumerate(([4, 5, 13], [0, 9, model.SEQ - 1])):
        tokens[ends, sample] = EOD
    return tokens


def main():
    torch.manual_seed(1729)
    torch.set_num_threads(1)
    tokens = make_tokens()
    labels = torch.randint(0, model.VOCAB, (model.SEQ, model.BATCH))
    loss_weights = (torch.rand(model.SEQ, model.BATCH) > 0.15).to(torch.float32)
    positions = torch.tensor([position_ids(column) for column in tokens.T.tolist()]).T.contiguous()
    tensors = {"tokens": tokens.to(torch.int32), "labels": labels.to(torch.int32),
               "weights": loss_weights, "positions": positions.to(torch.int32)}
    configs = {name: model.BASE | changes for name, changes in VARIANTS.items()}
    for variant, c in configs.items():
        p = {}
        for name, shape in model.parameter_shapes(c).items():
            weight = model.make_weight(name, shape)
            tensors[model.weight_key(name, shape)] = weight
            p[name] = weight.to(torch.float64).requires_grad_()
        loss = model.loss_sum(c | {"position_ids": positions}, p, tokens, labels,
                              loss_weights.to(torch.float64))
        (loss / (model.SEQ * model.BATCH)).backward()
        tensors[variant + "/loss"] = loss.detach().reshape(1)
        for name, parameter in p.items():
            tensors[f"{variant}/grad/{name}"] = parameter.grad
        through = model.loss_sum(c, p, tokens, labels, loss_weights.to(torch.float64))
        print(f"{variant:14} loss per token {float(loss) / float(loss_weights.sum()):.6f}, "
              f"without restarts {float(through) / float(loss_weights.sum()):.6f}")
    metadata = {"variants": json.dumps(configs), "vocab": str(model.VOCAB), "seq": str(model.SEQ),
                "batch": str(model.BATCH), "eod": str(EOD)}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "positions_torch.safetensors")
    write_safetensors(path, tensors, metadata)
    print(path, os.path.getsize(path), "bytes; torch", torch.__version__)


if __name__ == "__main__":
    main()
