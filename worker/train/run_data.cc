// From the job's data section to the arguments of worker/data, one call for each kind of split.
#include "worker/train/run_data.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "common/spec/derived.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/exchange.h"
#include "worker/comm/process_group.h"
#include "worker/data/data_source.h"
#include "worker/data/tokenizer.h"
#include "worker/failure/failure.h"
#include "worker/train/job_data/data_passes.h"
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

// For the field that needs it.
StatusOr<int32_t> EndOfDocument(const std::optional<data::TokenizerRecord>& record,
                                std::string_view field) {
  if (record && record->eod != data::kNoEod) return record->eod;
  return base::InvalidArgument(
      "{}: no end-of-document id is known; give data.tokenizer, or data that "
      "`mtctl data prepare` made with a tokenizer that has one",
      field);
}

StatusOr<data::DataSourceArgs> SourceArgs(const RunDataArgs& args,
                                          const std::optional<data::TokenizerRecord>& tokenizer) {
  const JobSpec& job = *args.job;
  data::DataSourceArgs out;
  out.mock = job.data().mock();
  out.open = spec::BelowRoot(args.data_root);
  if (job.data().path_size() > 0) {
    ASSIGN_OR_RETURN(out.path, DataPathOf(args.data_root, job, spec::Split::kTrain));
    out.split = job.data().split();
    out.split_by = SplitByOf(job);
  } else if (!out.mock) {
    ASSIGN_OR_RETURN(out.train, DataPathOf(args.data_root, job, spec::Split::kTrain));
    ASSIGN_OR_RETURN(out.valid, DataPathOf(args.data_root, job, spec::Split::kValid));
    ASSIGN_OR_RETURN(out.test, DataPathOf(args.data_root, job, spec::Split::kTest));
  }
  out.seq_length = job.model().seq_length();
  out.vocab_size = job.model().vocab_size();
  out.seed = static_cast<int64_t>(spec::DataSeed(job));
  ASSIGN_OR_RETURN(out.cache.folder, CacheFolder(args));
  out.cache.owner = fmt::format("{}/{}", job.namespace_(), job.name());
  out.train_samples = args.course.samples;
  out.allow_changed = job.data().allow_changed();
  if (job.data().eod_mask_loss()) {
    ASSIGN_OR_RETURN(out.no_loss_behind, EndOfDocument(tokenizer, "data.eod_mask_loss"));
  }
  if (job.data().reset_positions() && !out.mock) {
    ASSIGN_OR_RETURN(out.positions_restart_behind,
                     EndOfDocument(tokenizer, "data.reset_positions"));
  }
  return out;
}

}  // namespace

std::vector<data::IndexRecord> RunData::Records() const {
  std::vector<data::IndexRecord> records{train->record()};
  if (valid != nullptr) records.push_back(valid->record());
  return records;
}

Status RunData::CheckFiles() {
  for (data::FileWatch& watch : watches) RETURN_IF_ERROR(NameMissingData(watch.Check()));
  return OkStatus();
}

Status NameMissingData(const Status& status) {
  if (!absl::IsDataLoss(status) && !absl::IsNotFound(status)) return status;
  return rpc::WithReason(failure::WithCause(status, failure::Cause::kStorage),
                         rpc::reason::kDataMissing);
}

StatusOr<RunData> OpenRunData(const RunDataArgs& args) {
  const JobSpec& job = *args.job;
  const auto& eval = job.training().eval();
  if (!job.data().mock()) RETURN_IF_ERROR(SayEmptyPairs(args.data_root, job));
  ASSIGN_OR_RETURN(std::optional<data::TokenizerRecord> tokenizer,
                   FindJobTokenizer(args.data_root, job));
  ASSIGN_OR_RETURN(data::DataSourceArgs source, SourceArgs(args, tokenizer));
  source.valid_samples =
      data::ValidSamplesAsked(args.course.steps, eval.every_iters(), eval.iters(),
                              job.training().global_batch_size(), spec::HasFixedWindows(job));
  source.whole_valid = eval.every_iters() > 0;
  RunData out;
  ASSIGN_OR_RETURN(data::DataSource opened, data::OpenDataSource(source));
  out.train = std::move(opened.train);
  out.valid = std::move(opened.valid);
  out.whole_valid = std::move(opened.whole_valid);
  out.watches = std::move(opened.watches);
  if (tokenizer && !tokenizer->token_bytes.empty()) {
    out.token_bytes =
        std::make_shared<const std::vector<int32_t>>(std::move(tokenizer->token_bytes));
    tokenizer->token_bytes.clear();
  }
  out.tokenizer = std::move(tokenizer);
  return out;
}

double PassesOver(const data::Dataset& train, int64_t samples) {
  // Of one data set; a mock has a generator for a source.
  const auto passes = [](const data::IndexRecord& record, int64_t of_it) -> double {
    if (record.source == "mock" || record.samples_built <= 0) return 0;
    return static_cast<double>(of_it) * static_cast<double>(record.epochs) /
           static_cast<double>(record.samples_built);
  };
  const data::IndexRecord& record = train.record();
  const std::vector<int64_t> by_member = train.ConsumedByMember(samples);
  if (by_member.empty()) return passes(record, samples);
  double most = 0;
  for (size_t i = 0; i < by_member.size() && i < record.members.size(); ++i)
    most = std::max(most, passes(record.members[i], by_member[i]));
  return most;
}

Outlook OutlookOf(const RunData& data, const JobSpec& job, const spec::Course& course,
                  int64_t start) {
  const int64_t seq_length = job.model().seq_length();
  Outlook out{.tokens = course.samples * seq_length,
              .tokens_ahead = (course.samples - course.ramp.SamplesAfter(start)) * seq_length,
              .train_passes = PassesOver(*data.train, course.samples)};
  const auto evaluations = static_cast<double>(EvaluationsDuring(job, course.steps));
  const int64_t windows = job.training().eval().iters() * job.training().global_batch_size();
  if (data.valid != nullptr) {
    out.valid_passes = evaluations * PassesOver(*data.valid, windows);
  } else if (data.whole_valid != nullptr && data.whole_valid->record().source != "mock") {
    out.valid_passes = evaluations;
  }
  return out;
}

void TakeValidation(RunData opened, RunData* data) {
  data->valid = std::move(opened.valid);
  data->whole_valid = std::move(opened.whole_valid);
  // A file that is open twice is looked at once, as long as it is the same.
  for (data::FileWatch& watch : opened.watches) {
    const bool known =
        std::any_of(data->watches.begin(), data->watches.end(), [&](const data::FileWatch& other) {
          return other.path() == watch.path() && other.facts() == watch.facts();
        });
    if (!known) data->watches.push_back(std::move(watch));
  }
}

Status DataCheck::Run(int64_t step) {
  if (args_.data->watches.empty()) return OkStatus();
  const comm::OpTimeoutScope patience(args_.group, args_.patience);
  checkpoint::Exchange exchange(args_.group, args_.stream);
  const Status mine = args_.data->CheckFiles();
  const Status all = exchange.Agree(mine);
  if (all.ok()) return OkStatus();
  // Of a broken group the save that follows tells.
  if (mine.ok() && !absl::IsDataLoss(all) && !absl::IsFailedPrecondition(all)) return OkStatus();
  failed_ = true;
  Status why = mine.ok() ? failure::WithCause(all, failure::Cause::kNetwork) : mine;
  log::Error("nothing was saved: the data were changed under the run",
             {{"step", step}, {"why", base::Message(why)}});
  return why;
}

}  // namespace mt::train
