#!/usr/bin/env bash
# Trains GPT-2 124M on real text in two precisions and compares their loss curves: Webster's dictionary of 1913 as bytes
# (Debian's package dict-gcide), 1,050 steps of 16 samples of 1,024 tokens. One rank, without daemons; meant for a GPU.
# Usage: text_run.sh prepare DIR                     the data set, below DIR; needs dict-gcide, or its gcide.dict.dz in DIR
#        text_run.sh train DIR PRECISION [SECONDS]   trains, or goes on; stops after SECONDS with a checkpoint
#        text_run.sh compare DIR A B                 means of 50 steps of both; fails where they differ by more than 0.02
# MT_BIN: folder of mtctl and mt-rank (build/cuda-release/bin); MT_RUN: a program to run them with
set -euo pipefail
usage() { sed -n 4,7p "$0" >&2; exit 2; }
[[ $# -ge 2 ]] || usage
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${MT_BIN:-$root/build/cuda-release/bin}
command=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)

program() { # name, arguments
  local name=$1; shift
  if [[ -n "${MT_RUN:-}" ]]; then "$MT_RUN" "$name" "$@"; else "$bin/$name" "$@"; fi
}

prepare() {
  local dictionary=$dir/gcide.dict.dz
  [[ -e $dictionary ]] || dictionary=/usr/share/dictd/gcide.dict.dz
  [[ -e $dictionary ]] || { echo "text_run: no gcide.dict.dz: install dict-gcide" >&2; exit 2; }
  # A headword at the beginning of a line behind an empty one starts a document.
  python3 - "$dictionary" "$dir/dictionary.txt" <<'PY'
import gzip, itertools, sys
source, target = sys.argv[1:]
empty = True
with gzip.open(source, "rt", encoding="utf-8", errors="replace") as lines, open(target, "w") as out:
    for line in itertools.islice(lines, 400_000):
        if empty and line[:1].isalpha():
            out.write("%\n")
        out.write(line)
        empty = not line.strip()
PY
  ls -l "$dir/dictionary.txt"
  program mtctl data prepare --input "$dir/dictionary.txt" --separator % --append-eod --shuffle-documents --seed 1234 \
    --output "$dir/dictionary_text_document" --overwrite
}

train() { # precision, seconds
  cat > "$dir/job.yaml" <<'YAML'
name: dictionary
model: {preset: gpt2-124m, vocab_size: 50257, hidden_dropout: 0, attention_dropout: 0}
data: {path: [dictionary_text_document], split: "969,30,1", tokenizer: {type: byte}}
training: {train_iters: 1050, micro_batch_size: 16, global_batch_size: 16, seed: 1234, log_every: 100, eval: {every_iters: 400, iters: 10}}
optimizer: {lr: 3.0e-4, min_lr: 3.0e-5, warmup: 100, decay: cosine, weight_decay: 0.1, clip_grad: 1.0}
YAML
  local limit=()
  [[ -z "${2:-}" ]] || limit=(--set "training.exit_after=${2}s")
  program mt-rank --standalone "$dir/job.yaml" --data-root "$dir" --checkpoint-root "$dir" --cache-root "$dir/cache" \
    --metrics-file "$dir/$1.jsonl" --set "training.precision=$1" --set "checkpoint.directory=checkpoint-$1" \
    --set "name=dictionary-$1" "${limit[@]}" ${MT_SET:-}
}

compare() { # precisions
  python3 - "$dir" "$@" <<'PY'
import json, sys
dir, *names = sys.argv[1:]
curves = []
for name in names:
    steps = {r["step"]: r["loss"] for r in map(json.loads, open(f"{dir}/{name}.jsonl")) if r["kind"] == "step"}
    assert sorted(steps) == list(range(1, len(steps) + 1)), f"{name}: steps are missing"
    curves.append(steps)
last = min(map(len, curves))
assert last >= 1000, f"{last} steps, 1,000 are needed"
worst = 0
print("| steps | %s | %s | difference |\n|---|---|---|---|" % tuple(names))
for begin in range(1, last - 48, 50):
    a, b = (sum(c[s] for s in range(begin, begin + 50)) / 50 for c in curves)
    print("| %d-%d | %.4f | %.4f | %+.4f |" % (begin, begin + 49, a, b, a - b))
    if begin > 100:
        worst = max(worst, abs(a - b))
print("worst difference after step 100: %.4f nats (bound 0.02)" % worst)
sys.exit(0 if worst <= 0.02 else 1)
PY
}

shift 2
case "$command" in
  prepare) prepare ;;
  train) [[ $# -ge 1 ]] || usage; train "$@" ;;
  compare) [[ $# -eq 2 ]] || usage; compare "$@" ;;
  *) usage ;;
esac
