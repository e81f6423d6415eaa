#!/usr/bin/python3
"""Writes scores.json: scores of small tasks by PyTorch and EleutherAI's evaluation harness.

Texts are cleaned and windows cut by the harness itself (lm-eval 0.4.13), whose files are imported from an unpacked wheel; the model
is the GPT-2 of gpt2_torch.safetensors, written here once more for one sequence, in float64. Tokens are bytes: mt_scores_test has the
same tokenizer, and holds worker/decode/scores to the file.

    pip download --no-deps lm-eval==0.4.13 && unzip -d lm lm_eval-0.4.13-py3-none-any.whl
    /usr/bin/python3 tests/golden/scores_torch.py lm        # rewrites the file beside this script
"""
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import random
import re
import struct
import sys
import unittest.mock

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
EOD, MAX_POSITIONS = 96, 32


def harness(folder, name):
    """A file of the harness by itself: what it imports for other purposes is empty."""
    for missing in ("datasets", "jinja2", "yaml"):
        if importlib.util.find_spec(missing) is None:
            sys.modules[missing] = unittest.mock.MagicMock(__spec__=importlib.machinery.ModuleSpec(missing, None), BaseLoader=object)
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), pathlib.Path(folder) / "lm_eval" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def encode(text):
    """An id a byte: printable ASCII from 0, the line feed 95; 96 ends a document."""
    return [byte - 32 if 32 <= byte < 127 else 95 if byte == 10 else byte % 95 for byte in text.encode()]


class Model:
    def __init__(self, path):
        raw = path.read_bytes()
        size, = struct.unpack("<Q", raw[:8])
        header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
        sizes = header.pop("__metadata__")
        self.layers, self.heads = int(sizes["layers"]), int(sizes["heads"])
        self.w = {}
        for name, entry in header.items():
            if name.startswith("weight/"):
                begin, end = entry["data_offsets"]
                values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
                self.w[name[len("weight/"):]] = values.reshape(entry["shape"]).double()

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def log_probabilities(self, ids):
        n = len(ids)
        x = self.w["embedding.word.weight"][ids] + self.w["embedding.position.weight"][:n]
        for i in range(self.layers):
            y = self.norm(f"layers.{i}.norm1", x)
            q, k, v = (self.linear(f"layers.{i}.attention.{c}", y).view(n, self.heads, -1).transpose(0, 1) for c in "qkv")
            scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
            x = x + self.linear(f"layers.{i}.attention.out", (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1))
            y = F.gelu(self.linear(f"layers.{i}.ffn.up", self.norm(f"layers.{i}.norm2", x)), approximate="tanh")
            x = x + self.linear(f"layers.{i}.ffn.down", y)
        return F.linear(self.norm("final_norm", x), self.w["embedding.word.weight"]).log_softmax(-1)

    def score(self, context, continuation, window):
        """Sum of log probabilities, and whether each token is the likeliest."""
        ids = (context + continuation)[-(window + 1):]
        table = self.log_probabilities(ids[:-1])[-len(continuation):]
        chosen = table[range(len(continuation)), continuation]
        return chosen.sum().item(), bool((table.argmax(-1) == torch.tensor(continuation)).all())


def pair(context, continuation):
    """The white space at the context's end belongs to the continuation."""
    bare = context.rstrip()
    whole = encode(context + continuation)
    cut = len(encode(bare))
    return (encode(bare) or [EOD]), whole[cut:]


def perplexity(model, windows_of, texts, window, stride):
    """texts: of (scored text, words, bytes)."""
    total, tokens = 0.0, 0
    for text, _, _ in texts:
        ids = encode(text)
        tokens += len(ids)
        for context, predicted in windows_of(ids, window, stride):
            total += model.score(context, predicted, window)[0]
    words, size = (sum(text[i] for text in texts) for i in (1, 2))
    return {"tokens": tokens, "documents": len(texts), "token_perplexity": math.exp(-total / tokens),
            "word_perplexity": math.exp(-total / words), "byte_perplexity": math.exp(-total / size),
            "bits_per_byte": -total / size / math.log(2), "log_likelihood": total, "words": words, "bytes": size}


