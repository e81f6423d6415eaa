"""SentencePiece models beyond ASCII: ids and texts against PyPI's sentencepiece and Debian's programs, and what large documents take.
Models are made here by spm_train, of each algorithm and of the rules that differ: what is normalised, bytes for unknown characters,
user-defined symbols. MT_LONG_TESTS: the memory of documents of 4 MiB, four at once.
"""
import array
import collections
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import time
import unittest

from mixed_text import mixed_text
from peers import HERE, LONG, MTCTL, Peers, numbers, run
import pypi_packages  # found by what peers adds to the path
import required

MIB = 1 << 20
MAX_BYTES = 4 * MIB
CHARACTERS = 500
COVERAGE = "--character_coverage=0.995"
MODELS = {
    "unigram": ["--vocab_size=1500", COVERAGE],
    "symbols": ["--vocab_size=1500", COVERAGE, "--byte_fallback", "--user_defined_symbols=<sep>,<sepa>,中文,x▁y"],
    "bpe": ["--vocab_size=1200", COVERAGE, "--model_type=bpe", "--byte_fallback", "--normalization_rule_name=identity",
            "--remove_extra_whitespaces=false"],
    "char": ["--vocab_size=600", COVERAGE, "--model_type=char", "--add_dummy_prefix=false"]}
BYTE_MODELS = ("symbols", "bpe")
# Each a document: white space of all kinds, controls, the space's own mark, unknown characters, what NFKC changes, symbols, control tokens.
TEXTS = ["", " ", "▁", "\n", "a b", " a  b ", "a\tb", "a\nb\r\n\r\nc", "a\u3000b", "a\u00a0\u00a0b", "a\u2028b\u200bc\u00add",
         "a\x01b\x7fc\x00d", "a▁b▁▁c", "▁ ▁a", "\U0002EBF0", "a\U0002EBF0\U0002EBF1b \U0002EBF2", "ﬁ①ｱＡ\ufdfa", "e\u0301é", "中文中文",
         "<sep>a<sepa><sepab<se", "x▁y x y", "</s><s><unk><0x41>", "\ufeffa", "👩‍🔬😀", "Привет, мир"]
INVALID = [b"ab\xffcd \xe4\xb8 x\xc0\x80", b"\x80" * 5, b"\xed\xa0\x80\xf4\x90\x80\x80"]


def random_texts(number):
    """Without a character three times in a row: of a unigram model's pieces "))" and ")" either may be first, and versions differ."""
    rng = random.Random(11)
    mixed = mixed_text(50_000).decode()
    for _ in range(number):
        starts = [rng.randrange(len(mixed) - 40) for _ in range(rng.randrange(1, 8))]
        text = "".join(mixed[at:at + rng.randrange(40)] + rng.choice(TEXTS) for at in starts)
        yield re.sub(r"(.)\1{2,}", r"\1\1", text, flags=re.DOTALL)


def training_lines():
    """Lines of the characters met most, which every vocabulary of MODELS has room for: mixed_text changes with the files of this tree."""
    lines = [line for line in mixed_text(150_000).decode().splitlines() if line.isprintable()]
    kept = {character for character, _ in collections.Counter("".join(lines)).most_common(CHARACTERS)}
    lines = ["".join(character for character in line if character in kept) for line in lines]
    return [line for line in lines if line.strip()]


