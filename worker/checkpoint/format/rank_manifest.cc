// A slice is a line. The text is put together without a tree in between: a rank of a large model
// has thousands of digests.
#include "worker/checkpoint/format/rank_manifest.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kRankFormat = "megatrain-checkpoint-rank";

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

StatusOr<SliceEntry> ParseSlice(const json& in, const std::string& file) {
  SliceEntry slice{.file = file,
                   .tensor = in.at("tensor").get<std::string>(),
                   .offset = Integers(in.at("offset")),
                   .shape = Integers(in.at("shape")),
                   .digests = {}};
  const auto& digests = in.at("xxh3_128").get_ref<const json::array_t&>();
  slice.digests.reserve(digests.size());
  for (const json& text : digests) {
    const auto digest = base::ParseHash128(text.get_ref<const std::string&>());
    if (!digest) return base::DataLoss("{}: what is no digest", slice.tensor);
    slice.digests.push_back(*digest);
  }
  return slice;
}

StatusOr<TensorEntry> ParseRankTensor(const json& in, const std::string& file) {
  TensorEntry tensor{
      .dtype = in.at("dtype").get<std::string>(), .shape = Integers(in.at("shape")), .slices = {}};
  for (const json& slice : in.at("slices").get_ref<const json::array_t&>()) {
    ASSIGN_OR_RETURN(SliceEntry entry, ParseSlice(slice, file));
    tensor.slices.push_back(std::move(entry));
  }
  return tensor;
}

// Whether a tensor's place in the order of keys is in one of the rank's ranges.
bool HasOrdinal(const RankEntry& rank, int64_t ordinal) {
  const auto after =
      std::ranges::upper_bound(rank.tensors, ordinal, {}, &std::pair<int64_t, int64_t>::first);
  return after != rank.tensors.begin() && ordinal <= std::prev(after)->second;
}

// Every tensor of the rank is one of the checkpoint's, in a range of the rank's.
Status CheckAgainst(const Manifest& manifest, const RankEntry& rank, const TensorTable& tensors) {
  auto known = manifest.tensors.begin();
  int64_t ordinal = 0;
  for (const auto& [key, tensor] : tensors) {
    for (; known != manifest.tensors.end() && known->first < key; ++known) ++ordinal;
    const bool same = known != manifest.tensors.end() && known->first == key &&
                      known->second.dtype == tensor.dtype && known->second.shape == tensor.shape;
    if (!same || !HasOrdinal(rank, ordinal))
      return base::DataLoss("{} is not what the checkpoint's manifest says of this rank", key);
  }
  return OkStatus();
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
  const json in = ParseJson(text);
  if (!in.is_object() || in.value("format", json()) != kRankFormat)
    return base::DataLoss("no JSON object with format \"{}\"", kRankFormat);
  try {
    TensorTable tensors;
    for (const auto& [key, value] : in.at("tensors").items()) {
      ASSIGN_OR_RETURN(TensorEntry tensor, ParseRankTensor(value, file));
      RETURN_IF_ERROR(CheckTensor(key, tensor, block_bytes));
      tensors.emplace_hint(tensors.end(), key, std::move(tensor));
    }
    return tensors;
  } catch (const json::exception& error) {
    return base::DataLoss("damaged manifest of a rank: {}", error.what());
  }
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

StatusOr<TensorTable> ReadRankManifest(const std::string& folder, const Manifest& manifest,
                                       const RankEntry& rank, const base::FileOpener& open) {
  StatusOr<TensorTable> tensors = TensorTable();
  {
    ASSIGN_OR_RETURN(const std::string text, ReadRankText(folder, rank, open));
    tensors = ParseRankManifest(text, rank.file, manifest.block_bytes);
  }
  Status fits = tensors.ok() ? CheckAgainst(manifest, rank, *tensors) : tensors.status();
  if (!fits.ok()) return base::Annotate(fits, base::JoinPath(folder, rank.manifest));
  return tensors;
}

}  // namespace mt::checkpoint
