// Both text forms are turned into phases when parsed; queries then only search or sum over phases.
#include "common/spec/batch_ramp.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "common/spec/number.h"

namespace mt::spec {
namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// The words of a list, separated by commas, white space or both.
std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = text.find_first_not_of(", \t\n");
    if (begin == std::string_view::npos) return words;
    const size_t end = std::min(text.find_first_of(", \t\n", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

// Megatron-LM's rule for the first form: number of increments after n samples. It computes in
// floating point as Megatron does, so that the batch size changes at the same sample.
struct Increments {
  int64_t count = 0;    // total number of increments
  int64_t samples = 0;  // samples over which they are spread

  int64_t After(int64_t n) const {
    if (n > samples) return count;
    const double per = static_cast<double>(samples) / static_cast<double>(count);
    return std::min(count, static_cast<int64_t>(static_cast<double>(n) / per));
  }
  // The smallest number of samples after which there are at least k increments, by bisection.
  int64_t FirstWith(int64_t k) const {
    int64_t low = 0;
    int64_t high = samples + 1;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (After(middle) >= k) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

}  // namespace

BatchRamp BatchRamp::Constant(int64_t batch) {
  CHECK_GE(batch, 1);
  return BatchRamp({{.from_samples = 0, .batch = batch}});
}

StatusOr<BatchRamp> BatchRamp::Parse(const ParseArgs& args) {
  const std::vector<std::string_view> words = Words(args.text);
  const bool thresholds =
      !words.empty() && std::all_of(words.begin(), words.end(), [](std::string_view word) {
        return word.find(':') != std::string_view::npos;
      });
  if (thresholds) return ParseThresholds(args, words);
  if (words.size() == 3) return ParseIncrements(args, words);
  return base::InvalidArgument(
      "\"{}\" is neither start,increment,samples (\"32,32,1M\") nor a list of tokens:size from 0 "
      "on "
      "(\"0:256 100M:512\")",
      args.text);
}

StatusOr<BatchRamp> BatchRamp::ParseIncrements(const ParseArgs& args,
                                               const std::vector<std::string_view>& words) {
  const int64_t start = ParseCount(words[0]).value_or(0);
  const int64_t increment = ParseCount(words[1]).value_or(0);
  const int64_t samples = ParseCount(words[2]).value_or(0);
  if (start < 1 || increment < 1 || samples < 1) {
    return base::InvalidArgument(
        "\"{}\": start, increment and samples are three whole numbers of at least 1", args.text);
  }
  if (args.global_batch < 1) {
    return base::InvalidArgument(
        "start,increment,samples needs training.global_batch_size, the size after the ramp");
  }
  const int64_t way = args.global_batch - start;
  if (way < 1 || way % increment != 0) {
    return base::InvalidArgument(
        "increments of {} do not lead from {} to global_batch_size {}; they must be a whole number "
        "of steps up",
        increment, start, args.global_batch);
  }
  const Increments increments{.count = way / increment, .samples = samples};
  if (increments.count >= kMaxPhases) {
    return base::InvalidArgument("{} sizes; at most {} are allowed, take a larger increment",
                                 increments.count + 1, kMaxPhases);
  }
  std::vector<BatchPhase> phases;
  for (int64_t k = 0; k <= increments.count; ++k) {
    const BatchPhase phase{.from_samples = increments.FirstWith(k), .batch = start + k * increment};
    // Where there are more increments than samples, several take effect at once: keep the last.
    if (!phases.empty() && phases.back().from_samples == phase.from_samples) phases.pop_back();
    phases.push_back(phase);
  }
  return BatchRamp(std::move(phases));
}

StatusOr<BatchRamp> BatchRamp::ParseThresholds(const ParseArgs& args,
                                               const std::vector<std::string_view>& words) {
  CHECK_GE(args.seq_length, 1);
  if (std::ssize(words) > kMaxPhases) {
    return base::InvalidArgument("{} sizes; at most {} are allowed", words.size(), kMaxPhases);
  }
  std::vector<BatchPhase> phases;
  int64_t previous_tokens = -1;
  for (const std::string_view word : words) {
    const size_t colon = word.find(':');
    const int64_t tokens = ParseCount(word.substr(0, colon)).value_or(-1);
    const int64_t batch = ParseCount(word.substr(colon + 1)).value_or(0);
    if (tokens < 0 || batch < 1) {
      return base::InvalidArgument("\"{}\" is not tokens:size, like 100M:512", word);
    }
    if (phases.empty() ? tokens != 0 : tokens <= previous_tokens) {
      return base::InvalidArgument("\"{}\": thresholds begin with 0 and rise", args.text);
    }
    previous_tokens = tokens;
    const BatchPhase phase{.from_samples = tokens / args.seq_length, .batch = batch};
    // Two thresholds fall into the same sample: the later one wins.
    if (!phases.empty() && phases.back().from_samples == phase.from_samples) phases.pop_back();
    phases.push_back(phase);
  }
  if (args.global_batch > 0 && args.global_batch != phases.back().batch) {
    return base::InvalidArgument(
        "the last size is {}, but training.global_batch_size is {}; leave it out or make them "
        "equal",
        phases.back().batch, args.global_batch);
  }
  return BatchRamp(std::move(phases));
}

int64_t BatchRamp::BatchOf(int64_t consumed_samples) const {
  CHECK_GE(consumed_samples, 0);
  const auto next = std::upper_bound(
      phases_.begin(), phases_.end(), consumed_samples,
      [](int64_t samples, const BatchPhase& phase) { return samples < phase.from_samples; });
  return std::prev(next)->batch;
}

int64_t BatchRamp::BatchBefore(int64_t consumed_samples) const {
  int64_t begin = 0;  // of the first step of the phase
  for (size_t i = 0; i < phases_.size() && begin < consumed_samples; ++i) {
    const int64_t batch = phases_[i].batch;
    const bool last = i + 1 == phases_.size();
    const int64_t end = last ? kForever : phases_[i + 1].from_samples;
    if (begin >= end) continue;  // a step crossed the end of this phase
    const int64_t steps = (end - begin - 1) / batch + 1;
    const int64_t into = consumed_samples - begin;
    if (last || into <= steps * batch) return into % batch == 0 ? batch : last_batch();
    begin += steps * batch;
  }
  return last_batch();
}

int64_t BatchRamp::StepsFor(int64_t samples) const {
  int64_t steps = 0;
  int64_t consumed = 0;
  for (size_t i = 0; i < phases_.size(); ++i) {
    const int64_t batch = phases_[i].batch;
    const int64_t end = i + 1 < phases_.size() ? phases_[i + 1].from_samples : kForever;
    if (consumed >= end) continue;  // a step crossed the end of this phase
    const int64_t fitting = (samples - consumed) / batch;
    const int64_t wanted = (end - consumed - 1) / batch + 1;
    const int64_t taken = std::min(fitting, wanted);
    steps += taken;
    consumed += taken * batch;
    if (taken < wanted) break;
  }
  return steps;
}

int64_t BatchRamp::SamplesAfter(int64_t steps) const {
  int64_t consumed = 0;
  for (size_t i = 0; i < phases_.size() && steps > 0; ++i) {
    const int64_t batch = phases_[i].batch;
    const int64_t end = i + 1 < phases_.size() ? phases_[i + 1].from_samples : kForever;
    if (consumed >= end) continue;
    const int64_t taken = std::min(steps, (end - consumed - 1) / batch + 1);
    const int64_t more = SaturatingProduct(taken, batch);
    if (more > kForever - consumed) return kForever;
    consumed += more;
    steps -= taken;
  }
  return steps > 0 ? kForever : consumed;
}

}  // namespace mt::spec
