// How near decoding comes to reading its weights and caches: a program to run by hand
// (docs/benchmarks.md), no test. Weights are random; the model is gpt2-124m unless flags say
// otherwise. Within one run it times, in turns, a plain read of the weights, on the same threads or
// by a GPU's sum of squares, and a greedy step, and prints the best of each and their ratio.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/base/math.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/module.h"
#include "worker/decode/decode_model.h"

namespace mt::decode {
namespace {

struct BenchFlags {
  int64_t layers = 12, hidden = 768, heads = 12, vocab = 50257;
  int64_t rows = 1, positions = 64;
  int64_t prompt = 0;  // tokens; 0: none is timed
  int threads = 1, rounds = 20;
  std::string device = "cpu", dtype = "fp32";
  bool on_gpu() const { return device == "gpu"; }
};

// Seconds that this process has computed, on each of its threads: what other programs take of the
// cores does not count. Beside a GPU, seconds by the clock.
double Now(const BenchFlags& flags) {
  if (flags.on_gpu()) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  const double all = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  return all / flags.threads;
}

// Sums [begin, end) in eight vectors, as fast as the memory gives them.
uint64_t Read(const char* begin, const char* end) {
  using Vector = uint64_t __attribute__((vector_size(32)));
  Vector sums[8] = {};
  for (; end - begin >= 256; begin += 256) {
    for (int i = 0; i < 8; ++i) {
      Vector part;
      std::memcpy(&part, begin + 32 * i, sizeof(part));
      sums[i] += part;
    }
  }
  uint64_t total = 0;
  for (const Vector& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
  return total;
}

double SecondsToRead(std::span<const char> bytes, const BenchFlags& flags) {
  static std::atomic<uint64_t> kept;  // else nothing needs to be read
  const char* const data = bytes.data();
  const int threads = flags.threads;
  const double start = Now(flags);
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([=, n = std::ssize(bytes)] {
      kept = Read(data + n * t / threads, data + n * (t + 1) / threads);
    });
  }
  kept = Read(data, data + std::ssize(bytes) / threads);
  others.clear();
  return Now(flags) - start;
}

// The device and its stream.
struct On {
  kernels::Backend* backend = nullptr;
  kernels::Stream* stream = nullptr;
};

// A GPU's: it sums the squares of what lies there as fp32, whatever it is.
double GpuSecondsToRead(const On& on, std::span<const char> bytes, const BenchFlags& flags) {
  const auto sums = on.backend->device().Allocate(16, kernels::MemoryKind::kDevice);
  on.backend->device().Zero(*on.stream, sums->data(), 16);
  const kernels::Tensor all{
      const_cast<char*>(bytes.data()), kernels::DType::kF32, {std::ssize(bytes) / 4}};
  on.stream->Synchronize();
  const double start = Now(flags);
  on.backend->update().SquareSum(
      *on.stream, {.gradient = all, .out = {sums->data(), kernels::DType::kF64, {2}}});
  on.stream->Synchronize();
  return Now(flags) - start;
}

void FillRandom(const On& on, const DecodeModel& model) {
  uint32_t state = 1;
  std::vector<float> values;
  for (const params::ParamSpec& spec : model.weights().registry().params()) {
    const kernels::Tensor w = model.weights().Weight(spec.name);
    const int64_t count = w.NumElements();
    values.resize(static_cast<size_t>(count));
    for (float& value : values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) * 0x1p-28F - 0x1p-5F;
    }
    const auto single = on.backend->device().Allocate(count * 4, kernels::MemoryKind::kDevice);
    on.backend->device().Copy(*on.stream, single->data(), values.data(), count * 4);
    on.backend->vector().Cast(*on.stream, w, {single->data(), kernels::DType::kF32, w.shape});
    on.stream->Synchronize();
  }
}

double SecondsOfStep(DecodeModel* model, const BenchFlags& flags, int64_t position) {
  std::vector<Row> tokens;
  for (int64_t r = 0; r < flags.rows; ++r) {
    tokens.push_back({.token = static_cast<int32_t>(r + position),
                      .sequence = static_cast<int32_t>(r),
                      .position = static_cast<int32_t>(position)});
  }
  std::vector<int> all(tokens.size());
  std::iota(all.begin(), all.end(), 0);
  const double start = Now(flags);
  if (flags.rows <= kernels::kMaxFewRows) {
    model->Step(tokens);
  } else {
    model->Forward(tokens);
    model->Logits(all);
  }
  return Now(flags) - start;
}

model::GptConfig ConfigOf(const BenchFlags& f) {
  const model::GptConfig trained = {.layers = f.layers,
                                    .hidden = f.hidden,
                                    .heads = f.heads,
                                    .kv_heads = f.heads,
                                    .head_dim = f.hidden / f.heads,
                                    .ffn = 4 * f.hidden,
                                    .vocab = f.vocab,
                                    .padded_vocab = f.vocab,
                                    .seq = f.positions,
                                    .micro_batch = 1,
                                    .max_positions = std::max<int64_t>(1024, f.positions)};
  using kernels::DType;
  const DType dtype = f.dtype == "fp64"   ? DType::kF64
                      : f.dtype == "bf16" ? DType::kBf16
                      : f.dtype == "fp16" ? DType::kF16
                                          : DType::kF32;
  return DecodeConfig(trained, dtype, f.positions);
}

// A prompt of one sequence, and training's count of its products.
void TimePrompt(DecodeModel* model, const On& on, const BenchFlags& f) {
  std::vector<Row> rows;
  rows.reserve(static_cast<size_t>(f.prompt));
  for (int32_t i = 0; i < f.prompt; ++i)
    rows.push_back({.token = i % static_cast<int32_t>(f.vocab), .position = i});
  const std::vector<int> last = {static_cast<int>(f.prompt - 1)};
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < f.rounds; ++round) {
    on.stream->Synchronize();
    const double start = Now(f);
    model->Forward(rows);
    model->Logits(last);
    best = std::min(best, Now(f) - start);
  }
  const auto h = static_cast<double>(f.hidden), s = static_cast<double>(f.prompt);
  // Products of layers, and the half of attention that a causal mask leaves.
  const double flops = static_cast<double>(f.layers) * (24 * s * h * h + 2 * s * s * h);
  std::printf("a prompt of %lld tokens: %.3f ms, %.1f TFLOP/s of layers and causal attention\n",
              static_cast<long long>(f.prompt), best * 1e3, flops / best / 1e12);
}

