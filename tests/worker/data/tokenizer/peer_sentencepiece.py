"""What PyPI's sentencepiece makes of texts and of ids.

    peer_sentencepiece.py MODEL    reads {"texts": [text...], "ids": [[id...]...]}, writes {"ids": of the texts, "texts": of the ids}

Texts are strings of bytes, a character of Latin-1 each, since not all are UTF-8. The package of tests/deploy/pypi/sentencepiece.txt is
found by PYTHONPATH.
"""
import json
import sys

import sentencepiece


def main():
    model = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
    asked = json.load(sys.stdin)
    ids = [model.encode(text.encode("latin-1")) for text in asked["texts"]]
    texts = [model.decode(of_text).encode().decode("latin-1") for of_text in asked["ids"]]
    json.dump({"ids": ids, "texts": texts}, sys.stdout)


if __name__ == "__main__":
    main()
