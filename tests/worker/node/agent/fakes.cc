// Timers fire in the order of their times, those of one time in the order in which they were set.
#include "tests/worker/node/agent/fakes.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace mt::node {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::WorkerMessage;

EventLoop::TimerId ManualLoop::After(std::chrono::milliseconds delay, Task task) {
  timers_[next_] = {clock_->Now() + delay, std::move(task)};
  return next_++;
}

void ManualLoop::RunPosted() {
  while (!posted_.empty()) {
    const Task task = std::move(posted_.front());
    posted_.pop_front();
    task();
  }
}

void ManualLoop::Advance(std::chrono::milliseconds by) {
  const base::MonotonicTime end = clock_->Now() + by;
  for (;;) {
    RunPosted();
    const auto next = std::min_element(timers_.begin(), timers_.end(),
                                       [](auto& a, auto& b) { return a.second.at < b.second.at; });
    if (next == timers_.end() || next->second.at > end) break;
    if (next->second.at > clock_->Now()) clock_->Advance(next->second.at - clock_->Now());
    const Task task = std::move(next->second.task);
    timers_.erase(next);
    task();
  }
  clock_->Advance(end - clock_->Now());
}

void ManualLoop::Clear() {
  posted_.clear();
  timers_.clear();
}

void FakeCoordinator::Open() {
  EXPECT_FALSE(open) << "opened twice";
  heard.clear();
  open = true;
  close_asked = false;
  ++num_opened;
}

void FakeCoordinator::Send(const WorkerMessage& message) {
  if (open) heard.push_back(message);
}

void FakeCoordinator::Register() {
  CoordinatorMessage message;
  message.mutable_registered()->set_coordinator_uid("coordinator-1");
  Say(message);
}

void FakeCoordinator::Break(const std::string& why) {
  open = false;
  listener_->OnClosed(base::Unavailable("{}", why));
}

std::vector<WorkerMessage> FakeCoordinator::Heard(WorkerMessage::BodyCase kind) const {
  std::vector<WorkerMessage> found;
  for (const WorkerMessage& message : heard) {
    if (message.body_case() == kind) found.push_back(message);
  }
  return found;
}

void FakeRanks::Send(LinkId link, const megatrain::v1::AgentMessage& message) {
  heard[link].push_back(message);
}

void FakeRanks::Say(LinkId link, const megatrain::v1::RankMessage& message) {
  listener_->OnRankMessage(link, message);
}

Status FakeLauncher::Start(LaunchId launch, const RankLaunch& args) {
  if (!start_status.ok()) return start_status;
  started[launch] = args;
  return OkStatus();
}

int FakeLauncher::Adopt(LaunchId launch, const std::string& folder) {
  adopted[launch] = folder;
  return 5000 + static_cast<int>(launch);
}

LaunchId FakeLauncher::LaunchOf(int rank) const {
  LaunchId newest = 0;
  for (const auto& [launch, args] : started) {
    if (args.rank == rank) newest = launch;
  }
  for (const auto& [launch, folder] : adopted) {
    if (folder.ends_with(fmt::format("/rank-{:05}", rank))) newest = std::max(newest, launch);
  }
  EXPECT_NE(newest, 0) << "rank " << rank << " was not started";
  return newest;
}

void FakeGpuProbe::Answer(const StatusOr<GpuInventory>& found) {
  const Done done = std::move(asked.front());
  asked.pop_front();
  done(found);
}

Status FakeStore::Save(const megatrain::v1::AllocationRecord& record) {
  RETURN_IF_ERROR(save_status);
  records[{record.assign().job_uid(), record.assign().epoch()}] = record;
  return OkStatus();
}

void FakeStore::Remove(const std::string& job_uid, int64_t epoch) {
  EXPECT_EQ(records.erase({job_uid, epoch}), 1u);
}

}  // namespace mt::node
