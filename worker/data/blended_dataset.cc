// A sample is read from its member; the record names every member's own.
#include "worker/data/blended_dataset.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace mt::data {
namespace {

using Members = std::vector<std::shared_ptr<const Dataset>>;

IndexRecord RecordOf(const Members& members, int64_t samples_asked, int64_t samples_built,
                     const std::vector<double>& weights) {
  CHECK_GT(members.size(), size_t{1});
  IndexRecord record;
  std::string digests;
  for (const auto& member : members) {
    CHECK_EQ(member->seq_length(), members[0]->seq_length());
    const IndexRecord& own = member->record();
    record.members.push_back(own);
    record.epochs = std::max(record.epochs, own.epochs);
    digests += own.idx_digest + "\n";
  }
  const IndexRecord& first = record.members[0];
  record.split_name = first.split_name;
  record.source = fmt::format("a blend of {} data sets", members.size());
  record.samples_asked = samples_asked;
  record.seed = first.seed;
  record.seq_length = first.seq_length;
  record.split = first.split;
  record.samples_built = samples_built;
  record.weights = fmt::format("{}", fmt::join(weights, ","));
  record.idx_digest = base::Hash128Hex("megatrain blend 1\n" + digests);
  return record;
}

}  // namespace

BlendedDataset::BlendedDataset(Members members, BlendDraw draw, std::vector<double> weights,
                               int64_t samples_asked)
    : members_(std::move(members)),
      draw_(std::move(draw)),
      record_(RecordOf(members_, samples_asked, draw_.num_samples(), weights)) {}

Status BlendedDataset::Read(int64_t sample, std::span<int32_t> tokens,
                            std::span<float> weights) const {
  const BlendSample drawn = draw_.At(sample);
  if (draw_.lost()) {
    return base::DataLoss(
        "sample {} of {}: its draw, a file of the data cache, was cut or could not be read; the "
        "next start makes it anew",
        sample, record_.source);
  }
  return members_[static_cast<size_t>(drawn.member)]->Read(drawn.sample, tokens, weights);
}

std::optional<int32_t> BlendedDataset::PositionsRestartBehind(int64_t sample) const {
  const BlendSample drawn = draw_.At(sample);
  return members_[static_cast<size_t>(drawn.member)]->PositionsRestartBehind(drawn.sample);
}

std::vector<int64_t> BlendedDataset::ConsumedByMember(int64_t samples) const {
  std::vector<int64_t> taken = draw_.Taken(std::min(samples, num_samples()));
  if (draw_.lost()) taken.clear();
  return taken;
}

JoinedDataset::JoinedDataset(Members members) : members_(std::move(members)), first_{0} {
  for (const auto& member : members_) first_.push_back(first_.back() + member->num_samples());
  record_ = RecordOf(members_, 0, num_samples(), {});
}

Status JoinedDataset::Read(int64_t sample, std::span<int32_t> tokens,
                           std::span<float> weights) const {
  const size_t member = MemberOf(sample);
  return members_[member]->Read(sample - first_[member], tokens, weights);
}

std::optional<int32_t> JoinedDataset::PositionsRestartBehind(int64_t sample) const {
  const size_t member = MemberOf(sample);
  return members_[member]->PositionsRestartBehind(sample - first_[member]);
}

size_t JoinedDataset::MemberOf(int64_t sample) const {
  CHECK(sample >= 0 && sample < num_samples()) << "sample " << sample;
  const auto next = std::upper_bound(first_.begin(), first_.end(), sample);
  return static_cast<size_t>(next - first_.begin()) - 1;
}

}  // namespace mt::data
