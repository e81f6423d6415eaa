// Whole runs on one GPU beside runs on the CPU, the reference: jobs that differ in
// placement.device alone, over token files in a folder of their own. Tests are skipped, saying why,
// where the CUDA module or a GPU is missing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops/backend.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {

enum class Where : uint8_t { kCpu, kGpu };

// Fields of the model, as YAML's flow mapping without its braces. 4 layers x 128, sequence 128.
inline constexpr std::string_view kGptLike = "heads: 4";
inline constexpr std::string_view kLlamaLike =
    "heads: 8, kv_heads: 4, ffn_size: 256, position: rope, norm: rmsnorm, activation: swiglu, "
    "bias: false, tie_embeddings: false";

// Stored as heads of 112 and 128 channels. (RoPE turns pairs, so 119 has learned positions.)
inline constexpr std::string_view kHeads100 =
    "heads: 4, kv_heads: 2, head_dim: 100, ffn_size: 256, position: rope, norm: rmsnorm, "
    "activation: swiglu, bias: false, qkv_bias: true, tie_embeddings: false";
inline constexpr std::string_view kHeads119 = "heads: 4, kv_heads: 2, head_dim: 119";

// A completed and resolved job of that model: 8 samples a step, 20 steps at lr 1e-3, clipping,
// weight decay, hidden dropout 0.1, no evaluation, no checkpoint; `overrides` as in TinyJob.
megatrain::v1::JobSpec GpuJob(Where where, std::string_view model,
                              const std::vector<std::string>& overrides);

// A backend of the first GPU; why there is none.
const StatusOr<std::unique_ptr<kernels::Backend>>& SharedGpu();

class GpuTrainTest : public ::testing::Test {
 protected:
  void SetUp() override;
  kernels::Backend& gpu() { return *SharedGpu().value(); }
  // One rank, on a thread of its own; ended well unless `ends_well` is false.
  RankOutcome Run(const megatrain::v1::JobSpec& job, bool ends_well = true);
  RankOutcome Run(Where where, std::string_view model, const std::vector<std::string>& overrides) {
    return Run(GpuJob(where, model, overrides));
  }

  TempDir dir_;
  std::function<void(TrainArgs* args)> adjust_;
};

// The fields of a job that saves into `directory` at step `every` and its multiples.
std::vector<std::string> SavesTo(const std::string& directory, int64_t every);
std::vector<std::string> Joined(std::vector<std::string> fields,
                                const std::vector<std::string>& more);

}  // namespace mt::train
