"""A job that is cut along every axis (TP 2 x PP 2 x DP 2) behaves as any other, and is placed as its groups need."""
import json
import os
import re
import signal
import unittest

from harness import BIN, ClusterTest
from service_harness import ServiceTest
from terminal.top_screen import Screen

# Eight ranks of a small model, in half precision with a dynamic loss scale, so that nothing that a checkpoint must
# hold is missing: sharded moments and masters, scaler, random masks.
SMALL = ("--set", "model.layers=4", "--set", "model.heads=4", "--set", "model.vocab_divisible_by=32",
         "--set", "model.hidden_dropout=0.1", "--set", "model.attention_dropout=0.1",
         "--set", "training.precision=fp16", "--set", "training.loss_scale.initial=65536",
         "--set", "training.loss_scale.window=20", "--set", "placement.threads_per_rank=1")
MESH = ("--set", "parallel.tensor=2", "--set", "parallel.pipeline=2", "--set", "parallel.data=2",
        "--set", "parallel.zero_stage=1", *SMALL)
LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
BESIDE = ("--set", "checkpoint.async_save=true")
STEPS = ("--set", "training.train_iters=120", "--set", "training.eval.every_iters=40", "--set", "training.eval.iters=2",
         "--set", "checkpoint.every_iters=0")


class LayoutServiceTest(ServiceTest):
    autostart = False

    def start(self, **workers):
        self.start_coordinator()
        for name, slots in workers.items():
            self.start_worker(name, slots)
        self.wait_nodes(len(workers))


