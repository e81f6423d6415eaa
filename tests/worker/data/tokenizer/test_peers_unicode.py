"""The classes of characters by which text is cut, and the pieces of patterns without a splitter of our own, against PyPI's tokenizers.
MT_LONG_TESTS: every code point, and every category for PCRE2; else planes 4 to 13 and those of private use are sampled.
"""
import json
import random
import unittest

from mixed_text import mixed_text
from peers import LONG, MTCTL, Peers, numbers, run

# What stands before a character in probes, the line end behind it, and so no characters of interest themselves.
PROBES = "a1!x\n"
CLASSES = [r"\p{L}", r"\p{N}", r"\s"]
CATEGORIES = ["Lu", "Ll", "Lm", "Lo", "M", "P", "S"]
ALL_CATEGORIES = ["Lt", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl",
                  "Zp", "Cc", "Cf", "Co", "Cn"]
LINE_END = 10  # its id, as bytes are their own ids here
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# The patterns of GPT-4o and DeepSeek-V3, which PCRE2 matches.
PATTERNS = {
    "o200k": [rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}"
              r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                 r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+"]}
# Newer than Unicode 14 and others that PCRE2 takes for something else: a few of each kind.
NEWER = "\u180e\u0897\u1c89\u1c8a\ua7cb\ua7cd\u2ffc\u0ece\u1b4e" + "".join(map(chr, (
    0x31350, 0x2EBF0, 0x10D40, 0x10D50, 0x10D70, 0x10D4E, 0x1CCF0, 0x1CD00, 0x1E030, 0x11F00, 0x11F04, 0x11F50, 0x1FAE9, 0x1D2C0, 0x1171E)))


def code_points():
    """All but surrogates and those of probes, or less of planes with nothing in them."""
    empty = set() if LONG else {plane for plane in range(17) if plane in (15, 16) or 4 <= plane <= 13}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or chr(code) in PROBES:
            continue
        if code >> 16 not in empty or code % 61 == 0 or code & 0xFFFF >= 0xFFFE:
            yield code


def byte_alphabet():
    """The character by which a vocabulary spells each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def tokenizer_json(pre_tokenizer):
    """Bytes are their own ids. A letter of PROBES and the byte behind it merge where they are in one piece: then the id is above 255."""
    spelled = byte_alphabet()
    merges = [(spelled[ord(probe)], spelled[byte]) for probe in PROBES[:-1] for byte in range(256)]
    vocab = {**{text: byte for byte, text in enumerate(spelled)}, **{a + b: 256 + number for number, (a, b) in enumerate(merges)}}
    return json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": pre_tokenizer, "post_processor": None,
                       "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
                       "model": {"type": "BPE", "byte_fallback": False, "vocab": vocab, "merges": merges}})


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split_by(*patterns):
    splits = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} for pattern in patterns]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level(False)]}


class PeersTest(Peers):
    def encoded(self, name, pre_tokenizer, text):
        """The ids, as text, of a tokenizer that cuts so."""
        file = self.write(f"{name}.json", tokenizer_json(pre_tokenizer).encode())
        return run(MTCTL, "tokenizer", "encode", "--tokenizer", file, text)

    def probed(self, name, pre_tokenizer, probes, codes):
        """For each of the probes: whether each code point is in one piece with it."""
        text = self.write(f"{name}.txt", "".join(f"{probe}{chr(code)}\n" for code in codes for probe in probes).encode())
        lines = self.encoded(name, pre_tokenizer, text).split(b" %d " % LINE_END)
        lines[-1] = lines[-1].removesuffix(b" %d\n" % LINE_END)
        self.assertEqual(len(lines), len(probes) * len(codes))
        joined = [int(line.split(b" ", 1)[0]) > 255 for line in lines]
        return [joined[number::len(probes)] for number in range(len(probes))]

    def theirs(self, codes, classes):
        text = self.write("codes", "".join(map(chr, codes)).encode())
        self.run_peer("peer_classes.py", text, self.folder, *classes)
        return [(self.folder / str(number)).read_bytes() for number in range(len(classes))]

    def same_class(self, what, codes, ours, theirs):
        differ = [f"U+{code:04X}" for code, a, b in zip(codes, ours, theirs) if bool(a) != bool(b)]
        self.assertEqual(differ[:20], [], f"{what}: {len(differ)} code points")

    def test_own_splitters_know_the_classes_of_tokenizers(self):
        codes = list(code_points())
        letters, numbers_, spaces = self.theirs(codes, CLASSES)
        letter, number, other = self.probed("own", byte_level(True), "a1!", codes)
        self.same_class("letters", codes, letter, letters)
        self.same_class("numbers", codes, number, numbers_)
        # The classes exclude each other: what joins none of the probes is white space.
        self.same_class("white space", codes, [not (a or b or c) for a, b, c in zip(letter, number, other)], spaces)

    def test_patterns_of_pcre2_know_the_classes_of_tokenizers(self):
        codes = list(code_points())
        classes = CLASSES + [rf"\p{{{category}}}" for category in CATEGORIES + (ALL_CATEGORIES if LONG else [])]
        for of_class, theirs in zip(classes, self.theirs(codes, classes)):
            # An x before a character of the class is a piece of its own.
            [joined] = self.probed("pcre2", split_by(rf"x(?={of_class})"), "x", codes)
            self.same_class(of_class, codes, [not one for one in joined], theirs)

    def test_pieces_of_other_patterns_are_those_of_tokenizers(self):
        rng = random.Random(3)
        mixed = mixed_text(30_000).decode()
        starts = [rng.randrange(len(mixed) - 9) for _ in range(4000)]
        parts = [mixed[at:at + rng.randrange(9)] + rng.choice(NEWER) * rng.randrange(1, 3) for at in starts]
        text = self.write("text", "".join(parts).encode())
        made = self.folder / "made.json"
        run(MTCTL, "tokenizer", "train", "--input", text, "--output", made, "--vocab-size", 2000, "--pattern", PATTERNS["o200k"][0])
        for name, patterns in PATTERNS.items():
            with self.subTest(name):
                tokenizer = json.loads(made.read_text())
                tokenizer["pre_tokenizer"] = split_by(*patterns)
                file = self.write(f"{name}.json", json.dumps(tokenizer).encode())
                ours = run(MTCTL, "tokenizer", "encode", "--tokenizer", file, text)
                self.same(numbers(ours), self.peer("huggingface", text, file))
                self.assertTrue(run(MTCTL, "tokenizer", "decode", "--tokenizer", file, input=ours) == text.read_bytes())


if __name__ == "__main__":
    unittest.main()
