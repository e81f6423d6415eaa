// A slice is a line. The text is put together without a tree in between: a rank of a large model
// has thousands of digests.
#include "worker/checkpoint/format/rank_manifest.h"

#include <iterator>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "worker/checkpoint/format/rank_manifest_parser.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

std::string QuotedName(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

void AppendSlice(const SliceEntry& slice, std::string* out) {
  fmt::format_to(std::back_inserter(*out),
                 R"(   {{"tensor": {}, "offset": [{}], "shape": [{}], "xxh3_128": [)",
                 QuotedName(slice.tensor), fmt::join(slice.offset, ", "),
                 fmt::join(slice.shape, ", "));
  for (size_t i = 0; i < slice.digests.size(); ++i) {
    if (i > 0) *out += ", ";
    *out += '"';
    *out += base::HexOf(slice.digests[i]);
    *out += '"';
  }
  *out += "]}";
}

}  // namespace

std::string RankManifestName(int rank) { return fmt::format("rank-{:05}.json", rank); }
std::string RankFileName(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string RankManifestText(const TensorTable& tensors) {
  std::string out = fmt::format("{{\n \"format\": \"{}\",\n \"version\": {},\n \"tensors\": {{",
                                kRankFormat, kFormatVersion);
  std::string_view between_tensors = "\n  ";
  for (const auto& [key, tensor] : tensors) {
    fmt::format_to(std::back_inserter(out), R"({}{}: {{"dtype": {}, "shape": [{}], "slices": [)",
                   between_tensors, QuotedName(key), QuotedName(tensor.dtype),
                   fmt::join(tensor.shape, ", "));
    std::string_view between_slices = "\n";
    for (const SliceEntry& slice : tensor.slices) {
      out += std::exchange(between_slices, ",\n");
      AppendSlice(slice, &out);
    }
    out += "]}";
    between_tensors = ",\n  ";
  }
  return out + "\n }\n}\n";
}

StatusOr<TensorTable> ParseRankManifest(std::string_view text, const std::string& file,
                                        int64_t block_bytes) {
  ASSIGN_OR_RETURN(TensorTable tensors, ParseRankText(text, file));
  for (const auto& [key, tensor] : tensors) RETURN_IF_ERROR(CheckTensor(key, tensor, block_bytes));
  return tensors;
}

StatusOr<std::string> ReadRankText(const std::string& folder, const RankEntry& rank,
                                   const base::FileOpener& open) {
  const std::string path = base::JoinPath(folder, rank.manifest);
  StatusOr<std::string> text = base::ReadFile(path, open);
  if (absl::IsNotFound(text.status())) {
    return base::DataLoss("{} is missing, and the manifest names it; use another checkpoint", path);
  }
  RETURN_IF_ERROR(text.status());
  const base::Hash128Value digest = base::Hash128Of(*text);
  if (std::ssize(*text) != rank.bytes || digest != rank.digest) {
    return base::DataLoss(
        "{} is damaged ({} bytes with digest {}, the manifest says {} with {}); use another "
        "checkpoint",
        path, text->size(), base::HexOf(digest), rank.bytes, base::HexOf(rank.digest));
  }
  return text;
}

RankManifests::RankManifests(const std::string& folder, const Manifest& manifest,
                             const base::FileOpener& open)
    : folder_(folder), manifest_(manifest), open_(open) {
  for (auto it = manifest.tensors.begin(); it != manifest.tensors.end(); ++it) order_.push_back(it);
}

StatusOr<TensorTable> RankManifests::Read(const RankEntry& rank) const {
  StatusOr<TensorTable> tensors = TensorTable();
  {
    ASSIGN_OR_RETURN(const std::string text, ReadRankText(folder_, rank, open_));
    tensors = ParseRankManifest(text, rank.file, manifest_.block_bytes);
  }
  const Status fits = tensors.ok() ? Check(rank, *tensors) : tensors.status();
  if (!fits.ok()) return base::Annotate(fits, base::JoinPath(folder_, rank.manifest));
  return tensors;
}

// Both are in the order of keys.
Status RankManifests::Check(const RankEntry& rank, const TensorTable& tensors) const {
  auto found = tensors.begin();
  for (const auto& [first, last] : rank.tensors) {
    for (int64_t ordinal = first; ordinal <= last; ++ordinal) {
      const auto& [key, tensor] = *order_[static_cast<size_t>(ordinal)];
      if (found == tensors.end() || found->first != key || found->second.dtype != tensor.dtype ||
          found->second.shape != tensor.shape) {
        return base::DataLoss("{} is not what the checkpoint's manifest says of this rank", key);
      }
      ++found;
    }
  }
  if (found == tensors.end()) return OkStatus();
  return base::DataLoss("{} is not what the checkpoint's manifest says of this rank", found->first);
}

}  // namespace mt::checkpoint
