// Samples of several data sets in one order: by weight, as Megatron's BlendedDataset, or all of one
// after all of another, for an evaluation over whole splits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/blend_plan.h"
#include "worker/data/dataset.h"

namespace mt::data {

// Immutable; thread-safe. Members are at least two and have one sequence length (CHECK).
class BlendedDataset final : public Dataset {
 public:
  // `weights` as they were given, for the record; empty: none were.
  BlendedDataset(std::vector<std::shared_ptr<const Dataset>> members, BlendDraw draw,
                 std::vector<double> weights, int64_t samples_asked);

  int64_t num_samples() const override { return draw_.num_samples(); }
  int64_t seq_length() const override { return members_[0]->seq_length(); }
  Status Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const override;
  std::optional<int32_t> PositionsRestartBehind(int64_t sample) const override;
  const IndexRecord& record() const override { return record_; }
  std::vector<int64_t> ConsumedByMember(int64_t samples) const override;

 private:
  const std::vector<std::shared_ptr<const Dataset>> members_;
  const BlendDraw draw_;
  IndexRecord record_;
};

// Every sample of every member once, member by member. Immutable; thread-safe.
class JoinedDataset final : public Dataset {
 public:
  explicit JoinedDataset(std::vector<std::shared_ptr<const Dataset>> members);

  int64_t num_samples() const override { return first_.back(); }
  int64_t seq_length() const override { return members_[0]->seq_length(); }
  Status Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const override;
  std::optional<int32_t> PositionsRestartBehind(int64_t sample) const override;
  const IndexRecord& record() const override { return record_; }

 private:
  // Index of the member that has the sample (CHECK that one has it).
  size_t MemberOf(int64_t sample) const;

  const std::vector<std::shared_ptr<const Dataset>> members_;
  std::vector<int64_t> first_;  // number of each member's first sample, and of all
  IndexRecord record_;
};

}  // namespace mt::data
