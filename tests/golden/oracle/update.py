"""The optimizer's side of a step: schedules, clipping, the update, and the scalars that a manifest
keeps. Definitions: worker/optim/README.md, "A step in numbers".
"""
import math

import numpy as np


# Names of the moments in checkpoints.
MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum",)}
KNOWN_OPTIMIZER = {
    "type", "lr", "min_lr", "decay", "wsd", "decay_over", "warmup", "warmup_init", "weight_decay",
    "weight_decay_end", "weight_decay_style", "beta1", "beta2", "eps", "momentum", "clip_grad"}
KNOWN_TRAINING = {"train_iters", "micro_batch_size", "global_batch_size", "precision", "seed",
                  "eval", "batch_ramp"}


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
    assert style in ("linear", "cosine"), style
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
        # Gradients are stored as shares of a whole global batch; no loss scale outside fp16.
        "factor": training["global_batch_size"] / batch * clip,
        "grad_norm": norm}


def ramp_of(training):
    text = training.get("batch_ramp")
    return tuple(int(part) for part in text.split(",")) if text else None


def norm_of(gradients):
    return math.sqrt(sum(float(np.sum(g * g)) for g in gradients.values()))


def direction(optimizer, moments, scalars, name):
    """What the learning rate multiplies, but for weight decay; `moments` those after the step."""
    if optimizer["type"] == "sgd":
        return moments[0][name]
    m, v = (moments[i][name] / scalars[f"bias_correction{i + 1}"] for i in range(2))
    return m / (np.sqrt(v) + optimizer["eps"])


def moments_after(optimizer, moments, gradients):
    """gradients: as the update sees them, clipped."""
    names = list(gradients)
    if optimizer["type"] == "sgd":
        mu = optimizer["momentum"]
        return ({name: mu * moments[0][name] + gradients[name] for name in names},)
    beta1, beta2 = optimizer["beta1"], optimizer["beta2"]
    return ({n: beta1 * moments[0][n] + (1 - beta1) * gradients[n] for n in names},
            {n: beta2 * moments[1][n] + (1 - beta2) * gradients[n] ** 2 for n in names})


def take(state, gradients, scalars, optimizer):
    """(Weights, moments...) after the update; `state` those before it.

    gradients: of the mean loss, unclipped. scalars: those after the step.
    """
    clip = min(1.0, optimizer["clip_grad"] / (scalars["grad_norm"] + 1e-6))
    moments = moments_after(optimizer, state[1:], {n: clip * g for n, g in gradients.items()})
    weights = {}
    for name, weight in state[0].items():
        step = direction(optimizer, moments, scalars, name)
        if decays(name, weight):
            step = step + scalars["weight_decay"] * weight
        weights[name] = weight - scalars["lr"] * step
    return (weights, *moments)


def undo(weights, moments, scalars, optimizer):
    """The weights before an update, from what it left."""
    before = {}
    for name, after in weights.items():
        moved = after + scalars["lr"] * direction(optimizer, moments, scalars, name)
        kept = 1 - scalars["lr"] * scalars["weight_decay"] if decays(name, after) else 1.0
        before[name] = moved / kept
    return before
