"""Bad input: one clear message each, a non-zero exit code, nothing lost or left running."""
import shutil
import subprocess
import unittest

from harness import BIN, ClusterTest, needs_root
import required  # found by what harness adds to the path


class OfflineBadInputTest(ClusterTest):
    """What mtctl refuses by itself, without a coordinator."""

    def test_unknown_and_ill_typed_fields_all_at_once_with_nearest_names(self):
        self.job_file.write_text(self.job_file.read_text().replace("layers: 2", "layer: 2") +
                                 "checkpont: {}\n")
        done = self.submit("--dry-run", "--set", "optimizer.lr=fast", check=False)
        self.assert_one_message(done, 3, r"model\.layer\b", "layers", "checkpont", "checkpoint", r"optimizer\.lr")

    def test_impossible_batch_arithmetic_names_the_numbers(self):
        done = self.submit("--dry-run", "--set", "training.global_batch_size=9", check=False)
        self.assert_one_message(done, 3, "global_batch_size", "9", "8")

    def test_validate_and_dry_run_need_no_coordinator(self):
        done = self.mtctl("validate", "-f", str(self.job_file))
        self.assertIn("hidden_size: 32", done.stdout)
        self.assertIn("hidden_size: 32", self.submit("--dry-run").stdout)
        self.assert_one_message(self.mtctl("validate", "-f", str(self.dir / "none.yaml"), check=False), 3, "none.yaml")

    def test_what_is_not_built_is_refused_never_ignored(self):
        done = self.submit("--dry-run", "--set", "parallel.context=2", "--set", "model.moe.experts=8", check=False)
        self.assert_one_message(done, 3, r"parallel\.context.*not supported yet", r"model\.moe.*not supported yet")

    def test_paths_cannot_leave_the_roots(self):
        for path in ("/etc/passwd", "../secret"):
            done = self.submit("--dry-run", "--set", f"data.path=[{path}]", check=False)
            self.assert_one_message(done, 3, r"data\.path")

    def test_no_coordinator_bad_arguments(self):
        for verb in (("get", "jobs"), ("get", "jobs", "--watch"), ("events", "--follow"), ("metrics", "tiny", "--watch"), ("follow", "tiny")):
            self.assert_one_message(self.mtctl(*verb, check=False, timeout=10), 2, "mtctl dev up")
        self.env["MTCTL_CONNECT_TIMEOUT"] = "0.25"
        done = self.mtctl("--coordinator", "127.0.0.1:1", "get", "jobs", check=False)
        self.assert_one_message(done, 2, "127.0.0.1:1", "waited 250 ms")
        self.assertEqual(self.mtctl("get", "--what", check=False).returncode, 128)
        self.assertEqual(self.mtctl("--help").returncode, 0)

    def test_data_tools_name_file_and_fault(self):
        prefix = self.dir / "data" / "text_document"
        out = self.mtctl("-o", "json", "data", "inspect", str(prefix))
        self.assertIn('"documents": 400', out.stdout)
        idx = prefix.with_suffix(".idx")
        idx.write_bytes(idx.read_bytes()[:100])
        self.assert_one_message(self.mtctl("data", "inspect", str(prefix), check=False), 6, "text_document.idx")
        (self.dir / "bad.jsonl").write_text('{"text": "ok"}\n{"text": \n')
        done = self.mtctl("data", "prepare", "--input", str(self.dir / "bad.jsonl"), "--jsonl-key", "text", "--output",
                          str(self.dir / "x"), check=False)
        self.assert_one_message(done, 3, r"bad\.jsonl:2")
        self.assertFalse((self.dir / "x.bin").exists())


class ClusterBadInputTest(ClusterTest):
    """What only ranks can find: the job fails with the reason, its slots are free again."""

    def fails(self, *flags, words=()):
        done = self.submit("--follow", *flags, check=False)
        self.assertEqual(done.returncode, 9, done.stdout + done.stderr)
        job = self.job()
        self.assertEqual(job["state"], "FAILED")
        for word in words:
            self.assertRegex(job["message"], word)
        return job

    def test_data_faults(self):
        self.up()
        prefix = self.dir / "data" / "text_document"
        self.fails("--set", "data.path=[nowhere_document]", words=["nowhere_document"])
        # A token beyond the vocabulary: the null tokenizer with a small one.
        job = self.fails("--set", "data.tokenizer.type=null", "--set", "model.vocab_size=64", "--set",
                         "checkpoint.directory=none", words=["text_document.bin", "64"])
        self.assertEqual(job["cause"], "USER_ERROR")
        whole = prefix.with_suffix(".idx").read_bytes()
        prefix.with_suffix(".idx").write_bytes(whole[:len(whole) // 2])
        self.fails(words=[r"text_document\.idx"])
        prefix.with_suffix(".idx").write_bytes(whole)
        self.submit("--follow")

    def test_a_checkpoint_of_another_model_is_refused_with_both_values(self):
        self.up()
        self.submit("--follow")
        before = self.checkpoints()
        self.fails("--set", "model.layers=3", words=[r"model\.layers", "2", "3"])
        self.fails("--set", "training.train_iters=80", words=["train_iters", "40", "80"])
        self.assertEqual(self.checkpoints(), before)
        self.submit("--follow", "--set", "model.layers=3", "--set", "checkpoint.fresh=true")

    def test_unknown_job(self):
        self.up()
        self.submit("--follow")
        for verb in (("describe",), ("cancel", "--yes"), ("wait",), ("logs",)):
            self.assert_one_message(self.mtctl(*verb, "tinny", check=False), 3, "tinny")
        self.assert_one_message(self.mtctl("cancel", "tiny", "--yes", check=False), 3, "SUCCEEDED")

    def test_a_live_name_is_refused(self):
        self.up()
        self.submit("--set", "training.train_iters=100000")
        self.assert_one_message(self.submit(check=False), 3, "tiny")
        self.mtctl("cancel", "tiny", "--yes")
        self.submit("--follow")


@needs_root("mounts a small file system")
class FullDiskTest(ClusterTest):
    def setUp(self):
        super().setUp()
        (self.dir / "ckpt").mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(self.dir / "ckpt")],
                              capture_output=True, text=True)
        if done.returncode != 0:
            required.missing("cannot mount a tmpfs here: " + done.stderr)
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.dir / "ckpt")], check=True)

    def test_a_full_disk_does_not_stop_training(self):
        self.up()
        done = self.submit("--follow", "--set", "checkpoint.every_iters=10", check=False)
        self.assertEqual(done.returncode, 6, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"checkpoint FAILED \(training goes on\): .*[Nn]o space")
        job = self.job()
        self.assertEqual(job["state"], "SUCCEEDED")
        self.assertEqual(job["last_step"]["step"], 40)
        self.assertIn("CheckpointStale", [c["type"] for c in job["conditions"]])
        self.assertEqual(self.mtctl("wait", "tiny", check=False).returncode, 6)
        self.assertEqual(self.checkpoints(), [])
        self.assertIn("Last save failed", self.mtctl("describe", "tiny").stdout)

    def test_strict_fails_the_job(self):
        self.up()
        done = self.submit("--follow", "--set", "checkpoint.every_iters=10", "--set", "checkpoint.strict=true", check=False)
        self.assertEqual(done.returncode, 9, done.stdout + done.stderr)
        job = self.job()
        self.assertEqual((job["state"], job["cause"]), ("FAILED", "STORAGE"))
        self.assertEqual(job["last_step"]["step"], 10)
        shutil.rmtree(self.folder(), ignore_errors=True)


if __name__ == "__main__":
    unittest.main()
