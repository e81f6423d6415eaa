// The manifest of a rank: the slices that it has written, with the digests of their blocks. It is
// written after the rank's safetensors file, and named, with its digest, in the checkpoint's
// manifest. Reading one costs what that rank has, so that who wants part of a checkpoint reads
// those of some ranks. Functions that take a folder block; all are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/tensor_entry.h"

namespace mt::checkpoint {

// "rank-00000.json" and "rank-00000.safetensors".
std::string RankManifestName(int rank);
std::string RankFileName(int rank);

// The slices of a rank as JSON text (FORMAT.md): those of `tensors`, whatever files they name.
std::string RankManifestText(const TensorTable& tensors);
// Parses it from arbitrary bytes and checks each tensor (CheckTensor); slices lie in `file`.
// kDataLoss.
StatusOr<TensorTable> ParseRankManifest(std::string_view text, const std::string& file,
                                        int64_t block_bytes);

// Reads a rank's manifest of the checkpoint in `folder` as its bytes are, held against length and
// digest. kDataLoss, naming the file: it is missing or another one; else I/O errors.
StatusOr<std::string> ReadRankText(const std::string& folder, const RankEntry& rank,
                                   const base::FileOpener& open = {});
// Reads the manifests of a checkpoint's ranks, held against what its own manifest says of their
// tensors. Thread-safe.
class RankManifests {
 public:
  // The arguments are borrowed.
  RankManifests(const std::string& folder, const Manifest& manifest, const base::FileOpener& open);

  // The tensors of a rank, those that the manifest names and no others. kDataLoss, naming the file;
  // else I/O errors.
  StatusOr<TensorTable> Read(const RankEntry& rank) const;

 private:
  Status Check(const RankEntry& rank, const TensorTable& tensors) const;

  const std::string& folder_;
  const Manifest& manifest_;
  const base::FileOpener& open_;
  std::vector<TensorTable::const_iterator> order_;  // the manifest's tensors by ordinal
};

}  // namespace mt::checkpoint
