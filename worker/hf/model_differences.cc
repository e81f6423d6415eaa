// ModelDifferences of config_read.h: the network's fields by name, each as text.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/hf/config_read.h"

namespace mt::hf {
namespace {

using megatrain::v1::Model;
using Fields = std::vector<std::pair<std::string, std::string>>;

std::string YesOrNo(bool value) { return value ? "true" : "false"; }

Fields FieldsOf(const Model& m) {
  Fields out = {{"layers", fmt::to_string(m.layers())},
                {"hidden_size", fmt::to_string(m.hidden_size())},
                {"heads", fmt::to_string(m.heads())},
                {"kv_heads", fmt::to_string(spec::KvHeads(m))},
                {"head_dim", fmt::to_string(spec::HeadDim(m))},
                {"ffn_size", fmt::to_string(spec::FfnSize(m))},
                {"vocab_size", fmt::to_string(m.vocab_size())},
                {"norm_eps", fmt::to_string(m.norm_eps())},
                {"norm_one_plus", YesOrNo(m.norm_one_plus())},
                {"bias", YesOrNo(m.bias())},
                {"qkv_bias", YesOrNo(m.qkv_bias())},
                {"qk_norm", YesOrNo(m.qk_norm())},
                {"tie_embeddings", YesOrNo(m.tie_embeddings())},
                {"parallel_residual", YesOrNo(m.parallel_residual())},
                {"window", fmt::to_string(m.window())}};
  const auto name = [&](const char* field, const std::string& value) {
    out.emplace_back(field, value);
  };
  name("position", Model::Position_Name(m.position()));
  name("norm", Model::Norm_Name(m.norm()));
  name("activation", Model::Activation_Name(m.activation()));
  if (m.position() == Model::POSITION_LEARNED)
    name("max_positions", fmt::to_string(spec::MaxPositions(m)));
  const bool rope = m.position() == Model::POSITION_ROPE;
  const auto& scaling = m.rope().scaling();
  name("rope.base", rope ? fmt::to_string(m.rope().base()) : "");
  name("rope.percent", rope ? fmt::to_string(m.rope().percent()) : "");
  name("rope.scaling.type", rope ? Model::Rope::Scaling::Type_Name(scaling.type()) : "");
  name("rope.scaling.factor", fmt::to_string(scaling.factor()));
  name("rope.scaling.low_freq_factor", fmt::to_string(scaling.low_freq_factor()));
  name("rope.scaling.high_freq_factor", fmt::to_string(scaling.high_freq_factor()));
  name("rope.scaling.original_positions", fmt::to_string(scaling.original_positions()));
  return out;
}

}  // namespace

std::string JobWord(const std::string& value) {
  const size_t underscore = value.find('_');
  if (underscore == std::string::npos) return value;
  std::string word = value.substr(underscore + 1);
  for (char& c : word) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return word;
}

std::vector<std::string> ModelDifferences(const Model& stored, const Model& job,
                                          std::string_view says) {
  const Fields theirs = FieldsOf(stored), ours = FieldsOf(job);
  std::vector<std::string> out;
  for (const auto& [field, value] : theirs) {
    for (const auto& [name, mine] : ours) {
      if (name != field || value == mine) continue;
      out.push_back(fmt::format("model.{}: {} has {}, the job {}", field, says, JobWord(value),
                                JobWord(mine)));
    }
  }
  return out;
}

}  // namespace mt::hf
