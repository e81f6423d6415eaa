// A file is trusted only if format, identity, key and digest match; all else counts as damaged.
#include "worker/tuning/tuning_cache.h"

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/log.h"

namespace mt::tuning {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "megatrain-tuning";
constexpr int kFormatVersion = 1;

std::string DigestOf(const std::string& identity, const kernels::TuningEntry& entry) {
  return base::Hash128Hex(identity + '\n' + entry.key + '\n' + entry.choice);
}

// The choice of `key`, or what is wrong with the file.
StatusOr<std::string> Read(const std::string& path, const std::string& identity,
                           const std::string& key) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  const json in = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!in.is_object()) return base::DataLoss("no JSON object");
  const auto field = [&in](const char* name) -> std::string {
    const auto found = in.find(name);
    return found != in.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (field("format") != kFormat || in.value("version", json()) != kFormatVersion) {
    return base::DataLoss("not {} version {}", kFormat, kFormatVersion);
  }
  if (field("identity") != identity || field("key") != key) {
    return base::DataLoss("it is of \"{}\" on \"{}\"", field("key"), field("identity"));
  }
  const kernels::TuningEntry entry{.key = key, .choice = field("choice")};
  if (field("digest") != DigestOf(identity, entry)) return base::DataLoss("the digest differs");
  return entry.choice;
}

}  // namespace

TuningCache::TuningCache(const std::string& cache_root, const std::string& identity)
    : identity_(identity),
      directory_(cache_root.empty() ? std::string()
                                    : base::JoinPath(base::JoinPath(cache_root, "tuning"),
                                                     base::Hash128Hex(identity))) {}

std::string TuningCache::PathOf(const std::string& key) const {
  return base::JoinPath(directory_, base::Hash128Hex(key) + ".json");
}

std::optional<std::string> TuningCache::Find(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  const std::string path = PathOf(key);
  if (!base::Exists(path)) return std::nullopt;
  auto choice = Read(path, identity_, key);
  if (choice.ok()) return *std::move(choice);
  log::Warn("a file of the tuning cache is damaged: ignored, its choice is timed anew",
            {{"path", path}, {"why", base::Message(choice.status())}});
  return std::nullopt;
}

Status TuningCache::Keep(const kernels::TuningEntry& entry) const {
  if (directory_.empty()) return OkStatus();
  RETURN_IF_ERROR(base::MakeDirs(directory_));
  const json out = {{"format", kFormat},      {"version", kFormatVersion},
                    {"identity", identity_},  {"key", entry.key},
                    {"choice", entry.choice}, {"digest", DigestOf(identity_, entry)}};
  return base::WriteFileAtomic(PathOf(entry.key), out.dump(1) + "\n");
}

}  // namespace mt::tuning
