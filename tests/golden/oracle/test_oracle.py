"""Whole training steps of the real program against definitions: see tests/golden/README.md.

From the checkpoint of step k (from nothing, for the first step) the oracle predicts that of step
k + 1: loss, gradient norm, learning rate, every scalar, every weight and every moment.
"""
import unittest

import numpy as np

import checkpoint
import compare
import jobs
import prediction
import run
import update


def state_of(saved):
    return prediction.State(tuple(saved.tensors[kind] for kind in checkpoint.KINDS),
                            saved.integers | saved.reals)


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

    def expect_none(self, problems):
        if problems:
            self.fail("\n".join(problems))

    def test_initial_values(self):
        """What the first update did is undone (at learning rate 0 it does nothing)."""
        saved, scalars = self.saved[1], self.saved[1].reals
        got = {}
        for name, after in saved.tensors["weights"].items():
            m = saved.tensors["exp_avg"][name] / scalars["bias_correction1"]
            v = saved.tensors["exp_avg_sq"][name] / scalars["bias_correction2"]
            moved = after + scalars["lr"] * m / (np.sqrt(v) + self.job["optimizer"]["eps"])
            shrunk = 1 - scalars["lr"] * scalars["weight_decay"]
            got[name] = moved / shrunk if update.decays(name, after) else moved
        self.expect_none(compare.tensors("initial values", got, self.oracle.initial().tensors[0]))

    def test_steps(self):
        before = self.oracle.initial()
        for step, saved in self.saved.items():
            with self.subTest(step=step):
                self.expect_none(self.differences(step, saved, self.oracle.step(before)))
            before = state_of(saved)

    def differences(self, step, saved, want):
        report = self.run_.steps[step]
        problems = compare.equal("step", saved.manifest["step"], step)
        problems += compare.number("loss", report["loss"], want.loss)
        problems += compare.equal("tokens", report["tokens"], want.tokens)
        for name, scalar in (("grad_norm", "grad_norm"), ("learning_rate", "lr")):
            problems += compare.number("reported " + name, report[name], want.scalars[scalar])
        problems += compare.numbers(saved.integers | saved.reals, want.scalars)
        for kind, tensors in zip(checkpoint.KINDS, want.tensors):
            problems += compare.tensors(kind, saved.tensors[kind], tensors)
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
        for split, order in self.oracle.orders.items():
            want |= {f"data.{split}.{field}": value for field, value in {
                "source": str(self.run_.prefix), "samples_asked": str(self.oracle.asked[split]),
                "epochs": str(order.epochs), "separate_last_epoch": str(order.separate).lower(),
                "seed": str(self.oracle.data_seed), "seq_length": str(order.seq_length),
                "split": self.job["data"]["split"], "samples_built": str(order.samples),
                "idx_digest": self.oracle.idx_digest}.items()}
        facts = {name: value for name, value in self.saved[1].facts.items() if name.startswith("data.")}
        self.assertEqual(facts, want)

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


if __name__ == "__main__":
    unittest.main()
