"""Token files and the order in which their tokens are trained on and evaluated.

Files: worker/data/FORMAT.md. Order: worker/data/README.md ("Order of samples"), which is
Megatron-LM's for the same seed; the shuffles are numpy's own RandomState. A sample index is not
needed: sample i of the joined stream of tokens begins at token i S.
"""
import numpy as np

from random_streams import digest128

_MAGIC = b"MMIDIDX\0\0"
KNOWN_DATA = {"path", "split", "split_by", "tokenizer", "seed", "reset_positions"}
_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}


def write_data_set(prefix, documents):
    """Writes documents, each a list of uint16 sequences, as <prefix>.bin and .idx."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    offsets = np.concatenate([[0], 2 * np.cumsum(lengths)[:-1]]).astype("<i8")
    starts = np.cumsum([0] + [len(document) for document in documents]).astype("<i8")
    counts = np.array([len(sequences), len(starts)], "<u8")
    with open(f"{prefix}.bin", "wb") as file:
        file.write(np.concatenate(sequences).astype("<u2").tobytes())
    with open(f"{prefix}.idx", "wb") as file:
        file.write(_MAGIC + np.array([1], "<u8").tobytes() + bytes([8]) + counts.tobytes() +
                   lengths.astype("<i4").tobytes() + offsets.tobytes() + starts.tobytes())


def restarting_positions(tokens, eod):
    """Of inputs [b, s]: how far each is behind the sample's begin or the end of a document before it."""
    ends = np.zeros_like(tokens, dtype=bool)
    ends[:, 1:] = tokens[:, :-1] == eod
    places = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    return places - np.maximum.accumulate(np.where(ends, places, 0), axis=1)


def read_sequences(prefix):
    """(The sequences of a data set, digest of its .idx, digest of a sample of its .bin)."""
    with open(f"{prefix}.idx", "rb") as file:
        index = file.read()
    with open(f"{prefix}.bin", "rb") as file:
        tokens = file.read()
    assert index[:9] == _MAGIC and np.frombuffer(index, "<u8", 1, 9)[0] == 1, prefix
    kind = np.dtype(_TYPES[index[17]]).newbyteorder("<")
    count, documents = (int(n) for n in np.frombuffer(index, "<u8", 2, 18))
    assert len(index) == 34 + 12 * count + 8 * documents, prefix
    lengths = np.frombuffer(index, "<i4", count, 34)
    offsets = np.frombuffer(index, "<i8", count, 34 + 4 * count)
    sequences = [np.frombuffer(tokens, kind, int(n), int(at)).astype(np.int64)
                 for n, at in zip(lengths, offsets)]
    return sequences, digest128(index), digest128(len(tokens).to_bytes(8, "little") + sample_of(tokens))


def sample_of(tokens):
    """What a checkpoint holds the .bin against: 64 blocks of 16 KiB, evenly spread; all of 1 MiB and less."""
    if len(tokens) <= 64 << 14:
        return tokens
    begins = [i * (len(tokens) - (1 << 14)) // 63 for i in range(64)]
    return b"".join(tokens[begin:begin + (1 << 14)] for begin in begins)


def split_bounds(text, count):
    """[begin, end) of train, valid and test, of so many sequences or tokens."""
    shares = [float(share) for share in text.split(",")]
    shares += [0.0] * (3 - len(shares))
    total, bounds = sum(shares), [0]
    reached = 0.0
    for share in shares:
        reached += share / total
        bounds.append(round(reached * count))
    return list(zip(bounds, bounds[1:]))


def parts_of(sequences, text, by="documents"):
    """The sequences that train, valid and test have of a data set; by tokens, those at a bound are cut."""
    if by == "documents":
        return [sequences[begin:end] for begin, end in split_bounds(text, len(sequences))]
    assert by == "tokens", by
    begins = np.cumsum([0] + [len(sequence) for sequence in sequences])
    parts = []
    for begin, end in split_bounds(text, int(begins[-1])):
        # Of each token of the part the sequence that holds it; sequences without tokens hold none.
        first, last = np.searchsorted(begins, [begin, end - 1], side="right") - 1 if begin < end else (0, -1)
        parts.append([sequences[i][max(begin - begins[i], 0):end - begins[i]] for i in range(first, last + 1)])
    return parts


class SampleOrder:
    """Samples of one split in training order. samples_asked None: the whole split, once."""

    def __init__(self, sequences, seed, seq_length, samples_asked=None):
        self.seq_length = seq_length
        self.whole = samples_asked is None
        per_epoch = sum(len(sequence) for sequence in sequences)
        asked = 0 if self.whole else samples_asked
        self.epochs = max(1, -(-(asked * seq_length + 1) // per_epoch))
        self.samples = (self.epochs * per_epoch - 1) // seq_length
        if self.whole:
            self.samples = -(-(per_epoch - 1) // seq_length)  # the shorter last one counts
        before = 0
        self.separate = False
        if self.epochs > 1:
            before = ((self.epochs - 1) * per_epoch - 1) // seq_length
            self.separate = asked - before < int(0.80 * ((per_epoch - 1) // seq_length))
        random = np.random.RandomState(seed)
        self.documents = self._shuffle(
            random, np.tile(np.arange(len(sequences)), self.epochs), (self.epochs - 1) * len(sequences))
        self.shuffled = self._shuffle(random, np.arange(self.samples), before)
        self.stream = np.concatenate([sequences[d] for d in self.documents])

    def _shuffle(self, random, values, before_last_epoch):
        """All values together, or those of the last epoch apart."""
        if not self.separate:
            random.shuffle(values)
            return values
        head, tail = values[:before_last_epoch].copy(), values[before_last_epoch:].copy()
        random.shuffle(head)
        random.shuffle(tail)
        return np.concatenate([head, tail])

    def batch(self, first, count):
        """Of samples [first, first + count): tokens, labels, int64 [count, S], and weights.

        Behind the last sample, and behind the last token of a split that is read whole, the weight
        is 0.
        """
        s = self.seq_length
        tokens = np.zeros((count, s + 1), np.int64)
        weights = np.zeros((count, s))
        for row, number in enumerate(range(first, first + count)):
            if number >= self.samples:
                continue
            begin = int(self.shuffled[number]) * s
            piece = self.stream[begin:begin + s + 1]
            tokens[row, :len(piece)] = piece
            weights[row, :len(piece) - 1] = 1.0
        return tokens[:, :-1], tokens[:, 1:], weights
