// transformers takes the files of the index as a list and a model.safetensors beside them silently
// before them, so a folder has one form alone.
#include "worker/hf/shard_plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mt::hf {

std::vector<ShardFile> PlanShards(const std::vector<StreamTensor>& tensors, int64_t max_bytes) {
  std::vector<ShardFile> files(1);
  int64_t bytes = 0;
  for (const StreamTensor& tensor : tensors) {
    if (!files.back().tensors.empty() && bytes + tensor.bytes() > max_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(tensor);
    bytes += tensor.bytes();
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1
                        ? std::string(kOneFileName)
                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  }
  return files;
}

std::string IndexText(const std::vector<ShardFile>& files) {
  int64_t total = 0;
  nlohmann::json places = nlohmann::json::object();
  for (const ShardFile& file : files) {
    for (const StreamTensor& tensor : file.tensors) {
      total += tensor.bytes();
      places[tensor.name] = file.name;
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                        {"weight_map", places}};
  return index.dump(2) + "\n";
}

bool IsModelFile(std::string_view name) {
  if (name == kOneFileName || name == kIndexName) return true;
  return name.starts_with("model-") && name.ends_with(".safetensors") &&
         name.find("-of-") != std::string_view::npos;
}

}  // namespace mt::hf
