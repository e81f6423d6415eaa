// Task file and documents are read first: what is wrong there is said before a model is loaded.
#include "worker/decode/scores/eval_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"
#include "common/spec/roots.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/decode/checkpoint_source.h"
#include "worker/decode/reader_device.h"
#include "worker/decode/saved_text.h"
#include "worker/decode/scores/run_task.h"
#include "worker/decode/scores/score_report.h"
#include "worker/decode/scores/scorer.h"
#include "worker/memory/memory.h"

namespace mt::decode {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr size_t kColumns = 79;
constexpr std::chrono::milliseconds kLiveInterval{200};
constexpr std::chrono::seconds kPlainInterval{30};

double SecondsFrom(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// How far a task is, on stderr: in place, or now and then a line.
class ProgressLine {
 public:
  ProgressLine(const std::string& task, bool live) : task_(task), live_(live) {}
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(int64_t done, int64_t all) {
    const Clock::time_point now = Clock::now();
    if (now - shown_ < (live_ ? Clock::duration(kLiveInterval) : Clock::duration(kPlainInterval)))
      return;
    shown_ = now;
    const std::string text = ProgressText(task_, done, all, SecondsFrom(begin_), kColumns);
    std::fprintf(stderr, live_ ? "\r%s\x1b[K" : "%s\n", text.c_str());
    std::fflush(stderr);
    written_ = live_;
  }

 private:
  void Clear() const {
    if (written_) std::fprintf(stderr, "\r\x1b[K");
  }

  const std::string& task_;
  const bool live_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
  bool written_ = false;
};

// All that scores need, in memory.
class EvalSession {
 public:
  explicit EvalSession(const EvalArgs& args) : args_(args) {}

  Status ReadTaskFile() {
    ASSIGN_OR_RETURN(tasks_, ReadTasks(args_.flags.tasks));
    for (Task& task : tasks_) {
      const Status placed = PlaceBelowRoot(&task);
      if (!placed.ok()) return base::Annotate(placed, fmt::format("task {}", task.name));
      auto documents = ReadDocuments(task);
      if (!documents.ok())
        return base::Annotate(documents.status(), fmt::format("task {}", task.name));
      documents_.push_back(*std::move(documents));
    }
    return OkStatus();
  }

  // Reads the checkpoint; may be called again after an error.
  Status Load(const std::string& directory, const checkpoint::CheckpointId& id) {
    const auto begin = Clock::now();
    ASSIGN_OR_RETURN(saved_, ReadSavedModel(directory, id));
    ASSIGN_OR_RETURN(tokenizer_, TokenizerOf(saved_, args_.flags));
    windowed_.clear();
    for (const Task& task : tasks_) {
      ASSIGN_OR_RETURN(Task windowed, WithWindows(task, saved_.config.max_positions));
      windowed_.push_back(std::move(windowed));
    }
    RETURN_IF_ERROR(MakeModel());
    RETURN_IF_ERROR(LoadWeights({.directory = directory,
                                 .saved = &saved_,
                                 .weights = &model_->weights(),
                                 .backend = device_.backend.get(),
                                 .stream = device_.stream.get()}));
    load_seconds_ = SecondsFrom(begin);
    return OkStatus();
  }

  Status Score() {
    const auto begin = Clock::now();
    Status scored;
    for (size_t i = 0; i < windowed_.size() && scored.ok(); ++i) scored = ScoreTask(i);
    seconds_ = SecondsFrom(begin);
    if (!scored.ok() && !absl::IsCancelled(scored)) return scored;
    RETURN_IF_ERROR(Write(/*complete=*/scored.ok()));
    return scored;
  }

 private:
  // Where there is a root that the task's file must lie below, makes its path one that does.
  Status PlaceBelowRoot(Task* task) const {
    if (args_.data_root.empty()) return OkStatus();
    const std::filesystem::path file = std::filesystem::path(task->file).lexically_normal();
    const std::filesystem::path relative = file.lexically_relative(args_.data_root);
    if (relative.empty() || *relative.begin() == "..") {
      return base::InvalidArgument("file {} does not lie below the data root {}", task->file,
                                   args_.data_root);
    }
    ASSIGN_OR_RETURN(task->file, spec::ResolveBelow(args_.data_root, relative.string()));
    return OkStatus();
  }

  Status MakeModel() {
    model_.reset();
    if (device_.backend == nullptr) {
      ASSIGN_OR_RETURN(device_, MakeReaderDevice(args_.flags, args_.make_backend));
    }
    const int64_t positions = std::ranges::max(windowed_, {}, &Task::window).window;
    ASSIGN_OR_RETURN(const int64_t available, memory::AvailableBytes(device_.backend->device()));
    auto made = DecodeModel::Make(
        {.config = DecodeConfig(saved_.config, PrecisionOf(saved_, args_.flags), positions),
         .max_rows = RowsAtOnce(args_.flags, positions),
         .logit_rows = Scorer::kLogitRows,
         .memory_limit_bytes = available,
         .backend = device_.backend.get(),
         .stream = device_.stream.get()});
    if (absl::IsResourceExhausted(made.status())) {
      // What is advised there is for training.
      const std::string text(base::Message(made.status()));
      return base::InvalidArgument("{}; a smaller window in the task file takes less",
                                   text.substr(0, text.find(';')));
    }
    RETURN_IF_ERROR(made.status());
    model_ = *std::move(made);
    return OkStatus();
  }

  Status ScoreTask(size_t number) {
    const Task& task = windowed_[number];
    ProgressLine progress(task.name, args_.live);
    const auto show = [&](int64_t done, int64_t all) {
      if (args_.shows_progress) progress.Show(done, all);
      if (args_.on_progress) args_.on_progress(task.name, done, all);
    };
    const RunTaskArgs run = {.task = &task,
                             .documents = &documents_[number],
                             .tokenizer = tokenizer_.get(),
                             .model = model_.get(),
                             .hooks = {.on_progress = show, .interrupted = args_.interrupted}};
    auto result = RunTask(run);
    if (!result.ok()) {
      return absl::IsCancelled(result.status())
                 ? result.status()
                 : base::Annotate(result.status(), fmt::format("task {}", task.name));
    }
    results_.push_back({.task = task, .result = *std::move(result)});
    return OkStatus();
  }

  std::string Json(bool complete) const {
    const ordered_json out = {
        {"checkpoint", CheckpointJson(saved_)},
        {"precision", PrecisionName(saved_, args_.flags)},
        {"tokenizer", tokenizer_->name()},
        {"complete", complete},
        {"tasks", ScoresJson(results_)},
        {"timings", {{"load_seconds", load_seconds_}, {"score_seconds", seconds_}}}};
    return out.dump(2, ' ', /*ensure_ascii=*/args_.terminal,
                    ordered_json::error_handler_t::replace) +
           "\n";
  }

  Status Write(bool complete) const {
    RETURN_IF_ERROR(args_.out(args_.flags.json ? Json(complete) : ScoresText(results_)));
    if (!args_.tell) return OkStatus();
    args_.tell(fmt::format("{} of {}: {} of {} tasks in {:.1f} s after {:.1f} s of loading",
                           checkpoint::FolderName({saved_.manifest.step, saved_.manifest.epoch}),
                           base::CleanLine(saved_.manifest.job_name), results_.size(),
                           tasks_.size(), seconds_, load_seconds_));
    return OkStatus();
  }

  const EvalArgs& args_;
  std::vector<Task> tasks_, windowed_;
  std::vector<TaskDocuments> documents_;
  SavedModel saved_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  ReaderDevice device_;
  std::unique_ptr<DecodeModel> model_;
  std::vector<ScoredTask> results_;
  double load_seconds_ = 0, seconds_ = 0;
};

}  // namespace

Status RunEval(const EvalArgs& args) {
  EvalSession session(args);
  RETURN_IF_ERROR(session.ReadTaskFile());
  std::optional<int64_t> step;
  if (args.flags.step >= 0) step = args.flags.step;
  ASSIGN_OR_RETURN(const CheckpointChoice choice,
                   ChooseCheckpoint(args.path, step, args.flags.tag));
  RETURN_IF_ERROR(UseCheckpoint(choice, [&](const checkpoint::CheckpointId& id) {
    return session.Load(choice.directory, id);
  }));
  return session.Score();
}

}  // namespace mt::decode
