// A checkpoint as a folder that Hugging Face's transformers loads: config.json,
// generation_config.json, safetensors (one file, or shards and their index), and the tokenizer's
// files. Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/inspect/place.h"
#include "worker/hf/family.h"

namespace mt::hf {

// What each thread of an export keeps in memory at once of weights, three times: source, result,
// and what was transposed; besides, the manifests. Four threads are within 1 GiB.
inline constexpr int64_t kBufferBytes = int64_t{64} << 20;
inline constexpr int kThreads = 4;

struct ExportArgs {
  checkpoint::CheckpointPlace from;
  std::string to;     // the folder; made if it is missing
  std::string dtype;  // "float32", "bfloat16", "float16", "float64"; empty: as the job trains
  int64_t max_shard_bytes = 5'000'000'000;
  bool overwrite = false;                    // replace a model that is there
  std::map<std::string, std::string> texts;  // more files, by name: the tokenizer's
  std::optional<int64_t> eos;                // the end-of-document token
  int64_t buffer_bytes = kBufferBytes;
  int threads = kThreads;
  // After each piece; may be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

struct ExportResult {
  Family family = Family::kGpt2;
  std::string dtype;
  int64_t bytes = 0;               // of tensors
  std::vector<std::string> files;  // by name
};

// Writes every file beside its place (new_files.h), then gives all their names; what was there of
// the other form (an index, or model.safetensors) and of shards goes. Weights are rounded once to
// `dtype`; where it is not that of the checkpoint's fp32 masters the exported ones are those that a
// 16-bit job computes with. Errors: FamilyOf's and ConfigText's, before anything is written;
// kInvalidArgument: another dtype; kAlreadyExists: a model is there, or has come to be there when
// all is written, and not overwrite; kResourceExhausted: no room; checkpoint::ReadWholeManifest's;
// I/O errors. After an error the folder, which may have been made, has no new file, unless it
// failed as names were given.
StatusOr<ExportResult> Export(const ExportArgs& args);

}  // namespace mt::hf
