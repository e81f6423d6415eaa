#!/usr/bin/env bash
# What a layout costs on this machine: tokens per second of the quick start's model and of GPT-2 124M on one rank, two tensor
# parallel ranks, two pipeline stages and two replicas, and the share of the time that rank 0 spends in communication or waits
# for it. Random tokens, no checkpoints, ranks as processes over shared memory.
# Usage: bench_layouts.sh [quickstart | gpt2-124m | transports]...   the first two without an argument; needs a built release,
#        some ten minutes and a machine that does nothing else. transports: the quick start's model over shared memory and over
#        TCP, in four alternating runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rank=$PWD/build/$(bash scripts/preset.sh)/bin/mt-rank
[[ -x $rank ]] || { echo "$rank: not built; run scripts/test.sh or scripts/quickstart.sh first" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat > "$dir/quickstart.yaml" <<'YAML'
name: quickstart
model: {layers: 4, hidden_size: 128, heads: 4, seq_length: 64, vocab_size: 257}
data: {mock: true}
training: {train_iters: 120, micro_batch_size: 4, global_batch_size: 16}
optimizer: {lr: 1.0e-3}
checkpoint: {directory: none}
placement: {device: cpu}
YAML
cat > "$dir/gpt2-124m.yaml" <<'YAML'
name: gpt2-124m
model: {preset: gpt2-124m}
data: {mock: true}
training: {train_iters: 4, micro_batch_size: 1, global_batch_size: 4}
optimizer: {lr: 1.0e-4}
checkpoint: {directory: none}
placement: {device: cpu}
YAML

# Throws the first quarter of the steps away.
summary() { # metrics file, model, layout, threads per rank, file with the first layout's speed
  python3 - "$@" <<'PY'
import json, os, statistics, sys
path, model, layout, threads, first = sys.argv[1:]
steps = [r for r in map(json.loads, open(path)) if r["kind"] == "step"]
steps = steps[len(steps) // 4:]
seconds = statistics.median(r["step_seconds"] for r in steps)
total = sum(sum(r["phase_seconds"].values()) for r in steps)
share = {p: 100 * sum(r["phase_seconds"][p] for r in steps) / total for p in ("tp_comm", "pp_wait", "dp_comm")}
speed = steps[0]["tokens"] / seconds
if not os.path.exists(first):
    open(first, "w").write(repr(speed))
base = float(open(first).read())
print("| %-10s | %-12s | %7s | %8.0f | %5.2f | %7.1f %% | %7.1f %% | %7.1f %% |" %
      (model, layout, threads, speed, speed / base, share["tp_comm"], share["pp_wait"], share["dp_comm"]))
PY
}

extra=() # options of mt-rank
run() { # model, layout, threads per rank, ranks, overrides
  local model=$1 layout=$2 threads=$3 ranks=$4; shift 4
  local args=()
  for field in "placement.threads_per_rank=$threads" "$@"; do args+=(--set "$field"); done
  local metrics="$dir/$model-$layout-$threads.jsonl"
  rm -f "$metrics"
  "$rank" --standalone "$dir/$model.yaml" --ranks "$ranks" --metrics-file "$metrics" "${args[@]}" "${extra[@]}" 2> "$dir/err" ||
    { cat "$dir/err" >&2; exit 1; }
  summary "$metrics" "$model" "$layout" "$threads" "$dir/$model.first"
}

echo "| model      | layout       | threads | tokens/s | ratio |   tp_comm |   pp_wait |   dp_comm |"
echo "|------------|--------------|---------|----------|-------|-----------|-----------|-----------|"
[[ $# -gt 0 ]] || set -- quickstart gpt2-124m
transports() {
  for _ in 1 2 3 4; do
    run quickstart "1 rank" 1 1
    run quickstart "TP 2" 1 2 parallel.tensor=2
    run quickstart "TP 2 x PP 2" 1 4 parallel.tensor=2 parallel.pipeline=2
    extra=(--tcp-only)
    run quickstart "TP 2, TCP" 1 2 parallel.tensor=2
    run quickstart "TP x PP, TCP" 1 4 parallel.tensor=2 parallel.pipeline=2
    extra=()
  done
}

for model in "$@"; do
  if [[ $model == transports ]]; then transports; continue; fi
  run "$model" "1 rank" 1 1
  run "$model" "1 rank" 2 1
  run "$model" "TP 2" 1 2 parallel.tensor=2
  run "$model" "PP 2" 1 2 parallel.pipeline=2
  run "$model" "DP 2" 1 2 parallel.data=2
  run "$model" "DP 2, ZeRO-1" 1 2 parallel.data=2 parallel.zero_stage=1
done
