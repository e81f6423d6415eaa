// Where slices of a checkpoint's tensors lie, whatever version of the format wrote it: the
// manifests of as many ranks as that takes. Blocking; thread-safe.
#pragma once

#include <set>
#include <string>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// Arguments of ReadSlices; pointers are borrowed.
struct ReadSlicesArgs {
  std::string folder;  // of the checkpoint
  const Manifest* manifest = nullptr;
  const std::set<std::string>* keys = nullptr;  // of the tensors; nullptr: all
  int threads = 1;                              // that read manifests side by side
  base::FileOpener open{};
};

// The tensors of these keys that the checkpoint has, with all their slices, by rank and then in the
// order of that rank's manifest. Reads the manifests of the ranks that have some, each checked
// against its digest; that slices cover a tensor is not checked. kDataLoss: a rank's manifest is
// missing or damaged, naming it.
StatusOr<TensorTable> ReadSlices(const ReadSlicesArgs& args);

// A checkpoint's manifest with the slices of all ranks, whose coverage is checked. Errors: those of
// ReadManifest (directory.h) and ReadSlices.
StatusOr<Manifest> ReadWholeManifest(const std::string& directory, const CheckpointId& id,
                                     int threads = 1);

}  // namespace mt::checkpoint
