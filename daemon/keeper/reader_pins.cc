// What a tag names is kept anyhow, and the newest gives way to the next: only steps that are named
// are told.
#include "daemon/keeper/reader_pins.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/spec/job_kind.h"
#include "common/spec/roots.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/closed.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/operations.h"
#include "daemon/keeper/pending_commands.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

constexpr int64_t kToldElsewhere = -1;  // StoredJob.kept_term

using DirectoryAndStep = std::pair<std::string, int64_t>;

// A directory and a step in it, or a checkpoint's folder, which has its step in its name
// ("step-00000020-e0001"); nullopt: the job names neither. Directories are in their one spelling.
std::optional<DirectoryAndStep> NamedBy(const v1::Read& read) {
  const std::string path = spec::OneSpelling(read.checkpoint());
  if (read.has_step()) return DirectoryAndStep{path, read.step()};
  constexpr std::string_view kPrefix = "step-";
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string_view name = std::string_view(path).substr(slash + 1);
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const begin = name.data() + kPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), step);
  if (error != std::errc() || end == begin || step < 0) return std::nullopt;
  return DirectoryAndStep{path.substr(0, slash), step};
}

}  // namespace

// Whether the node of its rank is (L1).
bool ReaderPins::IsLost(const v1::Job& job) const {
  const auto allocations = tools_.ledger->AllocationsOfJob(job.uid());
  return std::ranges::any_of(allocations, [&job](const v1::StoredAllocation* allocation) {
    return allocation->epoch() == job.epoch() && allocation->state() == v1::UNREACHABLE;
  });
}

std::map<std::string, std::set<int64_t>> ReaderPins::Wanted() const {
  std::map<std::string, std::set<int64_t>> wanted;
  for (const v1::StoredJob* stored : tools_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    if (!spec::KindOf(job.spec()).reads || IsLost(job)) continue;
    if (const auto named = NamedBy(job.spec().read())) wanted[named->first].insert(named->second);
  }
  return wanted;
}

void ReaderPins::ForgetTold(v1::StoredJob* job) {
  job->clear_kept_steps();
  job->set_kept_term(kToldElsewhere);
}

bool ReaderPins::KnowsTold(const v1::StoredJob& stored) const {
  if (stored.kept_term() == kToldElsewhere) return false;
  return !IsBeforeRestore(tools_.ledger, stored.job().epoch()) ||
         stored.kept_term() >= tools_.ledger->Cluster().restored_term();
}

void ReaderPins::Refused(const v1::StoredJob& stored, std::string_view why) const {
  const std::string& directory = stored.job().spec().checkpoint().directory();
  for (const v1::StoredJob* reader : tools_.ledger->LiveJobs()) {
    const v1::Job& job = reader->job();
    if (!spec::KindOf(job.spec()).reads || IsLost(job)) continue;
    const auto named = NamedBy(job.spec().read());
    if (!named || named->first != spec::OneSpelling(directory)) continue;
    tools_.ledger->AddEvent(
        {.type = "CheckpointNotKept",
         .message = fmt::format("job '{}' may prune step {} of {} before it is read: it did not "
                                "take the command to keep it: {}",
                                stored.job().name(), named->second, directory, why),
         .job_uid = job.uid(),
         .step = named->second});
  }
}

void ReaderPins::Tick() {
  const auto wanted = Wanted();
  for (v1::StoredJob* stored : tools_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    if ((!IsActive(job.state()) && !IsEnding(job)) || !HasCheckpoints(job)) continue;
    const auto at = wanted.find(spec::OneSpelling(job.spec().checkpoint().directory()));
    const std::set<int64_t> none;
    const std::set<int64_t>& steps = at == wanted.end() ? none : at->second;
    if (KnowsTold(*stored) && std::ranges::equal(steps, stored->kept_steps())) continue;
    stored->mutable_kept_steps()->Assign(steps.begin(), steps.end());
    stored->set_kept_term(tools_.ledger->Cluster().term());
    PendingCommands::Drop(*stored, v1::Command::KEEP_STEPS);  // the newest has the whole set
    tools_.commands->Give(*stored, {.verb = v1::Command::KEEP_STEPS},
                          {.actor = "coordinator", .reason = "jobs that read", .request_id = {}});
  }
}

}  // namespace mt::daemon
