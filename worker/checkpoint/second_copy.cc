// A copy is a CopyCheckpoint, which names its folder last; what a crash has left of an earlier one
// is removed first, as nobody else writes there.
#include "worker/checkpoint/second_copy.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <pthread.h>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/log.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/json_text.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/inspect/copy.h"

namespace mt::checkpoint {
namespace {

using std::chrono::milliseconds;

StatusOr<std::string> ManifestText(const std::string& folder) {
  return base::ReadFile(base::JoinPath(folder, kManifestName));
}

}  // namespace

StatusOr<std::string> CopiesIn(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string text,
                   base::ReadFile(base::JoinPath(directory, kSecondMarkerName)));
  const nlohmann::json in = ParseJson(text);
  if (!in.is_object() || !in.contains("of") || !in["of"].is_string()) return "another directory";
  return base::JoinPath(directory, in["of"].get<std::string>());
}

SecondCopy::SecondCopy(Args args) : args_(std::move(args)), thread_([this] { Run(); }) {}

SecondCopy::~SecondCopy() {
  {
    base::MutexLock lock(&mu_);
    stops_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void SecondCopy::Add(const CheckpointId& id, const RetentionRules& rules) {
  base::MutexLock lock(&mu_);
  wanted_ = Wanted{id, rules};
  failures_ = 0;
  changed_.NotifyAll();
}

bool SecondCopy::WaitIdle(milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  base::MutexLock lock(&mu_);
  while (busy_ || (wanted_ && failures_ == 0)) {
    if (!changed_.WaitUntil(&mu_, until)) return !busy_ && (!wanted_ || failures_ > 0);
  }
  return true;
}

void SecondCopy::Run() {
  ::pthread_setname_np(::pthread_self(), "mt-second");
  Wanted next;
  while (Next(&next)) {
    const base::MonotonicTime begin = args_.clock->Now();
    const StatusOr<int64_t> copied = TryCopy(next);
    const std::chrono::duration<double> seconds = args_.clock->Now() - begin;
    if (!copied.ok() && IsPruned(next.id)) {
      log::Info("a checkpoint was removed while it was copied", {{"step", next.id.step}});
      TakeOutcome(next, /*copied=*/true);
      continue;
    }
    if (args_.report && !stops_) {
      args_.report({.id = next.id,
                    .time_us = base::ToUnixMicros(args_.clock->WallNow()),
                    .bytes = copied.value_or(0),
                    .seconds = seconds.count(),
                    .status = copied.status()});
    }
    TakeOutcome(next, copied.ok());
  }
}

// A run removes what newer saves replace, also while it is copied: the manifest first, the rest
// once that is durable. A directory that is gone as a whole is another matter.
bool SecondCopy::IsPruned(const CheckpointId& id) const {
  const std::string folder = base::JoinPath(args_.from, FolderName(id));
  return base::Exists(args_.from) && !base::Exists(base::JoinPath(folder, kManifestName));
}

// An exception would end the process, and training with it.
StatusOr<int64_t> SecondCopy::TryCopy(const Wanted& wanted) {
  try {
    return Copy(wanted);
  } catch (const std::exception& error) {
    return base::Internal("{}", error.what());
  }
}

bool SecondCopy::Next(Wanted* next) {
  base::MutexLock lock(&mu_);
  for (;;) {
    if (stops_) return false;
    if (wanted_ && failures_ == 0) break;
    if (!wanted_) {
      changed_.Wait(&mu_);
    } else if (!changed_.WaitUntil(&mu_, retry_at_)) {
      break;
    }
  }
  busy_ = true;
  *next = wanted_.value_or(Wanted{});
  wanted_.reset();
  return true;
}

void SecondCopy::TakeOutcome(const Wanted& tried, bool copied) {
  base::MutexLock lock(&mu_);
  busy_ = false;
  changed_.NotifyAll();
  if (copied) {
    failures_ = 0;
  } else if (!wanted_) {  // else the one that was given meanwhile goes first
    constexpr int kMostDoublings = 16;
    wanted_ = tried;
    retry_at_ =
        std::chrono::steady_clock::now() +
        std::min(args_.retry_cap, args_.retry_first * (1 << std::min(failures_, kMostDoublings)));
    ++failures_;
  }
}

// A directory that a run saves to is that run's to prune, before its first save too.
Status SecondCopy::CheckNotSavedTo() const {
  ASSIGN_OR_RETURN(const std::optional<Fence> fence, ReadFence(args_.to));
  if (!fence) return OkStatus();
  return base::FailedPrecondition(
      "{} is where {} saves its checkpoints, as its file {} says: give checkpoint.second a "
      "directory of its own",
      args_.to, fence->job_uid.empty() ? "another run" : "the job with uid " + fence->job_uid,
      kFenceName);
}

Status SecondCopy::Claim() const {
  RETURN_IF_ERROR(base::MakeDirs(args_.to));
  RETURN_IF_ERROR(CheckNotSavedTo());
  // Relative, so that both may move together.
  const std::string of = std::filesystem::path(args_.from).lexically_relative(args_.to).string();
  const StatusOr<std::string> holds = CopiesIn(args_.to);
  if (absl::IsNotFound(holds.status())) {
    ASSIGN_OR_RETURN(const std::vector<CheckpointId> others, ListCheckpoints(args_.to));
    if (!others.empty()) {
      return base::FailedPrecondition(
          "{} holds checkpoints that are no copies of this run's, such as {}: give "
          "checkpoint.second a directory of its own",
          args_.to, FolderName(others.back()));
    }
    const nlohmann::json out = {
        {"format", "megatrain-second"}, {"version", kSecondMarkerVersion}, {"of", of}};
    return base::WriteFileAtomic(base::JoinPath(args_.to, kSecondMarkerName), out.dump(1) + "\n");
  }
  RETURN_IF_ERROR(holds.status());
  if (*holds == base::JoinPath(args_.to, of)) return OkStatus();
  return base::FailedPrecondition(
      "{} holds the copies of {}: give checkpoint.second a directory of its own", args_.to, *holds);
}

StatusOr<int64_t> SecondCopy::Copy(const Wanted& wanted) {
  const CheckpointId& id = wanted.id;
  const std::string source = base::JoinPath(args_.from, FolderName(id));
  const std::string target = base::JoinPath(args_.to, FolderName(id));
  RETURN_IF_ERROR(Claim());
  ASSIGN_OR_RETURN(const std::string manifest, ManifestText(source));
  if (base::Exists(target)) {
    ASSIGN_OR_RETURN(const std::string there, ManifestText(target));
    if (there != manifest) {
      return base::FailedPrecondition(
          "{} holds another checkpoint than {}: another run writes to checkpoint.second", target,
          source);
    }
    RETURN_IF_ERROR(BringUpToDate(id));
    return 0;
  }
  std::error_code error;
  std::filesystem::remove_all(target + ".tmp", error);
  if (error) return base::ErrnoError(error.value(), "remove " + target + ".tmp");
  int64_t counted = 0;
  int64_t bytes = 0;
  RETURN_IF_ERROR(CopyCheckpoint({.from = {args_.from, id, source},
                                  .to = args_.to,
                                  .progress =
                                      [&](int64_t done, int64_t total) {
                                        moved_ += done - std::exchange(counted, done);
                                        bytes = total / 2;
                                      },
                                  .is_cancelled = [this] { return stops_.load(); }})
                      .status());
  moved_ += 2 * bytes - counted;
  RETURN_IF_ERROR(BringUpToDate(id));
  // The copy may have taken long.
  RETURN_IF_ERROR(CheckNotSavedTo());
  const auto removed = PruneCheckpoints({.directory = args_.to,
                                         .rules = wanted.rules,
                                         .epoch = args_.epoch,
                                         .run = args_.run,
                                         .list_in = args_.from});
  if (!removed.ok()) {
    log::Warn("old copies were not removed", {{"why", base::Message(removed.status())}});
  }
  return bytes;
}

// A run evaluates and labels a checkpoint after its commit.
Status SecondCopy::BringUpToDate(const CheckpointId& id) const {
  const std::string source = base::JoinPath(args_.from, FolderName(id));
  const std::string target = base::JoinPath(args_.to, FolderName(id));
  ASSIGN_OR_RETURN(const std::optional<Evaluation> evaluation, ReadEvaluation(source));
  if (evaluation) RETURN_IF_ERROR(WriteEvaluation(target, *evaluation));
  const StatusOr<Label> label = ReadLabel(source);
  if (absl::IsNotFound(label.status())) return OkStatus();
  RETURN_IF_ERROR(label.status());
  return WriteLabel(args_.to, id, *label);
}

}  // namespace mt::checkpoint
