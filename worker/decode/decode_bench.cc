// How near decoding comes to reading its weights: a program to run by hand (docs/benchmarks.md), no
// test. Weights are random; the model is gpt2-124m unless flags say otherwise. Within one run it
// times, in turns, a plain read of the weights on the same threads and a greedy step, and prints
// the best of each and their ratio.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "worker/decode/decode_model.h"

namespace mt::decode {
namespace {

struct BenchFlags {
  int64_t layers = 12, hidden = 768, heads = 12, vocab = 50257;
  int64_t rows = 1, positions = 64;
  int threads = 1, rounds = 20;
  bool fp64 = false;
};

// Seconds that this process has computed, on each of its threads: what other programs take of the
// cores does not count.
double Now(int threads) {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  const double all = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  return all / threads;
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

double SecondsToRead(std::span<const char> bytes, int threads) {
  static std::atomic<uint64_t> kept;  // else nothing needs to be read
  const char* const data = bytes.data();
  const double start = Now(threads);
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([=, n = std::ssize(bytes)] {
      kept = Read(data + n * t / threads, data + n * (t + 1) / threads);
    });
  }
  kept = Read(data, data + std::ssize(bytes) / threads);
  others.clear();
  return Now(threads) - start;
}

void FillRandom(const DecodeModel& model) {
  uint32_t state = 1;
  for (const params::ParamSpec& spec : model.weights().registry().params()) {
    const kernels::Tensor w = model.weights().Weight(spec.name);
    for (int64_t i = 0; i < w.NumElements(); ++i) {
      state = state * 1664525U + 1013904223U;
      const double value = static_cast<double>(state >> 8) * 0x1p-28 - 0x1p-5;
      if (w.dtype == kernels::DType::kF64) {
        w.Data<double>()[i] = value;
      } else {
        w.Data<float>()[i] = static_cast<float>(value);
      }
    }
  }
}

double SecondsOfStep(DecodeModel* model, const BenchFlags& flags, int64_t position) {
  std::vector<Row> tokens;
  std::vector<int> wanted;
  for (int64_t r = 0; r < flags.rows; ++r) {
    tokens.push_back({.token = static_cast<int32_t>(r + position),
                      .sequence = static_cast<int32_t>(r),
                      .position = static_cast<int32_t>(position)});
    wanted.push_back(static_cast<int>(r));
  }
  const double start = Now(flags.threads);
  model->Forward(tokens);
  model->Logits(wanted);
  return Now(flags.threads) - start;
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
                                    .max_positions = 1024};
  return DecodeConfig(trained, f.fp64 ? kernels::DType::kF64 : kernels::DType::kF32, f.positions);
}

int Run(const BenchFlags& f) {
  auto backend = kernels::cpu::MakeCpuBackend({.num_threads = f.threads});
  if (!backend.ok()) return 1;
  const auto stream = (*backend)->device().CreateStream(kernels::StreamPriority::kLow);
  auto model = DecodeModel::Make({.config = ConfigOf(f),
                                  .sequences = f.rows,
                                  .memory_limit_bytes = std::numeric_limits<int64_t>::max(),
                                  .backend = backend->get(),
                                  .stream = stream.get()});
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", base::Message(model.status()).c_str());
    return 1;
  }
  FillRandom(**model);
  const DecodeWeights& weights = (*model)->weights();
  const auto bytes = static_cast<double>(weights.bytes());
  double read = std::numeric_limits<double>::infinity(), step = read;
  for (int round = 0; round < f.rounds; ++round) {
    read = std::min(read, SecondsToRead(weights.memory(), f.threads));
    step = std::min(step, SecondsOfStep(model->get(), f, round % f.positions));
  }
  const double read_rate = bytes / read, step_rate = bytes / step;
  std::printf(
      "%.0f MB of weights, %lld row(s), %d thread(s): %.1f ms a step, %.2f GB/s of weights; plain "
      "read %.2f GB/s; ratio %.2f\n",
      bytes / 1e6, static_cast<long long>(f.rows), f.threads, step * 1e3, step_rate / 1e9,
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
  app.add_option("--rows", flags.rows, "Sequences decoded at the same time, 1 to 8 [1]");
  app.add_option("--positions", flags.positions, "[64]");
  app.add_option("--threads", flags.threads, "[1]");
  app.add_option("--rounds", flags.rounds, "[20]");
  app.add_flag("--fp64", flags.fp64);
  CLI11_PARSE(app, argc, argv);
  return mt::decode::Run(flags);
}
