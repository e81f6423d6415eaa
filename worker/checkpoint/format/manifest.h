// The manifest of a checkpoint: what it holds, which rank has stored parts of what, and everything
// besides tensors that a resumed run needs. It is written last, as JSON (FORMAT.md); a folder
// without a readable manifest is not a checkpoint. Where each slice lies and its digests are in the
// manifests of the ranks (rank_manifest.h), which it names with their digests; in format version 1
// they were in this one. Plain values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/block_digests.h"
#include "worker/checkpoint/format/tensor_entry.h"

namespace mt::checkpoint {

// What a rank has written.
struct RankEntry {
  std::string manifest;  // names within the checkpoint's folder: "rank-00000.json"
  std::string file;      // "rank-00000.safetensors"
  int64_t bytes = 0;     // of its manifest
  base::Hash128Value digest{};
  int64_t num_slices = 0;
  // The tensors of which it has slices: first and last of each run of ordinals in the order of
  // keys; ascending.
  std::vector<std::pair<int64_t, int64_t>> tensors;
};

// Content of the file manifest.json.
struct Manifest {
  int64_t step = 0;
  int64_t epoch = 0;  // directory epoch, as in the folder's name
  std::string job_uid;
  int64_t job_epoch = 0;  // epoch of the placement that saved; 0: standalone
  std::string job_name;
  std::string run;           // id of the run that saved (run_list.h); empty before runs had ids
  int64_t parent_step = -1;  // the checkpoint this run resumed from; -1: none
  int64_t parent_epoch = -1;
  // Steps since the save before it, or since the start, whose update was not taken.
  int64_t skipped_since_save = 0;
  // Those were all steps since then, or the loss of the last one was not finite: of no use beside
  // the checkpoints before it (retention.h). false before saves told.
  bool spoiled = false;
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
  // Without slices, unless the manifest is of version 1 or ReadWholeManifest has added them.
  TensorTable tensors;
  int64_t block_bytes = kBlockBytes;  // of slices; kWholeSliceBlock in version 1
  std::vector<RankEntry> ranks;       // that have written slices; empty in version 1
};

// The manifest as JSON text (FORMAT.md), of the present version. Slices are left out.
std::string ToJson(const Manifest& manifest);
// Parses a manifest of any version from arbitrary bytes. Checks the coverage of one of version 1,
// and of later ones that some rank has slices of each tensor. kDataLoss: damaged, with what is
// wrong and where; kFailedPrecondition: written in a newer format.
StatusOr<Manifest> ParseManifest(std::string_view json);
// Identifies a checkpoint by its content, because the manifest contains the digests of all slices,
// or of the ranks' manifests that contain those: "xxh3:<32 hex digits>" over the manifest's bytes.
std::string ManifestDigest(std::string_view text);
// Checks of a manifest with its slices that they have their tensor's rank, lie inside it and cover
// each element exactly once; kDataLoss names tensor and slice.
Status CheckCoverage(const Manifest& manifest);

// The safetensors files of a checkpoint.
std::set<std::string> DataFilesOf(const Manifest& manifest);
// All files that it consists of, the manifest itself aside.
std::set<std::string> FilesOf(const Manifest& manifest);

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int kFormatVersion = 2;

}  // namespace mt::checkpoint
