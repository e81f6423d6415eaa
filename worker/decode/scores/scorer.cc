// As a prompt is read, the model's max_rows at a time; of each part the logits that are needed.
#include "worker/decode/scores/scorer.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "worker/decode/sampler.h"

namespace mt::decode {
namespace {

StatusOr<TokenScore> ScoreOf(const std::vector<double>& logits, int32_t token) {
  const auto largest = std::max_element(logits.begin(), logits.end()) - logits.begin();
  const TokenScore score{.log_probability = LogProbability(logits, token),
                         .greedy = largest == token};
  if (std::isnan(score.log_probability)) {
    return base::FailedPrecondition(
        "the model's logits are not finite: the weights of this checkpoint are not numbers, or too "
        "large");
  }
  return score;
}

}  // namespace

StatusOr<std::vector<TokenScore>> Scorer::Score(std::span<const int32_t> ids, int64_t scored) {
  const int64_t read = std::ssize(ids) - 1;  // nothing comes behind the last
  CHECK(scored >= 1 && scored <= read) << scored << " of " << ids.size() << " ids";
  CHECK_LE(read, model_->config().seq);
  const int64_t needed = read - scored;  // the first row whose logits count
  const auto common =
      std::mismatch(known_.begin(), known_.end(), ids.begin(), ids.end()).first - known_.begin();
  std::vector<TokenScore> out;
  for (int64_t begin = std::min(common, needed); begin < read; begin += model_->max_rows()) {
    const int64_t count = std::min(model_->max_rows(), read - begin);
    rows_.clear();
    for (int64_t i = begin; i < begin + count; ++i)
      rows_.push_back({.token = ids[static_cast<size_t>(i)], .position = static_cast<int32_t>(i)});
    model_->Forward(rows_);
    RETURN_IF_ERROR(ReadRows(ids, begin, std::max<int64_t>(0, needed - begin), count, &out));
  }
  known_.assign(ids.begin(), ids.begin() + read);
  return out;
}

Status Scorer::ReadRows(std::span<const int32_t> ids, int64_t begin, int64_t first, int64_t count,
                        std::vector<TokenScore>* out) {
  std::vector<int> wanted;
  for (int64_t row = first; row < count; row += std::ssize(wanted)) {
    wanted.clear();
    for (int64_t i = row; i < std::min(count, row + kLogitRows); ++i)
      wanted.push_back(static_cast<int>(i));
    const kernels::Tensor logits = model_->Logits(wanted);
    for (int64_t i = 0; i < std::ssize(wanted); ++i) {
      const auto next = static_cast<size_t>(begin + row + i + 1);
      ASSIGN_OR_RETURN(const TokenScore score,
                       ScoreOf(RowOf(logits, i, model_->config().vocab), ids[next]));
      out->push_back(score);
    }
  }
  return OkStatus();
}

}  // namespace mt::decode
