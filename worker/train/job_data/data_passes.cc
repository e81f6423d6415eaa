// Tokens asked of a split, divided by those that it has; members of a blend by their shares.
#include "worker/train/job_data/data_passes.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/spec/derived.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/split.h"
#include "worker/train/job_data/data_paths.h"

namespace mt::train {
namespace {

using megatrain::v1::JobSpec;

// The tokens of a data set that a split has; all where it is not divided.
StatusOr<double> TokensOf(const std::string& prefix, const JobSpec& job, spec::Split split,
                          const base::FileOpener& open) {
  ASSIGN_OR_RETURN(const auto data, data::IndexedDataset::Open(prefix, open));
  if (job.data().path_size() == 0) return static_cast<double>(data->num_tokens());
  ASSIGN_OR_RETURN(const auto ranges, data::DivideData(*data, job.data().split(), SplitByOf(job)));
  return static_cast<double>(data::CountTokens(*data, ranges[static_cast<size_t>(split)]));
}

// Behind what is said of a part without tokens.
std::string_view WayToDivide(const JobSpec& job) {
  const bool whole_documents =
      job.data().path_size() > 0 && SplitByOf(job) == data::SplitBy::kDocuments;
  return whole_documents ? ": documents stay whole; data.split_by=tokens divides them" : "";
}

// Of `tokens` that are read of the split.
StatusOr<double> PassesOverSplit(const std::string& data_root, const JobSpec& job,
                                 spec::Split split, double tokens) {
  ASSIGN_OR_RETURN(const data::DataPath path, DataPathOf(data_root, job, split));
  if (path.empty()) return 0.0;
  std::vector<double> sizes;
  double all = 0;
  double weights = 0;
  for (const data::DataMember& member : path) {
    ASSIGN_OR_RETURN(const double size,
                     TokensOf(member.prefix, job, split, spec::BelowRoot(data_root)));
    if (size <= 0) {
      return base::InvalidArgument("{} has no tokens for {}{}", member.prefix,
                                   data::Name(static_cast<data::SplitName>(split)),
                                   WayToDivide(job));
    }
    sizes.push_back(size);
    all += size;
    weights += member.weight.value_or(0);
  }
  // Without weights they are read in proportion of their sizes.
  if (path.size() == 1 || weights <= 0) return tokens / all;
  double most = 0;
  for (size_t i = 0; i < path.size(); ++i)
    most = std::max(most, tokens * path[i].weight.value_or(0) / weights / sizes[i]);
  return most;
}

}  // namespace

int64_t EvaluationsDuring(const JobSpec& job, int64_t steps) {
  const int64_t every = job.training().eval().every_iters();
  return every > 0 ? (steps - 1) / every : 0;
}

StatusOr<DataPasses> PassesOfJob(const std::string& data_root, const JobSpec& job) {
  DataPasses out;
  if (job.data().mock()) return out;
  const auto seq_length = static_cast<double>(job.model().seq_length());
  ASSIGN_OR_RETURN(out.train,
                   PassesOverSplit(data_root, job, spec::Split::kTrain,
                                   static_cast<double>(spec::TotalSamples(job)) * seq_length));
  const auto& eval = job.training().eval();
  if (eval.every_iters() == 0) return out;
  const auto evaluations = static_cast<double>(EvaluationsDuring(job, spec::TotalIterations(job)));
  const auto windows = static_cast<double>(eval.iters() * job.training().global_batch_size());
  // Also where none is during the run: the one after the last step wants a part that is not empty.
  ASSIGN_OR_RETURN(out.valid, PassesOverSplit(data_root, job, spec::Split::kValid,
                                              evaluations * windows * seq_length));
  if (eval.iters() == 0) out.valid = evaluations;
  return out;
}

}  // namespace mt::train
