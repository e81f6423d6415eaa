// The data sets of a run, from its job: training samples, the rotating part of the validation split
// that evaluations during training read, or the part that each of them reads, and the whole split
// for the last one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/spec/course.h"
#include "worker/data/dataset.h"
#include "worker/data/file_watch.h"
#include "worker/data/tokenizer/record.h"
#include "worker/train/records.h"

namespace megatrain::v1 {
class JobSpec;
}
namespace mt::comm {
class ProcessGroup;
}
namespace mt::kernels {
class Stream;
}

namespace mt::train {

struct RunDataArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed
  spec::Course course;
  std::string data_root;   // absolute
  std::string cache_root;  // absolute; empty: no index cache
};

// The validation sets are nullptr where evaluation is off.
struct RunData {
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> valid;  // nullptr also where eval.iters is 0: always whole
  std::shared_ptr<const data::Dataset> whole_valid;  // every token once
  // Of the job or its data; without the bytes of its tokens. nullopt: nothing tells it.
  std::optional<data::TokenizerRecord> tokenizer;
  // Bytes of text by id, where the run's tokenizer tells them; else nullptr.
  std::shared_ptr<const std::vector<int32_t>> token_bytes;
  // Records of train and valid, for the manifest.
  std::vector<data::IndexRecord> Records() const;
  std::vector<data::FileWatch> watches;  // of every file of these sets
  // Whether all files are what they were when they were opened: kDataLoss (cause STORAGE) where one
  // was cut, kFailedPrecondition where one was written over. Blocks (FileWatch::Check).
  Status CheckFiles();
};

// Opens the data sets; builds the indices that the cache does not have. Blocks. Errors name the
// file or the field; kDataLoss where a file is damaged.
StatusOr<RunData> OpenRunData(const RunDataArgs& args);
// What is said of data of which a part is gone: a job that has trained waits for it (the reason
// DATA_MISSING, common/rpc/reason.h), with the storage as its cause. Other statuses stay.
Status NameMissingData(const Status& status);
// Takes the validation sets of `opened`, and with them what is to be watched.
void TakeValidation(RunData opened, RunData* data);

// The look at the files of a run before each save, by all ranks, since nodes need not share a file
// system: nothing is saved of data that are not those of the run any more. One thread.
class DataCheck {
 public:
  struct Args {
    RunData* data = nullptr;
    comm::ProcessGroup* group = nullptr;   // all ranks; nullptr: one
    kernels::Stream* stream = nullptr;     // for its collectives
    std::chrono::milliseconds patience{};  // with the storage of others
  };
  explicit DataCheck(const Args& args) : args_(args) {}

  // Collective and blocking: this rank's error (RunData::CheckFiles), else that of another one with
  // the cause NETWORK. OK without files.
  Status Run(int64_t step);
  // True if it has found a change, upon which the run ends.
  bool failed() const { return failed_; }

 private:
  const Args args_;
  bool failed_ = false;
};

// How often the first samples of a training set have gone through its data; of a blend, through the
// member that they have gone through most often. 0: mock data, which has no end.
double PassesOver(const data::Dataset& train, int64_t samples);
// Of a whole run of this job, `course` its course, that goes on from a step. Pure.
Outlook OutlookOf(const RunData& data, const megatrain::v1::JobSpec& job,
                  const spec::Course& course, int64_t start);

}  // namespace mt::train
