// The watchers of jobs, and what jobs are busy with between two changes of their state. Readers get
// bounded subscriptions and never hold up the core. Not thread-safe (the core's thread), except the
// subscriptions.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "daemon/telemetry/subscription.h"

namespace megatrain::v1 {
class Activity;
class Job;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;

using JobSubscription = Subscription<std::shared_ptr<const v1::Job>>;

class JobFeed {
 public:
  // Items that readers were too slow for are added to *dropped, which outlives the subscriptions.
  explicit JobFeed(std::atomic<int64_t>* dropped) : dropped_(dropped) {}

  // A watcher gets the job as it is now, then every published change and activity; the stream ends
  // after a final state.
  std::shared_ptr<JobSubscription> Watch(const v1::Job& job);
  void Unwatch(const std::string& uid, const JobSubscription* subscription);
  // Takes the job as it is on disk now. A final state ends its streams.
  void Publish(const v1::Job& job);
  // What rank 0 of the job's open epoch is busy with; kind NONE: with nothing. Watchers get the job
  // as they had it last, with this. It is kept while the job is active, and never on disk.
  void NoteActivity(const v1::Job& job, const v1::Activity& activity);
  // Sets the activity of a copy of a job, or clears it where there is none.
  void FillActivity(v1::Job* job) const;
  void CloseAll(const Status& status);
  size_t num_watchers() const;

 private:
  struct Watched {
    std::shared_ptr<const v1::Job> newest;  // that the watchers have
    std::vector<std::shared_ptr<JobSubscription>> streams;
  };
  struct JobActivity {
    int64_t epoch;
    std::unique_ptr<const v1::Activity> activity;
  };
  std::shared_ptr<const v1::Job> SnapshotOf(const v1::Job& job) const;

  std::atomic<int64_t>* const dropped_;
  std::map<std::string, Watched> watched_;         // by job uid
  std::map<std::string, JobActivity> activities_;  // likewise
};

}  // namespace mt::daemon
