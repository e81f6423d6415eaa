#!/usr/bin/env python3
"""A small random GPT-2 as model files of llm.c (version 3, float32; version 5, bfloat16), written by the format's description with numpy,
with its logits and loss.

  llmc_numpy.py make OUT [LLMC]       writes OUT/small_f32.bin, OUT/small_bf16.bin, OUT/expected.json. With LLMC, a checkout of llm.c, its
                                      own program (train_gpt2.c, built here with cc) loads the weights too, those of small_bf16.bin as
                                      version 3, since it reads no version 5; the logits are its, and have to be numpy's within 1e-4
  llmc_numpy.py check LLMC FILE LIKE  has llm.c load FILE, which mtctl exported in version 3, and compares its logits with those of
                                      "f32" or "bf16" (LIKE) in expected.json

Made with llm.c f1e2ace and numpy 1.24.2. CI reads the files and needs neither: it imports no llm.c.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

T, V, L, NH, C = 20, 100, 3, 2, 16  # positions, vocabulary, layers, heads, channels
VP = 128  # rows of the word table: the vocabulary padded to a multiple of 128

# Of llm.c: its forward pass over the tokens behind the file's name, and out come loss and logits.
PROGRAM = """
#define TESTING
#include "train_gpt2.c"
int main(int argc, char** argv) {
  GPT2 model;
  int inputs[64], targets[64], t = argc - 3;
  gpt2_build_from_checkpoint(&model, argv[1]);
  for (int i = 0; i < t; i++) { inputs[i] = atoi(argv[2 + i]); targets[i] = atoi(argv[3 + i]); }
  gpt2_forward(&model, inputs, targets, 1, t);
  FILE* out = fopen("logits", "wb");
  fwrite(&model.mean_loss, 4, 1, out);
  fwrite(model.acts.logits, 4, (size_t)t * model.config.padded_vocab_size, out);
  return fclose(out);
}
"""


def random_model(random):
    """The tensors by name, in the order of the file; those of layers stacked. Norms and biases too are no ones and zeros."""
    def normal(*shape, std=0.2, mean=0.0):
        return (mean + std * random.standard_normal(shape)).astype(np.float32)

    wte = np.zeros((VP, C), np.float32)
    wte[:V] = normal(V, C)
    return {"wte": wte, "wpe": normal(T, C),
            "ln1w": normal(L, C, mean=1), "ln1b": normal(L, C), "qkvw": normal(L, 3 * C, C, std=0.4), "qkvb": normal(L, 3 * C),
            "attprojw": normal(L, C, C), "attprojb": normal(L, C), "ln2w": normal(L, C, mean=1), "ln2b": normal(L, C),
            "fcw": normal(L, 4 * C, C, std=0.4), "fcb": normal(L, 4 * C), "fcprojw": normal(L, C, 4 * C), "fcprojb": normal(L, C),
            "lnfw": normal(C, mean=1), "lnfb": normal(C)}


def bf16_bits(values):
    """The upper halves of float32, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def rounded(model):
    return {name: (bf16_bits(v).astype(np.uint32) << 16).view(np.float32) for name, v in model.items()}


def file_bytes(model, version):
    header = np.zeros(256, "<i4")
    header[:8] = 20240326, version, T, V, L, NH, C, VP
    return header.tobytes() + b"".join((v.astype("<f4") if version == 3 else bf16_bits(v)).tobytes() for v in model.values())


def forward(model, tokens):
    """Logits [tokens, V] in float64."""
    m = {name: v.astype(np.float64) for name, v in model.items()}

    def norm(x, gain, shift):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + shift

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    n = len(tokens)
    x = m["wte"][tokens] + m["wpe"][:n]
    for i in range(L):
        qkv = norm(x, m["ln1w"][i], m["ln1b"][i]) @ m["qkvw"][i].T + m["qkvb"][i]
        q, k, v = (part.reshape(n, NH, C // NH).transpose(1, 0, 2) for part in np.split(qkv, 3, axis=-1))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(C // NH)
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        x = x + (softmax(scores) @ v).transpose(1, 0, 2).reshape(n, C) @ m["attprojw"][i].T + m["attprojb"][i]
        h = norm(x, m["ln2w"][i], m["ln2b"][i]) @ m["fcw"][i].T + m["fcb"][i]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h ** 3)))
        x = x + h @ m["fcprojw"][i].T + m["fcprojb"][i]
    return (norm(x, m["lnfw"], m["lnfb"]) @ m["wte"].T)[:, :V]


def mean_loss(logits, targets):
    top = logits.max(-1, keepdims=True)
    return float(np.mean(np.log(np.exp(logits - top).sum(-1)) + top[:, 0] - logits[np.arange(len(targets)), targets]))


def by_llmc(llmc, file, tokens):
    """Loss and logits [tokens - 1, V] of llm.c's own program."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "logits.c")
        source.write_text(PROGRAM)
        subprocess.run(["cc", "-O1", "-w", f"-I{llmc}", str(source), "-o", f"{folder}/program", "-lm"], check=True)
        subprocess.run([f"{folder}/program", str(pathlib.Path(file).resolve()), *map(str, tokens)], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        out = np.fromfile(f"{folder}/logits", "<f4")
    return float(out[0]), out[1:].reshape(len(tokens) - 1, -1)[:, :V]


def make(out, llmc=None):
    random = np.random.default_rng(20261130)
    model = random_model(random)
    tokens = [int(t) for t in random.integers(0, V, T + 1)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "small_f32.bin").write_bytes(file_bytes(model, 3))
    (out / "small_bf16.bin").write_bytes(file_bytes(model, 5))
    expected = {"tokens": tokens}
    for name, weights in (("f32", model), ("bf16", rounded(model))):
        logits = forward(weights, tokens[:-1])
        loss = mean_loss(logits, tokens[1:])
        if llmc is not None:
            with tempfile.NamedTemporaryFile(suffix=".bin") as file:
                file.write(file_bytes(weights, 3))
                file.flush()
                its_loss, its_logits = by_llmc(llmc, file.name, tokens)
            print(name, "llm.c and numpy differ by", np.abs(its_logits - logits).max(), abs(its_loss - loss))
            assert np.abs(its_logits - logits).max() < 1e-4 and abs(its_loss - loss) < 1e-5
            loss, logits = its_loss, its_logits
        expected[name] = {"loss": float(f"{loss:.9g}"), "logits": [float(f"{x:.9g}") for x in np.ravel(logits)]}
    (out / "expected.json").write_text(json.dumps(expected) + "\n")


def check(llmc, file, like):
    expected = json.loads(pathlib.Path(__file__).with_name("llmc").joinpath("expected.json").read_text())
    _, logits = by_llmc(llmc, file, expected["tokens"])
    difference = np.abs(np.ravel(logits) - np.array(expected[like]["logits"])).max()
    print(file, "differs by", difference)
    return difference < 1e-4


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), *sys.argv[3:4])
    else:
        sys.exit(not check(*sys.argv[2:5]))
