// The manifest of a checkpoint: what it holds, where each slice of each tensor lies, and everything
// that a resumed run needs beside tensors. Written last, as JSON (FORMAT.md); a folder without a
// readable manifest is not a checkpoint. Pure values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::checkpoint {

// One rectangular part of a tensor, stored whole in one file.
struct SliceEntry {
  std::string file;             // in the checkpoint's folder
  std::string tensor;           // its name in that safetensors file
  std::vector<int64_t> offset;  // of its first element in the global tensor
  std::vector<int64_t> shape;
  std::string digest;  // XXH3-128 of its bytes
};

// A logical tensor, unpadded and independent of the layout. Keys: "weights/<parameter>",
// "exp_avg/<parameter>", "exp_avg_sq/<parameter>".
struct TensorEntry {
  std::string dtype;  // "F32", "F64": safetensors' names
  std::vector<int64_t> shape;
  std::vector<SliceEntry> slices;
};

struct Manifest {
  int64_t step = 0;
  int64_t epoch = 0;  // of the directory: the folder's
  std::string job_uid;
  int64_t job_epoch = 0;  // the control plane's epoch that saved; 0: standalone
  std::string job_name;
  int64_t parent_step = -1;  // the checkpoint this run went on from; -1: none
  int64_t parent_epoch = -1;
  std::string created;  // UTC
  int64_t world_size = 0;
  std::string spec_json;  // the defaulted job, as a JSON object
  // Exact numbers of the run's state, by name: the StepScalars block. int64 and double are kept
  // apart, so that both come back bit for bit.
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> reals;
  // Facts that a resume compares or reports, by name ("openblas_core", "threads_per_rank",
  // "data.train.idx_digest").
  std::map<std::string, std::string> facts;
  std::map<std::string, TensorEntry> tensors;
};

std::string ToJson(const Manifest& manifest);
// kDataLoss names what is wrong and where in the document; any bytes are safe. kFailedPrecondition:
// written by a newer format.
StatusOr<Manifest> ParseManifest(std::string_view json);
// What names a checkpoint by its content, since the manifest holds the digests of all slices:
// "xxh3:<32 hex digits>" over the manifest's bytes.
std::string ManifestDigest(std::string_view text);
// Checks that the slices of every tensor lie inside it, are of its rank and cover each element
// exactly once.
Status CheckCoverage(const Manifest& manifest);

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int kFormatVersion = 1;

}  // namespace mt::checkpoint
