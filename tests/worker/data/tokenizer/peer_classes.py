"""Which characters of a text a regular expression of PyPI's tokenizers takes for one of a class.

    peer_classes.py TEXT FOLDER CLASS...    writes FOLDER/0, FOLDER/1, ... : a byte a character for each class, 1 where it is of it

The packages of tests/deploy/pypi/tokenizers.txt are found by PYTHONPATH.
"""
import pathlib
import sys

from tokenizers import Regex, pre_tokenizers


def main():
    text = pathlib.Path(sys.argv[1]).read_bytes().decode()
    for number, of_class in enumerate(sys.argv[3:]):
        split = pre_tokenizers.Split(Regex(of_class + "+"), "removed")
        marks = bytearray(b"\1" * len(text))
        for _, (begin, end) in split.pre_tokenize_str(text):
            marks[begin:end] = bytes(end - begin)
        (pathlib.Path(sys.argv[2]) / str(number)).write_bytes(marks)


if __name__ == "__main__":
    main()
