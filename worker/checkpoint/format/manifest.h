// The manifest of a checkpoint: what it holds, where each slice of each tensor lies, and everything
// besides tensors that a resumed run needs. It is written last, as JSON (FORMAT.md); a folder
// without a readable manifest is not a checkpoint. Plain values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::checkpoint {

// One rectangular part of a tensor, stored contiguously in one file.
struct SliceEntry {
  std::string file;             // name within the checkpoint's folder
  std::string tensor;           // its name in that safetensors file
  std::vector<int64_t> offset;  // of its first element, in the global tensor
  std::vector<int64_t> shape;
  std::string digest;  // XXH3-128 of its bytes, 32 hex digits
};

// A logical tensor, without padding and independent of the parallel layout. Keys are
// "weights/<parameter>", "exp_avg/<parameter>" and "exp_avg_sq/<parameter>".
struct TensorEntry {
  std::string dtype;  // safetensors' name: "F32", "F64"
  std::vector<int64_t> shape;
  std::vector<SliceEntry> slices;
};

// Content of the file manifest.json.
struct Manifest {
  int64_t step = 0;
  int64_t epoch = 0;  // directory epoch, as in the folder's name
  std::string job_uid;
  int64_t job_epoch = 0;  // epoch of the placement that saved; 0: standalone
  std::string job_name;
  int64_t parent_step = -1;  // the checkpoint this run resumed from; -1: none
  int64_t parent_epoch = -1;
  std::string created;  // UTC
  int64_t world_size = 0;
  std::string spec_json;  // the completed job, as a JSON object
  // Numbers of the run's state by name, from the StepScalars block. int64 and double are kept
  // apart, so that both are restored bit for bit.
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> reals;
  // Facts that a resume compares or reports, by name ("openblas_core", "threads_per_rank",
  // "data.train.idx_digest").
  std::map<std::string, std::string> facts;
  std::map<std::string, TensorEntry> tensors;
};

// The manifest as JSON text (FORMAT.md).
std::string ToJson(const Manifest& manifest);
// Parses a manifest from arbitrary bytes and checks its coverage. kDataLoss: damaged, with what is
// wrong and where; kFailedPrecondition: written in a newer format.
StatusOr<Manifest> ParseManifest(std::string_view json);
// Identifies a checkpoint by its content, because the manifest contains the digests of all slices:
// "xxh3:<32 hex digits>" over the manifest's bytes.
std::string ManifestDigest(std::string_view text);
// Checks that the slices of every tensor have its rank, lie inside it and cover each element
// exactly once; kDataLoss names tensor and slice.
Status CheckCoverage(const Manifest& manifest);

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int kFormatVersion = 1;

}  // namespace mt::checkpoint
