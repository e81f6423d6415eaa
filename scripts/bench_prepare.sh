#!/bin/bash
# How fast `mtctl data prepare` writes tokens, against what the disk takes: N pairs in turn of `dd conv=fsync` of as many bytes and of
# prepare of a text of so many MB to bytes, both below DIR, and each pair's ratio. docs/benchmarks.md has the figures.
# Usage: bench_prepare.sh DIR [MB=1000] [PAIRS=5] [THREADS=2]
set -euo pipefail
dir=$1 mb=${2:-1000} pairs=${3:-5} threads=${4:-2}
bin=$(cd "$(dirname "$0")/.." && pwd)/build/$(bash "$(dirname "$0")/preset.sh")/bin
work=$(mktemp -d "$dir/bench-prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT
seconds() { python3 -c 'import subprocess, sys, time
begin = time.monotonic(); subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(f"{time.monotonic() - begin:.2f}")' "$@"; }

python3 - "$work/text" "$mb" <<'PY'
import random, sys
random.seed(1)
words = ["".join(random.choices("etaoinshrdlucmfw", k=random.randint(1, 10))) for _ in range(5000)]
block = "\n".join(" ".join(random.choices(words, k=12)) for _ in range(15000)).encode()[:1000000 - 3] + b"\n%\n"
with open(sys.argv[1], "wb") as out:
    for _ in range(int(sys.argv[2])):
        out.write(block)
PY
cat "$work/text" > /dev/null  # both runs find it in memory, or neither
echo "pair  dd_s  prepare_s  ratio of rates"
for ((pair = 1; pair <= pairs; ++pair)); do
  rm -f "$work"/out* && sync
  prepare=$(seconds "$bin/mtctl" data prepare --input "$work/text" --separator % --threads "$threads" --output "$work/out")
  bytes=$(stat -c %s "$work/out.bin")
  rm -f "$work"/out* && sync
  dd=$(seconds dd if=/dev/zero "of=$work/out" bs=4M iflag=count_bytes "count=$bytes" conv=fsync)
  echo "$pair $dd $prepare" | awk '{printf "%4d  %5.2f  %9.2f  %.2f\n", $1, $2, $3, $2 / $3}'
done
