"""Text of many kinds by a seed and the files of this tree, with which it changes: English, code, Chinese, emoji and other scripts, control
characters, white space.

    python3 mixed_text.py BYTES > FILE
"""
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
SCRIPTS = ["😀", "👩‍🔬", "🇩🇪", "❤️", "🧑🏽", "é", "e\u0301", "ß", "Привет", "مرحبا", "שלום", "한국어", "ภาษาไทย", " ", "\u00a0", "\u3000", "١٢٣", "Ⅷ",
           "²", "½", "'s", "'LL", "'ſ", "I'm"]
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\n\n", "x", "1234567", "(", ");", "don't", "WE'RE", " \n ", "   y"]


def mixed_text(size, seed=5):
    """About `size` bytes of UTF-8."""
    rng = random.Random(seed)
    sources = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("worker/**/*.cc"), *ROOT.glob("tests/**/*.py")])
    texts = [path.read_text(errors="ignore") for path in sources]

    def source():
        text = rng.choice(texts)
        begin = rng.randrange(max(1, len(text) - 3000))
        return text[begin:begin + 3000]

    def control():
        return "".join(chr(rng.randint(0, 0x20)) if rng.random() < 0.7 else rng.choice("abc ABC\x7f\u2028\u200b") for _ in range(200))

    def chinese():
        return "".join(chr(rng.randint(0x4E00, 0x9FA5)) if rng.random() < 0.9 else rng.choice("，。！？ \n") for _ in range(400))

    kinds = [(0.6, source), (0.15, chinese), (0.1, lambda: "".join(rng.choice(SCRIPTS) for _ in range(120))), (0.07, control),
             (0.08, lambda: "".join(rng.choice(SPACES) for _ in range(200)))]
    parts, done = [], 0
    while done < size:
        make = rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        parts.append(make().encode())
        done += len(parts[-1])
    return b"".join(parts)


if __name__ == "__main__":
    sys.stdout.buffer.write(mixed_text(int(sys.argv[1])))
