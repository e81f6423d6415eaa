// Length of the run, log interval and checkpoints, as far as fields depend on each other.
#include <array>
#include <limits>
#include <numeric>

#include "common/spec/complete.h"
#include "common/spec/derived.h"
#include "common/spec/number.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

// Every rank of a small job logs each step. Above this size every tenth step is logged, the order
// of magnitude that tools reading Megatron-LM's logs expect
// (docs/design/megatron-compat.md#log-interval).
constexpr int64_t kSmallJobSlots = 8;
constexpr int64_t kLargeJobLogEvery = 10;

// True when exactly one length is given and has no fault.
bool CheckLengthGivenOnce(const CheckArgs& args) {
  const v1::Training& training = args.job->training();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"training.train_iters", "training.train_samples", "training.train_tokens"}))
    return false;
  std::vector<std::string> given;
  if (training.has_train_iters()) given.emplace_back("train_iters");
  if (training.has_train_samples()) given.emplace_back("train_samples");
  if (training.has_train_tokens()) given.emplace_back("train_tokens");
  if (given.empty()) {
    faults.Add("training.train_iters", "required: one of train_iters, train_samples, train_tokens");
  } else if (given.size() > 1) {
    faults.Add(
        "training." + given[1],
        fmt::format("the length is given more than once: {}; keep one", fmt::join(given, ", ")));
  }
  return given.size() == 1;
}

// True when batch size and sequence length, in which lengths are counted, are known and have no
// fault.
bool BatchIsSound(const CheckArgs& args) {
  return args.job->training().has_global_batch_size() && args.job->model().has_seq_length() &&
         args.faults->Clean({"training.global_batch_size", "training.batch_ramp",
                             "training.micro_batch_size", "model.seq_length", "parallel.data",
                             "placement.slots"});
}

bool CheckTotal(const CheckArgs& args) {
  const v1::Training& training = args.job->training();
  const BatchRamp ramp = RampOf(*args.job);
  const int64_t batch = ramp.BatchOf(0);
  const std::string name = training.has_batch_ramp() ? "the first batch size" : "global_batch_size";
  const int64_t tokens = SaturatingProduct(batch, args.job->model().seq_length());
  if (training.has_train_samples() && training.train_samples() < batch) {
    args.faults->Add("training.train_samples", fmt::format("{} is less than one step of {} {}",
                                                           training.train_samples(), name, batch));
    return false;
  }
  if (training.has_train_tokens() && TotalIterations(*args.job) < 1) {
    args.faults->Add(
        "training.train_tokens",
        fmt::format("{} is less than one step of {} {} x seq_length {} = {} tokens",
                    training.train_tokens(), name, batch, args.job->model().seq_length(), tokens));
    return false;
  }
  if (SaturatingProduct(TotalSamples(*args.job), args.job->model().seq_length()) ==
      std::numeric_limits<int64_t>::max()) {
    args.faults->Add("training", "the run has more tokens than 63 bits can count");
    return false;
  }
  return true;
}

// What an evaluation writes is one message to the coordinator (control::kMaxMessageBytes), and the
// run waits for it.
constexpr int kMostPrompts = 64;

void CheckPrompts(const CheckArgs& args) {
  const int prompts = args.job->training().eval().prompts_size();
  if (prompts <= kMostPrompts || !args.faults->Clean({"training.eval.prompts"})) return;
  args.faults->Add("training.eval.prompts",
                   fmt::format("{} texts, and an evaluation goes on from at most {}: leave some "
                               "out, or have mtctl generate read a checkpoint",
                               prompts, kMostPrompts));
}

void CheckDecodeTokens(const CheckArgs& args) {
  const int64_t tokens = args.job->training().eval().decode_tokens();
  if (tokens == 0 || !args.faults->Clean({"training.eval.decode_tokens", "model.max_positions",
                                          "model.seq_length"})) {
    return;
  }
  const int64_t positions = MaxPositions(args.job->model());
  if (tokens <= positions) return;
  args.faults->Add("training.eval.decode_tokens",
                   fmt::format("{} tokens, and the model has {} positions (model.max_positions): "
                               "give at most these",
                               tokens, positions));
}

// keep_best chooses among steps that are both saved and evaluated, of which there must be one
// before the last step.
void CheckKeepBest(const CheckArgs& args) {
  const int64_t saves = args.job->checkpoint().every_iters();
  const int64_t evaluations = args.job->training().eval().every_iters();
  if (args.job->checkpoint().keep_best() == 0 ||
      !args.faults->Clean({"checkpoint.directory", "checkpoint.every_iters", "checkpoint.keep_best",
                           "training.eval.every_iters"})) {
    return;
  }
  const auto refuse = [&](std::string_view why) {
    args.faults->Add("checkpoint.keep_best",
                     fmt::format("chooses among steps that are saved and evaluated, but {}", why));
  };
  if (evaluations == 0) return refuse("none is evaluated; give training.eval.every_iters");
  if (saves == 0) return refuse("none is sure to be saved; give checkpoint.every_iters");
  const int64_t both = SaturatingProduct(saves / std::gcd(saves, evaluations), evaluations);
  if (both < TotalIterations(*args.job)) return;
  refuse(fmt::format(
      "checkpoint.every_iters {} and training.eval.every_iters {} first meet at step {}, and the "
      "run has {}; let one be a multiple of the other",
      saves, evaluations, both, TotalIterations(*args.job)));
}

