#!/usr/bin/env bash
# tokenizers 0.23.3 (decoder ByteFallback) against SentencePiece 0.2.3: a run of byte tokens that holds a whole character and one broken
# byte. SentencePiece keeps the character and marks the broken byte; ByteFallback turns every byte of the run into U+FFFD. A model that
# stops or is cut inside a character therefore loses the characters before it, if they came as bytes, in one of the two.
# Seen 2026-11-27: a, C3 A9, E2, a is "a\ufffd\ufffd\ufffda" there and "a\u00e9\ufffda" here; without the E2 both give "a\u00e9a".
# What follows: text of a model is decoded by the rule of the file its tokenizer came from, and streams are compared with the whole.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install -q --disable-pip-version-check --target "$folder/site" tokenizers==0.23.3 sentencepiece==0.2.3
cat > "$folder/show.py" <<'PYTHON'
import io
import sys
import sentencepiece
import tokenizers

whole, broken = "é".encode(), "é".encode() + "€".encode()[:1]
vocabulary = {"<unk>": 0, "a": 1, **{f"<0x{byte:02X}>": 2 + byte for byte in range(256)}}
bpe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
bpe.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()])
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["the cat sat on a mat"] * 50), model_writer=model, vocab_size=300,
                                         byte_fallback=True, hard_vocab_limit=False, model_type="bpe", minloglevel=2)
pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
seen = {}
for name, run in (("whole", whole), ("broken", broken)):
    seen[name] = (bpe.decode([1, *(2 + byte for byte in run), 1]),
                  pieces.decode([pieces.piece_to_id(piece) for piece in ("a", *(f"<0x{byte:02X}>" for byte in run), "a")]))
    print(f"{name} {run.hex(' ')}: tokenizers {tokenizers.__version__} {seen[name][0]!a}, SentencePiece {sentencepiece.__version__} {seen[name][1]!a}")
expected = {"whole": ("aéa", "aéa"), "broken": ("a\ufffd\ufffd\ufffda", "aé\ufffda")}
sys.exit(0 if seen == expected else f"expected {expected!a}")
PYTHON
PYTHONPATH="$folder/site" python3 "$folder/show.py"
