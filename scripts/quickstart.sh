#!/usr/bin/env bash
# One command from a clean clone to a trained model: installs the packages that this needs, builds the programs (with the CUDA
# backend where there is a GPU), makes data sets from Debian's fortunes, as bytes and as tokens of a vocabulary that it trains on them,
# starts a coordinator and a worker here, trains a small GPT through them on one or two GPUs if there are any, else on four CPU slots
# (TP 2 x PP 2), on what has the lower loss in bits per byte after a few seconds of each, has it write three texts, and stops
# everything again.
# Usage: quickstart.sh [--fresh]     all state lies in .quickstart/ below the clone
#   --fresh   forget earlier runs; without it an interrupted run goes on from its last checkpoint
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
state=$root/.quickstart
preset=$(bash scripts/preset.sh --run)
bin=$root/build/$preset/bin
trial_s=7
vocabulary=$state/data/fortunes.json
choice=$state/bytes-or-tokens  # the one that the run trains on, then what both came to

say() { printf '\n== %s\n' "$*"; }

case "${1:-}" in
  "") ;;
  --fresh) rm -rf "$state/checkpoints" "$choice" ;;
  *) echo "usage: $0 [--fresh]" >&2; exit 2 ;;
esac

say "packages"
bash scripts/setup.sh --programs
say "build ($preset)"
mkdir -p build
# Tests need packages of their own; who builds them keeps them.
options=(-DMT_TESTS=OFF)
[ ! -e "build/$preset/CMakeCache.txt" ] || options=()
cmake --preset "$preset" "${options[@]}" > "build/$preset.configure.log" 2>&1 || { cat "build/$preset.configure.log" >&2; exit 1; }
cmake --build --preset "$preset" -j "$(nproc)" --target mt_programs

mkdir -p "$state/data"
# Names with a dot are links and indices of the same files.
mapfile -t inputs < <(find /usr/share/games/fortunes -maxdepth 1 -type f ! -name '*.*' | LC_ALL=C sort)
prepare() {
  "$bin/mtctl" data prepare --input "${inputs[@]}" --separator % --append-eod --shuffle-documents --seed 1234 --overwrite "$@"
}
say "data: Debian's fortunes, one document per record, as bytes"
prepare --output "$state/data/fortunes_text_document"
say "the same as tokens of a vocabulary that is trained on them"
"$bin/mtctl" tokenizer train --input "${inputs[@]}" --vocab-size 2048 --output "$vocabulary" --overwrite
prepare --tokenizer hf --tokenizer-file "$vocabulary" --output "$state/data/fortunes_token_document"

