"""Whole training steps of the real program against definitions: see tests/golden/README.md.

From the checkpoint of step k (from nothing, for the first step) the oracle predicts that of step
k + 1: loss, gradient norm, learning rate, every scalar, every weight and every moment.
"""
import json
import unittest

import numpy as np

import compare
import jobs
import network
import prediction
import run
import update


class OracleTest:
    """A run and its predictions; subclasses name the job."""

    job = None

    @classmethod
    def setUpClass(cls):
        cls.run_ = run.Run(cls.job)
        cls.addClassCleanup(cls.run_.close)
        cls.oracle = prediction.Oracle(cls.job, cls.run_.prefix)
        cls.total = cls.job["training"]["train_iters"]
        cls.saved = {step: cls.run_.checkpoint(step) for step in range(1, cls.total + 1)}

    def state_of(self, step):
        """As the checkpoint of this step has it."""
        saved = self.saved[step]
        self.assertEqual(set(saved.tensors), set(self.oracle.kinds))
        return prediction.State(tuple(saved.tensors[kind] for kind in self.oracle.kinds),
                                saved.integers | saved.reals)

    def expect_none(self, problems):
        if problems:
            self.fail("\n".join(problems))

    def test_initial_values(self):
        """What the first update did is undone (at learning rate 0 it does nothing)."""
        after = self.state_of(1)
        got = update.undo(after.tensors[0], after.tensors[1:], after.scalars, self.job["optimizer"])
        self.expect_none(compare.tensors("initial values", got, self.oracle.initial().tensors[0]))

    def test_steps(self):
        before = self.oracle.initial()
        for step in range(1, self.total + 1):
            saved = self.state_of(step)
            with self.subTest(step=step):
                self.expect_none(self.differences(step, saved, self.oracle.step(before)))
            before = saved

    def differences(self, step, saved, want):
        report = self.run_.steps[step]
        problems = compare.equal("step", self.saved[step].manifest["step"], step)
        problems += compare.number("loss", report["loss"], want.loss)
        problems += compare.equal("tokens", report["tokens"], want.tokens)
        for name, scalar in (("grad_norm", "grad_norm"), ("learning_rate", "lr")):
            problems += compare.number("reported " + name, report[name], want.scalars[scalar])
        problems += compare.numbers(saved.scalars, want.scalars)
        for kind, a, b in zip(self.oracle.kinds, saved.tensors, want.tensors):
            problems += compare.tensors(kind, a, b)
        return problems

    def test_evaluations(self):
        every = self.job["training"]["eval"]["every_iters"]
        steps = list(range(every, self.total, every)) + [self.total]
        self.assertEqual([record["step"] for record in self.run_.evaluations], steps)
        for record in self.run_.evaluations:
            step, final = record["step"], record["step"] == self.total
            with self.subTest(step=step):
                weights = self.saved[step].tensors["weights"]
                loss, tokens = self.oracle.evaluation(weights, step, final)
                problems = compare.equal("final", record["final"], final)
                problems += compare.equal("tokens", record["tokens"], tokens)
                problems += compare.number("validation loss", record["loss"], loss)
                self.expect_none(problems)

    def test_recorded_order(self):
        """What the manifest says of the order of samples."""
        want = {}
        divided = self.job["data"]["split"]
        if self.job["data"].get("split_by") == "tokens":
            divided += " by tokens"
        for split, order in self.oracle.orders.items():
            want |= {f"data.{split}.{field}": value for field, value in {
                "source": str(self.run_.prefix), "samples_asked": str(self.oracle.asked[split]),
                "epochs": str(order.epochs), "separate_last_epoch": str(order.separate).lower(),
                "seed": str(self.oracle.data_seed), "seq_length": str(order.seq_length),
                "split": divided, "samples_built": str(order.samples),
                "idx_digest": self.oracle.idx_digest, "bin_digest": self.oracle.bin_digest}.items()}
        facts = {name: value for name, value in self.saved[1].facts.items() if name.startswith("data.")}
        self.assertEqual(facts, want)

    def test_text(self):
        """Greedy text of two checkpoints, whatever layout saved them, and the log probability of each token, in fp64."""
        prompts = [[5, 17, 2], [9, 8, 7, 30, 1, 0, 22, 22, 3, 50, 41]]
        for step in (1, self.total):
            said = self.run_.generate(step, prompts, "--tokens=6", "--logprobs")
            self.assertEqual([text["prompt_ids"] for text in said["texts"]], prompts)
            net = network.Network(self.job["model"], self.saved[step].tensors["weights"])
            for text in said["texts"]:
                ids = text["prompt_ids"] + text["ids"]
                table = net.log_probabilities(ids[:-1])
                chosen = table[len(text["prompt_ids"]) - 1:].argmax(-1).tolist()
                self.assertEqual(text["ids"], chosen, f"step {step}, {text['finish']}")
                want = table[np.arange(len(ids) - 1), ids[1:]]
                np.testing.assert_allclose(text["logprobs"], want, rtol=1e-10, atol=1e-10)

    def test_scores(self):
        """Perplexity, a last word and a choice of the last checkpoint, in fp64: numbers are tokens, the last id ends documents."""
        net = network.Network(self.job["model"], self.saved[self.total].tensors["weights"])
        eod = self.job["model"]["vocab_size"] - 1
        ids = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 46, 26, 43, 38, 32, 7, 50, 28]
        asked = [([5, 17, 2], [[4], [9, 30]]), ([8], [[22, 1, 3], [41]])]
        files = {"text.txt": " ".join(map(str, ids)), "words.jsonl": json.dumps({"text": "5 17 2 9"}),
                 "choices.jsonl": "\n".join(json.dumps({"context": " ".join(map(str, context)), "label": i,
                                                        "choices": [" ".join(map(str, choice)) for choice in choices]})
                                            for i, (context, choices) in enumerate(asked))}
        said = self.run_.scores(self.total, [
            {"name": "text", "type": "perplexity", "file": "text.txt", "window": 8, "stride": 3},
            {"name": "words", "type": "last_word", "file": "words.jsonl"},
            {"name": "choices", "type": "multiple_choice", "file": "choices.jsonl"}], files)

        def sum_of(context, following):
            table = net.log_probabilities((context + following)[:-1])[-len(following):]
            return table[np.arange(len(following)), following].sum()

        # Windows of 8: the first 8 tokens, then three at a time.
        parts, total = [(0, 8)] + [(at, min(at + 3, len(ids))) for at in range(8, len(ids), 3)], 0
        for begin, end in parts:
            before = ([eod] + ids)[max(0, end - 8):begin + 1]
            total += sum_of(before, ids[begin:end])
        want = {"text": {"log_likelihood": total, "token_perplexity": np.exp(-total / len(ids)), "words": len(ids)},
                "words": {"perplexity": np.exp(-sum_of([5, 17, 2], [9]))},
                "choices": {"accuracy": np.mean([np.argmax([sum_of(context, choice) for choice in choices]) == i
                                                 for i, (context, choices) in enumerate(asked)])}}
        for task in said["tasks"]:
            for name, value in want[task["name"]].items():
                np.testing.assert_allclose(task["scores"][name], value, rtol=1e-10, err_msg=f"{task['name']} {name}")

    def test_the_job_tells_mistakes_apart(self):
        """Clipping bites, both splits are read more than once, and all is stored in fp64."""
        norms = [self.saved[step].reals["grad_norm"] for step in self.saved]
        self.assertGreater(max(norms), self.job["optimizer"]["clip_grad"], norms)
        self.assertGreater(self.oracle.orders["train"].epochs, 1)
        self.assertGreater(self.oracle.orders["valid"].epochs, 1)
        self.assertEqual(self.saved[1].dtypes, {"F64"})


