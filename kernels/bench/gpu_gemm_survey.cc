// Plans a call with tensors that have shapes but no memory, then asks the table to survey every key
// that the planning registered.
#include "kernels/bench/gpu_gemm_survey.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace mt::kernels::bench {
namespace {

constexpr double kSlowest = 1.02;  // relative to the fastest alternative

// Planning reads shapes and alignment, never contents.
Tensor Planned(Shape shape, DType dtype = DType::kBf16) {
  alignas(256) static char byte;
  return {&byte, dtype, shape};
}

double Of(int64_t n) { return static_cast<double>(n); }

}  // namespace

void GpuGemmSurvey::Layer(const std::string& model, int64_t tokens, int64_t h) {
  struct Shape2 {
    const char* name;
    int64_t n, k;
    bool act_behind, act_before, bias;
  };
  // The biases of row-parallel layers (proj, fc2) are added by AddNorm; the gradient of fc1's comes
  // with the input gradient of fc2.
  const Shape2 layers[] = {{"qkv", 3 * h, h, false, false, true},
                           {"proj", h, h, false, false, false},
                           {"fc1", 4 * h, h, true, false, true},
                           {"fc2", h, 4 * h, false, true, false}};
  for (const Shape2& z : layers) {
    const std::string name = fmt::format("{} {} ", model, z.name);
    const double flops = 2 * Of(tokens) * Of(z.n) * Of(z.k);
    const Tensor x = Planned({tokens, z.k}), w = Planned({z.n, z.k}), y = Planned({tokens, z.n});
    const Tensor bias = z.bias ? Planned({z.n}) : Tensor{};
    if (z.act_behind) {
      Op(name + "forward", flops,
         LinearForwardActArgs{.x = x, .w = w, .bias = bias, .pre = y, .y = y});
    } else {
      Op(name + "forward", flops, LinearForwardArgs{.x = x, .w = w, .bias = bias, .y = y});
    }
    if (z.act_before) {
      Op(name + "input grad", flops,
         LinearInputGradActArgs{
             .dy = y, .w = w, .pre = x, .dpre = x, .dbias = Planned({z.k}, DType::kF32)});
    } else {
      Op(name + "input grad", flops, LinearInputGradArgs{.dy = y, .w = w, .dx = x});
    }
    Op(name + "weight grad", flops,
       LinearWeightGradArgs{
           .dy = y,
           .x = x,
           .dw = Planned({z.n, z.k}, DType::kF32),
           .dbias = z.bias && !z.act_behind ? Planned({z.n}, DType::kF32) : Tensor{}});
  }
}

void GpuGemmSurvey::GatedBlock(const std::string& model, int64_t tokens, int64_t h, int64_t ffn) {
  const double flops = 2 * Of(tokens) * Of(h) * Of(ffn);
  const Tensor x = Planned({tokens, h}), y = Planned({tokens, ffn});
  const Tensor pre = Planned({tokens, 2 * ffn});
  Op(model + " fc1 forward", 2 * flops,
     LinearForwardActArgs{
         .x = x, .w = Planned({2 * ffn, h}), .act = ActKind::kSwiglu, .pre = pre, .y = y});
  Op(model + " fc2 input grad", flops,
     LinearInputGradActArgs{
         .dy = x, .w = Planned({h, ffn}), .pre = pre, .act = ActKind::kSwiglu, .dpre = pre});
}

void GpuGemmSurvey::Head(const std::string& model, int64_t tokens, int64_t h) {
  constexpr int64_t kV = 50304;
  const double flops = 2 * Of(tokens) * Of(h) * kV;
  const Tensor x = Planned({tokens, h}), w = Planned({kV, h}), y = Planned({tokens, kV});
  Op(model + " head forward", flops, LinearForwardArgs{.x = x, .w = w, .y = y});
  Op(model + " head input grad", flops, LinearInputGradArgs{.dy = y, .w = w, .dx = x});
  Op(model + " head weight grad", flops,
     LinearWeightGradArgs{.dy = y, .x = x, .dw = Planned({kV, h}, DType::kF32)});
}

template <class Args>
void GpuGemmSurvey::Op(const std::string& name, double flops, const Args& args) {
  linear_.Plan(args);
  const std::vector<std::string> keys = table_.Missing();
  const Status timed = table_.Time(keys);
  CHECK(timed.ok()) << base::Message(timed);
  std::set<std::string> unused;  // cuBLASLt's GEMMs where another form won; forms come first
  for (const std::string& key : keys) {
    if (unused.contains(key)) continue;
    const auto times = table_.Survey(key);
    CHECK(times.ok()) << base::Message(times.status());
    fmt::print("{:<22} {}\n", name, key);
    const std::string chosen = PrintGemm(name, flops, *times);
    if (key.starts_with("form ") && chosen != "fused") {
      unused.insert("product" + key.substr(key.find(' ')));
    }
    std::fflush(stdout);
  }
}

std::string GpuGemmSurvey::PrintGemm(const std::string& name, double flops,
                                     const std::vector<TuningTime>& times) {
  const auto chosen =
      std::find_if(times.begin(), times.end(), [](const TuningTime& time) { return time.chosen; });
  if (chosen == times.end()) {
    fmt::print("{:<22} nothing was chosen of {} ways\n", name, times.size());
    return "";
  }
  const double ratio = chosen->us / times.front().us;
  ratios_.push_back(ratio);
  fmt::print("{:<22} {:>8.1f} us {:>6.1f} TFLOP/s, fastest of {:>2} {:>8.1f} us, {:.3f} of it", "",
             chosen->us, flops / chosen->us * 1e-6, times.size(), times.front().us, ratio);
  if (!chosen->choice.starts_with("algorithm")) {
    fmt::print("; {}", chosen->choice);
    for (const TuningTime& other : times) {
      if (!other.chosen) fmt::print(", {} {:.1f} us", other.choice, other.us);
    }
  }
  fmt::print("\n");
  return chosen->choice;
}

int GpuGemmSurvey::Summary() const {
  if (ratios_.empty()) return 0;
  std::vector<double> sorted = ratios_;
  std::sort(sorted.begin(), sorted.end());
  const auto within =
      std::count_if(sorted.begin(), sorted.end(), [](double r) { return r <= kSlowest; });
  fmt::print("{} choices: median {:.3f} of the fastest, worst {:.3f}, {} within 2 %\n",
             sorted.size(), sorted[sorted.size() / 2], sorted.back(), within);
  return static_cast<int>(static_cast<int64_t>(sorted.size()) - within);
}

}  // namespace mt::kernels::bench
