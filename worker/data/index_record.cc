// Compares everything that influences the order of samples; names and paths of the data do not.
#include "worker/data/index_record.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace mt::data {
namespace {

using Differences = std::vector<std::string>;

// Appends what differs, each after `prefix`.
void Compare(const IndexRecord& saved, const IndexRecord& current, std::string_view prefix,
             Differences* differences) {
  const auto compare = [&](std::string_view what, const auto& a, const auto& b) {
    if (a != b) {
      differences->push_back(
          fmt::format("{}{}: checkpoint '{}', this run '{}'", prefix, what, a, b));
    }
  };
  const bool blends = !saved.members.empty() || !current.members.empty();
  // A blend's digests are those of its data sets, which are compared one by one.
  if (!blends) compare("digest of the .idx", saved.idx_digest, current.idx_digest);
  if (!saved.bin_digest.empty() && !current.bin_digest.empty())
    compare("digest of a sample of the .bin", saved.bin_digest, current.bin_digest);
  compare("seq_length", saved.seq_length, current.seq_length);
  compare("data.seed", saved.seed, current.seed);
  compare("data.split", saved.split, current.split);
  compare("samples asked", saved.samples_asked, current.samples_asked);
  compare("epochs", saved.epochs, current.epochs);
  compare("last epoch shuffled apart", saved.separate_last_epoch, current.separate_last_epoch);
  compare("samples built", saved.samples_built, current.samples_built);
  if (!blends) return;
  compare("weights", saved.weights, current.weights);
  compare("data sets of the blend", saved.members.size(), current.members.size());
  if (saved.members.size() != current.members.size()) return;
  for (size_t i = 0; i < saved.members.size(); ++i) {
    Compare(saved.members[i], current.members[i],
            fmt::format("data set {} ({}): ", i + 1, current.members[i].source), differences);
  }
}

}  // namespace

Status CheckSameOrder(const IndexRecord& saved, const IndexRecord& current) {
  Differences differences;
  Compare(saved, current, "", &differences);
  if (differences.empty()) return OkStatus();
  constexpr size_t kShown = 8;
  const size_t shown = std::min(differences.size(), kShown);
  const std::string more =
      shown == differences.size() ? "" : fmt::format("; and {} more", differences.size() - shown);
  differences.resize(shown);
  return base::FailedPrecondition(
      "the {} samples of {} are not in the checkpoint's order ({}{}): give the data, seed, split "
      "and run length of the checkpoint, take its weights alone with checkpoint.load_kind=weights, "
      "or begin another run on purpose with --restart",
      current.split_name, current.source, fmt::join(differences, "; "), more);
}

}  // namespace mt::data
