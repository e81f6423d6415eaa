// From the job's data section to the arguments of worker/data, one call for each kind of split.
#include "worker/train/run_data.h"

#include <utility>

#include "common/base/files.h"
#include "common/spec/derived.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/data/data_source.h"
#include "worker/data/tokenizer.h"
#include "worker/train/job_data/data_paths.h"
#include "worker/train/job_data/job_tokenizer.h"

namespace mt::train {
namespace {

using megatrain::v1::JobSpec;

StatusOr<std::string> CacheFolder(const RunDataArgs& args) {
  if (args.cache_root.empty()) return std::string();
  RETURN_IF_ERROR(base::MakeDirs(args.cache_root));
  return spec::ResolveBelow(args.cache_root, args.job->data().cache());
}

StatusOr<int32_t> EndOfDocument(const RunDataArgs& args) {
  ASSIGN_OR_RETURN(const auto record, FindJobTokenizer(args.data_root, *args.job));
  if (record && record->eod != data::kNoEod) return record->eod;
  return base::InvalidArgument(
      "data.eod_mask_loss: no end-of-document id is known; give data.tokenizer, or data that "
      "`mtctl data prepare` made with a tokenizer that has one");
}

StatusOr<data::DataSourceArgs> SourceArgs(const RunDataArgs& args) {
  const JobSpec& job = *args.job;
  data::DataSourceArgs out;
  out.mock = job.data().mock();
  out.open = spec::BelowRoot(args.data_root);
  if (job.data().path_size() > 0) {
    ASSIGN_OR_RETURN(out.path, DataPathOf(args.data_root, job, spec::Split::kTrain));
    out.split = job.data().split();
  } else if (!out.mock) {
    ASSIGN_OR_RETURN(out.train, DataPathOf(args.data_root, job, spec::Split::kTrain));
    ASSIGN_OR_RETURN(out.valid, DataPathOf(args.data_root, job, spec::Split::kValid));
    ASSIGN_OR_RETURN(out.test, DataPathOf(args.data_root, job, spec::Split::kTest));
  }
  out.seq_length = job.model().seq_length();
  out.vocab_size = job.model().vocab_size();
  out.seed = static_cast<int64_t>(spec::DataSeed(job));
  ASSIGN_OR_RETURN(out.cache_dir, CacheFolder(args));
  out.train_samples = args.course.samples;
  if (job.data().eod_mask_loss()) {
    ASSIGN_OR_RETURN(out.no_loss_behind, EndOfDocument(args));
  }
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
  source.valid_samples =
      data::ValidSamplesAsked(args.course.steps, eval.every_iters(), eval.iters(),
                              job.training().global_batch_size(), spec::HasFixedWindows(job));
  source.whole_valid = eval.every_iters() > 0;
  RunData out;
  ASSIGN_OR_RETURN(data::DataSource opened, data::OpenDataSource(source));
  out.train = std::move(opened.train);
  out.valid = std::move(opened.valid);
  out.whole_valid = std::move(opened.whole_valid);
  return out;
}

}  // namespace mt::train
