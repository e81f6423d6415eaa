// Links to files count as files, links to folders are not followed: no walk goes round.
#include "worker/data/prepare/input_list.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/base/ids.h"
#include "worker/data/prepare/text_input.h"

namespace mt::data {
namespace {

namespace fs = std::filesystem;

StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const bool hidden = at->path().filename().string().starts_with('.');
    if (hidden) at.disable_recursion_pending();
    std::error_code ignored;
    if (!hidden && at->is_regular_file(ignored)) files.push_back(at->path().string());
  }
  if (error) return base::ErrnoError(error.value(), "list " + folder);
  if (files.empty()) return base::InvalidArgument("{}: a folder without files", folder);
  std::ranges::sort(files);
  return files;
}

}  // namespace

StatusOr<InputList> ListInputs(const std::vector<std::string>& inputs) {
  InputList list;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (input == kStandardInput && std::exchange(list.has_standard_input, true))
      return base::InvalidArgument("standard input, -, is given twice");
    if (input == kStandardInput || !fs::is_directory(input, ignored)) {
      list.paths.push_back(input);
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> below, FilesBelow(input));
    list.paths.insert(list.paths.end(), below.begin(), below.end());
  }
  base::Hash128 hash;
  for (const std::string& path : list.paths) {
    ASSIGN_OR_RETURN(const InputIdentity identity, IdentifyInput(path));
    list.bytes.push_back(identity.bytes);
    list.total_bytes += identity.bytes;
    hash.Add(fmt::format("{}\n{} {}\n", path, identity.bytes, identity.modified_ns));
  }
  list.digest = hash.Take();
  return list;
}

}  // namespace mt::data