def last_words(model, texts, window):
    results = []
    for text in texts:
        parts = text.split(" ")
        results.append(model.score(*pair(" ".join(parts[:-1]), " " + parts[-1]), window))
    share = sum(greedy for _, greedy in results) / len(results)
    return {"documents": len(texts), "accuracy": share, "accuracy_error": (share * (1 - share) / (len(texts) - 1)) ** 0.5,
            "perplexity": math.exp(-sum(total for total, _ in results) / len(results))}


def predicted_words(model, count):
    """Texts whose last word, a letter, is what the model finds likeliest."""
    rng, found = random.Random(7), []
    while len(found) < count:
        text = "".join(rng.choice("abcdefgh,") for _ in range(rng.randint(1, 12)))
        if model.log_probabilities(encode(text))[-1].argmax() == 0:  # a blank
            letter = model.log_probabilities(encode(text + " "))[-1].argmax().item()
            found += [text + " " + chr(32 + letter)] if 0 < letter < 95 else []
    return found


def multiple_choice(model, questions, window, apart):
    """questions: of (context, choices, answer)."""
    right = {"accuracy": 0, "accuracy_per_character": 0, "accuracy_per_byte": 0, "accuracy_per_token": 0}
    for context, choices, answer in questions:
        pairs = [(encode(context), encode(" " + c)) if apart else pair(context, " " + c) for c in choices]
        sums = [model.score(*each, window)[0] for each in pairs]
        for name, lengths in (("accuracy", [1] * len(choices)), ("accuracy_per_character", [len(c) for c in choices]),
                              ("accuracy_per_byte", [len(c.encode()) for c in choices]),
                              ("accuracy_per_token", [len(ids) for _, ids in pairs])):
            scores = [total / length for total, length in zip(sums, lengths)]
            right[name] += scores.index(max(scores)) == answer
    del right["accuracy_per_token" if not apart else "accuracy_per_character"]
    if apart:
        del right["accuracy_per_byte"]
    n = len(questions)
    share = right["accuracy"] / n
    return {"documents": n} | {name: count / n for name, count in right.items()} | {
        "accuracy_error": (share * (1 - share) / (n - 1)) ** 0.5}


PIECES = ["a", "The cat", "s '", " 's", " @-@ ", " @,@ ", " @.@ ", " : ", " ; ", " . ", " ! ", " ? ", " , ", "( ", " )", "(", ")",
          "[ ", " ]", "[", "]", "{ ", "}", '" ', ' "', '"', "' ", " '", "'", "= = = =", "= = =", " = = ", " \u00b0 ", "\u00b0", " \n",
          "\n ", "\n", " N ", "/' 5/", "/' 7/' 8/", "  ", "\t", "\u00a0", "\u2003", "\x1d", "\u4e2d", "\u00e9", "[title]",
          " [title]", "[header]", "x [y\nz]", "9"]


def texts_of(seed, count, longest):
    rng = random.Random(seed)
    return ["".join(rng.choice(PIECES) for _ in range(rng.randint(0, longest))) for _ in range(count)]


def cleaned(wikitext, hellaswag):
    pages = [" = A = \n \n It 's the 4 @-@ 4 ( sic ) of \" 1 @,@ 000 \" N , or 20 \u00b0 C . \n"] + texts_of(1, 160, 14)
    sentences = texts_of(2, 120, 8)
    letters = [chr(code) for code in range(0x20, 0x180) if code != 0x7F]
    return {"wikitext": [{"page": page, "text": wikitext.wikitext_detokenizer({"page": page})} | {
                name: wikitext.process_results({"page": page}, (0.0,))[score][1]
                for name, score in (("words", "word_perplexity"), ("bytes", "byte_perplexity"))} for page in pages],
            "hellaswag": [[text, hellaswag.preprocess(text)] for text in sentences],
            "stripped": [[text, text.strip()] for text in sentences],
            "capitalized": [[text, text.capitalize()] for text in
                            [letter + "b" for letter in letters] + ["b" + letter for letter in letters] + ["", "\u4e2d A", "tHE CAT. Sat"]]}


def windows(utils):
    def of(ids, window, stride):
        return [utils.make_disjoint_window(each) for each in
                utils.get_rolling_token_windows(token_list=ids, prefix_token=EOD, max_seq_len=window, context_len=window - stride + 1)]

    def read(context, predicted, window):
        ids = (context + predicted)[-(window + 1):]
        return [ids, len(predicted)]

    cases = [(n, window, stride) for window, stride in ((1, 1), (4, 4), (8, 3), (8, 1), (5, 5)) for n in (0, 1, 2, 4, 5, 8, 9, 13, 16, 21)]
    return of, [{"tokens": n, "window": window, "stride": stride,
                 "windows": [read(*each, window) for each in of(list(range(n)), window, stride)]} for n, window, stride in cases]


