"""tokenizer.json of Llama 2 and its like, and the rules of added tokens, against PyPI's tokenizers: golden/llama2_cases.json, which
text_bpe_test.cc checks always, is what the package gives, and files trained here have its ids and its texts.
"""
import json
import unittest

from mixed_text import mixed_text
from peer_llama2 import GOLDEN, metaspace, patched
from peers import MTCTL, Peers, numbers, run


class PeersTest(Peers):
    def ask(self, *words):
        """What peer_llama2.py prints with the package."""
        return self.run_peer("peer_llama2.py", *words)

    def test_the_golden_cases_are_what_the_package_gives(self):
        theirs = json.loads(self.ask("cases"))
        ours = json.loads((GOLDEN / "llama2_cases.json").read_text())
        self.assertEqual([case["name"] for case in ours], [case["name"] for case in theirs])
        for mine, other in zip(ours, theirs):
            self.assertEqual(mine, other, mine["name"])

    def test_a_trained_file_has_its_ids_and_texts(self):
        text = self.write("text", mixed_text(150_000).decode(errors="replace").encode())
        begin = text.read_bytes()[:3_000].decode(errors="ignore").encode()
        short = self.write("short", b"  two  words\n\n" + begin + "<s>é</s> \x00".encode())
        trained = self.folder / "trained.json"
        self.ask("train", text, trained)
        file = json.loads(trained.read_text())
        rules = {"prepend": {}}
        for scheme, split in (("first", False), ("always", True), ("never", False)):
            rule = metaspace(scheme, split)
            rules[f"metaspace-{scheme}"] = {"normalizer": None, "pre_tokenizer": rule, "decoder": rule}
        for name, change in rules.items():
            with self.subTest(name):
                made = self.write(f"{name}.json", json.dumps(patched(file, change)).encode())
                for one, theirs in zip((text, short), json.loads(self.ask("encode", made, text, short))):
                    ours = run(MTCTL, "tokenizer", "encode", "--tokenizer", made, one)
                    self.same(numbers(ours), theirs["ids"])
                    decoded = run(MTCTL, "tokenizer", "decode", "--tokenizer", made, input=ours)
                    self.assertTrue(decoded == theirs["text"].encode(), f"text of the ids of {one.name}")


if __name__ == "__main__":
    unittest.main()
