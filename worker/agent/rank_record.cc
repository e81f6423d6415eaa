#include "worker/agent/rank_record.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "common/base/files.h"

namespace mt::agent {
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
  return RankExit{.known = true,
                  .code = static_cast<int>(IntOf(value, "code")),
                  .signal = static_cast<int>(IntOf(value, "signal")),
                  .core = core != value.end() && core->is_boolean() && core->get<bool>(),
                  .error = TextOf(value, "error")};
}

bool IsAlive(int pid, int64_t start_ticks) {
  const auto stat = base::ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!stat.ok()) return false;
  // Field 2, the command, may hold anything; the last ')' ends it. State is 3, start time 22.
  std::istringstream fields(stat->substr(stat->rfind(')') + 1));
  std::string state;
  fields >> state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  int64_t ticks = -1;
  fields >> ticks;
  return state != "Z" && state != "X" && ticks == start_ticks;
}

}  // namespace mt::agent
