"""The ids of `mtctl tokenizer` against those of other programs: PyPI's tiktoken and tokenizers, and Debian's sentencepiece.
MT_LONG_TESTS: 10 MB of text instead of 1 MB.
"""
import unittest

from mixed_text import mixed_text
from peers import LONG, MB, MTCTL, Peers, numbers, run
import required  # found by what peers adds to the path


class PeersTest(Peers):
    def test_gpt2_is_tiktokens_and_hugging_faces(self):
        text = self.write("text", mixed_text((10 if LONG else 1) * MB))
        self.run_peer("peer_ids.py", "files", self.folder)
        files = ("--vocab", self.folder / "encoder.json", "--merges", self.folder / "vocab.bpe")
        ours = run(MTCTL, "tokenizer", "encode", *files, text)
        for program in ("tiktoken", "huggingface"):
            with self.subTest(program):
                self.same(numbers(ours), self.peer(program, text))
        decoded = run(MTCTL, "tokenizer", "decode", *files, input=ours)
        self.assertTrue(decoded == text.read_bytes(), "decoding gives back the text")

    def test_llama3_with_ignore_merges_is_hugging_faces(self):
        text = self.write("text", mixed_text(MB if LONG else MB // 20))
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
