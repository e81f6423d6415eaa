// Runs of wanted bytes ascend, so one pass over them meets each block once. A block that is wanted
// from end to end, as all are of a slice that was saved by the same layout, is read in place.
#include "worker/checkpoint/stored_slice.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/ids.h"

namespace mt::checkpoint {

struct SliceFiles::Block {
  const SafetensorsReader::Entry* entry = nullptr;
  int64_t number = 0;
  int64_t begin = 0, end = 0;  // bytes of the slice
};

SliceFiles::SliceFiles(std::string folder, int64_t block_bytes, base::FileOpener open,
                       std::function<void(int64_t bytes)> read)
    : folder_(std::move(folder)),
      block_bytes_(block_bytes),
      open_(std::move(open)),
      read_(std::move(read)) {}

Status SliceFiles::Copy(const TensorEntry& tensor, const SliceEntry& stored, const Box& wanted,
                        std::byte* out) {
  const Box from{.offset = stored.offset, .shape = stored.shape};
  const std::optional<Box> common = Intersect(from, wanted);
  if (!common) return OkStatus();
  ASSIGN_OR_RETURN(const SafetensorsReader* reader, Open(stored.file));
  const auto entry = reader->entries().find(stored.tensor);
  if (entry == reader->entries().end() || entry->second.shape != stored.shape ||
      entry->second.dtype != tensor.dtype) {
    return base::DataLoss("{} does not hold {} as its manifest says; use another checkpoint",
                          reader->path(), stored.tensor);
  }
  const int64_t element = ElementSize(tensor.dtype);
  BoxRuns runs(*common, from, wanted);
  BoxRuns::Run run;
  // What is left of the run, in bytes.
  int64_t at = 0, end = 0, to = 0;
  const auto next = [&] {
    if (!runs.Next(&run)) return false;
    at = run.from * element;
    end = at + run.count * element;
    to = run.to * element;
    return true;
  };
  for (bool more = next(); more;) {
    Block block{.entry = &entry->second, .number = at / block_bytes_};
    block.begin = block.number * block_bytes_;
    block.end = block.begin + std::min(block_bytes_, entry->second.bytes - block.begin);
    if (at == block.begin && end >= block.end) {
      RETURN_IF_ERROR(ReadBlock(*reader, stored, block, out + to));
      to += block.end - at;
      at = block.end;
      more = at < end || next();
      continue;
    }
    // It only grows: a vector clears what it gets anew.
    const auto needed = static_cast<size_t>(block.end - block.begin);
    if (buffer_.size() < needed) buffer_.resize(needed);
    RETURN_IF_ERROR(ReadBlock(*reader, stored, block, buffer_.data()));
    while (more && at < block.end) {
      const int64_t bytes = std::min(end, block.end) - at;
      std::memcpy(out + to, buffer_.data() + (at - block.begin), static_cast<size_t>(bytes));
      at += bytes;
      to += bytes;
      more = at < end || next();
    }
  }
  return OkStatus();
}

StatusOr<const SafetensorsReader*> SliceFiles::Open(const std::string& file) {
  auto it = files_.find(file);
  if (it == files_.end()) {
    StatusOr<SafetensorsReader> reader =
        SafetensorsReader::Open(base::JoinPath(folder_, file), open_);
    if (absl::IsNotFound(reader.status())) {
      return base::DataLoss("{} is missing, and the manifest names it; use another checkpoint",
                            base::JoinPath(folder_, file));
    }
    RETURN_IF_ERROR(reader.status());
    it = files_.emplace(file, *std::move(reader)).first;
  }
  return &it->second;
}

Status SliceFiles::ReadBlock(const SafetensorsReader& reader, const SliceEntry& stored,
                             const Block& block, std::byte* to) const {
  const std::span<std::byte> bytes(to, static_cast<size_t>(block.end - block.begin));
  RETURN_IF_ERROR(reader.ReadPart(*block.entry, block.begin, bytes));
  const base::Hash128Value digest =
      base::Hash128Of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const base::Hash128Value& said = stored.digests[static_cast<size_t>(block.number)];
  if (digest != said) {
    return base::DataLoss(
        "{}: {} is damaged (digest {} of block {}, manifest says {}); use another checkpoint",
        reader.path(), stored.tensor, base::HexOf(digest), block.number, base::HexOf(said));
  }
  if (read_) read_(std::ssize(bytes));
  return OkStatus();
}

}  // namespace mt::checkpoint
