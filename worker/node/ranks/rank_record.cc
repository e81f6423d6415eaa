// Both files are JSON objects written by the shim, which links no JSON library.
#include "worker/node/ranks/rank_record.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "common/base/files.h"

namespace mt::node {
namespace {

using nlohmann::json;

StatusOr<json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return base::DataLoss("{}: not a JSON object", path);
  return value;
}

int64_t IntOf(const json& object, const char* key) {
  const auto field = object.find(key);
  return field != object.end() && field->is_number_integer() ? field->get<int64_t>() : 0;
}

std::string TextOf(const json& object, const char* key) {
  const auto field = object.find(key);
  return field != object.end() && field->is_string() ? field->get<std::string>() : "";
}

}  // namespace

StatusOr<RankRecord> ReadRankRecord(const std::string& folder) {
  ASSIGN_OR_RETURN(const json value, ReadJson(folder + "/rank.json"));
  RankRecord record{.pid = static_cast<int>(IntOf(value, "pid")),
                    .start_ticks = IntOf(value, "start_ticks"),
                    .shim_pid = static_cast<int>(IntOf(value, "shim_pid")),
                    .shim_start_ticks = IntOf(value, "shim_start_ticks"),
                    .boot_id = TextOf(value, "boot_id")};
  if (record.pid <= 0 || record.shim_pid <= 0) {
    return base::DataLoss("{}/rank.json: no process in it", folder);
  }
  return record;
}

StatusOr<RankExit> ReadExitRecord(const std::string& folder) {
  ASSIGN_OR_RETURN(const json value, ReadJson(folder + "/exit.json"));
  const auto core = value.find("core");
  const std::string stop = TextOf(value, "stop");
  return RankExit{.known = true,
                  .code = static_cast<int>(IntOf(value, "code")),
                  .signal = static_cast<int>(IntOf(value, "signal")),
                  .core = core != value.end() && core->is_boolean() && core->get<bool>(),
                  .stopped = stop == "agent_gone" || stop == "signal",
                  .error = TextOf(value, "error")};
}

std::string ReadUnsentFile(const std::string& folder) {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  std::ifstream file(folder + "/unsent.pb", std::ios::binary);
  std::string bytes;
  char block[64 << 10];
  while (bytes.size() < kMaxBytes && (file.read(block, sizeof(block)), file.gcount() > 0)) {
    bytes.append(block, static_cast<size_t>(file.gcount()));
  }
  return bytes;
}

}  // namespace mt::node
