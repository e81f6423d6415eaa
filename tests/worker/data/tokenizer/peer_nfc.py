"""Texts in normalization form C and the ids of byte-level files with that normalizer, by PyPI's tokenizers: golden/nfc_cases.json, which
nfc_test.cc checks always.

    peer_nfc.py write     golden/nfc_cases.json anew
    peer_nfc.py cases     prints the cases

The packages of tests/deploy/pypi/tokenizers.txt are found by PYTHONPATH.
"""
import copy
import json
import random
import sys

from peer_llama2 import GOLDEN, added

NFC = {"type": "NFC"}
# Unicode 9.0.0 knows all but U+1DFA, U+0898 and U+10D24, which stay where they stand.
MARKS = ["\u0301", "\u0323", "\u0327", "\u0345", "\u0338", "\u3099", "\u093c", "\u0f71", "\u1dc0", "\u1dfa", "\u08d4", "\u0898",
         "\U0001d165", "\U00010d24"]
BASES = list("aeKx;` \n=<") + ["\u00e9", "\u212b", "\u212a", "\u037e", "\u1fef", "\u0958", "\u2adc", "\ufb1d", "\uac00", "\u1100", "\u1161",
                               "\u11a8", "\u11a7", "\u4e2d", "\uf900", "\u2126", "\U0001d15e", "\U0001d160", "\U00011935", "\U00011930",
                               "\u0344", "\u0f73", "\u09c7", "\u09be", "\u2000", "\U0001f600"]


def text(rng, most=12):
    """A few characters that NFC joins, takes apart, reorders or leaves."""
    return "".join(rng.choice(MARKS if rng.random() < 0.5 else BASES) for _ in range(rng.randrange(1, most)))


def words(rng, size):
    """About `size` characters of such texts between words."""
    parts = [rng.choice(["word ", "a\n", ".\n", " 12", text(rng), "<e\u0301>", "<\u00e9>", "  "]) for _ in range(size // 5)]
    return "".join(parts)


def with_nfc(file, normalizer=None):
    """llama3.json with the normalizer, and added tokens that it changes, of both passes."""
    file = copy.deepcopy(file)
    size = len(file["model"]["vocab"])
    file["normalizer"] = normalizer or NFC
    file["added_tokens"] = [added("<|end_of_text|>", size, special=True), added("<e\u0301>", size + 1, normalized=True),
                            added("<\u212b>", size + 2), added("x\u212a", size + 3, normalized=True),
                            added("  ", size + 4, normalized=True), added("e\u0323", size + 5, lstrip=True)]
    return file


def cases():
    """What the package gives: texts in NFC, and texts with their ids."""
    from tokenizers import Tokenizer, normalizers
    rng = random.Random(11)
    nfc = normalizers.NFC()
    characters = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    changed = [one for one in characters if nfc.normalize_str(one) != one]
    texts = [text(rng) for _ in range(400)] + ["a\u0301" * 40, "".join(changed[::3])]
    tokenizer = Tokenizer.from_str(json.dumps(with_nfc(json.loads((GOLDEN / "llama3.json").read_text()))))
    encoded = [words(rng, 40) for _ in range(60)] + ["<e\u0301><\u00e9><\u00c5><\u212b> xK x\u212a   \u1ebde\u0323\u0301"]
    return {"normalized": [[one, nfc.normalize_str(one)] for one in texts],
            "encoded": [[one, tokenizer.encode(one, add_special_tokens=False).ids] for one in encoded]}


def lines(made):
    """ASCII alone, since editors and tools change such texts; a case a line."""
    lists = [f'"{name}": [\n' + ",\n".join(json.dumps(one) for one in listed) + "\n]" for name, listed in made.items()]
    return "{" + ",\n".join(lists) + "}\n"


if __name__ == "__main__":
    if sys.argv[1] == "cases":
        print(lines(cases()))
    else:
        (GOLDEN / "nfc_cases.json").write_text(lines(cases()))
