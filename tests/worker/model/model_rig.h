// A GptModel on the CPU backend together with everything that a rank sets up for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "tests/compute_threads.h"
#include "worker/data/microbatch.h"
#include "worker/memory/memory.h"
#include "worker/model/gpt_model.h"
#include "worker/params/flat_layout.h"
#include "worker/params/param_store.h"
#include "worker/params/registry.h"

namespace mt::model {

// 2 layers, fp64, heads whose width is not hidden, a padded vocabulary, both dropouts off.
GptConfig SmallConfig();

// Random tokens, labels and weights (about one in eight is 0). Sample numbers start at
// first_sample. Where the config's positions restart, those of RestartPositions.
data::Microbatch RandomBatch(const GptConfig& config, uint64_t seed, int64_t first_sample);

// Gives the microbatch documents of up to seven tokens, others in each sample.
void RestartPositions(data::Microbatch* batch);

// Samples [begin, begin + count) of a microbatch.
data::Microbatch Samples(const data::Microbatch& batch, int64_t begin, int64_t count);

// Total loss and weight of the calls since the last Clear.
struct Sums {
  double loss = 0;
  double weight = 0;
};

class ModelRig {
 public:
  struct Options {
    int64_t min_bucket_elements = 1024;
    int threads = ComputeThreads();
    std::vector<GptModel::Chunk> chunks;         // empty: one of the whole network
    int max_microbatches = 1;                    // with chunks
    parallel::TensorParallel* tensor = nullptr;  // with chunks
  };
  // Initial weights are the engine's own.
  explicit ModelRig(const GptConfig& config) : ModelRig(config, Options()) {}
  ModelRig(const GptConfig& config, const Options& options);

  // Runs one microbatch with the constant 1 / T of SmallConfig's whole batch unless set_seed.
  void Run(const data::Microbatch& batch, kernels::GradMode mode = kernels::GradMode::kOverwrite,
           bool last = true);
  void Evaluate(const data::Microbatch& batch);
  Sums TakeSums();

  GptModel& model() { return *model_; }
  kernels::Backend& backend() { return *backend_; }
  const params::Registry& registry() const { return registry_; }
  const params::ParamStore& store() const { return *store_; }
  const params::FlatLayout& layout() const { return *layout_; }
  const memory::Memory& memory() const { return *memory_; }
  kernels::StepScalars& scalars() { return scalars_; }
  void set_seed(double seed) { seed_ = seed; }

  // All stored elements of a parameter's gradient or weight, as double.
  std::vector<double> Grad(params::ParamId id) const;
  std::vector<double> Weight(params::ParamId id) const;
  void SetWeight(params::ParamId id, const std::vector<double>& values);
  // What actions take; sums go to TakeSums.
  GptModel::StepArgs StepArgs(kernels::GradMode mode, bool last);
  // Every element, as if a step before had left it.
  void FillGrads(double value);
  // The flat gradient buffer, for comparison by bits.
  std::vector<uint8_t> GradBytes() const;
  std::vector<params::ParamId> Ids() const;
  // CHECKs that there is one.
  params::ParamId IdOf(const std::string& name) const;
  const std::string& NameOf(params::ParamId id) const { return registry_[id].name; }

 private:
  std::vector<double> Read(const kernels::Tensor& tensor) const;

  GptConfig config_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::Stream> stream_;
  params::Registry registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::unique_ptr<params::ParamStore> store_;
  std::unique_ptr<GptModel> model_;
  std::unique_ptr<memory::Memory> memory_;
  kernels::StepScalars scalars_;
  double sums_[2] = {0, 0};
  double seed_ = 0;
};

double Norm(const std::vector<double>& values);
// 2-norm of a - b.
double Distance(const std::vector<double>& a, const std::vector<double>& b);
double Dot(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace mt::model
