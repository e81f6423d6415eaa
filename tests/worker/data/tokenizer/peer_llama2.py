"""tokenizer.json of Llama 2 and its like, and the rules of added tokens, by PyPI's tokenizers: what test_peers_llama2.py asks of it, and
golden/llama2_cases.json, which text_bpe_test.cc checks always.

    peer_llama2.py write     golden/llama2.json and llama2_cases.json anew
    peer_llama2.py cases     prints the cases
    peer_llama2.py train TEXT FILE
    peer_llama2.py encode FILE TEXT...     a JSON list of ids and decoded text for each

The packages of tests/deploy/pypi/tokenizers.txt are found by PYTHONPATH.
"""
import copy
import json
import pathlib
import sys

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                               {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
DECODER = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
SPECIALS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def added(content, number, **rules):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **rules}


def llama2(vocab, merges, **model):
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(text, number, special=True) for number, text in enumerate(SPECIALS)], "normalizer": PREPEND,
            "pre_tokenizer": None, "post_processor": None, "decoder": DECODER,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, **model,
                      "vocab": vocab, "merges": merges}}


def patched(value, change):
    """As RFC 7396 has it: a null takes a member away."""
    if not isinstance(change, dict):
        return change
    value = dict(value) if isinstance(value, dict) else {}
    for name, part in change.items():
        if part is None:
            value.pop(name, None)
        else:
            value[name] = patched(value.get(name), part)
    return value