class Gpt2Test(OracleTest, unittest.TestCase):
    job = jobs.GPT2


class Gpt2In3DTest(OracleTest, unittest.TestCase):
    job = jobs.with_layout(jobs.GPT2, jobs.LAYOUT_3D)


class LlamaTest(OracleTest, unittest.TestCase):
    job = jobs.LLAMA


class LlamaIn3DTest(OracleTest, unittest.TestCase):
    job = jobs.with_layout(jobs.LLAMA, jobs.LAYOUT_3D)


class ParallelResidualTest(OracleTest, unittest.TestCase):
    job = jobs.PARALLEL


class ParallelResidualIn3DTest(OracleTest, unittest.TestCase):
    job = jobs.with_layout(jobs.PARALLEL, jobs.LAYOUT_3D)


class RestartingTest(OracleTest):
    """Positions that restart at documents; text is one document."""

    def test_positions_restart(self):
        tokens, _, _ = self.oracle.orders["train"].batch(0, 64)
        positions = self.oracle.positions(tokens)
        self.assertGreater(int((positions[:, 1:] == 0).sum()), 32, "documents begin within samples")
        self.assertGreater(int(positions.max()), 12, "some samples are within one")


class RestartingGpt2In3DTest(RestartingTest, unittest.TestCase):
    job = jobs.with_layout(jobs.restarting(jobs.GPT2), jobs.LAYOUT_3D)


class RestartingLlamaIn3DTest(RestartingTest, unittest.TestCase):
    job = jobs.with_layout(jobs.restarting(jobs.LLAMA), jobs.LAYOUT_3D)


class ColumnPartsTest(unittest.TestCase):
    """Checkpoints with matrices in parts of their columns, put together by FORMAT.md alone: the state after the first step."""

    def boxes_after_first_step(self, job):
        """Of each down projection's weights; their sizes in eighths of the columns."""
        run_ = run.Run(job)
        self.addCleanup(run_.close)
        oracle = prediction.Oracle(job, run_.prefix)
        saved, want = run_.checkpoint(1), oracle.step(oracle.initial())
        self.assertEqual(set(saved.tensors), set(oracle.kinds))
        problems = []
        for kind, tensors in zip(oracle.kinds, want.tensors):
            problems += compare.tensors(kind, saved.tensors[kind], tensors)
        self.assertFalse(problems, "\n".join(problems))
        return [saved.boxes(f"{kind}/layers.{layer}.ffn.down.weight") for kind in oracle.kinds
                for layer in range(job["model"]["layers"])]

    def test_of_one_rank(self):
        rows, part = jobs.WIDE["model"]["hidden_size"], jobs.WIDE["model"]["ffn_size"] // 8
        for boxes in self.boxes_after_first_step(jobs.WIDE):
            self.assertEqual(boxes, [((0, i * part), (rows, part)) for i in range(8)])

    def test_of_tensor_ranks_and_replicas(self):
        """A replica's border lies anywhere: of each matrix most rows are in parts."""
        job = jobs.with_layout(jobs.WIDE, jobs.LAYOUT_WIDE)
        rows, part = job["model"]["hidden_size"], job["model"]["ffn_size"] // 8
        for boxes in self.boxes_after_first_step(job):
            in_parts = sum(shape[0] for offset, shape in boxes if shape[1] == part and offset[1] % part == 0)
            self.assertGreaterEqual(in_parts, 8 * rows // 2, boxes)


if __name__ == "__main__":
    unittest.main()
