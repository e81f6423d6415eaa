// The library's own reader refuses the same, but for names that come twice, of which it takes the
// last.
#include "worker/checkpoint/format/foreign_shard.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace mt::checkpoint {
namespace {

// No name of the header comes twice: the parser would keep the last.
Status CheckNames(const std::string& text) {
  std::set<std::string> names;
  std::string twice;
  const auto see = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (depth == 1 && event == nlohmann::json::parse_event_t::key &&
        !names.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  const auto parsed = nlohmann::json::parse(text, see, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return base::DataLoss("its header is no JSON");
  return twice.empty() ? OkStatus() : base::DataLoss("its header has {} twice", twice);
}

Status CheckMetadata(const nlohmann::json& header) {
  const auto metadata = header.find("__metadata__");
  if (metadata == header.end() || metadata->is_null()) return OkStatus();
  if (!metadata->is_object()) return base::DataLoss("__metadata__ is no object");
  for (const auto& [name, value] : metadata->items()) {
    if (!value.is_string()) return base::DataLoss("__metadata__ has what is no text: {}", name);
  }
  return OkStatus();
}

// The tensors lie one behind the other, from the header's end to the file's.
Status CheckFilled(const std::map<std::string, SafetensorsReader::Entry>& entries,
                   int64_t data_begin, int64_t file_bytes) {
  std::vector<std::pair<int64_t, int64_t>> places;  // begin, bytes
  places.reserve(entries.size());
  for (const auto& [name, entry] : entries) places.emplace_back(entry.offset, entry.bytes);
  std::sort(places.begin(), places.end());
  int64_t next = data_begin;
  for (const auto& [begin, bytes] : places) {
    if (begin != next) {
      return base::DataLoss(
          "a tensor begins at byte {} of the data, where byte {} is the next one: a hole or an "
          "overlap",
          begin - data_begin, next - data_begin);
    }
    next += bytes;
  }
  if (next == file_bytes) return OkStatus();
  return base::DataLoss("{} bytes behind the last tensor", file_bytes - next);
}

}  // namespace

Status CheckForeign(const std::string& text, const nlohmann::json& header,
                    const std::map<std::string, SafetensorsReader::Entry>& entries,
                    int64_t data_begin, int64_t file_bytes) {
  RETURN_IF_ERROR(CheckNames(text));
  RETURN_IF_ERROR(CheckMetadata(header));
  return CheckFilled(entries, data_begin, file_bytes);
}

}  // namespace mt::checkpoint
