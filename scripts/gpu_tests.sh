#!/usr/bin/env bash
# Runs a suite on a host with GPUs and appends what came out to a file of results, a JSON line each: docs/results/ keeps them. What has
# passed there at the same commit is not run again, so that a run that was cut off goes on.
# Usage: gpu_tests.sh SUITE RESULTS [NAME...]     NAME: only these of the suite
#   tests   one GPU: every GPU test, a program or a part of one a line
#   pair    two GPUs: links between stages; a model cut in many ways against one GPU; jobs held, saved, resumed, cancelled, on one node and on two; ranks killed
#   quad    four GPUs: jobs over tensor ranks, stages and replicas at once, held, saved, resumed, cancelled; ranks killed
#   speed   one GPU: the benchmark jobs of deploy/examples
#   speed-pair   two GPUs: the same over both, between two runs on one (A B B A)
# MT_LARGE_DATA: data of text_run.sh prepare; then pair trains 6.7 billion parameters, too (two GPUs of 140 GB, 128 GB of disk).
# MT_BIN: folder of the programs (build/cuda-release/bin). MT_COMMIT: where the sources are no checkout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage() { sed -n '/^# Usage/,/^# MT_BIN/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ $# -ge 2 ]] || usage
suite=$1 results=$(realpath -m "$2")
shift 2
only=" $* "
wanted=1
case "$suite" in
  tests | speed) ;;
  pair | speed-pair) wanted=2 ;;
  quad) wanted=4 ;;
  *) usage ;;
esac
found=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU') || true
[[ $found -ge $wanted ]] || { echo "gpu_tests: $suite wants $wanted GPU(s), and nvidia-smi lists $found" >&2; exit 2; }
bin=$(realpath "${MT_BIN:-build/cuda-release/bin}")
export MT_BIN=$bin PYTHONDONTWRITEBYTECODE=1
commit=${MT_COMMIT:-$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD || echo +)}
mkdir -p "$(dirname "$results")"
touch "$results"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

record() { # name, exit code, seconds, file of output, command...
  python3 - "$commit" "$suite" "$@" >> "$results" <<'PYTHON'
import json, subprocess, sys, time
commit, suite, name, code, seconds, said, *command = sys.argv[1:]
smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False)
lines = open(said, errors="replace").read().splitlines()
print(json.dumps({"commit": commit, "suite": suite, "name": name, "ok": code == "0", "seconds": int(seconds),
                  "date": time.strftime("%Y-%m-%d", time.gmtime()), "gpus": smi.stdout.splitlines(), "command": " ".join(command),
                  "said": [line for line in lines if line][-40:]}))
PYTHON
}

stands() { # name
  python3 - "$commit" "$suite" "$1" "$results" <<'PYTHON'
import json, sys
commit, suite, name, path = sys.argv[1:]
rows = map(json.loads, open(path))
sys.exit(not any((r["commit"], r["suite"], r["name"], r["ok"]) == (commit, suite, name, True) for r in rows))
PYTHON
}

run() { # name, command...
  local name=$1 code=0 begin=$SECONDS
  [[ $only == "  " || $only == *" $name "* ]] || return 0
  if stands "$name"; then
    echo "$name: stands in $results"
    return 0
  fi
  "${@:2}" > "$work/said" 2> "$work/log" || code=$?
  [[ $code == 0 ]] || tail -n 30 "$work/log" >> "$work/said"
  record "$name" "$code" $((SECONDS - begin)) "$work/said" "${@:2}"
  echo "$name: $([[ $code == 0 ]] && echo passed || echo "failed ($code)"), $((SECONDS - begin)) s"
  [[ $code == 0 ]] || { tail -n 20 "$work/said"; failed=1; }
}

shards() { # program, number
  for ((i = 0; i < $2; ++i)); do
    run "$1.$i" env GTEST_TOTAL_SHARDS="$2" GTEST_SHARD_INDEX=$i "$bin/$1" --gtest_brief=1
  done
}

bench() { # name, job, options...
  run "$1" "$bin/mt-rank" --standalone "deploy/examples/bench-$2_gpu.yaml" --bench "${@:3}"
}

batch_of() { # job
  local key found=""
  for key in global_batch_size micro_batch_size; do
    found=${found:-$(sed -n "s/.*$key: *\([0-9]*\).*/\1/p" "$1")}
  done
  echo "$found"
}

case "$suite" in
  tests)
    shards mt_gpu_tests 8
    shards mt_gpu_train_tests 2
    shards mt_gpu_recordings_tests 1
    run tensor-ranks-of-one-gpu python3 tests/gpu/tensor_members.py
    ;;
  pair)
    mkdir "$work/data"
    seq 1 20000 | sed 's/.*/{"text": "the number & and the next"}/' > "$work/lines"
    "$bin/mtctl" data prepare --input "$work/lines" --jsonl-key text --append-eod --output "$work/data/text"
    run members python3 tests/gpu/kill_members.py
    run links python3 tests/gpu/link_members.py --kills 30
    run links-of-one-gpu python3 tests/gpu/link_members.py --gpus 1 --kills 10
    run tensor-ranks python3 tests/gpu/tensor_members.py --gpus 2 --rounds 2000 --kills 30
    run cuts python3 tests/gpu/cut_on_gpus.py --data-root "$work/data" --data text --gpus 2 --results "$results.cuts"
    for class in TwoGpusTest TwoStagesTest TwoTensorRanksTest TwoNodesTest TwoNodesTwoStagesTest; do
      run "$class" env -C tests/e2e python3 -m unittest -v "test_two_gpus.$class"
    done
    [[ -z ${MT_LARGE_DATA:-} ]] || run LargeModelTest env -C tests/e2e python3 -m unittest -v test_two_gpus.LargeModelTest
    ;;
  quad)
    for class in FourGpusTest FourReplicasOfStagesTest; do
      run "$class" env -C tests/e2e python3 -m unittest -v "test_two_gpus.$class"
    done
    ;;
  speed)
    for job in 124m_s1024b32 350m_s1024b64 1558m_s1024b16 1.3b_s2048b8 tinyllama-1.1b_s2048b8; do bench "$job" "$job"; done
    ;;
  speed-pair)
    for job in 124m_s1024b32 1558m_s1024b16 1.3b_s2048b8; do
      batch=$(batch_of "deploy/examples/bench-${job}_gpu.yaml") # the same number of samples a GPU
      bench "$job.one.1" "$job"
      for turn in 1 2; do
        bench "$job.two.$turn" "$job" --ranks 2 --set parallel.data=2 --set "training.global_batch_size=$((2 * batch))"
      done
      bench "$job.one.2" "$job"
    done
    ;;
esac
exit "$failed"
