#!/usr/bin/env bash
# Runs the fuzzers of worker/data, worker/hf and worker/llmc side by side, each for so long from a new seed. Usage: fuzz.sh BUILD SECONDS
#   BUILD   a build folder (build/asan-ubsan); logs go to BUILD/fuzz
# Ends with what each has read, or with the last lines of those that failed: a failed expectation, a sanitizer's report, or a hang.
# tests/worker/data/corpus/README.md says what they begin with and how a failure is repeated.
set -euo pipefail
[[ $# == 2 && -d ${1:-} && ${2:-} =~ ^[0-9]+$ ]] || { echo "usage: $0 BUILD SECONDS" >&2; exit 2; }
build=$(cd "$1" && pwd)
seconds=$2

fuzzers=( # program:test
  mt_data_token_files_test:IdxFuzzTest.DamagedFilesAreRefusedOrRead
  mt_data_token_files_test:ShardFuzzTest.DamagedShardsAreRefusedOrRead
  mt_data_prepare_test:JsonTextTest.DamagedLinesAreRefusedOrReadAsAParserDoes
  mt_data_prepare_test:PrepareRecordFuzzTest.DamagedRecordsAreRefusedOrRead
  mt_tokenizer_fuzz_test:TokenizerFuzzTest.HfFiles
  mt_tokenizer_fuzz_test:TokenizerFuzzTest.ComponentsOfHfFiles
  mt_tokenizer_fuzz_test:TokenizerFuzzTest.ComponentsOfLlama2Files
  mt_tokenizer_fuzz_test:TokenizerFuzzTest.Gpt2Files
  mt_tokenizer_fuzz_test:TokenizerFuzzTest.Records
  mt_hf_test:HfFuzzTest.Configs
  mt_hf_test:HfFuzzTest.Shards
  mt_hf_test:HfFuzzTest.Indexes
  mt_llmc_test:LlmcFuzzTest.Headers
)

mkdir -p "$build/fuzz"
pids=()
trap 'kill "${pids[@]}" 2> /dev/null || true' EXIT
for fuzzer in "${fuzzers[@]}"; do
  log="$build/fuzz/${fuzzer#*:}.log"
  # A round takes milliseconds: what goes on long after its time hangs.
  MT_FUZZ_SECONDS=$seconds timeout --kill-after=5 $((seconds + 120)) "$build/bin/${fuzzer%%:*}" --gtest_filter="${fuzzer#*:}" \
    > "$log" 2>&1 &
  pids+=($!)
done

failed=0
for i in "${!fuzzers[@]}"; do
  status=0
  wait "${pids[$i]}" || status=$?
  name=${fuzzers[$i]#*:}
  log="$build/fuzz/$name.log"
  # A name that no test has any more passes as well.
  if [[ $status == 0 ]] && grep -q '^\[  PASSED  \] 1 test\.' "$log"; then
    printf '%-70s %s\n' "$name" "$(grep -E '^[0-9]+ rounds of seed' "$log" || echo "no rounds")"
  else
    failed=1
    printf '%s failed (status %s), %s ends:\n' "$name" "$status" "$log"
    grep -m 1 '^seed ' "$log" || true
    tail -40 "$log"
  fi
done
pids=()
exit "$failed"
