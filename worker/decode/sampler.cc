// Candidates are sorted, so that a draw depends on the probabilities alone and never on how the
// tokens are numbered, but for ties.
#include "worker/decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "kernels/core/random.h"

namespace mt::decode {

Status CheckSampling(const SamplingConfig& c) {
  if (!(c.temperature >= 0 && c.temperature <= 100))
    return base::InvalidArgument("temperature {}: 0 (greedy) to 100 are possible", c.temperature);
  if (c.top_k < 0) return base::InvalidArgument("top-k {}: 0 (all tokens) or more", c.top_k);
  if (!(c.top_p > 0 && c.top_p <= 1))
    return base::InvalidArgument("top-p {}: above 0, up to 1 (all tokens)", c.top_p);
  if (!(c.repetition_penalty > 0 && c.repetition_penalty <= 100))
    return base::InvalidArgument("repetition penalty {}: above 0, up to 100; 1 is none",
                                 c.repetition_penalty);
  if (c.greedy() && (c.top_k > 0 || c.top_p < 1))
    return base::InvalidArgument(
        "top-k and top-p choose among what is drawn, and nothing is without a temperature: set "
        "one, such as 0.8");
  return OkStatus();
}

double UniformOf(int64_t seed, int64_t sample, int64_t draw) {
  const uint64_t key = base::Hash64("generate", static_cast<uint64_t>(seed));
  const auto low = [](int64_t value) { return static_cast<uint32_t>(value); };
  const auto high = [](int64_t value) {
    return static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32);
  };
  const kernels::Philox4 bits =
      kernels::Philox(key, {{low(draw), high(draw), low(sample), high(sample)}});
  const uint64_t word = uint64_t{bits.word[1]} << 32 | bits.word[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

std::vector<double> RowOf(const kernels::Tensor& logits, int64_t row, int64_t vocab) {
  CHECK_LE(vocab, logits.shape[1]);
  const kernels::Tensor one = logits.Rows(row, 1);
  if (one.dtype == kernels::DType::kF64) return {one.Data<double>(), one.Data<double>() + vocab};
  return {one.Data<float>(), one.Data<float>() + vocab};
}

void PenalizeRepetition(double penalty, std::span<const int32_t> seen,
                        std::vector<double>* logits) {
  if (penalty == 1) return;
  std::vector<int32_t> once(seen.begin(), seen.end());
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const int32_t token : once) {
    if (token < 0 || static_cast<size_t>(token) >= logits->size()) continue;
    double& logit = (*logits)[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

std::vector<Candidate> Candidates(const SamplingConfig& config, std::span<const double> logits) {
  CHECK(!logits.empty());
  std::vector<double> value(logits.begin(), logits.end());
  for (double& v : value)
    if (!std::isfinite(v)) v = std::numeric_limits<double>::lowest();
  std::vector<int32_t> order(value.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const double x = value[static_cast<size_t>(a)], y = value[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  size_t kept = order.size();
  if (config.greedy()) {
    kept = 1;
  } else if (config.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(config.top_k));
  }
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(), before);
  if (config.greedy()) return {{.token = order[0], .probability = 1}};
  std::vector<Candidate> out(kept);
  const double largest = value[static_cast<size_t>(order[0])];
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double above = value[static_cast<size_t>(order[i])] - largest;
    out[i] = {.token = order[i], .probability = std::exp(above / config.temperature)};
    sum += out[i].probability;
  }
  double before_this = 0, nucleus = 0;
  size_t last = 0;
  for (; last < kept; ++last) {
    if (last > 0 && before_this >= config.top_p) break;
    nucleus += out[last].probability;
    before_this = nucleus / sum;
  }
  out.resize(last);
  for (Candidate& one : out) one.probability /= nucleus;
  return out;
}

int32_t Draw(std::span<const Candidate> candidates, double uniform) {
  CHECK(!candidates.empty());
  double sum = 0;
  for (const Candidate& one : candidates) {
    sum += one.probability;
    if (sum > uniform) return one.token;
  }
  return candidates.back().token;  // the sum was rounded below 1
}

double LogProbability(std::span<const double> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return logits[static_cast<size_t>(token)] - largest - std::log(sum);
}

}  // namespace mt::decode
