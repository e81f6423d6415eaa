"""What a step must do, from the definitions alone: the state before it in, the state after it out.

A state is weights and moments, each name -> float64 array, and the scalars of a manifest.
"""
import dataclasses

import numpy as np

import network
import sample_order
import update


@dataclasses.dataclass
class State:
    tensors: tuple  # weights, then the moments in the order of update.MOMENTS
    scalars: dict
    loss: float = 0.0  # of the step that led here
    tokens: int = 0


class Oracle:
    """Of one job; `prefix` is that of its data set."""

    def __init__(self, job, prefix):
        self.job = job
        self.model, self.training = job["model"], job["training"]
        self.optimizer = job["optimizer"]
        for section, known in (("model", network.KNOWN_MODEL), ("data", sample_order.KNOWN_DATA),
                               ("training", update.KNOWN_TRAINING),
                               ("optimizer", update.KNOWN_OPTIMIZER)):
            unknown = job[section].keys() - known
            assert not unknown, f"the oracle does not know {section}: {unknown}"
        self.kinds = ("weights", *update.MOMENTS[self.optimizer["type"]])
        self.sizes = update.BatchSizes(self.training["global_batch_size"], update.ramp_of(self.training))
        self.total_samples = self.sizes.consumed(self.training["train_iters"])
        sequences, self.idx_digest, self.bin_digest = sample_order.read_sequences(prefix)
        parts = sample_order.parts_of(sequences, job["data"]["split"], job["data"].get("split_by", "documents"))
        evaluation = self.training["eval"]
        evaluations = self.training["train_iters"] // evaluation["every_iters"] + 1
        self.samples_of_eval = evaluation["iters"] * self.training["global_batch_size"]
        self.asked = {"train": self.total_samples, "valid": evaluations * self.samples_of_eval}

        def order(split, asked):
            return sample_order.SampleOrder(parts[("train", "valid").index(split)], self.data_seed,
                                            self.model["seq_length"], asked)

        self.orders = {split: order(split, asked) for split, asked in self.asked.items()}
        self.whole_valid = order("valid", None)

        self.eod = self.model["vocab_size"] - 1  # of numbers: worker/data/README.md

    def positions(self, tokens):
        """[b, s] of inputs, or None: those in the sample."""
        if not self.job["data"].get("reset_positions"):
            return None
        return sample_order.restarting_positions(tokens, self.eod)

    @property
    def data_seed(self):
        return self.job["data"].get("seed", self.training["seed"])

    def initial(self):
        weights = network.initial_values(self.model, self.training["seed"])
        zeros = [{n: np.zeros_like(value) for n, value in weights.items()} for _ in self.kinds[1:]]
        return State((weights, *zeros), update.initial_scalars())

    def step(self, before):
        """The state after the step that begins with `before`."""
        first = before.scalars["consumed_samples"]
        batch = self.sizes.after(first)
        tokens, labels, weights = self.orders["train"].batch(first, batch)
        net = network.Network(self.model, before.tensors[0], dropout_seed=self.training["seed"])
        loss = net.loss_sum(tokens, labels, weights, first + np.arange(batch), self.positions(tokens)) / weights.sum()
        gradients = net.gradients(loss)
        scalars = update.next_scalars(before.scalars, self.job, update.norm_of(gradients), batch)
        return State(update.take(before.tensors, gradients, scalars, self.optimizer), scalars,
                     loss.item(), int(weights.sum()))

    def evaluation(self, weights, step, final):
        """(Loss, tokens) on the validation split after `step`: its own window, or the whole split."""
        order = self.whole_valid if final else self.orders["valid"]
        number = step // self.training["eval"]["every_iters"] - 1
        first, count = number * self.samples_of_eval, self.samples_of_eval
        if final:
            first, count = 0, order.samples
        tokens, labels, loss_weights = order.batch(first, count)
        loss = network.Network(self.model, weights).loss_sum(tokens, labels, loss_weights, None, self.positions(tokens))
        return loss.item() / loss_weights.sum(), int(loss_weights.sum())
