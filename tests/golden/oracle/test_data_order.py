"""300 random data sections, blends and several epochs among them, and 150 that are split by tokens: the program's samples, id by id,
against numpy."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import numpy as np

from blend import Blend
from random_streams import digest128
from sample_order import SampleOrder, parts_of, read_sequences, restarting_positions, write_data_set

PROGRAM = pathlib.Path(os.environ["MT_BIN"]) / "mt_data_order"
CASES = 300
CASES_BY_TOKENS = 150
VOCAB = 500


def make_data_sets(folder, draw):
    """Prefixes of data sets from a few to a few hundred short sequences."""
    prefixes = []
    for number in range(14):
        count = draw.choice([3, 7, 20, 60, 150])
        longest = draw.choice([4, 20, 90])
        documents = [[np.array([draw.randrange(VOCAB) for _ in range(draw.randint(0, longest))], np.uint16)]
                     for _ in range(count)]
        documents.append([np.arange(30, dtype=np.uint16)])
        prefix = f"{folder}/set{number}"
        write_data_set(prefix, documents)
        prefixes.append(prefix)
    return prefixes


def make_case(draw, prefixes):
    count = draw.choices([1, 2, 3, 5, 10], [3, 3, 3, 2, 2])[0]
    members = draw.sample(prefixes, count)
    weighted = draw.random() < 0.6
    weights = [draw.choice([1, 0.5, 3, 12.25, 30, draw.random() + 0.01]) if weighted else None for _ in members]
    case = {"seq_length": draw.choice([4, 8, 17]), "seed": draw.randrange(2**32), "vocab_size": VOCAB,
            "train_samples": draw.choice([1, 5, 40, 200]), "valid_samples": draw.choice([0, 3, 20]),
            "whole_valid": draw.random() < 0.5}
    listed = [[prefix, weight] for prefix, weight in zip(members, weights)]
    if draw.random() < 0.6:
        case.update(path=listed, split=draw.choice(["70,30", "969,30,1", "8,1,1", "1,1"]))
    else:
        case.update(train=listed, valid=draw.sample(listed, draw.randint(1, len(listed))))
    if draw.random() < 0.3:
        case["no_loss_behind"] = draw.randrange(VOCAB)
    return case


def make_few_documents(folder, draw):
    """Prefixes of data sets of one to three documents with tokens, some without any before, between and behind them."""
    prefixes = []
    for number in range(12):
        documents = [[np.array([], np.uint16)] * draw.choice([0, 0, 1, 2])]
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            length = draw.choice([9, 40, 200, 900])
            documents.append([np.array([draw.randrange(VOCAB) for _ in range(length)], np.uint16)])
            documents.append([np.array([], np.uint16)] * draw.choice([0, 0, 1]))
        prefix = f"{folder}/few{number}"
        write_data_set(prefix, documents)
        prefixes.append(prefix)
    return prefixes


def make_case_by_tokens(draw, prefixes):
    count = draw.choices([1, 2, 4], [4, 2, 1])[0]
    weighted = draw.random() < 0.5
    listed = [[prefix, draw.choice([1, 0.5, 3]) if weighted else None] for prefix in draw.sample(prefixes, count)]
    split = draw.choice(["70,30", "969,30,1", "8,1,1", "1,1", "1,0,1", "2,1,1", "0.1,0.7,0.2"])
    return {"path": listed, "split": split, "split_by": "tokens", "seq_length": draw.choice([4, 8, 17]),
            "seed": draw.randrange(2**32), "vocab_size": VOCAB, "train_samples": draw.choice([1, 5, 40]),
            "valid_samples": draw.choice([0, 3, 20]), "whole_valid": draw.random() < 0.5}


class Expected:
    """What the case gives by the definitions."""

    def __init__(self, case, read):
        self.case, self.read = case, read

    def members(self, split):
        if "path" not in self.case:
            return [self.read(prefix) for prefix, _ in self.case[split]]
        part = {"train": 0, "valid": 1}[split]
        out = []
        for prefix, _ in self.case["path"]:
            out.append(parts_of(self.read(prefix), self.case["split"], self.case.get("split_by", "documents"))[part])
        return out

    def split(self, split, samples):
        """A Blend, for one data set, too; None where the program must refuse it."""
        members = self.members(split)
        least = 1 if samples else 2  # a whole split has a label
        if any(sum(len(sequence) for sequence in member) < least for member in members):
            return None
        weights = [weight for _, weight in self.case.get("path") or self.case[split]]
        if len(members) == 1:
            blend = Blend.__new__(Blend)
            order = SampleOrder(members[0], self.case["seed"], self.case["seq_length"], samples)
            blend.orders, blend.error = [order], False
            blend.order = [(0, k) for k in range(order.samples)]
            return blend
        unweighted = weights[0] is None
        if unweighted and samples is not None and any(
                sum(len(sequence) for sequence in member) <= self.case["seq_length"] for member in members):
            return None  # a member without one full sample
        blend = Blend(members, None if unweighted else weights, self.case["seed"], self.case["seq_length"], samples)
        return None if blend.error else blend

    def digest(self, blend, samples):
        data = b""
        for number in range(samples):
            tokens, labels, weights = blend.sample(number)
            if "no_loss_behind" in self.case:
                weights = weights * (tokens != self.case["no_loss_behind"])
            ids = np.concatenate([tokens[0], labels[0][-1:]])
            positions = restarting_positions(tokens, self.case.get("positions_restart_behind", -1))
            data += ids.astype("<i4").tobytes() + weights[0].astype("<f4").tobytes()
            data += positions[0].astype("<i4").tobytes()
        return digest128(data)


class DataOrderTest(unittest.TestCase):
    def check(self, case, answer, read):
        expected = Expected(case, read)
        wanted = {"train": case["train_samples"]}
        if case["valid_samples"]:
            wanted["valid"] = case["valid_samples"]
        if case["whole_valid"]:
            wanted["whole_valid"] = None
        blends = {name: expected.split(name.removeprefix("whole_"), samples) for name, samples in wanted.items()}
        if None in blends.values():
            self.assertIn("error", answer)
            return False
        self.assertNotIn("error", answer)
        for name, blend in blends.items():
            samples = len(blend) if wanted[name] is None else wanted[name]
            self.assertEqual(answer[name], [len(blend), expected.digest(blend, samples)], name)
        if len(blends["train"].orders) > 1:
            self.assertEqual(answer["consumed"], blends["train"].consumed(case["train_samples"]))
        return True

    def check_all(self, cases, prefixes):
        """How many of the cases are no refusals."""
        sequences = {prefix: read_sequences(prefix)[0] for prefix in prefixes}
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), len(cases))
        right = 0
        for number, (case, answer) in enumerate(zip(cases, answers)):
            with self.subTest(number=number, case=case, answer=answer):
                right += self.check(case, answer, sequences.__getitem__)
        return right

    def test_random_cases(self):
        draw = random.Random(20261126)
        with tempfile.TemporaryDirectory() as folder:
            prefixes = make_data_sets(folder, draw)
            cases = [make_case(draw, prefixes) for _ in range(CASES)]
            for number, case in enumerate(cases[::3]):
                # Ids up to 29 are in each data set, one behind the other.
                case["positions_restart_behind"] = number % 30
            right = self.check_all(cases, prefixes)
        self.assertGreater(right, CASES // 2, "most cases are no refusals")

    def test_cases_by_tokens(self):
        draw = random.Random(20261129)
        with tempfile.TemporaryDirectory() as folder:
            prefixes = make_few_documents(folder, draw)
            right = self.check_all([make_case_by_tokens(draw, prefixes) for _ in range(CASES_BY_TOKENS)], prefixes)
        self.assertGreater(right, CASES_BY_TOKENS // 3, "many cases are no refusals")
        self.assertLess(right, CASES_BY_TOKENS, "and some are")


if __name__ == "__main__":
    unittest.main()
