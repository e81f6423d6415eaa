"""The ids of `mtctl tokenizer` against those of other programs: PyPI's tiktoken and tokenizers, and Debian's sentencepiece. Where
PyPI or a program is missing the test is skipped (tests/required.py); the goldens of bpe_test.cc are checked always.
MT_LONG_TESTS: 10 MB of text instead of 1 MB.
"""
import array
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[2]), str(HERE.parents[2] / "deploy")]
import pypi_packages  # noqa: E402
import required  # noqa: E402
from mixed_text import mixed_text  # noqa: E402

MTCTL = pathlib.Path(os.environ["MT_BIN"]) / "mtctl"
MB = 1_000_000


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=900, **options).stdout


def numbers(text):
    return [int(word) for word in text.split()]


class PeersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-peers-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    def write(self, name, data):
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def peer(self, program, text, *more):
        """Ids of a package of PyPI."""
        self.ask_peer(program, text, self.folder / "ids", *more)
        return array.array("i", (self.folder / "ids").read_bytes()).tolist()

    def ask_peer(self, *args):
        run(sys.executable, HERE / "peer_ids.py", *args, env=pypi_packages.environment(os.environ["MT_BINARY_DIR"], "tokenizers"))

    def same(self, ours, theirs):
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.assertEqual(ours[at:at + 8], theirs[at:at + 8], f"ids differ from number {at} on")

    def test_gpt2_is_tiktoken(self):
        text = self.write("text", mixed_text((10 if os.environ.get("MT_LONG_TESTS") else 1) * MB))
        theirs = self.peer("tiktoken", text)
        self.ask_peer("files", self.folder)
        files = ("--vocab", self.folder / "encoder.json", "--merges", self.folder / "vocab.bpe")
        ours = run(MTCTL, "tokenizer", "encode", *files, text)
        self.same(numbers(ours), theirs)
        decoded = run(MTCTL, "tokenizer", "decode", *files, input=ours)
        self.assertTrue(decoded == text.read_bytes(), "decoding gives back the text")

    def test_llama3_with_ignore_merges_is_hugging_faces(self):
        text = self.write("text", mixed_text(MB if os.environ.get("MT_LONG_TESTS") else MB // 20))
        made = self.folder / "tokenizer.json"
        run(MTCTL, "tokenizer", "train", "--input", text, "--output", made, "--vocab-size", 1500, "--pattern", "llama3", "--overwrite")
        made.write_text(made.read_text().replace('"ignore_merges": false', '"ignore_merges": true'))
        theirs = self.peer("huggingface", text, made)
        self.same(numbers(run(MTCTL, "tokenizer", "encode", "--tokenizer", made, text)), theirs)

    def test_sentencepiece_is_its_package(self):
        required.need_programs("spm_train", "spm_encode", "spm_decode", package="sentencepiece")
        if not (MTCTL.parent / "libmt_sentencepiece.so").exists():
            required.missing("built without libsentencepiece-dev")
        lines = [line for line in mixed_text(MB // 5).decode().splitlines() if line.isascii() and line.isprintable() and line.strip()]
        text = self.write("lines", "\n".join(lines).encode())
        one_line = self.write("line", " ".join(lines).encode()[:50_000])
        run("spm_train", f"--input={text}", f"--model_prefix={self.folder / 'spm'}", "--vocab_size=800")
        model = self.folder / "spm.model"
        ours = run(MTCTL, "tokenizer", "encode", "--tokenizer", model, one_line)
        theirs = run("spm_encode", f"--model={model}", "--output_format=id", input=one_line.read_bytes())
        self.same(numbers(ours), numbers(theirs))
        decoded = run(MTCTL, "tokenizer", "decode", "--tokenizer", model, input=ours)
        ids = self.write("theirs", theirs)
        self.assertEqual(decoded.strip(), run("spm_decode", f"--model={model}", "--input_format=id", ids).strip())


if __name__ == "__main__":
    unittest.main()