int Run(const BenchFlags& f) {
  auto backend = f.on_gpu() ? kernels::cuda::LoadCudaBackend({})
                            : kernels::cpu::MakeCpuBackend({.num_threads = f.threads});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(backend.status()).c_str());
    return 1;
  }
  const auto stream = (*backend)->device().CreateStream(kernels::StreamPriority::kLow);
  auto model = DecodeModel::Make(
      {.config = ConfigOf(f),
       .sequences = f.rows,
       .max_rows = std::max(DecodeModel::kMaxRows, base::RoundUp(f.prompt, DecodeModel::kMaxRows)),
       .logit_rows = std::max(f.rows, kernels::kMaxFewRows),
       .memory_limit_bytes = std::numeric_limits<int64_t>::max(),
       .backend = backend->get(),
       .stream = stream.get()});
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(model.status()).c_str());
    return 1;
  }
  const On on{backend->get(), stream.get()};
  FillRandom(on, **model);
  const DecodeWeights& weights = (*model)->weights();
  const model::GptConfig& config = (*model)->config();
  const auto bytes = static_cast<double>(weights.bytes());
  // What a step reads of the caches, at the last position.
  const double cache =
      2.0 * static_cast<double>(f.rows * config.layers * config.kv_heads * config.head_dim *
                                f.positions * SizeOf(config.dtype));
  double read = std::numeric_limits<double>::infinity(), step = read, sum = 0;
  for (int round = 0; round < f.rounds; ++round) {
    read = std::min(read, f.on_gpu() ? GpuSecondsToRead(on, weights.memory(), f)
                                     : SecondsToRead(weights.memory(), f));
    const double seconds = SecondsOfStep(model->get(), f, f.positions - 1);
    step = std::min(step, seconds);
    sum += seconds;
  }
  if (f.prompt > 0) TimePrompt(model->get(), on, f);
  const double read_rate = bytes / read, step_rate = (bytes + cache) / step;
  std::printf(
      "%.0f MB of weights, %.0f MB of caches, %lld row(s) at position %lld, %s on %s: %.3f ms a "
      "step (mean %.3f), %.2f GB/s; plain read %.2f GB/s; ratio %.2f\n",
      bytes / 1e6, cache / 1e6, static_cast<long long>(f.rows),
      static_cast<long long>(f.positions - 1), f.dtype.c_str(),
      (*backend)->device().Describe().c_str(), step * 1e3, sum / f.rounds * 1e3, step_rate / 1e9,
      read_rate / 1e9, step_rate / read_rate);
  return 0;
}

}  // namespace
}  // namespace mt::decode

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** argv) {
  mt::decode::BenchFlags flags;
  CLI::App app("mt_decode_bench: weights read per second while decoding, against a plain read.");
  app.add_option("--layers", flags.layers, "[12]");
  app.add_option("--hidden", flags.hidden, "[768]");
  app.add_option("--heads", flags.heads, "[12]");
  app.add_option("--vocab", flags.vocab, "[50257]");
  app.add_option("--rows", flags.rows, "Sequences decoded at the same time, up to 128 [1]");
  app.add_option("--positions", flags.positions, "[64]");
  app.add_option("--prompt", flags.prompt,
                 "Also time a prompt of so many tokens, at most positions");
  app.add_option("--threads", flags.threads, "[1]");
  app.add_option("--rounds", flags.rounds, "[20]");
  app.add_option("--device", flags.device, "[cpu]")->check(CLI::IsMember({"cpu", "gpu"}));
  auto* dtype = app.add_option("--dtype", flags.dtype, "[fp32]")
                    ->check(CLI::IsMember({"fp32", "fp64", "bf16", "fp16"}));
  app.add_flag_callback(
         "--fp64", [&] { flags.dtype = "fp64"; }, "--dtype fp64")
      ->excludes(dtype);
  CLI11_PARSE(app, argc, argv);
  return mt::decode::Run(flags);
}
