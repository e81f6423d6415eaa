// An activity changes nothing of the job that is on disk: what watchers had last is sent again with
// it.
#include "daemon/feeds/job_feed.h"

#include <algorithm>
#include <utility>

#include "common/control/numbers.h"
#include "daemon/jobs/job_states.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

std::shared_ptr<JobSubscription> JobFeed::Watch(const v1::Job& job) {
  auto subscription = std::make_shared<JobSubscription>(control::kStreamQueue, dropped_);
  auto snapshot = SnapshotOf(job);
  subscription->Push(snapshot);
  if (IsFinal(job.state())) {
    subscription->Close(OkStatus());
  } else {
    Watched& watched = watched_[job.uid()];
    watched.newest = std::move(snapshot);
    watched.streams.push_back(subscription);
  }
  return subscription;
}

void JobFeed::Unwatch(const std::string& uid, const JobSubscription* subscription) {
  const auto it = watched_.find(uid);
  if (it == watched_.end()) return;
  std::erase_if(it->second.streams,
                [&](const auto& stream) { return stream.get() == subscription; });
  if (it->second.streams.empty()) watched_.erase(it);
}

void JobFeed::Publish(const v1::Job& job) {
  const bool final_state = IsFinal(job.state());
  if (!IsActive(job.state())) activities_.erase(job.uid());
  const auto it = watched_.find(job.uid());
  if (it == watched_.end()) return;
  const auto snapshot = SnapshotOf(job);
  it->second.newest = snapshot;
  for (const auto& stream : it->second.streams) {
    stream->Push(snapshot);
    if (final_state) stream->Close(OkStatus());
  }
  if (final_state) watched_.erase(it);
}

void JobFeed::NoteActivity(const v1::Job& job, const v1::Activity& activity) {
  if (activity.kind() == v1::Activity::NONE) {
    if (activities_.erase(job.uid()) == 0) return;
  } else {
    activities_[job.uid()] = {.epoch = job.epoch(),
                              .activity = std::make_unique<const v1::Activity>(activity)};
  }
  const auto watched = watched_.find(job.uid());
  if (watched == watched_.end()) return;
  const auto snapshot = SnapshotOf(*watched->second.newest);
  watched->second.newest = snapshot;
  for (const auto& stream : watched->second.streams) stream->Push(snapshot);
}

void JobFeed::FillActivity(v1::Job* job) const {
  const auto it = activities_.find(job->uid());
  if (it == activities_.end() || it->second.epoch != job->epoch()) {
    job->clear_activity();
  } else {
    *job->mutable_activity() = *it->second.activity;
  }
}

void JobFeed::CloseAll(const Status& status) {
  for (auto& [uid, watched] : watched_) {
    for (const auto& stream : watched.streams) stream->Close(status);
  }
  watched_.clear();
}

size_t JobFeed::num_watchers() const {
  size_t count = 0;
  for (const auto& [uid, watched] : watched_) count += watched.streams.size();
  return count;
}

std::shared_ptr<const v1::Job> JobFeed::SnapshotOf(const v1::Job& job) const {
  auto snapshot = std::make_shared<v1::Job>(job);
  FillActivity(snapshot.get());
  return snapshot;
}

}  // namespace mt::daemon
