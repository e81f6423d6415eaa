// Plans, allocates, binds and initialises a model as a rank does, and converts its tensors from and
// to fp64 vectors.
#include "tests/worker/model/model_rig.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "common/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/params/init.h"

namespace mt::model {
GptConfig SmallConfig() {
  return {.layers = 2,
          .hidden = 24,
          .heads = 3,
          .kv_heads = 3,
          .head_dim = 12,
          .ffn = 80,
          .vocab = 97,
          .padded_vocab = 128,
          .seq = 20,
          .micro_batch = 2,
          .max_positions = 23,
          .dtype = kernels::DType::kF64};
}

data::Microbatch RandomBatch(const GptConfig& config, uint64_t seed, int64_t first_sample) {
  std::mt19937_64 random(seed);
  data::Microbatch batch;
  batch.s = config.seq;
  batch.b = config.micro_batch;
  const auto vocab = static_cast<uint64_t>(config.vocab);
  for (int64_t i = 0; i < config.tokens(); ++i) {
    batch.tokens.push_back(static_cast<int32_t>(random() % vocab));
    batch.labels.push_back(static_cast<int32_t>(random() % vocab));
    batch.weights.push_back(random() % 8 == 0 ? 0.0F : 1.0F);
    batch.weight_sum += static_cast<double>(batch.weights.back());
  }
  for (int64_t i = 0; i < batch.b; ++i) batch.samples.push_back(first_sample + i);
  data::SortTokens(&batch);
  if (config.reset_positions) RestartPositions(&batch);
  return batch;
}

void RestartPositions(data::Microbatch* batch) {
  batch->positions.assign(batch->tokens.size(), 0);
  std::vector<int32_t> ends(static_cast<size_t>(batch->s));
  for (int64_t i = 0; i < batch->b; ++i) {
    for (int64_t t = 0; t < batch->s; ++t)
      ends[static_cast<size_t>(t)] = (3 * t + 5 * i) % 7 == 2 ? 1 : 0;
    data::PlacePositions(ends, 1, i, batch);
  }
  data::SortPositions(batch);
}

data::Microbatch Samples(const data::Microbatch& batch, int64_t begin, int64_t count) {
  data::Microbatch out;
  out.s = batch.s;
  out.b = count;
  for (int64_t t = 0; t < batch.s; ++t) {
    for (int64_t i = begin; i < begin + count; ++i) {
      const auto at = static_cast<size_t>(t * batch.b + i);
      out.tokens.push_back(batch.tokens[at]);
      out.labels.push_back(batch.labels[at]);
      out.weights.push_back(batch.weights[at]);
      out.weight_sum += static_cast<double>(batch.weights[at]);
      if (!batch.positions.empty()) out.positions.push_back(batch.positions[at]);
    }
  }
  out.samples.assign(batch.samples.begin() + begin, batch.samples.begin() + begin + count);
  data::SortTokens(&out);
  if (!out.positions.empty()) data::SortPositions(&out);
  return out;
}

ModelRig::ModelRig(const GptConfig& config, const Options& options)
    : config_(config), seed_(1.0 / static_cast<double>(config.tokens())) {
  auto backend = kernels::cpu::MakeCpuBackend({.num_threads = options.threads});
  CHECK(backend.ok()) << backend.status().ToString();
  backend_ = std::move(*backend);
  stream_ = backend_->device().CreateStream(kernels::StreamPriority::kLow);
  if (options.chunks.empty()) {
    model_ = std::make_unique<GptModel>(config, backend_.get(), stream_.get());
  } else {
    model_ = std::make_unique<GptModel>(GptModel::Args{.config = config,
                                                       .chunks = options.chunks,
                                                       .max_microbatches = options.max_microbatches,
                                                       .tensor = options.tensor,
                                                       .backend = backend_.get(),
                                                       .stream = stream_.get()});
  }
  model_->RegisterParams(&registry_);
  layout_ = std::make_unique<params::FlatLayout>(params::FlatLayout::Args{
      .registry = &registry_, .min_bucket_elements = options.min_bucket_elements});
  store_ = std::make_unique<params::ParamStore>(&registry_, layout_.get(), config.dtype);
  memory::MemoryPlan plan;
  store_->Plan(&plan);
  model_->PlanActivations(&plan);
  auto memory = memory::Memory::Allocate(backend_->device(), plan, int64_t{1} << 32);
  CHECK(memory.ok()) << memory.status().ToString();
  memory_ = std::move(*memory);
  store_->Bind(*memory_);
  model_->Bind(*memory_, *store_);
  params::InitializeParams(
      *stream_, {.random = &backend_->random(), .vector = &backend_->vector(), .seed = config.seed},
      *store_);
}

GptModel::StepArgs ModelRig::StepArgs(kernels::GradMode mode, bool last) {
  return {.mode = mode,
          .last = last,
          .seed = seed_,
          .scalars = &scalars_,
          .sums = {sums_, kernels::DType::kF64, {2}}};
}

void ModelRig::Run(const data::Microbatch& batch, kernels::GradMode mode, bool last) {
  model_->ForwardBackward(batch, StepArgs(mode, last));
}

void ModelRig::Evaluate(const data::Microbatch& batch) {
  model_->Evaluate(batch, {sums_, kernels::DType::kF64, {2}});
}

Sums ModelRig::TakeSums() {
  const Sums out = {.loss = sums_[0], .weight = sums_[1]};
  sums_[0] = sums_[1] = 0;
  return out;
}

std::vector<double> ModelRig::Grad(params::ParamId id) const { return Read(store_->Grad(id)); }

std::vector<double> ModelRig::Weight(params::ParamId id) const { return Read(store_->Weight(id)); }

std::vector<double> ModelRig::Read(const kernels::Tensor& tensor) const {
  std::vector<double> values(static_cast<size_t>(tensor.NumElements()));
  backend_->vector().Cast(*stream_, {values.data(), kernels::DType::kF64, tensor.shape}, tensor);
  return values;
}

void ModelRig::SetWeight(params::ParamId id, const std::vector<double>& values) {
  const kernels::Tensor weight = store_->Weight(id);
  std::vector<double> all = Read(weight);
  CHECK_LE(values.size(), all.size());
  std::copy(values.begin(), values.end(), all.begin());
  backend_->vector().Cast(*stream_, weight, {all.data(), kernels::DType::kF64, weight.shape});
}

void ModelRig::FillGrads(double value) {
  backend_->vector().Fill(*stream_, store_->grads(), value);
}

std::vector<uint8_t> ModelRig::GradBytes() const {
  const kernels::Tensor grads = store_->grads();
  const auto* bytes = static_cast<const uint8_t*>(grads.data);
  return {bytes, bytes + grads.Bytes()};
}

std::vector<params::ParamId> ModelRig::Ids() const {
  std::vector<params::ParamId> ids;
  ids.reserve(static_cast<size_t>(registry_.size()));
  for (int32_t i = 0; i < registry_.size(); ++i) ids.push_back(params::ParamId{i});
  return ids;
}

params::ParamId ModelRig::IdOf(const std::string& name) const {
  const params::ParamId id = registry_.Find(name).value_or(params::ParamId::kNone);
  CHECK(id != params::ParamId::kNone) << name;
  return id;
}

double Norm(const std::vector<double>& values) { return std::sqrt(Dot(values, values)); }

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  CHECK_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  CHECK_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace mt::model
