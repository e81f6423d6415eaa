// Listing is based on names and the existence of manifests only, so it is cheap; manifests are read
// by those who need them.
#include "worker/checkpoint/format/directory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "common/base/files.h"
#include "worker/checkpoint/format/fence.h"

namespace mt::checkpoint {
namespace {

// Parses a number of at least `min_digits` digits at the start of *text and removes it from *text.
std::optional<int64_t> TakeNumber(std::string_view* text, size_t min_digits) {
  size_t n = 0;
  while (n < text->size() && (*text)[n] >= '0' && (*text)[n] <= '9') ++n;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + n, value);
  if (n < min_digits || error != std::errc()) return std::nullopt;
  text->remove_prefix(n);
  return value;
}

bool TakeText(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Names of the folder's entries; empty if the folder does not exist.
StatusOr<std::vector<std::string>> Entries(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return base::ErrnoError(error.value(), "list " + directory);
  return names;
}

}  // namespace

std::string FolderName(const CheckpointId& id) {
  return fmt::format("step-{:08}-e{:04}", id.step, id.epoch);
}

std::optional<CheckpointId> ParseFolderName(std::string_view name) {
  if (!TakeText(&name, "step-")) return std::nullopt;
  const auto step = TakeNumber(&name, 8);
  if (!step || !TakeText(&name, "-e")) return std::nullopt;
  const auto epoch = TakeNumber(&name, 4);
  if (!epoch || !name.empty()) return std::nullopt;
  return CheckpointId{*step, *epoch};
}

StatusOr<std::vector<CheckpointId>> ListCheckpoints(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::optional<Fence> fence, ReadFence(directory));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Entries(directory));
  std::vector<CheckpointId> found;
  for (const std::string& name : names) {
    const auto id = ParseFolderName(name);
    const std::string manifest = base::JoinPath(base::JoinPath(directory, name), kManifestName);
    if (id && Counts(fence, *id) && base::Exists(manifest)) found.push_back(*id);
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointId& a, const CheckpointId& b) { return IsNewer(b, a); });
  return found;
}

StatusOr<int64_t> HighestEpoch(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Entries(directory));
  int64_t highest = 0;
  for (std::string_view name : names) {
    if (name.ends_with(".tmp")) name.remove_suffix(4);
    if (const auto id = ParseFolderName(name)) highest = std::max(highest, id->epoch);
  }
  return highest;
}

StatusOr<std::optional<CheckpointId>> FindNewest(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> all, ListCheckpoints(directory));
  return all.empty() ? std::nullopt : std::optional<CheckpointId>(all.back());
}

StatusOr<Manifest> ReadManifest(const std::string& directory, const CheckpointId& id,
                                const base::FileOpener& open) {
  const std::string path = base::JoinPath(base::JoinPath(directory, FolderName(id)), kManifestName);
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, open));
  auto manifest = ParseManifest(text);
  if (!manifest.ok()) return base::Annotate(manifest.status(), path);
  if (manifest->step != id.step || manifest->epoch != id.epoch) {
    return base::DataLoss("{}: the manifest is of step {}, epoch {}", path, manifest->step,
                          manifest->epoch);
  }
  return manifest;
}

StatusOr<CheckpointId> FindByName(const std::string& directory, std::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> all, ListCheckpoints(directory));
  std::string_view rest = text;
  const auto step = TakeNumber(&rest, 1);
  const bool is_step = step && rest.empty();
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (is_step ? it->step == *step : FolderName(*it) == text) return *it;
  }
  std::string have;
  for (const CheckpointId& id : all) have += (have.empty() ? "" : ", ") + FolderName(id);
  return base::NotFound("no checkpoint \"{}\" in {}; there {}", text, directory,
                        have.empty() ? "are none" : "are: " + have);
}

Status RemoveCheckpoint(const std::string& folder) {
  std::error_code error;
  const bool had_manifest = std::filesystem::remove(base::JoinPath(folder, kManifestName), error);
  if (error) return base::ErrnoError(error.value(), "remove the manifest of " + folder);
  if (had_manifest) RETURN_IF_ERROR(base::SyncDir(folder));
  std::filesystem::remove_all(folder, error);
  return error ? base::ErrnoError(error.value(), "remove " + folder) : OkStatus();
}

}  // namespace mt::checkpoint
