// Compares everything that influences the order of samples; names and paths of the data do not.
#include "worker/data/index_record.h"

#include <vector>

namespace mt::data {

Status CheckSameOrder(const IndexRecord& saved, const IndexRecord& current) {
  std::vector<std::string> differences;
  const auto compare = [&](std::string_view what, const auto& a, const auto& b) {
    if (a != b) {
      differences.push_back(fmt::format("{}: checkpoint '{}', this run '{}'", what, a, b));
    }
  };
  compare("digest of the .idx", saved.idx_digest, current.idx_digest);
  if (!saved.bin_digest.empty() && !current.bin_digest.empty())
    compare("digest of a sample of the .bin", saved.bin_digest, current.bin_digest);
  compare("seq_length", saved.seq_length, current.seq_length);
  compare("data.seed", saved.seed, current.seed);
  compare("data.split", saved.split, current.split);
  compare("samples asked", saved.samples_asked, current.samples_asked);
  compare("epochs", saved.epochs, current.epochs);
  compare("last epoch shuffled apart", saved.separate_last_epoch, current.separate_last_epoch);
  compare("samples built", saved.samples_built, current.samples_built);
  if (differences.empty()) return OkStatus();
  return base::FailedPrecondition(
      "the {} samples of {} are not in the checkpoint's order ({}): give the data, seed, split and "
      "run length of the checkpoint, or start over with checkpoint.fresh",
      current.split_name, current.source, fmt::join(differences, "; "));
}

}  // namespace mt::data
