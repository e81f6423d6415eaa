// The safetensors files of a folder of Hugging Face's as one set of tensors. Blocking; used by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::hf {

// A file's whole content; kInvalidArgument where it is longer than `max_bytes`.
StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes,
                                    const base::FileOpener& open = {});

class ShardFiles {
 public:
  using Entry = checkpoint::SafetensorsReader::Entry;

  // Opens model.safetensors, or all files of model.safetensors.index.json. What counts is what the
  // files hold; the index must agree. Errors name file and tensor: kNotFound: neither is there, or
  // a shard is missing; kInvalidArgument: both are, the index is none, a tensor is in two files or
  // not in the file that the index says; kDataLoss: a damaged file.
  static StatusOr<ShardFiles> Open(const std::string& folder, const base::FileOpener& open = {});

  // Tensors by name, and the number of the file that each is in.
  struct Place {
    Entry entry;
    size_t file = 0;
  };
  const std::map<std::string, Place>& tensors() const { return tensors_; }
  // The name of a file, for messages.
  const std::string& PathOf(const Place& place) const { return files_[place.file].path(); }
  // Reads bytes of a tensor from `offset` on.
  Status Read(const Place& place, int64_t offset, std::span<std::byte> out) const {
    return files_[place.file].ReadPart(place.entry, offset, out);
  }

 private:
  Status Add(const std::string& path, const base::FileOpener& open);

  std::vector<checkpoint::SafetensorsReader> files_;
  std::map<std::string, Place> tensors_;
};

}  // namespace mt::hf
