// Compares everything that influences the order of samples; names and paths of the data do not.
#include "worker/data/index_record.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/base/log.h"

namespace mt::data {
namespace {

struct Differences {
  std::vector<std::string> all;
  std::vector<std::string> of_files;  // those of `all` that other files explain
};

// Appends what differs, each after `prefix`.
void Compare(const IndexRecord& saved, const IndexRecord& current, std::string_view prefix,
             Differences* differences) {
  const auto compare = [&](std::string_view what, const auto& a, const auto& b) {
    if (a == b) return false;
    differences->all.push_back(
        fmt::format("{}{}: checkpoint '{}', this run '{}'", prefix, what, a, b));
    return true;
  };
  const auto compare_files = [&](std::string_view what, const auto& a, const auto& b) {
    if (compare(what, a, b)) differences->of_files.push_back(differences->all.back());
  };
  const bool blends = !saved.members.empty() || !current.members.empty();
  // A blend's digests are those of its data sets, which are compared one by one.
  if (!blends) compare_files("digest of the .idx", saved.idx_digest, current.idx_digest);
  if (!saved.bin_digest.empty() && !current.bin_digest.empty())
    compare_files("digest of a sample of the .bin", saved.bin_digest, current.bin_digest);
  compare("seq_length", saved.seq_length, current.seq_length);
  compare("data.seed", saved.seed, current.seed);
  compare("data.split", saved.split, current.split);
  compare("samples asked", saved.samples_asked, current.samples_asked);
  compare_files("epochs", saved.epochs, current.epochs);
  compare_files("last epoch shuffled apart", saved.separate_last_epoch,
                current.separate_last_epoch);
  compare_files("samples built", saved.samples_built, current.samples_built);
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

Status CheckSameOrder(const IndexRecord& saved, const IndexRecord& current, bool allow_changed) {
  Differences found;
  Compare(saved, current, "", &found);
  if (found.all.empty()) return OkStatus();
  const bool files_alone = found.of_files.size() == found.all.size();
  if (allow_changed && files_alone) {
    log::Warn("the data are not those of the checkpoint, as data.allow_changed allows",
              {{"split", current.split_name},
               {"source", current.source},
               {"what", fmt::format("{}", fmt::join(found.all, "; "))}});
    return OkStatus();
  }
  std::vector<std::string>& differences = found.all;
  constexpr size_t kShown = 8;
  const size_t shown = std::min(differences.size(), kShown);
  const std::string more =
      shown == differences.size() ? "" : fmt::format("; and {} more", differences.size() - shown);
  differences.resize(shown);
  return base::FailedPrecondition(
      "the {} samples of {} are not in the checkpoint's order ({}{}): give the data, seed, split "
      "and run length of the checkpoint, take its weights alone with checkpoint.load_kind=weights, "
      "or begin another run on purpose with --restart{}",
      current.split_name, current.source, fmt::join(differences, "; "), more,
      files_alone ? "; data that were replaced on purpose are taken with data.allow_changed" : "");
}

}  // namespace mt::data
