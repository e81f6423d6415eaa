// Parameters of a model that another program wrote: read as a whole, computed with by this engine,
// saved as a checkpoint that exports read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/spec/print.h"
#include "common/spec/validate.h"
#include "kernels/cpu/cpu_backend.h"
#include "megatrain/v1/job.pb.h"
#include "tests/worker/hf/hf_models.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/checkpoint/writer.h"
#include "worker/decode/decode_model.h"
#include "worker/hf/parameter_source.h"
#include "worker/model/gpt_config.h"

namespace mt::hf {

using Parameters = std::map<std::string, std::vector<float>>;

// A small job of the model.
inline megatrain::v1::JobSpec JobWith(const megatrain::v1::Model& model) {
  megatrain::v1::JobSpec job = JobOf("ffn_size: 32");
  *job.mutable_model() = model;
  const spec::Faults faults = spec::CompleteJob({}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

// Every parameter of this value.
inline Parameters Filled(const megatrain::v1::JobSpec& job, float value) {
  Parameters out;
  for (const auto& [name, shape] : ParametersOf(job.model())) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    out[name].assign(static_cast<size_t>(count), value);
  }
  return out;
}

// All of them, as float.
inline Parameters ReadAll(const ParameterSource& files) {
  Parameters out;
  for (const auto& [name, shape] : files.parameters()) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    std::vector<float>& values = out[name];
    values.resize(static_cast<size_t>(count));
    const Status read = files.Read(name, {Shape(shape.size()), shape}, "F32",
                                   reinterpret_cast<std::byte*>(values.data()));
    EXPECT_TRUE(read.ok()) << read;
  }
  return out;
}

// The logits of every token, [tokens, V], of this engine.
inline std::vector<float> LogitsOf(const megatrain::v1::JobSpec& job, const Parameters& parameters,
                                   const std::vector<int32_t>& tokens) {
  auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status();
  const auto stream = (*backend)->device().CreateStream(kernels::StreamPriority::kLow);
  auto model = decode::DecodeModel::Make(
      {.config = decode::DecodeConfig(model::ConfigFromJob(job), kernels::DType::kF32,
                                      std::ssize(tokens)),
       .memory_limit_bytes = int64_t{1} << 28,
       .backend = backend->get(),
       .stream = stream.get()});
  EXPECT_TRUE(model.ok()) << model.status();
  const decode::DecodeWeights& weights = (*model)->weights();
  for (const params::ParamSpec& spec : weights.registry().params()) {
    const kernels::Tensor to = weights.Weight(spec.name);
    const std::vector<float>& from = parameters.at(spec.name);
    EXPECT_EQ(std::ssize(from), to.shape.NumElements()) << spec.name;
    std::memcpy(to.data, from.data(), from.size() * sizeof(float));
  }
  std::vector<float> out;
  for (int32_t position = 0; position < std::ssize(tokens); ++position) {
    const decode::Row row{.token = tokens[static_cast<size_t>(position)], .position = position};
    (*model)->Forward({&row, 1});
    const int first = 0;
    const kernels::Tensor logits = (*model)->Logits({&first, 1});
    const auto* const values = logits.Data<float>();
    out.insert(out.end(), values, values + job.model().vocab_size());
  }
  return out;
}

inline float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Mean over the tokens behind the first, as transformers computes it.
inline double LossOf(const std::vector<float>& logits, const std::vector<int32_t>& tokens) {
  const size_t vocab = logits.size() / tokens.size();
  double sum = 0;
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    double exps = 0;
    for (size_t v = 0; v < vocab; ++v) exps += std::exp(double{logits[t * vocab + v]});
    sum += std::log(exps) - double{logits[t * vocab + static_cast<size_t>(tokens[t + 1])]};
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

// One rank's checkpoint of the parameters.
inline checkpoint::CheckpointPlace Save(const std::string& directory,
                                        const megatrain::v1::JobSpec& job,
                                        const Parameters& parameters) {
  checkpoint::SaveArgs args;
  args.directory = directory;
  args.manifest.step = 7;
  args.manifest.epoch = 1;
  args.manifest.spec_json = spec::ToJson(job);
  for (const auto& [name, shape] : ParametersOf(job.model())) {
    args.slices.push_back({.key = "weights/" + name,
                           .global_shape = shape,
                           .offset = Shape(shape.size()),
                           .shape = shape,
                           .data = parameters.at(name).data(),
                           .by_columns = name.ends_with("out.weight")});
  }
  const auto saved = checkpoint::SaveCheckpoint(args);
  EXPECT_TRUE(saved.ok()) << saved.status();
  return checkpoint::FindCheckpoint(saved->path).value();
}

}  // namespace mt::hf
