// The fence is written twice: first without a base, which makes all earlier holders fail their
// check, then with the base found after that. A crash in between leaves an epoch without an entry,
// which readers handle.
#include "worker/checkpoint/format/fence.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

// A contender holds the lock for a few file operations only.
constexpr std::chrono::seconds kLockLimit{10};
constexpr std::chrono::milliseconds kLockRetry{10};
// Number of epochs whose base is kept; far more than there are folders.
constexpr size_t kBasesKept = 1024;
constexpr int kTokenBytes = 16;
// No directory comes to as many starts.
constexpr int64_t kLastEpoch = int64_t{1} << 60;
constexpr std::string_view kEpochPayload = "megatrain/fence-epoch";

std::string FencePath(const std::string& directory) {
  return base::JoinPath(directory, kFenceName);
}

FenceHolder ThisProcess() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return {.host = host.data(), .pid = ::getpid(), .boot_id = base::BootId()};
}

// "job 1234 (epoch 3), rank 0 on host a, pid 17"
std::string Describe(const Fence& fence) {
  const std::string who = fence.job_uid.empty()
                              ? "a standalone run"
                              : fmt::format("job {} (epoch {})", fence.job_uid, fence.epoch);
  return fmt::format("{}, rank 0 on host {}, pid {}", who, fence.holder.host, fence.holder.pid);
}

// The refusal of a run of this job and epoch by the fence `now`, which tells a higher epoch.
Status RefusedBy(const Fence& now, const std::string& job_uid, int64_t epoch, Status refusal) {
  if (job_uid.empty() || now.job_uid != job_uid || now.epoch <= epoch) return refusal;
  refusal.SetPayload(base::ToAbsl(kEpochPayload), absl::Cord(std::to_string(now.epoch)));
  return refusal;
}

// True for the fence of an earlier epoch of the same job: only an older copy of it can bring that
// back, since epochs rise.
bool IsOlderOf(const Fence& now, const Fence& mine) {
  return !mine.job_uid.empty() && now.job_uid == mine.job_uid && now.epoch < mine.epoch;
}

// Takes the lock that serialises raises. Returns at once on a file system without locks.
StatusOr<base::Fd> LockFence(const std::string& directory) {
  const std::string path = base::JoinPath(directory, kFenceLockName);
  base::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  const base::MonotonicTime deadline = base::Clock::Real()->Now() + kLockLimit;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) break;
    if (errno != EWOULDBLOCK && errno != EINTR) return base::ErrnoError(errno, "lock " + path);
    if (base::Clock::Real()->Now() >= deadline) {
      return base::Unavailable("{}: another process is taking the directory over and does not end",
                               path);
    }
    std::this_thread::sleep_for(kLockRetry);
  }
  return fd;
}

// OK if the run of `args` may take over from the holder of `now`.
Status CheckMayRaise(const RaiseArgs& args, const Fence& now) {
  if (now.job_uid.empty()) return OkStatus();
  const std::string path = FencePath(args.directory);
  if (now.job_uid == args.job_uid) {
    if (now.epoch < args.epoch) return OkStatus();
    return RefusedBy(
        now, args.job_uid, args.epoch,
        base::FailedPrecondition("epoch {} of job {} is not above the one that holds {}: {}",
                                 args.epoch, args.job_uid, args.directory, Describe(now)));
  }
  const auto& ended = args.ended_job_uids;
  if (std::find(ended.begin(), ended.end(), now.job_uid) != ended.end()) return OkStatus();
  return base::FailedPrecondition(
      "{} is held by {}: use another checkpoint.directory, wait until that job has ended or, when "
      "it is certainly gone, remove {}",
      args.directory, Describe(now), path);
}

Status At(const RaiseArgs& args, std::string_view point) {
  return args.failpoint ? args.failpoint(point) : OkStatus();
}

json ToValue(const std::optional<CheckpointId>& id) {
  if (!id) return nullptr;
  return {{"step", id->step}, {"epoch", id->epoch}};
}

Fence ParseFenceFields(const json& in) {
  Fence fence;
  fence.job_uid = in.at("job_uid").get<std::string>();
  fence.epoch = Integer(in.at("epoch"));
  fence.directory_epoch = Integer(in.at("directory_epoch"));
  const json& holder = in.at("holder");
  fence.holder = {.host = holder.at("host").get<std::string>(),
                  .pid = Integer(holder.at("pid")),
                  .boot_id = holder.at("boot_id").get<std::string>()};
  fence.token = in.at("token").get<std::string>();
  for (const json& entry : in.at("bases")) {
    std::optional<CheckpointId> base;
    if (!entry.at("base").is_null()) {
      base = {Integer(entry.at("base").at("step")), Integer(entry.at("base").at("epoch"))};
    }
    fence.bases[Integer(entry.at("directory_epoch"))] = base;
  }
  // Absent before runs had ids.
  if (in.contains("run")) fence.run = in.at("run").get<std::string>();
  return fence;
}

}  // namespace

