// The measuring functions, and the benchmarks of ceilings, embedding, loss and optimizer; layers
// are in gpu_layer_benches.cc, attention in gpu_attention_bench.cc. Calls are timed in batches
// between two synchronisations.
#include "kernels/bench/gpu_op_benches.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

namespace mt::kernels::bench {
namespace {

// Bars: the rate that each op must reach for training at the speed of the best comparable systems.
constexpr double kLossBar = 3.2e12;  // bytes per second
constexpr double kAdamWBar = 0.85;   // fraction of the copy's rate

constexpr double kBatchSeconds = 0.02;

// Tokens with a distribution as skewed as that of text: floor(u^4 V).
std::vector<int32_t> SkewedTokens(int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  uint64_t state = 88172645463325252U;
  for (auto& id : tokens) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const double u = static_cast<double>(state >> 11) * 0x1p-53;
    id = static_cast<int32_t>(u * u * u * u * 50257);
  }
  return tokens;
}

}  // namespace

GpuOpBenches::GpuOpBenches(Backend* backend, std::string_view filter)
    : backend_(*backend),
      filter_(filter),
      stream_(backend->device().CreateStream(StreamPriority::kLow)) {}

Tensor GpuOpBenches::Make(Shape shape, DType dtype) {
  buffers_.push_back(
      backend_.device().Allocate(shape.NumElements() * SizeOf(dtype), MemoryKind::kDevice));
  const Tensor tensor{buffers_.back()->data(), dtype, shape};
  if (dtype == DType::kF64 || dtype == DType::kI64) {
    backend_.vector().Fill(*stream_, tensor, 0);
  } else {
    backend_.random().FillNormal(*stream_, {.key = buffers_.size(), .std = 0.5, .out = tensor});
  }
  return tensor;
}

Tensor GpuOpBenches::Ints(const std::vector<int32_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  buffers_.push_back(backend_.device().Allocate(count * 4, MemoryKind::kDevice));
  backend_.device().Copy(*stream_, buffers_.back()->data(), values.data(), count * 4);
  stream_->Synchronize();
  return {buffers_.back()->data(), DType::kI32, {count}};
}

Workspace GpuOpBenches::Scratch(int64_t bytes) {
  buffers_.push_back(backend_.device().Allocate(bytes, MemoryKind::kDevice));
  return {buffers_.back()->data(), bytes};
}

bool GpuOpBenches::Wanted(const std::string& name) const {
  return name.find(filter_) != std::string::npos;
}

double GpuOpBenches::SecondsPerCall(const Work& work, int calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) work();
  stream_->Synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

int GpuOpBenches::CallsOfABatch(const Work& work) {
  stream_->Synchronize();
  SecondsPerCall(work, 3);
  return std::clamp(static_cast<int>(kBatchSeconds / SecondsPerCall(work, 5)), 3, 2000);
}