def train(text, size):
    """A file as Llama 2's: the special tokens, the bytes, then what is trained."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, min_frequency=2, limit_alphabet=70)
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    known = SPECIALS + BYTES
    tokens = known + [token for token in sorted(model["vocab"], key=model["vocab"].get) if token not in known]
    return llama2({token: number for number, token in enumerate(tokens)}, model["merges"])


def changes(size):
    """Name, file, what is changed of it, texts that are encoded, ids that are decoded. `size` is llama2.json's vocabulary, from which
    added tokens count."""
    plain = ["", "x", " x", "  x", "▁x", "two  words", "tab\tand\nline \u00a0", "é中😀", "<s>the</s> the <s> the", "the<unk>é", "<0x41>"]
    marks = [[256 + 3, 1, 260, 2], [size - 1, size - 2], [1, size - 1]]
    e, euro = [3 + 0xC3, 3 + 0xA9], [3 + 0xE2, 3 + 0x82, 3 + 0xAC]
    runs = [e, e + euro[:1], euro[:2] + e, e + [1] + euro[:1] + [1] + euro, [3 + 0x0A, 3 + 0x20, 3 + 0x20]]
    found = [("plain", {}, plain, runs + marks)]
    for scheme in ("first", "always", "never"):
        for split in (True, False):
            rule = metaspace(scheme, split)
            found.append((f"metaspace {scheme} {split}", {"normalizer": None, "pre_tokenizer": rule, "decoder": rule}, plain, marks))
    found += [("ignore_merges", {"model": {"ignore_merges": True}}, ["the", "x", "the the"], []),
              ("only spaces", {"normalizer": PREPEND["normalizers"][1], "pre_tokenizer": {
                  "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}}, plain, []),
              ("no strip", {"decoder": {"type": "Sequence", "decoders": DECODER["decoders"][:3]}}, [], runs + marks)]
    unknown = ["é中x😀😀 é", "中", "x中中", "中x"]
    for name, model in (("unk", {"byte_fallback": False, "fuse_unk": False}), ("fused", {"byte_fallback": False}),
                        ("vanishing", {"byte_fallback": False, "unk_token": None}),
                        ("some bytes", {"fuse_unk": False, "vocab": {"<0x9F>": None, "<0xB8>": None}}),
                        ("some bytes, fused", {"vocab": {"<0x9F>": None, "<0xB8>": None}})):
        found.append((name, {"model": model}, unknown, []))
    strips = [added("<l>", size, lstrip=True), added("<r>", size + 1, rstrip=True), added("<b>", size + 2, lstrip=True, rstrip=True),
              added(" ", size + 3)]
    spaces = ["a  <l>  b", "a  <r>  b", "a  <b>  b", "<r>   <l>a", "<r> \n\t\u00a0\u3000\u2028\x85a", "<b>  <b> ", " <l> <l>"]
    single = [added("word", size, single_word=True), added("wo", size + 1), added("é", size + 2, single_word=True)]
    words = ["word", "words", "a word.", "_word", "word1", "wordé", "éword", "é é", "wo word wo", "中word", "word\u0301", "word\u200dx"]
    normal = [added("<n>", size, normalized=True), added("n>", size + 1), added("the", size + 2, normalized=True, lstrip=True)]
    pieces = ["<n>", "a<n>", "a <n>", "<s><n>", "a<s> <n>", "the", "a the", "athe", " the", "<s>the", "n><n>"]
    found += [("strips", {"added_tokens": strips[:3]}, spaces, []), ("overlaps", {"added_tokens": strips}, spaces, []),
              ("single words", {"added_tokens": single}, words, []),
              ("normalized", {"added_tokens": normal}, pieces, [[size, size], [260, size + 2, size]])]
    return [(name, "llama2.json", *rest) for name, *rest in found]


def byte_level_changes(size):
    """The same of a byte-level file, which has no normalizer; the tokens of the first pass hide those of the second."""
    two = [added("<|end_of_text|>", size - 1), added("<ab>", size, normalized=True), added("b>", size + 1),
           added("<c>", size + 2, lstrip=True, rstrip=True), added("cd", size + 3, single_word=True, normalized=True)]
    texts = ["<ab> b>", "<ab", "x  <c>  y", "a cd, cde", "<c><c>", "<|end_of_text|><ab>", "  <c>"]
    return [("byte level", "llama3.json", {"added_tokens": two, "normalizer": {"type": "Sequence", "normalizers": []}}, texts, [])]


def cases():
    """What the package gives."""
    from tokenizers import Tokenizer
    files = {name: json.loads((GOLDEN / name).read_text()) for name in ("llama2.json", "llama3.json")}
    sizes = {name: len(file["model"]["vocab"]) for name, file in files.items()}
    listed = []
    for name, file, change, texts, decoded in changes(sizes["llama2.json"]) + byte_level_changes(sizes["llama3.json"] + 1):
        tokenizer = Tokenizer.from_str(json.dumps(patched(copy.deepcopy(files[file]), change)))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        decoded = [*ids, *decoded]
        listed.append({"name": name, "file": file, "change": change, "encoded": [list(pair) for pair in zip(texts, ids)],
                       "decoded": [[one, tokenizer.decode(one, skip_special_tokens=False)] for one in decoded]})
    text = (GOLDEN / "text.txt").read_bytes().decode(errors="ignore")
    tokenizer = Tokenizer.from_str(json.dumps(files["llama2.json"]))
    listed.append({"name": "text.txt", "file": "llama2.json", "change": {},
                   "encoded": [[text, tokenizer.encode(text, add_special_tokens=False).ids]], "decoded": []})
    return listed


def encode(file, texts):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(file)
    found = [tokenizer.encode(pathlib.Path(text).read_bytes().decode(), add_special_tokens=False).ids for text in texts]
    return [{"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False)} for ids in found]


def lines(listed):
    return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in listed) + "\n]\n"


def main(program, *words):
    if program == "encode":
        print(json.dumps(encode(words[0], words[1:])))
    elif program == "train":
        pathlib.Path(words[1]).write_text(json.dumps(train(pathlib.Path(words[0]).read_bytes().decode(), 1500)))
    elif program == "cases":
        print(lines(cases()))
    else:
        text = (GOLDEN / "text.txt").read_bytes().decode(errors="ignore")
        (GOLDEN / "llama2.json").write_text(json.dumps(train(text * 3, 250), ensure_ascii=False) + "\n")
        (GOLDEN / "llama2_cases.json").write_text(lines(cases()))


if __name__ == "__main__":
    main(*sys.argv[1:])
