// Which tensors of an export go to which file, and the index that tells. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/hf/tensor_file.h"

namespace mt::hf {

inline constexpr std::string_view kOneFileName = "model.safetensors";
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

struct ShardFile {
  std::string name;  // model.safetensors, or model-00001-of-00003.safetensors
  std::vector<StreamTensor> tensors;
};

// In the order of the list, each file as full as `max_bytes` (of tensors) allows, and a larger
// tensor in one of its own. One file has the name without numbers.
std::vector<ShardFile> PlanShards(const std::vector<StreamTensor>& tensors, int64_t max_bytes);

// The text of model.safetensors.index.json.
std::string IndexText(const std::vector<ShardFile>& files);

// Whether a file of this name is a model's: one of the above, of whatever numbers.
bool IsModelFile(std::string_view name);

}  // namespace mt::hf