double GpuOpBenches::MedianSeconds(const Work& work) {
  const int calls = CallsOfABatch(work);
  std::array<double, 7> times{};
  for (double& time : times) time = SecondsPerCall(work, calls);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void GpuOpBenches::Judge(double reached, double bar, const std::string& bar_text) {
  if (bar > 0) {
    ++bars_;
    below_ += reached < bar ? 1 : 0;
    fmt::print(", bar {}: {}", bar_text, reached < bar ? "BELOW" : "reached");
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void GpuOpBenches::Bytes(const std::string& name, double bytes, const Work& work, double bar) {
  if (!Wanted(name)) return;
  const double seconds = MedianSeconds(work), rate = bytes / seconds;
  fmt::print("{:<58} {:>9.1f} us {:>7.2f} TB/s {:>6.2f} of copy", name, seconds * 1e6, rate * 1e-12,
             copy_rate_ > 0 ? rate / copy_rate_ : 0);
  Judge(rate, bar, fmt::format("{:.2f} TB/s", bar * 1e-12));
}

double GpuOpBenches::Flops(const std::string& name, double flops, double ceiling, const Work& work,
                           double bar) {
  if (!Wanted(name)) return 0;
  const double seconds = MedianSeconds(work), rate = flops / seconds;
  fmt::print("{:<58} {:>9.1f} us {:>7.1f} TFLOP/s", name, seconds * 1e6, rate * 1e-12);
  if (ceiling > 0) fmt::print(" {:>5.2f} of {:.1f}", rate / ceiling, ceiling * 1e-12);
  Judge(rate, bar, fmt::format("{:.1f} TFLOP/s", bar * 1e-12));
  return rate;
}

int GpuOpBenches::Summary() const {
  fmt::print("{} of {} bars reached\n", bars_ - below_, bars_);
  return below_;
}

void GpuOpBenches::Ceilings() {
  constexpr int64_t kBytes = int64_t{1} << 30, kN = 8192;
  fmt::print("{}\n", backend_.device().Describe());
  const Tensor from = Make({kBytes / 2}), to = Make({kBytes / 2});
  copy_rate_ = 2.0 * kBytes /
               MedianSeconds([&] { backend_.device().Copy(*stream_, to.data, from.data, kBytes); });
  Free();
  const Tensor x = Make({kN, kN}), w = Make({kN, kN}), y = Make({kN, kN});
  LinearForwardArgs args{.x = x, .w = w, .y = y};
  args.workspace = Scratch(backend_.linear().Plan(args));
  gemm_rate_ =
      2.0 * kN * kN * kN / MedianSeconds([&] { backend_.linear().Forward(*stream_, args); });
  fmt::print("copy {:.2f} TB/s (read and written), G {:.0f} TFLOP/s\n", copy_rate_ * 1e-12,
             gemm_rate_ * 1e-12);
  Free();
}

void GpuOpBenches::Embedding() {
  constexpr int64_t kT = 32768, kV = 50304, kH = 768, kB = 32;
  const std::vector<int32_t> tokens = SkewedTokens(kT);
  std::vector<int32_t> order(kT), token, start;
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return tokens[static_cast<size_t>(a)] < tokens[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t id = tokens[static_cast<size_t>(order[i])];
    if (!token.empty() && token.back() == id) continue;
    token.push_back(id);
    start.push_back(static_cast<int32_t>(i));
  }
  start.push_back(static_cast<int32_t>(kT));
  const auto segments = static_cast<int64_t>(token.size());
  std::vector<int32_t> at(kT / kB);
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i);
  const Tensor table = Make({kV, kH}), out = Make({kT, kH}), ids = Ints(tokens);
  Bytes("Gather [32768, 768]", 4.0 * kT * kH, [&] {
    backend_.embedding().Gather(*stream_, {.tokens = ids, .table = table, .out = out});
  });
  const EmbeddingScatterArgs scatter{.dy = out,
                                     .order = Ints(order),
                                     .segment_token = Ints(token),
                                     .segment_start = Ints(start),
                                     .num_segments = segments,
                                     .dtable = Make({kV, kH}, DType::kF32),
                                     .positions = Ints(at),
                                     .batch = kB,
                                     .dposition = Make({kT / kB, kH}, DType::kF32)};
  Bytes(fmt::format("ScatterGrad [32768, 768], {} tokens, positions", segments),
        4.0 * kT * kH + 8.0 * static_cast<double>(segments) * kH + 8.0 * kT / kB * kH,
        [&] { backend_.embedding().ScatterGrad(*stream_, scatter); });
  Free();
}

void GpuOpBenches::Loss() {
  constexpr int64_t kRows = 8192, kV = 50304;
  const Tensor logits = Make({kRows, kV}), weight = Make({kRows}, DType::kF32);
  backend_.vector().Fill(*stream_, weight, 1);
  const LossFinishArgs loss{.logits = logits,
                            .labels = Ints(SkewedTokens(kRows)),
                            .real_columns = 50257,
                            .stats = Make({1, kRows, 3}, DType::kF32),
                            .weight = weight,
                            .seed = 1e-3,
                            .sums = Make({2}, DType::kF64)};
  const LossStatsArgs stats{.logits = logits,
                            .labels = loss.labels,
                            .real_columns = loss.real_columns,
                            .stats = {loss.stats.data, DType::kF32, {kRows, 3}}};
  Bytes("loss Stats [8192, 50304]", 2.0 * kRows * kV,
        [&] { backend_.loss().Stats(*stream_, stats); });
  Bytes("loss Finish [8192, 50304]", 4.0 * kRows * kV,
        [&] { backend_.loss().Finish(*stream_, loss); });
  Bytes(
      "StatsFinish [8192, 50304]", 4.0 * kRows * kV,
      [&] { backend_.loss().StatsFinish(*stream_, loss); }, kLossBar);
  Free();
}

void GpuOpBenches::Updates() {
  constexpr int64_t kN = int64_t{124} << 20;
  const Tensor gradient = Make({kN}, DType::kF32), master = Make({kN}, DType::kF32);
  const Tensor m = Make({kN}, DType::kF32), v = Make({kN}, DType::kF32), copy = Make({kN});
  const Tensor block = Make({static_cast<int64_t>(sizeof(StepScalars) / 8)}, DType::kI64);
  const Tensor sums = Make({2}, DType::kF64);
  StepScalars scalars;
  scalars.lr = 1e-4;
  scalars.factor = 1e-3;
  backend_.device().Copy(*stream_, block.data, &scalars, sizeof(scalars));
  stream_->Synchronize();
  backend_.vector().Fill(*stream_, v, 1e-4);
  const auto* on_device = static_cast<const StepScalars*>(block.data);
  Bytes(
      "AdamW [130M] with bf16 copy", 30.0 * kN,
      [&] {
        backend_.update().AdamW(*stream_, {.gradient = gradient,
                                           .master = master,
                                           .m = m,
                                           .v = v,
                                           .model_copy = copy,
                                           .decay = true,
                                           .scalars = on_device});
      },
      kAdamWBar * copy_rate_);
  Bytes("SGD with momentum [130M] with bf16 copy", 22.0 * kN, [&] {
    backend_.update().Sgd(*stream_, {.gradient = gradient,
                                     .master = master,
                                     .momentum = m,
                                     .model_copy = copy,
                                     .decay = true,
                                     .scalars = on_device});
  });
  Bytes("SquareSum [130M]", 4.0 * kN,
        [&] { backend_.update().SquareSum(*stream_, {.gradient = gradient, .out = sums}); });
  Free();
}

}  // namespace mt::kernels::bench
