"""Blends of data sets, from their definition (docs/design/megatron-compat.md, "Blend"), in numpy."""
import math

import numpy as np

from sample_order import SampleOrder


def normalized(weights):
    weights = np.array(weights, np.float64)
    return weights / np.sum(weights)


def draw(weights, samples, sizes=None):
    """[(member, its sample)] by weights; with `sizes` members leave once they are used up."""
    taken = np.zeros(len(weights), np.int64)
    order = []
    for sample in range(samples):
        lag = weights * max(sample, 1) - taken
        if sizes is not None:
            lag[taken == sizes] = -np.inf
        member = int(np.argmax(lag))  # the first of equal ones
        order.append((member, int(taken[member])))
        taken[member] += 1
    return order


class Blend:
    """The samples of one split of several data sets, in training order. `samples` None: each once, member by member."""

    def __init__(self, members, weights, seed, seq_length, samples):
        if samples is None:
            self.orders = [SampleOrder(m, seed, seq_length) for m in members]
            self.order = [(i, k) for i, order in enumerate(self.orders) for k in range(order.samples)]
        elif weights is None:
            self.orders = [self._one_epoch(m, seed, seq_length) for m in members]
            sizes = np.array([order.samples for order in self.orders])
            self.error = samples > sizes.sum()
            if self.error:
                return
            self.order = draw(normalized(sizes), samples)
            if any(k >= sizes[i] for i, k in self.order):
                self.order = draw(sizes / sizes.sum(), int(sizes.sum()), sizes)
        else:
            shares = normalized(weights)
            taken = [math.ceil(samples * share) for share in shares]
            self.order = draw(normalized(shares), samples)
            asked = np.maximum([math.ceil(n * 1.005) for n in taken], self.consumed(samples, len(members)))
            self.orders = [SampleOrder(m, seed, seq_length, int(n)) for m, n in zip(members, asked)]
        self.error = False

    @staticmethod
    def _one_epoch(sequences, seed, seq_length):
        """Full samples only: what one epoch of the data set has."""
        tokens = sum(len(sequence) for sequence in sequences)
        return SampleOrder(sequences, seed, seq_length, (tokens - 1) // seq_length)

    def __len__(self):
        return len(self.order)

    def sample(self, number):
        member, own = self.order[number]
        return self.orders[member].batch(own, 1)

    def consumed(self, samples, members=None):
        count = len(self.orders) if members is None else members
        return np.bincount([member for member, _ in self.order[:samples]], minlength=count).tolist()
