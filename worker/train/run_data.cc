// From the job's data section to the arguments of worker/data, one call for each kind of split.
#include "worker/train/run_data.h"

#include <utility>

#include "common/base/files.h"
#include "common/spec/derived.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/data/data_source.h"

namespace mt::train {
namespace {

using megatrain::v1::JobSpec;

// The absolute prefix of a split's only data set, "" where the job gives none.
StatusOr<std::string> PrefixOf(const RunDataArgs& args, spec::Split split) {
  const std::vector<spec::DataSource> sources = spec::DataSources(*args.job, split);
  if (sources.empty()) return std::string();
  if (sources.size() > 1) {
    return base::InvalidArgument("data: a blend of {} data sets is not supported yet",
                                 sources.size());
  }
  RETURN_IF_ERROR(spec::CheckRelative(sources[0].prefix));
  if (args.data_root.empty()) {
    return base::FailedPrecondition("the worker has no --data-root, below which {} would lie",
                                    sources[0].prefix);
  }
  return base::JoinPath(args.data_root, sources[0].prefix);
}

StatusOr<std::string> CacheFolder(const RunDataArgs& args) {
  if (args.cache_root.empty()) return std::string();
  RETURN_IF_ERROR(base::MakeDirs(args.cache_root));
  return spec::ResolveBelow(args.cache_root, args.job->data().cache());
}

StatusOr<data::DataSourceArgs> SourceArgs(const RunDataArgs& args) {
  const JobSpec& job = *args.job;
  data::DataSourceArgs out;
  out.mock = job.data().mock();
  out.open = spec::BelowRoot(args.data_root);
  if (job.data().path_size() > 0) {
    ASSIGN_OR_RETURN(out.path, PrefixOf(args, spec::Split::kTrain));
    out.split = job.data().split();
  } else if (!out.mock) {
    ASSIGN_OR_RETURN(out.train, PrefixOf(args, spec::Split::kTrain));
    ASSIGN_OR_RETURN(out.valid, PrefixOf(args, spec::Split::kValid));
    ASSIGN_OR_RETURN(out.test, PrefixOf(args, spec::Split::kTest));
  }
  out.seq_length = job.model().seq_length();
  out.vocab_size = job.model().vocab_size();
  out.seed = static_cast<int64_t>(spec::DataSeed(job));
  ASSIGN_OR_RETURN(out.cache_dir, CacheFolder(args));
  out.train_samples = args.course.samples;
  return out;
}

}  // namespace

std::vector<data::IndexRecord> RunData::Records() const {
  std::vector<data::IndexRecord> records{train->record()};
  if (valid != nullptr) records.push_back(valid->record());
  return records;
}

StatusOr<RunData> OpenRunData(const RunDataArgs& args) {
  const JobSpec& job = *args.job;
  const auto& eval = job.training().eval();
  ASSIGN_OR_RETURN(data::DataSourceArgs source, SourceArgs(args));
  source.valid_samples = data::ValidSamplesAsked(args.course.steps, eval.every_iters(),
                                                 eval.iters(), job.training().global_batch_size());
  RunData out;
  ASSIGN_OR_RETURN(data::DataSource opened, data::OpenDataSource(source));
  out.train = std::move(opened.train);
  out.valid = std::move(opened.valid);
  if (eval.every_iters() > 0) {
    source.valid_samples = data::kWholeSplit;
    ASSIGN_OR_RETURN(opened, data::OpenDataSource(source));
    out.whole_valid = std::move(opened.valid);
  }
  return out;
}

}  // namespace mt::train
