// Loss and every parameter's gradient of a 2-layer GPT-2 against PyTorch
// (tests/golden/gpt2_torch.py).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "tests/worker/model/model_rig.h"

namespace mt::model {
namespace {

class Golden {
 public:
  Golden() {
    const std::string path = std::string(MT_SOURCE_DIR) + "/tests/golden/gpt2_torch.safetensors";
    std::ifstream in(path, std::ios::binary);
    file_.assign(std::istreambuf_iterator<char>(in), {});
    CHECK_GT(file_.size(), size_t{8}) << path;
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file_.data(), 8);
    header_ = nlohmann::json::parse(file_.substr(8, header_bytes));
    data_ = 8 + header_bytes;
  }

  int64_t Size(const char* name) const {
    return std::stoll(header_["__metadata__"][name].get<std::string>());
  }

  template <class T>
  std::vector<T> Read(const std::string& name) const {
    const auto& entry = header_.at(name);
    const auto begin = entry["data_offsets"][0].get<size_t>();
    const auto end = entry["data_offsets"][1].get<size_t>();
    std::vector<T> out((end - begin) / sizeof(T));
    std::memcpy(out.data(), file_.data() + data_ + begin, end - begin);
    return out;
  }

  // F32 or F64, by the entry.
  std::vector<double> Doubles(const std::string& name) const {
    if (header_.at(name)["dtype"] == "F64") return Read<double>(name);
    const std::vector<float> values = Read<float>(name);
    return {values.begin(), values.end()};
  }

  GptConfig Config(kernels::DType dtype) const {
    return {.layers = Size("layers"),
            .hidden = Size("hidden"),
            .heads = Size("heads"),
            .kv_heads = Size("heads"),
            .head_dim = Size("head_dim"),
            .ffn = Size("ffn"),
            .vocab = Size("vocab"),
            .padded_vocab = 128,
            .seq = Size("seq"),
            .micro_batch = Size("batch"),
            .max_positions = Size("max_positions"),
            .dtype = dtype};
  }

  data::Microbatch Batch() const {
    data::Microbatch batch;
    batch.s = Size("seq");
    batch.b = Size("batch");
    batch.tokens = Read<int32_t>("tokens");
    batch.labels = Read<int32_t>("labels");
    batch.weights = Read<float>("weights");
    for (int64_t i = 0; i < batch.b; ++i) batch.samples.push_back(i);
    data::SortTokens(&batch);
    return batch;
  }

 private:
  std::string file_;
  nlohmann::json header_;
  size_t data_ = 0;
};

// Of one parameter, per tensor: |a - b| <= relative |b| + floor * largest |b|.
struct Bounds {
  double loss = 0;
  double relative = 0;
  double floor = 0;
};

void CompareWithTorch(kernels::DType dtype, const std::string& label, const Bounds& bounds) {
  const Golden golden;
  ModelRig rig(golden.Config(dtype));
  for (const params::ParamId id : rig.Ids()) {
    rig.SetWeight(id, golden.Doubles("weight/" + rig.NameOf(id)));
  }
  rig.Run(golden.Batch());
  const double loss = golden.Doubles("loss_" + label)[0];
  EXPECT_NEAR(rig.TakeSums().loss, loss, bounds.loss * loss);

  double largest = 0;
  for (const params::ParamId id : rig.Ids()) {
    largest = std::max(largest, Norm(golden.Doubles("grad_" + label + "/" + rig.NameOf(id))));
  }
  for (const params::ParamId id : rig.Ids()) {
    const std::vector<double> want = golden.Doubles("grad_" + label + "/" + rig.NameOf(id));
    std::vector<double> got = rig.Grad(id);
    for (size_t i = want.size(); i < got.size(); ++i) {
      ASSERT_EQ(got[i], 0.0) << "padded row of " << rig.NameOf(id);
    }
    got.resize(want.size());
    EXPECT_LE(Distance(got, want), bounds.relative * Norm(want) + bounds.floor * largest)
        << rig.NameOf(id) << ": norm " << Norm(want) << ", largest " << largest;
  }
}

TEST(Golden, Fp32GradientsAgreeWithPyTorch) {
  CompareWithTorch(kernels::DType::kF32, "f32", {.loss = 2e-7, .relative = 1e-5, .floor = 1e-7});
}

TEST(Golden, Fp64GradientsAgreeWithPyTorch) {
  CompareWithTorch(kernels::DType::kF64, "f64", {.loss = 1e-14, .relative = 1e-13, .floor = 1e-15});
}

// Every parameter of the file is one of ours and the other way round, under the same name.
TEST(Golden, NamesAndSizesAgreeWithPyTorch) {
  const Golden golden;
  const ModelRig rig(golden.Config(kernels::DType::kF32));
  EXPECT_EQ(rig.registry().size(), 2 + 2 * 16 + 2);
  for (const params::ParamId id : rig.Ids()) {
    EXPECT_EQ(static_cast<int64_t>(golden.Doubles("weight/" + rig.NameOf(id)).size()),
              rig.registry()[id].shape.NumElements());
  }
}

}  // namespace
}  // namespace mt::model