// Paths are relative to one root and have no "." and "..".
void CheckSecond(const v1::Checkpoint& checkpoint, FaultList* faults) {
  if (!checkpoint.has_second()) return;
  if (checkpoint.directory() == "none") {
    faults->Add("checkpoint.second", "means nothing without a directory");
  } else if ((checkpoint.second() + "/").starts_with(checkpoint.directory() + "/") ||
             (checkpoint.directory() + "/").starts_with(checkpoint.second() + "/")) {
    faults->Add("checkpoint.second",
                fmt::format("is checkpoint.directory '{}', or one of them lies in the other",
                            checkpoint.directory()));
  }
}

void CheckLoad(const v1::Checkpoint& checkpoint, FaultList* faults) {
  const bool named = checkpoint.has_load() || checkpoint.has_load_tag();
  if (checkpoint.fresh() && named) {
    faults->Add("checkpoint.fresh",
                fmt::format("starts over, but checkpoint.{} names what to load; keep one",
                            checkpoint.has_load() ? "load" : "load_tag"));
  }
  if (checkpoint.load_kind() == v1::Checkpoint::LOAD_KIND_WEIGHTS && !named) {
    faults->Add("checkpoint.load_kind",
                "weights are of another run's checkpoint; name it by checkpoint.load or load_tag");
  }
  if (checkpoint.load_kind() == v1::Checkpoint::LOAD_KIND_HF &&
      (!checkpoint.has_load() || checkpoint.has_load_tag())) {
    faults->Add("checkpoint.load_kind",
                "hf reads a folder with config.json and safetensors: name it, below "
                "checkpoint_root, by checkpoint.load alone");
  }
  if (checkpoint.load_kind() == v1::Checkpoint::LOAD_KIND_LLMC &&
      (!checkpoint.has_load() || checkpoint.has_load_tag())) {
    faults->Add("checkpoint.load_kind",
                "llmc reads a model file of llm.c (model_00001000.bin): name it, below "
                "checkpoint_root, by checkpoint.load alone");
  }
  if (checkpoint.has_load_tag() && !checkpoint.has_load() && checkpoint.directory() == "none") {
    faults->Add(
        "checkpoint.load_tag",
        "is looked for in checkpoint.directory, which is none; name one by checkpoint.load");
  }
}

void CompleteCheckpoint(const CheckArgs& args, bool length) {
  v1::Checkpoint& checkpoint = *args.job->mutable_checkpoint();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"checkpoint.directory", "checkpoint.every_iters", "checkpoint.every",
                     "checkpoint.load", "checkpoint.load_kind", "checkpoint.load_tag",
                     "checkpoint.fresh"})) {
    return;
  }
  if (!checkpoint.has_directory()) {
    checkpoint.set_directory(args.context.of_service ? ServiceDirectory(*args.job)
                                                     : args.job->name());
  }
  const bool saves = checkpoint.every_iters() > 0 || checkpoint.has_every();
  if (checkpoint.directory() == "none" && saves) {
    faults.Add("checkpoint.directory",
               "is none, but every_iters or every asks for saves; give a directory");
  }
  CheckSecond(checkpoint, &faults);
  if (checkpoint.directory() == "none" && checkpoint.strict()) {
    faults.Add("checkpoint.strict", "means nothing without a directory");
  }
  CheckLoad(checkpoint, &faults);
  if (!args.context.stored) CheckKeepEvery(args);
  if (length) CheckKeepBest(args);
}

}  // namespace

// Without a directory, or without saves by the job itself, it is only said to have no effect
// (field_effects.cc).
void CheckKeepEvery(const CheckArgs& args) {
  const v1::Checkpoint& checkpoint = args.job->checkpoint();
  const int64_t keep = checkpoint.keep_every();
  const int64_t saves = checkpoint.every_iters();
  if (keep == 0 || checkpoint.directory() == "none" ||
      !args.faults->Clean({"checkpoint.keep_every", "checkpoint.every_iters", "checkpoint.every",
                           "checkpoint.directory"})) {
    return;
  }
  if (saves == 0 && checkpoint.has_every()) {
    args.faults->Add("checkpoint.keep_every",
                     fmt::format("{} keeps steps that it divides, but saves by the clock "
                                 "(checkpoint.every) hit them by chance alone; give "
                                 "checkpoint.every_iters, of which it is a multiple",
                                 keep));
  } else if (saves > 0 && keep % saves != 0) {
    args.faults->Add("checkpoint.keep_every",
                     fmt::format("{} is not a multiple of checkpoint.every_iters {}, so steps that "
                                 "it divides are not saved; nearest: {}",
                                 keep, saves, NearestMultiples(keep, saves)));
  }
}

void CompleteTraining(const CheckArgs& args) {
  v1::JobSpec& job = *args.job;
  v1::Training& training = *job.mutable_training();
  if (!training.has_log_every() && args.faults->Clean({"training.log_every", "placement.slots"})) {
    training.set_log_every(job.placement().slots() <= kSmallJobSlots ? 1 : kLargeJobLogEvery);
  }
  if (!training.eval().has_windows() &&
      args.faults->Clean({"training.eval.windows", "checkpoint.keep_best"})) {
    training.mutable_eval()->set_windows(HasFixedWindows(job)
                                             ? v1::Training::Eval::WINDOWS_FIXED
                                             : v1::Training::Eval::WINDOWS_ROLLING);
  }
  CheckPrompts(args);
  CheckDecodeTokens(args);
  const bool length = CheckLengthGivenOnce(args) && BatchIsSound(args) && CheckTotal(args);
  CompleteOptimizer(args, length);
  CompleteCheckpoint(args, length);
}

}  // namespace mt::spec
