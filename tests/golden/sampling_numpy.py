#!/usr/bin/env python3
"""Writes sampling.json: which tokens are drawn from given logits with given uniform numbers, by numpy.

By the definition in worker/decode/README.md ("Sampling"), written anew here: sorting, softmax, cumulated sums.

    sampling_numpy.py            writes the file beside this script
"""
import json
import pathlib

import numpy as np

SETTINGS = [dict(temperature=t, top_k=k, top_p=p, repetition_penalty=r)
            for t in (0.0, 0.3, 0.8, 1.0, 2.5) for k in (0, 1, 3, 40) for p in (1.0, 0.9, 0.35, 0.01) for r in (1.0, 1.3, 0.7)
            if t > 0 or (k == 0 and p == 1.0)]


def drawn(logits, seen, setting, uniforms):
    logits = np.array(logits, dtype=np.float64)
    index = np.unique(seen)
    kept = logits[index]
    logits[index] = np.where(kept > 0, kept / setting["repetition_penalty"], kept * setting["repetition_penalty"])
    if setting["temperature"] == 0:
        return [int(np.argmax(logits))] * len(uniforms)
    order = np.argsort(-logits, kind="stable")
    if setting["top_k"]:
        order = order[:setting["top_k"]]
    weights = np.exp((logits[order] - logits[order[0]]) / setting["temperature"])
    before = np.concatenate([[0.0], np.cumsum(weights)[:-1]]) / np.sum(weights)
    keep = before < setting["top_p"]
    keep[0] = True
    order, weights = order[keep], weights[keep]
    cumulated = np.cumsum(weights / np.sum(weights))
    at = np.minimum(np.searchsorted(cumulated, uniforms, side="right"), len(order) - 1)
    return [int(token) for token in order[at]]


def main():
    random = np.random.RandomState(20261126)
    cases = []
    for number, setting in enumerate(SETTINGS):
        logits = np.round(random.normal(0, 2, 29), 3)
        logits[7] = logits[3]  # a tie
        if number % 5 == 0:
            logits[11] = logits[12] = np.max(logits) + 0.5
        seen = random.randint(0, 29, 6)
        uniforms = np.round(np.concatenate([[0.0, 0.999999], random.uniform(size=6)]), 6)
        cases.append(dict(setting, logits=logits.tolist(), seen=seen.tolist(), uniforms=uniforms.tolist(),
                          drawn=drawn(logits, seen, setting, uniforms)))
    text = ",\n".join(json.dumps(case) for case in cases)
    (pathlib.Path(__file__).parent / "sampling.json").write_text("[\n" + text + "\n]\n")


if __name__ == "__main__":
    main()
