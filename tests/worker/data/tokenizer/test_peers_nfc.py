"""Byte-level files with the normalizer NFC, as Qwen and GPT-NeoX publish them, and with an empty Sequence, as DeepSeek does, against PyPI's
tokenizers. MT_LONG_TESTS: ten times the text.
"""
import json
import random
import unittest

from mixed_text import mixed_text
from peer_llama2 import GOLDEN, added
from peer_nfc import NFC, with_nfc, words
from peers import LONG, MTCTL, Peers, numbers, run
from test_peers_unicode import PATTERNS, byte_level, split_by

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SIZE = 600_000 if LONG else 60_000


def runs_of_spaces(file):
    """GPT-NeoX has each run of 2 to 24 spaces as a token that is looked for in normalized text."""
    size = len(file["model"]["vocab"])
    runs = [added(" " * (24 - number), size + 1 + number, normalized=True) for number in range(23)]
    return [added("<|endoftext|>", size, special=True), *runs]


class PeersTest(Peers):
    def test_the_golden_cases_are_what_the_package_gives(self):
        theirs = json.loads(self.run_peer("peer_nfc.py", "cases"))
        self.assertEqual(json.loads((GOLDEN / "nfc_cases.json").read_text()), theirs)

    def test_files_as_published_have_its_ids(self):
        rng = random.Random(2)
        codes = [rng.choice((rng.randrange(0x20, 0x3100), rng.randrange(0xE000, 0x20000))) for _ in range(SIZE // 4)]
        text = words(rng, SIZE) + mixed_text(SIZE).decode() + "".join(map(chr, codes))
        path = self.write("text", text.encode())
        file = json.loads((GOLDEN / "llama3.json").read_text())
        sequence = {"type": "Sequence", "normalizers": [NFC, {"type": "Sequence", "normalizers": []}, NFC]}
        empty = {"type": "Sequence", "normalizers": []}
        forms = {"qwen": {**file, "normalizer": NFC, "pre_tokenizer": split_by(QWEN)},
                 "neox": {**file, "normalizer": NFC, "pre_tokenizer": byte_level(True), "added_tokens": runs_of_spaces(file)},
                 "deepseek": {**file, "normalizer": empty, "pre_tokenizer": split_by(*PATTERNS["deepseek"])},
                 "sequence": with_nfc(file, sequence)}
        for name, form in forms.items():
            with self.subTest(name):
                made = self.write(f"{name}.json", json.dumps(form).encode())
                self.same(numbers(run(MTCTL, "tokenizer", "encode", "--tokenizer", made, path)), self.peer("huggingface", path, made))


if __name__ == "__main__":
    unittest.main()