export XDG_STATE_HOME=$state/state
stop() { "$bin/mtctl" dev down > /dev/null 2>&1 || true; }
trap stop EXIT
say "coordinator and worker on loopback"
"$bin/mtctl" dev up --data-root "$state/data" --checkpoint-root "$state/checkpoints"
"$bin/mtctl" get nodes
gpus=$("$bin/mtctl" -o json get nodes | python3 -c '
import json, sys
slots = [slot for node in json.load(sys.stdin)["nodes"] for slot in node["slots"]]
print(sum(slot["device"] == "GPU" and not slot["out_of_order"] for slot in slots))
')

# One job file: a GPU trains it by itself, two train a half of each batch (two microbatches are a batch).
layout=()
where="on CPU slots"
if [ "$gpus" -gt 1 ]; then
  layout=(--set parallel.tensor=1 --set parallel.pipeline=1 --set parallel.data=2)
  where="on two GPUs"
elif [ "$gpus" -gt 0 ]; then
  layout=(--set parallel.tensor=1 --set parallel.pipeline=1)
  where="on a GPU"
fi

# The job file trains on bytes. Of tokens a step costs more time: fewer of them take as long.
as_tokens=(--set "data.path=[fortunes_token_document]" --set data.tokenizer.type=hf
           --set "data.tokenizer.file=$(basename "$vocabulary")" --set training.train_iters=1000)

# Trains for $trial_s seconds and prints the bits per byte of the last evaluation in them ("none": there was none).
try() {
  local name=$1
  shift
  "$bin/mtctl" submit -f deploy/examples/quickstart.yaml "${layout[@]}" "$@" --set "name=$name" --set "training.exit_after=${trial_s}s" \
    --set training.eval.every_iters=20 --set training.eval.iters=10 --set optimizer.warmup=10 \
    --set checkpoint.directory=none --set checkpoint.every_iters=0 --follow > "$state/$name.log" 2>&1 ||
    { local code=$?; cat "$state/$name.log" >&2; return "$code"; }
  "$bin/mtctl" -o json describe "$name" | python3 -c '
import json, sys
print(json.load(sys.stdin).get("last_eval", {}).get("bits_per_byte", "none"))
'
}

# A run goes on with what it began with; those of earlier versions began with bytes.
if [ ! -e "$choice" ]; then
  if [ -e "$state/checkpoints/default/quickstart" ] || [ -e "$state/checkpoints/quickstart" ]; then
    echo bytes > "$choice"
  else
    say "bytes or tokens: $trial_s seconds of each, in bits per byte"
    bytes=$(try quickstart-bytes)
    tokens=$(try quickstart-tokens "${as_tokens[@]}")
    python3 -c '
import sys
bits = dict(bytes=sys.argv[1], tokens=sys.argv[2])
known = {name: float(value) for name, value in bits.items() if value != "none"}
better = min(known, key=known.get) if len(known) == 2 else "bytes"
print(better)
for name, value in bits.items():
    print(name, f"{known[name]:.4f}" if name in known else "not evaluated in time")
' "$bytes" "$tokens" > "$choice.new"
    mv "$choice.new" "$choice"
    tail -n +2 "$choice"
  fi
fi
better=$(head -n 1 "$choice")
data=()
text=(--prompt "The ")
next=(--prompt '"I "')
if [ "$better" = tokens ]; then
  data=("${as_tokens[@]}")
  # The blank between words is the next token's.
  text=(--prompt "The")
  next=(--prompt '"I"')
fi

say "training $where, on $better"
code=0
"$bin/mtctl" submit -f deploy/examples/quickstart.yaml "${layout[@]}" "${data[@]}" --follow || code=$?

say "summary"
steps=$state/steps.jsonl
"$bin/mtctl" metrics quickstart --all -o jsonl > "$steps" || true
job=$("$bin/mtctl" -o json describe quickstart)
python3 -c '
import json, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
seconds = sum(step["step_seconds"] for step in steps)
job = json.load(sys.stdin)
tried = [line.strip() for line in open(sys.argv[2])][1:]
last, first, ev = job.get("last_step", {}), job.get("first_step", {}), job.get("last_eval", {})
saved = job.get("last_checkpoint") or job.get("resumed_checkpoint", {})
started, ended = job["started_us"], job["finished_us"]
print("state            ", job["state"], job["message"])
if first.get("step"):
    print("loss             ", "%.4f at step %d -> %.4f at step %d" % (first["loss"], first["step"], last["loss"], last["step"]))
if seconds:
    print("mean speed       ", "%.0f tokens/s" % (sum(step["tokens"] for step in steps) / seconds))
if job["resumed_from_step"]:
    print("resumed from step", job["resumed_from_step"])
if ev:
    bits = ", %.4f bits per byte" % ev["bits_per_byte"] if "bits_per_byte" in ev else ""
    print("validation loss  ", "%.4f nats per token%s, over %d tokens" % (ev["loss"], bits, ev["tokens"]))
if tried:
    print("tried at first   ", "; ".join(tried), "(bits per byte after %s s of each)" % sys.argv[3])
if started and ended:
    print("took             ", "%.0f s" % ((ended - started) / 1e6))
if saved:
    print("checkpoint       ", saved["path"])
' "$steps" "$choice" "$trial_s" <<< "$job"
say "its curve"
"$bin/mtctl" plot quickstart || true
if [ "$code" = 0 ]; then
  say "what it writes: three samples"
  "$bin/mtctl" generate quickstart "${text[@]}" --samples 3 --temperature 0.7 --tokens 60 --wait || code=$?
fi
# A clone in which an earlier version trained keeps the directory that it has.
directory=$(python3 -c 'import json, sys; print(json.load(sys.stdin).get("checkpoint_path") or sys.argv[1])' \
  "$state/checkpoints/default/quickstart" <<< "$job")
cat <<TEXT

What next (mtctl plot, follow, describe and --help are yours while the cluster is up):
  export PATH=$bin:\$PATH XDG_STATE_HOME=$state/state
  mtctl dev up && mtctl plot quickstart --smooth 20     # the same cluster again, with this run; mtctl dev down stops it
  mtctl generate $directory ${next[*]}    # what it writes; needs no cluster
  mtctl init llama -f my-job.yaml                      # a job file of your own: edit it, then
  mtctl submit -f my-job.yaml --follow
Once more: bash scripts/quickstart.sh goes on where it was interrupted, or has nothing to train and evaluates; --fresh trains anew.
TEXT
exit $code
