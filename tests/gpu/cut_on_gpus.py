#!/usr/bin/env python3
"""Trains one small model cut over several GPUs in many ways, and compares each curve with that of one GPU.

    MT_BIN=build/cuda-release/bin tests/gpu/cut_on_gpus.py --data-root DIR --data PREFIX --gpus 2 --results results.jsonl

Every run is `mt-rank --standalone` with one process a GPU. A row of the results has the cut, the precision and the largest difference
of a step's loss, relative to the loss; a run that already stands in the results file is not repeated. Exit code 0: all agree within
the bounds (fp32 1e-4, 16 bit 1e-2); 1: some do not, or a run failed.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

BOUNDS = {"fp32": 1e-4, "bf16": 1e-2, "fp16": 1e-2}

JOB = """
name: cut
model: {{layers: 4, hidden_size: 256, heads: 4, seq_length: 128, hidden_dropout: 0.1, attention_dropout: 0, {model}}}
data: {{path: [{data}], split: "90,10,0", tokenizer: {{type: byte}}}}
training: {{micro_batch_size: 2, global_batch_size: 16, train_iters: {steps}, precision: {precision}, log_every: 1000, eval: {{every_iters: 0}}{training}}}
optimizer: {{lr: 3.0e-4, warmup: 10, clip_grad: 1.0}}
checkpoint: {{directory: none}}
parallel: {{{parallel}}}
placement: {{device: gpu}}
"""

# name: fields of `parallel`, GPUs, fields of `training`.
CUTS = {
    "dp2 zero0": ("data: 2, zero_stage: 0", 2, ""),
    "dp2 zero1": ("data: 2, zero_stage: 1, bucket_size: 1MiB", 2, ""),
    "dp2 zero1 no overlap": ("data: 2, zero_stage: 1, overlap: {grad_reduce: false, param_gather: false}", 2, ""),
    "tp2": ("tensor: 2, data: 1, sequence_parallel: true", 2, ""),
    "tp2 no sp": ("tensor: 2, data: 1, sequence_parallel: false", 2, ""),
    "tp2 recompute": ("tensor: 2, data: 1", 2, ", recompute: {mode: full}"),
    "pp2": ("pipeline: 2, data: 1", 2, ""),
    "pp2 interleaved": ("pipeline: 2, virtual_stages: 2, data: 1", 2, ""),
    "pp2 gpipe": ("pipeline: 2, data: 1, schedule: gpipe", 2, ""),
    "pp2 recompute": ("pipeline: 2, data: 1", 2, ", recompute: {mode: selective}"),
    "tp2 pp2": ("tensor: 2, pipeline: 2, data: 1", 4, ""),
    "tp2 dp2": ("tensor: 2, data: 2, zero_stage: 1", 4, ""),
    "pp2 dp2": ("pipeline: 2, data: 2, zero_stage: 1", 4, ""),
    "tp4": ("tensor: 4, data: 1", 4, ""),
    "pp4": ("pipeline: 4, data: 1", 4, ""),
    "dp4": ("data: 4, zero_stage: 1, bucket_size: 1MiB", 4, ""),
    "dp4 zero0": ("data: 4, zero_stage: 0", 4, ""),
    "tp2 pp2 interleaved": ("tensor: 2, pipeline: 2, virtual_stages: 2, data: 1", 4, ""),
    "tp2 pp2 no sp recompute": ("tensor: 2, pipeline: 2, data: 1, sequence_parallel: false", 4, ", recompute: {mode: full}"),
}
MODELS = {"gpt": "", "llama": "kv_heads: 2, ffn_size: 512, position: rope, norm: rmsnorm, activation: swiglu, bias: false, "
                              "tie_embeddings: false"}


class Failed(Exception):
    pass


class Cutter:
    def __init__(self, args):
        self.args = args
        self.binary = pathlib.Path(os.environ["MT_BIN"]) / "mt-rank"
        self.prefix = os.environ.get("MT_RUN", "").split()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cut-"))

    def losses(self, name, model, precision, cut):
        """The losses of a run by step."""
        parallel, gpus, training = cut
        place = self.folder / re.sub(r"\W+", "-", f"{name}-{model}-{precision}")
        place.mkdir()
        scale = ", loss_scale: {initial: 4194304, window: 10}" if precision == "fp16" else ""
        (place / "job.yaml").write_text(JOB.format(
            model=MODELS[model], data=self.args.data, steps=self.args.steps, precision=precision, training=training + scale,
            parallel=parallel))
        command = [str(self.binary), "--standalone", str(place / "job.yaml"), "--ranks", str(gpus), "--data-root", self.args.data_root,
                   "--checkpoint-root", str(place / "checkpoints"), "--metrics-file", str(place / "metrics.jsonl"),
                   "--cache-root", str(self.folder)]
        if self.prefix:
            command = [*self.prefix, self.binary.name, *command[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.args.limit, check=False)
        (place / "log").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise Failed(f"exit code {done.returncode}: " + " | ".join((done.stdout + done.stderr).splitlines()[-4:])[-1500:])
        rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
        found = {row["step"]: row for row in rows if row["kind"] == "step"}
        if sorted(found) != list(range(1, self.args.steps + 1)):
            raise Failed(f"steps {sorted(found)[:3]} to {sorted(found)[-1:]}")
        return found

    def compare(self, name, model, precision, base):
        began = time.monotonic()
        row = {"cut": name, "model": model, "precision": precision}
        try:
            mine = self.losses(name, model, precision, CUTS[name])
        except (Failed, subprocess.TimeoutExpired) as error:
            return row | {"ok": False, "error": str(error)}
        worst = 0.0
        for step, one in base.items():
            if math.isfinite(float(one["loss"])) != math.isfinite(float(mine[step]["loss"])):
                return row | {"ok": False, "error": f"step {step}: {one['loss']} on one GPU, {mine[step]['loss']} here"}
            if math.isfinite(float(one["loss"])):
                worst = max(worst, abs(float(mine[step]["loss"]) - float(one["loss"])) / float(one["loss"]))
        skipped = sum(bool(r.get("skipped")) for r in mine.values()), sum(bool(r.get("skipped")) for r in base.values())
        return row | {"ok": worst <= BOUNDS[precision] and skipped[0] == skipped[1], "worst": worst, "steps": len(mine),
                      "skipped": skipped[0], "last_loss": float(mine[max(mine)]["loss"]), "seconds": round(time.monotonic() - began, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a run")
    parser.add_argument("--only", default="", help="cuts whose name has this")
    parser.add_argument("--precisions", default="fp32,bf16,fp16")
    parser.add_argument("--models", default="gpt,llama")
    parser.add_argument("--results", required=True)
    args = parser.parse_args()
    results = pathlib.Path(args.results)
    known = {(r["cut"], r["model"], r["precision"]) for r in map(json.loads, results.read_text().splitlines()) if r["ok"]} \
        if results.exists() else set()
    cutter = Cutter(args)
    all_ok = True
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        kinds = [(model, precision) for model in args.models.split(",") for precision in args.precisions.split(",")]
        bases = dict(zip(kinds, pool.map(lambda kind: cutter.losses("one", *kind, ("data: 1", 1, "")), kinds)))
        todo = [(name, *kind) for kind in kinds for name, cut in CUTS.items()
                if cut[1] <= args.gpus and args.only in name and (name, *kind) not in known]
        for row in pool.map(lambda what: cutter.compare(*what, bases[what[1:]]), todo):
            print(json.dumps(row), flush=True)
            all_ok &= row["ok"]
            with results.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
    sys.exit(0 if all_ok else 1)


if __name__ == "__main__":
    main()
