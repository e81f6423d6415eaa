// A checkpoint as a model file that llm.c loads (train_gpt2cu -e FILE, train_gpt2 for version 3).
// Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "worker/checkpoint/inspect/place.h"
#include "worker/llmc/header.h"

namespace mt::llmc {

// What each thread of an export keeps in memory at once of weights, source and result each;
// besides, the manifests.
inline constexpr int64_t kBufferBytes = int64_t{64} << 20;
inline constexpr int kThreads = 4;

struct ExportArgs {
  checkpoint::CheckpointPlace from;
  // The file, whose name ends in ".bin": llm.c takes others for the description of a model to begin
  // with. Or a folder that is there, which gets model_SSSSSSSS.bin, named by the step.
  std::string to;
  // "float32" (version 3) or "bfloat16" (version 5); empty: bfloat16 where the job trains in it,
  // else float32.
  std::string dtype;
  bool overwrite = false;  // replace a file that is there
  int64_t buffer_bytes = kBufferBytes;
  int threads = kThreads;
  // After each piece; may be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

struct ExportResult {
  std::string file;  // with its folder
  Header header;
  int64_t bytes = 0;       // of the file
  std::string trained_in;  // torch's name of what the job computes with: "float64"
};

// Writes the file beside its place (worker/hf/new_files.h), then gives it its name. Weights are
// rounded once, where the checkpoint's are not of that type. Errors: HeaderOf's, before anything is
// written; kInvalidArgument: another dtype, another name; kAlreadyExists: the file is there, or has
// come to be there when the new one is whole, and not overwrite; kResourceExhausted: no room;
// checkpoint::ReadWholeManifest's; I/O errors. After an error there is no new file.
StatusOr<ExportResult> Export(const ExportArgs& args);

}  // namespace mt::llmc
