// What a training run reports, as plain values; worker/rank turns them into the messages of the
// same names. A step's record is the message itself (proto/megatrain/v1/step.proto), which declares
// its metrics. Losses are means over tokens in nats, times are seconds, values are of the whole job
// unless said otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/engine/phase_clock.h"
#include "worker/memory/memory.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/trace/step_profile.h"
#include "worker/train/samples/texts.h"

namespace mt::train {

using trace::ProfileRecord;

struct EvalRecord {
  int64_t step = 0;
  int64_t time_us = 0;
  double loss = 0;
  int64_t tokens = 0;
  std::optional<double> bits_per_byte{};  // nullopt: the tokenizer does not tell bytes
  double seconds = 0;
  std::string split;   // "valid"
  bool final = false;  // after the last step, over the whole split
  checkpoint::Measure measure{};
  std::vector<EvalSample> samples{};  // of the job's prompts, in their order
};

struct CheckpointRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t consumed_samples = 0;
  std::string path;
  int64_t bytes = 0;
  double seconds = 0;  // from the first byte to the commit
  int64_t time_us = 0;
  double stall_seconds = 0;  // that training stood still for it
  int64_t tokens = 0;        // trained so far
  std::string digest;        // of the manifest: "xxh3:<32 hex digits>"
  std::string root_id;       // in the marker of the checkpoint root; empty: not known
  checkpoint::Label label;   // what a user calls it
  std::string run;           // id of the run that saved it; empty: not known
  int64_t skipped = 0;       // saves that were left out while this one was under way
};

// A copy to the second directory that was tried.
struct SecondCopyRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t time_us = 0;
  int64_t bytes = 0;  // of the files that were copied; 0: the copy was there
  double seconds = 0;
  Status status;
};

// What a run is busy with besides steps, or before the first one.
enum class ActivityKind : uint8_t {
  kIndexing,    // builds the order of samples
  kLoading,     // reads a checkpoint; in bytes
  kTuning,      // times products; in products
  kFirstStep,   // computes the run's first step; in microbatches
  kSaving,      // writes a checkpoint; in bytes
  kEvaluating,  // in microbatches
  kScoring,     // scores a task of a job of kind eval; in documents
};
inline constexpr size_t kNumActivityKinds = 7;

// How far this rank has come with it.
struct Activity {
  ActivityKind kind = ActivityKind::kSaving;
  int64_t step = 0;  // that is saved, evaluated or computed
  int64_t done = 0;
  int64_t total = 0;  // 0: not known
};

// What this rank has done since its start; rises with every step.
struct RankCounters {
  int64_t tokens = 0;  // of its microbatches
  engine::PhaseSeconds phase_seconds{};
  memory::BytesByKind memory_bytes{};
  parallel::GroupStats comm;
  double step_seconds = 0;  // of the newest step
};

// What other runs have in the directory of one. All 0: nothing, or that cannot be told.
struct OtherRuns {
  int64_t runs = 0;
  int64_t checkpoints = 0;
  int64_t bytes = 0;
};

// How much of its data a run reads.
struct Outlook {
  int64_t tokens = 0;        // of the whole run
  int64_t tokens_ahead = 0;  // of these not trained on yet
  // Over the training data, and those of all evaluations but the last over the validation data, as
  // PassesOver counts (run_data.h).
  double train_passes = 0;
  double valid_passes = 0;
};

// Known once the ranks are ready.
struct RunInfo {
  int64_t total_steps = 0;
  int64_t resumed_from_step = 0;  // 0: cold start
  std::string checkpoint_path;    // the job's directory; empty: none
  int64_t parameters = 0;         // unpadded
  int64_t epoch = 0;
  std::vector<std::string> damaged_checkpoints;  // StartPoint::damaged
  checkpoint::RunRecord run;
  bool run_begins = false;  // with this start
  OtherRuns other_runs{};
  Outlook outlook{};
  // Fields in which the job differs from that of the checkpoint that the run goes on from.
  std::vector<std::string> changed{};
};

}  // namespace mt::train