def main():
    utils = harness(sys.argv[1], "utils")
    wikitext = harness(sys.argv[1], "tasks/wikitext/preprocess_wikitext")
    hellaswag = harness(sys.argv[1], "tasks/hellaswag/utils")
    torch.set_num_threads(1)
    model = Model(HERE / "gpt2_torch.safetensors")
    windows_of, cut = windows(utils)
    out = {"cleaned": cleaned(wikitext, hellaswag), "windows": cut, "tasks": []}

    def add(task, text, scores):
        out["tasks"].append({"task": task, "text": text, "scores": scores})

    plain = "One two  three.\nWhat  follows is longer than the positions of the model, so windows are cut: " + "again and " * 9 + "\n"
    for window, stride in ((32, 32), (32, 7), (16, 16), (1, 1)):
        add({"type": "perplexity", "rules": "plain", "window": window, "stride": stride}, plain,
            perplexity(model, windows_of, [(plain, len(re.split(r"\s+", plain)), len(plain.encode()))], window, stride))
    pages = [" = First = \n \n The cat 's 3 @.@ 5 ( about ) metres , \" so \" \n = = Part = = \n \n it said . ",
             " = Other ; page = \n \n On 20 \u00b0 it was N . \n"]
    scored = [(wikitext.wikitext_detokenizer({"page": page}), wikitext.process_results({"page": page}, (0.0,))["word_perplexity"][1],
               len(page.encode())) for page in pages]
    add({"type": "perplexity", "rules": "wikitext", "window": 32, "stride": 32}, " \n" + "\n".join(pages),
        perplexity(model, windows_of, scored, 32, 32))
    add({"type": "perplexity", "rules": "wikitext", "key": "page", "window": 20, "stride": 11},
        "\n".join(json.dumps({"page": page}) for page in pages) + "\n", perplexity(model, windows_of, scored, 20, 11))
    words = ["the cat sat on the mat", "one  two", "a longer text of which the beginning is cut for its last word", "word", "a b\u00e9",
             "A , 7"]
    words += predicted_words(model, 2)
    add({"type": "last_word", "rules": "plain", "window": 24}, "\n".join(json.dumps({"text": text}) for text in words),
        last_words(model, words, 24))
    rng = random.Random(5)
    lines, theirs, llm_c, own = [], [], [], []
    for i in range(12):
        ends = [rng.choice(["goes", "is [sic] \u00e9t\u00e9", "walks  away", "eats it all.", "\u4e2d\u6587", "runs [title] on"]) +
                " " * rng.randint(0, 1) + rng.choice(["now", "and more of it", "."]) for _ in range(4)]
        line = {"activity_label": "Doing " + "it" * rng.randint(0, 2), "ctx_a": "A man [header] sits.",
                "ctx_b": rng.choice(["the DOG", "\u00e9L", ""]), "ctx": "A man sits. the", "endings": ends,
                "label": str(i % 4) if i % 2 else i % 4}
        lines.append(line)
        context = hellaswag.preprocess(line["activity_label"] + ": " + line["ctx_a"] + " " + line["ctx_b"].capitalize())
        theirs.append((context, [hellaswag.preprocess(end) for end in ends], i % 4))
        llm_c.append((line["ctx"], ends, i % 4))
        own.append((context + " ", ends, i % 4))
    text = "\n".join(map(json.dumps, lines)) + "\n\n"
    add({"type": "multiple_choice", "rules": "hellaswag", "window": 32}, text, multiple_choice(model, theirs, 32, apart=False))
    add({"type": "multiple_choice", "rules": "llm.c", "window": 32}, text, multiple_choice(model, llm_c, 32, apart=True))
    add({"type": "multiple_choice", "rules": "plain", "window": 32},
        "\n".join(json.dumps({"context": c, "choices": e, "label": a}) for c, e, a in own), multiple_choice(model, own, 32, apart=False))
    (HERE / "scores.json").write_text(json.dumps(out, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
