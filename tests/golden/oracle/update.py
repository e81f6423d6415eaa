"""The optimizer's side of a step: schedules, clipping, AdamW, and the scalars that a manifest keeps.

Definitions: worker/optim/README.md (schedules and clipping are Megatron-LM's, the update is
Loshchilov & Hutter's with decoupled weight decay).
"""
import math

import numpy as np


class BatchSizes:
    """Samples of each step: `ramp` is None or (start, increment, samples)."""

    def __init__(self, global_batch, ramp=None):
        self.global_batch, self.ramp = global_batch, ramp

    def after(self, consumed):
        """Samples of the step that begins when so many are consumed."""
        if self.ramp is None:
            return self.global_batch
        start, increment, samples = self.ramp
        if consumed > samples:
            return self.global_batch
        per_increment = samples / ((self.global_batch - start) / increment)
        return start + int(consumed / per_increment) * increment

    def consumed(self, steps):
        """Samples of the first so many steps."""
        total = 0
        for _ in range(steps):
            total += self.after(total)
        return total


def learning_rate(optimizer, sizes, total_iters, n):
    """After n samples; lengths of the schedule are given in iterations."""
    highest, lowest = optimizer["lr"], optimizer["min_lr"]
    warmup = sizes.consumed(optimizer["warmup"])
    decay_iters = optimizer.get("decay_over", total_iters)
    decay = sizes.consumed(decay_iters)
    if warmup > 0 and n <= warmup:
        return optimizer["warmup_init"] + (highest - optimizer["warmup_init"]) * n / warmup
    if n > decay:
        return lowest
    ratio = (n - warmup) / (decay - warmup)
    kind = optimizer["decay"]
    if kind == "linear":
        share = 1 - ratio
    elif kind == "cosine":
        share = 0.5 * (math.cos(math.pi * ratio) + 1)
    else:
        assert kind == "wsd" and optimizer["wsd"]["style"] == "minus_sqrt", kind
        last = decay - sizes.consumed(decay_iters - optimizer["wsd"]["over"])
        share = 1.0 if n <= decay - last else 1 - math.sqrt((n - (decay - last)) / last)
    return lowest + share * (highest - lowest)


def weight_decay(optimizer, total_samples, n):
    begin = optimizer["weight_decay"]
    end = optimizer.get("weight_decay_end", begin)
    style = optimizer.get("weight_decay_style", "constant")
    if style == "constant":
        return begin
    if n > total_samples:
        return end
    ratio = n / total_samples
    share = ratio if style == "linear" else 0.5 * (math.cos(math.pi * (1 - ratio)) + 1)
    return begin + share * (end - begin)


def decays(name, value):
    """Megatron-LM: all but biases and what has one dimension."""
    return value.ndim > 1 and not name.endswith(".bias")


def initial_scalars():
    return {"consumed_samples": 0, "schedule_samples": 0, "adam_step": 0, "lr": 0.0,
            "weight_decay": 0.0, "bias_correction1": 1.0, "bias_correction2": 1.0,
            "loss_scale": 1.0, "clean_steps": 0, "hysteresis": 0, "factor": 1.0, "grad_norm": 0.0,
            "skip": 0, "skipped_steps": 0}


def next_scalars(before, job, norm, batch):
    """The scalars after a step of `batch` samples whose mean gradient has this norm."""
    optimizer, training = job["optimizer"], job["training"]
    sizes = BatchSizes(training["global_batch_size"], ramp_of(training))
    t = before["adam_step"] + 1
    n = before["schedule_samples"]
    clip = min(1.0, optimizer["clip_grad"] / (norm + 1e-6))
    total_samples = sizes.consumed(training["train_iters"])
    return before | {
        "consumed_samples": before["consumed_samples"] + batch,
        "schedule_samples": n + batch,
        "adam_step": t,
        "lr": learning_rate(optimizer, sizes, training["train_iters"], n),
        "weight_decay": weight_decay(optimizer, total_samples, n),
        "bias_correction1": 1 - optimizer["beta1"] ** t,
        "bias_correction2": 1 - optimizer["beta2"] ** t,
        # Gradients are summed as shares of a whole global batch.
        "factor": training["global_batch_size"] / batch * clip,
        "grad_norm": norm}


def ramp_of(training):
    text = training.get("batch_ramp")
    return tuple(int(part) for part in text.split(",")) if text else None


def norm_of(gradients):
    return math.sqrt(sum(float(np.sum(g * g)) for g in gradients.values()))


def adamw(state, gradients, scalars, job):
    """(weights, first moments, second moments) after the update; `state` those before it.

    gradients: of the mean loss, unclipped.
    """
    optimizer = job["optimizer"]
    beta1, beta2, eps = optimizer["beta1"], optimizer["beta2"], optimizer["eps"]
    clip = min(1.0, optimizer["clip_grad"] / (scalars["grad_norm"] + 1e-6))
    after = ({}, {}, {})
    for name, weight in state[0].items():
        g = gradients[name] * clip
        m = beta1 * state[1][name] + (1 - beta1) * g
        v = beta2 * state[2][name] + (1 - beta2) * g * g
        step = (m / scalars["bias_correction1"]) / (np.sqrt(v / scalars["bias_correction2"]) + eps)
        if decays(name, weight):
            step = step + scalars["weight_decay"] * weight
        for out, value in zip(after, (weight - scalars["lr"] * step, m, v)):
            out[name] = value
    return after
