// transformers uses the index as a list of files only: a wrong entry, a tensor in two files, or a
// model.safetensors beside the index gives another model without a word. Here each is an error.
#include "worker/hf/shard_files.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/checkpoint/format/json_text.h"
#include "worker/checkpoint/format/tensor_entry.h"
#include "worker/hf/shard_plan.h"

namespace mt::hf {
namespace {

using nlohmann::json;

constexpr size_t kMaxIndexBytes = size_t{64} << 20;

// nullopt-like: an empty text where the file is not there.
StatusOr<std::string> ReadIfThere(const std::string& path, const base::FileOpener& open) {
  StatusOr<std::string> text = ReadSmallFile(path, kMaxIndexBytes, open);
  if (absl::IsNotFound(text.status())) return std::string();
  if (text.ok() && text->empty()) return base::InvalidArgument("{} is empty", path);
  return text;
}

StatusOr<bool> IsThere(const std::string& path, const base::FileOpener& open) {
  const StatusOr<base::Fd> fd = base::OpenToRead(path, open);
  if (absl::IsNotFound(fd.status())) return false;
  RETURN_IF_ERROR(fd.status());
  return true;
}

// Tensor to file, of an index.
StatusOr<std::map<std::string, std::string>> ParseIndex(std::string_view text,
                                                        const std::string& path) {
  const json index = checkpoint::ParseJson(text);
  const json* const map =
      index.is_object() && index.contains("weight_map") && index.at("weight_map").is_object()
          ? &index.at("weight_map")
          : nullptr;
  if (map == nullptr || map->empty())
    return base::InvalidArgument("{} is no index: it has no weight_map", path);
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !checkpoint::IsPlainName(file.get<std::string>())) {
      return base::InvalidArgument("{}: the file of {} is {}, which is no name in the folder", path,
                                   tensor, file.dump());
    }
    out[tensor] = file.get<std::string>();
  }
  return out;
}

}  // namespace

StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes,
                                    const base::FileOpener& open) {
  ASSIGN_OR_RETURN(const base::Fd fd, base::OpenToRead(path, open));
  std::string text;
  for (;;) {
    const size_t before = text.size();
    text.resize(std::min(max_bytes + 1, std::max<size_t>(4096, 2 * before)));
    const ssize_t n = ::read(fd.get(), text.data() + before, text.size() - before);
    if (n < 0 && errno != EINTR) return base::ErrnoError(errno, "read " + path);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return text;
    if (text.size() > max_bytes)
      return base::InvalidArgument("{} is longer than {} bytes", path, max_bytes);
  }
}

Status ShardFiles::Add(const std::string& path, const base::FileOpener& open) {
  StatusOr<checkpoint::SafetensorsReader> reader =
      checkpoint::SafetensorsReader::OpenForeign(path, open);
  if (absl::IsNotFound(reader.status()))
    return base::NotFound("{} is missing, and the index names it", path);
  RETURN_IF_ERROR(reader.status());
  files_.push_back(*std::move(reader));
  for (const auto& [name, entry] : files_.back().entries()) {
    const auto [it, is_new] = tensors_.emplace(name, Place{entry, files_.size() - 1});
    if (is_new) continue;
    return base::InvalidArgument("{} is in {} and in {}: which is meant?", name, PathOf(it->second),
                                 path);
  }
  return OkStatus();
}

StatusOr<ShardFiles> ShardFiles::Open(const std::string& folder, const base::FileOpener& open) {
  const std::string one = base::JoinPath(folder, kOneFileName);
  const std::string index_path = base::JoinPath(folder, kIndexName);
  ASSIGN_OR_RETURN(const std::string text, ReadIfThere(index_path, open));
  ASSIGN_OR_RETURN(const bool has_one, IsThere(one, open));
  ShardFiles out;
  if (text.empty() && !has_one) {
    return base::NotFound(
        "{} has neither {} nor {}; weights in pytorch_model.bin are not read: save them as "
        "safetensors",
        folder, kOneFileName, kIndexName);
  }
  if (text.empty()) {
    RETURN_IF_ERROR(out.Add(one, open));
    return out;
  }
  if (has_one) {
    return base::InvalidArgument(
        "{} has both {} and {}: transformers takes the first silently; remove what is not meant",
        folder, kOneFileName, kIndexName);
  }
  ASSIGN_OR_RETURN(const auto index, ParseIndex(text, index_path));
  std::set<std::string> files;
  for (const auto& [tensor, file] : index) files.insert(file);
  for (const std::string& file : files)
    RETURN_IF_ERROR(out.Add(base::JoinPath(folder, file), open));
  for (const auto& [tensor, file] : index) {
    const auto found = out.tensors_.find(tensor);
    const std::string said = base::JoinPath(folder, file);
    if (found != out.tensors_.end() && out.PathOf(found->second) == said) continue;
    return base::InvalidArgument("{} says that {} is in {}: it is {}", index_path, tensor, file,
                                 found == out.tensors_.end() ? std::string("in no file")
                                                             : "in " + out.PathOf(found->second));
  }
  return out;
}

}  // namespace mt::hf
