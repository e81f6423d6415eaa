// A pin that cannot be read is a pin without a reason.
#include "worker/checkpoint/format/pin.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {

std::string ToJson(const Pin& pin) {
  const nlohmann::json out = {{"format", "megatrain-pin"},
                              {"version", kPinVersion},
                              {"made", pin.made},
                              {"reason", pin.reason}};
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Pin ParsePin(std::string_view text) {
  const nlohmann::json in = ParseJson(text);
  Pin pin;
  const auto take = [&in](const char* name, std::string* to) {
    if (!in.is_object()) return;
    const auto it = in.find(name);
    if (it != in.end() && it->is_string()) *to = it->get<std::string>();
  };
  take("reason", &pin.reason);
  take("made", &pin.made);
  return pin;
}

bool IsPinned(const std::string& folder) {
  struct stat info {};
  const std::string path = base::JoinPath(folder, kPinName);
  return ::lstat(path.c_str(), &info) == 0 || errno != ENOENT;
}

std::optional<Pin> ReadPin(const std::string& folder) {
  if (!IsPinned(folder)) return std::nullopt;
  const auto text = base::ReadFile(base::JoinPath(folder, kPinName));
  return text.ok() ? ParsePin(*text) : Pin{};
}

Status WritePin(const std::string& folder, std::string_view reason) {
  const Pin pin{.reason = std::string(reason),
                .made = base::FormatUtc(base::ToUnixMicros(base::Clock::Real()->WallNow()))};
  return base::WriteFileAtomic(base::JoinPath(folder, kPinName), ToJson(pin));
}

Status RemovePin(const std::string& folder) {
  const std::string path = base::JoinPath(folder, kPinName);
  if (::unlink(path.c_str()) != 0) return base::ErrnoError(errno, "remove " + path);
  return base::SyncDir(folder);
}

}  // namespace mt::checkpoint
