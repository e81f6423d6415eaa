// The spec is the job's own text, of any version: what is missing there, or of another type, is not
// known.
#include "worker/checkpoint/inspect/summary.h"

#include <filesystem>
#include <initializer_list>
#include <system_error>

#include <nlohmann/json.hpp>

#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {
namespace {

constexpr std::string_view kWeights = "weights/";

// The value below these keys, or null.
nlohmann::json SpecField(const nlohmann::json& spec, std::initializer_list<const char*> keys) {
  const nlohmann::json* at = &spec;
  for (const char* key : keys) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return *at;
}

int64_t SpecNumber(const nlohmann::json& spec, std::initializer_list<const char*> keys) {
  const nlohmann::json value = SpecField(spec, keys);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

}  // namespace

int64_t ElementsOf(const TensorEntry& tensor) { return CountElements(tensor.shape); }

Summary Summarize(const Manifest& manifest) {
  const nlohmann::json spec = nlohmann::json::parse(manifest.spec_json, nullptr, false);
  Summary out;
  out.tensor_parallel = SpecNumber(spec, {"parallel", "tensor"});
  out.pipeline_parallel = SpecNumber(spec, {"parallel", "pipeline"});
  out.data_parallel = SpecNumber(spec, {"parallel", "data"});
  const nlohmann::json precision = SpecField(spec, {"training", "precision"});
  if (precision.is_string()) out.precision = precision.get<std::string>();
  for (const auto& [key, tensor] : manifest.tensors) {
    ++out.num_tensors;
    if (manifest.ranks.empty()) out.num_slices += std::ssize(tensor.slices);
    out.state_bytes += TensorBytes(tensor.dtype, tensor.shape);
    if (key.starts_with(kWeights)) out.parameters += ElementsOf(tensor);
  }
  for (const RankEntry& rank : manifest.ranks) out.num_slices += rank.num_slices;
  const auto samples = manifest.integers.find("consumed_samples");
  if (samples != manifest.integers.end()) out.consumed_samples = samples->second;
  if (__builtin_mul_overflow(out.consumed_samples, SpecNumber(spec, {"model", "seq_length"}),
                             &out.tokens)) {
    out.tokens = 0;
  }
  return out;
}

std::string LayoutText(const Summary& summary) {
  if (summary.tensor_parallel == 0) return "";
  return fmt::format("tp {} x pp {} x dp {}", summary.tensor_parallel, summary.pipeline_parallel,
                     summary.data_parallel);
}

StatusOr<int64_t> FolderBytes(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    bytes += static_cast<int64_t>(entry->file_size(error));
  if (error) return base::ErrnoError(error.value(), "read " + folder);
  return bytes;
}

}  // namespace mt::checkpoint
