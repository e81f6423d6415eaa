"""The tokenizer.json of `mtctl tokenizer train` against that of PyPI's tokenizers, byte for byte. MT_LONG_TESTS: 10 MB of text instead of
1 MB.
"""
import random
import unittest

from mixed_text import mixed_text
from peers import LONG, MB, MTCTL, Peers, run

EOD = "<|endoftext|>"


class PeersTest(Peers):
    def compare(self, *texts, size, min_count=0, pattern="gpt2", specials=(EOD,), threads=2):
        files = [self.write(f"text{number}", text) for number, text in enumerate(texts)]
        ours, theirs = self.folder / "ours.json", self.folder / "theirs.json"
        flags = ["--vocab-size", size, "--min-count", min_count, "--pattern", pattern, "--special", *specials]
        self.run_peer("peer_train.py", theirs, *flags, "--input", *files)
        run(MTCTL, "tokenizer", "train", "--output", ours, "--overwrite", "--threads", threads, *flags, "--input", *files)
        self.assertTrue(ours.read_bytes() == theirs.read_bytes(), self.difference(ours, theirs))

    @staticmethod
    def difference(ours, theirs):
        lines = [path.read_text().split("\n") for path in (ours, theirs)]
        at = next((i for i, pair in enumerate(zip(*lines)) if pair[0] != pair[1]), min(map(len, lines)))
        return "\n".join(["the files differ", *(f"{path.name}, line {at + 1}: {' '.join(its[at:at + 6])}"
                                                 for path, its in zip((ours, theirs), lines))])

    def test_text_of_many_kinds(self):
        size = (10 if LONG else 1) * MB
        for pattern, min_count in (("gpt2", 0), ("llama3", 2)):
            with self.subTest(pattern):
                self.compare(mixed_text(size), size=20_000, min_count=min_count, pattern=pattern)

    def test_several_texts(self):
        self.compare(b"a\n", b"\nab ab\n\n", mixed_text(MB // 20), size=1000, pattern="llama3")

    def test_text_that_threads_divide(self):
        self.compare(mixed_text(MB // 2) * 10, size=400, min_count=2, threads=3)

    def test_few_letters(self):
        """Pairs of one count, overlapping pairs, special tokens that merges make, and the end of all pairs."""
        for seed in range(9):
            with self.subTest(seed):
                rng = random.Random(seed)
                words = ["".join(rng.choice("abc"[:2 + seed % 2]) for _ in range(rng.randint(1, 14))) for _ in range(rng.randint(2, 120))]
                specials = [(EOD,), ("ab", EOD), ("a",)][seed % 3]
                self.compare(" ".join(rng.choices(words, k=400)).encode(), size=260 + rng.randint(0, 300), min_count=seed // 3,
                             specials=specials)

    def test_long_pieces(self):
        """Without a place to cut: letters of a few kinds and of one, Chinese, a line of signs."""
        rng = random.Random(1)
        pieces = ["".join(rng.choice("abcde") for _ in range(20_000)), "中" * 700 + "文" * 3, "a" * 3001,
                  "".join(rng.choice("acgt") for _ in range(3000)), "abc " * 40, "\n" + "=" * 800]
        for min_count in (0, 2):
            with self.subTest(min_count):
                self.compare(" ".join(pieces).encode(), size=3000, min_count=min_count)

    def test_another_pattern(self):
        self.compare(mixed_text(MB // 20), size=1000, pattern=r" ?\p{L}+|\d|\s", specials=("<|a b|>",))


if __name__ == "__main__":
    unittest.main()
