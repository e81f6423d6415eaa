"""The tokenizer.json that PyPI's tokenizers trains: byte-level BPE over all 256 bytes, each text as a whole.

    peer_train.py OUT --vocab-size N --min-count N --pattern gpt2, llama3 or REGEX [--special TEXT...] --input TEXT...

The package of tests/deploy/pypi/tokenizers.txt is found by PYTHONPATH. golden/trained.json is of `--vocab-size 700 --min-count 0
--pattern llama3 --special "<|endoftext|>" on "<|a b|>" --input golden/text.txt`.
"""
import argparse
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def pre_tokenizer(pattern):
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    split = pre_tokenizers.Split(Regex(LLAMA3 if pattern == "llama3" else pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--min-count", type=int, required=True)
    parser.add_argument("--pattern", required=True)
    parser.add_argument("--special", nargs="*", default=[])
    parser.add_argument("--input", nargs="+", required=True)
    args = parser.parse_args()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(args.pattern)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=args.vocab_size, min_frequency=args.min_count, special_tokens=args.special,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    # train() would read the files line by line, and no piece would have two line ends.
    tokenizer.train_from_iterator((pathlib.Path(text).read_bytes().decode() for text in args.input), trainer)
    tokenizer.save(args.out)


if __name__ == "__main__":
    main()