def documents(prefix):
    """The ids of each sequence of a data set (FORMAT.md)."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    code, sequences = struct.unpack_from("<BQ", index, 17)
    ids = array.array({4: "i", 8: "H"}[code], pathlib.Path(f"{prefix}.bin").read_bytes()).tolist()
    found = []
    for length in struct.unpack_from(f"<{sequences}i", index, 34):
        found.append(ids[:length])
        del ids[:length]
    return found


class PeersTest(Peers):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        required.need_programs("spm_train", "spm_encode", "spm_decode", package="sentencepiece")
        if not (MTCTL.parent / "libmt_sentencepiece.so").exists():
            required.missing("built without libsentencepiece-dev")
        cls.env = pypi_packages.environment(os.environ["MT_BINARY_DIR"], "sentencepiece")
        (cls.folder / "lines").write_text("\n".join(training_lines()))
        for name, flags in MODELS.items():
            run("spm_train", f"--input={cls.folder / 'lines'}", f"--model_prefix={cls.folder / name}", "--num_threads=1", *flags)

    def model(self, name):
        return self.folder / f"{name}.model"

    def theirs(self, name, texts=(), ids=()):
        """The ids of the texts, and the texts of the ids, both of bytes."""
        asked = {"texts": [text.decode("latin-1") for text in texts], "ids": list(ids)}
        script = (sys.executable, HERE / "peer_sentencepiece.py")
        told = json.loads(run(*script, self.model(name), input=json.dumps(asked).encode(), env=self.env))
        return told["ids"], [text.encode("latin-1") for text in told["texts"]]

    def encoded(self, name, text):
        return numbers(run(MTCTL, "tokenizer", "encode", "--tokenizer", self.model(name), self.write("text", text)))

    def decoded(self, name, ids):
        return run(MTCTL, "tokenizer", "decode", "--tokenizer", self.model(name), input=" ".join(map(str, ids)).encode())

    def test_documents_have_the_ids_of_the_package(self):
        texts = [*TEXTS, *random_texts(200)]
        lines = self.write("jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts).encode())
        for name in MODELS:
            with self.subTest(name):
                run(MTCTL, "data", "prepare", "--input", lines, "--jsonl-key", "text", "--tokenizer", self.model(name), "--threads", 2,
                    "--output", self.folder / name, "--overwrite")
                ours = [ids for ids in documents(self.folder / name) if ids]
                theirs, _ = self.theirs(name, [text.encode() for text in texts])
                self.assertEqual(len(ours), sum(1 for ids in theirs if ids))
                for got, (wanted, text) in zip(ours, ((ids, text) for ids, text in zip(theirs, texts) if ids)):
                    self.assertEqual(got, wanted, repr(text))

    def test_texts_have_the_ids_of_debians_program(self):
        texts = [text for text in [*TEXTS, *random_texts(100)] if text.strip() and not re.search("[\n\r\0]", text)]
        joined = "\n".join(texts).encode()
        for name in MODELS:
            with self.subTest(name):
                spelled = run("spm_encode", f"--model={self.model(name)}", "--output_format=id", input=joined).split(b"\n")
                theirs, _ = self.theirs(name, [text.encode() for text in texts])
                self.assertEqual([numbers(line) for line in spelled[:len(texts)]], theirs)
                for text, ids in list(zip(texts, theirs))[:4]:
                    self.assertEqual(self.encoded(name, text.encode()), ids, repr(text))

    def test_invalid_bytes_have_the_ids_of_the_package(self):
        for name in MODELS:
            for text, ids in zip(INVALID, self.theirs(name, INVALID)[0]):
                self.assertEqual(self.encoded(name, text), ids, f"{name} {text}")

    def test_ids_have_the_texts_of_the_package(self):
        """Unknown and control tokens, and for models of bytes their tokens: whole characters, broken ones, one behind a word."""
        for name in MODELS:
            ids, _ = self.theirs(name, [text.encode() for text in TEXTS[4:]])
            ids += [[0], [0, 0, 1, 2, 5], [5, 0, 6]]
            if name in BYTE_MODELS:
                of_byte = {int(byte, 16): number for number, byte in enumerate(self.bytes_of(name)) if byte}
                for data in (b"\xe4", b"\xe4\xb8\xad", b"\xe4\xb8A", b"\xff\xe4\xb8\xad\x80", b"\xf0\x9f\x98\x80\xf0\x9f"):
                    ids += [[of_byte[byte] for byte in data], [300, *(of_byte[byte] for byte in data), 301]]
            for some, text in zip(ids, self.theirs(name, ids=ids)[1]):
                self.assertEqual(self.decoded(name, some), text, f"{name} {some}")

    def bytes_of(self, name):
        """For each token of a model: the hexadecimal digits of the byte that it is, or ''."""
        vocabulary = (self.folder / f"{name}.vocab").read_text().split("\n")
        return ["".join(re.findall(r"^<0x([0-9A-F]{2})>\t", line)) for line in vocabulary]

    def test_a_record_tells_the_bytes_of_pieces(self):
        """Of a piece its text's with a blank for the mark, of a byte one, of unknown and control tokens none."""
        lines = self.write("few", b"a few words\n")
        for name in MODELS:
            with self.subTest(name):
                run(MTCTL, "data", "prepare", "--input", lines, "--allow-one-document", "--tokenizer", self.model(name), "--output",
                    self.folder / f"{name}-few", "--overwrite")
                told = []
                for word in json.loads((self.folder / f"{name}-few.tokenizer.json").read_text())["token_bytes"].split():
                    *count, size = map(int, word.split("*"))
                    told += [size] * (count[0] if count else 1)
                pieces = [line.split("\t")[0] for line in (self.folder / f"{name}.vocab").read_text().split("\n")[:-1]]
                wanted = [1 if byte else len(piece.replace("▁", " ").encode()) for piece, byte in zip(pieces, self.bytes_of(name))]
                wanted[:3] = [0, 0, 0]  # <unk>, <s>, </s>
                self.assertEqual(told, wanted)

    def test_a_text_above_the_limit_is_refused(self):
        file = self.write("large", b"word " * (MAX_BYTES // 5 + 1))
        command = [MTCTL, "tokenizer", "encode", "--tokenizer", self.model("unigram"), file]
        refused = subprocess.run(command, capture_output=True, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f"more than the {MAX_BYTES}".encode(), refused.stderr)

    @unittest.skipUnless(LONG, "MT_LONG_TESTS alone")
    def test_large_documents_take_less_than_1_gib(self):
        words = " ".join(re.findall("[A-Za-z,.]+", mixed_text(MAX_BYTES).decode())) + " "
        line = json.dumps({"text": (words * 9)[:MAX_BYTES]}) + "\n"
        lines = self.write("large.jsonl", line.encode() * 8)
        for name in ("unigram", "bpe"):
            command = (MTCTL, "data", "prepare", "--input", lines, "--jsonl-key", "text", "--tokenizer", self.model(name), "--threads", 4,
                       "--output", self.folder / "large")
            child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
            kib = 0
            while child.poll() is None:
                peak = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{child.pid}/status").read_text())
                kib = max(kib, int(peak[1]) if peak else 0)
                time.sleep(0.02)
            print(f"prepare of documents of 4 MiB by {name}: at most {kib // 1024} MiB resident")
            self.assertEqual(child.returncode, 0)
            self.assertLess(kib, MIB)
            for file in self.folder.glob("large.[bi]*"):
                file.unlink()


if __name__ == "__main__":
    unittest.main()
