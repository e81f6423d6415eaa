#!/usr/bin/env bash
# What it takes to read a checkpoint in another layout: seconds until the slower of two ranks on CPU slots has read, checked and
# placed its state, saved and read in each of tensor parallel, pipeline and replicas under ZeRO-1. The files are in the page cache.
# Usage: bench_resume.sh [REPEATS]   3 without an argument; needs a built release, some 7 GB of disk, 12 GB of memory, and a
#        machine that does nothing else
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rank=${MT_RANK:-$PWD/build/$(bash scripts/preset.sh)/bin/mt-rank}
[[ -x $rank ]] || { echo "$rank: not built; run scripts/test.sh or scripts/quickstart.sh first" >&2; exit 2; }
repeats=${1:-3}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# 176 M parameters: 2.1 GB of masters and moments.
cat > "$dir/job.yaml" <<'YAML'
name: resume
model: {layers: 12, hidden_size: 1024, heads: 16, seq_length: 32, vocab_size: 24000}
data: {mock: true}
training: {train_iters: 1, micro_batch_size: 1, global_batch_size: 2}
optimizer: {lr: 1.0e-4}
placement: {device: cpu, threads_per_rank: 1}
YAML

declare -A layout=(
  [tp2]="parallel.tensor=2"
  [pp2]="parallel.pipeline=2"
  [dp2-zero1]="parallel.data=2 parallel.zero_stage=1"
)
layouts=(tp2 pp2 dp2-zero1)

run() { # directory of the checkpoints, layout; the log comes out
  local args=(--set "checkpoint.directory=$1") field
  for field in ${layout[$2]}; do args+=(--set "$field"); done
  "$rank" --standalone "$dir/job.yaml" --ranks 2 --checkpoint-root "$dir/checkpoints" "${args[@]}" 2>&1 ||
    { echo "the run failed: $1 $2" >&2; exit 1; }
}

mkdir "$dir/checkpoints"
for from in "${layouts[@]}"; do
  run "$from" "$from" > "$dir/log"
  cat "$dir/checkpoints/$from"/step-*/* > "$dir/file"
  echo "saved in $from: $(stat -c %s "$dir/file") bytes"
  rm "$dir/file"
done
# In turns, so that what disturbs one disturbs all.
for ((i = 0; i < repeats; ++i)); do
  for to in "${layouts[@]}"; do
    for from in "${layouts[@]}"; do
      run "$from" "$to" | grep 'read on all ranks' | sed -E "s/.* seconds=([0-9.e-]+).*/$to $from \1/" | head -n 1 >> "$dir/times"
    done
  done
done
python3 - "$dir/times" <<'PY'
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    to, source, seconds = line.split()
    runs[to, source].append(float(seconds))
print("| read in | saved in | s | over the same layout |")
print("|---|---|---|---|")
for (to, source), times in runs.items():
    middle = statistics.median(times)
    print("| %s | %s | %.2f | %.2f |" % (to, source, middle, middle / statistics.median(runs[to, to])))
PY
