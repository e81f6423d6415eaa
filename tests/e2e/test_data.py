"""Data sets as files, by the page of their format alone (worker/data/FORMAT.md): numpy reads what mtctl writes and
mtctl reads what numpy writes; what preparing takes of memory; and jobs over a blend with a tokenizer of their own."""
import gzip
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import numpy

from harness import BIN, required
from service_harness import ServiceTest

LONG = bool(os.environ.get("MT_LONG_TESTS"))
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


def read_dataset(prefix):
    """The documents of a pair, as arrays; asserts what the page says of every field."""
    idx = pathlib.Path(f"{prefix}.idx").read_bytes()
    assert idx[:9] == b"MMIDIDX\0\0" and int.from_bytes(idx[9:17], "little") == 1
    code = idx[17]
    sequences, entries = numpy.frombuffer(idx, "<u8", 2, 18).tolist()
    assert len(idx) == 34 + 12 * sequences + 8 * entries
    lengths = numpy.frombuffer(idx, "<i4", sequences, 34).astype("i8")
    offsets = numpy.frombuffer(idx, "<i8", sequences, 34 + 4 * sequences)
    documents = numpy.frombuffer(idx, "<i8", entries, 34 + 12 * sequences)
    tokens = numpy.fromfile(f"{prefix}.bin", TYPES[code])
    ends = numpy.cumsum(lengths)
    assert (offsets == (ends - lengths) * tokens.itemsize).all() and len(tokens) == (ends[-1] if sequences else 0)
    assert documents[0] == 0 and documents[-1] == sequences
    cuts = [0 if d == 0 else int(ends[d - 1]) for d in documents]
    return code, [tokens[a:b] for a, b in zip(cuts, cuts[1:])]


def write_dataset(prefix, code, documents):
    """One sequence per document that has tokens."""
    filled = [d for d in documents if len(d)]
    lengths = numpy.array([len(d) for d in filled], "<i4")
    size = numpy.dtype(TYPES[code]).itemsize
    offsets = (numpy.cumsum(lengths, dtype="<i8") - lengths) * size
    entries = numpy.cumsum([0] + [1 if len(d) else 0 for d in documents], dtype="<i8")
    header = b"MMIDIDX\0\0" + numpy.array([1], "<u8").tobytes() + bytes([code])
    header += numpy.array([len(filled), len(entries)], "<u8").tobytes()
    pathlib.Path(f"{prefix}.idx").write_bytes(header + lengths.tobytes() + offsets.tobytes() + entries.tobytes())
    with open(f"{prefix}.bin", "wb") as out:
        for document in filled:
            out.write(numpy.asarray(document, TYPES[code]).tobytes())


