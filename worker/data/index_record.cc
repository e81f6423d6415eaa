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
  // How many of them other files explain, and another blend, which explains those of files too.
  size_t of_files = 0, of_blend = 0;
};

// Appends what differs between records, of a data set or a blend or of a member of one.
class Comparison {
 public:
  Comparison(const IndexRecord& saved, const IndexRecord& current, Differences* differences)
      : blends_(!saved.members.empty() || !current.members.empty()), differences_(differences) {
    Compare(saved, current, "", /*member=*/false);
  }

 private:
  // Why a value may be another one.
  struct Why {
    bool files = false;
    bool blend = false;
  };

  void Compare(const IndexRecord& saved, const IndexRecord& current, std::string_view prefix,
               bool member) {
    const auto compare = [&](std::string_view what, const auto& a, const auto& b, Why why) {
      if (a == b) return;
      differences_->all.push_back(
          fmt::format("{}{}: checkpoint '{}', this run '{}'", prefix, what, a, b));
      differences_->of_files += why.files ? 1 : 0;
      differences_->of_blend += why.blend ? 1 : 0;
    };
    const Why files = {.files = true, .blend = blends_};
    // A blend's digests are those of its data sets, which are compared one by one.
    if (member || !blends_)
      compare("digest of the .idx", saved.idx_digest, current.idx_digest, files);
    if (!saved.bin_digest.empty() && !current.bin_digest.empty())
      compare("digest of a sample of the .bin", saved.bin_digest, current.bin_digest, files);
    compare("seq_length", saved.seq_length, current.seq_length, {});
    compare("data.seed", saved.seed, current.seed, {});
    compare("data.split", saved.split, current.split, {});
    // A blend asks its data sets for shares of what it is asked for itself.
    compare("samples asked", saved.samples_asked, current.samples_asked, {.blend = member});
    compare("epochs", saved.epochs, current.epochs, files);
    compare("last epoch shuffled apart", saved.separate_last_epoch, current.separate_last_epoch,
            files);
    compare("samples built", saved.samples_built, current.samples_built, files);
    if (member || !blends_) return;
    const Why blend = {.blend = true};
    compare("weights", saved.weights, current.weights, blend);
    compare("data sets of the blend", saved.members.size(), current.members.size(), blend);
    if (saved.members.size() != current.members.size()) return;
    for (size_t i = 0; i < saved.members.size(); ++i) {
      Compare(saved.members[i], current.members[i],
              fmt::format("data set {} ({}): ", i + 1, current.members[i].source),
              /*member=*/true);
    }
  }

  const bool blends_;
  Differences* const differences_;
};

// Which field of the job takes all that differs, where one does.
std::string Consent(const Differences& found) {
  const size_t all = found.all.size();
  if (found.of_files == all)
    return "; data that were replaced on purpose are taken with data.allow_changed";
  if (found.of_blend == all)
    return "; another blend is gone on with on purpose with data.allow_new_blend";
  return "";
}

}  // namespace

Status CheckSameOrder(const IndexRecord& saved, const IndexRecord& current,
                      const AllowedChanges& allowed) {
  Differences found;
  Comparison(saved, current, &found);
  const size_t all = found.all.size();
  if (all == 0) return OkStatus();
  if (allowed.files && found.of_files == all) {
    log::Warn("the data are not those of the checkpoint, as data.allow_changed allows",
              {{"split", current.split_name},
               {"source", current.source},
               {"what", fmt::format("{}", fmt::join(found.all, "; "))}});
    return OkStatus();
  }
  if (allowed.blend && found.of_blend == all) {
    log::Warn("the blend is not the checkpoint's, as data.allow_new_blend allows",
              {{"split", current.split_name},
               {"source", current.source},
               {"what", fmt::format("{}", fmt::join(found.all, "; "))}});
    return OkStatus();
  }
  const std::string consent = Consent(found);
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
      current.split_name, current.source, fmt::join(differences, "; "), more, consent);
}

}  // namespace mt::data