class LayoutVerbsTest(LayoutServiceTest):
    """The control verbs, with all eight ranks at one step."""

    def setUp(self):
        super().setUp()
        self.start(node=8)

    def test_pause_checkpoint_cancel(self):
        self.submit(*LONG, *MESH, *BESIDE)
        self.wait_step(5)
        self.mtctl("pause", "tiny", "--hold", "--wait")
        job = self.job()
        self.assertEqual(job["state"], "PAUSED_HELD")
        self.assertEqual([r["state"] for r in job["ranks"]], ["HELD"] * 8)
        held = {r["step"] for r in job["ranks"]}
        self.assertEqual(len(held), 1, "all ranks stop at one step")
        self.assertNotIn("use TCP", next((self.dir / "logs").rglob("rank-00000.log")).read_text(), "one node's ranks share memory")
        self.mtctl("checkpoint", "tiny", "--wait")
        self.assertEqual({self.job()["last_checkpoint"]["step"]}, held)
        self.mtctl("resume", "tiny", "--wait")
        step = int(held.pop())
        self.wait_step(step + 5)
        done = self.mtctl("checkpoint", "tiny", "--wait")
        self.assertGreaterEqual(int(re.search(r"step (\d+)", done.stdout).group(1)), step + 5)
        self.mtctl("cancel", "tiny", "--checkpoint", "--yes")
        job = self.wait_state("CANCELLED")
        self.assertEqual(job["last_checkpoint"]["step"], job["last_step"]["step"])
        self.assertEqual(self.rank_processes(), [])

    def test_released_or_killed_and_resumed_is_bit_equal(self):
        expected = self.run_undisturbed("alone", *STEPS, *MESH)
        # Released: all that training needs comes back from the checkpoint.
        self.submit(*STEPS, *MESH)
        self.wait_step(10)
        self.mtctl("pause", "tiny", "--release", "--wait")
        self.assertEqual(self.rank_processes(), [])
        self.mtctl("resume", "tiny", "--wait")
        self.mtctl("wait", "tiny", timeout=240)
        self.assertEqual(self.losses(), expected)
        # kill -9 of one rank: the job ends with the cause, the next one goes on from the last checkpoint.
        self.submit(*STEPS, *MESH, *BESIDE, "--set", "name=killed", "--set", "checkpoint.every_iters=10")
        self.wait_for("a checkpoint", lambda: self.job("killed").get("last_checkpoint"))
        victim = next(r for r in self.job("killed")["ranks"] if r["rank"] == 5)
        os.kill(int(victim["pid"]), signal.SIGKILL)
        job = self.wait_state("FAILED", "killed", limit=30)
        self.assertEqual(job["failed_rank"], 5)
        self.wait_for("the other ranks' end", lambda: not self.rank_processes(), limit=20)
        complete = sorted(int(found.parent.name[5:13]) for found in self.folder("killed").glob("step-*/manifest.json")
                          if not found.parent.name.endswith(".tmp"))
        self.submit("--follow", *STEPS, *MESH, "--set", "name=again", "--set", "checkpoint.directory=default/killed")
        resumed = int(self.job("again")["resumed_from_step"])
        # A save may have been complete, and nobody have been told.
        self.assertEqual(resumed, complete[-1])
        self.assertIn(int(job["last_checkpoint"]["step"]), complete)
        self.assertEqual(resumed % 10, 0)
        rows = [(r["step"], r["loss"], r["grad_norm"]) for r in self.rows("again", resumed + 1)]
        self.assertEqual(rows, expected[resumed:])

    def rows(self, name, first):
        done = self.mtctl("metrics", name, "--steps", f"{first}:{self.step(name)}", "-o", "jsonl", "--points", "2500")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_describe_and_metrics_show_the_layout(self):
        self.submit(*LONG, *MESH)
        self.wait_step(3)
        text = self.mtctl("describe", "tiny").stdout
        self.assertRegex(text, r"(?i)tp 2.*pp 2.*dp 2|tp 2.*dp 2.*pp 2", text)
        page = self.wait_for("metrics of all ranks", lambda: (p := self.infos()) and len(p) == 8 and p)
        for rank in range(8):
            self.assertEqual(page[rank], {"tp": rank % 2, "cp": 0, "dp": rank // 2 % 2, "pp": rank // 4})
        # Every rank spends time in the collectives of its own axes.
        groups = self.wait_for("times of all axes", self.groups_with_bytes)
        self.assertEqual(set(groups), set(range(8)))
        for rank, names in groups.items():
            self.assertLessEqual({"tp", "dp", "pp"}, names, f"rank {rank}")
        self.top_shows_all_ranks()
        self.top_gives_the_terminal_back()
        self.mtctl("cancel", "tiny", "--yes")

    def top(self, *args, rows=24, columns=120):
        env = {k: v for k, v in self.env.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
        screen = Screen([str(BIN / "mtctl"), "top", *args], env, rows, columns)
        self.addCleanup(screen.close)
        return screen

    def top_shows_all_ranks(self):
        """Once as text and as JSON; then on a terminal, through a restart of the coordinator."""
        def read():
            tree = json.loads(self.mtctl("top", "tiny", "-o", "json").stdout)
            ranks = tree["readings"][0]["ranks"] if tree["readings"] else []
            return ranks if len(ranks) == 8 and all(r["step_seconds"] > 0 and r["phase_shares"] for r in ranks) else None
        for rank in self.wait_for("readings of all ranks", read):
            self.assertEqual(rank["node"], "node")
            self.assertAlmostEqual(sum(rank["phase_shares"].values()), 1, places=6)
            self.assertGreater(rank["host_memory_bytes"], 1 << 20)
            self.assertNotIn("gpu_utilization", rank)
        # A rank that is not heard for a while is shown as silent.
        def page():
            said = self.mtctl("top", "tiny").stdout
            return said if len(re.findall(r"\br[0-7] +\d+\.\d+s +[\d.]+ MiB", said)) == 8 else None
        text = self.wait_for("a page of all ranks", page)
        self.assertNotIn("\x1b", text)
        self.assertRegex(text, r"(?m)^pp 1 dp 1 ")
        self.assertRegex(self.mtctl("top", "--once").stdout, r"(?m)^> tiny +RUNNING")
        screen = self.top()
        self.assertTrue(screen.until(lambda page: "> tiny" in page and "Enter ranks" in page), screen.page())
        screen.press("\r")
        cells = r"r[0-7] +\d+\.\d{3}s"
        self.assertTrue(screen.until(lambda page: len(re.findall(cells, page)) == 8), screen.page())
        screen.press("l\x1b[B")
        self.assertTrue(screen.until(lambda page: ">r3" in page and "rank 3" in page), screen.page())
        screen.resize(8, 60)
        self.assertTrue(screen.until(lambda page: ">r3" in page and max(map(len, page.splitlines())) <= 60), screen.page())
        self.kill_coordinator()
        self.assertTrue(screen.until(lambda page: "no answer for" in page), screen.page())
        self.start_coordinator()
        self.assertTrue(screen.until(lambda page: "no answer" not in page and re.search(cells, page)), screen.page())
        screen.press("\x1b")
        self.assertTrue(screen.until(lambda page: "> tiny" in page), screen.page())
        screen.press("q")
        self.assertEqual(screen.wait(), 0)
        self.assertTrue(screen.is_given_back(), screen.bytes[-200:])

    def top_gives_the_terminal_back(self):
        for how, code in (("\x03", 5), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)):
            screen = self.top("tiny", rows=30, columns=80)
            self.assertTrue(screen.until(lambda page: ">r0" in page), screen.page())
            self.assertTrue(screen.is_raw())
            if how == "\x03":
                self.stop_and_go_on(screen)
                screen.press(how)
            else:
                os.kill(screen.pid, how)
            self.assertEqual(screen.wait(), code)
            self.assertTrue(screen.is_given_back(), (how, screen.bytes[-200:]))

    def stop_and_go_on(self, screen):
        """Ctrl-Z, and back."""
        screen.press("\x1a")
        self.assertTrue(screen.until(lambda page: screen.state() == "T"), "Ctrl-Z stops it")
        screen.drain()
        self.assertTrue(screen.is_given_back(), screen.bytes[-200:])
        screen.bytes = b""
        os.kill(screen.pid, signal.SIGCONT)
        self.assertTrue(screen.until(lambda page: screen.is_raw() and b"\x1b[?1049h" in screen.bytes and ">r0" in page), screen.page())

    def infos(self):
        found = {}
        for line in self.http(self.worker_args["node"][2]).splitlines():
            if line.startswith("mt_rank_info{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                found[int(labels["rank"])] = {axis: int(labels[axis]) for axis in ("tp", "cp", "dp", "pp")}
        return found

    def groups_with_bytes(self):
        found = {}
        for line in self.http(self.worker_args["node"][2]).splitlines():
            if line.startswith("mt_collective_bytes_total{") and float(line.rsplit(" ", 1)[1]) > 0:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                found.setdefault(int(labels["rank"]), set()).add(labels["group"])
        complete = len(found) == 8 and all({"tp", "dp", "pp"} <= names for names in found.values())
        return found if complete else None


class LayoutPlacementTest(LayoutServiceTest):
    """A tensor-parallel group never spans nodes."""

    PAIRS = ("--set", "parallel.tensor=2", "--set", "parallel.data=2", "--set", "model.vocab_divisible_by=32")

    def test_three_and_one_slots_do_not_hold_two_pairs(self):
        self.start(large=3, small=1)
        self.submit(*self.PAIRS)
        message = self.wait_for("a reason to wait", lambda: self.job().get("message"))
        self.assertEqual(self.state(), "QUEUED")
        self.assertRegex(message, r"tensor|tp|TP")
        self.assertIn("2", message)
        # A third node with a pair of slots is what it waited for.
        self.start_worker("other", 2)
        self.mtctl("wait", "tiny", timeout=120)
        self.assert_pairs_together()

    def test_two_and_two_slots_hold_one_pair_each(self):
        self.start(left=2, right=2)
        self.submit("--follow", *self.PAIRS)
        self.assert_pairs_together()
        self.assertEqual({r["node"] for r in self.job()["ranks"]}, {"left", "right"})
        # Two nodes on one machine are two hosts: what spans both goes as between machines, pairs share memory.
        log = next((self.dir / "logs").rglob("rank-00000.log")).read_text()
        told = re.findall(r'ranks of different hosts use TCP.*? host="?(\w+)/.*? rank=(\d) on="?(\w+)/', log)
        self.assertIn(told, ([("left", "2", "right")], [("right", "2", "left")]), log)
        self.assertNotIn("cannot share memory", log)

    def assert_pairs_together(self):
        nodes = {r["rank"]: r["node"] for r in self.job()["ranks"]}
        self.assertEqual(len(nodes), 4)
        for first in (0, 2):
            self.assertEqual(nodes[first], nodes[first + 1], nodes)


class BadLayoutTest(ClusterTest):
    """Layouts that cannot be, refused at submit: all faults together, each with its numbers and what would fit."""

    def refused(self, *fields, words):
        flags = [flag for field in fields for flag in ("--set", field)]
        done = self.submit("--dry-run", *flags, check=False)
        self.assert_one_message(done, 3, *words)

    def test_sizes_that_do_not_divide_are_named_together(self):
        self.refused("parallel.tensor=3", "parallel.pipeline=3", "model.layers=4", "parallel.data=1",
                     words=[r"model\.heads: 2 .*tensor 3; nearest: 3", r"model\.kv_heads: 2 .*tensor 3",
                            r"model\.ffn_size: 128 .*nearest: 126 or 129", r"model\.seq_length: 32 .*nearest: 30 or 33",
                            r"model\.layers: 4 .*pipeline 3.*nearest: 3 or 6"])

    def test_more_stages_than_layers(self):
        self.refused("parallel.pipeline=4", words=[r"model\.layers: 2 .*pipeline 4.*nearest: 4, pipeline 2"])

    def test_interleaving(self):
        self.refused("parallel.virtual_stages=2", words=[r"parallel\.virtual_stages: .*2 chunks.*parallel\.pipeline is 1"])
        self.refused("parallel.virtual_stages=2", "parallel.pipeline=2", "model.layers=4", "parallel.data=1",
                     "training.global_batch_size=6",
                     words=[r"training\.global_batch_size: 6 makes 3 microbatches.*group 2; nearest: 4 or 8"])

    def test_sequence_parallel_needs_tensor_parallel(self):
        self.refused("parallel.sequence_parallel=true", words=[r"parallel\.sequence_parallel: .*parallel\.tensor is 1"])

    def test_a_world_that_does_not_factor(self):
        self.refused("parallel.tensor=2", "parallel.pipeline=2", "placement.slots=6", "parallel.data=auto",
                     words=[r"placement\.slots: 6 .*tensor 2 x pipeline 2.*= 4; nearest: 4 or 8"])
        self.refused("parallel.tensor=2", "placement.slots=6", words=[r"placement\.slots: is 6.*tensor 2.*data 2 = 4"])

    def test_double_precision_on_a_gpu(self):
        self.refused("training.precision=fp64", "placement.device=gpu", words=[r"training\.precision: fp64 runs on CPU slots only"])


if __name__ == "__main__":
    unittest.main()
