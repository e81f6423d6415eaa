// One tensor of all layers follows another, so that each is a list over the layers.
#include "worker/llmc/tensors.h"

#include <functional>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "megatrain/v1/job.pb.h"

namespace mt::llmc {
namespace {

using hf::HfTensor;
using hf::Rows;
using hf::Shape;
using megatrain::v1::Model;

// Adds tensors to a list.
class List {
 public:
  explicit List(const Header& header) : layers_(header.layers), c_(header.hidden) {}

  // [rows, C].
  void Table(const std::string& name, std::vector<Rows> rows) {
    Add(name, std::move(rows), c_, /*gain=*/false);
  }
  // The gains of a norm of all layers, [L, C], then its shifts.
  void Norms(const std::string& name, const std::string& parameter) {
    EachLayer([&](const std::string& index, const std::string& layer) {
      Add(name + "w" + index, {{layer + parameter + ".weight", 0, c_}}, 0, /*gain=*/true);
    });
    EachLayer([&](const std::string& index, const std::string& layer) {
      Add(name + "b" + index, {{layer + parameter + ".bias", 0, c_}}, 0, /*gain=*/false);
    });
  }
  // The matrices of all layers, [L, outputs, inputs], then their biases. Rows name parameters of a
  // layer without ".weight".
  void Linears(const std::string& name, const std::vector<Rows>& rows, int64_t inputs, bool bias) {
    const auto rows_of = [&](const std::string& layer, const char* suffix) {
      std::vector<Rows> out = rows;
      for (Rows& run : out) run.parameter = layer + run.parameter + suffix;
      return out;
    };
    EachLayer([&](const std::string& index, const std::string& layer) {
      Add(name + "w" + index, rows_of(layer, ".weight"), inputs, /*gain=*/false);
    });
    EachLayer([&](const std::string& index, const std::string& layer) {
      std::vector<Rows> biases = rows_of(layer, ".bias");
      for (Rows& run : biases) {
        if (!bias) run.parameter.clear();
      }
      Add(name + "b" + index, std::move(biases), 0, /*gain=*/false);
    });
  }
  void FinalNorm() {
    Add("lnfw", {{"final_norm.weight", 0, c_}}, 0, /*gain=*/true);
    Add("lnfb", {{"final_norm.bias", 0, c_}}, 0, /*gain=*/false);
  }
  std::vector<HfTensor> Take() { return std::move(out_); }

 private:
  void EachLayer(
      const std::function<void(const std::string& index, const std::string& layer)>& add) const {
    for (int64_t i = 0; i < layers_; ++i) add(fmt::format("[{}]", i), fmt::format("layers.{}.", i));
  }
  // A matrix of `inputs` columns; 0: a vector.
  void Add(std::string name, std::vector<Rows> rows, int64_t inputs, bool gain) {
    int64_t outputs = 0;
    for (const Rows& run : rows) outputs += run.count;
    out_.push_back({.name = std::move(name),
                    .shape = inputs == 0 ? Shape{outputs} : Shape{outputs, inputs},
                    .gain = gain,
                    .rows = std::move(rows)});
  }

  const int64_t layers_, c_;
  std::vector<HfTensor> out_;
};

}  // namespace

std::vector<HfTensor> TensorsOf(const Model& model, const Header& header) {
  const int64_t c = header.hidden;
  const int64_t padding = header.padded_vocab - header.vocab;
  CHECK_GE(padding, 0);
  std::vector<Rows> words = {{"embedding.word.weight", 0, header.vocab}};
  if (padding > 0) words.push_back({"", 0, padding});
  List list(header);
  list.Table("wte", std::move(words));
  list.Table("wpe", {{"embedding.position.weight", 0, header.positions}});
  list.Norms("ln1", "norm1");
  list.Linears("qkv", {{"attention.q", 0, c}, {"attention.k", 0, c}, {"attention.v", 0, c}}, c,
               model.qkv_bias());
  list.Linears("attproj", {{"attention.out", 0, c}}, c, model.bias());
  list.Norms("ln2", "norm2");
  list.Linears("fc", {{"ffn.up", 0, 4 * c}}, c, model.bias());
  list.Linears("fcproj", {{"ffn.down", 0, c}}, 4 * c, model.bias());
  list.FinalNorm();
  return list.Take();
}

}  // namespace mt::llmc