class DataFilesTest(unittest.TestCase):
    def setUp(self):
        shm = pathlib.Path("/dev/shm")
        room = shm.is_dir() and shutil.disk_usage(shm).free > 3 << 30
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mt-data-", dir=shm if room and not LONG else None))
        self.addCleanup(shutil.rmtree, self.dir)

    def data(self, *args, code=0, stdin=b""):
        done = subprocess.run([f"{BIN}/mtctl", "data", *map(str, args)], input=stdin, capture_output=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done

    def as_json(self, *args, **more):
        return json.loads(self.data(*args, "-o", "json", **more).stdout)

    def test_numpy_reads_what_prepare_writes(self):
        records = ["first\nof two\n", "a \xe9\n", "last\n"]
        text = "%\n".join(records).encode("latin-1")  # \xe9 alone is no UTF-8
        (self.dir / "texts").mkdir()
        (self.dir / "texts" / "a.txt").write_bytes(text)
        (self.dir / "texts" / "b.gz").write_bytes(gzip.compress(text))
        expected = [numpy.array([*r.encode("latin-1"), 256], "u2") for r in records]
        for name, given, stdin in (("folder", self.dir / "texts", b""), ("pipe", "-", text + b"%\n" + text)):
            out = self.as_json("prepare", "--input", given, "--separator", "%", "--append-eod", "--output",
                               self.dir / name, stdin=stdin)
            self.assertEqual((out["documents"], out["token_type"]), (6, "u16"))
            code, documents = read_dataset(self.dir / name)
            self.assertEqual(code, 8)
            self.assertEqual([d.tolist() for d in documents], [d.tolist() for d in expected] * 2)
        lines = "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(["", "\u00e9\n\"", "x" * 70000]))
        self.data("prepare", "--input", "-", "--jsonl-key", "text", "--output", self.dir / "lines", stdin=lines.encode())
        _, documents = read_dataset(self.dir / "lines")
        self.assertEqual([bytes(d.astype("u1")) for d in documents], [b"", "\u00e9\n\"".encode(), b"x" * 70000])
        for vocabulary, code in ((65499, 8), (70000, 4)):  # the width follows the vocabulary
            out = self.as_json("prepare", "--input", "-", "--tokenizer", "ids", "--vocab-size", vocabulary, "--append-eod",
                               "--allow-one-document", "--overwrite", "--output", self.dir / "ids", stdin=b"5 0\n17")
            self.assertEqual(out["tokens"], 4)
            seen, documents = read_dataset(self.dir / "ids")
            self.assertEqual((seen, documents[0].tolist()), (code, [5, 0, 17, vocabulary - 1]))
        # Of standard input too, lines of JSON need a key.
        refused = self.data("prepare", "--input", "-", "--output", self.dir / "none", stdin=lines.encode(), code=3)
        self.assertIn(b"standard input holds lines of JSON", refused.stderr)
        refused = self.data("prepare", "--input", "-", "--output", self.dir / "none", stdin=b"one", code=3)
        self.assertIn(b"standard input: all text is one document", refused.stderr)
        self.assertFalse((self.dir / "none.bin").exists())

    def test_every_type_that_numpy_writes_is_read(self):
        random.seed(5)
        for code, name in TYPES.items():
            most = min(numpy.iinfo(name).max, 2**31 - 1)
            documents = [[random.randint(0, most) for _ in range(random.choice([0, 1, 5, 300]))] for _ in range(50)]
            documents += [[most]]
            write_dataset(self.dir / "n", code, documents)
            seen = self.as_json("verify", self.dir / "n")
            self.assertEqual(seen["tokens"], sum(map(len, documents)))
            self.assertEqual((seen["largest_id"], seen["documents"]), (max(map(max, filter(None, documents))), 51))
            self.assertEqual(seen["empty_documents"], sum(not d for d in documents))
            shown = self.as_json("inspect", self.dir / "n", "--samples", 51, "--sample-tokens", 400)
            self.assertEqual([s["tokens"] for s in shown["samples"]], documents)
            self.data("merge", self.dir / "n", self.dir / "n", "--output", self.dir / "m", "--overwrite")
            self.assertEqual([d.tolist() for d in read_dataset(self.dir / "m")[1]], documents * 2)
            self.data("split", self.dir / "m", "--shares", "1,1", "--output", self.dir / "h", "--overwrite")
            for part in (0, 1):
                self.assertEqual([d.tolist() for d in read_dataset(self.dir / f"h_{part}")[1]], documents)
        bad = self.data("verify", self.dir / "n", "--vocab-size", 300, code=6)
        self.assertRegex(bad.stderr.decode(), r"n\.bin: token \d+ has id \d+, outside the vocabulary of 300")

    def test_files_beyond_4_gib(self):
        """A .bin of holes, with ids behind 4 GiB."""
        lengths = numpy.array([2**31 - 1, 100, 5], "<i4")
        offsets = numpy.array([0, 2 * (2**31 - 1), 2 * (2**31 + 99)], "<i8")
        header = b"MMIDIDX\0\0" + numpy.array([1], "<u8").tobytes() + b"\x08" + numpy.array([3, 4], "<u8").tobytes()
        entries = numpy.arange(4, dtype="<i8").tobytes()
        (self.dir / "big.idx").write_bytes(header + lengths.tobytes() + offsets.tobytes() + entries)
        with open(self.dir / "big.bin", "wb") as out:
            out.seek(int(offsets[2]))
            out.write(numpy.arange(7, 12, dtype="<u2").tobytes())
        shown = self.as_json("inspect", self.dir / "big", "--samples", 3)
        self.assertEqual(shown["samples"][2]["tokens"], [7, 8, 9, 10, 11])
        self.assertEqual((shown["tokens"], shown["lengths"][-1]["sequences"]), (2**31 + 104, 1))

    def test_shards(self):
        ids = numpy.array([50256, 5, 6, 50256, 7], "<u2")
        header = numpy.zeros(256, "<i4")
        header[:3] = 20240520, 1, len(ids)
        (self.dir / "a.bin").write_bytes(header.tobytes() + ids.tobytes())
        self.data("import", "--input", self.dir / "a.bin", "--eod", 50256, "--eod-begins", "--output", self.dir / "i")
        self.assertEqual([d.tolist() for d in read_dataset(self.dir / "i")[1]], [[50256, 5, 6], [50256, 7]])

    def prepare(self, *args, kill_after=None):
        """Exit code and largest resident size in MiB."""
        child = subprocess.Popen([f"{BIN}/mtctl", "data", "prepare", *map(str, args)], stdout=subprocess.DEVNULL)
        # Not ru_maxrss, which a program has from the one that started it.
        mib, end = 0, None if kill_after is None else time.monotonic() + kill_after
        while child.poll() is None:
            peak = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{child.pid}/status").read_text())
            mib = max(mib, int(peak[1]) / 1024 if peak else 0)
            if end is not None and time.monotonic() > end:
                child.send_signal(signal.SIGKILL)
            time.sleep(0.02)
        return child.returncode, mib

    def test_memory_does_not_grow_with_the_input(self):
        """300 MB of text; MT_LONG_TESTS: 4 GB. As lines, as one line of JSON, and killed in the middle."""
        block = b"".join(b"%d words and numbers\n" % random.randrange(10**9) for _ in range(30000))
        text = self.dir / "text"
        with open(text, "wb") as out:
            for _ in range((4 << 30 if LONG else 300 << 20) // len(block)):
                out.write(block + b"%%\n")
        args = ("--input", text, "--separator", "%%", "--threads", 2, "--overwrite", "--output", self.dir / "t")
        self.prepare(*args, kill_after=0.3)
        code, mib = self.prepare(*args)
        print(f"prepare of {text.stat().st_size >> 20} MiB of text: at most {mib:.0f} MiB resident")
        self.assertEqual(code, 0)
        self.assertGreater(mib, 1)
        self.assertLess(mib, 64)
        tokens = numpy.memmap(self.dir / "t.bin", "<u2", "r")
        self.assertEqual(len(tokens), len(block) * (text.stat().st_size // (len(block) + 3)))
        for first in (0, len(tokens) // len(block) // 2, len(tokens) // len(block) - 1):
            at = first * len(block)
            self.assertEqual(tokens[at:at + len(block)].astype("u1").tobytes(), block)
        del tokens
        text.unlink()
        line = self.dir / "line"
        size = (1000 if LONG else 100) << 20
        with open(line, "wb") as out:
            out.write(b'{"text": "')
            for _ in range(size >> 20):
                out.write(b"x\\n" * ((1 << 20) // 3) + b"yz"[:(1 << 20) % 3])
            out.write(b'"}\n')
        code, mib = self.prepare("--input", line, "--jsonl-key", "text", "--allow-one-document", "--threads", 2, "--overwrite", "--output",
                                 self.dir / "t")
        print(f"one line of {size >> 20} MiB: at most {mib:.0f} MiB resident")
        self.assertEqual(code, 0)
        self.assertLess(mib, 64)


    def train_tokenizer(self, pattern="llama3"):
        """A vocabulary of words that the documents below are made of."""
        words = [bytes(random.choices(range(97, 123), k=random.randint(2, 9))) for _ in range(500)]
        (self.dir / "sample").write_bytes(b" ".join(random.choices(words, k=20000)))
        subprocess.run([f"{BIN}/mtctl", "tokenizer", "train", "--input", self.dir / "sample", "--output", self.dir / "tokenizer.json",
                        "--vocab-size", "2000", "--pattern", pattern], check=True, capture_output=True)
        return words

    def test_one_long_document_by_bpe(self):
        """A text of one document, beyond what may be seen at once, cut between words: the same ids with any number of threads and after
        a kill; and the memory of it, which does not grow with the text. MT_LONG_TESTS: 1 GB."""
        words = self.train_tokenizer()
        block = b", ".join(random.choices(words, k=200000)) + b".\n"
        repeats = ((1 << 30) if LONG else (72 << 20)) // len(block) + 1
        with open(self.dir / "text", "wb") as out:
            for _ in range(repeats):
                out.write(block)
        args = ("--input", self.dir / "text", "--allow-one-document", "--tokenizer-file", self.dir / "tokenizer.json", "--overwrite",
                "--output")
        self.prepare(*args, self.dir / "killed", "--threads", 2, kill_after=1)
        code, mib = self.prepare(*args, self.dir / "killed", "--threads", 2)
        print(f"one document of {repeats * len(block) >> 20} MiB by BPE: at most {mib:.0f} MiB resident")
        self.assertEqual(code, 0)
        self.assertGreater(mib, 1)
        self.assertLess(mib, 100)
        # Line ends stand alone, so each block has the ids of the first.
        tokens = numpy.memmap(self.dir / "killed.bin", "<u2", "r")
        self.assertEqual(len(tokens) % repeats, 0)
        blocks = tokens.reshape(repeats, -1)
        self.assertTrue((blocks == blocks[0]).all())
        (self.dir / "block").write_bytes(block)
        self.data("prepare", *args[2:], self.dir / "block", "--input", self.dir / "block", "--threads", 4)
        self.assertTrue((read_dataset(self.dir / "block")[1][0] == blocks[0]).all())

    def test_one_long_document_by_sentencepiece(self):
        """Cut where a BPE model's words end, as its own program encodes it; refused for a unigram model above 4 MiB. MT_LONG_TESTS:
        100 MiB, more than the library is given at once."""
        required.need_programs("spm_train", "spm_encode", package="sentencepiece")
        if not (BIN / "libmt_sentencepiece.so").exists():
            required.missing("built without libsentencepiece-dev")
        words = [bytes(random.choices(range(97, 123), k=random.randint(2, 9))) for _ in range(500)]
        lines = [b", ".join(random.choices(words, k=20)) + b"." for _ in range(2000)]
        (self.dir / "lines").write_bytes(b"\n".join(lines))
        for kind in ("bpe", "unigram"):
            subprocess.run(["spm_train", f"--input={self.dir / 'lines'}", f"--model_prefix={self.dir / kind}", f"--model_type={kind}",
                            "--vocab_size=800", "--hard_vocab_limit=false", "--minloglevel=2"], check=True, capture_output=True)
        block = b", ".join(random.choices(words, k=30000)) + b"."
        encoded = subprocess.run(["spm_encode", f"--model={self.dir / 'bpe.model'}", "--output_format=id"], input=block, check=True,
                                 capture_output=True)
        repeats = ((100 if LONG else 3) << 20) // len(block) + 1
        (self.dir / "text").write_bytes((block + b"\n") * repeats)
        args = ("--input", self.dir / "text", "--allow-one-document", "--threads", 2, "--output", self.dir / "t", "--tokenizer")
        code, mib = self.prepare(*args, self.dir / "bpe.model")
        print(f"one document of {repeats * len(block) >> 20} MiB by SentencePiece: at most {mib:.0f} MiB resident")
        self.assertEqual(code, 0)
        self.assertLess(mib, 1024)
        ids = numpy.array(encoded.stdout.split(), "u2")
        tokens = numpy.memmap(self.dir / "t.bin", "<u2", "r")
        self.assertEqual(len(tokens), repeats * len(ids))
        self.assertTrue((tokens.reshape(repeats, -1) == ids).all())
        (self.dir / "text").write_bytes((block + b"\n") * ((5 << 20) // len(block) + 1))
        refused = self.data("prepare", *args, self.dir / "unigram.model", "--overwrite", code=3)
        self.assertRegex(refused.stderr.decode(), r"text:1: at offset 0: a text of \d+ bytes, more than the 4194304")

    @unittest.skipUnless(LONG, "minutes; MT_LONG_TESTS")
    def test_memory_of_what_cannot_be_cut(self):
        """The largest that is taken, in the forms that cost most: pieces of 16 MiB, bytes that are no text, four bytes a token, and as
        many threads as go by default."""
        self.train_tokenizer("\\S+|\\s+")  # of which it is not known where its pieces end
        tokenizer = self.dir / "tokenizer.json"
        model = json.loads(tokenizer.read_text())
        vocabulary = model["model"]["vocab"]
        first = max([*vocabulary.values(), *(token["id"] for token in model["added_tokens"])]) + 1
        vocabulary.update({f"zz{i:06}": first + i for i in range(70000)})
        tokenizer.write_text(json.dumps(model))
        piece = bytes(random.choices(range(97, 123), k=1 << 20))
        no_text = bytes(random.choices(range(128, 192), k=(1 << 20) - 1)) + b"z"
        for name, document, times in (("same", (b"x" * ((16 << 20) - 1) + b" ") * 3, 2), ("letters", piece * 15, 2),
                                      ("bytes", no_text * 60, 1), ("middle", piece * 3, 60)):
            with open(self.dir / "text", "wb") as out:
                for _ in range(times):
                    out.write(document + b"\n%%\n")
            code, mib = self.prepare("--input", self.dir / "text", "--separator", "%%", "--tokenizer-file", tokenizer, "--threads", 16,
                                     "--allow-one-document", "--overwrite", "--output", self.dir / "t")
            print(f"{times} documents of {len(document) >> 20} MiB that cannot be cut, {name}: at most {mib:.0f} MiB resident")
            self.assertEqual(code, 0)
            self.assertLess(mib, 1024)
        (self.dir / "long").write_bytes(piece * 80)
        refused = self.data("prepare", "--input", self.dir / "long", "--allow-one-document", "--tokenizer-file", tokenizer, "--output",
                            self.dir / "none", code=3)
        self.assertRegex(refused.stderr.decode(), r"long:1: at offset 0: the document goes on for more than 64 MiB and tokenizer hf has")


class DataJobTest(ServiceTest):
    """Tokenizer and vocabulary of jobs under agents: from the job, from the record beside the data, and refused."""

    def make_data(self):
        super().make_data()  # bytes, with a record
        data = self.dir / "data"
        tokenizer = str(data / "tokenizer.json")
        self.mtctl("tokenizer", "train", "--input", str(self.dir / "text"), "--output", tokenizer, "--vocab-size", "280")
        for name in ("news", "books"):
            self.mtctl("data", "prepare", "--input", str(self.dir / "text"), "--separator", "%", "--append-eod",
                       "--tokenizer-file", tokenizer, "--output", str(data / name))

    def run_job(self, name, path, tokenizer):
        """Its end, and the vocabulary that its checkpoint tells."""
        self.mtctl("submit", "-f", str(self.job_file), "--set", f"name={name}", "--set", f"data.path={path}", "--set",
                   f"data.tokenizer={tokenizer}", "--set", "data.eod_mask_loss=true", "--set", "data.reset_positions=true",
                   "--wait", check=False)
        found = sorted(self.folder(name).glob("step-*/manifest.json"))
        vocabulary = json.loads(found[-1].read_text())["job"]["spec"]["model"]["vocab_size"] if found else None
        return self.job(name), vocabulary

    def test_the_tokenizer_is_the_jobs_or_the_datas(self):
        blend = "[0.7, news, 0.3, books]"
        bits = {}
        for name, path, tokenizer, wanted in (("told", blend, "{type: hf, file: tokenizer.json}", 280), ("found", blend, "", 280),
                                              ("bytes", "[text_document]", "", 257)):
            with self.subTest(name):
                job, vocabulary = self.run_job(name, path, tokenizer)
                self.assertEqual(job["state"], "SUCCEEDED", job)
                self.assertEqual(vocabulary, wanted)
                bits[name] = job["last_step"]["bits_per_byte"]
                self.assertAlmostEqual(job["last_step"]["perplexity"], math.exp(job["last_step"]["loss"]), delta=1e-6)
        # The tokenizer's files and the record beside the data tell the same.
        self.assertEqual(bits["told"], bits["found"])
        self.assertGreater(bits["bytes"], 0)
        for name, path, tokenizer in (("other", "[text_document]", "{type: hf, file: tokenizer.json}"),
                                      ("mixed", "[news, text_document]", "")):
            with self.subTest(name):
                job, _ = self.run_job(name, path, tokenizer)
                self.assertEqual(job["state"], "FAILED")
                self.assertIn("were made by byte (257 tokens)" if name == "other" else "a job's data are of one tokenizer", job["message"])

    def test_data_that_change_under_a_run(self):
        tokens = self.dir / "data" / "text_document.bin"
        whole = tokens.read_bytes()
        for name, changed in (("cut", b""), ("rewritten", b"a\0" * (len(whole) // 2))):
            with self.subTest(name):
                self.submit("--set", f"name={name}", "--set", "training.train_iters=100000", "--set", "checkpoint.every_iters=50",
                            "--set", "parallel.data=1")
                self.wait_for("a save", lambda: self.job(name).get("last_checkpoint"))
                with open(tokens, "r+b") as file:
                    file.write(changed)
                    file.truncate()
                if name == "cut":
                    job = self.wait_state("QUEUED", name)
                    told = [c["message"] for c in job["conditions"] if c["type"] == "Waiting"]
                    self.assertRegex("".join(told),
                                     rf"DataMissing: (step \d+: )?{re.escape(str(tokens))}: (a part of it is gone: )?0 bytes")
                    self.assertEqual([e["cause"] for e in self.events(name) if e["type"] == "DataMissing"], ["STORAGE"])
                    self.mtctl("cancel", name, "--yes")
                else:
                    self.assertIn(str(tokens), self.wait_state("FAILED", name)["message"])
                tokens.write_bytes(whole)

if __name__ == "__main__":
    unittest.main()
