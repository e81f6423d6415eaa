"""Speed of GPT-2's encoding beside PyPI's tiktoken and tokenizers in one run, for docs/benchmarks.md: rounds in which each has its turn,
all on one core and in one thread.

    MT_BIN=build/cuda-release/bin python3 bench_peers.py TEXT    (a file of English; see english_text)
    python3 bench_peers.py --english FOLDER... > TEXT            the distinct lines of text files below the folders
"""
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[2]), str(HERE.parents[2] / "deploy")]
import pypi_packages  # noqa: E402

ROUNDS = 3
PEERS = ("tiktoken", "huggingface")
PROSE = re.compile(r"[A-Za-z' ,.;:()\"-]{40,}$")


def english_text(folders):
    """Lines of mostly words, each once, in the order of the files."""
    seen = set()
    for path in sorted(p for folder in folders for p in pathlib.Path(folder).rglob("*") if p.is_file()):
        try:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        except (OSError, EOFError):
            continue
        if b"\0" in data[:4096]:
            continue
        for line in data.decode(errors="ignore").splitlines():
            line = line.strip()
            if PROSE.match(line) and line not in seen:
                seen.add(line)
                yield line


def main():
    if sys.argv[1] == "--english":
        for line in english_text(sys.argv[2:]):
            print(line)
        return
    text = pathlib.Path(sys.argv[1])
    bench = pathlib.Path(os.environ["MT_BIN"]) / "mt_tokenizer_bench"
    peer_env = pypi_packages.environment(tempfile.gettempdir(), "tokenizers")
    peer_program = [sys.executable, HERE / "peer_ids.py"]
    folder = tempfile.mkdtemp()
    subprocess.run([*peer_program, "files", folder], check=True, env=peer_env)
    files = [pathlib.Path(folder) / name for name in ("encoder.json", "vocab.bpe")]
    size = text.stat().st_size / 1e6
    core = ["taskset", "-c", str(max(os.sched_getaffinity(0)))]
    for _ in range(ROUNDS):
        ours = subprocess.run([*core, bench, text, *files], check=True, capture_output=True, text=True).stdout.splitlines()
        best = max(float(line.split()[0]) for line in ours)
        told = [f"megatrain {best:.1f} MB/s (first run {ours[0].split()[0]})"]
        for peer in PEERS:
            seconds = subprocess.run([*core, *peer_program, peer, text, os.devnull], check=True, capture_output=True, text=True,
                                     env=peer_env).stdout
            rate = size / float(seconds)
            told.append(f"{peer} {rate:.1f} MB/s, ratio {best / rate:.1f}")
        print(", ".join(told))


if __name__ == "__main__":
    main()
