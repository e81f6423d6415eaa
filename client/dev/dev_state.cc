// dev.json is written whole and replaced atomically. A file of an earlier version lacks the slots
// and GPUs: then the defaults hold.
#include "client/dev/dev_state.h"

#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/files.h"

namespace mt::client {
namespace {

using nlohmann::json;

json ToJson(const ProcessId& p) { return {{"pid", p.pid}, {"start_ticks", p.start_ticks}}; }

ProcessId ParseProcess(const json& in) {
  // get_ref instead of get: a fraction in the file is an error instead of being converted.
  return {in.at("pid").get_ref<const json::number_integer_t&>(),
          static_cast<uint64_t>(in.at("start_ticks").get_ref<const json::number_integer_t&>())};
}

DevState ParseState(const json& in) {
  const DevSettings defaults;
  return {.coordinator = ParseProcess(in.at("coordinator")),
          .worker = ParseProcess(in.at("worker")),
          .endpoint = in.at("endpoint").get<std::string>(),
          .worker_http = in.value("worker_http", ""),
          .settings = {.cpu_slots = in.value("cpu_slots", defaults.cpu_slots),
                       .gpus = in.value("gpus", defaults.gpus),
                       .data_root = in.at("data_root").get<std::string>(),
                       .checkpoint_root = in.at("checkpoint_root").get<std::string>(),
                       .log_root = in.at("log_root").get<std::string>()}};
}

// Absolute and without "." and "..", so that two spellings of one folder are equal.
std::string Absolute(const std::string& path) {
  std::error_code error;
  std::filesystem::path full = std::filesystem::absolute(path, error).lexically_normal();
  if (error) return path;
  if (!full.has_filename() && full.has_relative_path()) full = full.parent_path();
  return full.string();
}

}  // namespace

StatusOr<std::optional<DevState>> ReadDevState(const std::string& path) {
  const auto text = base::ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::optional<DevState>();
  if (!text.ok()) return text.status();
  try {
    return std::optional<DevState>(ParseState(json::parse(*text)));
  } catch (const json::exception& error) {
    return base::DataLoss("{} is damaged ({}); remove it after stopping what runs there", path,
                          error.what());
  }
}

Status WriteDevState(const std::string& path, const DevState& state) {
  const json out = {{"coordinator", ToJson(state.coordinator)},
                    {"worker", ToJson(state.worker)},
                    {"endpoint", state.endpoint},
                    {"worker_http", state.worker_http},
                    {"cpu_slots", state.settings.cpu_slots},
                    {"gpus", state.settings.gpus},
                    {"data_root", state.settings.data_root},
                    {"checkpoint_root", state.settings.checkpoint_root},
                    {"log_root", state.settings.log_root}};
  return base::WriteFileAtomic(path, out.dump(2) + "\n");
}

DevSettings WithFlags(DevSettings settings, const DevUpArgs& args) {
  if (args.cpu_slots) settings.cpu_slots = *args.cpu_slots;
  if (args.gpus) settings.gpus = *args.gpus;
  if (args.data_root) settings.data_root = Absolute(*args.data_root);
  if (args.checkpoint_root) settings.checkpoint_root = Absolute(*args.checkpoint_root);
  return settings;
}

std::string DifferingFlags(const DevSettings& settings, const DevSettings& other) {
  std::string flags;
  const auto add = [&flags](const char* flag, const auto& value, const auto& old) {
    if (value != old) flags += fmt::format("{}{} {}", flags.empty() ? "" : " ", flag, value);
  };
  add("--cpu-slots", settings.cpu_slots, other.cpu_slots);
  add("--gpus", settings.gpus, other.gpus);
  add("--data-root", settings.data_root, other.data_root);
  add("--checkpoint-root", settings.checkpoint_root, other.checkpoint_root);
  return flags;
}

}  // namespace mt::client