std::string ToJson(const Fence& fence) {
  json out = {
      {"format", "megatrain-fence"},
      {"version", kFenceVersion},
      {"job_uid", fence.job_uid},
      {"epoch", fence.epoch},
      {"directory_epoch", fence.directory_epoch},
      {"holder",
       {{"host", fence.holder.host}, {"pid", fence.holder.pid}, {"boot_id", fence.holder.boot_id}}},
      {"token", fence.token},
      {"bases", json::array()}};
  for (const auto& [epoch, base] : fence.bases) {
    out["bases"].push_back({{"directory_epoch", epoch}, {"base", ToValue(base)}});
  }
  if (!fence.run.empty()) out["run"] = fence.run;
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

StatusOr<Fence> ParseFence(std::string_view text) {
  const json in = ParseJson(text);
  if (!in.is_object() || in.value("format", json()) != "megatrain-fence") {
    return base::DataLoss("not a fence: no JSON object with format \"megatrain-fence\"");
  }
  try {
    const int64_t version = Integer(in.at("version"));
    if (version > kFenceVersion) {
      return base::FailedPrecondition(
          "the fence has format version {}, this program reads up to {}: use a newer Megatrain",
          version, kFenceVersion);
    }
    return ParseFenceFields(in);
  } catch (const json::exception& error) {
    return base::DataLoss("damaged fence: {}", error.what());
  }
}

StatusOr<std::optional<Fence>> ReadFence(const std::string& directory) {
  const std::string path = FencePath(directory);
  const auto text = base::ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::optional<Fence>();
  RETURN_IF_ERROR(text.status());
  auto fence = ParseFence(*text);
  if (!fence.ok()) return base::Annotate(fence.status(), path);
  return std::optional<Fence>(std::move(fence).value());
}

bool Counts(const std::optional<Fence>& fence, const CheckpointId& id) {
  if (!fence) return true;
  const auto next = fence->bases.upper_bound(id.epoch);
  if (next == fence->bases.end()) return true;
  const std::optional<CheckpointId>& base = next->second;
  return base.has_value() && !IsNewer(id, *base);
}

StatusOr<Fence> RaiseFence(const RaiseArgs& args) {
  ASSIGN_OR_RETURN(const base::Fd lock, LockFence(args.directory));
  RETURN_IF_ERROR(At(args, "locked"));
  ASSIGN_OR_RETURN(const std::optional<Fence> now, ReadFence(args.directory));
  if (now) RETURN_IF_ERROR(CheckMayRaise(args, *now));
  RETURN_IF_ERROR(At(args, "checked"));
  ASSIGN_OR_RETURN(const int64_t highest, HighestEpoch(args.directory));
  const int64_t last = std::max(highest, now ? now->directory_epoch : 0);
  if (last >= kLastEpoch) {
    return base::DataLoss("{}: epoch {} of {} or of a folder there cannot be: remove what has it",
                          args.directory, last, kFenceName);
  }
  Fence next{.job_uid = args.job_uid,
             .epoch = args.epoch,
             .directory_epoch = last + 1,
             .holder = ThisProcess(),
             .token = base::RandomHex(kTokenBytes),
             .run = now ? now->run : "",
             .bases = now ? now->bases : decltype(Fence::bases){}};
  const std::string path = FencePath(args.directory);
  RETURN_IF_ERROR(base::WriteFileAtomic(path, ToJson(next)));
  RETURN_IF_ERROR(At(args, "raised"));
  // From here on every earlier holder fails its check.
  ASSIGN_OR_RETURN(next.bases[next.directory_epoch], FindNewest(args.directory));
  while (next.bases.size() > kBasesKept) next.bases.erase(next.bases.begin());
  RETURN_IF_ERROR(At(args, "found"));
  RETURN_IF_ERROR(base::WriteFileAtomic(path, ToJson(next)));
  return next;
}

Status CheckFence(const std::string& directory, const Fence& mine) {
  ASSIGN_OR_RETURN(const std::optional<Fence> now, ReadFence(directory));
  if (now && now->token == mine.token) return OkStatus();
  const std::string us =
      mine.job_uid.empty() ? "this run" : fmt::format("epoch {} of this job", mine.epoch);
  if (!now) {
    return base::NotFound("{} is gone: was the folder moved, or is its file system not there?",
                          FencePath(directory));
  }
  if (IsOlderOf(*now, mine)) {
    return base::NotFound("{} is of epoch {} again: was an older copy of the folder put there?",
                          FencePath(directory), now->epoch);
  }
  return RefusedBy(*now, mine.job_uid, mine.epoch,
                   base::FailedPrecondition("fenced: {} now belongs to {}; {} writes there no more",
                                            directory, Describe(*now), us));
}

Status RestoreFence(const std::string& directory, const Fence& mine) {
  ASSIGN_OR_RETURN(const base::Fd lock, LockFence(directory));
  Status now = CheckFence(directory, mine);
  if (!absl::IsNotFound(now)) return now;
  ASSIGN_OR_RETURN(const int64_t highest, HighestEpoch(directory));
  if (highest > mine.directory_epoch) {
    return absl::AlreadyExistsError(
        fmt::format("{} has no fence of this run and folders of directory epoch {}, above its {}: "
                    "another run has written there",
                    directory, highest, mine.directory_epoch));
  }
  return base::WriteFileAtomic(FencePath(directory), ToJson(mine));
}

Status NameRun(const std::string& directory, const std::string& run,
               const std::function<Status()>& write, Fence* mine) {
  ASSIGN_OR_RETURN(const base::Fd lock, LockFence(directory));
  RETURN_IF_ERROR(CheckFence(directory, *mine));
  RETURN_IF_ERROR(write());
  mine->run = run;
  return base::WriteFileAtomic(FencePath(directory), ToJson(*mine));
}

int64_t FenceEpochOf(const Status& status) {
  const auto payload = status.GetPayload(base::ToAbsl(kEpochPayload));
  return payload ? std::strtoll(std::string(*payload).c_str(), nullptr, 10) : 0;
}

}  // namespace mt::checkpoint
