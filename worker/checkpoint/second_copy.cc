// A copy is a CopyCheckpoint, which names its folder last; what a crash has left of an earlier one
// is removed first, as nobody else writes there.
#include "worker/checkpoint/second_copy.h"

#include <algorithm>
#include <filesystem>
#include <pthread.h>
#include <system_error>
#include <utility>

#include "common/base/files.h"
#include "common/base/log.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
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

SecondCopy::SecondCopy(Args args) : args_(std::move(args)), thread_([this] { Run(); }) {}

SecondCopy::~SecondCopy() {
  {
    base::MutexLock lock(&mu_);
    stops_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void SecondCopy::Add(const CheckpointId& id) {
  base::MutexLock lock(&mu_);
  wanted_ = id;
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
  CheckpointId id;
  while (Next(&id)) {
    const base::MonotonicTime begin = args_.clock->Now();
    const StatusOr<int64_t> copied = Copy(id);
    const std::chrono::duration<double> seconds = args_.clock->Now() - begin;
    if (args_.report && !stops_) {
      args_.report({.id = id,
                    .time_us = base::ToUnixMicros(args_.clock->WallNow()),
                    .bytes = copied.value_or(0),
                    .seconds = seconds.count(),
                    .status = copied.status()});
    }
    TakeOutcome(id, copied.ok());
  }
}

bool SecondCopy::Next(CheckpointId* id) {
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
  *id = wanted_.value_or(CheckpointId{});
  wanted_.reset();
  return true;
}

void SecondCopy::TakeOutcome(const CheckpointId& id, bool copied) {
  base::MutexLock lock(&mu_);
  busy_ = false;
  changed_.NotifyAll();
  if (copied) {
    failures_ = 0;
  } else if (!wanted_) {  // else the one that was given meanwhile goes first
    constexpr int kMostDoublings = 16;
    wanted_ = id;
    retry_at_ =
        std::chrono::steady_clock::now() +
        std::min(args_.retry_cap, args_.retry_first * (1 << std::min(failures_, kMostDoublings)));
    ++failures_;
  }
}

StatusOr<int64_t> SecondCopy::Copy(const CheckpointId& id) {
  const std::string source = base::JoinPath(args_.from, FolderName(id));
  const std::string target = base::JoinPath(args_.to, FolderName(id));
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
  const auto removed =
      PruneCheckpoints({.directory = args_.to, .rules = args_.rules, .epoch = args_.epoch});
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
