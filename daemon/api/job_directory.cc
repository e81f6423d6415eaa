// One look through all jobs that there were, tombstones among them.
#include "daemon/api/job_directory.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/spec/derived.h"
#include "common/spec/validate.h"
#include "daemon/jobs/job_states.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

const std::string& DirectoryOf(const v1::StoredJob& stored) {
  return stored.job().spec().checkpoint().directory();
}

bool IsSameName(const v1::Job& job, const v1::JobSpec& spec) {
  return job.namespace_() == spec.namespace_() && job.name() == spec.name();
}

std::string NameOf(const v1::Job& job) {
  return fmt::format("{}/{}", job.namespace_(), job.name());
}

// Whether an earlier version took the job: where the directory is its name, that may have been its
// choice.
bool IsOlder(const v1::StoredJob& stored) { return !stored.has_directory_given(); }

bool IsChosen(const v1::StoredJob& stored) {
  return stored.has_directory_given() && !stored.directory_given();
}

// Whether it was placed, which makes the directory, or may yet be. Tombstones of the earliest
// versions do not tell.
bool HoldsDirectory(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  return stored.deleted() || job.epoch() > 0 || !IsFinal(job.state());
}

// Whether it saved something there, as far as is known.
bool HasSaved(const v1::StoredJob& stored) {
  return stored.deleted() || stored.job().has_last_checkpoint();
}

// When it was there first, as far as is known: two jobs never write to a directory at a time, so of
// one whose time of creation is not kept its end says as much.
int64_t TimeOf(const v1::Job& job) {
  return job.created_us() != 0 ? job.created_us() : job.finished_us();
}

// What earlier jobs say about a job's directory.
class Precedents {
 public:
  explicit Precedents(const v1::JobSpec& spec) : spec_(&spec), own_(spec::ServiceDirectory(spec)) {}

  void See(const v1::StoredJob& stored) {
    const v1::Job& job = stored.job();
    const std::string& directory = DirectoryOf(stored);
    if (directory == "none") return;  // of a benchmark, or of a job that saves nothing
    const bool same_name = IsSameName(job, *spec_);
    if (same_name && IsChosen(stored)) chosen_ = directory;
    if (same_name && directory == own_) has_named_ = true;
    if (!HoldsDirectory(stored)) return;
    if (directory == spec_->namespace_()) above_ = NameOf(job);
    if (directory == own_ && !same_name) is_others_ = NameOf(job);
    if (directory == spec_->name() && IsOlder(stored) && HasSaved(stored)) SeeMaker(job, same_name);
  }

  spec::Faults Choose(std::string* directory) const {
    if (chosen_) {
      *directory = *chosen_;
    } else if (made_by_name_ && *made_by_name_ < made_by_others_.value_or(INT64_MAX)) {
      *directory = spec_->name();
    } else if (!above_.empty()) {
      return {{.path = "namespace",
               .message = fmt::format(
                   "'{}' is the directory of checkpoints of job {}, and {} would lie in it: submit "
                   "to another namespace, or name a checkpoint.directory",
                   spec_->namespace_(), above_, own_)}};
    } else if (!is_others_.empty() && !has_named_) {
      return {{.path = "checkpoint.directory",
               .message = fmt::format("unset, it is {}, which job {} has named for its own: name "
                                      "it to go on with that job's run, or another one",
                                      own_, is_others_)}};
    } else {
      *directory = own_;
    }
    return {};
  }

 private:
  // The first one made it; others have gone on there. A job of another name in this namespace is
  // no stranger.
  void SeeMaker(const v1::Job& job, bool same_name) {
    if (!same_name && job.namespace_() == spec_->namespace_()) return;
    std::optional<int64_t>& first = same_name ? made_by_name_ : made_by_others_;
    first = std::min(first.value_or(TimeOf(job)), TimeOf(job));
  }

  const v1::JobSpec* spec_;
  std::string own_;
  std::optional<std::string> chosen_;  // before, for jobs of this name
  std::string above_;                  // the job whose directory the namespace is called like
  std::string is_others_;              // the job of another name that has named own_
  bool has_named_ = false;             // one of this name has named it, too
  // When the first job of this name was in the directory NAME, and the first of other namespaces.
  std::optional<int64_t> made_by_name_;
  std::optional<int64_t> made_by_others_;
};

}  // namespace

spec::Faults ChooseDirectory(const Ledger& ledger, v1::JobSpec* spec) {
  v1::Checkpoint* checkpoint = spec->mutable_checkpoint();
  if (checkpoint->directory() == "none") return {};  // as for a benchmark
  Precedents precedents(*spec);
  ledger.ForEachEver([&](const v1::StoredJob& stored) { precedents.See(stored); });
  std::string directory;
  spec::Faults faults = precedents.Choose(&directory);
  if (!faults.empty() || directory == checkpoint->directory()) return faults;
  checkpoint->set_directory(std::move(directory));
  return spec::CompleteJob({.of_service = true}, spec);  // what is compared with the directory
}

spec::Faults CheckGivenDirectory(const Ledger& ledger, const v1::JobSpec& spec) {
  const std::string& directory = spec.checkpoint().directory();
  if (directory == "none") return {};
  std::string inside;
  ledger.ForEachEver([&](const v1::StoredJob& stored) {
    const v1::Job& job = stored.job();
    if (IsChosen(stored) && job.namespace_() == directory &&
        DirectoryOf(stored).starts_with(directory + "/")) {
      inside = NameOf(job);
    }
  });
  if (inside.empty()) return {};
  return {{.path = "checkpoint.directory",
           .message = fmt::format("'{}' is a namespace, whose job {} has its directory of "
                                  "checkpoints in it: name another one",
                                  directory, inside)}};
}

}  // namespace mt::daemon
